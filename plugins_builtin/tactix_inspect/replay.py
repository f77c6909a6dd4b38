"""Running a plan step by step: each step's actual operands as plain arrays, and what its own
reference makes of the same inputs.

Nothing is kept of a step once it has been looked at, so a replay takes the memory of a run and of
its largest step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from tactix.base.arrays import Array
from tactix.base.dims import Env
from tactix.base.errors import PlanCompatibilityError, TactixError
from tactix.base.tensor import TensorSpec
from tactix.contracts.graph import Node, Value
from tactix.contracts.launcher import Step
from tactix.contracts.region import decode, resolve
from tactix.plan.schema import Plan
from tactix.plugins.session import Session
from tactix.run.observed import RunningStep
from tactix.select.accuracy import BUDGET, GRANTED, departure
from tactix.select.bench import Expected
from tactix_runtime.references import weight_operand

NUMPY = "numpy"
"""The tactic source of steps that are their own reference."""
SMALL = 1024
"""Elements of an integer input up to which inference may hang on its content."""


@dataclass(frozen=True)
class StepRun:
    """What a step read and made. ``plan``: the one that it is of, perhaps of a body. ``inputs``:
    beside the step's; None for one that the plan does not hold in plain form.
    """

    plan: Plan
    step: Step[Plan]
    env: Env
    inputs: tuple[Array | None, ...]
    outputs: tuple[Array, ...]
    session: Session = field(repr=False)

    @property
    def is_reference(self) -> bool:
        """Whether it is the reference itself that runs."""
        return self.step.info.get("source") == NUMPY

    @cached_property
    def expected(self) -> Expected:
        """What the step's own reference makes of its inputs, and how far a right kernel may be off.

        Raises PlanCompatibilityError for a step without a reference, or without weights for it;
        ExecutionError, PluginError if the reference fails.
        """
        return Expected(self.node, [x for x in self.inputs if x is not None], {})

    @cached_property
    def node(self) -> Node:
        """The step as a node of a network at its actual shapes. Raises PlanCompatibilityError."""
        meaning, who = meaning_of(self.step), f"step {self.step.name!r}"
        if meaning is None:
            raise PlanCompatibilityError("it holds no reference", who=who)
        if any(x is None for x in self.inputs):
            raise PlanCompatibilityError("it holds no weight", who=who)
        try:
            layer, attrs = decode(meaning, self.session.layers.__getitem__)
        except (LookupError, TypeError, TactixError) as e:
            raise PlanCompatibilityError(
                "its reference cannot be read", who=who, reasons=(str(e)[:200],)
            ) from e
        inputs = [
            Value(f"input {i}", self._spec(i, x))
            for i, x in enumerate(self.inputs)
            if x is not None
        ]
        node: Node = Node(self.step.name, layer, resolve(layer, attrs, self.env), inputs)
        outputs = zip(self.step.outputs, self.outputs, strict=True)
        node.outputs = tuple(
            Value(f"output {i}", TensorSpec(o.spec.dtype, y.shape), node, i)
            for i, (o, y) in enumerate(outputs)
        )
        return node

    def _spec(self, i: int, x: Array) -> TensorSpec:
        """With the content where shapes may hang on it."""
        o = self.step.inputs[i]
        weight = o.buffer < 0 or self.plan.buffers[o.buffer].kind == "weight"
        told = weight or (x.dtype.kind in "iub" and x.size <= SMALL)
        return TensorSpec(o.spec.dtype, x.shape, const=x if told else None)

    def departure(self, rtol: float | None = None) -> float:
        """How far the step is off its reference, in budgets of the builder's accuracy gate; of
        ``rtol`` times the reference's largest magnitude, if that is given. Raises as ``expected``.
        """
        if rtol is not None:
            return max((self._off(j, y, rtol) for j, y in enumerate(self.outputs)), default=0.0)
        granted = GRANTED.get(self._numerics, 1.0)
        return max(
            (self.expected.departure(j, y, granted) for j, y in enumerate(self.outputs)),
            default=0.0,
        )

    def _off(self, j: int, y: Array, rtol: float) -> float:
        dtype = self.step.outputs[j].spec.dtype
        return departure(y, self.expected[j], dtype) * BUDGET.get(dtype, 1.0) / rtol

    @property
    def _numerics(self) -> str:
        tactic = self.session.tactics.get(str(self.step.info.get("tactic")))
        return str(getattr(tactic, "numerics", ""))


class StepReplay:
    """Observes a run: ``visit`` gets each step that computes numbers, once it has run. Steps over
    Python objects, and those that hold bodies, are run and not shown; the steps of bodies are.
    """

    def __init__(self, session: Session, visit: Callable[[StepRun], None]) -> None:
        self._session, self._visit = session, visit

    def step(self, running: RunningStep, /) -> None:
        step = running.step
        if step.plans or any(o.spec.dtype.on_host for o in (*step.inputs, *step.outputs)):
            running.run()
            return
        inputs = tuple(operand(running, i) for i in range(len(step.inputs)))
        running.run()
        outputs = tuple(running.read(o) for o in step.outputs)
        env = dict(running.env)
        self._visit(StepRun(running.plan, step, env, inputs, outputs, self._session))


def operand(running: RunningStep, index: int) -> Array | None:
    """An input of a step as a plain array; a constant that a kernel has in another form is taken
    back from there. None where that cannot be done.
    """
    o = running.step.inputs[index]
    if o.buffer >= 0:
        return np.asarray(running.read(o))
    try:
        return weight_operand(running.plan, running.step, index)
    except PlanCompatibilityError:
        return None


def meaning_of(step: Step[Plan]) -> Mapping[str, object] | None:
    """What a step computes, for ``region.decode``; None where the plan does not say it."""
    for told in (step.info.get("reference"), step.artifact.params):
        if isinstance(told, Mapping) and "layer" in told:
            return told
    return None


def check_replayable(plan: Plan) -> None:
    """Raises PlanCompatibilityError for a plan of which no step can be compared with a reference:
    stripped of its weights, or one that says of no step what it computes.
    """
    if plan.stripped:
        raise PlanCompatibilityError(
            "references need its weights, which were left out",
            who=plan.name,
            do="Refit the plan first",
        )
    steps = [s for p in plan.nested() for s in p.steps if not s.plans]
    if steps and not any(map(meaning_of, steps)):
        kind = plan.device.get("kind", "cpu")
        raise PlanCompatibilityError(
            "it does not say what its steps compute",
            who=plan.name,
            reasons=(f"no step of this plan for {kind} holds a reference",),
            do="Build it again, or give the model that it was built from with --model",
        )
