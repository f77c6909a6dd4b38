"""Weights that pass through windows on the GPU: the very answers of an engine that has them all, in
less memory.
"""

from __future__ import annotations

import gc
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import streamed as s
from gpu_networks import MODELS, feed, outputs
from looped import X, looped

import tactix
from tactix import BuilderFlag
from tactix.run.runtime import Runtime
from tactix_cuda.device import CudaDevice
from tactix_cuda.memory import PoolAllocator, RecyclingAllocator
from tactix_runtime.streaming.engine import StreamedEngine

pytestmark = pytest.mark.gpu

PARTS = (0.0, 0.25, 0.5, 1.0)
SHAPES = ((1, 16), (3, 7), (2, 20), (1, 16))


@pytest.fixture(scope="module")
def chains(device: CudaDevice) -> Any:
    return s.plan_of()


def plan_of(
    model: Any, device: CudaDevice, flags: frozenset[BuilderFlag] = frozenset(), **more: Any
) -> tactix.Plan:
    builder = tactix.Builder()
    config = tactix.BuilderConfig(
        device=device.key, timing_cache=False, flags={BuilderFlag.WEIGHT_STREAMING, *flags}, **more
    )
    return builder.build_plan(builder.import_model(model), config)


def engines(plan: tactix.Plan) -> tuple[Any, Any]:
    """One that streams, and one that has all weights at hand."""
    meta = {k: v for k, v in plan.meta.items() if k != "weight_streaming"}
    streamed, whole = Runtime().load(plan), Runtime().load(replace(plan, meta=meta))
    assert isinstance(streamed, StreamedEngine)
    assert not isinstance(whole, StreamedEngine)
    return streamed, whole


def test_chains_at_any_budget(chains: Any, device: CudaDevice) -> None:
    engine = s.engine_of(*chains)
    for budget in s.budgets(engine):
        engine.weight_streaming_budget_v2 = budget
        for seed, n in enumerate((3, 4000, 3, 0, 17)):
            s.check_run(engine.create_execution_context(), n, seed)
        s.check_streams(engine, PoolAllocator(device), count=4, rounds=25)


def test_threads_with_contexts_of_their_own(chains: Any) -> None:
    engine = s.engine_of(*chains)

    def work(k: int) -> None:
        context = engine.create_execution_context()
        for seed in range(30):
            s.check_run(context, 5 + 40 * k, 100 * k + seed)

    for budget in s.budgets(engine)[:4]:
        engine.weight_streaming_budget_v2 = budget
        with ThreadPoolExecutor(6) as pool:
            for done in [pool.submit(work, k) for k in range(6)]:
                done.result()


@pytest.mark.parametrize("flags", [(), (BuilderFlag.FP16,)], ids=["f32", "f16"])
@pytest.mark.parametrize("name", ["decoder", "encoder", "residual", "lstm", "vision"])
def test_networks(name: str, flags: tuple[BuilderFlag, ...], device: CudaDevice) -> None:
    plan = plan_of(MODELS / f"{name}.onnx", device, frozenset(flags), builder_optimization_level=1)
    engine, whole = engines(plan)
    size = engine.streamable_weights_size
    assert 0 < engine.minimum_weight_streaming_budget < size
    fed = [feed(whole, *shape) for shape in SHAPES]
    want = [outputs(whole, arrays) for arrays in fed]
    for part in PARTS:
        engine.weight_streaming_budget_v2 = max(
            engine.minimum_weight_streaming_budget, int(part * size)
        )
        for arrays, w in zip(fed * 2, want * 2, strict=True):
            got = outputs(engine, arrays)
            for k, y in w.items():
                np.testing.assert_array_equal(got[k], y, strict=True)


def test_loops_on_the_host(device: CudaDevice) -> None:
    engine, whole = engines(plan_of(looped(), device))
    want, size = whole(X), engine.streamable_weights_size
    for part in PARTS:
        engine.weight_streaming_budget_v2 = max(
            engine.minimum_weight_streaming_budget, int(part * size)
        )
        for _ in range(3):
            np.testing.assert_array_equal(engine(X), want)


