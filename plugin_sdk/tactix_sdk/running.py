"""For launchers whose steps are calls from Python: of a library through ctypes, or of anything over
arrays.

class AcmeLauncher(Launcher):
    key = "acme.product@1"

    def link(self, steps, ctx):
        # objects with ``size(env)`` and ``run(addresses)``
        return Calls([Product(s) for s in steps])
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any, Protocol

from tactix.base.dims import Env


class StepCall(Protocol):
    """A step."""

    def size(self, env: Env) -> None:
        """The shapes are these from now on."""

    def run(self, addresses: Sequence[int]) -> None:
        """Run once; ``addresses`` of the plan's buffers, by number."""


class Calls:
    """The Runnable of such steps, in order."""

    def __init__(self, calls: Sequence[StepCall]) -> None:
        self.calls, self.addresses = tuple(calls), list[int]()

    def bind(self, env: Env, addresses: Sequence[int]) -> None:
        self.addresses = list(addresses)
        for c in self.calls:
            c.size(env)

    def rebind(self, buffer: int, address: int) -> None:
        self.addresses[buffer] = address

    def __call__(self) -> None:
        for c in self.calls:
            c.run(self.addresses)

    def repeat(self, times: int) -> None:
        for _ in range(times):
            self()


def array_at(address: int, shape: tuple[int, ...], dtype: Any) -> Any:
    """The row-major elements of a numpy dtype in the host's memory at an address, as an array."""
    import numpy as np

    size = math.prod(shape) * dtype.itemsize
    memory: Any = (ctypes.c_char * size).from_address(address) if size else bytearray()
    return np.ndarray(shape, dtype, memory)
