"""Where the intermediate tensors of a plan lie in its arena, and how much lives at each step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tactix.base import dims
from tactix.plan.memory import lower_bound, plan_memory
from tactix.plan.parts import ALIGNMENT
from tactix.plan.schema import Plan


@dataclass(frozen=True)
class Block:
    """A buffer in the arena: bytes, and the first and last step that it lives at. ``kind``:
    ``arena`` or ``workspace``.
    """

    name: str
    kind: str
    first: int
    last: int
    offset: int
    nbytes: int


@dataclass(frozen=True)
class ArenaMap:
    """Bytes, in whole units of ALIGNMENT. ``live``: at each step; ``least``: the most of them,
    which no arena can do without.
    """

    arena: int
    least: int
    live: tuple[int, ...]
    blocks: tuple[Block, ...]


def arena_map(plan: Plan, sizes: Mapping[str, int]) -> ArenaMap | None:
    """At these values of the plan's symbols; None where only running tells the sizes."""
    placed = [b for b in plan.buffers if b.kind in ("arena", "workspace")]
    if plan.produced or not all(dims.symbols(b.nbytes) <= sizes.keys() for b in placed):
        return None
    nbytes = [dims.evaluate(b.nbytes, sizes) for b in placed]
    lives = [(b.first, b.last) for b in placed]
    offsets, arena = plan_memory(nbytes, lives)
    live = [0] * len(plan.steps)
    for n, (first, last) in zip(nbytes, lives, strict=True):
        for i in range(first, last + 1):
            live[i] += -(-n // ALIGNMENT) * ALIGNMENT
    blocks = (
        Block(b.name, b.kind, b.first, b.last, offset, n)
        for b, offset, n in zip(placed, offsets, nbytes, strict=True)
        if n
    )
    return ArenaMap(arena, lower_bound(nbytes, lives), tuple(live), tuple(blocks))
