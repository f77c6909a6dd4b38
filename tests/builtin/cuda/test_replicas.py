"""A plan on two devices over the fake driver, which refuses what is of another device than the one
whose context is current.
"""

from __future__ import annotations

import asyncio
import gc
import pickle
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import cuda_engine as e
import fake_driver
import numpy as np
import pytest
from fake_driver import FakeApi, FakeKernel, fake_device
from test_engine import combine

import tactix
from tactix.base.errors import (
    AllocationError,
    ConfigError,
    DeviceLost,
    EngineClosed,
    ExecutionError,
    InvalidArgument,
    PlanCompatibilityError,
    PluginError,
    ShapeError,
)
from tactix.plan import container
from tactix.run.replicated_engine import ReplicatedEngine
from tactix.run.runtime import Runtime
from tactix_codegen.compiling import symbol
from tactix_cuda import device as real
from tactix_cuda.arrays import DeviceArray
from tactix_cuda.device import CudaDevice
from tactix_cuda.memory import PoolAllocator, RecyclingAllocator
from tactix_cuda.nvrtc import why_missing

pytestmark = pytest.mark.skipif(bool(why_missing()), reason=why_missing())

LABELS = ("cuda:0", "cuda:1")


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[CudaDevice, FakeApi]]:
    kernels = {symbol(e.RIGHT.code): combine(1), symbol(e.WRONG.code): combine(-1)}
    made = fake_device(kernels, devices=2)
    monkeypatch.setattr(real, "the_device", lambda: made[0])
    yield made
    gc.collect()
    assert made[1].misplaced == []


def rows(built: tactix.Builder) -> Any:
    """y = (x + x) + x, of any number of rows."""
    net = built.create_network("rows")
    x = net.add_input("x", "f32", ("n", 5))
    (t,) = net.add_layer("tactix.Add", [x, x], name="twice")
    net.mark_output(net.add_layer("tactix.Add", [t, x], name="thrice")[0], "y")
    return net


def row_feed(n: int, seed: int = 0) -> dict[str, Any]:
    return {"x": np.random.default_rng(seed).standard_normal((n, 5)).astype(np.float32)}


def replicated(plan: Any, session: Any, devices: Any = LABELS, **more: Any) -> ReplicatedEngine:
    runtime = Runtime(session=session, **more)
    runtime.devices = devices
    found: Any = runtime.load(plan)
    assert isinstance(found, ReplicatedEngine)
    return found


@pytest.fixture
def sums(two: tuple[CudaDevice, FakeApi]) -> Iterator[ReplicatedEngine]:
    built = e.builder()
    with replicated(built.build_plan(e.sums(built), e.config()), built.session) as engine:
        yield engine


@pytest.fixture
def by_rows(two: tuple[CudaDevice, FakeApi]) -> Iterator[ReplicatedEngine]:
    built = e.builder()
    cfg = e.config()
    cfg.profiles = []
    with replicated(built.build_plan(rows(built), cfg), built.session) as engine:
        yield engine


def check(engine: Any, n: int, seed: int = 0) -> None:
    f = e.feeds(n, seed)
    for name, want in e.expected(f).items():
        np.testing.assert_array_equal(engine(f)[name], want)


# -- the devices ----------------------------------------------------------------------------------


def test_the_driver_tells_whose_things_are() -> None:
    """What the other tests rest on: an address, a stream or code of one device used on another."""
    first, api = fake_device({"k": FakeKernel(1)}, devices=2)
    second = first.siblings()[1]
    assert [d.label for d in second.siblings()] == list(LABELS)
    with pytest.raises(AssertionError, match="with what is of"):
        api.cuMemAlloc(5)  # no context is current
    there = PoolAllocator(second).allocate(64)
    stream = second.create_stream()
    first.activate()
    for name, args in (
        ("cuMemFreeAsync", (there, 0)),
        ("cuMemsetD8Async", (there + 8, 0, 8, 0)),
        ("cuStreamSynchronize", (stream.native,)),
    ):
        with pytest.raises(AssertionError, match=name):
            getattr(api, name)(*args)
    second.activate()
    assert api.cuMemsetD8Async(there + 8, 0, 8, stream.native) == (0,)
    assert len(api.misplaced) == 4


