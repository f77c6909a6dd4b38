"""Debug tensors: a listener is told of them, and the engine does not show them."""

from __future__ import annotations

import ctypes

import numpy as np
from test_layers import constant
from trt_logger import Kept

from tactix_tensorrt import api as trt

Array = np.ndarray
Net = trt.INetworkDefinition
SUM, PROD = trt.ElementWiseOperation.SUM, trt.ElementWiseOperation.PROD


class Listener(trt.IDebugListener):
    """Keeps copies by name."""

    def __init__(self, takes: bool = True) -> None:
        trt.IDebugListener.__init__(self)
        self.takes = takes
        self.found: dict[str, Array] = {}

    def process_debug_tensor(
        self,
        addr: int,
        location: trt.TensorLocation,
        type: trt.DataType,
        shape: trt.Dims,
        name: str,
        stream: int,
    ) -> bool:
        assert location is trt.TensorLocation.HOST
        dtype = np.dtype(trt.nptype(type))
        raw = (ctypes.c_char * (shape.numel * dtype.itemsize)).from_address(addr)
        self.found[name] = np.frombuffer(bytes(raw), dtype).reshape(tuple(shape))
        return self.takes


def chain(network: Net) -> list[trt.ITensor]:
    """x, x + 1, its product with 3, and that rounded down; the last is an output."""
    x = network.add_input("x", trt.float32, (-1, 3))
    one, three = (constant(network, np.full((1, 1), n, np.float32)) for n in (1, 3))
    more = network.add_elementwise(x, one, SUM).get_output(0)
    times = network.add_elementwise(more, three, PROD).get_output(0)
    floor = network.add_unary(times, trt.UnaryOperation.FLOOR).get_output(0)
    more.name, times.name, floor.name = "more", "times", "y"
    network.mark_output(floor)
    return [x, more, times, floor]


def built(network: Net, config: trt.IBuilderConfig, logger: Kept) -> trt.ICudaEngine:
    profile = network.builder.create_optimization_profile()
    profile.set_shape("x", (1, 3), (2, 3), (5, 3))
    config.add_optimization_profile(profile)
    plan = network.builder.build_serialized_network(network, config)
    assert plan is not None, logger.errors
    engine = trt.Runtime(logger).deserialize_cuda_engine(plan)
    assert engine is not None, logger.errors
    return engine


def run(context: trt.IExecutionContext, x: Array) -> Array:
    y = np.empty_like(x)
    assert context.set_input_shape("x", x.shape)
    context.set_tensor_address("x", x.ctypes.data)
    context.set_tensor_address("y", y.ctypes.data)
    assert context.execute_async_v3(0)
    return y


def values(rows: int) -> Array:
    return np.random.default_rng(rows).standard_normal((rows, 3)).astype(np.float32)


def listened(
    network: Net, config: trt.IBuilderConfig, logger: Kept, tensor: int, listener: Listener
) -> trt.IExecutionContext:
    """A context whose listener is told of one of the chain's tensors."""
    network.mark_debug(chain(network)[tensor])
    context = built(network, config, logger).create_execution_context()
    context.set_debug_listener(listener)
    context.set_all_tensors_debug_state(True)
    return context


def test_a_listener_is_told_of_what_is_on(
    network: Net, config: trt.IBuilderConfig, logger: Kept
) -> None:
    x, more, times, y = chain(network)
    for tensor in (x, more, times, y):
        assert network.mark_debug(tensor)
    assert not network.mark_debug(more)
    assert network.unmark_debug(times)
    assert not network.unmark_debug(times)
    assert network.is_debug_tensor(more)
    assert not network.is_debug_tensor(times)
    engine = built(network, config, logger)
    assert list(engine) == ["x", "y"]
    assert engine.num_io_tensors == 2
    assert engine.is_debug_tensor("more")
    assert not engine.is_debug_tensor("times")
    context, listener = engine.create_execution_context(), Listener()
    assert context.set_debug_listener(listener)
    assert context.get_debug_listener() is listener
    run(context, values(2))
    assert listener.found == {}
    assert not context.get_debug_state("more")
    assert context.set_tensor_debug_state("more", True)
    assert context.get_debug_state("more")
    for rows in (2, 5, 1):
        a = values(rows)
        np.testing.assert_array_equal(run(context, a), np.floor((a + 1) * 3))
        assert set(listener.found) == {"more"}
        np.testing.assert_array_equal(listener.found["more"], a + 1)
    assert context.set_all_tensors_debug_state(True)
    a = values(4)
    got = run(context, a)
    assert set(listener.found) == {"x", "more", "y"}
    np.testing.assert_array_equal(listener.found["x"], a)
    np.testing.assert_array_equal(listener.found["y"], got)


