"""Compiler: turns source texts of one language into machine code at build time, many kernels into
one binary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tactix.contracts.artifact import Binary, Source
from tactix.contracts.device import DeviceProperties


class Compiler:
    """``language``: of the sources it takes. ``launcher``: key of the launcher that runs what it
    makes.

    ``stopped``: set by the builder, to be asked on its thread now and then while it compiles: true
    once the build was stopped or its time is over, and then ``compile`` had better raise
    BuildCancelled. ``told``: set and called likewise, with how many of the sources are compiled.
    ``examples``: for the checks of packs, small sources, of a language that only this one takes.
    """

    key: str
    language: str
    launcher: str
    stopped: Callable[[], bool] = staticmethod(lambda: False)
    told: Callable[[int], None] = staticmethod(lambda done: None)

    def available(self) -> str:
        """Empty if it can compile here, else why not and what to install."""
        raise NotImplementedError(f"{self.key}: available")

    def identity(self) -> str:
        """Toolchain name, version and options: part of the timing cache's key."""
        raise NotImplementedError(f"{self.key}: identity")

    def quick(self) -> Compiler:
        """This compiler for builds that measure nothing, in which its own time counts more than
        that of its code; what it makes may depend on that, and then its identity does.
        """
        return self

    def seconds(self, sources: Sequence[Source]) -> float:
        """About how long it would take here and now to compile these, none of which it has compiled
        before; 0 where that is not known.
        """
        return 0.0

    def begin(self, device: DeviceProperties) -> None:
        """Begin, beside whoever calls it, what compiling for the device takes whatever the sources
        are: a build is sure to come. It raises nothing; ``compile`` tells what is wrong.
        """

    def compile(self, sources: Sequence[Source], device: DeviceProperties) -> list[Binary]:
        """One Binary per source, all with the same blob. Raises CompilerError with the compiler's
        own words.
        """
        raise NotImplementedError(f"{self.key}: compile")
