"""Large constants in parts: some rows at a time, by several threads."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tactix_refit import ops
from tactix_refit.moves import Move
from tactix_refit.recipe import RecipeStep, computed

Array = Any

PART = 1 << 20
"""Elements that a thread takes at once: with fewer, threads wait for each other in the interpreter.
"""
LARGE = PART // 2
"""Elements from which a constant is made in parts."""
SMALL = 8
"""What is so many times smaller than the result is computed before its parts."""
GIVEN = frozenset({"weight", "literal"})


class Rows:
    """A term along its first axis. ``order``: the terms that it is made of, of which some are
    ``whole``.
    """

    def __init__(
        self, terms: Sequence[RecipeStep], order: Sequence[int], value: Callable[[int], Array]
    ) -> None:
        self._terms, self._order, self._root = terms, order, terms[order[-1]]
        self._whole = {k: value(k) for k in order if _is_whole(terms[k], self._root)}

    def part(self, first: int, stop: int) -> Array:
        """Rows of the result. Raises what ``computed`` raises."""
        shape, known = self._root.shape, dict[int, Array]()
        for k in self._order:
            t = self._terms[k]
            if (x := self._whole.get(k)) is None:
                known[k] = computed(t, [known[a] for a in t.args], (stop - first, *shape[1:]))
            else:
                known[k] = x[first:stop] if x.ndim == len(shape) and len(x) == shape[0] else x
        return known[self._order[-1]]


def _is_whole(t: RecipeStep, root: RecipeStep) -> bool:
    return t.op in GIVEN or t.nbytes * SMALL <= root.nbytes


def order_of(terms: Sequence[RecipeStep], root: int) -> list[int]:
    """What ``Rows`` goes through for a term; nothing if it is more than operations on single
    elements.
    """
    seen: set[int] = set()
    stack = [root]
    while stack:
        k = stack.pop()
        if k not in seen:
            seen.add(k)
            if not _is_whole(terms[k], terms[root]):
                if terms[k].op not in ops.ELEMENTWISE or terms[k].shape != terms[root].shape:
                    return []
                stack += terms[k].args
    return sorted(seen)


def spans(t: RecipeStep, move: Move, size: int) -> Iterator[tuple[int, int, slice]]:
    """Ranges of rows of a term, of about so many elements, and where they are in the move's source:
    whole blocks.
    """
    row, block = math.prod(t.shape[1:]), math.prod(move.source_shape[1:])
    least = math.lcm(row, block) // row
    step = max(1, size // (row * least)) * least
    for first in range(0, t.shape[0], step):
        stop = min(first + step, t.shape[0])
        yield first, stop, slice(first * row // block, stop * row // block)
