"""What the tables of a library say of launches, whatever runs them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from tactix.base.dims import Dim
from tactix.contracts.artifact import Binary, Launch
from tactix.contracts.launcher import Step
from tactix.plan.schema import Plan
from tactix_ship.c_library.arithmetic import PlanArithmetic
from tactix_ship.c_library.names import remark

WIDTH = 110
"""Columns of a row of numbers."""


class Slots(Protocol):
    """Argument slots of all launches in a row: the first of each launch; slot, buffer and index of
    what is added to its address; slot and index of a number. Indices are places in ``dims``.
    """

    size: int
    starts: list[int]
    pointers: list[tuple[int, int, int]]
    scalars: list[tuple[int, int]]

    @property
    def dims(self) -> Sequence[Dim]: ...


@dataclass(frozen=True)
class ProgramTables:
    """A plan of one set of kernels, with what its launches take and the arithmetic of it."""

    plan: Plan
    slots: Slots
    arithmetic: PlanArithmetic

    @property
    def launches(self) -> list[tuple[Step, Launch]]:
        return [(s, x) for s in self.plan.steps for x in s.artifact.launches]


class LaunchTables(ABC):
    """The part of the tables that launches of one kind have. ``programs``: by set of kernels."""

    programs: Sequence[ProgramTables]

    @abstractmethod
    def sizes(self) -> Iterable[tuple[str, int, str]]:
        """Constants: name, value, and what it is."""

    @abstractmethod
    def whole(self) -> Iterable[str]:
        """Lines of what all programs share."""

    @abstractmethod
    def program(self, index: int, prefix: str) -> Iterable[str]:
        """Lines of a program's own tables, whose names begin with the prefix."""

    @abstractmethod
    def fields(self, index: int, prefix: str) -> Iterator[str]:
        """Fields of its launch_table."""


def code_of(s: Step) -> Binary:
    """Of a step that was checked."""
    assert isinstance(s.artifact.code, Binary)
    return s.artifact.code


# -- text ----------------------------------------------------------------------------------------


def joined(values: Iterable[int]) -> str:
    """``1, 2, 3``; C has no empty list."""
    return ", ".join(map(str, values)) or "0"


def table(head: str, rows: Iterable[str], what: str) -> list[str]:
    """A table with a row a line."""
    return ["", f"/* {remark(what)} */", f"static {head} = {{", *(f"    {r}" for r in rows), "};"]


def numbers(head: str, values: Iterable[int], what: str) -> list[str]:
    """A table of integers, with as many a line as have room."""
    return filled_rows(head, list(map(str, values)) or ["0"], what)


def filled_rows(head: str, values: Sequence[str], what: str) -> list[str]:
    """A table with as many values a line as have room."""
    lines = [""]
    for v in values:
        if len(lines[-1]) + len(v) + 2 > WIDTH:
            lines.append("")
        lines[-1] += f"{v}, "
    return table(head, [line.rstrip() for line in lines], what)
