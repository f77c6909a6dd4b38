"""``pycuda.gpuarray``: arrays in device memory, which are copied whole; arithmetic has kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tactix_tensorrt.cuda_stand_in import pycuda_driver as driver
from tactix_tensorrt.cuda_stand_in.pycuda_driver import PycudaStream

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import DTypeLike

Shape = int | Sequence[int]
Allocator = Callable[[int], driver.DeviceAllocation]


class GPUArray:
    """A contiguous array. ``gpudata``: its memory; ``ptr``: its address. Without elements it has
    none. Raises LogicError, ``pycuda.driver.MemoryError``.
    """

    def __init__(
        self,
        shape: Shape,
        dtype: DTypeLike,
        allocator: Allocator | None = None,
        order: str = "C",
        gpudata: driver.DeviceAllocation | None = None,
    ) -> None:
        import numpy as np

        self.shape = (shape,) if isinstance(shape, int) else tuple(int(n) for n in shape)
        self.dtype, self.order = np.dtype(dtype), order
        self.size = math.prod(self.shape)
        self.nbytes = self.size * self.dtype.itemsize
        if gpudata is None and self.nbytes:
            gpudata = (allocator or driver.mem_alloc)(self.nbytes)
        self.gpudata = gpudata

    @property
    def ptr(self) -> int:
        return 0 if self.gpudata is None else int(self.gpudata)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        """In bytes."""
        return self._empty().strides

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return repr(self.get())

    def _empty(self) -> np.ndarray:
        import numpy as np

        return np.empty(self.shape, self.dtype, "F" if self.order == "F" else "C")

    def get(self, ary: np.ndarray | None = None, pagelocked: bool = False) -> np.ndarray:
        """Its content, in ``ary`` if that is given. Raises ValueError for one of another size."""
        found = self._empty() if ary is None else ary
        self._check(found)
        if self.nbytes:
            driver.memcpy_dtoh(found, self.ptr)
        return found

    def get_async(
        self, stream: PycudaStream | None = None, ary: np.ndarray | None = None
    ) -> np.ndarray:
        return self.get(ary)

    def set(self, ary: np.ndarray) -> None:
        """Let it have an array's content. Raises ValueError for one of another form."""
        self._check(ary)
        if self.nbytes:
            driver.memcpy_htod(self.ptr, ary)

    def set_async(self, ary: np.ndarray, stream: PycudaStream | None = None) -> None:
        self.set(ary)

    def fill(self, value: complex) -> GPUArray:
        """Let each element have a value."""
        whole = self._empty()
        whole.fill(value)
        self.set(whole)
        return self

    def copy(self) -> GPUArray:
        out = GPUArray(self.shape, self.dtype, order=self.order)
        if self.nbytes:
            driver.memcpy_dtod(out.ptr, self.ptr, self.nbytes)
        return out

    def reshape(self, *shape: int | Sequence[int]) -> GPUArray:
        """The same memory in another shape; one size may be -1. Raises ValueError."""
        sizes = [n for part in shape for n in ((part,) if isinstance(part, int) else part)]
        wanted = self._empty().reshape(sizes).shape
        return GPUArray(wanted, self.dtype, order=self.order, gpudata=self.gpudata)

    def ravel(self) -> GPUArray:
        return self.reshape(-1)

    def _check(self, ary: np.ndarray) -> None:
        if ary.shape != self.shape or ary.dtype != self.dtype:
            raise ValueError(
                f"an array of {self.dtype} {self.shape} is needed, not of {ary.dtype} {ary.shape}"
            )


def empty(
    shape: Shape, dtype: DTypeLike, allocator: Allocator | None = None, order: str = "C"
) -> GPUArray:
    """An array, whose memory is zeros here."""
    return GPUArray(shape, dtype, allocator, order)


def zeros(
    shape: Shape, dtype: DTypeLike, allocator: Allocator | None = None, order: str = "C"
) -> GPUArray:
    return GPUArray(shape, dtype, allocator, order).fill(0)


def empty_like(other_ary: GPUArray) -> GPUArray:
    return GPUArray(other_ary.shape, other_ary.dtype, order=other_ary.order)


def zeros_like(other_ary: GPUArray) -> GPUArray:
    return empty_like(other_ary).fill(0)


def to_gpu(ary: np.ndarray, allocator: Allocator | None = None) -> GPUArray:
    """A copy of an array."""
    fortran = ary.flags.f_contiguous and not ary.flags.c_contiguous
    out = GPUArray(ary.shape, ary.dtype, allocator, "F" if fortran else "C")
    out.set(ary)
    return out


def to_gpu_async(
    ary: np.ndarray, allocator: Allocator | None = None, stream: PycudaStream | None = None
) -> GPUArray:
    return to_gpu(ary, allocator)
