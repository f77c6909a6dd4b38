"""What became of requests, and how long they took."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from enum import Enum

BUCKETS_PER_OCTAVE = 8
"""So that a bucket's middle is within 4.5 % of all that lie in it: 2 ** (1 / 16) is 1.044."""
SHORTEST = 1e-6
BUCKETS = 30 * BUCKETS_PER_OCTAVE
"""Up to SHORTEST * 2 ** 30, 18 minutes; what takes longer is in the last."""


class LatencyHistogram:
    """Counts by logarithm of seconds, in a fixed number of buckets; for one thread at a time."""

    def __init__(self) -> None:
        self.count, self.highest = 0, 0.0
        self._counts = [0] * BUCKETS

    def add(self, seconds: float) -> None:
        octaves = math.log2(max(seconds, SHORTEST) / SHORTEST)
        self._counts[min(BUCKETS - 1, int(octaves * BUCKETS_PER_OCTAVE))] += 1
        self.count += 1
        self.highest = max(self.highest, seconds)

    def merge(self, other: LatencyHistogram) -> None:
        """Count what the other has counted, too."""
        self._counts = [a + b for a, b in zip(self._counts, other._counts, strict=True)]
        self.count += other.count
        self.highest = max(self.highest, other.highest)

    def quantile(self, share: float) -> float:
        """Seconds that this share of all took at most, within 4.5 %; 0 while there are none."""
        left = share * self.count
        for i, count in enumerate(self._counts):
            left -= count
            if count and left <= 0:
                middle = SHORTEST * 2 ** ((i + 0.5) / BUCKETS_PER_OCTAVE)
                return min(middle, self.highest)
        return self.highest


class RequestOutcome(Enum):
    """What became of a request."""

    ANSWERED = "answered"
    FAILED = "errors"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    REFUSED = "refused"


@dataclass(frozen=True)
class EngineStats:
    """Of ``run`` and ``run_async``; plain calls and contexts of one's own are not counted.

    ``requests``: that came. Of those ``answered`` have their results, ``errors`` failed,
    ``cancelled`` were cancelled by their caller, ``expired`` had a deadline, ``refused`` found the
    queue full; the others wait or run. ``queued``: wait now. ``running``: run now on one of the
    ``contexts`` of the pool, 0 as long as there is no pool. ``waited``: seconds from asking to the
    begin of the run, of all that were answered; ``ran``: seconds of their runs. ``latency_*``:
    seconds from asking to the results of those that were answered, 50, 90 and 99 of 100 at most
    (within 4.5 %), and the longest.
    """

    requests: int = 0
    answered: int = 0
    errors: int = 0
    cancelled: int = 0
    expired: int = 0
    refused: int = 0
    queued: int = 0
    running: int = 0
    contexts: int = 0
    waited: float = 0.0
    ran: float = 0.0
    latency_p50: float = 0.0
    latency_p90: float = 0.0
    latency_p99: float = 0.0
    latency_max: float = 0.0


class RequestLog:
    """Counts requests; from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latency = LatencyHistogram()
        self._requests, self._waited, self._ran = 0, 0.0, 0.0
        self._ended = dict.fromkeys(RequestOutcome, 0)

    def came(self) -> None:
        with self._lock:
            self._requests += 1

    def ended(self, outcome: RequestOutcome, seconds: float, waited: float, ran: float) -> None:
        """``seconds``: from asking to the end. ``waited``, ``ran``: see ``EngineStats``."""
        with self._lock:
            self._ended[outcome] += 1
            if outcome is RequestOutcome.ANSWERED:
                self._latency.add(seconds)
                self._waited += waited
                self._ran += ran

    def stats(self, queued: int, running: int, contexts: int) -> EngineStats:
        """As of now."""
        with self._lock:
            latency = self._latency
            p50, p90, p99 = (latency.quantile(q) for q in (0.5, 0.9, 0.99))
            ended = {o.value: n for o, n in self._ended.items()}
            return EngineStats(
                self._requests,
                **ended,
                queued=queued,
                running=running,
                contexts=contexts,
                waited=self._waited,
                ran=self._ran,
                latency_p50=p50,
                latency_p90=p90,
                latency_p99=p99,
                latency_max=latency.highest,
            )
