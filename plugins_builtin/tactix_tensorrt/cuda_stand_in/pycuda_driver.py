"""``pycuda.driver``, as pycuda names it, over host memory. Failures are pycuda's errors."""

from __future__ import annotations

import enum
import functools
import math
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from tactix_tensorrt.cuda_stand_in import addresses, device_facts
from tactix_tensorrt.cuda_stand_in.contexts import PRIMARY_CONTEXT
from tactix_tensorrt.cuda_stand_in.driver_enums import CUdevice_attribute
from tactix_tensorrt.cuda_stand_in.handles import Handle
from tactix_tensorrt.cuda_stand_in.machine import MACHINE, CopyDirection
from tactix_tensorrt.cuda_stand_in.memory import ON_DEVICE, MemoryPlace, StandInAllocation
from tactix_tensorrt.cuda_stand_in.statuses import (
    INVALID_VALUE,
    OUT_OF_MEMORY,
    STANDS_IN,
    TEXTS,
    CudaRefusal,
    no_gpu,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import DTypeLike

P = ParamSpec("P")
R = TypeVar("R")
Shape = int | Sequence[int]

__all__ = ["STANDS_IN"]


class PycudaError(Exception):
    """Base of pycuda's errors."""


class LogicError(PycudaError):
    """A call with arguments that CUDA refuses."""


class PycudaMemoryError(PycudaError):
    """Memory that could not be had."""


class PycudaRuntimeError(PycudaError):
    """What only a device could do."""


class LaunchError(PycudaError):
    """A kernel that failed."""


def _raising(call: Callable[P, R]) -> Callable[P, R]:
    """What CUDA refuses is one of pycuda's errors."""

    @functools.wraps(call)
    def raising(*args: P.args, **named: P.kwargs) -> R:
        try:
            return call(*args, **named)
        except CudaRefusal as e:
            MACHINE.refused(call.__name__, e)
            kinds = {OUT_OF_MEMORY: PycudaMemoryError, INVALID_VALUE: LogicError}
            kind = kinds.get(e.status, LogicError)
            raise kind(f"{call.__name__} failed: {TEXTS[e.status]}: {e.why}") from None

    return raising


class DeviceAllocation(Handle):
    """Device memory, which ends with its last reference or by ``free``."""

    def __init__(self, found: StandInAllocation) -> None:
        super().__init__(found.address)
        self._end = weakref.finalize(self, MACHINE.memory.abandon, found)

    def __index__(self) -> int:
        return int(self)

    def __add__(self, offset: int) -> int:
        return int(self) + offset

    def free(self) -> None:
        """Raises LogicError if that was done before."""
        _free(self)
        self._end.detach()


class PycudaStream:
    """A stream. ``handle``: its number, as other libraries take it."""

    def __init__(self, flags: int = 0) -> None:
        self.handle = MACHINE.make_stream()
        weakref.finalize(self, MACHINE.streams.destroy, self.handle)

    def synchronize(self) -> None:
        """All that was put into it is done."""

    def is_done(self) -> bool:
        return True

    def wait_for_event(self, event: PycudaEvent) -> None:
        MACHINE.event(event.handle)


class PycudaEvent:
    """A moment in a stream; times in milliseconds."""

    def __init__(self, flags: int = 0) -> None:
        self.handle = MACHINE.make_event()
        weakref.finalize(self, MACHINE.events.destroy, self.handle)

    def record(self, stream: PycudaStream | None = None) -> PycudaEvent:
        MACHINE.record(self.handle, _handle(stream))
        return self

    def synchronize(self) -> PycudaEvent:
        return self

    def query(self) -> bool:
        return True

    def time_since(self, event: PycudaEvent) -> float:
        return _time_between(event, self)

    def time_till(self, event: PycudaEvent) -> float:
        return _time_between(self, event)


class PycudaDevice:
    """The device of a number: there is one, 0."""

    def __init__(self, number: int) -> None:
        self._number = _device(number)

    @staticmethod
    def count() -> int:
        return 1

    def name(self) -> str:
        return device_facts.NAME

    def compute_capability(self) -> tuple[int, int]:
        return device_facts.CAPABILITY

    def total_memory(self) -> int:
        """Bytes."""
        return MACHINE.free_and_total().total

    def get_attribute(self, attr: int) -> int:
        return MACHINE.attribute(attr, self._number)

    def pci_bus_id(self) -> str:
        return "0000:00:00.0"

    def make_context(self, flags: int = 0) -> PycudaContext:
        return PycudaContext(MACHINE.contexts.create())

    def retain_primary_context(self) -> PycudaContext:
        return PycudaContext(PRIMARY_CONTEXT)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PycudaDevice)

    def __hash__(self) -> int:
        return hash(self._number)


