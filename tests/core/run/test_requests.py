"""Engines as services use them: run with names and arrays to write into, run_async, close, pickle,
fork.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tactix
from tactix.base.dims import sym
from tactix.base.errors import (
    AllocationError,
    DeadlineExceeded,
    DTypeError,
    EngineClosed,
    ExecutionError,
    InvalidArgument,
    PlanFormatError,
    QueueFull,
    ShapeError,
)
from tactix.base.tensor import LINEAR, TensorSpec
from tactix.contracts.launcher import Operand
from tactix.contracts.layer import Layer, NoAttrs
from tactix.plan.schema import Buffer, Plan, Profile, TensorIO
from tactix.run import async_requests, run_times
from tactix.run.engine import Engine
from tactix.run.request_stats import LatencyHistogram
from tactix.run.run_times import RunTimes
from tactix.run.runtime import Runtime

Feeds = Callable[..., dict[str, Any]]
F32 = tactix.DType.FP32


class Gate(Layer):
    """Twice its input; waits until it is ``open``. ``came`` counts runs that have begun, in
    ``threads``.
    """

    key = "test.Gate@1"

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self.came = threading.Semaphore(0)
        self.threads: list[int] = []

    def reference(self, attrs: Any, *inputs: Any) -> tuple[Any, ...]:
        self.threads.append(threading.get_ident())
        self.came.release()
        assert self.open.wait(30)
        if inputs[0].size and inputs[0].flat[0] < 0:
            raise ZeroDivisionError("on purpose")
        return (inputs[0] * np.float32(2),)


def gate_plan(sample: Any, gate: Gate) -> Plan:
    x = TensorSpec(F32, (sym("batch"), 3))
    reads, writes = [Operand(0, x, LINEAR)], [Operand(1, x, LINEAR)]
    return Plan(
        name="gate",
        inputs=(TensorIO("x", 0, F32, x.shape),),
        outputs=(TensorIO("y", 1, F32, x.shape),),
        profiles=(Profile("default", {"batch": (0, 2, 64)}),),
        buffers=(
            Buffer("input", "x", F32, x.shape, LINEAR, x.nbytes()),
            Buffer("output", "y", F32, x.shape, LINEAR, x.nbytes()),
        ),
        steps=(sample.step("gate", gate, NoAttrs(), reads, writes),),
        device={"kind": "cpu"},
    )


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open.set()


@pytest.fixture
def gated(sample: Any, gate: Gate) -> Iterator[Engine]:
    session = sample.session(layers={gate.key: gate})
    with Runtime(session=session, max_threads=1).load(gate_plan(sample, gate)) as engine:
        yield engine
        gate.open.set()


@pytest.fixture
def engine(sample: Any, session: Any) -> Iterator[Engine]:
    with Runtime(session=session).load(sample.plan()) as engine:
        yield engine


def x_of(value: float, rows: int = 1) -> dict[str, Any]:
    return {"x": np.full((rows, 3), value, np.float32)}


def in_loop(work: Coroutine[Any, Any, Any]) -> Any:
    async def within_a_minute() -> Any:
        return await asyncio.wait_for(work, 60)

    return asyncio.run(within_a_minute())


def begun(gate: Gate) -> None:
    """Wait until a run is in the gate."""
    assert gate.came.acquire(timeout=30)


async def async_begun(gate: Gate) -> None:
    await asyncio.to_thread(begun, gate)


# -- run ------------------------------------------------------------------------------------------


def test_run_gives_outputs_by_name(engine: Engine, feeds: Feeds) -> None:
    f = feeds(3)
    called, run = engine(f), engine.run(f)
    assert list(run) == ["y", "h"]
    assert all(np.array_equal(called[k], run[k]) for k in run)
    listed = engine.run({"x": f["x"].tolist(), "bias": f["bias"].tolist()})
    assert np.array_equal(listed["y"], run["y"])


def test_run_writes_into_arrays(engine: Engine, feeds: Feeds) -> None:
    f = feeds(3)
    expected = engine(f)
    for names in (["y"], ["h"], ["h", "y"], []):
        out = {k: np.full((3, 20), np.nan, np.float32) for k in names}
        got = engine.run(f, out)
        assert list(got) == ["y", "h"]
        assert all(got[k] is out[k] for k in out)
        assert all(np.array_equal(got[k], expected[k]) for k in got)


def _read_only() -> Any:
    y = np.empty((3, 20), np.float32)
    y.flags.writeable = False
    return y


def _misaligned() -> Any:
    return np.frombuffer(bytearray(3 * 20 * 4 + 1), np.float32, 60, 1).reshape(3, 20)


@pytest.mark.parametrize(
    ("made", "error", "text"),
    [
        (lambda: np.empty((3, 20), np.float64), DTypeError, "'y' is f32, got float64"),
        (lambda: np.empty((4, 20), np.float32), ShapeError, r"'y' is \(3, 20\)"),
        (lambda: np.empty((20, 3), np.float32).T, InvalidArgument, "is not contiguous"),
        (_read_only, InvalidArgument, "cannot be written"),
        (_misaligned, InvalidArgument, "is not aligned"),
        (lambda: [[0.0] * 20] * 3, InvalidArgument, "is a list"),
    ],
)
def test_arrays_that_cannot_be_written_into(
    engine: Engine, feeds: Feeds, made: Callable[[], Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        engine.run(feeds(3), {"y": made()})


def test_arrays_of_wrong_names_and_in_the_same_memory(engine: Engine, feeds: Feeds) -> None:
    y = np.empty((3, 20), np.float32)
    with pytest.raises(InvalidArgument, match=r"no output is named 'z'.*y, h"):
        engine.run(feeds(3), {"z": y})
    with pytest.raises(InvalidArgument, match=r"'[hy]' and '[hy]' lie in the same memory"):
        engine.run(feeds(3), {"y": y, "h": y})
    both = np.zeros(3 * 20 + 3, np.float32)
    f = {**feeds(3), "bias": both[58:61]}
    with pytest.raises(InvalidArgument, match="output 'y' lies in the memory of input 'bias'"):
        engine.run(f, {"y": both[:60].reshape(3, 20)})
    with pytest.raises(InvalidArgument, match="out is a list"):
        engine.run(feeds(3), [y])  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="inputs are a list"):
        engine.run([y])  # type: ignore[arg-type]


# -- run_async ------------------------------------------------------------------------------------


def test_async_runs_are_those_of_calls(engine: Engine, feeds: Feeds) -> None:
    async def several() -> list[dict[str, Any]]:
        asked = [engine.run_async(feeds(n % 5 + 1, n), wait=True) for n in range(40)]
        return await asyncio.gather(*asked)

    for n, got in enumerate(in_loop(several())):
        expected = engine(feeds(n % 5 + 1, n))
        assert all(np.array_equal(got[k], expected[k]) for k in expected)
    stats = engine.stats()
    assert (stats.requests, stats.answered, stats.queued) == (40, 40, 0)
    assert 0 < stats.latency_p50 <= stats.latency_p99 <= stats.latency_max


def test_outputs_that_are_asked_for(engine: Engine, feeds: Feeds) -> None:
    expected, names = engine(feeds(3)), [io.name for io in engine.outputs]
    for asked in ([], names[:1], names):
        for _ in range(3):  # in a thread, and in the loop's
            got = in_loop(engine.run_async(feeds(3), outputs=asked))
            assert list(got) == asked
            assert all(np.array_equal(got[name], expected[name]) for name in asked)
    with pytest.raises(InvalidArgument, match=f"no output is named 'z'.*{names[0]}"):
        in_loop(engine.run_async(feeds(3), outputs=["z"]))
    for wrong in (names[0], 3):
        with pytest.raises(InvalidArgument, match="Give several names"):
            in_loop(engine.run_async(feeds(3), outputs=wrong))  # type: ignore[arg-type]


def test_a_full_queue_refuses_or_is_waited_for(gated: Engine, gate: Gate) -> None:
    gated.set_pool(contexts=1, max_queue=2)
    gate.open.clear()

    async def work() -> None:
        running = asyncio.create_task(gated.run_async(x_of(1)))
        await async_begun(gate)
        waiting = [asyncio.create_task(gated.run_async(x_of(i))) for i in (2, 3)]
        await asyncio.sleep(0)
        with pytest.raises(QueueFull, match="gate: 2 requests wait already"):
            await gated.run_async(x_of(4))
        behind = asyncio.create_task(gated.run_async(x_of(5), wait=True))
        await asyncio.sleep(0)
        assert (gated.stats().queued, gated.stats().running) == (3, 1)
        gate.open.set()
        found = await asyncio.gather(running, *waiting, behind)
        assert [y["y"][0, 0] for y in found] == [2, 4, 6, 10]

    in_loop(work())
    stats = gated.stats()
    assert (stats.requests, stats.answered, stats.refused, stats.contexts) == (5, 4, 1, 1)
    assert stats.waited > 0 < stats.ran
    assert stats.waited + stats.ran <= stats.answered * stats.latency_max


def test_cancelled_requests_never_start_or_are_dropped(gated: Engine, gate: Gate) -> None:
    gated.set_pool(contexts=1)
    gate.open.clear()

    async def work() -> None:
        running = asyncio.create_task(gated.run_async(x_of(1)))
        await async_begun(gate)
        queued = asyncio.create_task(gated.run_async(x_of(2)))
        last = asyncio.create_task(gated.run_async(x_of(3)))
        await asyncio.sleep(0)
        for task in (queued, running):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert gated.stats().queued == 1
        gate.open.set()
        assert (await last)["y"][0, 0] == 6

    in_loop(work())
    begun(gate)  # the last one; the one that was cancelled in the queue has not run
    assert not gate.came.acquire(blocking=False)
    assert (gated.stats().cancelled, gated.stats().answered) == (2, 1)


def test_deadlines(gated: Engine, gate: Gate) -> None:
    gated.set_pool(contexts=1)
    gate.open.clear()

    async def work() -> None:
        running = asyncio.create_task(gated.run_async(x_of(1)))
        await async_begun(gate)
        with pytest.raises(DeadlineExceeded, match=r"gate: no answer within 0.01 s") as e:
            await gated.run_async(x_of(2), timeout=0.01)
        assert isinstance(e.value, TimeoutError)
        gate.open.set()
        assert (await running)["y"][0, 0] == 2

    in_loop(work())
    assert gated.stats().expired == 1
    for wrong in (-1, float("nan"), "soon"):
        with pytest.raises(InvalidArgument, match="a timeout of"):
            in_loop(gated.run_async(x_of(1), timeout=wrong))  # type: ignore[arg-type]


def test_errors_come_to_who_asked(gated: Engine) -> None:
    with pytest.raises(ExecutionError, match="on purpose"):
        in_loop(gated.run_async(x_of(-1)))
    with pytest.raises(DTypeError):
        in_loop(gated.run_async({"x": np.zeros((1, 3))}))
    assert in_loop(gated.run_async(x_of(1)))["y"][0, 0] == 2
    assert (gated.stats().errors, gated.stats().answered) == (2, 1)


def test_the_pool_is_set_once_and_sized_to_the_machine(gated: Engine) -> None:
    for wrong in ({"contexts": -1}, {"contexts": 1.5}, {"contexts": 100_000}, {"max_queue": 0}):
        with pytest.raises(InvalidArgument):
            gated.set_pool(**wrong)  # type: ignore[arg-type]
    in_loop(gated.run_async(x_of(1)))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert gated.stats().contexts == cores
    with pytest.raises(InvalidArgument, match="the pool runs already"):
        gated.set_pool(contexts=2)


def test_warm_up_runs_every_context(gated: Engine, gate: Gate, sample: Any) -> None:
    gated.set_pool(contexts=2)
    gated.warm_up()
    gated.warm_up({"x": (5, 3)})
    gated.warm_up([{"x": (1, 3)}, {"x": (2, 3)}])
    assert sum(gate.came.acquire(blocking=False) for _ in range(20)) == 4 * 3
    with pytest.raises(ShapeError):
        gated.warm_up({"x": (5, 4)})
    with pytest.raises(ShapeError):
        gated.warm_up({"x": (-5, 3)})
    with pytest.raises(AllocationError):
        gated.warm_up({"x": (1 << 50, 3)})
    with pytest.raises(InvalidArgument, match="shapes are a NoneType"):
        gated.warm_up(None)  # type: ignore[arg-type]
    plan = replace(gate_plan(sample, gate), profiles=())
    untuned = Runtime(session=sample.session(layers={gate.key: gate})).load(plan)
    with pytest.raises(InvalidArgument, match="no profile tells batch"):
        untuned.warm_up()


def test_percentiles_are_within_a_bucket() -> None:
    histogram = LatencyHistogram()
    for i in range(1, 1001):
        histogram.add(i / 1000)
    for share in (0.5, 0.9, 0.99):
        assert histogram.quantile(share) == pytest.approx(share, rel=0.045)
    histogram.add(0.0)
    histogram.add(1e9)
    assert 1000 < histogram.quantile(1.0) <= histogram.highest == 1e9


# -- runs that take less than to hand them to a thread --------------------------------------------


@pytest.fixture
def all_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever has run once at a shape."""
    monkeypatch.setattr(run_times, "QUICK", 60.0)
    monkeypatch.setattr(run_times, "LONG", 60.0)


