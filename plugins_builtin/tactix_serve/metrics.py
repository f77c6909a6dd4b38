"""What Prometheus reads at /metrics."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from tactix_serve.repository import LoadedVersion, Repository
from tactix_serve.served_model import ModelCounters

CONTENT_TYPE: str = CONTENT_TYPE_LATEST
SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Upper ends of the buckets of latencies."""


@dataclass
class AnswerTimes:
    """``counts``: of answers in each bucket, and beyond the last. ``total``: seconds of all."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(SECONDS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(SECONDS, seconds)] += 1
        self.total += seconds


class ServerMetrics:
    """Of one server, whose event loop alone counts: plain numbers, which become Prometheus' when it
    asks.
    """

    def __init__(self) -> None:
        self._ended: dict[tuple[str, str], int] = {}
        self._times: dict[str, AnswerTimes] = {}
        self._running = self._ready = self._loads = self._failures = 0
        self._counters: Mapping[str, ModelCounters] = {}
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def began(self) -> None:
        self._running += 1

    def ended(self, loaded: LoadedVersion | None, outcome: str, seconds: float) -> None:
        """``loaded``: whose request it was, None where none serves: what clients ask for is no
        label.
        """
        self._running -= 1
        model = ""
        if loaded is not None:
            model = loaded.described.name
            loaded.requests.ended(outcome, seconds)
        key = (model, outcome)
        self._ended[key] = self._ended.get(key, 0) + 1
        if outcome == "ok":
            times = self._times.get(model)
            if times is None:
                times = self._times[model] = AnswerTimes()
            times.add(seconds)

    def collect(self) -> Iterable[Metric]:
        """What the registry asks for."""
        ended = CounterMetricFamily(
            "tactix_requests", "Requests for inference that ended", labels=["model", "outcome"]
        )
        for key, count in self._ended.items():
            ended.add_metric(key, count)
        yield ended
        took = HistogramMetricFamily(
            "tactix_request_seconds", "Seconds from a request to its answer", labels=["model"]
        )
        ends = [*map(str, SECONDS), "+Inf"]
        for model, times in self._times.items():
            buckets = zip(ends, accumulate(times.counts), strict=True)
            took.add_metric([model], list(buckets), times.total)
        yield took
        for name, text, value in (
            ("tactix_requests_in_flight", "Requests that wait or run", self._running),
            ("tactix_models_ready", "Models that serve", self._ready),
            ("tactix_model_loads", "Versions loaded", self._loads),
            ("tactix_model_load_failures", "Versions not loaded", self._failures),
        ):
            yield GaugeMetricFamily(name, text, value)
        yield from self._of_batches()
        yield from self._of_devices()

    def _of_batches(self) -> Iterator[Metric]:
        """Of models that have them."""
        found = {name: c.batches for name, c in self._counters.items() if c.batches is not None}
        ran = CounterMetricFamily(
            "tactix_batches", "Batches, by rows with padding", labels=["model", "rows"]
        )
        rows = CounterMetricFamily("tactix_batch_rows", "Rows of requests", labels=["model"])
        padding = CounterMetricFamily(
            "tactix_batch_padding", "Rows that padded batches", labels=["model"]
        )
        took = CounterMetricFamily(
            "tactix_batch_seconds", "Seconds of batches, by part", labels=["model", "part"]
        )
        for name, stats in found.items():
            for size, count in sorted(stats.sizes.items()):
                ran.add_metric([name, str(size)], count)
            rows.add_metric([name], stats.rows)
            padding.add_metric([name], stats.padding)
            for part, seconds in stats.seconds.items():
                took.add_metric([name, part], seconds)
        yield from (ran, rows, padding, took)

    def _of_devices(self) -> Iterator[Metric]:
        """Each device counts for all models that run on it."""
        done = CounterMetricFamily(
            "tactix_device", "What devices have done in this process", labels=["device", "what"]
        )
        for kind, counters in {c.kind: c.device for c in self._counters.values()}.items():
            for what, value in counters.items():
                done.add_metric([kind, what], value)
        yield done

    def of(self, repository: Repository) -> bytes:
        """With the repository's own numbers, in Prometheus' format."""
        self._ready = len(repository.directory.serving)
        self._loads, self._failures = repository.loads, repository.failures
        self._counters = repository.counters()
        return generate_latest(self._registry)
