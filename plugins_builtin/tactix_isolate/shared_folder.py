"""A folder for what processes share."""

from __future__ import annotations

import os
import shutil

from tactix.base.scratch import ScratchFolder

ROOMY = 1 << 30
"""Free bytes from which on files that are memory are taken for what processes share."""


def shared_folder() -> ScratchFolder:
    """A new one: in memory where there is room."""
    memory = "/dev/shm"
    roomy = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > ROOMY
    return ScratchFolder(memory if roomy else None)
