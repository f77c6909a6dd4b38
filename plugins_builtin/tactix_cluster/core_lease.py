"""Cores of this machine that one process has for itself among those that ask here."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tactix.base.cores import usable_cores

if TYPE_CHECKING:
    from filelock import BaseFileLock

TOPOLOGY = Path("/sys/devices/system/cpu")


@dataclass(frozen=True)
class CoreLease:
    """``cores``: numbers of the system's. The locks go with the process, however that ends."""

    cores: tuple[int, ...]
    _locks: tuple[BaseFileLock, ...]

    def occupy(self) -> None:
        """Let every thread of this process run on these cores alone, where the system can do that;
        threads and processes that they start later do so, too.
        """
        if not hasattr(os, "sched_setaffinity"):
            return
        for thread in _threads():
            with suppress(ProcessLookupError):  # it ended meanwhile
                os.sched_setaffinity(thread, self.cores)

    def release(self) -> None:
        """Others may have them."""
        for lock in self._locks:
            lock.release()


def lease(count: int, folder: Path | None = None) -> CoreLease | None:
    """So many cores that nobody holds; None where there are less. ``folder``: of the locks, by
    default one of this user's on this machine.
    """
    from filelock import FileLock, Timeout

    where = folder or Path(tempfile.gettempdir()) / f"tactix.cores.{_user()}"
    where.mkdir(mode=0o700, parents=True, exist_ok=True)
    cores: list[int] = []
    locks: list[BaseFileLock] = []
    for core in physical_cores():
        if len(cores) == count:
            break
        lock = FileLock(where / f"{core}.lock")
        with suppress(Timeout):
            lock.acquire(blocking=False)
            cores.append(core)
            locks.append(lock)
    found = CoreLease(tuple(cores), tuple(locks))
    if len(cores) == count:
        return found
    found.release()
    return None


def physical_cores() -> Sequence[int]:
    """Those that this process may use, of threads that share one the first."""
    if not hasattr(os, "sched_getaffinity"):
        return range(usable_cores())
    allowed = sorted(os.sched_getaffinity(0))
    first = {_siblings(core): core for core in reversed(allowed)}
    return sorted(first.values())


def _siblings(core: int) -> str:
    """What names the core that a thread of the processor belongs to."""
    try:
        return (TOPOLOGY / f"cpu{core}/topology/thread_siblings_list").read_text()
    except OSError:
        return str(core)


def _threads() -> list[int]:
    """Of this process; 0 stands for the calling one where the system does not list them."""
    try:
        return [int(name) for name in os.listdir("/proc/self/task")]
    except OSError:
        return [0]


def _user() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0
