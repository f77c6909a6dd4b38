"""Compiler: turns source texts of one language into machine code at build time, many kernels into one binary."""

from __future__ import annotations

from collections.abc import Sequence

from tactix.contracts.artifact import Binary, Source
from tactix.contracts.device import DeviceProperties


class Compiler:
    """``language``: of the sources it takes. ``launcher``: key of the launcher that runs what it makes."""

    key: str
    language: str
    launcher: str

    def available(self) -> str:
        """Empty if it can compile here, else why not and what to install."""
        raise NotImplementedError(f"{self.key}: available")

    def identity(self) -> str:
        """Toolchain name, version and options: part of the timing cache's key."""
        raise NotImplementedError(f"{self.key}: identity")

    def compile(self, sources: Sequence[Source], device: DeviceProperties) -> list[Binary]:
        """One Binary per source, all with the same blob. Raises CompilerError with the compiler's own words."""
        raise NotImplementedError(f"{self.key}: compile")
