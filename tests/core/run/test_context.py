"""Contexts: shapes, addresses, memory, streams."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tactix.base.dims import sym
from tactix.base.error_recorder import ErrorRecorder
from tactix.base.errors import (
    AllocationError,
    DTypeError,
    ErrorCode,
    ExecutionError,
    InvalidArgument,
    ShapeError,
)
from tactix.contracts.device import Device
from tactix.run.context import BOUND, ExecutionContext
from tactix.run.engine import Engine
from tactix.run.memory import Memory
from tactix.run.observed import RunningStep
from tactix.run.runtime import Runtime
from tactix_cpu.allocator import ArenaAllocator
from tactix_cpu.device import CpuDevice

Feeds = Callable[..., dict[str, Any]]
DEPTH = 3


@pytest.fixture
def engine(sample: Any, session: Any) -> Engine:
    return Runtime(session=session).load(sample.plan(depth=DEPTH))


@pytest.fixture
def context(engine: Engine) -> ExecutionContext:
    return engine.create_execution_context()


def _address(a: Any) -> int:
    return int(a.__array_interface__["data"][0])


def _run(context: ExecutionContext, f: dict[str, Any]) -> dict[str, Any]:
    """Through raw addresses."""
    rows = len(f["bias"])
    out = {n: np.full((rows, 20), np.nan, np.float32) for n in ("y", "h")}
    for n, a in f.items():
        context.set_input_shape(n, a.shape)
    assert context.execute_v2([_address(a) for a in (*f.values(), *out.values())]) is True
    return out


def _check(got: dict[str, Any], sample: Any, f: dict[str, Any]) -> None:
    y, h = sample.expected(f["x"], f["bias"], DEPTH)
    np.testing.assert_allclose(got["y"], y, rtol=1e-5)
    np.testing.assert_allclose(got["h"], h, rtol=1e-5)


def test_execute_v2_follows_shapes_and_addresses(
    context: ExecutionContext, sample: Any, feeds: Feeds
) -> None:
    for rows in (2, 2, 5, 1, 64, 2, 0, 3):
        f = feeds(rows, rows)
        _check(_run(context, f), sample, f)
        _check(_run(context, feeds(rows, 99)), sample, feeds(rows, 99))


def test_the_callers_list_of_addresses_may_change(
    context: ExecutionContext, sample: Any, feeds: Feeds
) -> None:
    first, second = feeds(4, 1), feeds(4, 2)
    out = {n: np.empty((4, 20), np.float32) for n in ("y", "h")}
    for n, a in first.items():
        context.set_input_shape(n, a.shape)
    bindings = [_address(a) for a in (*first.values(), *out.values())]
    context.execute_v2(bindings)
    room = np.empty(1 << 14, np.uint8)
    context.set_device_memory(-(-_address(room) // 64) * 64, 1 << 13)  # all is bound again
    context.execute_v2(bindings)
    _check(out, sample, first)
    bindings[:2] = [_address(a) for a in second.values()]
    context.execute_v2(bindings)
    _check(out, sample, second)


def test_run_and_execute_can_alternate(
    context: ExecutionContext, sample: Any, feeds: Feeds
) -> None:
    for i in range(20):
        f = feeds(1 + i % 4, i)
        _check(context.run(f) if i % 3 else _run(context, f), sample, f)


@pytest.mark.parametrize("rows", [0, 1, 3, 64])
def test_results_are_of_their_own(
    context: ExecutionContext, sample: Any, feeds: Feeds, rows: int
) -> None:
    """Of few bytes, which all runs write to one place, and of more; beside runs on addresses."""
    known = []
    for seed in range(4):
        f = feeds(rows, seed=seed)
        known += [(f, context.run(f)), (f, _run(context, f))]
    for f, got in known:
        _check(got, sample, f)
    arrays = [y for _, got in known for y in got.values()]
    assert all(y.flags.carray and y.flags.owndata for y in arrays)


def test_arrays_that_cannot_be_written_are_used_as_they_are(
    context: ExecutionContext, sample: Any, feeds: Feeds
) -> None:
    f = feeds(3)
    context.run(f)
    for x in f.values():
        x.flags.writeable = False
    active = context._active
    assert active is not None
    assert active[0].accepts(list(f.values()))
    assert not active[0].accepts([np.asfortranarray(x) for x in f.values()])
    _check(context.run(f), sample, f)


def test_many_shapes_keep_few_links(context: ExecutionContext, sample: Any, feeds: Feeds) -> None:
    for rows in [*range(1, 30), *range(29, 0, -1)]:
        _check(context.run(feeds(rows)), sample, feeds(rows))
    assert len(context._known) == BOUND


def test_as_many_shapes_stay_bound_as_are_asked_for(
    context: ExecutionContext, sample: Any, feeds: Feeds
) -> None:
    for size in (1, 3, 20, 2):
        context.shape_cache_size = size
        assert context.shape_cache_size == size
        for rows in [*range(1, 12), *range(11, 0, -1)]:
            _check(context.run(feeds(rows)), sample, feeds(rows))
        assert len(context._known) == min(size, 11)
    for wrong in (0, -1, 1.5):
        with pytest.raises(InvalidArgument, match="shape cache"):
            context.shape_cache_size = wrong  # type: ignore[assignment]


def test_a_shape_takes_the_links_of_the_one_that_is_forgotten(
    context: ExecutionContext, sample: Any, feeds: Feeds
) -> None:
    context.shape_cache_size = 2
    linked = []
    for rows in (1, 2, 3, 4, 3, 1):
        _check(context.run(feeds(rows)), sample, feeds(rows))
        linked.append(next(reversed(context._known.values())).runnable)
    assert linked[2] is linked[0]
    assert linked[3] is linked[1]
    assert linked[4] is linked[2]
    assert linked[5] is linked[3]


def test_a_run_that_waits_is_not_touched_by_shapes_to_come(
    engine: Engine, sample: Any, feeds: Feeds
) -> None:
    """Its shape has been forgotten, and others run with its links, by the time that it begins."""
    context = engine.create_execution_context()
    stream = engine.device.create_stream()
    context.shape_cache_size = 1
    started, go = threading.Event(), threading.Event()

    def wait() -> None:
        started.set()
        go.wait(60)

    stream.submit(wait)
    started.wait(60)
    waiting = feeds(5)
    out = {n: np.zeros((5, 20), np.float32) for n in ("y", "h")}
    for n, a in (waiting | out).items():
        context.set_tensor_address(n, a)
    context.execute_async_v3(stream)
    for rows in (1, 2, 3):
        _check(context.run(feeds(rows)), sample, feeds(rows))
    go.set()
    stream.synchronize()
    _check(out, sample, waiting)


def test_memory_that_grows_grows_by_half(
    context: ExecutionContext, engine: Engine, feeds: Feeds
) -> None:
    """A text that grows by a token in each run would have new memory in each."""
    pieces = set()
    for rows in range(16, 65):
        context.run(feeds(rows))
        pieces.add(context._memory)
    assert 1 < len(pieces) <= 5


def test_shapes_of_tensors(context: ExecutionContext) -> None:
    assert context.get_tensor_shape("x") == (sym("batch"), 3)
    assert context.get_tensor_shape("y") == (sym("batch"), 20)
    context.set_input_shape("x", (4, 3))
    context.set_input_shape("bias", [4])
    assert context.get_tensor_shape("x") == (4, 3)
    assert context.get_tensor_shape("y") == (4, 20)
    context.set_input_shape("bias", (5,))
    with pytest.raises(ShapeError, match="disagree"):
        context.get_tensor_shape("y")


def test_shapes_that_can_never_be(context: ExecutionContext) -> None:
    for name, shape in (("x", (4, 4)), ("x", (4,)), ("bias", (-1,))):
        with pytest.raises(ShapeError, match=name):
            context.set_input_shape(name, shape)
    for shape in ((2.0, 3), "23", None, 3, (None, 3)):  # nothing is rounded or guessed
        with pytest.raises(ShapeError, match=r"x: .* is no shape"):
            context.set_input_shape("x", shape)  # type: ignore[arg-type]
    for name in ("y", "nobody"):
        with pytest.raises(InvalidArgument, match=name):
            context.set_input_shape(name, (1,))
    context.set_input_shape("bias", np.array([4]))
    assert context.get_tensor_shape("bias") == (4,)


def test_what_is_no_address(context: ExecutionContext, sample: Any, feeds: Feeds) -> None:
    f = feeds(2)
    outputs = [np.zeros((2, 20), np.float32) for _ in "yh"]
    arrays = [*f.values(), *outputs]
    for name, x in f.items():
        context.set_input_shape(name, x.shape)
    right = [_address(a) for a in arrays]
    wrong: list[Any] = [arrays, ["1", *right[1:]], [right[0] + 0.5, *right[1:]], None, right[0]]
    for bindings in (*wrong, right, *wrong):  # before the first run, and after it
        if bindings is right:
            context.execute_v2(right)
            continue
        with pytest.raises(InvalidArgument, match=r"no addresses.*Give integers"):
            context.execute_v2(bindings)
    context.execute_v2([np.int64(a) for a in right])  # type: ignore[misc]
    _check(dict(zip("yh", outputs, strict=True)), sample, f)


def test_as_many_arrays_as_inputs(context: ExecutionContext, sample: Any, feeds: Feeds) -> None:
    f = feeds(2)
    for given in ([f["x"]], [f["x"], f["bias"], f["x"]]):
        with pytest.raises(InvalidArgument, match=r"Expected: x: .*bias: "):
            context.infer(given)
    with pytest.raises(InvalidArgument, match="no array for 'bias'"):
        context.run([f["x"], f["bias"]])  # type: ignore[arg-type]
    _check(context.run(f), sample, f)


def test_running_without_shapes_or_addresses(context: ExecutionContext, feeds: Feeds) -> None:
    with pytest.raises(ShapeError, match="'x' has no shape yet"):
        context.execute_v2([1, 2, 3, 4])
    context.set_input_shape("x", (2, 3))
    context.set_input_shape("bias", (2,))
    with pytest.raises(InvalidArgument, match=r"3 addresses for 4 tensors.*x, bias, y, h"):
        context.execute_v2([64, 64, 64])
    with pytest.raises(InvalidArgument, match="'bias' has no address"):
        context.execute_v2([64, 0, 64, 64])
    with pytest.raises(InvalidArgument, match="'x' has no address"):
        context.execute_async_v3()


def test_fixed_shapes_need_not_be_set(sample: Any, session: Any, feeds: Feeds) -> None:
    context = Runtime(session=session).load(sample.plan(4, depth=DEPTH)).create_execution_context()
    f, out = feeds(4), [np.empty((4, 20), np.float32) for _ in range(2)]
    context.execute_v2([_address(a) for a in (*f.values(), *out)])
    _check(dict(zip(("y", "h"), out, strict=True)), sample, f)


def test_arrays_as_addresses(context: ExecutionContext, sample: Any, feeds: Feeds) -> None:
    f = feeds(6)
    out = {n: np.empty((6, 20), np.float32) for n in ("y", "h")}
    for n, a in {**f, **out}.items():
        context.set_tensor_address(n, a)
        assert context.get_tensor_address(n) == _address(a)
    assert context.execute_async_v3() is True
    _check(out, sample, f)
    context.set_tensor_address("x", np.asfortranarray(feeds(6, 1)["x"]))  # a copy is kept
    context.execute_async_v3(0)
    _check(out, sample, {**f, "x": feeds(6, 1)["x"]})


def test_arrays_that_do_not_fit(context: ExecutionContext, feeds: Feeds) -> None:
    for n, a in feeds(6).items():
        context.set_tensor_address(n, a)
    with pytest.raises(DTypeError, match="'x'"):
        context.set_tensor_address("x", np.zeros((6, 3)))
    frozen = np.zeros((6, 20), np.float32)
    frozen.flags.writeable = False
    for bad in (frozen, np.zeros((6, 40), np.float32)[:, ::2], [[1.0] * 20] * 6):
        with pytest.raises(InvalidArgument, match="'y'"):
            context.set_tensor_address("y", bad)
    context.set_tensor_address("y", np.zeros((7, 20), np.float32))
    context.set_tensor_address("h", np.zeros((6, 20), np.float32))
    with pytest.raises(ShapeError, match=r"'y' is \(6, 20\), its array is \(7, 20\)"):
        context.execute_async_v3()


def test_streams_keep_what_was_set_when_work_was_queued(
    engine: Engine, sample: Any, feeds: Feeds
) -> None:
    """Shapes, addresses and memory may change at once; the runs before still use theirs."""
    context = engine.create_execution_context()
    stream = engine.device.create_stream()
    gate = threading.Event()
    stream.submit(lambda: gate.wait(10) and None)
    pending = []
    for i in range(24):
        f = feeds(1 + 5 * (i % 12), i)  # grows: new memory again and again
        out = {n: np.empty((len(f["bias"]), 20), np.float32) for n in ("y", "h")}
        for n, a in {**f, **out}.items():
            context.set_tensor_address(n, a)
        context.execute_async_v3(stream.handle if i % 2 else stream)
        pending.append((f, out))
    direct = feeds(3, 77)
    _check(context.run(direct), sample, direct)
    gc.collect()
    gate.set()
    stream.synchronize()
    for f, out in pending:
        _check(out, sample, f)
    _check(context.run(direct), sample, direct)


def test_queueing_does_not_wait_for_what_runs(engine: Engine, sample: Any, feeds: Feeds) -> None:
    """While a run of the same context is under way, shapes can change and more work can be queued."""
    context, stream = engine.create_execution_context(), engine.device.create_stream()
    f, out = feeds(4), {n: np.empty((4, 20), np.float32) for n in ("y", "h")}
    context.set_tensor_address("h", out["h"])
    with context._running:  # as a long run has it
        for rows in (9, 4):
            context.set_input_shape("x", (rows, 3))
            context.set_input_shape("bias", (rows,))
            assert context.get_tensor_shape("y") == (rows, 20)
        for n, a in {**f, **out}.items():
            context.set_tensor_address(n, a)
        context.execute_async_v3(stream)
    stream.synchronize()
    _check(out, sample, f)


def test_an_unknown_stream_and_an_error_in_a_stream(
    sample: Any, session: Any, feeds: Feeds
) -> None:
    plan = sample.plan()
    bad = sample.step(
        "bad",
        sample.layers[2],
        sample.layers[2].Attrs(),
        plan.steps[1].inputs,
        plan.steps[1].outputs,
    )
    recorder = ErrorRecorder()
    runtime = Runtime(session=session, error_recorder=recorder)
    context = runtime.load(
        replace(plan, steps=(plan.steps[0], bad, plan.steps[2]))
    ).create_execution_context()
    for n, a in {
        **feeds(2),
        "y": np.empty((2, 20), np.float32),
        "h": np.empty((2, 20), np.float32),
    }.items():
        context.set_tensor_address(n, a)
    with pytest.raises(InvalidArgument, match="no stream has handle 123456"):
        context.execute_async_v3(123456)
    stream = session.devices["tactix.cpu@1"].create_stream()
    context.execute_async_v3(stream)
    with pytest.raises(ExecutionError, match="bad"):
        stream.synchronize()
    stream.synchronize()
    codes = [recorder.get_error_code(i) for i in range(recorder.num_errors())]
    assert codes == [ErrorCode.INVALID_ARGUMENT, ErrorCode.FAILED_EXECUTION]


def test_errors_are_recorded_once(context: ExecutionContext, feeds: Feeds) -> None:
    recorder = ErrorRecorder()
    context.error_recorder = recorder
    for call in (lambda: context.run(feeds(65)), lambda: context.execute_v2([1])):
        recorder.clear()
        with pytest.raises(InvalidArgument):
            call()
        assert recorder.num_errors() == 1


def test_user_memory(engine: Engine, sample: Any, feeds: Feeds) -> None:
    context = engine.create_execution_context()
    size = engine.device_memory_size({"x": (8, 3), "bias": (8,)})
    raw = np.zeros(size + 64, np.uint8)
    start = -_address(raw) % 64
    context.set_device_memory(_address(raw) + start, size)
    _check(context.run(feeds(8)), sample, feeds(8))
    assert raw[start : start + size].any()
    with pytest.raises(InvalidArgument, match="these shapes need"):
        context.run(feeds(9))
    _check(context.run(feeds(7)), sample, feeds(7))
    other = np.zeros(2 * size + 64, np.uint8)
    context.set_device_memory(_address(other) + -_address(other) % 64, 2 * size)
    raw[:] = 0
    _check(context.run(feeds(8)), sample, feeds(8))
    assert not raw.any()
    for address, n in ((1, 10), (-64, 10), (64, -1), (0, 1 << 20)):
        with pytest.raises(InvalidArgument):
            context.set_device_memory(address, n)


def test_a_context_without_memory_of_its_own(engine: Engine, sample: Any, feeds: Feeds) -> None:
    context = engine.create_execution_context_without_device_memory()
    size = engine.device_memory_size({"x": (8, 3), "bias": (8,)})
    assert context.device_memory == 0
    with pytest.raises(
        InvalidArgument,
        match=f"0 bytes of device memory: these shapes need {size}.*set_device_memory",
    ):
        context.run(feeds(8))
    raw = np.zeros(size + 64, np.uint8)
    place = -(-_address(raw) // 64) * 64
    context.device_memory = place
    assert context.device_memory == place
    _check(context.run(feeds(8)), sample, feeds(8))
    assert raw.any()
    context.device_memory = 0
    with pytest.raises(InvalidArgument, match="0 bytes of device memory"):
        context.run(feeds(8))
    with pytest.raises(InvalidArgument, match="Align it to 64 bytes"):
        context.device_memory = place + 8


def test_two_contexts_in_the_same_memory(engine: Engine, sample: Any, feeds: Feeds) -> None:
    size = engine.device_memory_size()
    raw = np.zeros(size + 64, np.uint8)
    contexts = [engine.create_execution_context_without_device_memory() for _ in range(2)]
    for c in contexts:
        c.set_device_memory(-(-_address(raw) // 64) * 64, size)
    for rows in (5, 64, 5):
        for c in contexts:
            _check(c.run(feeds(rows)), sample, feeds(rows))


def test_alignment_of_addresses(context: ExecutionContext, feeds: Feeds) -> None:
    f = feeds(3)
    for n, a in f.items():
        context.set_input_shape(n, a.shape)
    room = np.zeros(1000, np.uint8)
    start = -(-_address(room) // 8) * 8
    places = [start, start + 100, start + 200, start + 600]
    assert context.execute_v2(places)
    for i, name in enumerate(("x", "bias", "y", "h")):
        bad = [a + 2 * (k == i) for k, a in enumerate(places)]
        with pytest.raises(
            InvalidArgument, match=f"tensor {name!r} lies at {bad[i]:#x}. Align it to 4 bytes"
        ):
            context.execute_v2(bad)


def test_a_device_without_a_cache_to_keep_weights_in(context: ExecutionContext) -> None:
    context.persistent_cache_limit = 0
    with pytest.raises(InvalidArgument, match="a persistent cache of 1 bytes: the device has 0"):
        context.persistent_cache_limit = 1
    assert context.persistent_cache_limit == 0


def test_an_allocator_as_an_object(sample: Any, session: Any, feeds: Feeds) -> None:
    allocator = _Counting()
    engine = Runtime(session=session, allocator=allocator, copy_weights=True).load(
        sample.plan(depth=DEPTH)
    )
    assert list(allocator.live.values()) == [256]
    _check(engine(**feeds(4)), sample, feeds(4))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (0, "it gave no address"),
        (-4096, "it gave -0x1000, which is no address"),
        (1 << 63, "which is no address"),
        (None, "it gave None, which is no address"),
        ("abc", "it gave 'abc', which is no address"),
        (4097, "it gave 0x1001, which is no multiple of 64"),
    ],
)
@pytest.mark.parametrize("copied", [True, False])
def test_an_allocator_that_gives_no_address(
    sample: Any, session: Any, feeds: Feeds, given: Any, told: str, copied: bool
) -> None:
    allocator = _Counting()
    allocator.allocate = lambda size, alignment=64, stream=0: given  # type: ignore[method-assign]
    allocator.key = "acme.pool"
    runtime = Runtime(session=session, allocator=allocator, copy_weights=copied)
    with pytest.raises(
        AllocationError, match=rf"^allocator acme\.pool: cannot have \d+ bytes of memory: .*{told}"
    ):
        runtime.load(sample.plan())(**feeds(8))


def test_an_allocator_whose_code_fails(sample: Any, session: Any) -> None:
    allocator = _Counting()
    allocator.live = None  # type: ignore[assignment]
    runtime = Runtime(session=session, allocator=allocator, copy_weights=True)
    with pytest.raises(AllocationError, match=r"cannot have 256 bytes of memory: TypeError: "):
        runtime.load(sample.plan())


def test_an_allocator_of_a_pack_is_not_taken_for_being_there(sample: Any) -> None:
    own, other = ArenaAllocator(), _Counting()
    other.key = "acme.first"
    session = sample.session(allocators={other.key: other, own.key: own})
    plan = sample.plan(depth=DEPTH)
    assert Runtime(session=session, copy_weights=True).load(plan) is not None
    assert other.live == {}
    engine = Runtime(session=session, allocator=other.key, copy_weights=True).load(plan)
    assert engine is not None
    assert len(other.live) == 1


class _Counting(ArenaAllocator):
    """Keeps the sizes of what is live."""

    def __init__(self) -> None:
        super().__init__()
        self.live: dict[int, int] = {}

    def allocate(self, size: int, alignment: int = 64, stream: int = 0) -> int:
        address = super().allocate(size, alignment, stream)
        self.live[address] = size
        return address

    def deallocate(self, address: int, stream: int = 0) -> None:
        super().deallocate(address, stream)
        del self.live[address]


def test_memory_is_given_back(sample: Any, feeds: Feeds) -> None:
    allocator = _Counting()
    session = sample.session(allocators={allocator.key: allocator})
    engine = Runtime(session=session, copy_weights=True).load(sample.plan(depth=DEPTH))
    assert list(allocator.live.values()) == [256]
    with engine.create_execution_context() as context:
        for rows in (1, 64, 2, 33):
            context.run(feeds(rows))
        assert sorted(allocator.live.values()) == [256, 2 * 64 * 128]  # the smaller arena is gone
    assert list(allocator.live.values()) == [256]
    with pytest.raises(ExecutionError, match="closed"):
        context.run(feeds(1))
    engine(**feeds(2))
    del engine, context
    gc.collect()
    assert allocator.live == {}


def _in_a_stream(context: ExecutionContext, f: dict[str, Any]) -> None:
    out = {n: np.empty((len(f["bias"]), 20), np.float32) for n in ("y", "h")}
    for n, a in {**f, **out}.items():
        context.set_tensor_address(n, a)
    context.execute_async_v3(0)


@pytest.mark.parametrize(
    "use", [_run, _in_a_stream, lambda context, f: context.run(f)], ids=["v2", "v3", "run"]
)
def test_a_context_ends_with_its_last_reference(use: Any, engine: Engine, feeds: Feeds) -> None:
    """Not when the garbage collector looks: its memory may be large."""
    gc.collect()
    gc.disable()
    try:
        context = engine.create_execution_context()
        use(context, feeds(2))
        use(context, feeds(3))
        gone = weakref.ref(context)
        del context
        assert gone() is None
    finally:
        gc.enable()


def test_profiles_of_a_context(sample: Any, session: Any, feeds: Feeds) -> None:
    plan = sample.plan(profile=(1, 2, 3), depth=DEPTH)
    second = replace(plan.profiles[0], name="large", dims={"batch": (3, 3, 12)})
    context = (
        Runtime(session=session)
        .load(replace(plan, profiles=(*plan.profiles, second)))
        .create_execution_context()
    )
    assert context.active_optimization_profile == -1
    context.run(feeds(1))
    context.set_optimization_profile(1)
    with pytest.raises(ShapeError, match="'large' takes 3 to 12"):
        context.run(feeds(1))
    _check(context.run(feeds(12)), sample, feeds(12))
    for index in (2, -1, 0.5, "large"):
        with pytest.raises(InvalidArgument, match=f"no profile {index!r}: the engine has 2"):
            context.set_optimization_profile(index)  # type: ignore[arg-type]


def test_one_context_called_from_many_threads(
    context: ExecutionContext, sample: Any, feeds: Feeds, in_four_threads: Any
) -> None:

    def work(seed: int) -> None:
        for i in range(100):
            f = feeds(1 + (seed + i) % 3, seed * 100 + i)
            _check(context.run(f), sample, f)

    in_four_threads(work)


class _Copies:
    """Host arrays through pieces of a device's memory, one for each input and output."""

    def __init__(self, board: _Board, allocator: Any) -> None:
        self.board, self.allocator = board, allocator
        self.pieces: dict[int, Memory] = {}

    def place(self, index: int, size: int) -> int:
        if index not in self.pieces or self.pieces[index].size < size:
            self.pieces[index] = Memory.allocate(self.allocator, max(1, size))
        return self.pieces[index].address

    def run(self, inputs: Any, given: Any, stream: Any, bind: Any, left_out: Any = ()) -> list[Any]:
        results, run = bind([x.shape for x in given])
        outputs = [np.empty(shape, dtype) for shape, dtype in results]
        addresses = [self.place(i, x.nbytes) for i, x in enumerate((*given, *outputs))]
        for x, address in zip(given, addresses):
            self.board.copy_in(address, x)
        run(addresses)
        for y, address in zip(outputs, addresses[len(given) :]):
            self.board.copy_out(y, address)
        return outputs

    def locate(self, io: Any, given: Any) -> Any:
        raise InvalidArgument(f"{io.name!r} is not on the board")

    def fetch(self, io: Any, given: Any) -> Any:
        return given


