"""A program's profiler is told how long each step took."""

from __future__ import annotations

import numpy as np
import pytest
from trt_logger import Kept

from tactix_tensorrt import api as trt


class Times(trt.IProfiler):
    def __init__(self) -> None:
        trt.IProfiler.__init__(self)
        self.told: list[tuple[str, float]] = []

    def report_layer_time(self, layer_name: str, ms: float) -> None:
        self.told.append((layer_name, ms))


@pytest.fixture
def context(engine: trt.ICudaEngine) -> trt.IExecutionContext:
    """Ready to run at a batch of 2."""
    out = engine.create_execution_context()
    assert out is not None
    assert out.set_input_shape("x", (2, 3, 8, 8))
    arrays = [np.ones((2, 3, 8, 8), np.float32), np.zeros((2, 4), np.float32)]
    vars(out)["kept"] = arrays
    for name, array in zip(("x", "y"), arrays):
        assert out.set_tensor_address(name, array.ctypes.data)
    return out


def layers(engine: trt.ICudaEngine) -> list[str]:
    inspector = engine.create_engine_inspector()
    line = trt.LayerInformationFormat.ONELINE
    return [inspector.get_layer_information(i, line) for i in range(engine.num_layers)]


def test_each_run_is_told_layer_by_layer(context: trt.IExecutionContext) -> None:
    assert context.profiler is None
    context.profiler = times = Times()
    assert context.profiler is times
    for _ in range(2):
        assert context.execute_async_v3(0)
    names = [name for name, _ in times.told]
    assert len(names) == 2 * context.engine.num_layers
    assert all(
        line.startswith(name) for line, name in zip(layers(context.engine), names, strict=False)
    )
    assert min(ms for _, ms in times.told) > 0


def test_a_run_is_told_when_the_program_asks(context: trt.IExecutionContext) -> None:
    context.profiler = times = Times()
    context.enqueue_emits_profile = False
    assert not context.report_to_profiler()
    for _ in range(3):
        assert context.execute_async_v3(0)
    assert times.told == []
    assert context.report_to_profiler()
    assert len(times.told) == context.engine.num_layers
    assert not context.report_to_profiler()


def test_there_is_nothing_to_report_without_a_profiler(context: trt.IExecutionContext) -> None:
    assert not context.report_to_profiler()
    context.profiler = times = Times()
    context.profiler = None
    assert context.execute_async_v3(0)
    assert times.told == []


def test_steps_that_tell_their_shapes_are_timed_as_well(
    builder: trt.Builder, network: trt.INetworkDefinition, config: trt.IBuilderConfig, logger: Kept
) -> None:
    x = network.add_input("x", trt.float32, (2, 3))
    doubled = network.add_elementwise(x, x, trt.ElementWiseOperation.SUM).get_output(0)
    places = network.add_non_zero(doubled).get_output(0)
    network.mark_output(places)
    engine = builder.build_engine_with_config(network, config)
    assert engine is not None, logger.errors
    context = engine.create_execution_context()
    assert context is not None
    context.profiler = times = Times()
    given = np.array([[0, 1, 0], [2, 0, 3]], np.float32)
    (found,) = context.native.run({"x": given}).values()
    np.testing.assert_array_equal(found, np.nonzero(given))
    assert context.report_to_profiler()
    assert len(times.told) == engine.num_layers
