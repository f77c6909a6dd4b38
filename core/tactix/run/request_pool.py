"""Contexts that requests wait for, and threads that run them there."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from typing import Any

from tactix.base.arrays import Array
from tactix.base.errors import QueueFull, TactixError
from tactix.run.context import ExecutionContext
from tactix.run.replica_loads import ReplicaLoads

Results = dict[str, Array]

UNLIMITED = 1 << 62


class QueuedRequest:
    """``home``: the replica that it must run on; None for any. ``error``: what its run raised.
    ``began``: when that began, by ``time.perf_counter``; ``seconds``: how long it took.
    """

    error: BaseException | None = None
    began = seconds = 0.0

    def __init__(self, feeds: Mapping[str, Any], home: int | None = None) -> None:
        self.feeds, self.home = feeds, home

    def run(self, context: ExecutionContext) -> Callable[[], None]:
        """In another thread than the caller's; gives what tells the caller."""
        self.began = time.perf_counter()
        try:
            results = self.results(context)
        except BaseException as e:
            self.error = e
            return partial(self.fail, e)
        self.seconds = time.perf_counter() - self.began
        context.took(self.feeds, self.seconds)
        return partial(self.answered, results)

    def results(self, context: ExecutionContext) -> Results:
        """Raises as a run."""
        raise NotImplementedError

    def answered(self, results: Results) -> None:
        """Tell the caller, from any thread."""
        raise NotImplementedError

    def fail(self, error: BaseException) -> None:
        """Tell the caller, from any thread."""
        raise NotImplementedError


class AwaitedRequest(QueuedRequest):
    """``answer``, a future of the loop that asks, has the results, or what was raised."""

    def __init__(
        self,
        feeds: Mapping[str, Any],
        outputs: Collection[str] | None,
        loop: asyncio.AbstractEventLoop,
        home: int | None = None,
    ) -> None:
        super().__init__(feeds, home)
        self._outputs, self._loop = outputs, loop
        self.answer: asyncio.Future[Results] = loop.create_future()

    def results(self, context: ExecutionContext) -> Results:
        return context.run(self.feeds, outputs=self._outputs)

    def answered(self, results: Results) -> None:
        self._tell(_answered, results)

    def fail(self, error: BaseException) -> None:
        self._tell(_failed, error)

    def _tell(self, told: Callable[[asyncio.Future[Results], Any], None], what: object) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            self._loop.call_soon_threadsafe(told, self.answer, what)


def _answered(answer: asyncio.Future[Results], results: Results) -> None:
    if not answer.done():
        answer.set_result(results)


def _failed(answer: asyncio.Future[Results], error: BaseException) -> None:
    if not answer.done():
        answer.set_exception(error)


class PartRequest(QueuedRequest):
    """A part of a batch, whose results go into ``out``, as far as there is such. ``answer`` has the
    results, or what was raised; any thread may wait for it.
    """

    def __init__(
        self, feeds: Mapping[str, Any], out: Mapping[str, Array], home: int | None
    ) -> None:
        super().__init__(feeds, home)
        self._out = out
        self.answer: Future[Results] = Future()

    def results(self, context: ExecutionContext) -> Results:
        return context.run_into(self.feeds, self._out) if self._out else context.run(self.feeds)

    def answered(self, results: Results) -> None:
        self.answer.set_result(results)

    def fail(self, error: BaseException) -> None:
        self.answer.set_exception(error)


