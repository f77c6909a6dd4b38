"""Pieces of device memory with an owner, and the weights of a plan in it."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Mapping
from typing import Any

from tactix.contracts.allocator import Allocator, allocated
from tactix.contracts.device import Device
from tactix.plan.schema import Plan
from tactix.run.arrays import address_of

ALIGNMENT = 64


class Memory:
    """An address and a size; given back when nothing refers to it any more, unless it is the
    user's.
    """

    def __init__(self, address: int, size: int, allocator: Allocator | None = None) -> None:
        self.address, self.size = address, size
        if allocator is not None:
            weakref.finalize(
                self, allocator.deallocate, address
            ).atexit = False  # the system takes it all then

    @classmethod
    def allocate(cls, allocator: Allocator, size: int) -> Memory:
        """Raises AllocationError."""
        return cls(allocated(allocator, size, ALIGNMENT), size, allocator) if size else cls(0, 0)

    def view(self, offset: int, size: int) -> Any:
        """Bytes of host memory as a read-only array, which keeps the memory alive."""
        import numpy as np

        raw: Any = (ctypes.c_ubyte * size).from_address(self.address + offset)
        raw.owner = self
        out = np.frombuffer(raw, np.uint8)
        out.flags.writeable = False
        return out


class Weights:
    """Addresses of the blobs of a plan and its bodies: in the mapped file if the device reads it,
    else in its memory.

    A copy keeps the order of the blobs, so that weights follow each other as steps need them.
    ``blobs``: the content; a host copy takes the place of the original, so that the plan need not
    keep both. Raises AllocationError.
    """

    def __init__(self, plan: Plan, device: Device, allocator: Allocator, copy: bool) -> None:
        import numpy as np

        named = (
            b.blob for p in plan.nested() for b in p.buffers
        )  # bodies may share weights, which are had once
        used = {
            name: memoryview(plan.blobs[name]).cast("B") for name in named if name in plan.blobs
        }
        arrays: dict[str, Any] = {
            name: np.frombuffer(b, np.uint8) for name, b in used.items() if len(b)
        }
        self.nbytes = sum(a.nbytes for a in arrays.values())
        self.blobs = dict(plan.blobs)
        aligned = all(address_of(a) % ALIGNMENT == 0 for a in arrays.values())
        if device.host_memory and aligned and not copy:
            self.addresses: Mapping[str, int] = {name: address_of(a) for name, a in arrays.items()}
        else:
            self.addresses = self._copy(arrays, device, allocator)

    def _copy(
        self, arrays: Mapping[str, Any], device: Device, allocator: Allocator
    ) -> dict[str, int]:
        offsets, end = {}, 0
        for name, a in arrays.items():
            offsets[name] = end
            end += -(-a.nbytes // ALIGNMENT) * ALIGNMENT
        memory = Memory.allocate(allocator, end)
        self.memory = [memory]
        addresses = {name: memory.address + offset for name, offset in offsets.items()}
        device.copy_all(list(zip(addresses.values(), arrays.values(), strict=True)))
        if device.host_memory:
            self.blobs |= {
                name: memory.view(offsets[name], a.nbytes).data for name, a in arrays.items()
            }
        return addresses
