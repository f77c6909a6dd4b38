"""What tactics of NVIDIA's libraries share: they ask a library on the device that is here, for no
other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from tactix.base.errors import TactixError
from tactix.contracts.device import DeviceProperties
from tactix.contracts.tactic import Tactic, Work
from tactix_cuda.device import CudaDevice, the_device
from tactix_cuda.library import LoadedLibrary

L = TypeVar("L", bound=LoadedLibrary)


class LibraryTactic(Tactic[Work], Generic[Work, L]):
    """``name``: of the library; ``find``: what loads it for a device. ``library``: one that is
    given instead.
    """

    device = "cuda"
    vendor = True
    name: str
    find: Callable[[CudaDevice], L]

    def __init__(self, library: L | None = None) -> None:
        self._given = library

    def library(self) -> L:
        """With its device active on this thread. Raises ExecutionError if it is not here."""
        if self._given is not None:
            return self._given
        device = the_device()
        device.activate()
        return type(self).find(device)

    def why_not(self, device: DeviceProperties) -> str:
        """Empty if the library can be asked for that device."""
        if self._given is not None:
            return ""
        here = the_device()
        if why := here.available():
            return f"{self.name} chooses on the device itself: {why}"
        own = here.properties().name
        if device.name != own:
            return f"{self.name} chooses for {own}, which is here, not for {device.name}"
        try:
            self.library()
        except TactixError as e:
            return str(e)
        return ""
