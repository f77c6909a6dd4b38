"""A model's statistics as Triton's extension of that name has them. A count says how often
something was measured.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from tactix.run.request_stats import EngineStats
from tactix_serve.batching import BatchStats
from tactix_serve.directory import ModelDescription
from tactix_serve.served_model import ModelCounters

PARTS = {"compute_input": "together", "compute_infer": "run", "compute_output": "apart"}
"""The protocol's words for the parts of a batch, see ``BatchStats``."""
NANOSECONDS = 1_000_000_000
"""Of a second."""
MILLISECONDS = 1000
"""Of a second."""


@dataclass
class Occurrences:
    """How often something was measured, and ``seconds`` in all."""

    count: int = 0
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        self.count += 1
        self.seconds += seconds


@dataclass
class RequestTimes:
    """Of requests to one version since it was loaded, from when they came to their end. ``last``:
    when the one that ended last came, in seconds since 1970.
    """

    success: Occurrences = field(default_factory=Occurrences)
    fail: Occurrences = field(default_factory=Occurrences)
    last: float = 0.0

    def ended(self, outcome: str, seconds: float) -> None:
        """``outcome``: "ok", or how it failed."""
        (self.success if outcome == "ok" else self.fail).add(seconds)
        self.last = time.time() - seconds


def statistics(
    model: ModelDescription, requests: RequestTimes, counters: ModelCounters
) -> Mapping[str, object]:
    """By the extension's words. Where requests run one by one nothing is put together or cut apart,
    which takes no time as often as there is a run: perf_analyzer aborts where the counts of the
    three parts differ.
    """
    batches, runs = counters.batches or BatchStats(), counters.runs or EngineStats()
    seconds = {"run": runs.ran} if counters.batches is None else batches.request_seconds
    done, fail, ran = requests.success, requests.fail, batches.requests + runs.answered
    parts = {word: _duration(ran, seconds.get(part, 0.0)) for word, part in PARTS.items()}
    return {
        "name": model.name,
        "version": model.version,
        "last_inference": round(requests.last * MILLISECONDS),
        "inference_count": done.count if counters.batches is None else batches.rows,
        "execution_count": batches.batches + runs.answered,
        "inference_stats": {
            "success": _duration(done.count, done.seconds),
            "fail": _duration(fail.count, fail.seconds),
            "queue": _duration(ran, batches.waited + runs.waited),
            **parts,
            "cache_hit": _duration(0, 0.0),
            "cache_miss": _duration(0, 0.0),
        },
        "batch_stats": [_of_size(batches, size) for size in sorted(batches.sizes)],
    }


def _of_size(stats: BatchStats, size: int) -> Mapping[str, object]:
    count, seconds = stats.sizes[size], stats.size_seconds[size]
    parts = {word: _duration(count, seconds[part]) for word, part in PARTS.items()}
    return {"batch_size": size, **parts}


def _duration(count: int, seconds: float) -> Mapping[str, int]:
    return {"count": count, "ns": round(seconds * NANOSECONDS)}
