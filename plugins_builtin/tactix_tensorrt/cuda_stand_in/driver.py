"""``cuda.bindings.driver`` and ``cuda.cuda``, as cuda-python names them, over host memory.

Every call gives ``(CUresult, value...)``; values are None after a failure.
"""

from __future__ import annotations

from tactix_tensorrt.cuda_stand_in import addresses, device_facts
from tactix_tensorrt.cuda_stand_in.answers import CudaAnswers
from tactix_tensorrt.cuda_stand_in.contexts import PRIMARY_CONTEXT
from tactix_tensorrt.cuda_stand_in.driver_enums import (
    CUctx_flags,
    CUdevice_attribute,
    CUevent_flags,
    CUmemAttach_flags,
    CUresult,
    CUstream_flags,
)
from tactix_tensorrt.cuda_stand_in.handles import Handle
from tactix_tensorrt.cuda_stand_in.machine import MACHINE, CopyDirection
from tactix_tensorrt.cuda_stand_in.memory import MemoryPlace
from tactix_tensorrt.cuda_stand_in.statuses import (
    INVALID_HANDLE,
    INVALID_VALUE,
    STANDS_IN,
    TEXTS,
    CudaRefusal,
    no_gpu,
)

__all__ = [
    "STANDS_IN",
    "CUctx_flags",
    "CUdevice_attribute",
    "CUevent_flags",
    "CUmemAttach_flags",
    "CUresult",
    "CUstream_flags",
]

CUDA_VERSION = device_facts.VERSION
CU_STREAM_LEGACY = 1
CU_STREAM_PER_THREAD = 2
CU_MEMHOSTALLOC_PORTABLE = 1
CU_MEMHOSTALLOC_DEVICEMAP = 2
CU_MEMHOSTALLOC_WRITECOMBINED = 4

_status = CudaAnswers(CUresult, 0)
_value = CudaAnswers(CUresult, 1)
_two_values = CudaAnswers(CUresult, 2)


class CUdevice(Handle):
    """A device's number."""


class cuuint32_t(Handle):
    """A number, such as an attribute's."""


class cuuint64_t(Handle):
    """As cuuint32_t, of 64 bits."""


class CUdeviceptr(Handle):
    """An address in device memory."""


class CUcontext(Handle):
    """A context."""


class CUstream(Handle):
    """A stream."""


class CUevent(Handle):
    """An event."""


class CUmemoryPool(Handle):
    """A pool of memory."""


class CUmodule(Handle):
    """A module of kernels: none can be had here."""


class CUfunction(Handle):
    """A kernel: none can be had here."""


@_status
def cuInit(Flags: int) -> None:
    """There is nothing to start."""


@_value
def cuDriverGetVersion() -> int:
    return device_facts.VERSION


@_value
def cuGetErrorName(error: int) -> bytes:
    names = {int(e): e.name for e in CUresult}
    return _known(names, error).encode()


@_value
def cuGetErrorString(error: int) -> bytes:
    return _known(TEXTS, error).encode()


def _known(texts: dict[int, str], error: int) -> str:
    found = texts.get(int(error))
    if found is None:
        raise CudaRefusal(INVALID_VALUE, f"{int(error)} is no status that the stand-in knows")
    return found


@_value
def cuDeviceGet(ordinal: object) -> CUdevice:
    return CUdevice(MACHINE.device(ordinal))


@_value
def cuDeviceGetCount() -> int:
    return 1


@_value
def cuDeviceGetName(length: int, dev: object) -> bytes:
    MACHINE.device(dev)
    return device_facts.NAME.encode()[: max(length - 1, 0)]


@_value
def cuDeviceGetAttribute(attrib: object, dev: object) -> int:
    return MACHINE.attribute(attrib, dev)


@_two_values
def cuDeviceComputeCapability(dev: object) -> tuple[int, int]:
    MACHINE.device(dev)
    return device_facts.CAPABILITY


@_value
def cuDeviceTotalMem(dev: object) -> int:
    MACHINE.device(dev)
    return MACHINE.free_and_total().total


@_value
def cuDevicePrimaryCtxRetain(dev: object) -> CUcontext:
    MACHINE.device(dev)
    return CUcontext(PRIMARY_CONTEXT)


