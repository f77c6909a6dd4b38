"""Threads that the system does not start."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tactix.base.errors import AllocationError

NOT_STARTED = "can't start new thread"
"""By these words alone Python tells that from other errors of a program."""


@contextmanager
def threads_needed() -> Iterator[None]:
    """A block, or a function that this decorates, that starts threads. Raises AllocationError where
    the system has none to give.
    """
    try:
        yield
    except RuntimeError as e:
        if NOT_STARTED not in str(e):
            raise
        why = "the process has as much memory, or as many threads, as it may have"
        do = "Raise its limits (ulimit -v, ulimit -u; of a container its memory and pids)"
        raise AllocationError("no thread can be started", why=why, do=do) from e
