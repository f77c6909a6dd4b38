"""What engines and contexts take from the driver goes back when they end: counted call by call."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections import Counter
from typing import Any

import cuda_engine as e
import numpy as np
import pytest
from fake_driver import FakeApi
from test_arrays import Shared
from test_engine import here as _here

from tactix.base.errors import EngineClosed, ExecutionError, ShapeError
from tactix.run.runtime import Runtime
from tactix_cuda.device import CudaDevice
from tactix_cuda.memory import RecyclingAllocator
from tactix_cuda.nvrtc import why_missing

pytestmark = pytest.mark.skipif(bool(why_missing()), reason=why_missing())
here = _here

PAIRS = {
    "cuModuleLoadData": "cuModuleUnload", "cuMemAllocAsync": "cuMemFreeAsync", "cuMemHostAlloc": "cuMemFreeHost",
    "cuGraphInstantiate": "cuGraphExecDestroy", "cuGraphCreate": "cuGraphDestroy", "cuEventCreate": "cuEventDestroy",
    "cuStreamCreate": "cuStreamDestroy",
}  # fmt: skip


def open_of(api: FakeApi) -> dict[str, int]:
    """How many of each the driver has made and not taken back."""
    gc.collect()
    calls = Counter(api.log)
    return {made: calls[made] - calls[back] for made, back in PAIRS.items()}


@pytest.fixture
def plan(here: tuple[CudaDevice, FakeApi]) -> tuple[Any, Any]:
    built = e.builder()
    return built.session, built.build_plan(e.sums(built), e.config())


def use(engine: Any, n: int) -> None:
    """By host arrays, by arrays of the device, and by addresses."""
    context, f = engine.create_execution_context(), e.feeds(n)
    want = e.expected(f)
    for got in (context.run(f), context.run({k: Shared(x) for k, x in f.items()})):
        for name, y in want.items():
            np.testing.assert_array_equal(np.asarray(got[name]), y)
    out = {name: np.zeros_like(y) for name, y in want.items()}
    for name, x in (f | out).items():
        context.set_tensor_address(name, Shared(x))
    assert context.execute_async_v3(0)
    for name, y in want.items():
        np.testing.assert_array_equal(out[name], y)
    context.close()


def test_engines_leave_nothing(here: tuple[CudaDevice, FakeApi], plan: tuple[Any, Any]) -> None:
    before = open_of(here[1])
    for n in (3, 50, 3):
        engine = Runtime(session=plan[0]).load(plan[1])
        use(engine, n)
        e.check_engine(engine)
        assert open_of(here[1]) != before
        del engine
        assert open_of(here[1]) == before
    assert not here[1].memory


def test_an_engine_that_is_closed_but_kept(
    here: tuple[CudaDevice, FakeApi], plan: tuple[Any, Any]
) -> None:
    """After runs of its pool, and into arrays of the host and from arrays of the device."""
    api, f = here[1], e.feeds(4)
    before, want = open_of(api), e.expected(f)
    engine = Runtime(session=plan[0]).load(plan[1])
    assert engine.pool_size == 2
    got = asyncio.run(engine.run_async(f))
    out = {name: np.zeros_like(y) for name, y in want.items()}
    engine.run(f, out)
    for name, y in want.items():
        np.testing.assert_array_equal(np.asarray(got[name]), y)
        np.testing.assert_array_equal(out[name], y)
    out = {name: np.zeros_like(y) for name, y in want.items()}
    engine.run({k: Shared(x) for k, x in f.items()}, out)
    assert all(np.array_equal(out[name], y) for name, y in want.items())
    name, y = next(iter(want.items()))
    with pytest.raises(ShapeError, match="its array is"):
        engine.run(f, {name: np.zeros((*y.shape, 1), y.dtype)})
    engine.close()
    assert open_of(api) == before
    assert not api.memory
    with pytest.raises(EngineClosed):
        engine(f)


def test_contexts_leave_nothing(here: tuple[CudaDevice, FakeApi], plan: tuple[Any, Any]) -> None:
    engine, api = Runtime(session=plan[0]).load(plan[1]), here[1]
    use(engine, 5)
    before, memory = open_of(api), len(api.memory)
    loaded = api.log.count("cuModuleLoadData")
    for i in range(200):
        use(engine, 1 + i % 3)
    assert open_of(api) == before
    assert len(api.memory) == memory
    assert api.log.count("cuModuleLoadData") == loaded  # the engine keeps its kernels


def test_a_context_that_is_closed_but_kept(
    here: tuple[CudaDevice, FakeApi], plan: tuple[Any, Any]
) -> None:
    engine, api = Runtime(session=plan[0]).load(plan[1]), here[1]
    use(engine, 5)
    before = open_of(api)
    context = engine.create_execution_context()
    context.run(e.feeds(4))
    assert open_of(api) != before
    context.close()
    assert open_of(api) == before
    for given in (e.feeds(4), {k: Shared(x) for k, x in e.feeds(4).items()}):
        with pytest.raises(ExecutionError, match="the context is closed"):
            context.run(given)


def test_results_outlive_their_engine(
    here: tuple[CudaDevice, FakeApi], plan: tuple[Any, Any]
) -> None:
    engine, api = Runtime(session=plan[0]).load(plan[1]), here[1]
    before, f = open_of(api)["cuMemAllocAsync"], e.feeds(6)
    got = engine({k: Shared(x) for k, x in f.items()})
    gone = weakref.ref(engine)
    del engine
    gc.collect()
    assert gone() is None
    np.testing.assert_array_equal(got["v"].numpy(), e.expected(f)["v"])
    assert open_of(api)["cuMemAllocAsync"] == before + 2 - len(plan[1].blobs)
    del got
    assert not api.memory


def test_contexts_end_with_their_last_reference(
    here: tuple[CudaDevice, FakeApi], plan: tuple[Any, Any]
) -> None:
    """Not when the garbage collector looks, which knows nothing of the device's memory."""
    engine, f = Runtime(session=plan[0]).load(plan[1]), e.feeds(6)
    out = {name: np.zeros_like(y) for name, y in e.expected(f).items()}
    gc.collect()
    gc.disable()
    try:
        context = engine.create_execution_context()
        context.run(f)
        for name, x in (f | out).items():
            context.set_tensor_address(name, Shared(x))
        context.execute_async_v3(0)
        gone = weakref.ref(context)
        del context
        assert gone() is None
    finally:
        gc.enable()


