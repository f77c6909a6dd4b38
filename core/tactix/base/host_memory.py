"""How much memory this machine has, so that a size it cannot hold is an error before anything is
written there.

Many systems promise any size (Linux with ``vm.overcommit_memory=1``, as containers often set it)
and end the process when it writes more than there is.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

MEMINFO = Path("/proc/meminfo")
STATM = Path("/proc/self/statm")
CONTAINER = Path("/sys/fs/cgroup/memory.max")
"""What a container may have, in bytes, or ``max``: control groups, version 2."""


def physical_memory() -> int:
    """Bytes of memory, 0 where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return 0


def resident() -> int:
    """Bytes of this process that are in memory, 0 where the system does not tell."""
    told = _text(STATM).split()  # in pages: all of the process, what is in memory, ...
    return int(told[1]) * os.sysconf("SC_PAGE_SIZE") if told else 0


@cache
def largest() -> int:
    """Bytes that one piece can have at most: all memory of the machine or container, and swap; 0 if
    nobody tells.
    """
    told = [n for n in (physical_memory(), _container()) if n]
    return min(told) + _swap() if told else 0


def check_fits(nbytes: int) -> None:
    """Raises MemoryError for a size that this machine's memory and swap together do not have, or
    that no address reaches.
    """
    limit = largest() or sys.maxsize
    if nbytes > limit:
        raise MemoryError(
            f"cannot allocate {nbytes} bytes: this machine has {limit} of memory and swap"
        )


def check_array_fits(shape: Sequence[int], dtype: Any) -> None:
    """Raises MemoryError for an array that this machine cannot hold. ``dtype``: numpy's."""
    check_fits(math.prod(shape) * dtype.itemsize)


def _container() -> int:
    text = _text(CONTAINER).strip()
    return int(text) if text.isdecimal() else 0


def _swap() -> int:
    sizes = [
        line.split()[1] for line in _text(MEMINFO).splitlines() if line.startswith("SwapTotal:")
    ]
    return int(sizes[0]) << 10 if sizes else 0


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
