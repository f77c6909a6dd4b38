"""Contexts that requests wait for, each with a thread."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from tactix.base.arrays import Array
from tactix.base.errors import QueueFull, TactixError
from tactix.run.context import ExecutionContext

Results = dict[str, Array]

UNLIMITED = 1 << 62


class QueuedRequest:
    """``answer`` has the results, or what was raised. To cancel it takes the request out of the
    queue; one that runs goes on.
    """

    def __init__(self, feeds: Mapping[str, Any]) -> None:
        self.feeds = feeds
        self.answer: Future[Results] = Future()

    def run(self, context: ExecutionContext) -> None:
        try:
            results = context.run(self.feeds)
        except BaseException as e:
            self.answer.set_exception(e)
        else:
            self.answer.set_result(results)


class RequestQueue:
    """What the threads of a pool share. It knows no engine, so that one that nobody uses any more
    ends.
    """

    def __init__(self) -> None:
        self._waiting: deque[QueuedRequest] = deque()
        self._changed = threading.Condition()
        self._closing: Callable[[], TactixError] | None = None
        self.running = 0

    def __len__(self) -> int:
        return len(self._waiting)

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
            self._changed.notify()
        request.answer.add_done_callback(lambda answer: self._forget(request, answer))

    def _forget(self, request: QueuedRequest, answer: Future[Results]) -> None:
        if not answer.cancelled():
            return
        with self._changed:
            if request in self._waiting:
                self._waiting.remove(request)

    def serve(self, context: ExecutionContext) -> None:
        """Run requests until the queue is closed."""
        while (request := self._next()) is not None:
            request.run(context)
            del request  # its arrays are the caller's from now on
            with self._changed:
                self.running -= 1

    def _next(self) -> QueuedRequest | None:
        with self._changed:
            while True:
                while self._waiting:
                    request = self._waiting.popleft()
                    if request.answer.set_running_or_notify_cancel():
                        self.running += 1
                        return request
                if self._closing is not None:
                    return None
                self._changed.wait()

    def close(self, error: Callable[[], TactixError]) -> None:
        """Requests that wait end with that error; threads end when they have run theirs."""
        with self._changed:
            self._closing = self._closing or error
            given_up = list(self._waiting)
            self._waiting.clear()
            self._changed.notify_all()
        for request in given_up:
            if request.answer.set_running_or_notify_cancel():
                request.answer.set_exception(error())


class RequestPool:
    """``contexts``: each runs one request at a time, in a thread of its own. ``max_queue``: so many
    requests may wait. Of one process: a child after a fork makes another.
    """

    def __init__(self, name: str, contexts: Sequence[ExecutionContext], max_queue: int) -> None:
        self.name, self.contexts, self._most = name, list(contexts), max_queue
        self.process = os.getpid()
        self.queue = RequestQueue()
        self._threads = [
            threading.Thread(
                target=self.queue.serve, args=(c,), name=f"tactix {name} {i}", daemon=True
            )
            for i, c in enumerate(self.contexts)
        ]
        _open.add(self)
        self._ending = weakref.finalize(self, self.queue.close, _unused)
        self._ending.atexit = False
        for thread in self._threads:
            thread.start()

    def submit(self, feeds: Mapping[str, Any], wait: bool) -> QueuedRequest:
        """Raises QueueFull if many wait, unless it is to ``wait`` behind them; EngineClosed."""
        request = QueuedRequest(feeds)
        self.queue.put(request, UNLIMITED if wait else self._most, self.name)
        return request

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