def test_arrays_that_were_given_are_let_go(
    here: tuple[CudaDevice, FakeApi], plan: tuple[Any, Any]
) -> None:
    engine = Runtime(session=plan[0]).load(plan[1])
    given = {k: Shared(x) for k, x in e.feeds(6).items()}
    references = [weakref.ref(x) for x in given.values()]
    engine(given)
    given.clear()
    gc.collect()
    assert [r() for r in references] == [None] * 4


@pytest.mark.parametrize("allocator", ["tactix.cuda.pool@1", RecyclingAllocator.key])
def test_threads_that_end(
    here: tuple[CudaDevice, FakeApi], plan: tuple[Any, Any], allocator: str
) -> None:
    """Each has a context of its own."""
    engine, api = Runtime(session=plan[0], allocator=allocator).load(plan[1]), here[1]
    before, failed = open_of(api), []

    def work() -> None:
        try:
            e.check_engine(engine)
        except BaseException as error:
            failed.append(error)

    for _ in range(5):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert not failed
    after = open_of(api)
    assert {k: after[k] for k in after if k != "cuModuleLoadData"} == {
        k: before[k] for k in before if k != "cuModuleLoadData"
    }


def test_weights_travel_together(
    here: tuple[CudaDevice, FakeApi], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tactix_cuda import pinned

    monkeypatch.setattr(pinned, "CHUNK", 1000)
    device, api = here
    rng = np.random.default_rng(4)
    memory = np.zeros(9000, np.uint8)
    start = memory.ctypes.data
    for spans in (
        [(0, 10), (64, 900), (1024, 3000), (4032, 1), (8000, 1000)],
        [(5, 7)],
        [(0, 1000), (1000, 1000)],
    ):
        pairs = [(start + at, rng.integers(0, 255, n, np.uint8)) for at, n in spans]
        del api.log[:]
        device.copy_all(pairs)
        for (at, n), (_, x) in zip(spans, pairs, strict=True):
            np.testing.assert_array_equal(memory[at : at + n], x)
        moved = sum(n for _, n in spans)
        assert moved // 1000 <= api.log.count("cuMemcpyHtoDAsync") <= moved // 1000 + 2
    device.copy_all([])
    assert not api.memory