class RequestQueue:
    """What the threads of a pool share: requests that wait, and contexts that are free. It knows no
    engine, so that one that nobody uses any more ends.

    ``homes``: the replica of each context, where there are several; ``loads`` knows how much each
    of these has to do. A replica that is lost gets no requests any more, unless all are.
    """

    def __init__(
        self,
        contexts: Sequence[ExecutionContext],
        homes: Sequence[int] = (),
        loads: ReplicaLoads | None = None,
    ) -> None:
        self._waiting: deque[QueuedRequest] = deque()
        self._free = list(contexts)  # the last one used comes first: its shapes are in caches
        self._most = len(contexts)
        self._homes, self._loads = dict(zip(contexts, homes, strict=False)), loads
        self._changed = threading.Condition(threading.Lock())
        self._closing: Callable[[], TactixError] | None = None
        self._callers = 0  # threads that wait in ``take``

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Requests that run now."""
        return self._most - len(self._free)

    def put(self, request: QueuedRequest, most: int, who: str) -> None:
        """Raises QueueFull if ``most`` wait already; what ``close`` was given after that."""
        with self._changed:
            if self._closing is not None:
                raise self._closing()
            if len(self._waiting) >= most:
                raise QueueFull(
                    f"{most} requests wait already",
                    who=who,
                    do="Try again later, wait with wait=True, or allow more by max_queue",
                )
            self._waiting.append(request)
            self._wake()

    def forget(self, request: QueuedRequest) -> None:
        """It does not start, if it waits still."""
        with self._changed:
            if request in self._waiting:
                self._waiting.remove(request)

    def borrow(self, feeds: Mapping[str, Any]) -> ExecutionContext | None:
        """A free context for a run so short that no thread need be asked, where none waits."""
        with self._changed:
            if self._waiting or not self._free or not self._free[-1].quick(feeds):
                return None
            return self._pick(None)

    def give_back(self, context: ExecutionContext) -> None:
        with self._changed:
            if self._loads is not None:
                self._loads.end(self._homes[context])
            self._free.append(context)
            if self._waiting or self._callers:
                self._wake()

    def _wake(self) -> None:
        """One who can go on; all, where threads wait for different things."""
        if self._callers:
            self._changed.notify_all()
        else:
            self._changed.notify()

    def take(self, home: int | None) -> ExecutionContext:
        """A free context for a run in the calling thread, which waits for one, and gives it back.
        ``home``: the replica that it must be of. Raises what ``close`` was given.
        """
        with self._changed:
            self._callers += 1
            try:
                while True:
                    if self._closing is not None:
                        raise self._closing()
                    context = self._pick(home) if self._free else None
                    if context is not None:
                        return context
                    self._changed.wait()
            finally:
                self._callers -= 1

    def failed(self, context: ExecutionContext, error: BaseException) -> None:
        """Of a run on a context: replicas note it."""
        if self._loads is not None:
            self._loads.failed(self._homes[context], error)

    def serve(self) -> None:
        """Run requests until the queue is closed."""
        while (found := self._next()) is not None:
            request, context = found
            tell = request.run(context)
            if request.error is not None:
                self.failed(context, request.error)
            self.give_back(context)  # before: who is told may ask at once
            tell()
            del found, request, tell  # its arrays are the caller's from now on

    def _next(self) -> tuple[QueuedRequest, ExecutionContext] | None:
        with self._changed:
            while (found := self._match()) is None:
                if self._closing is not None and not self._waiting:
                    return None
                self._changed.wait()
            return found

    def _match(self) -> tuple[QueuedRequest, ExecutionContext] | None:
        """The first request that a free context may run."""
        for i, request in enumerate(self._waiting):
            if not self._free:
                return None
            context = self._pick(request.home)
            if context is not None:
                del self._waiting[i]
                return request, context
        return None

    def _pick(self, home: int | None) -> ExecutionContext | None:
        """The free context that was used last, of the replica that has least to do."""
        loads = self._loads
        if loads is None:
            return self._free.pop()
        free = {self._homes[c]: c for c in self._free if home in (None, self._homes[c])}
        usable = [home] if home is not None else loads.usable()
        homes = [h for h in usable if h in free]
        if not homes:
            return None
        context = free[loads.begin(homes)]
        self._free.remove(context)
        return context

    def close(self, error: Callable[[], TactixError]) -> None:
        """Requests that wait end with that error; threads end when they have run theirs."""
        with self._changed:
            self._closing = self._closing or error
            given_up = list(self._waiting)
            self._waiting.clear()
            self._changed.notify_all()
        for request in given_up:
            request.fail(error())


class RequestPool:
    """``contexts``: each runs one request at a time, in one of as many threads. ``max_queue``: so
    many requests may wait. ``homes``, ``loads``: see ``RequestQueue``. Of one process: a child
    after a fork makes another.

    ``held``: seconds that requests have run in threads of event loops since one of these has let
    its loop go on.
    """

    def __init__(
        self,
        name: str,
        contexts: Sequence[ExecutionContext],
        max_queue: int,
        homes: Sequence[int] = (),
        loads: ReplicaLoads | None = None,
    ) -> None:
        self.name, self.contexts, self._most = name, list(contexts), max_queue
        self.process, self.held = os.getpid(), 0.0
        self.queue = RequestQueue(self.contexts, homes, loads)
        self._threads = [
            threading.Thread(target=self.queue.serve, name=f"tactix {name} {i}", daemon=True)
            for i in range(len(self.contexts))
        ]
        _open.add(self)
        self._ending = weakref.finalize(self, self.queue.close, _unused)
        self._ending.atexit = False
        for thread in self._threads:
            thread.start()

    def run_here(self, feeds: Mapping[str, Any], outputs: Collection[str] | None) -> Results | None:
        """Results of a run that takes less than to hand it to a thread; None where none is expected
        to, or no context is free. Raises as a run.
        """
        context = self.queue.borrow(feeds)
        if context is None:
            return None
        start = time.perf_counter()
        try:
            results: Results = context.run(feeds, outputs=outputs)
            seconds = time.perf_counter() - start
            context.took(feeds, seconds)
            self.held += seconds
        finally:
            self.queue.give_back(context)
        return results

    def submit(
        self,
        feeds: Mapping[str, Any],
        outputs: Collection[str] | None,
        wait: bool,
        home: int | None = None,
    ) -> AwaitedRequest:
        """Of the running loop. ``home``: the replica that it must run on. Raises QueueFull if many
        wait, unless it is to ``wait`` behind them; EngineClosed.
        """
        request = AwaitedRequest(feeds, outputs, asyncio.get_running_loop(), home)
        self.queue.put(request, UNLIMITED if wait else self._most, self.name)
        return request

    def parts(self, requests: Sequence[PartRequest]) -> list[Results]:
        """The results of all, once all have ended. Raises what the first that failed raised;
        EngineClosed.
        """
        for request in requests:
            self.queue.put(request, UNLIMITED, self.name)
        wait([r.answer for r in requests])
        return [r.answer.result() for r in requests]

    def after_fork(self) -> None:
        """In the child, which has none of the threads, and lets go of the pool."""
        self._ending.detach()

    def close(self, error: Callable[[], TactixError]) -> None:
        """As of the queue; then the threads are waited for."""
        self.queue.close(error)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()


_open: weakref.WeakSet[RequestPool] = weakref.WeakSet()


def _unused() -> TactixError:
    return TactixError("the engine is gone")


@atexit.register
def _close_all() -> None:
    """No thread runs native code while the interpreter ends."""
    for pool in list(_open):
        if pool.process == os.getpid():
            pool.close(_unused)