def test_what_runs_on_bindings_tells_too(
    network: Net, config: trt.IBuilderConfig, logger: Kept
) -> None:
    listener, a, y = Listener(), values(2), np.empty((2, 3), np.float32)
    context = listened(network, config, logger, 1, listener)
    context.set_input_shape("x", a.shape)
    assert context.execute_v2([a.ctypes.data, y.ctypes.data])
    np.testing.assert_array_equal(y, np.floor((a + 1) * 3))
    np.testing.assert_array_equal(listener.found["more"], a + 1)


def test_outputs_alone_are_told_of_on_bindings(
    network: Net, config: trt.IBuilderConfig, logger: Kept
) -> None:
    listener, a, y = Listener(), values(2), np.empty((2, 3), np.float32)
    context = listened(network, config, logger, 3, listener)
    context.set_input_shape("x", a.shape)
    assert context.execute_v2([a.ctypes.data, y.ctypes.data])
    np.testing.assert_array_equal(listener.found["y"], np.floor((a + 1) * 3))


class Placing(trt.IOutputAllocator):
    """Gives an array as memory."""

    def __init__(self, memory: Array) -> None:
        trt.IOutputAllocator.__init__(self)
        self.memory = memory

    def reallocate_output(self, tensor_name: str, memory: int, size: int, alignment: int) -> int:
        return self.memory.ctypes.data


def test_an_output_is_told_of_where_an_allocator_put_it(
    network: Net, config: trt.IBuilderConfig, logger: Kept
) -> None:
    listener, a, y = Listener(), values(2), np.empty((4, 64), np.float32)
    context = listened(network, config, logger, 3, listener)
    context.set_output_allocator("y", Placing(y))
    context.set_input_shape("x", a.shape)
    context.set_tensor_address("x", a.ctypes.data)
    assert context.execute_async_v3(0)
    np.testing.assert_array_equal(listener.found["y"], np.floor((a + 1) * 3))


def test_a_listener_that_fails_ends_the_run_so(
    network: Net, config: trt.IBuilderConfig, logger: Kept
) -> None:
    context = listened(network, config, logger, 1, Listener(takes=False))
    a, y = values(1), np.empty((1, 3), np.float32)
    context.set_input_shape("x", a.shape)
    assert not context.execute_v2([a.ctypes.data, y.ctypes.data])
    assert "could not take more" in logger.errors[-1]
    assert not context.set_tensor_debug_state("times", True)
    assert "mark_debug" in logger.errors[-1]


def test_what_fusions_left_can_be_told(
    network: Net, config: trt.IBuilderConfig, logger: Kept
) -> None:
    x = network.add_input("x", trt.float32, (-1, 3))
    none = trt.MatrixOperation.NONE
    square = constant(network, np.eye(3, dtype=np.float32) * 2)
    first = network.add_matrix_multiply(x, none, square, none)
    first.name = "first"
    second = network.add_softmax(first.get_output(0))
    second.axes, second.name = 2, "second"
    last = network.add_matrix_multiply(second.get_output(0), none, square, none).get_output(0)
    last.name = "y"
    network.mark_output(last)
    assert network.mark_unfused_tensors_as_debug_tensors()
    engine = built(network, config, logger)
    assert list(engine) == ["x", "y"]
    context, listener = engine.create_execution_context(), Listener()
    context.set_debug_listener(listener)
    assert not context.unfused_tensors_debug_state
    context.unfused_tensors_debug_state = True
    a = values(3)
    y = run(context, a)
    assert listener.found
    assert set(listener.found) <= {"first", "second"}
    if "second" in listener.found:
        np.testing.assert_allclose(listener.found["second"] * 2, y, rtol=1e-4)
    if "first" in listener.found:
        np.testing.assert_allclose(listener.found["first"], a * 2, rtol=1e-4)
    assert network.unmark_unfused_tensors_as_debug_tensors()
    plain = network.builder.build_engine_with_config(network, config)
    assert not plain.is_debug_tensor("first")
