"""Queries again and again, with the times of each."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tactix_tensorrt import api as trt
from tactix_tools.trtexec.bindings import Bindings
from tactix_tools.trtexec.models import TrtexecFailure
from tactix_tools.trtexec.options import InferenceOptions

MS = 1e3


@dataclass(frozen=True)
class QueryTimes:
    """Milliseconds since the first query: when each part began and ended."""

    enqueue_start: float
    enqueue_end: float
    h2d_start: float
    h2d_end: float
    compute_start: float
    compute_end: float
    d2h_start: float
    d2h_end: float

    @property
    def enqueue(self) -> float:
        return self.enqueue_end - self.enqueue_start

    @property
    def h2d(self) -> float:
        return self.h2d_end - self.h2d_start

    @property
    def compute(self) -> float:
        return self.compute_end - self.compute_start

    @property
    def d2h(self) -> float:
        return self.d2h_end - self.d2h_start

    @property
    def latency(self) -> float:
        """Of all parts but waiting."""
        return self.h2d + self.compute + self.d2h


class Query(Protocol):
    """One context at work."""

    def launch(self) -> None:
        """Begin a query."""

    def finish(self) -> QueryTimes:
        """Wait for its end."""


class HostQuery:
    """Where memory is the host's nothing is transferred, and a run is over when its call returns:
    launching it takes as long as it does.
    """

    def __init__(self, context: trt.IExecutionContext, begin: float) -> None:
        self._context, self._begin = context, begin
        self._start = self._end = 0.0

    def launch(self) -> None:
        self._start = time.perf_counter()
        _run(self._context, 0)
        self._end = time.perf_counter()

    def finish(self) -> QueryTimes:
        start, end = ((t - self._begin) * MS for t in (self._start, self._end))
        return QueryTimes(start, end, start, start, start, end, end, end)


class DeviceQuery:
    """In a stream of its own, timed by the device."""

    def __init__(
        self, context: trt.IExecutionContext, bindings: Bindings, transfers: bool, begin: float
    ) -> None:
        self._context, self._bindings, self._transfers = context, bindings, transfers
        device = bindings.device
        self._stream = device.create_stream()
        self._marks = [device.create_event() for _ in range(4)]
        self._first = device.create_event()
        self._first.record(self._stream)
        self._first.synchronize()
        self._begin = begin
        self._offset = (time.perf_counter() - begin) * MS
        self._enqueue = (0.0, 0.0)

    def launch(self) -> None:
        start, sent, computed, done = self._marks
        start.record(self._stream)
        if self._transfers:
            self._stream.submit(self._bindings.upload)
        sent.record(self._stream)
        before = time.perf_counter()
        _run(self._context, self._stream.handle)
        after = time.perf_counter()
        computed.record(self._stream)
        if self._transfers:
            self._stream.submit(self._fetch)
        done.record(self._stream)
        self._enqueue = ((before - self._begin) * MS, (after - self._begin) * MS)

    def _fetch(self) -> None:
        self._bindings.download()

    def finish(self) -> QueryTimes:
        self._stream.synchronize()
        at = [self._offset + m.elapsed(self._first) * MS for m in self._marks]
        start, sent, computed, done = at
        return QueryTimes(*self._enqueue, start, sent, sent, computed, computed, done)


def _run(context: trt.IExecutionContext, stream: int) -> None:
    if not context.execute_async_v3(stream):
        raise TrtexecFailure("Error occurred during inference")


@dataclass(frozen=True)
class Measured:
    """``queries``: those after warming up, in order. ``wall``: ms from the first to the last."""

    warm_ups: int
    queries: tuple[QueryTimes, ...]

    @property
    def wall(self) -> float:
        return max(q.d2h_end for q in self.queries) - self.queries[0].h2d_start


def measure(
    contexts: Sequence[trt.IExecutionContext],
    bindings: Sequence[Bindings],
    options: InferenceOptions,
) -> Measured:
    """All contexts beside each other, on threads or in turns. Raises TrtexecFailure."""
    begin = time.perf_counter()
    queries = [
        HostQuery(c, begin) if b.device.host_memory else DeviceQuery(c, b, options.transfers, begin)
        for c, b in zip(contexts, bindings, strict=True)
    ]
    groups = [[q] for q in queries] if options.threads else [queries]
    found = sorted(_all_of(groups, begin, options), key=lambda q: q.compute_start)
    kept = tuple(q for q in found if q.compute_start >= options.warm_up)
    return Measured(len(found) - len(kept), kept)


def _all_of(
    groups: Sequence[Sequence[Query]], begin: float, options: InferenceOptions
) -> list[QueryTimes]:
    """Of each group on a thread; of one alone on this one."""
    if len(groups) == 1:
        return _loop(groups[0], begin, options)
    found: list[QueryTimes] = []
    failures: list[Exception] = []

    def work(group: Sequence[Query]) -> None:
        try:
            found.extend(_loop(group, begin, options))
        except Exception as e:
            failures.append(e)

    threads = [threading.Thread(target=work, args=(g,), daemon=True) for g in groups]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failures:
        raise failures[0]
    return found


def _loop(queries: Sequence[Query], begin: float, options: InferenceOptions) -> list[QueryTimes]:
    """As many queries as were asked for after warming up, and as long; one at least."""
    found: list[QueryTimes] = []
    counted = 0
    end = begin + options.warm_up / MS + options.duration
    while counted < max(1, options.iterations) or time.perf_counter() < end:
        for q in queries:
            q.launch()
        done = [q.finish() for q in queries]
        found += done
        counted += any(q.compute_start >= options.warm_up for q in done)
        if options.idle:
            time.sleep(options.idle / MS)
    return found