def test_arrays_of_torch(device: CudaDevice) -> None:
    torch = pytest.importorskip("torch")
    engine, whole = engines(plan_of(MODELS / "mlp.onnx", device))
    (io,) = engine.inputs
    engine.weight_streaming_budget_v2 = engine.minimum_weight_streaming_budget
    for stream in (torch.cuda.default_stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            for _ in range(20):
                x = torch.randn([d if isinstance(d, int) else 5 for d in io.shape], device="cuda")
                x = x + 1  # queued before the run, with nobody waiting
                got = torch.from_dlpack(engine(x)) * 2
                assert torch.equal(got, torch.from_dlpack(whole(x)) * 2)


LAYERS, WIDTH = 24, 2048


@pytest.fixture(scope="module")
def large(device: CudaDevice) -> Any:
    """24 products of 16 MiB."""
    builder, rng = tactix.Builder(), np.random.default_rng(0)
    net = builder.create_network("products")
    x = net.add_input("x", "f32", ("n", WIDTH))
    base = rng.standard_normal((WIDTH, WIDTH), dtype=np.float32) / np.float32(WIDTH**0.5)
    for k in range(LAYERS):
        (x,) = net.add_layer(
            "tactix.MatMul", [x, net.add_constant(np.roll(base, 17 * k, axis=k % 2))]
        )
    net.mark_output(x, "y")
    profile = tactix.OptimizationProfile().set_shape("x", (1, WIDTH), (4, WIDTH), (64, WIDTH))
    config = tactix.BuilderConfig(
        device=device.key,
        timing_cache=False,
        flags={BuilderFlag.WEIGHT_STREAMING},
        builder_optimization_level=0,
        profiles=[profile],
    )
    return builder.build_plan(net, config)


def free(device: CudaDevice) -> int:
    """Bytes of the device that nobody has, and that the pool does not keep for later."""
    gc.collect()
    device.activate()
    device.allocator(PoolAllocator).trim()
    return int(device.driver.call("cuMemGetInfo")[0])


def used(device: CudaDevice) -> int:
    """Bytes of the pool that are in use."""
    gc.collect()
    call, api = device.driver.call, device.driver.api
    call("cuCtxSynchronize")
    pool = call("cuDeviceGetDefaultMemPool", device.native)
    return int(
        call(
            "cuMemPoolGetAttribute", pool, api.CUmemPool_attribute.CU_MEMPOOL_ATTR_USED_MEM_CURRENT
        )
    )


@pytest.mark.parametrize("allocator", [PoolAllocator.key, RecyclingAllocator.key])
def test_device_memory_falls_with_the_budget(
    large: Any, device: CudaDevice, allocator: str
) -> None:
    """Free memory of the whole device is compared where no other tests run at the same time."""
    engine: Any = Runtime(allocator=allocator).load(large)
    x, step = (
        np.random.default_rng(1).standard_normal((4, WIDTH), dtype=np.float32),
        WIDTH * WIDTH * 4,
    )
    want, size = engine(x), engine.streamable_weights_size
    rounded = (
        2 * (32 << 20) + engine.device_memory_size({"x": x.shape}) + (2 << 20)
    )  # the pool's large pieces
    assert size == LAYERS * step
    engine.weight_streaming_budget_v2 = size
    alone, pool = free(device), used(device)
    for part in (1.0, 0.5, 0.25, 0.0, 0.5):
        engine.weight_streaming_budget_v2 = budget = max(
            engine.minimum_weight_streaming_budget, int(part * size)
        )
        np.testing.assert_array_equal(engine(x), want)
        taken = engine.inspect()["memory"]["weights"]
        assert budget - step < taken <= budget
        if allocator == PoolAllocator.key:
            assert taken <= used(device) - pool <= taken + rounded
        if "PYTEST_XDIST_WORKER" not in os.environ:
            assert taken <= alone - free(device) <= taken + (96 << 20)


def test_a_plan_from_a_file(large: Any, tmp_path: Path, device: CudaDevice) -> None:
    tactix.plan.container.save(large, tmp_path / "plan")
    engine: Any = Runtime().deserialize(tmp_path / "plan")
    before = used(device)
    engine.weight_streaming_budget_v2 = engine.minimum_weight_streaming_budget
    whole, x = (
        Runtime().load(large),
        np.random.default_rng(2).standard_normal((9, WIDTH), dtype=np.float32),
    )
    assert used(device) - before < 1 << 20  # both have no context yet
    np.testing.assert_array_equal(engine(x), whole(x))
