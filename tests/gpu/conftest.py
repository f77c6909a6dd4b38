"""Everything here needs a CUDA device; without one it is skipped, and the reason is the device's
own.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tactix_cuda.device import CudaDevice, the_device

BUILTIN = Path(__file__).parents[1] / "builtin"
FOLDERS = ("cuda", "refit", "streaming", "tactics")
sys.path[:0] = [str(Path(__file__).parent), *(str(BUILTIN / name) for name in FOLDERS)]


@pytest.fixture(scope="session")
def device() -> CudaDevice:
    found = the_device()
    if why := found.available():
        pytest.skip(why)
    return found
