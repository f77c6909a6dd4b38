"""Dynamic batching: requests that arrive within a window run together."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from tactix.base.arrays import Array
from tactix.base.errors import (
    DeadlineExceeded,
    EngineClosed,
    ExecutionError,
    InvalidArgument,
    QueueFull,
)
from tactix.run.arrays import check_asked, check_named
from tactix.run.async_requests import check_timeout
from tactix.run.engine import Engine
from tactix_serve.batch_axis import BatchAxes, Pads, PadSizes, batch_axes
from tactix_serve.batch_sizes import BatchTimes, ladder, padded_to

Key = tuple[tuple[int, ...], ...]

UNBOUNDED_BATCH = 32
"""Rows of a batch where neither the profile nor the caller has a limit. No measurement is on
record; it bounds the memory of a context.
"""
PARTS = ("together", "run", "apart")
"""Of a batch, in order: see ``BatchStats``."""
MOST_SHAPES = 1024
"""Shapes of requests of which it is remembered that they fit."""


@dataclass(frozen=True)
class BatchOptions:
    """``max_batch``: rows that go together at most; 0, the default, for what the profile takes.
    ``window``: seconds that the first request of a batch waits for others at most: it ends when all
    are there that windows before have seen. ``target``:
    seconds from arrival to answer: a batch goes before its window ends where it would be late
    otherwise; 0 for none. ``pad``: see ``Pads``; requests that differ in other axes never go
    together. ``max_queue``: requests that wait before others are refused. ``sizes``: rows that
    batches are padded to, with rows that reach no answer; none of them for batches as they are;
    None, the default, leaves that to the device. ``pad_sizes``: see ``PadSizes``. Raises
    InvalidArgument.
    """

    max_batch: int = 0
    window: float = 0.002
    target: float = 0.0
    pad: Pads = field(default_factory=dict)
    max_queue: int = 256
    sizes: Sequence[int] | None = None
    pad_sizes: PadSizes = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.max_batch, int) or self.max_batch < 0:
            do = "Give rows, or 0 for what the profile takes"
            raise InvalidArgument(f"max_batch is {self.max_batch!r}", do=do)
        if not isinstance(self.max_queue, int) or self.max_queue < 1:
            raise InvalidArgument(f"max_queue is {self.max_queue!r}", do="Give 1 or more")
        for name in ("window", "target"):
            seconds = getattr(self, name)
            if not isinstance(seconds, (int, float)) or not 0 <= seconds < math.inf:
                raise InvalidArgument(f"{name} is {seconds!r}", do="Give seconds, or 0")
        lengths = [sizes for axes in self.pad_sizes.values() for sizes in axes.values()]
        for sizes in (self.sizes or (), *lengths):
            if any(type(n) is not int or n < 1 for n in sizes):
                do = "Give integers from 1 up, or none of them"
                raise InvalidArgument(f"nothing is padded to {sizes!r}", do=do)


@dataclass(frozen=True)
class BatchStats:
    """``batches`` that ran, with so many ``requests`` and ``rows`` in all, and ``padding``: rows
    that were nobody's. ``queued``: requests that wait now. ``sizes``: batches by rows, padding
    among them. ``seconds``: of all batches, by what they went into: ``together``, putting inputs
    together; ``run``, on a context, with the way to its thread and back; ``apart``, cutting outputs
    apart and giving each request its own. ``size_seconds``: the same of the batches of each size.
    ``request_seconds``: the same once for each request of a batch. ``waited``: seconds of all
    requests from when they came to when their batch was taken.
    """

    batches: int = 0
    requests: int = 0
    rows: int = 0
    queued: int = 0
    padding: int = 0
    sizes: Mapping[int, int] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    size_seconds: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    request_seconds: Mapping[str, float] = field(default_factory=dict)
    waited: float = 0.0


@dataclass(eq=False, slots=True)
class PendingRequest:
    """``key``: the same for those that can go together. ``arrived``: by ``time.perf_counter``.
    ``outputs``: those that are asked for, None for all. ``late``: what ends it at its timeout.
    """

    feeds: Mapping[str, Array]
    rows: int
    key: Key
    arrived: float
    answer: asyncio.Future[Mapping[str, Array]]
    outputs: Collection[str] | None = None
    queued: bool = True
    late: asyncio.TimerHandle | None = None


class RequestGroup:
    """Requests that wait and can go together, in order, and their ``rows``."""

    def __init__(self) -> None:
        self.waiting, self.rows = deque[PendingRequest](), 0

    def add(self, request: PendingRequest) -> None:
        self.waiting.append(request)
        self.rows += request.rows

    def take(self) -> PendingRequest:
        """The first."""
        request = self.waiting.popleft()
        self.rows -= request.rows
        request.queued = False
        return request

    def remove(self, request: PendingRequest) -> None:
        self.waiting.remove(request)
        self.rows -= request.rows


class Crowd:
    """How many requests are asked at once, as far as windows have told: who waits for others knows
    when nobody else is there.
    """

    def __init__(self) -> None:
        self._asked, self._expected = 0, math.inf

    def came(self) -> None:
        self._asked += 1
        self._expected = max(self._expected, self._asked)

    def left(self) -> None:
        """With an answer or without."""
        self._asked -= 1

    def window_ended(self) -> None:
        """Others than those that are here would have come."""
        self._expected = self._asked

    def all_wait(self, queued: int) -> bool:
        """Whether those that wait are all that are expected; who is answered may ask again."""
        return queued >= self._expected


def sizes_of(engine: Engine, axes: BatchAxes, asked: Sequence[int] | None, most: int) -> list[int]:
    """Rows that batches of up to ``most`` are padded to, ascending; none where they run as they
    are.

    A device with memory of its own binds each size, and records a graph of it, which takes longer
    than many runs, and takes little longer for some rows more. On the host a size costs little to
    bind, and each row what it computes.
    """
    if asked is None:
        return [] if engine.device.host_memory else list(ladder(axes.lowest, most))
    return sorted({n for n in asked if axes.lowest <= n <= most} | {most}) if asked else []


class Batcher:
    """Runs requests of one event loop on the pool of an engine, as many together as fit.

    A batch goes when a context is free and it is full, or its window ends, or a target demands it,
    or all requests wait that windows before have seen at once, so that one alone goes at once.
    Requests go in the order in which they came, among those of the same shape but for the first
    axis. Each row of a batch gives what it gives alone, to the bit where the engine's kernels do
    the same for any number of rows, else within rounding; what a network computes over rows is
    another matter: ``tactix_serve.batch_check`` looks for that.

    ``sizes``: what batches are padded to. ``times``: how long they take, by rows, padding among
    them; ``tactix_serve.batch_warm_up`` measures some before the first comes.

    Raises BatchRefused for a network whose first axes are not one open size.
    """

    def __init__(self, engine: Engine, options: BatchOptions | None = None) -> None:
        self._engine, self._options = engine, options or BatchOptions()
        self.axes = batch_axes(engine.plan, self._options.pad, self._options.pad_sizes)
        self._names = [io.name for io in self.axes.outputs]
        limits = [n for n in (self._options.max_batch, self.axes.highest) if n]
        self.max_batch = min(limits, default=UNBOUNDED_BATCH)
        self.sizes = sizes_of(engine, self.axes, self._options.sizes, self.max_batch)
        self.times = BatchTimes(self.sizes)
        self._groups: dict[Key, RequestGroup] = {}
        self._fitting: dict[tuple[object, ...], tuple[int, Key]] = {}
        self._queued = self._running = 0
        self._contexts = engine.pool_size
        self._timer: asyncio.TimerHandle | None = None
        self._sending = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed, self._crowd = False, Crowd()
        self._batches = self._requests = self._rows = self._padding = 0
        self._ran, self._waited = Counter[int](), 0.0
        self._size_seconds: dict[int, dict[str, float]] = {}
        self._request_seconds = dict.fromkeys(PARTS, 0.0)

    def stats(self) -> BatchStats:
        """As of now."""
        counts = self._batches, self._requests, self._rows, self._queued, self._padding
        by_size = {size: dict(seconds) for size, seconds in self._size_seconds.items()}
        seconds = {part: sum((s[part] for s in by_size.values()), 0.0) for part in PARTS}
        by_request = dict(self._request_seconds)
        return BatchStats(*counts, dict(self._ran), seconds, by_size, by_request, self._waited)

    async def infer(
        self,
        feeds: Mapping[str, Array],
        timeout: float | None = None,
        outputs: Collection[str] | None = None,
    ) -> Mapping[str, Array]:
        """Outputs by name for inputs by name, which must stay as they are until it returns.

        ``outputs``: names of those that are asked for, None for all: what no request of a batch
        asks for is not copied from the device. Others of the batch's may be among the results.

        Cancelled, or later than ``timeout`` (seconds), a request that waits never starts. Raises
        InvalidArgument, DTypeError, ShapeError, QueueFull, DeadlineExceeded, ExecutionError,
        EngineClosed.
        """
        return await self.ask(feeds, timeout, outputs)

    def ask(
        self,
        feeds: Mapping[str, Array],
        timeout: float | None = None,
        outputs: Collection[str] | None = None,
    ) -> asyncio.Future[Mapping[str, Array]]:
        """As ``infer``, without a coroutine for each request. Requests that are asked within one
        turn of the loop are there at once.
        """
        check_named(feeds)
        check_timeout(timeout)
        if outputs is not None:
            check_asked(outputs, self._names, self._engine.name)
        request = self._queue(feeds, outputs)
        if timeout is not None:
            loop = asyncio.get_running_loop()
            request.late = loop.call_later(timeout, self._expire, request, timeout)
        request.answer.add_done_callback(partial(self._left, request))
        self._crowd.came()
        self._send_soon()
        return request.answer

    def _left(self, request: PendingRequest, answer: asyncio.Future[Mapping[str, Array]]) -> None:
        if request.late is not None:
            request.late.cancel()
        self._crowd.left()
        if request.queued:
            self._forget(request)

    def _expire(self, request: PendingRequest, timeout: float) -> None:
        error = DeadlineExceeded(f"no answer within {timeout:g} s", who=self._engine.name)
        _fail(request, error)

    def _queue(self, feeds: Mapping[str, Array], outputs: Collection[str] | None) -> PendingRequest:
        if self._closed:
            raise EngineClosed("the batcher is closed", who=self._engine.name)
        rows, key = self._rows_and_key(feeds)
        if self._queued >= self._options.max_queue:
            what = f"{self._options.max_queue} requests wait already"
            raise QueueFull(what, who=self._engine.name, do="Try again later, or allow more")
        answer = asyncio.get_running_loop().create_future()
        request = PendingRequest(feeds, rows, key, time.perf_counter(), answer, outputs)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = RequestGroup()
        group.add(request)
        self._queued += 1
        return request

    def _rows_and_key(self, feeds: Mapping[str, Array]) -> tuple[int, Key]:
        """Of a request that fits, which one of the same names, shapes and dtypes told before."""
        try:
            seen = tuple([(name, x.shape, x.dtype) for name, x in feeds.items()])
        except AttributeError:
            seen = ()  # no arrays, which is told below
        found = self._fitting.get(seen)
        if found is None:
            found = self.axes.checked(feeds), self.axes.key(feeds)
            if len(self._fitting) >= MOST_SHAPES:
                self._fitting.clear()
            self._fitting[seen] = found
        return found

    def _forget(self, request: PendingRequest) -> None:
        group = self._groups[request.key]
        group.remove(request)
        self._queued -= 1
        if not group.waiting:
            del self._groups[request.key]

    # -- when -------------------------------------------------------------------------------------

    def _send_soon(self) -> None:
        """At the end of this turn of the loop, in which others may come."""
        if not self._sending:
            self._sending = True
            asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        """What is due, while a context is free; else the timer comes back."""
        self._sending = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._groups and self._running < self._contexts:
            due, key = min((self._due(g), k) for k, g in self._groups.items())
            wait = due - time.perf_counter()
            if wait > 0:
                self._timer = asyncio.get_running_loop().call_later(wait, self._send)
                return
            if not self._complete(self._groups[key].rows):
                self._crowd.window_ended()
            self._start(self._taken(key))

    def _complete(self, rows: int) -> bool:
        """Whether a group need not wait for others."""
        return self._closed or rows >= self.max_batch or self._crowd.all_wait(self._queued)

    def _due(self, group: RequestGroup) -> float:
        """When the first of a group has to go."""
        first, rows = group.waiting[0].arrived, group.rows
        if self._complete(rows):
            return first
        wait = self._options.window
        if self._options.target:
            wait = min(wait, max(0.0, self._options.target - self.times.estimate(rows)))
        return first + wait

    def _taken(self, key: Key) -> list[PendingRequest]:
        """The first of a group, as many as fit; one alone may be larger."""
        group, batch, rows = self._groups[key], list[PendingRequest](), 0
        waiting, most = group.waiting, self._most(group.rows)
        while waiting and (not batch or rows + waiting[0].rows <= most):
            batch.append(group.take())
            rows += batch[-1].rows
        self._queued -= len(batch)
        if not waiting:
            del self._groups[key]
        return batch

    def _most(self, waiting: int) -> int:
        """Rows of a batch that still answers in time, where so many wait."""
        rows, target = min(waiting, self.max_batch), self._options.target
        if not target:
            return rows
        return self.times.in_time(rows, target, time.perf_counter())

    # -- running ----------------------------------------------------------------------------------

    def _start(self, batch: list[PendingRequest]) -> None:
        self._running += 1
        task = asyncio.get_running_loop().create_task(self._run(batch))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._running -= 1
        self._send()

    async def _run(self, batch: list[PendingRequest], taken: float | None = None) -> None:
        """Answers each; one that fails alone fails alone. ``taken``: when it ceased to wait, None
        for now.
        """
        feeds = [r.feeds for r in batch]
        rows, start = sum(r.rows for r in batch), time.perf_counter()
        taken = start if taken is None else taken
        padded = padded_to(self.sizes, rows)
        alone = len(batch) == 1 and padded == rows and not self.axes.lengths
        try:
            together = self.axes.together(feeds, padded)
            begun = time.perf_counter()
            results = await self._engine.run_async(together, wait=True, outputs=_asked(batch))
            ended = time.perf_counter()
            answers = [results] if alone else self.axes.apart(results, feeds)
        except (InvalidArgument, ExecutionError, ArithmeticError) as e:
            if len(batch) == 1:
                _fail(batch[0], e)
                return
            for request in batch:
                await self._run([request], taken)
            return
        except Exception as e:
            for request in batch:
                _fail(request, e)
            return
        for request, answer in zip(batch, answers, strict=True):
            if not request.answer.done():
                request.answer.set_result(answer)
        self.times.note(padded, ended - start)
        self._waited += sum(taken - r.arrived for r in batch)
        self._count(len(batch), rows, padded, (start, begun, ended, time.perf_counter()))

    def _count(self, requests: int, rows: int, padded: int, clock: Sequence[float]) -> None:
        """``clock``: when each part of a batch began, and its end."""
        self._batches, self._requests = self._batches + 1, self._requests + requests
        self._rows, self._padding = self._rows + rows, self._padding + padded - rows
        self._ran[padded] += 1
        of_size = self._size_seconds.setdefault(padded, dict.fromkeys(PARTS, 0.0))
        for part, begin, end in zip(PARTS, clock, clock[1:], strict=False):
            of_size[part] += end - begin
            self._request_seconds[part] += requests * (end - begin)

    async def close(self) -> None:
        """No more requests are taken; those that wait run, and all are waited for. The engine goes
        on.
        """
        self._closed = True
        self._send()
        while self._tasks:
            await asyncio.wait(self._tasks)


def _asked(batch: Sequence[PendingRequest]) -> Collection[str] | None:
    """Outputs that some request asks for; None for all."""
    asked = set[str]()
    for request in batch:
        if request.outputs is None:
            return None
        asked.update(request.outputs)
    return asked


def _fail(request: PendingRequest, error: Exception) -> None:
    if not request.answer.done():
        request.answer.set_exception(error)
