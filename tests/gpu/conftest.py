"""Everything here needs a CUDA device; without one it is skipped, and the reason is the device's own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tactix_builtin.cuda.device import CudaDevice, the_device

BUILTIN = Path(__file__).parents[1] / "builtin"
FOLDERS = ("cuda", "refit", "streaming", "tactics")
sys.path[:0] = [str(Path(__file__).parent), *(str(BUILTIN / name) for name in FOLDERS)]


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault("TACTIX_CACHE_DIR", str(config.cache.mkdir("tactix-objects")))  # type: ignore[union-attr]


@pytest.fixture(scope="session")
def device() -> CudaDevice:
    found = the_device()
    if why := found.available():
        pytest.skip(why)
    return found
