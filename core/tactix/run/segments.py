"""What a device links of steps that several launchers share: their runnables as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from tactix.base.dims import Env
from tactix.contracts.launcher import Runnable


class Segments:
    """Runs of several launchers, one after the other."""

    def __init__(self, parts: Sequence[Runnable]) -> None:
        self.parts = tuple(parts)

    def bind(self, env: Env, addresses: Sequence[int]) -> None:
        for p in self.parts:
            p.bind(env, addresses)

    def rebind(self, buffer: int, address: int) -> None:
        for p in self.parts:
            p.rebind(buffer, address)

    def __call__(self) -> None:
        for p in self.parts:
            p()

    def repeat(self, times: int) -> None:
        for _ in range(times):
            self()


class Profiler(Protocol):
    """What is told how long each step of a run took."""

    def report_layer_time(self, layer_name: str, ms: float, /) -> None: ...


class TimedSteps(Segments):
    """Steps that run one by one, with nothing beside them; each run is told to a profiler once it
    is over. ``timed``: runs a part once, and gives its seconds. ``parts``: one for each name.
    """

    def __init__(
        self,
        parts: Sequence[Runnable],
        names: Sequence[str],
        timed: Callable[[Runnable], float],
        profiler: Profiler,
    ) -> None:
        super().__init__(parts)
        self._names, self._timed, self._profiler = tuple(names), timed, profiler

    def __call__(self) -> None:
        seconds = [self._timed(p) for p in self.parts]
        for name, s in zip(self._names, seconds, strict=True):
            self._profiler.report_layer_time(name, s * 1e3)