@pytest.mark.usefixtures("all_quick")
def test_short_runs_stay_in_the_thread_that_asks(
    gated: Engine, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    gated.set_pool(contexts=1)

    async def work() -> None:
        for value in (1, 2, 3):
            assert (await gated.run_async(x_of(value)))["y"][0, 0] == 2 * value
        await gated.run_async(x_of(4, rows=2))  # which has not run yet
        await gated.run_async(x_of(5), timeout=async_requests.LONG)  # which may be late

    monkeypatch.setattr(async_requests, "LONG", 30.0)  # 1 ms is over on a busy machine
    in_loop(work())
    here = [thread == threading.get_ident() for thread in gate.threads]
    assert here == [False, True, True, False, False]
    assert (gated.stats().answered, gated.stats().running) == (5, 0)


@pytest.mark.usefixtures("all_quick")
def test_short_runs_take_no_context_of_others(gated: Engine, gate: Gate) -> None:
    gated.set_pool(contexts=1, max_queue=1)

    async def work() -> None:
        await gated.run_async(x_of(1))
        gate.came.acquire()
        gate.open.clear()
        running = asyncio.create_task(gated.run_async(x_of(1, rows=2)))
        await async_begun(gate)
        waiting = asyncio.create_task(gated.run_async(x_of(3)))
        await asyncio.sleep(0)
        assert (gated.stats().queued, gated.stats().running) == (1, 1)
        with pytest.raises(QueueFull):
            await gated.run_async(x_of(4))
        gate.open.set()
        assert (await waiting)["y"][0, 0] == 6
        await running

    in_loop(work())


@pytest.mark.usefixtures("all_quick")
def test_errors_of_short_runs_come_to_who_asked(gated: Engine) -> None:
    async def work() -> None:
        await gated.run_async(x_of(1))
        with pytest.raises(ExecutionError, match="on purpose"):
            await gated.run_async(x_of(-1))
        with pytest.raises(DTypeError):
            await gated.run_async({"x": np.zeros((1, 3))})
        assert (await gated.run_async(x_of(2)))["y"][0, 0] == 4

    in_loop(work())
    assert (gated.stats().answered, gated.stats().errors) == (2, 2)


@pytest.mark.usefixtures("all_quick")
def test_the_loop_goes_on_between_short_runs(
    gated: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> int:
        await gated.run_async(x_of(1))
        monkeypatch.setattr(async_requests, "LONG", 0.0)
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        for _ in range(5):
            await gated.run_async(x_of(1))
        counting.cancel()
        return turns

    assert in_loop(work()) >= 5


def test_which_runs_are_short() -> None:
    times = RunTimes()
    assert not times.quick
    times.note(run_times.QUICK / 2)
    assert times.quick
    for pause in (run_times.PAUSE, 2 * run_times.PAUSE):
        times.note(2 * run_times.LONG)  # it held the loop
        for _ in range(pause):
            assert not times.quick
            times.note(run_times.QUICK / 2)
        assert times.quick
    for _ in range(100):
        times.note(run_times.LONG / 2)
    assert not times.quick


def test_a_run_that_seems_long_is_tried_where_it_is_asked_for() -> None:
    times, far = RunTimes(), RunTimes()
    for _ in range(run_times.TRIAL - 1):
        assert not times.quick
        times.note(run_times.NEAR)
    assert times.quick
    times.note(run_times.QUICK / 2)
    for _ in range(10):
        assert times.quick
        times.note(run_times.QUICK / 2)
    for _ in range(2 * run_times.TRIAL):
        far.note(2 * run_times.NEAR)
        assert not far.quick


# -- close ----------------------------------------------------------------------------------------


def test_a_closed_engine_says_so_whatever_is_asked(sample: Any, session: Any, feeds: Feeds) -> None:
    engine = Runtime(session=session).load(sample.plan())
    engine(feeds(2))
    context = engine.create_execution_context()
    context.run(feeds(2))
    with engine as same:
        assert same is engine
    engine.close()
    assert engine.closed
    assert context.closed
    f = feeds(2)
    for use in (
        lambda: engine(f),
        lambda: engine.run(f),
        lambda: engine.run(f, {"y": np.empty((2, 20), np.float32)}),
        lambda: in_loop(engine.run_async(f)),
        lambda: engine.warm_up(),
        lambda: engine.set_pool(contexts=1),
        lambda: engine.__enter__(),
        lambda: engine.create_execution_context(),
        lambda: engine.inspect(),
        lambda: engine.save("never.plan"),
        lambda: engine.plan.steps,
        lambda: pickle.dumps(engine),
        lambda: context.run(f),
        lambda: context.set_input_shape("x", (3, 3)) or context.execute_v2([64, 64, 64, 64]),
    ):
        with pytest.raises(
            EngineClosed, match=r"affine: the engine is closed. Load its plan again"
        ):
            use()
    assert (engine.name, [io.name for io in engine.inputs]) == ("affine", ["x", "bias"])
    assert "closed" not in repr(engine)


def test_closing_waits_for_runs_and_ends_what_waits(gated: Engine, gate: Gate) -> None:
    gated.set_pool(contexts=1)
    gate.open.clear()

    async def work() -> None:
        running = asyncio.create_task(gated.run_async(x_of(1)))
        await async_begun(gate)
        called = asyncio.create_task(asyncio.to_thread(gated, x_of(2)))
        await async_begun(gate)
        queued = asyncio.create_task(gated.run_async(x_of(3)))
        await asyncio.sleep(0)
        closing = asyncio.create_task(asyncio.to_thread(gated.close))
        with pytest.raises(EngineClosed):
            await queued
        assert not closing.done()
        gate.open.set()
        await closing
        assert (await running)["y"][0, 0] == 2
        assert (await called)[0, 0] == 4

    in_loop(work())


def test_closing_while_threads_call(sample: Any, session: Any, feeds: Feeds) -> None:
    f = feeds(4)
    for _ in range(20):
        engine = Runtime(session=session).load(sample.plan())
        expected, started = engine(f)["y"], threading.Barrier(4)

        def call(engine: Engine = engine, expected: Any = expected, started: Any = started) -> bool:
            started.wait()
            for _ in range(10_000):
                try:
                    assert np.array_equal(engine(f)["y"], expected)
                except EngineClosed:
                    return True
            return False

        with ThreadPoolExecutor(3) as pool:
            calls = [pool.submit(call) for _ in range(3)]
            started.wait()
            engine.close()
            assert all(c.result(60) for c in calls)


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="needs /proc")
def test_the_file_is_unmapped(sample: Any, session: Any, feeds: Feeds, tmp_path: Path) -> None:
    path = tmp_path / "unmapped.plan"
    Runtime(session=session).load(sample.plan()).save(path)
    runtime = Runtime(session=session, on_untrusted="allow")
    engine = runtime.deserialize(path)
    engine(feeds(2))
    in_loop(engine.run_async(feeds(2)))
    assert path.name in Path("/proc/self/maps").read_text()
    engine.close()
    assert path.name not in Path("/proc/self/maps").read_text()
    with pytest.raises(EngineClosed, match=r"unmapped\.plan"):
        engine(feeds(2))


# -- other processes ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    builder = tactix.Builder()
    network = builder.create_network("shifted")
    x = network.add_input("x", "f32", ("batch", 3))
    w = network.add_constant(np.arange(12, dtype=np.float32).reshape(3, 4))
    (y,) = network.add_layer("tactix.MatMul", [x, w])
    network.mark_output(y, "y")
    config = tactix.BuilderConfig(builder_optimization_level=0, timing_cache=False)
    path = tmp_path_factory.mktemp("pickled") / "shifted.plan"
    builder.build(network, config).save(path)
    return path


def test_an_engine_of_a_file_is_pickled_by_it(saved: Path, tmp_path: Path) -> None:
    engine = tactix.load(saved, max_threads=1)
    content = pickle.dumps(engine)
    assert len(content) < 1000
    x = np.ones((2, 3), np.float32)
    (tmp_path / "engine.pickle").write_bytes(content)
    code = (
        "import pickle, sys, numpy as np; e = pickle.load(open(sys.argv[1], 'rb'));"
        "print(e(np.ones((2, 3), np.float32)).tolist())"
    )
    args = [sys.executable, "-c", code, str(tmp_path / "engine.pickle")]
    done = subprocess.run(args, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert eval(done.stdout) == engine(x).tolist()


def test_a_changed_file_is_refused(saved: Path, tmp_path: Path) -> None:
    path = tmp_path / "changing.plan"
    path.write_bytes(saved.read_bytes())
    content = pickle.dumps(tactix.load(path))
    data = bytearray(path.read_bytes())
    data[-1] ^= 1  # in the last blob
    (tmp_path / "new").write_bytes(data)
    (tmp_path / "new").replace(path)
    with pytest.raises(PlanFormatError, match="sha256"):
        pickle.loads(content)
    data = bytearray(saved.read_bytes())
    data[40] ^= 1  # in the digest of the header
    (tmp_path / "new").write_bytes(data)
    (tmp_path / "new").replace(path)
    with pytest.raises(PlanFormatError, match=r"changing.plan: .*has changed since"):
        pickle.loads(content)
    path.unlink()
    with pytest.raises(OSError, match=r"changing\.plan"):
        pickle.loads(content)


def test_an_engine_of_memory_says_how_to_save(sample: Any, session: Any, tmp_path: Path) -> None:
    engine = Runtime(session=session).load(sample.plan())
    with pytest.raises(InvalidArgument, match=r"no file holds.*engine.save\('model.plan'\)"):
        pickle.dumps(engine)
    engine.save(tmp_path / "now.plan")
    assert b"now.plan" in pickle.dumps(engine)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_a_pool_of_its_own(gated: Engine, gate: Gate) -> None:
    gated.set_pool(contexts=1)
    gate.open.clear()

    async def work() -> int:
        running = asyncio.create_task(gated.run_async(x_of(1)))
        await async_begun(gate)
        status = await asyncio.to_thread(_in_child, gated, gate)
        gate.open.set()
        assert (await running)["y"][0, 0] == 2
        return status

    assert in_loop(work()) == 0
    assert in_loop(gated.run_async(x_of(4)))["y"][0, 0] == 8


def _in_child(engine: Engine, gate: Gate) -> int:
    """The status of a child, which is forked while a context of the pool runs in its parent."""
    child = os.fork()
    if not child:
        status = 1
        try:
            gate.open = threading.Event()
            gate.open.set()
            fits = asyncio.run(engine.run_async(x_of(3)))["y"][0, 0] == 6
            fits = fits and engine(x_of(5))[0, 0] == 10 and engine.stats().requests == 1
            engine.close()
            status = 0 if fits else 2
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_the_interpreter_ends_with_a_pool_that_nobody_closed(saved: Path) -> None:
    code = (
        "import asyncio, sys, numpy as np, tactix; e = tactix.load(sys.argv[1]);"
        "print(asyncio.run(e.run_async({'x': np.ones((1, 3), np.float32)}))['y'].shape)"
    )
    args = [sys.executable, "-c", code, str(saved)]
    done = subprocess.run(args, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, "(1, 4)\n"), done.stderr


def test_threads_end_with_an_engine_that_nobody_has(saved: Path) -> None:
    before = set(threading.enumerate())
    engine = tactix.load(saved)
    in_loop(engine.run_async({"x": np.ones((1, 3), np.float32)}))
    own = [t for t in set(threading.enumerate()) - before if t.name.startswith("tactix shifted")]
    assert own
    del engine
    for thread in own:
        thread.join(30)
        assert not thread.is_alive()
