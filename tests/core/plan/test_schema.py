"""What does not fit together is refused, whoever made it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tactix.base.dims import sym
from tactix.base.errors import PlanFormatError, ShapeError
from tactix.base.tensor import TensorSpec, blocked
from tactix.contracts.artifact import Arg, Launch, scalar, workspace
from tactix.plan import container
from tactix.plan.extents import check
from tactix.plan.parts import Ready
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


def _with_parts(plan: Plan, read: int = 7, write: int = 7, **changes: object) -> Plan:
    """Buffer 6 in two halves, 7 and 8: the first step writes one of them, the second reads."""
    mid = plan.buffers[2]
    rows = mid.shape[0] * 2
    whole = replace(mid, name="whole", shape=(rows, 20), nbytes=mid.nbytes * 2)
    half = replace(mid, kind="part", name="half", first=-1, last=-1, inside=6)
    other = replace(half, name="other", offset=mid.nbytes)
    made = replace(plan, buffers=(*plan.buffers, whole, half, other))
    made = _with_buffer(made, 8, **changes)
    o = plan.steps[0].outputs[0]
    spec = replace(o.spec, shape=(rows, 20)) if read == 6 else o.spec
    made = _with_step(made, 0, outputs=(replace(o, buffer=write),))
    return _with_step(made, 1, inputs=(replace(o, buffer=read, spec=spec),))


def test_parts(plan: Plan) -> None:
    made = _with_parts(plan)
    assert validate(made) is made
    assert container.dump(container.load(container.dump(made))) == container.dump(made)
    _refused(_with_parts(plan, read=8), "before it is written")
    _refused(_with_parts(plan, read=6), "before it is written")
    _refused(_with_parts(plan, inside=8), "is no part of buffer 8")
    _refused(_with_parts(plan, inside=0), "is no part of buffer 0")
    _refused(_with_parts(plan, inside=-1), "and nothing else, lies in another")
    _refused(_with_parts(plan, offset=32), "no multiple of 64")
    _refused(_with_parts(plan, offset=sym("batch") * -64), "negative")
    _refused(_with_parts(plan, nbytes=64), "not those of its shape")
    beyond = validate(_with_parts(plan, write=8, read=8, offset=plan.buffers[2].nbytes * 2))
    with pytest.raises(ShapeError, match="larger than its buffer 'whole'"):
        check(beyond.extents[0], {"batch": 4})
    _refused(_with_buffer(plan, 2, inside=0), "and nothing else, lies in another")


def test_a_whole_is_there_when_all_of_its_parts_are(plan: Plan) -> None:
    made = _with_parts(plan)
    for order in ((7, 8), (8, 7)):
        ready = Ready(made.buffers, ())
        ready.add(order[:1])
        assert order[0] in ready
        assert 6 not in ready
        ready.add(order[1:])
        assert 6 in ready
    ready = Ready(made.buffers, ())
    ready.add([6])
    assert 8 in ready
