"""Live refit over a driver that does what is queued later: what is waited for, and what goes where."""

from __future__ import annotations

import gc
import random
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cuda_engine as e
import numpy as np
import pytest
from lazy_driver import LazyApi
from refit_threads import inferring, one_of
from test_engine import combine
from test_lifetime import open_of

from tactix import BuilderFlag
from tactix.base.errors import AllocationError, ExecutionError, InvalidArgument, PlanFormatError
from tactix.plan import container
from tactix.run.runtime import Runtime
from tactix_codegen.compiling import symbol
from tactix_cuda import device as real
from tactix_cuda.device import CudaDevice
from tactix_cuda.driver import Driver
from tactix_cuda.nvrtc import why_missing
from tactix_refit.refitter import Refitter

pytestmark = pytest.mark.skipif(bool(why_missing()), reason=why_missing())

Here = tuple[CudaDevice, LazyApi]
N = 301
NUMBERS = {"v": 2.0, "w": 30.0}


class Late(random.Random):
    """Nothing is done before somebody waits, and then the youngest stream's work comes first."""

    def choice(self, options: Any) -> Any:
        return 0 if options == (0, 0, 1, 3) else max(options)


@pytest.fixture(params=[Late(0), random.Random(1), random.Random(2)], ids=["late", "1", "2"])
def here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Here]:
    api = LazyApi(
        {symbol(e.RIGHT.code): combine(1), symbol(e.WRONG.code): combine(-1)}, order=request.param
    )
    device = CudaDevice(driver=Driver(api))
    monkeypatch.setattr(real, "the_device", lambda: device)
    yield device, api
    assert api.torn == []


def planned(*flags: BuilderFlag) -> tuple[Any, Any]:
    """A session, and the plan of ``((x + v) + w) + v``: one constant is read by two steps."""
    built = e.builder()
    net = built.create_network("sums")
    t = net.add_input("x", "f32", (N,))
    v, w = (net.add_constant(np.full(N, k, np.float32), name) for name, k in NUMBERS.items())
    for k, c in enumerate((v, w, v)):
        (t,) = net.add_layer("tactix.Add", [t, c], name=f"sum{k}")
    net.mark_output(t, "y")
    return built.session, built.build_plan(net, e.config(flags={BuilderFlag.REFIT, *flags}))


def engine_of(*flags: BuilderFlag) -> Any:
    session, plan = planned(*flags)
    return Runtime(session=session).load(plan)


def give(refitter: Refitter, **numbers: float) -> None:
    for name, k in numbers.items():
        refitter.set_named_weights(name, np.full(N, k, np.float32))
    refitter.refit()


X = np.arange(N, dtype=np.float32)


def test_contexts_that_exist_and_new_ones(here: Here) -> None:
    engine = engine_of()
    refitter, context = Refitter(engine), engine.create_execution_context()
    np.testing.assert_array_equal(context.run({"x": X})["y"], X + 34)
    for v, w in ((1, 5), (100, 7), (0.5, 0.25)):
        give(refitter, v=v, w=w)
        for c in (context, engine.create_execution_context()):
            np.testing.assert_array_equal(c.run({"x": X})["y"], X + 2 * v + w)
    give(refitter, w=9)
    np.testing.assert_array_equal(engine(X), X + 10)


def test_nothing_is_bound_again(here: Here) -> None:
    engine, (_device, api) = engine_of(), here
    refitter, context = Refitter(engine), engine.create_execution_context()
    context.persistent_cache_limit = 1 << 20
    context.run({"x": X})
    before, places = Counter(api.log), list(engine._program.addresses)
    give(refitter, v=1, w=5)
    np.testing.assert_array_equal(context.run({"x": X})["y"], X + 7)
    more = Counter(api.log) - before
    assert engine._program.addresses == places
    assert {k for k in more if "Graph" in k} == {"cuGraphLaunch"}


def test_what_is_queued_sees_the_old_weights(here: Here) -> None:
    """Runs of two contexts wait in streams that nobody waits for."""
    engine, (device, _api) = engine_of(), here
    refitter, room = Refitter(engine), engine._program.allocator
    x = room.allocate(4 * N)
    device.copy_in(x, X)
    places = []
    for _ in range(2):
        context, stream, y = (
            engine.create_execution_context(),
            device.create_stream(),
            room.allocate(4 * N),
        )
        context.set_tensor_address("x", x)
        context.set_tensor_address("y", y)
        context.execute_async_v3(stream)
        places.append((context, stream, y))
    give(refitter, v=1, w=5)
    got = np.zeros(N, np.float32)
    for _, _, y in places:
        device.copy_out(got, y)
        np.testing.assert_array_equal(got, X + 34)
    for context, stream, y in places:
        context.execute_async_v3(stream)
        stream.synchronize()
        device.copy_out(got, y)
        np.testing.assert_array_equal(got, X + 7)