def test_a_visit_leaves_the_context_that_it_found(two: tuple[CudaDevice, FakeApi]) -> None:
    (first, second), api = two[0].siblings(), two[1]
    with second.visited():
        assert api.device == 1
    assert api.device == -1
    first.activate()
    with second.visited(), first.visited():
        assert api.device == 0
    assert api.device == 0
    log = len(api.log)
    with first.visited():
        pass
    assert api.log[log:] == ["cuCtxGetCurrent"]


def test_memory_goes_back_to_its_own_device(two: tuple[CudaDevice, FakeApi]) -> None:
    first, second = two[0].siblings()
    for kind in (PoolAllocator, RecyclingAllocator):
        own = kind(first)
        other = own.on(1)
        assert own.on(0) is own
        assert other is kind(first).on(1)
        assert other.on(1) is other
        first.activate()
        address = other.allocate(100)
        assert two[1].owner(address) == 1
        x = np.arange(25, dtype=np.float32)
        second.copy_in(address, x)
        first.activate()
        other.deallocate(address)
        assert two[1].device == 0
        if kind is RecyclingAllocator:
            assert other.allocate(100) == address != own.allocate(100)
    array = DeviceArray(second, PoolAllocator(second), (3,), "f32", second.default_stream)
    first.activate()
    assert second.holds(array)
    assert not first.holds(array)
    assert not first.holds(np.zeros(3))
    assert array.__dlpack_device__() == (2, 1)
    del array
    gc.collect()
    assert two[1].device == 0


# -- loading --------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["cuda:1", "tactix.cuda@1:1"])
def test_one_device_by_its_number(two: tuple[CudaDevice, FakeApi], device: str) -> None:
    built = e.builder()
    plan = built.build_plan(e.sums(built), e.config())
    engine = Runtime(session=built.session, device=device).load(plan)
    assert engine.device is two[0].siblings()[1]
    e.check_engine(engine)
    e.check_addresses(engine, engine.device, RecyclingAllocator(engine.device))
    assert two[1].device == 1  # of the copies; runs leave what they find
    two[0].activate()
    check(engine, 4)
    assert two[1].device == 0
    engine.close()


@pytest.mark.parametrize("name", ["cuda:2", "cuda:01", "cuda:", "cuda:x"])
def test_a_device_that_is_not_here(two: tuple[CudaDevice, FakeApi], name: str) -> None:
    built = e.builder()
    plan = built.build_plan(e.sums(built), e.config())
    text = f"device '{name}' is not here. There are: cuda:0, cuda:1"
    with pytest.raises(PlanCompatibilityError, match=text):
        Runtime(session=built.session, device=name).load(plan)
    with pytest.raises(PlanCompatibilityError, match=text):
        replicated(plan, built.session, ["cuda:0", name])
    with pytest.raises(ConfigError, match="builds measure on the first device, not on cuda:1"):
        built.build_plan(e.sums(built), e.config(device="cuda:1"))


def test_names_of_devices(two: tuple[CudaDevice, FakeApi]) -> None:
    built = e.builder()
    plan = built.build_plan(e.sums(built), e.config())
    for names in ("all", "cuda:0,cuda:1", ["cuda", "cuda:1"], LABELS):
        with replicated(plan, built.session, names) as engine:
            assert [d.label for d in engine.devices] == list(LABELS)
            check(engine, 3)
    with replicated(plan, built.session, ["cuda:1"]) as engine:
        assert [d.label for d in engine.devices] == ["cuda:1"]
        check(engine, 3)
    with pytest.raises(InvalidArgument, match="a device is named twice: cuda:0, cuda:0"):
        replicated(plan, built.session, ["cuda:0", "cuda"])
    with pytest.raises(InvalidArgument, match=r"beside device 'cuda:0'. Give one of the two"):
        replicated(plan, built.session, device="cuda:0")
    for bad in ([""], [1], ["cuda:0", ""]):
        with pytest.raises(InvalidArgument, match="Give names, as"):
            replicated(plan, built.session, bad)
    with pytest.raises(PlanCompatibilityError, match="no plugin provides device 'fpga'"):
        replicated(plan, built.session, ["fpga"])


