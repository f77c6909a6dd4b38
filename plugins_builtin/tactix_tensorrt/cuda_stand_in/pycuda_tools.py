"""``pycuda.tools``: contexts and pools of memory."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from tactix_tensorrt.cuda_stand_in import pycuda_driver as driver
from tactix_tensorrt.cuda_stand_in.pycuda_driver import PycudaContext, PycudaDevice, Shape

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import DTypeLike

R = TypeVar("R")


def get_default_device(default: int = 0) -> PycudaDevice:
    return PycudaDevice(default)


def make_default_context(
    ctx_maker: Callable[[PycudaDevice], PycudaContext] | None = None,
) -> PycudaContext:
    """A context of the device, which is current then."""
    return (ctx_maker or PycudaDevice.make_context)(PycudaDevice(0))


def context_dependent_memoize(function: Callable[..., R]) -> Callable[..., R]:
    """Call it once for the same arguments."""
    return functools.cache(function)


def clear_context_caches() -> None:
    """There are none."""


class DeviceMemoryPool:
    """Memory that ends with what holds it: the stand-in keeps none for later."""

    held_blocks = 0

    def allocate(self, size: int) -> driver.DeviceAllocation:
        return driver.mem_alloc(size)

    def free_held(self) -> None:
        """Nothing is held."""

    def stop_holding(self) -> None:
        """Nothing is held."""


class PageLockedMemoryPool:
    """As ``DeviceMemoryPool``, of arrays on the host."""

    held_blocks = 0

    def allocate(self, shape: Shape, dtype: DTypeLike, order: str = "C") -> np.ndarray:
        return driver.pagelocked_empty(shape, dtype, order)

    def free_held(self) -> None:
        """Nothing is held."""

    def stop_holding(self) -> None:
        """Nothing is held."""