def test_the_order_of_calls(here: Here) -> None:
    engine, (_device, api) = engine_of(), here
    refitter = Refitter(engine)
    engine(X)
    api.log.clear()
    give(refitter, v=1, w=5)
    steps = [
        c for c in api.log if c in ("cuMemcpyHtoDAsync", "cuMemcpyDtoDAsync", "cuCtxSynchronize")
    ]
    assert steps[:5] == ["cuMemcpyHtoDAsync"] * 2 + ["cuCtxSynchronize"] + ["cuMemcpyDtoDAsync"] * 2
    last = len(api.log) - 1 - api.log[::-1].index("cuMemcpyDtoDAsync")
    assert "cuStreamSynchronize" in api.log[last:]


def test_a_part(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what changed is sent, and needs memory."""
    engine, (_device, api) = engine_of(), here
    refitter, sent, taken = Refitter(engine), list[int](), list[int]()
    copy, allocate = api._cuMemcpyHtoDAsync, engine._program.allocator.allocate
    monkeypatch.setattr(api, "_cuMemcpyHtoDAsync", lambda *a: (sent.append(a[2]), copy(*a))[1])
    monkeypatch.setattr(
        engine._program.allocator, "allocate", lambda n, *a: (taken.append(n), allocate(n, *a))[1]
    )
    give(refitter, w=5)
    assert sent == [4 * N]
    assert len(taken) == 1
    assert 4 * N <= taken[0] < 4 * N + 64
    np.testing.assert_array_equal(engine(X), X + 9)


def test_stripped_plans(here: Here, tmp_path: Path) -> None:
    session, plan = planned(BuilderFlag.STRIP_PLAN)
    container.save(plan, tmp_path / "plan")
    engine = Runtime(session=session, on_untrusted="allow").deserialize(tmp_path / "plan")
    with pytest.raises(ExecutionError, match="2 weights are missing"):
        engine(X)
    assert engine.inspect()["memory"]["weights"] == 0
    refitter = Refitter(engine)
    give(refitter, v=1, w=5)
    np.testing.assert_array_equal(engine(X), X + 7)
    assert engine.inspect()["memory"]["weights"] >= 8 * N
    context, places = engine.create_execution_context(), list(engine._program.addresses)
    give(refitter, v=2)
    assert engine._program.addresses == places
    del refitter, engine
    gc.collect()
    np.testing.assert_array_equal(context.run({"x": X})["y"], X + 9)  # which keeps the weights


def test_an_error_changes_nothing(here: Here) -> None:
    engine, (_device, api) = engine_of(), here
    refitter = Refitter(engine)
    for call in ("cuMemHostAlloc", "cuMemAllocAsync"):
        np.testing.assert_array_equal(engine(X), X + 34)
        api.fail[call] = 2
        with pytest.raises(AllocationError):
            give(refitter, v=1, w=5)
        del api.fail[call]
    run = refitter._replay.run

    def half(blobs: list[str], weights: Any, out: Any, threads: int, made: Any) -> None:
        run(blobs[:1], weights, out, threads, made)
        raise PlanFormatError("the second has no recipe")

    refitter._replay.run = half  # type: ignore[method-assign]
    with pytest.raises(PlanFormatError, match="the second"):
        give(refitter, v=1, w=5)
    assert not any(
        api._queues.values()
    )  # what was sent has arrived, so that its memory can be filled again
    np.testing.assert_array_equal(engine(X), X + 34)
    refitter._replay.run = run  # type: ignore[method-assign]
    give(refitter, v=1, w=5)
    np.testing.assert_array_equal(engine(X), X + 7)


def test_what_it_takes_goes_back(here: Here) -> None:
    _device, api = here
    session, plan = planned()
    start = open_of(api)
    engine = Runtime(session=session).load(plan)
    context = engine.create_execution_context()
    context.run({"x": X})
    refitter, before = Refitter(engine), open_of(api)
    for k in range(4):
        give(refitter, v=k, w=5)
        more = {name: n - before[name] for name, n in open_of(api).items() if n != before[name]}
        assert more == {
            "cuMemHostAlloc": min(k, 1) + 1
        }  # two pieces of host memory, and no more of the device's
    held = engine.plan
    del engine, refitter, context
    gc.collect()
    assert {np.frombuffer(held.blobs[b.blob], np.float32)[0] for b in held.buffers if b.blob} == {
        3.0,
        5.0,
    }
    del held
    assert open_of(api) == start


def test_threads_that_infer(here: Here) -> None:
    engine = engine_of()
    refitter = Refitter(engine)
    lock, call = threading.RLock(), here[0].driver.call
    here[0].driver.call = lambda *a: _locked(lock, call, a)  # type: ignore[method-assign]  # the driver is one thread's
    with inferring(one_of(engine, X, [34.0, 7.0], more=X)):
        for i in range(30):
            give(refitter, **({"v": 1, "w": 5} if i % 2 == 0 else NUMBERS))
            np.testing.assert_array_equal(engine(X), X + (7 if i % 2 == 0 else 34))


def _locked(lock: Any, call: Any, given: Any) -> Any:
    with lock:
        return call(*given)


def test_a_device_that_cannot(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of()
    monkeypatch.delattr(CudaDevice, "weight_update")
    with pytest.raises(InvalidArgument, match="memory of the device's own cannot be refitted"):
        give(Refitter(engine), v=1, w=5)