@_status
def cuDevicePrimaryCtxRelease(dev: object) -> None:
    MACHINE.device(dev)


@_value
def cuCtxCreate(*args: object) -> CUcontext:
    """The device comes last: CUDA 13 puts parameters before the flags."""
    if len(args) not in (2, 3):
        raise TypeError("cuCtxCreate takes flags and a device, or parameters, flags and a device")
    MACHINE.device(args[-1])
    return CUcontext(MACHINE.contexts.create())


@_status
def cuCtxDestroy(ctx: object) -> None:
    MACHINE.contexts.destroy(addresses.address(ctx))


@_status
def cuCtxSetCurrent(ctx: object) -> None:
    MACHINE.contexts.pop()
    MACHINE.contexts.push(addresses.address(ctx))


@_value
def cuCtxGetCurrent() -> CUcontext:
    return CUcontext(MACHINE.contexts.current())


@_status
def cuCtxPushCurrent(ctx: object) -> None:
    MACHINE.contexts.push(addresses.address(ctx))


@_value
def cuCtxPopCurrent() -> CUcontext:
    return CUcontext(MACHINE.contexts.pop())


@_value
def cuCtxGetDevice() -> CUdevice:
    return CUdevice(0)


@_status
def cuCtxSynchronize() -> None:
    """Nothing is under way."""


def _memory(size: object, place: MemoryPlace) -> int:
    return MACHINE.allocate_some(size, place).address


@_value
def cuMemAlloc(bytesize: object) -> CUdeviceptr:
    return CUdeviceptr(_memory(bytesize, MemoryPlace.DEVICE))


@_value
def cuMemAllocAsync(bytesize: object, hStream: object) -> CUdeviceptr:
    MACHINE.stream(hStream)
    return CUdeviceptr(_memory(bytesize, MemoryPlace.DEVICE))


@_value
def cuMemAllocManaged(bytesize: object, flags: int) -> CUdeviceptr:
    return CUdeviceptr(_memory(bytesize, MemoryPlace.MANAGED))


@_value
def cuMemAllocHost(bytesize: object) -> int:
    return _memory(bytesize, MemoryPlace.PINNED)


@_value
def cuMemHostAlloc(bytesize: object, Flags: int) -> int:
    return _memory(bytesize, MemoryPlace.PINNED)


@_value
def cuMemHostGetDevicePointer(p: object, Flags: int) -> CUdeviceptr:
    MACHINE.holding(p)
    return CUdeviceptr(addresses.address(p))


@_status
def cuMemFree(dptr: object) -> None:
    MACHINE.free_on_device(dptr)


@_status
def cuMemFreeAsync(dptr: object, hStream: object) -> None:
    MACHINE.stream(hStream)
    MACHINE.free_on_device(dptr)


@_status
def cuMemFreeHost(p: object) -> None:
    MACHINE.free(p, MemoryPlace.PINNED)


@_two_values
def cuMemGetAddressRange(dptr: object) -> tuple[CUdeviceptr, int]:
    found = MACHINE.holding(dptr)
    return CUdeviceptr(found.address), found.size


@_two_values
def cuMemGetInfo() -> tuple[int, int]:
    found = MACHINE.free_and_total()
    return found.free, found.total


@_status
def cuMemcpy(dst: object, src: object, ByteCount: object) -> None:
    MACHINE.copy(dst, src, ByteCount, CopyDirection.DEFAULT)


@_status
def cuMemcpyAsync(dst: object, src: object, ByteCount: object, hStream: object) -> None:
    MACHINE.stream(hStream)
    MACHINE.copy(dst, src, ByteCount, CopyDirection.DEFAULT)


@_status
def cuMemcpyHtoD(dstDevice: object, srcHost: object, ByteCount: object) -> None:
    MACHINE.copy(dstDevice, srcHost, ByteCount, CopyDirection.HOST_TO_DEVICE)


@_status
def cuMemcpyHtoDAsync(
    dstDevice: object, srcHost: object, ByteCount: object, hStream: object
) -> None:
    MACHINE.stream(hStream)
    MACHINE.copy(dstDevice, srcHost, ByteCount, CopyDirection.HOST_TO_DEVICE)


