"""libcudart as ctypes users find it: functions with C's types, over the memory of all faces.

They are ctypes callbacks, so that they take what functions of a library take (``byref``,
``c_void_p``, integers), and callers may set ``argtypes`` and ``restype`` as they do there.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from ctypes import c_float, c_int, c_size_t, c_uint, c_void_p

from tactix_tensorrt.cuda_stand_in import addresses, device_facts
from tactix_tensorrt.cuda_stand_in.machine import MACHINE, Rows
from tactix_tensorrt.cuda_stand_in.memory import MemoryPlace
from tactix_tensorrt.cuda_stand_in.runtime_enums import cudaError_t
from tactix_tensorrt.cuda_stand_in.statuses import (
    INVALID_VALUE,
    SUCCESS,
    TEXTS,
    UNKNOWN_CODE,
    CudaRefusal,
)

CType = type[c_void_p] | type[c_size_t] | type[c_int] | type[c_uint]
Out = type[c_void_p] | type[c_size_t] | type[c_int] | type[c_float]

_INT = ctypes.sizeof(c_int)
_ENTRIES: dict[str, tuple[Callable[..., int], tuple[CType, ...]]] = {}
"""Functions by name, with the types of their arguments."""


def _entry(*types: CType) -> Callable[[Callable[..., None]], Callable[..., int]]:
    """A function of the library, which gives a status."""

    def enter(call: Callable[..., None]) -> Callable[..., int]:
        @functools.wraps(call)
        def status(*args: int | None) -> int:
            try:
                call(*(a or 0 for a in args))
            except CudaRefusal as e:
                MACHINE.refused(call.__name__, e)
                return e.status
            return SUCCESS

        _ENTRIES[call.__name__] = status, types
        return status

    return enter


def _put(kind: Out, where: int, value: float) -> None:
    """Write what a call gives through a pointer of the caller's."""
    _check_out(kind, where)
    kind.from_address(where).value = value


def _check_out(kind: Out, where: int) -> None:
    if not addresses.is_mapped(where, ctypes.sizeof(kind)):
        raise CudaRefusal(INVALID_VALUE, f"{where:#x}, where the result goes, is no memory")


def _allocate(where: int, size: int, place: MemoryPlace) -> None:
    _check_out(c_void_p, where)
    _put(c_void_p, where, MACHINE.allocate(size, place))


@_entry(c_void_p, c_size_t)
def cudaMalloc(devPtr: int, size: int) -> None:
    _allocate(devPtr, size, MemoryPlace.DEVICE)


@_entry(c_void_p, c_size_t, c_void_p)
def cudaMallocAsync(devPtr: int, size: int, stream: int) -> None:
    MACHINE.stream(stream)
    _allocate(devPtr, size, MemoryPlace.DEVICE)


@_entry(c_void_p, c_size_t, c_uint)
def cudaMallocManaged(devPtr: int, size: int, flags: int) -> None:
    _allocate(devPtr, size, MemoryPlace.MANAGED)


@_entry(c_void_p, c_size_t)
def cudaMallocHost(ptr: int, size: int) -> None:
    _allocate(ptr, size, MemoryPlace.PINNED)


@_entry(c_void_p, c_size_t, c_uint)
def cudaHostAlloc(ptr: int, size: int, flags: int) -> None:
    _allocate(ptr, size, MemoryPlace.PINNED)


@_entry(c_void_p)
def cudaFree(devPtr: int) -> None:
    MACHINE.free_on_device(devPtr)


@_entry(c_void_p, c_void_p)
def cudaFreeAsync(devPtr: int, stream: int) -> None:
    MACHINE.stream(stream)
    MACHINE.free_on_device(devPtr)


@_entry(c_void_p)
def cudaFreeHost(ptr: int) -> None:
    MACHINE.free(ptr, MemoryPlace.PINNED)


@_entry(c_void_p, c_void_p, c_size_t, c_int)
def cudaMemcpy(dst: int, src: int, count: int, kind: int) -> None:
    MACHINE.copy(dst, src, count, kind)


@_entry(c_void_p, c_void_p, c_size_t, c_int, c_void_p)
def cudaMemcpyAsync(dst: int, src: int, count: int, kind: int, stream: int) -> None:
    MACHINE.stream(stream)
    MACHINE.copy(dst, src, count, kind)


@_entry(c_void_p, c_size_t, c_void_p, c_size_t, c_size_t, c_size_t, c_int)
def cudaMemcpy2D(
    dst: int, dpitch: int, src: int, spitch: int, width: int, height: int, kind: int
) -> None:
    MACHINE.copy_rows(Rows(dst, dpitch), Rows(src, spitch), (width, height), kind)


@_entry(c_void_p, c_size_t, c_void_p, c_size_t, c_size_t, c_size_t, c_int, c_void_p)
def cudaMemcpy2DAsync(
    dst: int, dpitch: int, src: int, spitch: int, width: int, height: int, kind: int, stream: int
) -> None:
    MACHINE.stream(stream)
    MACHINE.copy_rows(Rows(dst, dpitch), Rows(src, spitch), (width, height), kind)


