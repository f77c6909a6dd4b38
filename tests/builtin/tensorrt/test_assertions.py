"""Assertions that constants, sizes and data decide."""

from __future__ import annotations

import numpy as np
import pytest
from trt_logger import Kept
from trt_runs import built

from tactix_tensorrt import api as trt

COMPARE = trt.ElementWiseOperation


def test_what_never_holds_builds_nothing(
    builder: trt.Builder,
    network: trt.INetworkDefinition,
    config: trt.IBuilderConfig,
    logger: Kept,
) -> None:
    network.mark_output(
        network.add_identity(network.add_input("x", trt.float32, (2,))).get_output(0)
    )
    never = network.add_constant((), np.array(False)).get_output(0)
    network.add_assertion(never, "never so")
    assert builder.build_serialized_network(network, config) is None
    assert "never so" in logger.errors[-1]


@pytest.mark.parametrize(
    ("compare", "fits", "breaks"),
    [(COMPARE.EQUAL, 5, 2), (COMPARE.GREATER, 6, 5), (COMPARE.LESS, 4, 5)],
)
def test_what_sizes_decide_is_checked_by_runs(
    compare: trt.ElementWiseOperation,
    fits: int,
    breaks: int,
    network: trt.INetworkDefinition,
    config: trt.IBuilderConfig,
    logger: Kept,
) -> None:
    x = network.add_input("x", trt.float32, (-1,))
    y = network.add_unary(x, trt.UnaryOperation.NEG).get_output(0)
    y.name = "y"
    network.mark_output(y)
    five = network.add_constant((1,), np.array([5], np.int64)).get_output(0)
    size = network.add_shape(x).get_output(0)
    network.add_assertion(
        network.add_elementwise(size, five, compare).get_output(0), "about five rows"
    )
    profile = trt.Builder(logger).create_optimization_profile()
    profile.set_shape("x", (1,), (fits,), (9,))
    config.add_optimization_profile(profile)
    context = built(network, config, logger).create_execution_context()
    for rows, holds in ((fits, True), (breaks, False)):
        given = np.ones(rows, np.float32)
        made = np.zeros(rows, np.float32)
        done = context.set_input_shape("x", given.shape)
        context.set_tensor_address("x", given.ctypes.data)
        context.set_tensor_address("y", made.ctypes.data)
        assert (done and context.execute_async_v3(0)) is holds, logger.errors
    assert "about five rows" in logger.errors[-1]


def test_what_data_decides_is_checked_by_runs(
    network: trt.INetworkDefinition, config: trt.IBuilderConfig, logger: Kept
) -> None:
    x = network.add_input("x", trt.float32, (2,))
    y = network.add_unary(x, trt.UnaryOperation.NEG).get_output(0)
    y.name = "y"
    network.mark_output(y)
    same = network.add_elementwise(x, x, COMPARE.EQUAL).get_output(0)
    network.add_assertion(same, "no NaN")
    engine = built(network, config, logger)
    assert list(engine) == ["x", "y"]
    context, made = engine.create_execution_context(), np.zeros(2, np.float32)
    for given in ([1, 2], [1, np.nan], [3, 4]):
        array = np.array(given, np.float32)
        context.set_tensor_address("x", array.ctypes.data)
        context.set_tensor_address("y", made.ctypes.data)
        holds = not np.isnan(array).any()
        assert context.execute_async_v3(0) is bool(holds)
        assert context.execute_v2([array.ctypes.data, made.ctypes.data]) is bool(holds)
    assert sum("no NaN" in text for text in logger.errors) == 2


def test_a_condition_that_is_an_input_or_output_is_checked_too(
    network: trt.INetworkDefinition, config: trt.IBuilderConfig, logger: Kept
) -> None:
    given = network.add_input("given", trt.bool, (3,))
    other = network.add_unary(given, trt.UnaryOperation.NOT).get_output(0)
    other.name = "other"
    network.mark_output(other)
    network.add_assertion(given, "all given")
    engine = built(network, config, logger)
    context, made = engine.create_execution_context(), np.zeros(3, np.bool_)
    for holds in (True, False):
        array = np.array([True, holds, True])
        context.set_tensor_address("given", array.ctypes.data)
        context.set_tensor_address("other", made.ctypes.data)
        assert context.execute_async_v3(0) is holds
    assert "all given" in logger.errors[-1]


def test_what_a_gpus_data_decides_is_warned_of(
    network: trt.INetworkDefinition, logger: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = network.add_input("x", trt.float32, (2,))
    network.mark_output(network.add_identity(x).get_output(0))
    network.add_assertion(network.add_elementwise(x, x, COMPARE.EQUAL).get_output(0), "no NaN")
    monkeypatch.setenv("TACTIX_TENSORRT_DEVICE", "cuda")
    network.lowered()
    assert any("no NaN" in text for text in logger.warnings)