def test_a_device_of_another_kind_is_the_same_error(
    two: tuple[CudaDevice, FakeApi], monkeypatch: pytest.MonkeyPatch
) -> None:
    built = e.builder()
    plan = built.build_plan(e.sums(built), e.config())
    needs = [replace(s, artifact=replace(s.artifact, requires=("sm_90a",))) for s in plan.steps]
    plan = replace(plan, steps=tuple(needs))
    second = two[0].siblings()[1]
    monkeypatch.setitem(fake_driver.ATTRIBUTES, "COMPUTE_CAPABILITY_MAJOR", 8)
    assert "sm_90" not in second.properties().features
    monkeypatch.undo()
    monkeypatch.setattr(real, "the_device", lambda: two[0])
    with pytest.raises(PlanCompatibilityError) as one:
        Runtime(session=built.session, device="cuda:1").load(plan)
    before = len(two[1].memory)
    with pytest.raises(PlanCompatibilityError, match=r"^cuda:1: the plan cannot run here") as many:
        replicated(plan, built.session)
    assert many.value.reasons == one.value.reasons
    del one, many
    gc.collect()
    assert len(two[1].memory) == before  # nothing of the first replica is left


def test_no_memory_on_one_device(two: tuple[CudaDevice, FakeApi]) -> None:
    built = e.builder()
    plan = built.build_plan(e.sums(built), e.config())
    two[1].failing["cuMemAllocAsync", 1] = 2
    with pytest.raises(AllocationError, match=r"on cuda:1: cannot have .* bytes"):
        replicated(plan, built.session)


def test_an_allocator_of_the_first_device_alone(two: tuple[CudaDevice, FakeApi]) -> None:
    class Own:
        key, device = "own", "cuda"

        def __init__(self) -> None:
            self.inner = PoolAllocator(two[0])

        def allocate(self, size: int, alignment: int = 64, stream: int = 0) -> int:
            return self.inner.allocate(size, alignment, stream)

        def deallocate(self, address: int, stream: int = 0) -> None:
            self.inner.deallocate(address, stream)

    built = e.builder()
    plan = built.build_plan(e.sums(built), e.config())
    with pytest.raises(PluginError, match="allocator 'own' has no memory of cuda:1"):
        replicated(plan, built.session, allocator=Own())
    with replicated(plan, built.session, ["cuda:0"], allocator=Own()) as engine:
        check(engine, 4)
    key = "tactix.cuda.recycling@1"
    with replicated(plan, built.session, allocator=key) as engine:
        assert [x.allocator.key for x in engine.engines] == [key] * 2
        check(engine, 4)


def test_of_one_file_and_pickled(two: tuple[CudaDevice, FakeApi], tmp_path: Path) -> None:
    built = e.builder()
    container.save(built.build_plan(e.sums(built), e.config()), tmp_path / "plan")
    options = {"session": built.session, "on_untrusted": "allow"}
    with tactix.load(tmp_path / "plan", devices=["cuda:0", "cuda:1"], **options) as engine:
        first, second = (x.plan.blobs for x in engine.engines)
        for name, content in first.items():
            assert np.shares_memory(*(np.frombuffer(b, np.uint8) for b in (content, second[name])))
        assert "sums" in repr(engine)
        assert engine.get_tensor_mode("x") == "input"
        made, (file,) = engine.__reduce__()
        assert file.options["devices"] == LABELS
        pickle.loads(pickle.dumps(file))
        engine.save(tmp_path / "again")
        assert engine.inspect()
    with pytest.raises(EngineClosed, match=r"tactix.load"):
        pickle.dumps(engine)
    assert made is not None


# -- running --------------------------------------------------------------------------------------


