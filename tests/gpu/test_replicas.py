"""One plan on several GPUs of one host behind one engine."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cuda_engine as e
import numpy as np
import pytest
from gpu_networks import MODELS, feed

import tactix
from tactix.base.errors import PlanCompatibilityError
from tactix.plan import container
from tactix.run.replicated_engine import ReplicatedEngine
from tactix.run.runtime import Runtime
from tactix_cuda.arrays import DeviceArray
from tactix_cuda.device import CudaDevice
from tactix_cuda.memory import PoolAllocator, RecyclingAllocator

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def devices(device: CudaDevice) -> Sequence[CudaDevice]:
    found = device.siblings()
    if len(found) < 2:
        pytest.skip(f"there is one GPU, {device.properties().name}; this needs several")
    return found


def replicated(plan: Any, session: Any, **more: Any) -> ReplicatedEngine:
    runtime = Runtime(session=session, **more)
    runtime.devices = "all"
    found: Any = runtime.load(plan)
    return found  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def sums(devices: Sequence[CudaDevice]) -> Iterator[ReplicatedEngine]:
    built = e.builder()
    plan = built.build_plan(e.sums(built), e.config())
    with replicated(plan, built.session) as engine:
        yield engine


@pytest.fixture(scope="module")
def products(devices: Sequence[CudaDevice]) -> Iterator[ReplicatedEngine]:
    """y = softmax(x W) V in float16, by whatever is fastest: a library's calls and kernels."""
    builder, rng = tactix.Builder(), np.random.default_rng(1)
    network = builder.create_network("products")
    y = network.add_input("x", "f16", ("n", 256))
    for i, (k, n) in enumerate(((256, 512), (512, 128))):
        w = (rng.standard_normal((k, n)) / k**0.5).astype(np.float16)
        (y,) = network.add_layer("tactix.MatMul", [y, network.add_constant(w)])
        if not i:
            (y,) = network.add_layer("tactix.Softmax", [y], axis=-1)
    network.mark_output(y, "y")
    config = tactix.BuilderConfig(
        device="tactix.cuda@1",
        timing_cache=False,
        builder_optimization_level=2,
        profiles=[tactix.OptimizationProfile().set_shape("x", (1, 256), (64, 256), (512, 256))],
    )
    with replicated(builder.build_plan(network, config), builder.session) as engine:
        yield engine


def check(engine: Any, n: int, seed: int = 0) -> None:
    f = e.feeds(n, seed)
    got = engine.run(f)
    for name, want in e.expected(f).items():
        np.testing.assert_array_equal(got[name], want)


def test_each_device_alone(devices: Sequence[CudaDevice], tmp_path: Path) -> None:
    built = e.builder()
    container.save(built.build_plan(e.sums(built), e.config()), tmp_path / "plan")
    for device in devices:
        options = {"session": built.session, "on_untrusted": "allow"}
        with tactix.load(tmp_path / "plan", device=device.label, **options) as engine:
            assert engine.device is device
            e.check_engine(engine)
            e.check_addresses(engine, device, RecyclingAllocator(device))
    gone = f"device 'cuda:{len(devices)}' is not here. There are: cuda:0, cuda:1"
    with pytest.raises(PlanCompatibilityError, match=gone):
        tactix.load(tmp_path / "plan", device=f"cuda:{len(devices)}", **options)


def test_shapes_and_threads(sums: ReplicatedEngine) -> None:
    e.check_engine(sums)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: check(sums, 1 + i % 7, seed=i), range(400)))
    assert all(r.ended and not r.running and not r.lost for r in sums.replicas)


def test_requests_in_order(sums: ReplicatedEngine) -> None:
    async def ask() -> list[Any]:
        given = (sums.run_async(e.feeds(1 + i % 9, i), wait=True) for i in range(500))
        return await asyncio.gather(*given)

    for i, got in enumerate(asyncio.run(ask())):
        for name, want in e.expected(e.feeds(1 + i % 9, i)).items():
            np.testing.assert_array_equal(got[name], want)
    assert all(r.ended for r in sums.replicas)


