"""Signals that end a server."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextlib.contextmanager
def heeding(stop: asyncio.Event) -> Iterator[None]:
    """Signals set the event meanwhile, where the loop may have any."""
    loop, heard = asyncio.get_running_loop(), list[signal.Signals]()
    try:
        for number in SIGNALS:
            loop.add_signal_handler(number, stop.set)
            heard.append(number)
    except (NotImplementedError, RuntimeError, ValueError):
        pass  # not the main thread, or no POSIX
    try:
        yield
    finally:
        for number in heard:
            loop.remove_signal_handler(number)
