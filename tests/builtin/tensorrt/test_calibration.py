"""INT8: calibrators, caches, ranges of tensors, as programs of TensorRT 10 ask for them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from trt_logger import Kept

from tactix_quantize.cache import decode, encode
from tactix_tensorrt import api as trt

RNG = np.random.default_rng(3)
BATCHES = [RNG.standard_normal((2, 3, 8, 8)).astype(np.float32) for _ in range(3)]
TENSORS = {"x", "p"}
"""What the model's convolution and product read."""


def calibrator(kind: type[trt.IInt8Calibrator], cache: bytes | None = None) -> trt.IInt8Calibrator:
    """A program's own. It keeps what it was asked for."""

    class Own(kind):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            kind.__init__(self)
            self.left, self.names, self.written = list(BATCHES), [], b""

        def get_batch_size(self) -> int:
            return 2

        def get_batch(self, names: list[str]) -> list[int] | None:
            self.names.append(names)
            if not self.left:
                return None
            self.current = np.ascontiguousarray(self.left.pop(0))
            return [self.current.ctypes.data]

        def read_calibration_cache(self) -> bytes | None:
            return cache

        def write_calibration_cache(self, cache: memoryview) -> None:
            self.written = cache.tobytes()

    return Own()


@pytest.fixture
def int8(profiled: trt.IBuilderConfig, parsed: trt.INetworkDefinition) -> trt.IBuilderConfig:
    """Products are integers by wish, as floats are as fast in a network of this size."""
    for layer in (parsed.get_layer(i) for i in range(parsed.num_layers)):
        if layer.name in ("conv", "head"):
            layer.precision = trt.int8
    profiled.set_flag(trt.BuilderFlag.PREFER_PRECISION_CONSTRAINTS)
    profiled.set_flag(trt.BuilderFlag.INT8)
    return profiled


@pytest.fixture
def kinds(
    builder: trt.Builder, parsed: trt.INetworkDefinition, logger: Kept
) -> Callable[[trt.IBuilderConfig], str]:
    """Builds the model; what tells of its layers."""

    def build(config: trt.IBuilderConfig) -> str:
        plan = builder.build_serialized_network(parsed, config)
        assert plan is not None, logger.errors
        engine = trt.Runtime(logger).deserialize_cuda_engine(plan)
        inspector = engine.create_engine_inspector()
        return inspector.get_engine_information(trt.LayerInformationFormat.JSON)

    return build


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (trt.IInt8EntropyCalibrator2, "EntropyCalibration2"),
        (trt.IInt8EntropyCalibrator, "EntropyCalibration"),
        (trt.IInt8MinMaxCalibrator, "MinMaxCalibration"),
        (trt.IInt8LegacyCalibrator, "LegacyCalibration"),
    ],
)
def test_a_calibrator_is_asked_and_keeps_a_cache(
    kinds: Callable[[trt.IBuilderConfig], str],
    int8: trt.IBuilderConfig,
    kind: type[trt.IInt8Calibrator],
    name: str,
) -> None:
    int8.int8_calibrator = own = calibrator(kind)
    assert "int8" in kinds(int8)
    assert own.names == [["x"]] * 4
    assert own.written.startswith(f"TRT-8401-{name}\n".encode())
    found = decode(own.written)
    assert found.keys() == TENSORS
    most = max(np.abs(b).max() for b in BATCHES)
    assert found["x"][1] == pytest.approx(most, rel=0.3 if "Entropy" in name else 1e-3)


def test_a_cache_is_all_that_is_needed(
    kinds: Callable[[trt.IBuilderConfig], str], int8: trt.IBuilderConfig, logger: Kept
) -> None:
    cache = encode({"x": (-3.0, 3.0), "p": (-2.0, 2.0), "(Unnamed Layer* 7)_output": (-1.0, 1.0)})
    int8.int8_calibrator = own = calibrator(trt.IInt8EntropyCalibrator2, cache)
    assert "int8" in kinds(int8)
    assert own.names == []
    assert own.written == b""