class _Board(CpuDevice):
    """A device whose memory the host may not touch: all traffic goes through copies."""

    key = "test.board@1"
    kind = "board"
    host_memory = False

    def __init__(self) -> None:
        super().__init__()
        self.copied = [0, 0]

    def properties(self) -> Any:
        return replace(super().properties(), kind="board")

    def copy_all(self, pairs: Any) -> None:
        Device.copy_all(self, pairs)

    def exchange(self, allocator: Any) -> _Copies:
        return _Copies(self, allocator)

    def copy_in(self, address: int, array: Any) -> None:
        self.copied[0] += array.nbytes
        super().copy_in(address, array)

    def copy_out(self, array: Any, address: int) -> None:
        self.copied[1] += array.nbytes
        super().copy_out(array, address)


class _Reading:
    """Reads what every step makes."""

    def __init__(self) -> None:
        self.made: list[Any] = []

    def step(self, running: RunningStep, /) -> None:
        running.run()
        self.made += [running.read(o) for o in running.step.outputs]


def test_an_observer_reads_the_memory_of_a_device(sample: Any, feeds: Feeds) -> None:
    board, allocator = _Board(), _Counting()
    allocator.device = "board"
    session = sample.session(devices={board.key: board}, allocators={allocator.key: allocator})
    plan = replace(sample.plan(depth=DEPTH), device={"kind": "board"})
    context = Runtime(session=session).load(plan).create_execution_context()
    context.observer = reading = _Reading()
    given = feeds(3, 3)
    board.copied = [0, 0]
    got = context.run(given)
    _check(got, sample, given)
    for y in got.values():
        assert any(np.array_equal(x, y) for x in reading.made)
    assert board.copied[1] >= sum(x.nbytes for x in (*reading.made, *got.values()))


def test_a_device_with_memory_of_its_own(sample: Any, feeds: Feeds) -> None:
    board, allocator = _Board(), _Counting()
    allocator.device = "board"
    session = sample.session(devices={board.key: board}, allocators={allocator.key: allocator})
    plan = replace(sample.plan(depth=DEPTH), device={"kind": "board"})
    engine = Runtime(session=session).load(plan)
    assert board.copied == [240, 0]
    for rows in (2, 5, 5, 3, 0):
        board.copied = [0, 0]
        _check(engine(**feeds(rows, rows)), sample, feeds(rows, rows))
        assert board.copied == [rows * 16, rows * 160]
    with pytest.raises(InvalidArgument, match="is not on the board"):
        engine.create_execution_context().set_tensor_address(
            engine.inputs[0].name, np.zeros((2, 2), np.float32)
        )
    assert len(allocator.live) == 2 + 4  # weights, arena, one piece for each tensor