def test_replicas_agree_to_the_bit(products: ReplicatedEngine) -> None:
    rng = np.random.default_rng(3)
    for n in (1, 2, 63, 64, 300):
        x = rng.standard_normal((n, 256)).astype(np.float16)
        first, *others = (engine(x) for engine in products.engines)
        for other in others:
            np.testing.assert_array_equal(other, first)


@pytest.mark.parametrize("n", [0, 1, 2, 5, 127, 512, 1001])
def test_a_batch_in_parts(products: ReplicatedEngine, n: int) -> None:
    if not n:
        x = np.zeros((0, 256), np.float16)
        with pytest.raises(tactix.TactixError):  # the profile begins with a row
            products.run({"x": x}, split=True)
        return
    x = np.random.default_rng(n).standard_normal((n, 256)).astype(np.float16)
    out = {"y": np.zeros((n, 128), np.float16)}
    products.run({"x": x}, out, split=True)
    for i in range(0, n, 97):
        rows = x[i : i + 97]
        want = products.engines[0](rows)
        np.testing.assert_allclose(
            out["y"][i : i + 97].astype(np.float32), want.astype(np.float32), atol=2e-3
        )


def test_networks_of_libraries_and_kernels(devices: Sequence[CudaDevice]) -> None:
    """Convolutions, attention and recurrent layers, and what of them runs on the host."""
    for name in ("vision", "encoder", "lstm"):
        builder = tactix.Builder()
        config = tactix.BuilderConfig(
            device="tactix.cuda@1", timing_cache=False, builder_optimization_level=1
        )
        plan = builder.build_plan(builder.import_model(MODELS / f"{name}.onnx"), config)
        with replicated(plan, builder.session) as engine:
            arrays: Any = feed(engine, 3, 7)  # type: ignore[arg-type]
            first, *others = (one.run(arrays) for one in engine.engines)
            with ThreadPoolExecutor(4) as pool:
                others += list(pool.map(engine.run, [arrays] * 16))
            for other in others:
                for key, want in first.items():
                    np.testing.assert_allclose(other[key], want, rtol=1e-5, atol=1e-5)


def test_arrays_of_a_device_run_there(
    sums: ReplicatedEngine, devices: Sequence[CudaDevice]
) -> None:
    f = e.feeds(33)
    for device in reversed(devices):
        memory, there = PoolAllocator(device), {}
        for name, x in f.items():
            there[name] = DeviceArray(device, memory, x.shape, "f32", device.default_stream)
            device.copy_in(there[name].address, x)
        got: Any = sums.run(there)  # type: ignore[arg-type]
        for name, want in e.expected(f).items():
            assert got[name].__dlpack_device__() == (2, device.ordinal)
            np.testing.assert_array_equal(got[name].numpy(), want)


def test_torch_keeps_its_device(sums: ReplicatedEngine, devices: Sequence[CudaDevice]) -> None:
    torch = pytest.importorskip("torch")
    f = e.feeds(12)
    for current in range(len(devices)):
        with torch.cuda.device(current):
            check(sums, 12)
            for engine in sums.engines:
                engine.run(f)
                assert torch.cuda.current_device() == current
            t = {name: torch.from_numpy(x).to(f"cuda:{current}") for name, x in f.items()}
            got: Any = sums.run(t)
            for name, want in e.expected(f).items():
                y = torch.from_dlpack(got[name])
                assert y.device.index == current
                np.testing.assert_array_equal(y.cpu().numpy(), want)
            assert torch.cuda.current_device() == current


def test_what_is_closed_gives_back(devices: Sequence[CudaDevice]) -> None:
    """Memory of both, after many engines."""
    builder = e.builder()
    plan = builder.build_plan(e.sums(builder), e.config())

    def used() -> list[int]:
        for device in devices:
            PoolAllocator(device).trim()
        return [device.memory_used() for device in devices]

    for _ in range(3):
        with replicated(plan, builder.session) as engine:
            check(engine, 1000)
    before = used()
    for _ in range(20):
        with replicated(plan, builder.session) as engine:
            check(engine, 1000)
            asyncio.run(engine.run_async(e.feeds(1000)))
    assert all(now - then < 8 << 20 for now, then in zip(used(), before, strict=True))
