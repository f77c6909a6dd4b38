"""Which weights the linked steps of a plan and its bodies read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tactix.contracts.launcher import Step
from tactix.plan.schema import Plan


class Reads:
    """``blobs``: what linked steps read, in the order of a group's. Steps that are produced read
    the plan itself.
    """

    def __init__(self, plan: Plan) -> None:
        self._of: dict[int, frozenset[str]] = {}
        self._plans: dict[int, Plan] = {}
        found: dict[str, None] = {}
        filled = {b for b, content in plan.blobs.items() if memoryview(content).nbytes}
        for p in plan.nested():
            produced = p.produced
            for s in (s for i, s in enumerate(p.steps) if i not in produced):
                buffers = [o.buffer for o in s.inputs if o.buffer >= 0] + [*s.constants.values()]
                read = {b for i in buffers if (b := p.buffers[i].blob) in filled}
                self._of[id(s)], self._plans[id(s)] = frozenset(read), p
                found |= dict.fromkeys(sorted(read))
        self.blobs = list(found)

    def all(self, streamable: Mapping[str, int]) -> list[frozenset[str]]:
        """The streamable weights that each step reads."""
        return [read & streamable.keys() for read in self._of.values()]

    def of(self, steps: Sequence[Step], streamable: Mapping[str, int]) -> list[frozenset[str]]:
        """The same of some steps."""
        return [self._of[id(s)] & streamable.keys() for s in steps]

    def plan_of(self, step: Step) -> Plan:
        """The plan that a step is of."""
        return self._plans[id(step)]