@_entry(c_void_p, c_void_p)
def cudaPointerGetAttributes(attributes: int, ptr: int) -> None:
    facts = MACHINE.pointer_facts(ptr)
    _put(c_int, attributes, facts.kind)
    _put(c_int, attributes + _INT, facts.device)
    _put(c_void_p, attributes + 2 * _INT, facts.device_pointer)
    _put(c_void_p, attributes + 2 * _INT + ctypes.sizeof(c_void_p), facts.host_pointer)


@_entry(c_void_p, c_int, c_size_t)
def cudaMemset(devPtr: int, value: int, count: int) -> None:
    MACHINE.fill(devPtr, value, count)


@_entry(c_void_p, c_int, c_size_t, c_void_p)
def cudaMemsetAsync(devPtr: int, value: int, count: int, stream: int) -> None:
    MACHINE.stream(stream)
    MACHINE.fill(devPtr, value, count)


@_entry(c_void_p)
def cudaStreamCreate(stream: int) -> None:
    _check_out(c_void_p, stream)
    _put(c_void_p, stream, MACHINE.make_stream())


@_entry(c_void_p, c_uint)
def cudaStreamCreateWithFlags(stream: int, flags: int) -> None:
    _check_out(c_void_p, stream)
    _put(c_void_p, stream, MACHINE.make_stream())


@_entry(c_void_p)
def cudaStreamDestroy(stream: int) -> None:
    MACHINE.destroy_stream(stream)


@_entry(c_void_p)
def cudaStreamSynchronize(stream: int) -> None:
    MACHINE.stream(stream)


@_entry(c_void_p)
def cudaStreamQuery(stream: int) -> None:
    MACHINE.stream(stream)


@_entry(c_void_p)
def cudaEventCreate(event: int) -> None:
    _check_out(c_void_p, event)
    _put(c_void_p, event, MACHINE.make_event())


@_entry(c_void_p, c_void_p)
def cudaEventRecord(event: int, stream: int) -> None:
    MACHINE.record(event, stream)


@_entry(c_void_p)
def cudaEventSynchronize(event: int) -> None:
    MACHINE.event(event)


@_entry(c_void_p, c_void_p, c_void_p)
def cudaEventElapsedTime(ms: int, start: int, end: int) -> None:
    _put(c_float, ms, MACHINE.milliseconds(start, end))


@_entry(c_void_p)
def cudaEventDestroy(event: int) -> None:
    MACHINE.destroy_event(event)


@_entry()
def cudaDeviceSynchronize() -> None:
    """Nothing is under way."""


@_entry(c_void_p)
def cudaGetDevice(device: int) -> None:
    _put(c_int, device, 0)


@_entry(c_int)
def cudaSetDevice(device: int) -> None:
    MACHINE.device(device)


@_entry(c_void_p)
def cudaGetDeviceCount(count: int) -> None:
    _put(c_int, count, 1)


@_entry(c_void_p, c_void_p)
def cudaMemGetInfo(free: int, total: int) -> None:
    found = MACHINE.free_and_total()
    _put(c_size_t, free, found.free)
    _put(c_size_t, total, found.total)


@_entry(c_void_p)
def cudaRuntimeGetVersion(version: int) -> None:
    _put(c_int, version, device_facts.VERSION)


def _last_status() -> int:
    return MACHINE.last_status(forget=True)


_NAMES = {int(e): ctypes.create_string_buffer(e.name.encode()) for e in cudaError_t}
_STRINGS = {code: ctypes.create_string_buffer(text.encode()) for code, text in TEXTS.items()}
_UNKNOWN = ctypes.create_string_buffer(UNKNOWN_CODE.encode())


def _name(status: int) -> int:
    return ctypes.addressof(_NAMES.get(status, _UNKNOWN))


def _string(status: int) -> int:
    return ctypes.addressof(_STRINGS.get(status, _UNKNOWN))


class CudartLibrary:
    """What ``ctypes.CDLL("libcudart.so")`` gives while the stand-in is installed. Functions are
    attributes, or items by name; each time the same.
    """

    def __init__(self, name: str = "libcudart.so") -> None:
        self._name, self._handle = name, 0
        made = {
            name: ctypes.CFUNCTYPE(c_int, *types)(call) for name, (call, types) in _ENTRIES.items()
        }
        text = ctypes.CFUNCTYPE(c_void_p, c_int)
        made["cudaGetErrorName"], made["cudaGetErrorString"] = text(_name), text(_string)
        made["cudaGetLastError"] = ctypes.CFUNCTYPE(c_int)(_last_status)
        self._functions = made
        for function, pointer in made.items():
            setattr(self, function, pointer)

    def __getattr__(self, name: str) -> object:
        raise AttributeError(
            f"the stand-in for libcudart has no {name}; it has {', '.join(sorted(self._functions))}"
        )

    def __getitem__(self, name: str) -> object:
        return self._functions[name] if name in self._functions else getattr(self, name)

    def __repr__(self) -> str:
        return f"<tactix's stand-in for {self._name}>"
