"""What Prometheus reads at /metrics."""

from __future__ import annotations

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)

SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Upper ends of the buckets of latencies."""


class ServerMetrics:
    """Of one server; in a registry of its own."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "tactix_requests",
            "Requests for inference that ended",
            ["model", "outcome"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "tactix_request_seconds",
            "Seconds from a request to its answer",
            ["model"],
            buckets=SECONDS,
            registry=self._registry,
        )
        self._running = Gauge(
            "tactix_requests_in_flight", "Requests that wait or run", registry=self._registry
        )
        self._models = Gauge("tactix_models_ready", "Models that serve", registry=self._registry)
        self._loads = Gauge("tactix_model_loads", "Versions loaded", registry=self._registry)
        self._failures = Gauge(
            "tactix_model_load_failures", "Versions not loaded", registry=self._registry
        )

    def began(self) -> None:
        self._running.inc()

    def ended(self, model: str, outcome: str, seconds: float) -> None:
        """``model``: the name of one that serves, or empty: what clients ask for is no label."""
        self._running.dec()
        self._requests.labels(model, outcome).inc()
        if outcome == "ok":
            self._seconds.labels(model).observe(seconds)

    def repository(self, ready: int, loads: int, failures: int) -> None:
        self._models.set(ready)
        self._loads.set(loads)
        self._failures.set(failures)

    def text(self) -> bytes:
        """In Prometheus' format."""
        return generate_latest(self._registry)