@_status
def cuMemcpyDtoH(dstHost: object, srcDevice: object, ByteCount: object) -> None:
    MACHINE.copy(dstHost, srcDevice, ByteCount, CopyDirection.DEVICE_TO_HOST)


@_status
def cuMemcpyDtoHAsync(
    dstHost: object, srcDevice: object, ByteCount: object, hStream: object
) -> None:
    MACHINE.stream(hStream)
    MACHINE.copy(dstHost, srcDevice, ByteCount, CopyDirection.DEVICE_TO_HOST)


@_status
def cuMemcpyDtoD(dstDevice: object, srcDevice: object, ByteCount: object) -> None:
    MACHINE.copy(dstDevice, srcDevice, ByteCount, CopyDirection.DEVICE_TO_DEVICE)


@_status
def cuMemcpyDtoDAsync(
    dstDevice: object, srcDevice: object, ByteCount: object, hStream: object
) -> None:
    MACHINE.stream(hStream)
    MACHINE.copy(dstDevice, srcDevice, ByteCount, CopyDirection.DEVICE_TO_DEVICE)


@_status
def cuMemsetD8(dstDevice: object, uc: object, N: object) -> None:
    MACHINE.fill(dstDevice, uc, N)


@_status
def cuMemsetD8Async(dstDevice: object, uc: object, N: object, hStream: object) -> None:
    MACHINE.stream(hStream)
    MACHINE.fill(dstDevice, uc, N)


@_status
def cuMemsetD16(dstDevice: object, us: object, N: object) -> None:
    MACHINE.fill(dstDevice, us, N, 2)


@_status
def cuMemsetD32(dstDevice: object, ui: object, N: object) -> None:
    MACHINE.fill(dstDevice, ui, N, 4)


@_value
def cuStreamCreate(Flags: int) -> CUstream:
    return CUstream(MACHINE.make_stream())


@_value
def cuStreamCreateWithPriority(flags: int, priority: int) -> CUstream:
    return CUstream(MACHINE.make_stream())


@_status
def cuStreamDestroy(hStream: object) -> None:
    MACHINE.destroy_stream(hStream)


@_status
def cuStreamSynchronize(hStream: object) -> None:
    MACHINE.stream(hStream)


@_status
def cuStreamQuery(hStream: object) -> None:
    MACHINE.stream(hStream)


@_status
def cuStreamWaitEvent(hStream: object, hEvent: object, Flags: int) -> None:
    MACHINE.stream(hStream)
    MACHINE.event(hEvent)


@_value
def cuEventCreate(Flags: int) -> CUevent:
    return CUevent(MACHINE.make_event())


@_status
def cuEventRecord(hEvent: object, hStream: object) -> None:
    MACHINE.record(hEvent, hStream)


@_status
def cuEventSynchronize(hEvent: object) -> None:
    MACHINE.event(hEvent)


@_status
def cuEventQuery(hEvent: object) -> None:
    MACHINE.event(hEvent)


@_value
def cuEventElapsedTime(hStart: object, hEnd: object) -> float:
    return MACHINE.milliseconds(hStart, hEnd)


@_status
def cuEventDestroy(hEvent: object) -> None:
    MACHINE.destroy_event(hEvent)


@_value
def cuModuleLoad(fname: object) -> CUmodule:
    raise no_gpu("a module of kernels")


@_value
def cuModuleLoadData(image: object) -> CUmodule:
    raise no_gpu("a module of kernels")


@_value
def cuModuleLoadDataEx(
    image: object, numOptions: object, options: object, optionValues: object
) -> CUmodule:
    raise no_gpu("a module of kernels")


@_value
def cuLibraryLoadData(code: object, *options: object) -> Handle:
    raise no_gpu("a library of kernels")


@_value
def cuModuleGetFunction(hmod: object, name: object) -> CUfunction:
    raise CudaRefusal(INVALID_HANDLE, "no module of kernels can be had, as there is no GPU here")


@_status
def cuModuleUnload(hmod: object) -> None:
    raise CudaRefusal(INVALID_HANDLE, "no module of kernels can be had, as there is no GPU here")


@_status
def cuLaunchKernel(f: object, *launch: object) -> None:
    raise no_gpu("a kernel")
