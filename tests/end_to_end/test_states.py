"""States that grow in reserved memory: a run appends to them, and answers as if it had copied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tactix
from tactix.base.errors import ConfigError, InvalidArgument, PlanFormatError, ShapeError
from tactix.config import BuilderFlag
from tactix.network.definition import NetworkDefinition
from tactix.plan.schema import validate
from tactix.run.context import ExecutionContext
from tactix.run.engine import Engine
from tactix.run.link import LinkedPlan

HEADS, GROUPS, SIZE = 4, 2, 8


def _network(builder: tactix.Builder, shared: bool = False) -> NetworkDefinition:
    """Attention of new rows to all rows; keys and values are states. ``shared``: by two heads."""
    net = builder.create_network("decoder")
    x = net.add_input("x", "f32", ("batch", HEADS, "new", SIZE))
    heads = GROUPS if shared else HEADS
    joined = []
    for name in ("key", "value"):
        past = net.add_input(f"past.{name}", "f32", ("batch", heads, "past", SIZE))
        new = net.add_layer("tactix.Slice", [x], begins=(0,), sizes=(heads,), axes=(1,), steps=(1,))
        (new,) = net.add_layer("tactix.Sin" if name == "key" else "tactix.Cos", new)
        (present,) = net.add_layer("tactix.Concat", [past, new], axis=2)
        net.mark_output(present, f"present.{name}")
        joined.append(_each_twice(net, present) if shared else present)
    k, v = joined
    (kt,) = net.add_layer("tactix.Transpose", [k], perm=(0, 1, 3, 2))
    (scores,) = net.add_layer("tactix.MatMul", [x, kt])
    (weights,) = net.add_layer("tactix.Softmax", [scores], axis=-1)
    net.mark_output(net.add_layer("tactix.MatMul", [weights, v])[0], "y")
    return net


def _each_twice(net: NetworkDefinition, x: Any) -> Any:
    batch, heads, rows, size = x.spec.shape
    (x,) = net.add_layer("tactix.Reshape", [x], shape=(batch, heads, 1, rows, size))
    (x,) = net.add_layer("tactix.Expand", [x], shape=(1, 1, HEADS // GROUPS, 1, 1))
    return net.add_layer("tactix.Reshape", [x], shape=(batch, HEADS, rows, size))[0]


def _built(*flags: BuilderFlag, shared: bool = False, **more: Any) -> Engine:
    builder = tactix.Builder()
    config = tactix.BuilderConfig(flags={*flags}, builder_optimization_level=0, threads=1, **more)
    return builder.build(_network(builder, shared), config)


@pytest.fixture(scope="module")
def plain() -> Engine:
    return _built()


@pytest.fixture(scope="module")
def engine() -> Engine:
    return _built(BuilderFlag.RESERVE_STATES)


@pytest.fixture
def context(engine: Engine) -> ExecutionContext:
    context = engine.create_execution_context()
    context.reserve(12)
    return context


def _rows(count: int, batch: int = 2, seed: int = 0) -> Any:
    rng = np.random.default_rng([seed, count])
    return rng.standard_normal((batch, HEADS, count, SIZE), dtype=np.float32)


class Copying:
    """A decoder whose caller keeps the states, as an engine without reserved ones has it."""

    def __init__(self, engine: Engine, batch: int = 2) -> None:
        self.engine = engine
        shapes = {io.name: io.shape for io in engine.inputs if io.name != "x"}
        empty = {n: (batch, int(s[1]), 0, SIZE) for n, s in shapes.items()}
        self.states = {n: np.zeros(s, np.float32) for n, s in empty.items()}

    def run(self, x: Any) -> Any:
        found: Mapping[str, Any] = self.engine({"x": x, **self.states})
        self.states = {n: found[n.replace("past", "present")] for n in self.states}
        return found["y"]


def _same(context: ExecutionContext, copying: Copying, x: Any) -> None:
    found = context.run({"x": x})
    assert found.keys() == {"y"}
    np.testing.assert_allclose(found["y"], copying.run(x), rtol=1e-5, atol=1e-6)
    for name, state in copying.states.items():
        np.testing.assert_array_equal(context.state(name), state)


@pytest.mark.parametrize("shared", [False, True])
def test_runs_append_to_states(shared: bool) -> None:
    """A prompt, steps, and several rows at once, up to all that is reserved."""
    flags = (BuilderFlag.RESERVE_STATES,)
    context = _built(*flags, shared=shared).create_execution_context()
    context.reserve(12)
    copying = Copying(_built(shared=shared))
    for k, count in enumerate((5, 1, 1, 3, 1, 1)):
        _same(context, copying, _rows(count, seed=k))
    assert context.state_length == 12


def test_states_stay_where_they_are(context: ExecutionContext) -> None:
    context.run({"x": _rows(3)})
    place = context.state("past.key").ctypes.data
    for _ in range(4):
        context.run({"x": _rows(1)})
        assert context.state("present.key").ctypes.data == place
    assert context.state("past.value").shape == (2, HEADS, 7, SIZE)


def test_every_length_runs_with_the_same_linked_steps(
    context: ExecutionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the last step ran with is in the caches, and its length does not come again."""
    links: list[int] = []
    link = LinkedPlan.link
    monkeypatch.setattr(
        LinkedPlan, "link", lambda self, *given: links.append(1) or link(self, *given)
    )
    for _ in range(5):
        context.run({"x": _rows(1)})
    assert len(links) == 1


