"""What the system does not start is told with the limits."""

from __future__ import annotations

import threading

import pytest

from tactix.base.errors import AllocationError
from tactix.base.threads import threads_needed


def test_a_thread_that_is_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading, "_start_new_thread", refuse)
    with (
        pytest.raises(AllocationError, match=r"no thread can be started: .*ulimit -v"),
        threads_needed(),
    ):
        threading.Thread(target=print).start()


def test_other_errors_stay() -> None:
    with pytest.raises(RuntimeError, match="mine"), threads_needed():
        raise RuntimeError("mine")
