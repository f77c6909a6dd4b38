"""A command line of trtexec, taken apart: ``--name`` and ``--name=value``, in order."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import click

from tactix.base.errors import InvalidArgument
from tactix.base.spelling import did_you_mean
from tactix_tools.options import SHAPES, Shapes
from tactix_tools.trtexec.flags import KNOWN, Flag, Standing

T = TypeVar("T")
_BYTES = {"B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_SIZE = re.compile(r"(?P<number>\d+(\.\d+)?)(?P<unit>[BKMG]?)(i?B)?")


class Arguments:
    """What was given. Raises InvalidArgument for what is no flag, is refused, or lacks a value."""

    def __init__(self, argv: Sequence[str]) -> None:
        self._items = [_item(word) for word in argv]

    def flags(self) -> Iterator[Flag]:
        """Each flag once, in order."""
        return iter({flag.name: flag for flag, _ in self._items}.values())

    def ordered(self, *names: str) -> Iterator[tuple[str, str]]:
        """Names and values of some flags in the order in which they were given."""
        return ((flag.name, value) for flag, value in self._items if flag.name in names)

    def on(self, *names: str) -> bool:
        """Whether any of these switches is there."""
        return any(flag.name in names for flag, _ in self._items)

    def text(self, name: str, otherwise: str = "") -> str:
        """The last value."""
        return next((v for f, v in reversed(self._items) if f.name == name), otherwise)

    def given(self, name: str, convert: Callable[[str], T], otherwise: T) -> T:
        """The last value, converted. Raises InvalidArgument for what ``convert`` refuses."""
        text = self.text(name)
        return read_as(name, text, convert) if text else otherwise

    def number(self, name: str, otherwise: int, low: int = 0, high: int | None = None) -> int:
        """A whole number within limits."""
        return self.given(name, lambda text: int(_within(int(text), low, high)), otherwise)

    def real(self, name: str, otherwise: float) -> float:
        """A number of 0 or more."""
        return self.given(name, lambda text: _within(float(text), 0, None), otherwise)

    def choice(self, name: str, choices: Sequence[str], otherwise: str) -> str:
        """One of some words."""
        return self.given(name, lambda text: _one_of(text, choices), otherwise)

    def pairs(self, name: str) -> dict[str, str]:
        """``name:value`` separated by commas; a name may hold colons."""
        return self.given(name, lambda text: dict(_pair(i) for i in text.split(",")), {})


def read_as(name: str, text: str, convert: Callable[[str], T]) -> T:
    """A flag's value, converted. Raises InvalidArgument for what ``convert`` refuses."""
    try:
        return convert(text)
    except ValueError as e:
        raise InvalidArgument(
            f"--{name}={text} cannot be read", why=str(e), do=f"Write {KNOWN[name].spelling}"
        ) from None


def _item(word: str) -> tuple[Flag, str]:
    """A flag, and its value. Raises InvalidArgument."""
    name, _, value = word.partition("=")
    flag = KNOWN.get(name.lstrip("-")) if name.startswith("-") else None
    if flag is None:
        known = [f"--{n}" for n in KNOWN]
        raise InvalidArgument(
            f"Unknown option: {word}",
            do=did_you_mean(name, known, "--help lists them. A value stands behind ="),
        )
    if flag.standing is Standing.REFUSED:
        raise InvalidArgument(f"{flag.spelling} cannot be had here", do=flag.why)
    if bool(flag.value) != bool(value):
        why = "it needs a value" if flag.value else "it takes none"
        raise InvalidArgument(f"{word}: {why}", do=f"Write {flag.spelling}")
    return flag, value


def _pair(item: str) -> tuple[str, str]:
    name, colon, value = item.rpartition(":")
    if not (colon and name and value):
        raise ValueError(f"{item!r} is not of the form name:value")
    return name.replace("'", ""), value


def _within(n: float, low: float, high: float | None) -> float:
    if not low <= n <= (math.inf if high is None else high):
        raise ValueError(f"it must be {low} or more" + (f", {high} at most" if high else ""))
    return n


def _one_of(text: str, choices: Sequence[str]) -> str:
    if text not in choices:
        raise ValueError(f"there are {', '.join(choices)}")
    return text


def shapes(text: str) -> Shapes:
    """Of ``x:1x3x8x8,y:4``; names may be quoted. Raises ValueError."""
    try:
        return dict(SHAPES.convert(text.replace("'", ""), None, None))
    except click.BadParameter as e:
        raise ValueError(e.message) from None


def size(text: str, unit: str = "M") -> int:
    """Bytes of ``512`` (in ``unit``), ``0.5G``, ``64KiB``. Raises ValueError."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no size like 512, 0.5G or 64K")
    return int(float(found["number"]) * _BYTES[found["unit"] or unit])