class PycudaContext:
    """A context; several of its methods are about whichever is current, as pycuda has it."""

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def push(self) -> None:
        _push_context(self.handle)

    @staticmethod
    def pop() -> None:
        MACHINE.contexts.pop()

    def detach(self) -> None:
        _destroy_context(self.handle)

    @staticmethod
    def synchronize() -> None:
        """Nothing is under way."""

    @staticmethod
    def get_device() -> PycudaDevice:
        return PycudaDevice(0)

    @staticmethod
    def get_current() -> PycudaContext | None:
        found = MACHINE.contexts.current()
        return PycudaContext(found) if found else None


class ctx_flags(enum.IntEnum):
    """How a context is made."""

    SCHED_AUTO = 0
    SCHED_SPIN = 1
    SCHED_YIELD = 2
    SCHED_BLOCKING_SYNC = 4
    MAP_HOST = 8


class event_flags(enum.IntEnum):
    """How an event is made."""

    DEFAULT = 0
    BLOCKING_SYNC = 1
    DISABLE_TIMING = 2


class host_alloc_flags(enum.IntEnum):
    """How page-locked memory is made."""

    PORTABLE = 1
    DEVICEMAP = 2
    WRITECOMBINED = 4


class mem_attach_flags(enum.IntEnum):
    """Who may use managed memory."""

    GLOBAL = 1
    HOST = 2
    SINGLE = 4


class _DeviceAttributes:
    """CUDA's attributes of devices; pycuda leaves the prefix away."""

    def __getattr__(self, name: str) -> CUdevice_attribute:
        try:
            return CUdevice_attribute[f"CU_DEVICE_ATTRIBUTE_{name}"]
        except KeyError:
            raise AttributeError(f"the stand-in knows no device attribute {name}") from None


device_attribute = _DeviceAttributes()
Error = PycudaError
MemoryError = PycudaMemoryError
RuntimeError = PycudaRuntimeError
Stream = PycudaStream
Event = PycudaEvent
Device = PycudaDevice
Context = PycudaContext


def init(flags: int = 0) -> None:
    """There is nothing to start."""


def get_version() -> tuple[int, int, int]:
    """CUDA's version."""
    return device_facts.VERSION // 1000, device_facts.VERSION % 1000 // 10, 0


def get_driver_version() -> int:
    """CUDA's version, as the driver writes it."""
    return device_facts.VERSION


@_raising
def mem_alloc(bytes: int) -> DeviceAllocation:
    """Device memory. Raises LogicError, ``pycuda.driver.MemoryError``."""
    return DeviceAllocation(MACHINE.allocate_some(bytes, MemoryPlace.DEVICE))


def mem_get_info() -> tuple[int, int]:
    """Free and all memory, in bytes."""
    found = MACHINE.free_and_total()
    return found.free, found.total


@_raising
def memcpy_htod(dest: object, src: object) -> None:
    _copy(dest, src, CopyDirection.HOST_TO_DEVICE, src)


@_raising
def memcpy_htod_async(dest: object, src: object, stream: PycudaStream | None = None) -> None:
    MACHINE.stream(_handle(stream))
    _copy(dest, src, CopyDirection.HOST_TO_DEVICE, src)


@_raising
def memcpy_dtoh(dest: object, src: object) -> None:
    _copy(dest, src, CopyDirection.DEVICE_TO_HOST, dest)


@_raising
def memcpy_dtoh_async(dest: object, src: object, stream: PycudaStream | None = None) -> None:
    MACHINE.stream(_handle(stream))
    _copy(dest, src, CopyDirection.DEVICE_TO_HOST, dest)


@_raising
def memcpy_dtod(dest: object, src: object, size: int) -> None:
    MACHINE.copy(dest, src, size, CopyDirection.DEVICE_TO_DEVICE)


@_raising
def memcpy_dtod_async(
    dest: object, src: object, size: int, stream: PycudaStream | None = None
) -> None:
    MACHINE.stream(_handle(stream))
    MACHINE.copy(dest, src, size, CopyDirection.DEVICE_TO_DEVICE)


