"""States that grow in memory reserved for them: a run appends to them and copies nothing."""

from __future__ import annotations

from dataclasses import dataclass

from tactix.base.dims import Dim


@dataclass(frozen=True)
class StatePair:
    """An input and the output of the same shape that is this state after a run; ``axis``: along
    which it grows.
    """

    input: str
    output: str
    axis: int


@dataclass(frozen=True)
class States:
    """The states of a network, all of one length and one room.

    ``length``: the symbol of how much of them is filled before a run, which the caller tells, as no
    shape does. ``after``: the same behind a run. ``room``: the symbol that is their size along
    their axes.
    """

    length: str
    after: Dim
    room: str
    pairs: tuple[StatePair, ...]
