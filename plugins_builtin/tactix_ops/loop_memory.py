"""Where states and rows of a loop lie in runs of its body that follow each other.

A state alternates between two places, of which a run reads one and writes the other, so that none
is copied; one that a body changes in place has one. Rows lie one behind the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tactix.base.arrays import Array
from tactix.base.host_memory import check_array_fits
from tactix.contracts.program import Displacement, GrowingBody, Progression
from tactix.run.arrays import address_of


def row_move(buffer: int, rows: Array, backwards_from: int = 0) -> Displacement:
    """A row for each run: from the first on, or backwards from the last of so many."""
    stride = rows.strides[0]
    first = address_of(rows) + max(0, backwards_from - 1) * stride
    return Displacement(buffer, first, (first, first), -stride if backwards_from else stride)


def progressions(body: GrowingBody, first: int = 0) -> list[Progression]:
    """The sizes that are told of a body which is bound for the run with that number."""
    told, sizes = address_of(body.told), zip(body.sizes, body.steps, strict=True)
    return [Progression(told + 8 * i, n - first * k, k) for i, (n, k) in enumerate(sizes)]


@dataclass(frozen=True, eq=False)
class LoopState:
    """A state's value before the first run, and its places, which runs write in turns; both are one
    if runs change it in place.
    """

    given: Array
    places: tuple[Array, Array]

    def moves(self, read: int, written: int) -> tuple[Displacement, Displacement]:
        """Of the buffers in which a run reads it, and writes it."""
        even, odd = map(address_of, self.places)
        return (
            Displacement(read, address_of(self.given), (odd, even)),
            Displacement(written, even, (even, odd)),
        )

    def after(self, runs: int) -> Array:
        return self.places[(runs - 1) % 2]


def room(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Raises MemoryError."""
    check_array_fits(shape, dtype)
    return np.empty(shape, dtype)


def longer(stack: Array, rows: int) -> Array:
    """The stack with room for more."""
    out = room((rows, *stack.shape[1:]), stack.dtype)
    out[: len(stack)] = stack
    return out
