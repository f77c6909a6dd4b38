"""Other content for weights in device memory, while contexts run: it is sent beside the old one,
then put in its place.

Graphs, tensor maps and the windows of the L2 cache hold addresses, which stay: nothing is bound
again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tactix.contracts.allocator import Allocator
from tactix.run.blob_memory import BlobMemory

if TYPE_CHECKING:
    from tactix_cuda.device import CudaDevice


class WeightUpdate:
    """One refit. ``fresh``: bytes in pinned memory, by blob; ``homes``: where blobs lie on the
    device.

    As much device memory as they take is needed until it is over; what has no home stays in such
    memory, ``kept``. Raises AllocationError.
    """

    def __init__(
        self,
        device: CudaDevice,
        allocator: Allocator,
        fresh: Mapping[str, Any],
        homes: Mapping[str, int],
    ) -> None:
        self._device, self._fresh = device, fresh
        self._homes = {blob: homes[blob] for blob in fresh if blob in homes}
        self._spare = BlobMemory(allocator, {b: fresh[b].nbytes for b in self._homes})
        added = BlobMemory(allocator, {b: a.nbytes for b, a in fresh.items() if b not in homes})
        self.kept, self._new = added.memory, added.addresses()
        self._places = {**self._spare.addresses(), **self._new}
        self._stream = device.create_stream()

    def send(self, blob: str) -> None:
        """Its bytes are there: copy them to the device, beside what runs there. Returns at once."""
        source = self._fresh[blob].__array_interface__["data"][0]
        self._copy("cuMemcpyHtoDAsync", self._places[blob], source, blob)

    def arrived(self) -> None:
        """Wait for what was sent."""
        self._stream.synchronize()

    def settled(self) -> Mapping[str, int]:
        """Once everything that is queued on the device is over, put it in place; where each lies
        from now on.

        Nothing that reads weights may be queued meanwhile.
        """
        self._device.synchronize()
        for blob, home in self._homes.items():
            self._copy(
                "cuMemcpyDtoDAsync",
                home,
                self._device.driver.api.CUdeviceptr(self._places[blob]),
                blob,
            )
        self._stream.synchronize()
        return {**self._homes, **self._new}

    def _copy(self, call: str, to: int, source: Any, blob: str) -> None:
        if size := self._fresh[blob].nbytes:
            device = self._device
            device.activate()
            device.driver.call(
                call, device.driver.api.CUdeviceptr(to), source, size, self._stream.native
            )