def test_a_context_goes_back_and_begins_again(context: ExecutionContext, plain: Engine) -> None:
    for count in (4, 1, 1):
        context.run({"x": _rows(count)})
    context.state_length = 4
    copying = Copying(plain)
    copying.run(_rows(4))
    _same(context, copying, _rows(2, seed=7))
    context.state_length = 0
    _same(context, Copying(plain), _rows(3, seed=8))
    context.reserve(2)
    assert context.state_length == 0
    _same(context, Copying(plain, batch=1), _rows(2, batch=1))


def test_what_is_filled_may_be_given(context: ExecutionContext, plain: Engine) -> None:
    """As from a cache of prompts."""
    context.run({"x": _rows(1)})
    copying = Copying(plain)
    copying.run(_rows(5, seed=3))
    context.state_length = 5
    for name, state in copying.states.items():
        context.state(name)[:] = state
    _same(context, copying, _rows(1, seed=4))


def test_more_than_is_reserved_is_refused(context: ExecutionContext, plain: Engine) -> None:
    copying = Copying(plain)
    _same(context, copying, _rows(11))
    with pytest.raises(ShapeError, match=r"room for 12.*11 are filled, and the run adds 2"):
        context.run({"x": _rows(2)})
    _same(context, copying, _rows(1))


def test_states_of_another_batch_are_refused(context: ExecutionContext) -> None:
    context.run({"x": _rows(2)})
    with pytest.raises(ShapeError, match="batch"):
        context.run({"x": _rows(1, batch=3)})
    assert context.state_length == 2


def test_errors_say_what_to_do(engine: Engine, plain: Engine, context: ExecutionContext) -> None:
    other = plain.create_execution_context()
    with pytest.raises(InvalidArgument, match="RESERVE_STATES"):
        other.reserve(4)
    with pytest.raises(InvalidArgument, match="keeps no states"):
        other.state_length = 1
    with pytest.raises(InvalidArgument, match="Run once"):
        context.state("past.key")
    with pytest.raises(InvalidArgument, match="nothing is reserved"):
        engine.create_execution_context().state("past.key")
    context.run({"x": _rows(1)})
    with pytest.raises(InvalidArgument, match="no state is named 'y'"):
        context.state("y")
    for wrong in (-1, 13, 1.5):
        with pytest.raises(InvalidArgument, match="room for 12"):
            context.state_length = wrong
    for wrong in (0, "4"):
        with pytest.raises(InvalidArgument, match="Give an integer"):
            context.reserve(wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"past\.key"):
        context.run({"x": _rows(1), "past.key": _rows(1)})


def test_whoever_has_told_no_length_is_refused(engine: Engine) -> None:
    """Rather than taking what is given for empty states."""
    with pytest.raises(InvalidArgument, match="reserve"):
        engine({"x": _rows(1), "past.key": _rows(3), "past.value": _rows(3)})
    for use in (engine, engine.run, engine.create_execution_context().run):
        with pytest.raises(InvalidArgument, match=r"how much of the states is filled.*reserve"):
            use({"x": _rows(1)})


