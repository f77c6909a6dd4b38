"""How much of the machine other processes use while candidates are timed: by so much times may be
off.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

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
        wall, cores = time.perf_counter() - self._begin, os.cpu_count() or 1
        if self._busy < 0 or wall < SHORTEST:
            return 0.0
        used = (busy() - self._busy - (own() - self._own)) / wall
        return 0.0 if used < NOTABLE else min(used / max(cores - used, 0.5), float(cores))


def busy() -> float:
    """Seconds of all cores since the start of the system that were not idle; -1 where nothing
    tells.
    """
    try:
        fields = STAT.read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]
        user, nice, system, _, _, irq, soft, steal = map(int, fields)
        return (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, AttributeError):
        return -1.0


def own() -> float:
    """Seconds of cores that this process and its ended children used."""
    t = os.times()
    return t.user + t.system + t.children_user + t.children_system
