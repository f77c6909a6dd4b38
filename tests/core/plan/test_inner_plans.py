"""Plans inside plans, and values that are Python objects: kept, checked, refused where they
contradict each other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tactix.base.dims import sym
from tactix.base.dtypes import DType
from tactix.base.errors import PlanFormatError
from tactix.base.tensor import LINEAR, Element, TensorSpec
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.launcher import Operand, Step
from tactix.plan import container
from tactix.plan.schema import DEEPEST, Buffer, Plan, TensorIO, validate

N, M = sym("n"), sym("m")
F32 = DType.FP32
HELD = Element(F32, (N, None), none=False)


def body(depth: int = 0) -> Plan:
    """y = f(x), both (n, m); n is the plan's around it."""
    spec = TensorSpec(F32, (N, M))
    buffers = (
        Buffer("input", "x", F32, spec.shape, LINEAR, spec.nbytes()),
        Buffer("output", "y", F32, spec.shape, LINEAR, spec.nbytes()),
    )
    plans = (body(depth - 1),) if depth else ()
    step = Step(
        "f",
        KernelArtifact("t@1"),
        (Operand(0, spec, LINEAR),),
        (Operand(1, spec, LINEAR),),
        plans=plans,
    )
    ios = TensorIO("x", 0, F32, spec.shape), TensorIO("y", 1, F32, spec.shape)
    return Plan("body", ios[:1], ios[1:], (), buffers, (step,), given=frozenset({"n"}))


def outer(inner: Plan | None = None) -> Plan:
    """A sequence of the input, made by a step with a body."""
    spec, seq = TensorSpec(F32, (N, 3)), TensorSpec(DType.SEQUENCE, (), element=HELD)
    buffers = (
        Buffer("input", "x", F32, spec.shape, LINEAR, spec.nbytes()),
        Buffer("object", "s", DType.SEQUENCE, (), LINEAR, 8),
        Buffer("output", "t", DType.SEQUENCE, (), LINEAR, 8),
    )
    steps = (
        Step("a", KernelArtifact("t@1"), (Operand(0, spec, LINEAR),), (Operand(1, seq.plain(), LINEAR),),
             plans=(inner or body(),)),
        Step("b", KernelArtifact("t@1"), (Operand(1, seq, LINEAR),), (Operand(2, seq, LINEAR),)),
    )  # fmt: skip
    ios = TensorIO("x", 0, F32, spec.shape), TensorIO("t", 2, DType.SEQUENCE, (), HELD)
    return Plan("outer", ios[:1], ios[1:], (), buffers, steps)


def test_a_file_keeps_bodies_and_elements() -> None:
    raw = container.dump(validate(outer(body(2))))
    back = container.load(raw)
    assert back.outputs[0].element == HELD
    assert back.steps[0].plans[0].steps[0].plans[0].given == {"n"}
    assert container.dump(back) == raw


def test_steps_over_objects_and_with_bodies_are_produced() -> None:
    assert list(outer().produced) == [0, 1]
    assert body().produced == {}
    assert body(1).known == {"n", "m"}


def _with_buffer(i: int, **change: Any) -> Callable[[Plan], Plan]:
    def made(p: Plan) -> Plan:
        return replace(
            p, buffers=tuple(replace(b, **change) if k == i else b for k, b in enumerate(p.buffers))
        )

    return made


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_with_buffer(1, kind="arena", first=0, last=1), "a seq in a buffer of kind arena"),
        (_with_buffer(1, dtype=F32), "a f32 in a buffer of kind object"),
        (lambda p: replace(p, given=frozenset({"k"})), "nothing gives it"),
        (lambda p: outer(replace(body(), given=frozenset({"k"}))), "nothing gives it"),
        (lambda p: outer(replace(body(), inputs=())), "input or output buffer"),
        (lambda p: outer(body(DEEPEST)), "deep in each other"),
    ],
)
def test_contradictions_are_refused(change: Callable[[Plan], Plan], why: str) -> None:
    with pytest.raises(PlanFormatError, match=why):
        validate(change(outer()))


def test_a_file_of_plans_in_plans_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tactix.plan.container.validate", lambda p: p, raising=False)
    deep = outer(body(DEEPEST + 3))
    with pytest.raises(PlanFormatError, match="deep in each other"):
        container.load(container.dump(deep))
