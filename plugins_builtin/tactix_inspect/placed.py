"""Inputs and outputs of a run where its device reads and writes them, and what copies take."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from tactix.base.arrays import Array
from tactix.contracts.allocator import Allocator
from tactix.contracts.device import Device
from tactix.run.arrays import address_of
from tactix.run.memory import Memory
from tactix_inspect.profile import CopyTime

TIMES = 5


@dataclass(frozen=True)
class PlacedArray:
    """An array of the host, and its address on the device."""

    name: str
    array: Array
    address: int


class PlacedArrays:
    """Contiguous host arrays, by name, of what runs on a device: where they are if it reads the
    host's memory, else copies. ``addresses``: of inputs, then outputs. Raises AllocationError.
    """

    def __init__(
        self,
        device: Device,
        allocator: Allocator,
        inputs: Sequence[tuple[str, Array]],
        outputs: Sequence[tuple[str, Array]],
    ) -> None:
        self._device, arrays = device, [x for _, x in (*inputs, *outputs)]
        self._memory = [] if device.host_memory else [_room(allocator, x) for x in arrays]
        self.addresses = [m.address for m in self._memory] or [address_of(x) for x in arrays]
        both = zip((*inputs, *outputs), self.addresses, strict=True)
        places = [PlacedArray(name, x, address) for (name, x), address in both]
        self._inputs, self._outputs = places[: len(inputs)], places[len(inputs) :]
        if not device.host_memory:
            for p in self._inputs:
                device.copy_in(p.address, p.array)

    def fetch(self) -> None:
        """Bring outputs back to their arrays."""
        if not self._device.host_memory:
            for p in self._outputs:
                self._device.copy_out(p.array, p.address)

    def copies(self) -> tuple[CopyTime, ...]:
        """How long each copy takes by itself; none where the device reads the host's memory."""
        if self._device.host_memory:
            return ()
        into = [
            _timed(p, True, partial(self._device.copy_in, p.address, p.array)) for p in self._inputs
        ]
        back = [
            _timed(p, False, partial(self._device.copy_out, p.array, p.address))
            for p in self._outputs
        ]
        return (*into, *back)


def _room(allocator: Allocator, x: Array) -> Memory:
    return Memory.allocate(allocator, max(1, x.nbytes))


def _timed(place: PlacedArray, into: bool, copy: Callable[[], None]) -> CopyTime:
    seconds = []
    for _ in range(TIMES):
        begin = time.perf_counter()
        copy()
        seconds.append(time.perf_counter() - begin)
    return CopyTime(place.name, into, place.array.nbytes, statistics.median(seconds))