def test_results_are_near_those_of_floats(
    builder: trt.Builder, parsed: trt.INetworkDefinition, int8: trt.IBuilderConfig, logger: Kept
) -> None:
    int8.int8_calibrator = calibrator(trt.IInt8MinMaxCalibrator)
    found = []
    for flag in (True, False):
        if not flag:
            int8.clear_flag(trt.BuilderFlag.INT8)
        plan = builder.build_serialized_network(parsed, int8)
        assert plan is not None, logger.errors
        engine = trt.Runtime(logger).deserialize_cuda_engine(plan)
        context = engine.create_execution_context()
        x, y = BATCHES[0], np.zeros((2, 4), np.float32)
        context.set_input_shape("x", x.shape)
        assert context.execute_v2([x.ctypes.data, y.ctypes.data])
        found.append(y)
    assert 0 < np.abs(found[0] - found[1]).max() < 0.05 * np.abs(found[1]).max()


def test_ranges_of_tensors_are_enough(
    kinds: Callable[[trt.IBuilderConfig], str],
    parsed: trt.INetworkDefinition,
    int8: trt.IBuilderConfig,
) -> None:
    parsed.get_input(0).set_dynamic_range(-4.0, 4.0)
    told = kinds(int8)
    assert "int8" in told
    parsed.get_input(0).reset_dynamic_range()
    parsed.get_layer(0).get_output(0).dynamic_range = (-4.0, 4.0)  # nobody multiplies it
    assert "int8" not in kinds(int8)


def test_a_network_by_hand(
    builder: trt.Builder, network: trt.INetworkDefinition, config: trt.IBuilderConfig, logger: Kept
) -> None:
    x = network.add_input("x", trt.float32, (2, 3, 8, 8))
    w = RNG.standard_normal((4, 3, 1, 1)).astype(np.float32)
    first = network.add_convolution_nd(x, 4, (1, 1), w)
    first.get_output(0).name = "between"
    w = RNG.standard_normal((2, 4, 1, 1)).astype(np.float32)
    network.mark_output(network.add_convolution_nd(first.get_output(0), 2, (1, 1), w).get_output(0))
    config.set_flag(trt.BuilderFlag.INT8)
    config.int8_calibrator = own = calibrator(trt.IInt8EntropyCalibrator2)
    assert builder.build_serialized_network(network, config) is not None, logger.errors
    assert decode(own.written).keys() == {"x", "between"}


def test_without_ranges_it_is_told_and_built_in_floats(
    kinds: Callable[[trt.IBuilderConfig], str], int8: trt.IBuilderConfig, logger: Kept
) -> None:
    assert "int8" not in kinds(int8)
    assert any("INT8 without a calibrator" in text for text in logger.warnings)


def test_the_size_of_batches_is_the_calibration_profiles(
    builder: trt.Builder,
    kinds: Callable[[trt.IBuilderConfig], str],
    int8: trt.IBuilderConfig,
) -> None:
    profile = builder.create_optimization_profile()
    profile.set_shape("x", (1, 3, 8, 8), (1, 3, 8, 8), (4, 3, 8, 8))
    assert int8.set_calibration_profile(profile)
    assert int8.get_calibration_profile() is profile
    int8.int8_calibrator = own = calibrator(trt.IInt8MinMaxCalibrator)
    kinds(int8)
    most = max(np.abs(b[:1]).max() for b in BATCHES)  # of each batch the first sample is read
    assert decode(own.written)["x"][1] == pytest.approx(most, rel=1e-6)


@pytest.mark.parametrize(
    ("cache", "said"),
    [
        (b"no cache", "no calibration cache"),
        (encode({"other": (-1.0, 1.0)}), "calibration cache is of another model"),
        (encode({"x": (-1.0, 1.0), **dict.fromkeys("uvz", (-1.0, 1.0))}), "3 of 4 names in it"),
        (encode({"x": (0.0, 0.0), "p": (-1.0, 1.0)}), "scale 0 for x"),
    ],
)
def test_a_cache_that_does_not_fit_builds_nothing(
    builder: trt.Builder,
    parsed: trt.INetworkDefinition,
    int8: trt.IBuilderConfig,
    logger: Kept,
    cache: bytes,
    said: str,
) -> None:
    int8.int8_calibrator = calibrator(trt.IInt8EntropyCalibrator2, cache)
    assert builder.build_serialized_network(parsed, int8) is None
    assert any(said in text for text in logger.errors)


def test_a_calibrator_without_batches_builds_nothing(
    builder: trt.Builder, parsed: trt.INetworkDefinition, int8: trt.IBuilderConfig, logger: Kept
) -> None:
    int8.int8_calibrator = trt.IInt8EntropyCalibrator2()
    assert builder.build_serialized_network(parsed, int8) is None
    assert "IInt8EntropyCalibrator2: its get_batch gave no batch" in logger.errors[-1]
