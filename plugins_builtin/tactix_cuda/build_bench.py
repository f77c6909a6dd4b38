"""Candidates of a build on a CUDA device are tried in a process of their own, where another one may
have the device.
"""

from __future__ import annotations

from tactix_cuda.bench import CudaBench
from tactix_isolate.apart import ApartBench


class CudaBuildBench(ApartBench, CudaBench):
    """Like CudaBench where it does not begin, and where no other process may have the device."""

    def begin(self) -> None:
        if not self.device.stands_in:
            super().begin()

    def why_here(self) -> str:
        return self.device.why_alone()