@pytest.mark.compiler
@pytest.mark.parametrize("together", [True, False])
def test_callers_may_give_states_addresses(engine: Engine, plain: Engine, together: bool) -> None:
    """One address for both: in place. Two: the state is copied, and the old one stays."""
    context, copying = engine.create_execution_context(), Copying(plain)
    shape, length = (2, HEADS, 9, SIZE), 0
    states = {io.name: np.zeros(shape, np.float32) for io in engine.inputs if io.name != "x"}
    for count in (3, 1, 1):
        x, y = _rows(count), np.empty((2, HEADS, count, SIZE), np.float32)
        after = states if together else {n: np.empty_like(s) for n, s in states.items()}
        before = {n: s.copy() for n, s in states.items()}
        context.state_length = length
        arrays = {
            "x": x,
            **states,
            "y": y,
            **{n.replace("past", "present"): s for n, s in after.items()},
        }
        for name, array in arrays.items():
            context.set_tensor_address(name, array)
        context.execute_async_v3()
        np.testing.assert_allclose(y, copying.run(x), rtol=1e-5, atol=1e-6)
        length += count
        for name, state in copying.states.items():
            np.testing.assert_array_equal(after[name][:, :, :length], state)
            if not together:
                np.testing.assert_array_equal(states[name], before[name])
        states = after


@pytest.mark.compiler
def test_both_states_in_one_memory_are_refused(engine: Engine) -> None:
    context, memory = engine.create_execution_context(), np.zeros((1, HEADS, 9, SIZE), np.float32)
    context.state_length = 0
    arrays = {"x": _rows(1, batch=1), "y": np.empty((1, HEADS, 1, SIZE), np.float32)}
    arrays |= dict.fromkeys(("past.key", "past.value", "present.key"), memory)
    arrays["present.value"] = np.empty_like(memory)
    for name, array in arrays.items():
        context.set_tensor_address(name, array)
    with pytest.raises(
        InvalidArgument, match=r"'present\.key' lies in the memory of input 'past\.value'"
    ):
        context.execute_async_v3()


def test_memory_may_be_given_for_full_states(engine: Engine, plain: Engine) -> None:
    shape = (2, HEADS, 12, SIZE)
    shapes = {io.name: shape for io in engine.inputs if io.name != "x"}
    size = engine.device_memory_size({**shapes, "x": (2, HEADS, 3, SIZE)})
    memory = np.zeros(size + 64, np.uint8)
    context = engine.create_execution_context_without_device_memory()
    context.set_device_memory(-(-memory.ctypes.data // 64) * 64, size)
    context.reserve(12)
    copying = Copying(plain)
    for k in range(4):
        _same(context, copying, _rows(3, seed=k))


def test_nothing_is_copied(engine: Engine) -> None:
    """Attention reads the states as they lie: no step makes another tensor of all rows."""
    states = {io.buffer for io in engine.plan.outputs if io.name.startswith("present")}
    made = [o for s in engine.plan.steps for o in s.outputs if o.buffer not in states]
    assert made
    assert not [o for o in made if "past" in str(o.spec.shape)]


def test_plans_are_saved_with_their_states(engine: Engine, plain: Engine, tmp_path: Path) -> None:
    engine.save(tmp_path / "a.plan")
    loaded = tactix.load(tmp_path / "a.plan")
    context = loaded.create_execution_context()
    context.reserve(8)
    _same(context, Copying(plain), _rows(3))
    assert loaded.plan.states == engine.plan.states


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (0, "new"),
        (1, "nobody"),
        (2, "batch"),
        (3, [["past.key", "present.value", 1]]),
        (3, [["past.key", "y", 2]]),
        (3, [["past.key", 2]]),
    ],
)
def test_states_that_the_plan_does_not_bear_out_are_refused(
    engine: Engine, field: int, value: Any
) -> None:
    entry = list(engine.plan.meta["states"])
    entry[field] = value
    plan = replace(engine.plan, meta={**engine.plan.meta, "states": entry})
    with pytest.raises(PlanFormatError):
        validate(plan)


def test_symbols_that_nothing_tells_are_refused(engine: Engine) -> None:
    meta = {k: v for k, v in engine.plan.meta.items() if k != "states"}
    with pytest.raises(PlanFormatError, match="nothing gives it"):
        validate(replace(engine.plan, meta=meta))