@_raising
def memset_d8(dest: object, data: int, size: int) -> None:
    MACHINE.fill(dest, data, size)


@_raising
def memset_d16(dest: object, data: int, size: int) -> None:
    MACHINE.fill(dest, data, size, 2)


@_raising
def memset_d32(dest: object, data: int, size: int) -> None:
    MACHINE.fill(dest, data, size, 4)


@_raising
def to_device(bf_obj: object) -> DeviceAllocation:
    """A copy of an array in device memory."""
    room = addresses.copy_end(bf_obj).room or 0
    made = DeviceAllocation(MACHINE.allocate_some(room, MemoryPlace.DEVICE))
    MACHINE.copy(made, bf_obj, room, CopyDirection.HOST_TO_DEVICE)
    return made


@_raising
def from_device(devptr: object, shape: Shape, dtype: DTypeLike, order: str = "C") -> np.ndarray:
    """An array of the caller's own with what device memory has."""
    import numpy as np

    made = np.empty(shape, dtype, "F" if order == "F" else "C")
    MACHINE.copy(made, devptr, made.nbytes, CopyDirection.DEVICE_TO_HOST)
    return made


def from_device_like(devptr: object, other_ary: np.ndarray) -> np.ndarray:
    """``from_device`` in the form of another array."""
    return from_device(devptr, other_ary.shape, other_ary.dtype)


@_raising
def pagelocked_empty(
    shape: Shape, dtype: DTypeLike, order: str = "C", mem_flags: int = 0
) -> np.ndarray:
    """An array in page-locked memory, which ends with the last view of it."""
    return _array(shape, dtype, order, MemoryPlace.PINNED)


def pagelocked_zeros(
    shape: Shape, dtype: DTypeLike, order: str = "C", mem_flags: int = 0
) -> np.ndarray:
    """``pagelocked_empty``, whose memory is zeros here."""
    return pagelocked_empty(shape, dtype, order, mem_flags)


def pagelocked_empty_like(array: np.ndarray, mem_flags: int = 0) -> np.ndarray:
    """``pagelocked_empty`` in the form of another array."""
    return pagelocked_empty(array.shape, array.dtype, "C", mem_flags)


@_raising
def managed_empty(
    shape: Shape, dtype: DTypeLike, order: str = "C", mem_flags: int = 0
) -> np.ndarray:
    """An array in memory that host and device share."""
    return _array(shape, dtype, order, MemoryPlace.MANAGED)


def managed_zeros(
    shape: Shape, dtype: DTypeLike, order: str = "C", mem_flags: int = 0
) -> np.ndarray:
    """``managed_empty``, whose memory is zeros here."""
    return managed_empty(shape, dtype, order, mem_flags)


@_raising
def module_from_file(filename: str) -> object:
    raise no_gpu("a module of kernels")


@_raising
def module_from_buffer(image: object) -> object:
    raise no_gpu("a module of kernels")


def _copy(dest: object, src: object, way: CopyDirection, host: object) -> None:
    """Copy as many bytes as the array on the host's side has."""
    room = addresses.copy_end(host).room
    if room is None:
        raise TypeError(f"{type(host).__name__} is no array")
    MACHINE.copy(dest, src, room, way)


def _array(shape: Shape, dtype: DTypeLike, order: str, place: MemoryPlace) -> np.ndarray:
    import numpy as np

    kind = np.dtype(dtype)
    extents = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    size = math.prod(int(e) for e in extents) * kind.itemsize
    if not size:
        return np.empty(extents, kind)
    found = MACHINE.allocate_some(size, place)
    assert found.pages is not None  # it was allocated
    whole = np.frombuffer(found.pages, np.uint8)
    weakref.finalize(whole, MACHINE.memory.abandon, found)
    return whole[:size].view(kind).reshape(extents, order="F" if order == "F" else "C")


def _handle(stream: PycudaStream | None) -> int:
    return stream.handle if stream is not None else 0


@_raising
def _free(memory: DeviceAllocation) -> None:
    MACHINE.free(memory, *ON_DEVICE)


@_raising
def _time_between(start: PycudaEvent, end: PycudaEvent) -> float:
    return MACHINE.milliseconds(start.handle, end.handle)


@_raising
def _device(number: int) -> int:
    return MACHINE.device(number)


@_raising
def _push_context(handle: int) -> None:
    MACHINE.contexts.push(handle)


@_raising
def _destroy_context(handle: int) -> None:
    MACHINE.contexts.destroy(handle)
