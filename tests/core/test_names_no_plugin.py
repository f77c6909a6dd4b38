"""The core names no plugin: no string in it is the key of something that a pack provides, or the
name of a pack.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import tactix
from tactix.contracts.region import STRUCTURAL
from tactix.plugins.registry import KINDS

CORE = Path(tactix.__file__).parent
FILES = sorted(CORE.rglob("*.py"))

ROLES = {
    "contracts/flavour.py": {
        "default"
    },  # what a flavour has to be called that runs plans where none is named
    "contracts/trust.py": {"local"},  # what a store has to be called that signs
    "contracts/tactic.py": {"default"},  # a variant without knobs
    "pipeline/profiles.py": {"default"},  # a build without profiles
}
"""Words that are keys as well, by the file that may have them."""


@pytest.fixture(scope="module")
def names() -> frozenset[str]:
    """Keys of all that the built-in packs provide, with and without versions, and the packs' names.

    Tools are called as one speaks (``build``, ``check``): that no tool is asked for by its name is
    seen elsewhere.
    """
    session = tactix.Session()
    objects = (o for kind in session.kinds if kind != "tools" for o in getattr(session, kind))
    keys = {*objects} - {layer.key for layer in STRUCTURAL}
    packs = {name for p in session.found() for name in (p.name, p.module.partition(".")[0])}
    return frozenset({*keys, *(k.partition("@")[0] for k in keys), *packs}) - {"tactix"}


def named(source: str, names: frozenset[str]) -> Iterator[tuple[int, str]]:
    """Line and text of the strings in code that are names, and of registries that are asked for a
    fixed key.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in names:
            yield node.lineno, node.value
        asked, key = _asked(node)
        if (
            isinstance(asked, ast.Attribute)
            and asked.attr in KINDS
            and isinstance(key, ast.Constant)
        ):
            yield node.lineno, f"{asked.attr}[{key.value!r}]"


def _asked(node: ast.AST) -> tuple[ast.AST | None, ast.AST | None]:
    """What is asked for a key, and the key."""
    if isinstance(node, ast.Subscript):
        return node.value, node.slice
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "get"
        and node.args
    ):
        return node.func.value, node.args[0]
    return None, None


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(CORE).as_posix())
def test_no_plugin_is_named(path: Path, names: frozenset[str]) -> None:
    allowed = ROLES.get(path.relative_to(CORE).as_posix(), set())
    assert [
        found for found in named(path.read_text(encoding="utf-8"), names) if found[1] not in allowed
    ] == []


def test_what_is_allowed_is_there(names: frozenset[str]) -> None:
    for path, words in ROLES.items():
        assert {
            text for _, text in named((CORE / path).read_text(encoding="utf-8"), names)
        } == words


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(CORE).as_posix())
def test_nothing_is_asked_for_what_its_type_lacks(path: Path) -> None:
    assert "attr-defined" not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('flavour = "lean"', ["lean"]),
        ('find("tactix.cpu@1")', ["tactix.cpu@1"]),
        ('x == "tactix.Convolution"', ["tactix.Convolution"]),
        ('import_module("tactix_refit")', ["tactix_refit"]),
        ('do = "tactix.cudnn"', ["tactix.cudnn"]),
        ('session.tools["lock"].build()', ["tools['lock']"]),
        ('self.session.flavours.get("mine")', ["flavours['mine']"]),
        ('session.flavours[DEFAULT], rows["lock"], "a plan of the flavour lean"', []),
    ],
)
def test_the_check_sees(source: str, found: list[str], names: frozenset[str]) -> None:
    assert [text for _, text in named(source, names)] == found
