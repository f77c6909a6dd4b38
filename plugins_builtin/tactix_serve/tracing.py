"""Spans of OpenTelemetry, where a program that serves has installed it."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any


@functools.cache
def _telemetry() -> tuple[Any, Any] | None:
    """Its modules ``trace`` and ``propagate``."""
    try:
        from opentelemetry import propagate, trace
    except ModuleNotFoundError:
        return None
    return trace, propagate


@contextmanager
def span(name: str, carrier: Mapping[str, str], **attributes: str) -> Iterator[None]:
    """A span around the block; a child of the one that ``carrier`` names, headers of a request.
    Nothing without OpenTelemetry.
    """
    found = _telemetry()
    if found is None:
        yield
        return
    trace, propagate = found
    tracer, parent = trace.get_tracer("tactix"), propagate.extract(dict(carrier))
    with tracer.start_as_current_span(name, context=parent, attributes=attributes):
        yield
