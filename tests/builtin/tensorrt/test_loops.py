"""Loops and branches that a network adds, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from test_layers import constant, run
from trt_logger import Kept

from tactix_tensorrt import api as trt

Array = np.ndarray
Net = trt.INetworkDefinition
RNG = np.random.default_rng(7)
COUNT, WHILE = trt.TripLimit.COUNT, trt.TripLimit.WHILE
SUM, PROD = trt.ElementWiseOperation.SUM, trt.ElementWiseOperation.PROD
LESS = trt.ElementWiseOperation.LESS
LAST, STACK = trt.LoopOutput.LAST_VALUE, trt.LoopOutput.CONCATENATE
REVERSE = trt.LoopOutput.REVERSE


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def number(net: Net, value: int | float) -> trt.ITensor:
    return constant(net, np.array(value, np.int32 if isinstance(value, int) else np.float32))


def of(net: Net, op: trt.ElementWiseOperation, a: trt.ITensor, b: trt.ITensor) -> trt.ITensor:
    return net.add_elementwise(a, b, op).get_output(0)


def product(net: Net, a: trt.ITensor, b: trt.ITensor) -> trt.ITensor:
    none = trt.MatrixOperation.NONE
    return net.add_matrix_multiply(a, none, b, none).get_output(0)


def power(net: Net, a: trt.ITensor, count: trt.ITensor) -> tuple[trt.ILoop, trt.IRecurrenceLayer]:
    """A loop of ``a`` times what was before, from one on."""
    loop = net.add_loop()
    loop.add_trip_limit(count, COUNT)
    state = loop.add_recurrence(constant(net, np.eye(3, dtype=np.float32)))
    state.set_input(1, product(net, state.get_output(0), a))
    return loop, state


def build(net: Net) -> trt.IHostMemory | None:
    config = net.builder.create_builder_config()
    config.builder_optimization_level = 0
    return net.builder.build_serialized_network(net, config)


@pytest.mark.parametrize("count", [0, 1, 4])
def test_the_last_value_of_a_recurrence(count: int, network: Net, logger: Kept) -> None:
    a = normal(3, 3)
    x = network.add_input("x", trt.float32, a.shape)
    n = network.add_input("n", trt.int32, ())
    loop, state = power(network, x, n)
    out = loop.add_loop_output(state.get_output(0), LAST)
    assert list(out.get_output(0).shape) == [3, 3]
    (got,) = run(network, [out.get_output(0)], {"x": a, "n": np.array(count, np.int32)}, logger)
    np.testing.assert_allclose(got, np.linalg.matrix_power(a, count), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", [STACK, REVERSE])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("length", [4, 6])
def test_rows_are_stacked_along_an_axis_of_a_length(
    kind: trt.LoopOutput, axis: int, length: int, network: Net, logger: Kept
) -> None:
    a = normal(3, 3)
    x, count = network.add_input("x", trt.float32, a.shape), number(network, 4)
    loop, state = power(network, x, count)
    out = loop.add_loop_output(state.get_output(0), kind, axis)
    out.set_input(1, number(network, length))
    (got,) = run(network, [out.get_output(0)], {"x": a}, logger)
    rows = [np.linalg.matrix_power(a, i) for i in range(4)] + [np.zeros((3, 3))] * (length - 4)
    wanted = np.stack(rows[:: -1 if kind is REVERSE else 1], axis)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_iterators_go_along_an_axis_either_way(
    axis: int, reverse: bool, network: Net, logger: Kept
) -> None:
    a = normal(3, 3)
    x, count = network.add_input("x", trt.float32, a.shape), number(network, 3)
    loop = network.add_loop()
    loop.name = "sums"
    loop.add_trip_limit(count, COUNT)
    slices = loop.add_iterator(x, 1 - axis, not reverse)
    slices.axis, slices.reverse = axis, reverse
    total = loop.add_recurrence(constant(network, np.zeros(3, np.float32)))
    added = of(network, SUM, total.get_output(0), slices.get_output(0))
    total.set_input(1, added)
    out = loop.add_loop_output(added, STACK)
    out.set_input(1, count)
    (got,) = run(network, [out.get_output(0)], {"x": a}, logger)
    wanted = np.cumsum(
        np.flip(np.moveaxis(a, axis, 0), 0) if reverse else np.moveaxis(a, axis, 0), 0
    )
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("most", [None, 3])
def test_a_loop_goes_on_while_a_condition_holds(
    most: int | None, network: Net, logger: Kept
) -> None:
    x = network.add_input("x", trt.float32, ())
    steps = network.add_input("steps", trt.int32, ())
    loop = network.add_loop()
    state = loop.add_recurrence(x)
    state.set_input(1, of(network, PROD, state.get_output(0), number(network, 2.0)))
    loop.add_trip_limit(of(network, LESS, state.get_output(0), number(network, 20.0)), WHILE)
    if most is not None:
        loop.add_trip_limit(number(network, most), COUNT)
    last = loop.add_loop_output(state.get_output(0), LAST).get_output(0)
    out = loop.add_loop_output(state.get_output(0), STACK)
    out.set_input(1, steps)
    head = network.add_slice(out.get_output(0), (0,), (6,), (1,)).get_output(0)
    feeds = {"x": np.array(1.5, np.float32), "steps": np.array(6, np.int32)}
    got = run(network, [last, head], feeds, logger)
    values = [1.5 * 2**i for i in range(most or 4)]
    assert got[0] == values[-1] * 2
    assert got[1].tolist() == values + [0.0] * (6 - len(values))


def test_a_loop_that_does_not_start(network: Net, logger: Kept) -> None:
    x = network.add_input("x", trt.float32, ())
    loop = network.add_loop()
    state = loop.add_recurrence(x)
    state.set_input(1, of(network, PROD, state.get_output(0), number(network, 2.0)))
    loop.add_trip_limit(of(network, LESS, state.get_output(0), number(network, 1.0)), WHILE)
    last = loop.add_loop_output(state.get_output(0), LAST).get_output(0)
    (got,) = run(network, [last], {"x": np.array(7, np.float32)}, logger)
    assert got == 7


def test_loops_in_loops(network: Net, logger: Kept) -> None:
    """Rows of x, each multiplied by itself as often as its number."""
    a = normal(3, 2)
    x = network.add_input("x", trt.float32, a.shape)
    outer = network.add_loop()
    outer.add_trip_limit(number(network, 3), COUNT)
    row = outer.add_iterator(x).get_output(0)
    turn = outer.add_recurrence(number(network, 0))
    turn.set_input(1, of(network, SUM, turn.get_output(0), number(network, 1)))
    inner = network.add_loop()
    inner.add_trip_limit(turn.get_output(0), COUNT)
    state = inner.add_recurrence(constant(network, np.ones(2, np.float32)))
    state.set_input(1, of(network, PROD, state.get_output(0), row))
    powers = inner.add_loop_output(state.get_output(0), LAST).get_output(0)
    out = outer.add_loop_output(powers, STACK)
    out.set_input(1, number(network, 3))
    (got,) = run(network, [out.get_output(0)], {"x": a}, logger)
    np.testing.assert_allclose(got, np.stack([a[i] ** i for i in range(3)]), rtol=1e-5)


def test_a_state_may_grow(network: Net, logger: Kept) -> None:
    x = network.add_input("x", trt.float32, (2,))
    loop = network.add_loop()
    loop.add_trip_limit(number(network, 3), COUNT)
    state = loop.add_recurrence(x)
    state.set_input(1, network.add_concatenation([state.get_output(0), x]).get_output(0))
    last = loop.add_loop_output(state.get_output(0), LAST).get_output(0)
    head = network.add_slice(last, (0,), (8,), (1,)).get_output(0)
    (got,) = run(network, [head], {"x": np.array([1, 2], np.float32)}, logger)
    assert got.tolist() == [1, 2] * 4


def test_a_loop_takes_open_shapes(
    network: Net, config: trt.IBuilderConfig, builder: trt.Builder, logger: Kept
) -> None:
    x = network.add_input("x", trt.float32, (-1, -1))
    shape = network.add_shape(x).get_output(0)
    rows = network.add_gather(shape, constant(network, np.array(0, np.int32)), 0).get_output(0)
    loop = network.add_loop()
    loop.add_trip_limit(rows, COUNT)
    row = loop.add_iterator(x).get_output(0)
    first = network.add_reduce(x, trt.ReduceOperation.MAX, 1, False).get_output(0)
    state = loop.add_recurrence(first)
    added = of(network, SUM, state.get_output(0), row)
    state.set_input(1, added)
    out = loop.add_loop_output(added, REVERSE)
    out.set_input(1, rows)
    network.mark_output(out.get_output(0))
    assert list(out.get_output(0).shape) == [-1, -1]
    profile = builder.create_optimization_profile()
    profile.set_shape("x", (1, 1), (3, 4), (9, 9))
    config.add_optimization_profile(profile)
    engine = builder.build_engine_with_config(network, config)
    assert engine is not None, logger.errors
    context = engine.create_execution_context()
    for a in (normal(3, 5), normal(7, 2)):
        got = np.empty_like(a)
        assert context.set_input_shape("x", a.shape)
        for name, array in zip(engine, (a, got), strict=True):
            context.set_tensor_address(name, array.ctypes.data)
        assert context.execute_async_v3(0), logger.errors
        np.testing.assert_allclose(got, (a.max(0) + np.cumsum(a, 0))[::-1], rtol=1e-5, atol=1e-5)


def test_bounds_stand_in_order_with_their_kinds(network: Net) -> None:
    loop, state = power(network, network.add_input("x", trt.float32, (3, 3)), number(network, 2))
    out = loop.add_loop_output(state.get_output(0), STACK, 1)
    kinds = [layer.type for layer in network]
    t = trt.LayerType
    inside = [t.RECURRENCE, t.MATRIX_MULTIPLY, t.LOOP_OUTPUT]
    assert kinds == [t.CONSTANT, t.TRIP_LIMIT, t.CONSTANT, *inside]
    limit = network.get_layer(1)
    limit.__class__, out.__class__ = trt.ITripLimitLayer, trt.ILoopOutputLayer
    assert limit.kind is COUNT
    assert out.kind is STACK
    assert out.loop is loop is state.loop
    assert (out.axis, out.num_inputs, limit.num_outputs) == (1, 2, 0)


def test_attributes_inside_a_loop_may_change_after_shapes_were_asked_for(
    network: Net, logger: Kept
) -> None:
    x = network.add_input("x", trt.float32, (2,))
    loop = network.add_loop()
    loop.add_trip_limit(number(network, 2), COUNT)
    state = loop.add_recurrence(x)
    layer = network.add_elementwise(state.get_output(0), x, PROD)
    state.set_input(1, layer.get_output(0))
    last = loop.add_loop_output(state.get_output(0), LAST).get_output(0)
    assert list(last.shape) == [2]
    layer.op = SUM
    (got,) = run(network, [last], {"x": np.array([1, 2], np.float32)}, logger)
    assert got.tolist() == [3, 6]


def test_what_a_loop_cannot_be_is_refused(network: Net, logger: Kept) -> None:
    x = network.add_input("x", trt.float32, (3, 3))
    loop, state = power(network, x, number(network, 2))
    inside = state.get_output(0)
    network.mark_output(inside)
    assert build(network) is None
    assert "lies inside of a loop" in logger.errors[-1]
    network.unmark_output(inside)
    bare = loop.add_loop_output(inside, STACK)
    network.mark_output(bare.get_output(0))
    assert build(network) is None
    assert "set_input(1, length)" in logger.errors[-1]
    assert bare.name in logger.errors[-1]
    network.unmark_output(bare.get_output(0))
    late = loop.add_loop_output(x, LAST)
    network.mark_output(late.get_output(0))
    assert build(network) is None
    assert "LAST_VALUE is that of a recurrence" in logger.errors[-1]


def test_a_length_makes_a_last_value_a_stack(network: Net) -> None:
    count = number(network, 2)
    loop, state = power(network, network.add_input("x", trt.float32, (3, 3)), count)
    out = loop.add_loop_output(state.get_output(0), LAST)
    assert list(out.get_output(0).shape) == [3, 3]
    out.set_input(1, count)
    assert out.kind is STACK
    assert list(out.get_output(0).shape) == [2, 3, 3]


def test_a_loop_without_a_limit_is_refused(network: Net, logger: Kept) -> None:
    x = network.add_input("x", trt.float32, (3,))
    loop = network.add_loop()
    state = loop.add_recurrence(x)
    state.set_input(1, of(network, SUM, state.get_output(0), x))
    network.mark_output(loop.add_loop_output(state.get_output(0), LAST).get_output(0))
    assert build(network) is None
    assert "Call add_trip_limit" in logger.errors[-1]


# -- branches -------------------------------------------------------------------------------------


@pytest.mark.parametrize("holds", [True, False])
def test_a_branch_gives_what_its_condition_chooses(holds: bool, network: Net, logger: Kept) -> None:
    x = network.add_input("x", trt.float32, (3,))
    flag = network.add_input("flag", trt.bool, ())
    branch = network.add_if_conditional()
    branch.name = "mine"
    condition = branch.set_condition(flag)
    given = branch.add_input(x)
    doubled = of(network, SUM, given.get_output(0), given.get_output(0))
    squared = of(network, PROD, given.get_output(0), x)
    out = branch.add_output(doubled, squared)
    same = branch.add_output(given.get_output(0), doubled)
    t = trt.LayerType
    kinds = [t.CONDITION, t.CONDITIONAL_INPUT, t.ELEMENTWISE, t.ELEMENTWISE]
    assert [y.type for y in network] == [*kinds, t.CONDITIONAL_OUTPUT, t.CONDITIONAL_OUTPUT]
    assert condition.conditional is branch is out.conditional
    a = normal(3)
    outputs = [y.get_output(0) for y in (out, same)]
    got = run(network, outputs, {"x": a, "flag": np.array(holds)}, logger)
    np.testing.assert_allclose(got[0], a + a if holds else a * a, rtol=1e-6)
    np.testing.assert_allclose(got[1], a if holds else a + a, rtol=1e-6)


@pytest.mark.parametrize("holds", [True, False])
def test_branches_may_differ_in_shape(holds: bool, network: Net, logger: Kept) -> None:
    x = network.add_input("x", trt.float32, (3,))
    flag = network.add_input("flag", trt.bool, ())
    branch = network.add_if_conditional()
    branch.set_condition(flag)
    given = branch.add_input(x).get_output(0)
    both = network.add_concatenation([given, given]).get_output(0)
    out = branch.add_output(both, given).get_output(0)
    total = network.add_reduce(out, trt.ReduceOperation.SUM, 1, False).get_output(0)
    assert list(out.shape) == [-1]
    feeds = {"x": np.array([1, 2, 3], np.float32), "flag": np.array(holds)}
    (got,) = run(network, [total], feeds, logger)
    assert got == (12 if holds else 6)


def test_a_branch_in_a_loop(network: Net, logger: Kept) -> None:
    """Halve what is even, else three times it and one, until one is left."""
    x = network.add_input("x", trt.int32, ())
    loop = network.add_loop()
    state = loop.add_recurrence(x)
    now = state.get_output(0)
    one, two = number(network, 1), number(network, 2)
    loop.add_trip_limit(of(network, LESS, one, now), WHILE)
    half = of(network, trt.ElementWiseOperation.FLOOR_DIV, now, two)
    odd = of(network, trt.ElementWiseOperation.SUB, now, of(network, PROD, half, two))
    branch = network.add_if_conditional()
    branch.set_condition(of(network, trt.ElementWiseOperation.EQUAL, odd, one))
    given = branch.add_input(now).get_output(0)
    up = of(network, SUM, of(network, PROD, given, number(network, 3)), one)
    state.set_input(1, branch.add_output(up, half).get_output(0))
    steps = loop.add_recurrence(number(network, 0))
    steps.set_input(1, of(network, SUM, steps.get_output(0), one))
    last = loop.add_loop_output(steps.get_output(0), LAST).get_output(0)
    (got,) = run(network, [last], {"x": np.array(7, np.int32)}, logger)
    assert got == 16


def test_a_branch_without_a_condition_is_refused(network: Net, logger: Kept) -> None:
    x = network.add_input("x", trt.float32, (3,))
    branch = network.add_if_conditional()
    given = branch.add_input(x).get_output(0)
    out = branch.add_output(given, given)
    network.mark_output(out.get_output(0))
    assert build(network) is None
    assert out.name in logger.errors[-1]
    assert "Call set_condition" in logger.errors[-1]