def test_shapes_one_after_the_other(sums: ReplicatedEngine) -> None:
    e.check_engine(sums)
    f = e.feeds(6)
    out = {name: np.zeros_like(y) for name, y in e.expected(f).items()}
    got = sums.run(f, out)
    for name, want in e.expected(f).items():
        assert got[name] is out[name]
        np.testing.assert_array_equal(out[name], want)
    assert [r.ended for r in sums.replicas] == [7, 0]  # alone, a caller stays where it was
    assert sums.device_memory_size({k: v.shape for k, v in f.items()}) > 0


def test_threads_use_all_devices(sums: ReplicatedEngine, two: tuple[CudaDevice, FakeApi]) -> None:
    count, together = 4, threading.Barrier(4)
    original = two[1]._cuGraphLaunch

    def slow(*args: Any) -> Any:
        together.wait(30)
        return original(*args)

    two[1]._cuGraphLaunch = slow  # type: ignore[method-assign]
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(lambda i: check(sums, 3 + i, seed=i), range(count)))
    assert all(r.ended and not r.running for r in sums.replicas)
    assert sum(r.ended for r in sums.replicas) == 2 * count


def test_requests_use_all_devices_in_order(
    sums: ReplicatedEngine, two: tuple[CudaDevice, FakeApi]
) -> None:
    sums.set_pool(contexts=1)
    together, original = threading.Barrier(2), two[1]._cuGraphLaunch

    def paired(*args: Any) -> Any:
        together.wait(30)  # so that one device alone would never end
        return original(*args)

    async def ask() -> list[Any]:
        return await asyncio.gather(
            *(sums.run_async(e.feeds(4, i)) for i in range(40)),
        )

    asyncio.run(ask_once(sums))
    two[1]._cuGraphLaunch = paired  # type: ignore[method-assign]
    for i, got in enumerate(asyncio.run(ask())):
        for name, want in e.expected(e.feeds(4, i)).items():
            np.testing.assert_array_equal(got[name], want)
    stats = sums.stats()
    assert (stats.answered, stats.contexts, stats.queued, stats.running) == (41, 2, 0, 0)
    assert {r.ended for r in sums.replicas} == {20, 21}
    assert sums.pool_size == 2


async def ask_once(engine: ReplicatedEngine) -> None:
    await engine.run_async(e.feeds(4))


def test_warm_up_binds_on_every_device(
    sums: ReplicatedEngine, two: tuple[CudaDevice, FakeApi]
) -> None:
    sums.warm_up({"x": (301,), "y": (301,), "a": (9, 7), "b": (9, 7)})
    made = two[1].log.count("cuGraphInstantiate")
    check(sums, 9)
    asyncio.run(sums.run_async(e.feeds(9)))
    assert two[1].log.count("cuGraphInstantiate") == made


def test_arrays_of_a_device_run_there(
    sums: ReplicatedEngine, two: tuple[CudaDevice, FakeApi]
) -> None:
    f = e.feeds(5)
    for home in (1, 0):
        device = two[0].siblings()[home]
        memory = PoolAllocator(device)
        there = {}
        for name, x in f.items():
            there[name] = DeviceArray(device, memory, x.shape, "f32", device.default_stream)
            device.copy_in(there[name].address, x)
        before = [r.ended for r in sums.replicas]
        for got in (sums(there), sums.run(there), asyncio.run(sums.run_async(there))):
            for name, want in e.expected(f).items():
                assert got[name].__dlpack_device__() == (2, home)
                np.testing.assert_array_equal(got[name].numpy(), want)
        after = [r.ended for r in sums.replicas]
        assert [b - a for a, b in zip(before, after, strict=True)] == [
            3 * (i == home) for i in (0, 1)
        ]
        del got, there


def test_threads_wait_for_contexts(sums: ReplicatedEngine) -> None:
    """Many threads and requests at once, for two contexts in all, which come back whole."""
    sums.set_pool(contexts=1)

    async def ask() -> None:
        await asyncio.gather(*(sums.run_async(e.feeds(2, i), wait=True) for i in range(60)))

    with ThreadPoolExecutor(9) as pool:
        asked = pool.submit(lambda: asyncio.run(ask()))
        list(pool.map(lambda i: check(sums, 3, seed=i), range(60)))
        asked.result()
    assert sums.stats().contexts == 2
    assert sum(r.ended for r in sums.replicas) == 60 + 2 * 60
    with pytest.raises(ShapeError):
        sums.run(e.feeds(4) | {"x": np.zeros(3, np.float32)})
    check(sums, 3)


