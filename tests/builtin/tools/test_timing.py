from __future__ import annotations

import gc
import threading
import time

import pytest

from tactix.base.errors import InvalidArgument
from tactix_tools.timing import Latency, Schedule, measure


def test_percentiles_are_nearest_rank() -> None:
    latency = Latency(tuple(i / 100 for i in range(1, 101)), wall=50.0)
    assert latency.median == pytest.approx(0.505)
    assert [latency.percentile(p) for p in (0, 1, 50, 90, 99, 100)] == [
        0.01,
        0.01,
        0.5,
        0.9,
        0.99,
        1.0,
    ]
    assert latency.calls_per_second == 2.0
    assert Latency((3.0,), 3.0).median == Latency((3.0,), 3.0).percentile(99) == 3.0


def test_counts_warmup_and_iterations() -> None:
    calls = 0

    def call() -> None:
        nonlocal calls
        calls += 1
        assert not gc.isenabled()

    latency = measure([call], Schedule(warmup=0, iterations=7))
    assert (calls, len(latency.samples)) == (8, 7)
    assert gc.isenabled()
    assert list(latency.samples) == sorted(latency.samples)
    assert sum(latency.samples) <= latency.wall


def test_seconds_end_the_loop() -> None:
    latency = measure([lambda: time.sleep(0.002)], Schedule(warmup=0, seconds=0.02))
    assert 1 <= len(latency.samples) <= 11
    assert latency.samples[0] >= 0.002


def test_workers_run_on_threads_of_their_own() -> None:
    seen: set[int] = set()
    both = threading.Barrier(2)

    def call() -> None:
        both.wait(10)
        seen.add(threading.get_ident())

    latency = measure([call, call], Schedule(warmup=0, iterations=3))
    assert len(latency.samples) == 6
    assert len(seen) == 2


@pytest.mark.parametrize("workers", [1, 2])
def test_a_failing_call_is_told(workers: int) -> None:
    def call() -> None:
        raise ZeroDivisionError("here")

    with pytest.raises(ZeroDivisionError, match="here"):
        measure([call] * workers, Schedule(warmup=0, iterations=1))
    assert gc.isenabled()


def test_nothing_to_measure() -> None:
    with pytest.raises(InvalidArgument, match="nothing to measure"):
        measure([], Schedule())
