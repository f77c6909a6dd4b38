"""Spans of OpenTelemetry, where a program that serves has installed it."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any


@functools.cache
def _telemetry() -> tuple[Any, Any] | None:
    """Its modules ``trace`` and ``propagate``."""
    try:
        from opentelemetry import propagate, trace
    except ModuleNotFoundError:
        return None
    return trace, propagate


def traced() -> bool:
    """Whether spans are made."""
    return _telemetry() is not None


def span(
    name: str, carrier: Mapping[str, str], **attributes: str
) -> AbstractContextManager[object]:
    """A span around the block; a child of the one that ``carrier`` names, headers of a request.
    Nothing without OpenTelemetry.
    """
    found = _telemetry()
    if found is None:
        return _NOTHING
    trace, propagate = found
    tracer, parent = trace.get_tracer("tactix"), propagate.extract(dict(carrier))
    out: AbstractContextManager[object] = tracer.start_as_current_span(
        name, context=parent, attributes=attributes
    )
    return out


_NOTHING = nullcontext()