def test_taken_by_another_device_keeps_the_current_one(
    sums: ReplicatedEngine, two: tuple[CudaDevice, FakeApi]
) -> None:
    first, second = two[0].siblings()
    array = DeviceArray(second, PoolAllocator(second), (3,), "f32", second.default_stream)
    first.activate()
    array.numpy()
    array.__dlpack__(stream=second.create_stream().handle)
    first.activate()
    array.__dlpack__()
    assert two[1].device == 0


def test_contexts_of_ones_own(sums: ReplicatedEngine) -> None:
    made = [sums.create_execution_context() for _ in range(4)]
    assert [c._program.device.label for c in made] == [*LABELS, *LABELS]
    assert sums.create_execution_context("cuda:1")._program.device.label == "cuda:1"
    with pytest.raises(InvalidArgument, match=r"no replica is on 'cuda:2'.*cuda:0, cuda:1"):
        sums.create_execution_context("cuda:2")
    f = e.feeds(3)
    for c in made:
        for name, want in e.expected(f).items():
            np.testing.assert_array_equal(c.run(f)[name], want)


# -- one batch on both ----------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 64, 101])
def test_a_batch_in_parts(by_rows: ReplicatedEngine, n: int) -> None:
    f = row_feed(n)
    got = by_rows.run(f, split=True)
    np.testing.assert_array_equal(got["y"], f["x"] + f["x"] + f["x"])
    assert got["y"].shape == (n, 5)
    out = {"y": np.zeros((n, 5), np.float32)}
    assert by_rows.run(f, out, split=True)["y"] is out["y"]
    np.testing.assert_array_equal(out["y"], got["y"])
    if n > 1:
        assert [r.ended for r in by_rows.replicas] == [2, 2]


def test_parts_keep_to_the_profile(two: tuple[CudaDevice, FakeApi]) -> None:
    built = e.builder()
    cfg = e.config()
    cfg.profiles = []
    profile = tactix.OptimizationProfile()
    profile.set_shape("x", (4, 5), (8, 5), (16, 5))
    cfg.add_optimization_profile(profile)
    with replicated(built.build_plan(rows(built), cfg), built.session) as engine:
        for n, parts in ((4, 1), (7, 1), (8, 2), (9, 2), (32, 2), (33, 3), (40, 3)):
            before = sum(r.ended for r in engine.replicas)
            f = row_feed(n)
            np.testing.assert_array_equal(engine.run(f, split=True)["y"], 3 * f["x"])
            assert sum(r.ended for r in engine.replicas) == before + parts
        with pytest.raises(ShapeError):
            engine.run(row_feed(3), split=True)


def test_what_cannot_be_parted(sums: ReplicatedEngine, by_rows: ReplicatedEngine) -> None:
    with pytest.raises(InvalidArgument, match=r"a batch cannot be parted: .*no open first axis"):
        sums.run(e.feeds(4), split=True)
    with pytest.raises(ShapeError, match="its array is"):
        by_rows.run(row_feed(4), {"y": np.zeros((5, 5), np.float32)}, split=True)
    x = row_feed(4)["x"]
    with pytest.raises(InvalidArgument, match="'x'"):
        by_rows.run({"x": x}, {"y": x}, split=True)
    with pytest.raises(InvalidArgument, match="by input name"):
        by_rows.run([x], split=True)  # type: ignore[arg-type]
    strided = np.asfortranarray(row_feed(9)["x"])
    np.testing.assert_array_equal(by_rows.run({"x": strided}, split=True)["y"], 3 * strided)


# -- failures, ends -------------------------------------------------------------------------------


