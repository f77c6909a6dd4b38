"""What does not fit together is refused, whoever made it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tactix.base.dims import sym
from tactix.base.errors import PlanFormatError
from tactix.base.tensor import TensorSpec, blocked
from tactix.contracts.artifact import Arg, Launch, scalar, workspace
from tactix.plan.schema import Plan, Profile, validate


def _refused(plan: Plan, match: str) -> None:
    with pytest.raises(PlanFormatError, match=match):
        validate(plan)


def _with_buffer(plan: Plan, index: int, **changes: object) -> Plan:
    b = replace(plan.buffers[index], **changes)  # type: ignore[arg-type]
    return replace(plan, buffers=(*plan.buffers[:index], b, *plan.buffers[index + 1 :]))


def _with_step(plan: Plan, index: int, **changes: object) -> Plan:
    s = replace(plan.steps[index], **changes)  # type: ignore[arg-type]
    return replace(plan, steps=(*plan.steps[:index], s, *plan.steps[index + 1 :]))


def test_the_sample_is_valid(plan: Plan) -> None:
    assert validate(plan) is plan
    assert plan.symbols == {"batch"}


def test_buffers(plan: Plan) -> None:
    _refused(_with_buffer(plan, 2, kind="heap"), "unknown kind")
    _refused(_with_buffer(plan, 2, nbytes=-1), "negative")
    _refused(_with_buffer(plan, 2, nbytes=sym("seq") * 4), "'seq' follows from no input")
    _refused(_with_buffer(plan, 2, first=1, last=0), "live")
    _refused(_with_buffer(plan, 2, last=2), "live")
    _refused(_with_buffer(plan, 2, first=-1, last=-1), "live")
    _refused(_with_buffer(plan, 2, blob="w"), "names a blob")
    _refused(_with_buffer(plan, 1, blob="gone"), "no blob")
    _refused(_with_buffer(plan, 1, nbytes=244), "240")
    _refused(_with_buffer(plan, 5, format=blocked(16)), "rank 1")


def test_inputs_and_outputs(plan: Plan) -> None:
    (x,), (y,) = plan.inputs, plan.outputs
    _refused(replace(plan, inputs=(replace(x, buffer=9),)), "buffer 9")
    _refused(replace(plan, inputs=(replace(x, buffer=4),)), "does not fit")
    _refused(replace(plan, inputs=(x, replace(x, name="again"))), "buffer 0")
    _refused(replace(plan, outputs=(replace(y, name="x"),)), "repeated")
    _refused(replace(plan, inputs=(replace(x, name=""),)), "empty")
    _refused(replace(plan, inputs=(replace(x, shape=(sym("batch"), 4)),)), "does not fit")
    _refused(replace(plan, outputs=()), "no name stands for")


def test_profiles(plan: Plan) -> None:
    for dims in ((4, 2, 8), (-1, 0, 1), (1, 9, 8)):
        _refused(replace(plan, profiles=(Profile("p", {"batch": dims}),)), "order")


def test_steps(plan: Plan) -> None:
    s = plan.steps[0]
    _refused(
        _with_step(plan, 0, inputs=(replace(s.inputs[0], buffer=6), s.inputs[1])), "no buffer 6"
    )
    _refused(_with_step(plan, 0, outputs=(replace(s.outputs[0], buffer=-1),)), "no buffer -1")
    _refused(_with_step(plan, 0, outputs=(replace(s.outputs[0], buffer=1),)), "is a weight")
    _refused(_with_step(plan, 0, outputs=(replace(s.outputs[0], buffer=0),)), "is a input")
    _refused(_with_step(plan, 0, constants={"w": 77}), "no buffer 77")
    _refused(_with_step(plan, 1, inputs=(replace(plan.steps[1].inputs[0], buffer=3),)), "not live")
    wide = TensorSpec(s.inputs[0].spec.dtype, (sym("other"), 3))
    _refused(_with_step(plan, 0, inputs=(replace(s.inputs[0], spec=wide), s.inputs[1])), "'other'")


@pytest.mark.parametrize(
    "arg",
    [
        Arg("input", 2),
        Arg("input", -1),
        Arg("output", 1),
        Arg("constant", name="v"),
        Arg("register"),
        scalar(sym("q")),
    ],
)
def test_arguments(plan: Plan, arg: Arg) -> None:
    artifact = replace(plan.steps[0].artifact, launches=(Launch((arg,)),))
    _refused(_with_step(plan, 0, artifact=artifact), "argument|'q'")


def test_an_argument_cannot_name_an_input_without_memory_or_a_missing_workspace(plan: Plan) -> None:
    s = plan.steps[0]
    bare = replace(s.artifact, launches=(Launch((Arg("input", 1),)),))
    _refused(_with_step(plan, 0, artifact=bare), "argument input 1")
    bare = replace(s.artifact, launches=(Launch((workspace(),)),))
    _refused(_with_step(plan, 0, artifact=bare, workspace=-1), "argument workspace")
