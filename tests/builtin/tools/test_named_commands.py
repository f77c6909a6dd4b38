"""Commands that messages and docstrings tell one to run are there, with their options."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tactix.plugins.session import Session
from tactix_sdk.authoring.cli import group as sdk

ROOT = Path(__file__).resolve().parents[3]
NAMED = re.compile(r"`tactix(-sdk)? ([a-z][^`\n]*)`")
WORD = re.compile(r"[a-z][a-z-]*")
"""A command, and not the place of a file, key or digest."""


def named() -> Iterator[tuple[str, str, str]]:
    """The file, "-sdk" or nothing, and the words of each."""
    for root in ("core", "plugins_builtin", "plugin_sdk"):
        for path in sorted((ROOT / root).rglob("*.py")):
            for match in NAMED.finditer(path.read_text(encoding="utf-8")):
                yield f"{path.relative_to(ROOT)}", match[1] or "", match[2]


@pytest.fixture(scope="module")
def tools() -> click.Group:
    """The command ``tactix`` with all built-in tools."""
    return click.Group("tactix", {t.name: t.command() for t in Session().tools.values()})


def missing(command: click.Command, words: list[str]) -> str:
    """The first word that is no command or option, or nothing."""
    context = click.Context(command)
    for word in words:
        if isinstance(command, click.Group) and WORD.fullmatch(word):
            found = command.get_command(context, word)
            if found is None:
                return word
            command = found
        elif word.startswith("-") and not any(word in p.opts for p in command.params):
            return word
    return ""


def test_every_named_command_is_there(tools: click.Group) -> None:
    found = list(named())
    assert len(found) > 50
    absent = [
        f"{path}: tactix{which} {text}: {word}"
        for path, which, text in found
        if (word := missing(sdk if which else tools, text.split()))
    ]
    assert absent == []


def test_a_command_that_is_not_there_is_found(tools: click.Group) -> None:
    assert missing(tools, ["plugins", "check"]) == "check"
    assert missing(tools, ["build", "MODEL", "--nothing"]) == "--nothing"
    assert missing(tools, ["plugins", "list"]) == ""