def test_an_error_names_its_device(sums: ReplicatedEngine, two: tuple[CudaDevice, FakeApi]) -> None:
    check(sums, 4)
    two[1].failing["cuGraphLaunch", 0] = 1
    with pytest.raises(ExecutionError, match=r"on cuda:0|^cuda:0: cuGraphLaunch failed"):
        check(sums, 4)
    two[1].failing.clear()
    check(sums, 4)
    with pytest.raises(ShapeError) as wrong:
        sums(e.feeds(4) | {"x": np.zeros(3, np.float32)})
    assert "cuda:" not in str(wrong.value)


def test_a_device_that_is_lost_gets_no_more_calls(
    sums: ReplicatedEngine, two: tuple[CudaDevice, FakeApi]
) -> None:
    sums.set_pool(contexts=1)
    check(sums, 4)
    two[1].failing["cuGraphLaunch", 0] = 700
    with pytest.raises(DeviceLost, match=r"cuda:0: .*CUDA_ERROR_ILLEGAL_ADDRESS.*is lost"):
        check(sums, 4)
    states = sums.replicas
    assert "ILLEGAL" in states[0].lost
    assert not states[1].lost
    for _ in range(3):
        check(sums, 4)

    async def ask() -> list[Any]:
        return await asyncio.gather(*(sums.run_async(e.feeds(4)) for _ in range(6)))

    assert len(asyncio.run(ask())) == 6
    assert sums.create_execution_context()._program.device.label == "cuda:1"
    two[1].failing["cuGraphLaunch", 1] = 700
    with pytest.raises(DeviceLost, match="cuda:1"):
        check(sums, 4)
    with pytest.raises(DeviceLost, match="cuda:"):
        check(sums, 4)
    two[1].failing.clear()


def test_a_request_loses_a_device(sums: ReplicatedEngine, two: tuple[CudaDevice, FakeApi]) -> None:
    sums.set_pool(contexts=1)
    two[1].failing["cuGraphLaunch", 0] = 719

    async def ask() -> list[Any]:
        given = (sums.run_async(e.feeds(4)) for _ in range(8))
        return await asyncio.gather(*given, return_exceptions=True)

    got = asyncio.run(ask())
    failed = [x for x in got if isinstance(x, Exception)]
    assert [type(x).__name__ for x in failed] == ["CudaDeviceLost"]
    assert "cuda:0" in str(failed[0])
    two[1].failing.clear()


def test_closing_gives_everything_back(two: tuple[CudaDevice, FakeApi]) -> None:
    built = e.builder()
    plan = built.build_plan(e.sums(built), e.config())
    gc.collect()
    before = len(two[1].memory)
    engine = replicated(plan, built.session)
    check(engine, 4)
    asyncio.run(engine.run_async(e.feeds(4)))
    context = engine.create_execution_context()
    engine.close()
    engine.close()
    gc.collect()
    assert len(two[1].memory) == before
    for call in (
        lambda: engine(e.feeds(4)),
        lambda: engine.run(e.feeds(4)),
        lambda: asyncio.run(engine.run_async(e.feeds(4))),
        lambda: context.run(e.feeds(4)),
        lambda: engine.plan.steps,
    ):
        with pytest.raises(EngineClosed, match="the engine is closed"):
            call()


def test_what_is_let_go_of_ends(two: tuple[CudaDevice, FakeApi]) -> None:
    built = e.builder()
    plan = built.build_plan(e.sums(built), e.config())
    gc.collect()
    before = len(two[1].memory)
    engine = replicated(plan, built.session)
    asyncio.run(engine.run_async(e.feeds(4)))
    check(engine, 3)
    threads = [t for t in threading.enumerate() if t.name.startswith("tactix sums")]
    assert len(threads) == 4
    del engine
    gc.collect()
    for thread in threads:
        thread.join(60)
    gc.collect()
    assert len(two[1].memory) == before


def test_after_a_fork_there_is_another_pool(sums: ReplicatedEngine) -> None:
    asyncio.run(sums.run_async(e.feeds(4)))
    pool = sums._pool
    sums.after_fork()
    asyncio.run(sums.run_async(e.feeds(4)))
    assert sums._pool is not pool
    assert sums.stats().answered == 1
    assert pool is not None
    pool.close(lambda: EngineClosed("over"))
