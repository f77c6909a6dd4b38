"""What stays behind a worker and ends all that its kernels started. Linux only.

A kernel may start processes that leave its process group and session, and whose parents end. A
guardian is their nearest ancestor that asks the system for orphans (PR_SET_CHILD_SUBREAPER), so
that each becomes its child at last, whatever it did and whatever ended the worker.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

PROCESSES = Path("/proc")
_SET_DEATH_SIGNAL, _SET_SUBREAPER = 1, 36
_PARENT = 1
"""Where /proc/PID/stat holds the parent, counted behind the name in brackets."""


def guard() -> None:
    """Split: the worker returns, in a process of its own; this one becomes its guardian, and ends
    as the worker does when nothing of it is left. SIGTERM, also sent when the building process
    ends, ends the worker.

    Elsewhere than on Linux nothing happens. To be called before there are threads.
    """
    if not sys.platform.startswith("linux"):
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    _ask_system(_SET_SUBREAPER, 1)
    _ask_system(_SET_DEATH_SIGNAL, signal.SIGTERM)
    if worker := os.fork():
        _end_like(_outlived(worker))
    os.setpgid(0, 0)  # a kernel that signals its group does not end its guardian
    _ask_system(_SET_DEATH_SIGNAL, signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def _ask_system(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _outlived(worker: int) -> int:
    """The exit code of the worker, minus the signal if one ended it; nothing of it still runs."""
    os.close(0)
    os.close(1)  # the building process sees the end of the pipe when the worker is gone
    signal.signal(signal.SIGTERM, lambda number, frame: os.kill(worker, signal.SIGKILL))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    ended, status = 0, 0
    while ended != worker:
        ended, status = os.waitpid(-1, 0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # its number may be another's from here on
    with contextlib.suppress(OSError):  # without /proc, or of another user: beyond reach
        while orphans := tuple(_children()):
            for pid in orphans:
                _kill(pid)
    return os.waitstatus_to_exitcode(status)


def _kill(child: int) -> None:
    """What it started becomes a child here."""
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def _children() -> Iterator[int]:
    """The numbers of processes whose parent this one is, ended ones included."""
    for entry in PROCESSES.iterdir():
        with contextlib.suppress(OSError):  # it ended meanwhile
            if entry.name.isdecimal() and _parent(entry) == os.getpid():
                yield int(entry.name)


def _parent(process: Path) -> int:
    return int((process / "stat").read_text(errors="replace").rpartition(")")[2].split()[_PARENT])


def _end_like(code: int) -> None:
    if code < 0:
        with contextlib.suppress(OSError):  # nobody can change what SIGKILL does
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)
