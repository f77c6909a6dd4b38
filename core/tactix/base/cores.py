"""How many cores this process may use."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """Those of the affinity mask where the system has one."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
