"""Memory that a program's allocator gives, and timings that a program changes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from trt_logger import Kept

from tactix_tensorrt import api as trt


class Pages(trt.IGpuAsyncAllocator):
    """Gives host memory, and keeps what it was asked for. ``room``: bytes that it has."""

    def __init__(self, room: int = 1 << 30) -> None:
        trt.IGpuAsyncAllocator.__init__(self)
        self._room = room
        self.held: dict[int, np.ndarray] = {}
        self.freed = 0

    def allocate_async(self, size: int, alignment: int, flags: int, stream: int) -> int:
        if size > self._room:
            return 0
        memory = np.zeros(size + alignment, np.uint8)
        address = -(-memory.ctypes.data // alignment) * alignment
        self.held[address] = memory
        return address

    def deallocate_async(self, memory: int, stream: int) -> bool:
        self.freed += 1
        return self.held.pop(memory, None) is not None


class Broken(trt.IGpuAllocator):
    def __init__(self) -> None:
        trt.IGpuAllocator.__init__(self)

    def allocate(self, size: int, alignment: int, flags: int) -> int:
        raise OSError("no such device")


@pytest.fixture
def plan(
    builder: trt.Builder, parsed: trt.INetworkDefinition, profiled: trt.IBuilderConfig
) -> bytes:
    made = builder.build_serialized_network(parsed, profiled)
    assert made is not None
    return bytes(made)


GIVEN = {"x": np.ones((2, 3, 8, 8), np.float32)}


def test_contexts_have_their_memory_from_the_programs_allocator(plan: bytes, logger: Kept) -> None:
    expected = trt.Runtime(logger).deserialize_cuda_engine(plan).create_execution_context()
    runtime = trt.Runtime(logger)
    runtime.gpu_allocator = pages = Pages()
    context = runtime.deserialize_cuda_engine(plan).create_execution_context()
    found = context.native.run(GIVEN)["y"]
    np.testing.assert_array_equal(found, expected.native.run(GIVEN)["y"])
    assert (place := context.device_memory) in pages.held
    context.native.close()
    assert place not in pages.held
    assert pages.freed == 1  # weights, if they are copied, stay as long as the engine


@pytest.mark.parametrize(
    ("allocator", "why"),
    [(Pages(room=0), "cannot be had"), (Broken(), "fails with OSError: no such device")],
)
def test_memory_that_cannot_be_had_is_told(
    plan: bytes, logger: Kept, allocator: trt.IGpuAllocator, why: str
) -> None:
    runtime = trt.Runtime(logger)
    runtime.gpu_allocator = allocator
    engine = runtime.deserialize_cuda_engine(plan)
    if engine is not None:  # its weights lie where they were read to
        context = engine.create_execution_context()
        assert context.set_input_shape("x", (2, 3, 8, 8))
        arrays = [GIVEN["x"], np.zeros((2, 4), np.float32)]
        for name, array in zip(("x", "y"), arrays, strict=True):
            assert context.set_tensor_address(name, array.ctypes.data)
        assert not context.execute_async_v3(0)
    assert why in logger.errors[-1]


def chosen(plan: trt.IHostMemory | None) -> str:
    assert plan is not None
    engine = trt.Runtime(Kept()).deserialize_cuda_engine(plan)
    return str(engine.native.plan.steps[0].info["tactic"])


def test_another_time_in_the_cache_has_another_tactic_chosen(
    builder: trt.Builder, network: trt.INetworkDefinition, config: trt.IBuilderConfig
) -> None:
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    x, w = (network.add_input(n, trt.float32, s) for n, s in (("x", (4, 8)), ("w", (8, 9))))
    none = trt.MatrixOperation.NONE
    network.mark_output(network.add_matrix_multiply(x, none, w, none).get_output(0))
    config.builder_optimization_level = 1
    cache = config.create_timing_cache(b"")
    assert config.set_timing_cache(cache, ignore_mismatch=False)
    config.set_flag(trt.BuilderFlag.EDITABLE_TIMING_CACHE)
    before = chosen(builder.build_serialized_network(network, config))
    values = {key: cache.query(key) for key in cache.queryKeys()}
    assert len(values) == 2
    for key, value in values.items():
        assert trt.TimingCacheKey.parse(str(key)) == key
        changed = trt.TimingCacheValue(value.tacticHash, 1 / value.timingMSec)
        assert cache.update(key, changed)
        assert cache.query(key).timingMSec == pytest.approx(changed.timingMSec)
    assert chosen(builder.build_serialized_network(network, config)) != before


def test_entries_of_a_cache_that_are_none(config: trt.IBuilderConfig) -> None:
    text = b'{"version": 1, "timings": {"%s": [1e-3, 0.1, 0.0, 0.0]}}' % (b"0a" * 20)
    cache = config.create_timing_cache(text)
    (key,) = cache.queryKeys()
    value = cache.query(key)
    assert value.timingMSec == 1.0
    other = trt.TimingCacheKey.parse("none")
    assert math.isnan(cache.query(other).timingMSec)
    assert not cache.update(other, value)
    assert not cache.update(key, trt.TimingCacheValue(value.tacticHash + 1, 1.0))
    assert not cache.update(key, trt.TimingCacheValue(value.tacticHash, -1.0))
    assert cache.update(key, trt.TimingCacheValue(value.tacticHash, math.nan))
    assert cache.queryKeys() == []
    assert config.create_timing_cache(b"nothing").queryKeys() == []
