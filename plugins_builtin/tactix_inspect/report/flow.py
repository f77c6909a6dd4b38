"""Which step reads what which other step wrote."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tactix.plan.parts import located
from tactix.plan.schema import Plan


@dataclass(frozen=True)
class StepFlow:
    """Of a plan's steps, inputs and outputs, which are numbered in this order.

    ``edges``: who makes and who reads, each pair once. ``makers``: of each operand of each step the
    node that it comes from, -1 for constants.
    """

    steps: int
    inputs: int
    outputs: int
    edges: tuple[tuple[int, int], ...]
    makers: tuple[tuple[int, ...], ...]

    @property
    def count(self) -> int:
        return self.steps + self.inputs + self.outputs

    @property
    def in_order(self) -> list[int]:
        """All nodes, none before what it reads."""
        first, last = self.steps, self.steps + self.inputs
        return [*range(first, last), *range(first), *range(last, self.count)]


def flow(plan: Plan) -> StepFlow:
    """Of a plan that is well formed."""
    steps, inputs = len(plan.steps), len(plan.inputs)
    writers = _Writers(plan)
    for i, io in enumerate(plan.inputs):
        writers.wrote(steps + i, io.buffer)
    edges: dict[tuple[int, int], None] = {}
    makers = []
    for i, s in enumerate(plan.steps):
        found = [writers.of(o.buffer) for o in s.inputs]
        edges |= dict.fromkeys((w, i) for ws in found for w in ws)
        makers.append(tuple(ws[-1] if ws else -1 for ws in found))
        for o in s.outputs:
            writers.wrote(i, o.buffer)
    for i, io in enumerate(plan.outputs):
        edges |= dict.fromkeys((w, steps + inputs + i) for w in writers.of(io.buffer))
    return StepFlow(steps, inputs, len(plan.outputs), tuple(edges), tuple(makers))


class _Writers:
    """Who wrote what lies in each buffer; a buffer with parts is written by those of its parts."""

    def __init__(self, plan: Plan) -> None:
        self._buffers = plan.buffers
        self._last: dict[int, int] = {}
        self._parts: dict[int, dict[int, int]] = {}

    def wrote(self, node: int, buffer: int) -> None:
        whole, _ = located(self._buffers, buffer)
        self._last[buffer] = node
        if whole == buffer:
            self._parts.pop(whole, None)
        else:
            self._parts.setdefault(whole, {})[buffer] = node

    def of(self, buffer: int) -> list[int]:
        """In the order in which they wrote."""
        return sorted(set(self._of(buffer))) if buffer >= 0 else []

    def _of(self, buffer: int) -> Iterator[int]:
        whole, _ = located(self._buffers, buffer)
        if whole != buffer and buffer in self._last:
            yield self._last[buffer]
            return
        if whole in self._last:
            yield self._last[whole]
        yield from self._parts.get(whole, {}).values()
