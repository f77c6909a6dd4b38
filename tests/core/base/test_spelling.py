"""What may have been meant."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tactix.base.spelling import did_you_mean, near

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("name", "most", "said"),
    [
        ("alpa", 1, "Did you mean 'alpha'?"),
        ("alpha1", 1, "Did you mean 'alpha'?"),
        ("alphb", 2, "Did you mean 'alpha' or 'alphabet'?"),
        ("zzz", 3, "nothing"),
    ],
)
def test_names_that_are_near_are_asked_for(name: str, most: int, said: str) -> None:
    assert did_you_mean(name, iter(["beta", "alphabet", "alpha", "alpha"]), "nothing", most) == said


def test_the_least_share_of_letters_can_be_lowered() -> None:
    assert near("ab", ["abcdef"]) == []
    assert near("ab", ["abcdef"], least=0.4) == ["abcdef"]


def test_there_is_no_second_way_to_look_for_near_names() -> None:
    """Two messages that say it in two ways would be told apart by nothing else."""
    roots = (ROOT / "core", ROOT / "plugin_sdk", ROOT / "plugins_builtin")
    users = [
        p.name
        for r in roots
        for p in r.rglob("*.py")
        if re.search("difflib", p.read_text(encoding="utf-8"))
    ]
    assert users == ["spelling.py"]
