"""How much other processes use of the cores that candidates are timed on: by so much times may be
off.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from tactix.base.cores import usable_cores

STAT = Path("/proc/stat")
NOTABLE = 0.2
"""Cores that others use from which on times are doubted."""
SHORTEST = 0.25
"""Seconds in which the system's ticks, of 10 ms as a rule, tell NOTABLE from a chance."""


class OtherProcesses:
    """Processes beside this one and its ended children, from now on. Known on Linux alone."""

    def __init__(self) -> None:
        self._busy, self._own, self._begin = busy(), own(), time.perf_counter()

    def delay(self) -> float:
        """By what share of itself a time may be too long, if others took their cores evenly from
        all; 0 if unknown.
        """
        wall, cores = time.perf_counter() - self._begin, usable_cores()
        if self._busy < 0 or wall < SHORTEST:
            return 0.0
        used = (busy() - self._busy - (own() - self._own)) / wall
        return 0.0 if used < NOTABLE else min(used / max(cores - used, 0.5), float(cores))


def busy() -> float:
    """Seconds since the start of the system in which cores that this process may use were not idle,
    of all of them together; -1 where nothing tells.
    """
    try:
        rows = dict(row.split(" ", 1) for row in STAT.read_text(encoding="ascii").splitlines())
        cores = sorted(os.sched_getaffinity(0))
        return sum(_ticks(rows[f"cpu{core}"]) for core in cores) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, AttributeError, KeyError):
        return -1.0


def _ticks(row: str) -> int:
    """Of a core that was not idle."""
    user, nice, system, _, _, irq, soft, steal = map(int, row.split()[:8])
    return user + nice + system + irq + soft + steal


def own() -> float:
    """Seconds of cores that this process and its ended children used."""
    t = os.times()
    return t.user + t.system + t.children_user + t.children_system
