"""Measure how long calls take: warm-up, then a number of calls or of seconds; percentiles of what
was seen.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tactix.base.errors import InvalidArgument

MOST_SAMPLES = 1_000_000


@dataclass(frozen=True)
class Latency:
    """Seconds of single calls (sorted), and of the whole measurement from its first start to its
    last end.
    """

    samples: tuple[float, ...]
    wall: float

    def percentile(self, p: float) -> float:
        """The nearest-rank percentile in seconds, ``p`` in 0..100."""
        rank = max(1, -(-len(self.samples) * p // 100))
        return self.samples[int(rank) - 1]

    @property
    def median(self) -> float:
        n = len(self.samples)
        return (self.samples[(n - 1) // 2] + self.samples[n // 2]) / 2

    @property
    def calls_per_second(self) -> float:
        return len(self.samples) / self.wall


@dataclass(frozen=True)
class Schedule:
    """``warmup`` seconds at first; then ``iterations`` calls of every worker, or calls for
    ``seconds`` if that is 0.
    """

    warmup: float = 0.2
    iterations: int = 0
    seconds: float = 2.0


def measure(workers: Sequence[Callable[[], object]], schedule: Schedule) -> Latency:
    """Call each worker again and again, all at the same time, each on a thread of its own.

    One worker runs on the calling thread. Garbage collection is off meanwhile. Raises what a worker
    raises.
    """
    if not workers:
        raise InvalidArgument("nothing to measure")
    was_on = gc.isenabled()
    gc.disable()
    try:
        return _alone(workers[0], schedule) if len(workers) == 1 else _together(workers, schedule)
    finally:
        if was_on:
            gc.enable()


def _alone(call: Callable[[], object], schedule: Schedule) -> Latency:
    _warm(call, schedule)
    start = time.perf_counter()
    samples = _loop(call, schedule)
    return Latency(tuple(sorted(samples)), time.perf_counter() - start)


def _together(workers: Sequence[Callable[[], object]], schedule: Schedule) -> Latency:
    samples: list[float] = []
    failures: list[BaseException] = []
    starts: list[float] = []
    gate = threading.Barrier(len(workers))

    def work(call: Callable[[], object]) -> None:
        try:
            _warm(call, schedule)
            gate.wait()
            starts.append(time.perf_counter())
            samples.extend(_loop(call, schedule))
        except BaseException as e:
            failures.append(e)
            gate.abort()

    threads = [threading.Thread(target=work, args=(w,), daemon=True) for w in workers]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failures:
        raise next(
            (f for f in failures if not isinstance(f, threading.BrokenBarrierError)), failures[0]
        )
    return Latency(tuple(sorted(samples)), time.perf_counter() - min(starts))


def _warm(call: Callable[[], object], schedule: Schedule) -> None:
    """At least one call."""
    end = time.perf_counter() + schedule.warmup
    call()
    while time.perf_counter() < end:
        call()


def _loop(call: Callable[[], object], schedule: Schedule) -> list[float]:
    clock = time.perf_counter
    samples: list[float] = []
    most = schedule.iterations or MOST_SAMPLES
    begin = clock()
    end = float("inf") if schedule.iterations else begin + schedule.seconds
    while len(samples) < most:
        call()
        now = clock()
        samples.append(now - begin)
        if now >= end:
            break
        begin = now
    return samples