def test_a_network_without_states_is_refused() -> None:
    builder = tactix.Builder()
    net = builder.create_network("plain")
    x = net.add_input("x", "f32", ("batch", 4))
    net.mark_output(net.add_layer("tactix.Relu", [x])[0], "y")
    config = tactix.BuilderConfig(flags={BuilderFlag.RESERVE_STATES})
    with pytest.raises(ConfigError, match="no state grows"):
        builder.build(net, config)


def test_the_callers_network_stays_as_it_is() -> None:
    builder = tactix.Builder()
    net = _network(builder)
    config = tactix.BuilderConfig(flags={BuilderFlag.RESERVE_STATES}, builder_optimization_level=0)
    builder.build_plan(net, config)
    assert net.states is None
    assert [n.layer.name for n in net.nodes].count("Concat") == 2


def _grouped_attention() -> bytes:
    """A grouped-query attention as generators of decoders for ONNX Runtime write it: queries, keys
    and values beside each other, lengths by a mask of ones, a cache that tells no head size.
    """
    from onnx import TensorProto, helper

    def tensor(name: str, shape: list[Any], kind: int = TensorProto.FLOAT) -> Any:
        return helper.make_tensor_value_info(name, kind, shape)

    one = helper.make_tensor("one", TensorProto.INT64, [1], [1])
    nodes = [
        helper.make_node("ReduceSum", ["mask", "one"], ["lengths"], keepdims=0),
        helper.make_node("Sub", ["lengths", "one"], ["last"]),
        helper.make_node("Cast", ["last"], ["last32"], to=TensorProto.INT32),
        helper.make_node("Shape", ["mask"], ["sizes"]),
        helper.make_node("Gather", ["sizes", "index"], ["total"]),
        helper.make_node("Cast", ["total"], ["total32"], to=TensorProto.INT32),
        helper.make_node(
            "GroupQueryAttention",
            ["x", "", "", "past.key", "past.value", "last32", "total32"],
            ["y", "present.key", "present.value"],
            domain="com.microsoft",
            num_heads=HEADS,
            kv_num_heads=GROUPS,
        ),
    ]
    index = helper.make_tensor("index", TensorProto.INT64, [], [1])
    cache = ["batch", GROUPS, "past", "size"]
    inputs = [
        tensor("x", ["batch", "new", (HEADS + 2 * GROUPS) * SIZE]),
        tensor("mask", ["batch", "total"], TensorProto.INT64),
        tensor("past.key", cache),
        tensor("past.value", cache),
    ]
    outputs = [tensor(n, ["batch", None, None]) for n in ("y",)]
    outputs += [
        tensor(f"present.{n}", ["batch", GROUPS, "total", "size"]) for n in ("key", "value")
    ]
    graph = helper.make_graph(nodes, "grouped", inputs, outputs, [one, index])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    model: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
    return model


def test_a_cache_of_grouped_query_attention_grows_in_place() -> None:
    """The model writes rows where its lengths say."""
    model = _grouped_attention()
    plain = tactix.build(model, level=0, threads=1)
    reserved = tactix.build(model, level=0, threads=1, flags={BuilderFlag.RESERVE_STATES})
    context = reserved.create_execution_context()
    context.reserve(9)
    states = {f"past.{n}": np.zeros((2, GROUPS, 0, SIZE), np.float32) for n in ("key", "value")}
    rng = np.random.default_rng(3)
    total = 0
    for count in (4, 1, 3, 1):
        total += count
        x = rng.standard_normal((2, count, (HEADS + 2 * GROUPS) * SIZE), dtype=np.float32)
        mask = np.ones((2, total), np.int64)
        want = plain({"x": x, "mask": mask, **states})
        states = {n: want[n.replace("past", "present")] for n in states}
        found = context.run({"x": x, "mask": mask})
        assert found.keys() == {"y"}
        np.testing.assert_allclose(found["y"], want["y"], rtol=1e-5, atol=1e-6)
        for name, state in states.items():
            np.testing.assert_array_equal(context.state(name), state)
    with pytest.raises(ShapeError, match="must be past"):
        context.run({"x": x, "mask": mask})
