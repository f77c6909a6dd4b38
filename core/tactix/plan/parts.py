"""Buffers that are parts of others: where they lie, and that nothing in them is read before it is
written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from typing import TYPE_CHECKING

from tactix.base import dims
from tactix.base.dims import Dim
from tactix.base.errors import PlanFormatError
from tactix.base.tensor import TensorSpec

if TYPE_CHECKING:
    from tactix.plan.schema import Buffer, Plan

PART = "part"
"""The kind of a buffer that is a part of another."""

ALIGNMENT = 64
"""Bytes of which every place in the arena is a multiple, that of a part, too: kernels count on it.
"""

DEEPEST_PART = 256
"""How deep parts may lie in each other: a dense block of a network nests one for each layer."""


def around(buffers: Sequence[Buffer], index: int) -> Iterator[int]:
    """The buffers that one is a part of, the nearest first."""
    while (index := buffers[index].inside) >= 0:
        yield index


def located(buffers: Sequence[Buffer], index: int) -> tuple[int, Dim]:
    """The buffer with memory of its own that one lies in, and how many bytes behind its begin;
    itself and 0 for what is no part.
    """
    offset: Dim = 0
    while buffers[index].inside >= 0:
        index, offset = buffers[index].inside, offset + buffers[index].offset
    return index, offset


def may_begin_at(offset: Dim) -> bool:
    """Whether a part may: so many bytes are a multiple of ALIGNMENT at every shape, and never
    negative.
    """
    aligned = dims.mod(offset, ALIGNMENT) == 0
    return aligned and dims.compare(offset, 0) in ("==", ">", ">=")


def check(plan: Plan, index: int, where: str) -> None:
    """That a part lies in the arena, in a buffer before it, at an aligned place that is not
    negative at any shape. Raises PlanFormatError.

    That it ends in that buffer is compared with the steps' extents.
    """
    b = plan.buffers[index]
    before = 0 <= b.inside < index
    if not before or plan.buffers[b.inside].kind not in ("arena", PART):
        raise PlanFormatError(f"is no part of buffer {b.inside}", who=where)
    # no step may write them as they are declared, so that nothing else compares these
    for x in (b, plan.buffers[b.inside]):
        if x.dtype.on_host or x.nbytes != TensorSpec(x.dtype, x.shape).nbytes(x.format):
            raise PlanFormatError(f"{x.nbytes} bytes are not those of its shape", who=where)
    # those before it have been checked: their chains end
    if sum(1 for _ in around(plan.buffers, index)) > DEEPEST_PART:
        raise PlanFormatError(f"parts lie more than {DEEPEST_PART} deep", who=where)
    if not may_begin_at(b.offset):
        what = f"begins at {b.offset}, which may be negative or no multiple of {ALIGNMENT}"
        raise PlanFormatError(what, who=where)


class Ready:
    """The buffers that may be read: those that were written, those that lie in such, and those that
    consist of such.
    """

    def __init__(self, buffers: Sequence[Buffer], known: Iterable[int]) -> None:
        self._buffers, self._known = buffers, set(known)
        self._reached: dict[int, set[Dim]] = {}
        self._waiting: dict[tuple[int, Dim], list[Dim]] = {}

    def __contains__(self, index: int) -> bool:
        return holds(self._buffers, self._known, index)

    def add(self, written: Iterable[int]) -> None:
        """What a step has written."""
        for b in written:
            self._add(b)

    def _add(self, index: int) -> None:
        while index not in self._known:
            self._known.add(index)
            part = self._buffers[index]
            if part.inside < 0 or not self._completes(part):
                return
            index = part.inside

    def _completes(self, part: Buffer) -> bool:
        """Whether its whole is written with this part: parts follow each other from its begin to
        its end.
        """
        whole = part.inside
        reached = self._reached.setdefault(whole, {0})
        self._waiting.setdefault((whole, part.offset), []).append(part.offset + part.nbytes)
        places = [part.offset] if part.offset in reached else []
        while places:
            ends = self._waiting.pop((whole, places.pop()), [])
            reached.update(ends)
            places += ends
        return self._buffers[whole].nbytes in reached


def holds(buffers: Sequence[Buffer], made: Set[int], index: int) -> bool:
    """Whether a buffer lies in one of those that were made, or is one; -1 stands for none."""
    return index in made or (index >= 0 and any(i in made for i in around(buffers, index)))
