"""What a device links of steps that several launchers share: their runnables as one."""

from __future__ import annotations

from collections.abc import Sequence

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
