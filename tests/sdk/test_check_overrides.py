"""The check of overrides: what is told, and what is left alone."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from tactix_sdk.testing.overriding import RENAMED, derived, forgotten

HEAD = """
from tactix.select.bench import Bench
from tactix_sdk import Launcher, Tactic


class Mine({base}):
{body}
"""


def made(folder: Path, base: str, body: str) -> ModuleType:
    """A module of one class, with a file, as sources are looked at."""
    text = HEAD.format(base=base, body=body)
    file = folder / "made_of_one.py"
    file.write_text(text)
    module = ModuleType("made_of_one")
    module.__file__ = str(file)
    exec(compile(text, str(file), "exec"), vars(module))
    return module


TOLD = {
    "renamed": ("Bench", "    def final(self, *a): return super().final(*a)", "'fastest' now"),
    "spelling": ("Tactic", "    def variant(self, w, d): return []", "did you mean 'variants'"),
    "property": ("Tactic", "    @property\n    def matches(self): return 1", "mean 'match'"),
    "of a launcher": ("Launcher", "    def links(self, steps, ctx): return 1", "mean 'link'"),
}


@pytest.mark.parametrize("name", TOLD)
def test_what_nothing_calls_is_told(tmp_path: Path, name: str) -> None:
    base, body, said = TOLD[name]
    (told,) = forgotten([made(tmp_path, base, body)])
    assert said in told
    assert "made_of_one.Mine." in told


LEFT = {
    "an override": ("Tactic", "    def variants(self, w, d): return []"),
    "a helper": ("Tactic", "    def tiles_of(self, w): return []"),
    "called by the pack": (
        "Tactic",
        "    def variant(self, w): return 1\n    def cost(self, w, v, c): return self.variant(w)",
    ),
    "private": ("Tactic", "    def _variant(self, w): return 1"),
    "a field": ("Tactic", "    variant = 3"),
    "of another base": ("Bench", "    def links(self): return 1"),
    "of no contract": ("dict", "    def variant(self): return 1"),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_no_override_is_left_alone(tmp_path: Path, name: str) -> None:
    module = made(tmp_path, *LEFT[name])
    assert len(derived([module])) == (LEFT[name][0] != "dict")
    assert list(forgotten([module])) == []


def test_names_of_before_are_gone() -> None:
    """A table that is out of date would tell nonsense."""
    for contract, names in RENAMED.items():
        for before, now in names.items():
            assert not hasattr(contract, before)
            assert hasattr(contract, now)
