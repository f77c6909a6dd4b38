"""``cuda.bindings.runtime`` and ``cuda.cudart``, as cuda-python names them, over host memory.

Every call gives ``(cudaError_t, value...)``; values are None after a failure.
"""

from __future__ import annotations

from tactix_tensorrt.cuda_stand_in import addresses, device_facts
from tactix_tensorrt.cuda_stand_in.answers import CudaAnswers
from tactix_tensorrt.cuda_stand_in.driver import CUevent, CUmemoryPool, CUstream
from tactix_tensorrt.cuda_stand_in.machine import DEFAULT_POOL, MACHINE, PointerFacts, Rows
from tactix_tensorrt.cuda_stand_in.memory import MemoryPlace
from tactix_tensorrt.cuda_stand_in.runtime_enums import (
    cudaDeviceAttr,
    cudaError_t,
    cudaMemAllocationHandleType,
    cudaMemAllocationType,
    cudaMemcpyKind,
    cudaMemLocationType,
    cudaMemoryType,
    cudaMemPoolAttr,
    cudaStreamCaptureMode,
    cudaStreamCaptureStatus,
)
from tactix_tensorrt.cuda_stand_in.statuses import (
    NOT_SUPPORTED,
    STANDS_IN,
    TEXTS,
    UNKNOWN_CODE,
    no_gpu,
)

__all__ = [
    "STANDS_IN",
    "cudaDeviceAttr",
    "cudaError_t",
    "cudaMemAllocationHandleType",
    "cudaMemAllocationType",
    "cudaMemLocationType",
    "cudaMemPoolAttr",
    "cudaMemcpyKind",
    "cudaMemoryType",
    "cudaStreamCaptureMode",
    "cudaStreamCaptureStatus",
]

cudaStreamDefault = 0
cudaStreamNonBlocking = 1
cudaStreamLegacy = 1
cudaStreamPerThread = 2
cudaEventDefault = 0
cudaEventBlockingSync = 1
cudaEventDisableTiming = 2
cudaHostAllocDefault = 0
cudaHostAllocPortable = 1
cudaHostAllocMapped = 2
cudaHostAllocWriteCombined = 4
cudaHostRegisterDefault = 0
cudaMemAttachGlobal = 1
cudaMemAttachHost = 2

_GRAPH = "a CUDA graph"

_status = CudaAnswers(cudaError_t, 0)
_value = CudaAnswers(cudaError_t, 1)
_two_values = CudaAnswers(cudaError_t, 2)


class cudaStream_t(CUstream):
    """A stream."""


class cudaEvent_t(CUevent):
    """An event."""


class cudaMemPool_t(CUmemoryPool):
    """A pool of memory."""


class cudaMemLocation:
    """Where a pool's memory is: one device."""

    def __init__(self) -> None:
        self.type = cudaMemLocationType.cudaMemLocationTypeInvalid
        self.id = 0


class cudaMemPoolProps:
    """What a pool is made of: the stand-in reads none of it."""

    def __init__(self) -> None:
        self.allocType = cudaMemAllocationType.cudaMemAllocationTypeInvalid
        self.handleTypes = cudaMemAllocationHandleType.cudaMemHandleTypeNone
        self.location = cudaMemLocation()
        self.maxSize = 0


class cudaPointerAttributes:
    """What memory an address is."""

    def __init__(self, facts: PointerFacts) -> None:
        self.type = cudaMemoryType(facts.kind)
        self.device = facts.device
        self.devicePointer, self.hostPointer = facts.device_pointer, facts.host_pointer


class cudaDeviceProp:
    """What programs read of a device; sizes in bytes."""

    def __init__(self) -> None:
        facts = device_facts.FACTS
        self.name = device_facts.NAME.encode()
        self.major, self.minor = device_facts.CAPABILITY
        self.totalGlobalMem = MACHINE.free_and_total().total
        self.multiProcessorCount = facts[16]
        self.warpSize = facts[10]
        self.maxThreadsPerBlock = facts[1]
        self.maxThreadsDim = [facts[i] for i in (2, 3, 4)]
        self.maxGridSize = [facts[i] for i in (5, 6, 7)]
        self.maxThreadsPerMultiProcessor = facts[39]
        self.sharedMemPerBlock = facts[8]
        self.sharedMemPerBlockOptin = facts[97]
        self.sharedMemPerMultiprocessor = facts[81]
        self.regsPerBlock = facts[12]
        self.regsPerMultiprocessor = facts[82]
        self.totalConstMem = facts[9]
        self.integrated = self.managedMemory = self.unifiedAddressing = 1
        self.canMapHostMemory = self.concurrentKernels = 1
        self.l2CacheSize = self.memoryBusWidth = self.ECCEnabled = 0
        self.pciBusID = self.pciDeviceID = self.pciDomainID = 0


@_value
def cudaMalloc(size: object) -> int:
    return MACHINE.allocate(size, MemoryPlace.DEVICE)


@_value
def cudaMallocAsync(size: object, hStream: object) -> int:
    MACHINE.stream(hStream)
    return MACHINE.allocate(size, MemoryPlace.DEVICE)


@_value
def cudaMallocFromPoolAsync(size: object, memPool: object, stream: object) -> int:
    MACHINE.pools.state(addresses.address(memPool))
    MACHINE.stream(stream)
    return MACHINE.allocate(size, MemoryPlace.DEVICE)


@_value
def cudaMallocManaged(size: object, flags: int = cudaMemAttachGlobal) -> int:
    return MACHINE.allocate(size, MemoryPlace.MANAGED)


@_value
def cudaMallocHost(size: object) -> int:
    return MACHINE.allocate(size, MemoryPlace.PINNED)


@_value
def cudaHostAlloc(size: object, flags: int = cudaHostAllocDefault) -> int:
    return MACHINE.allocate(size, MemoryPlace.PINNED)


@_value
def cudaHostGetDevicePointer(pHost: object, flags: int = 0) -> int:
    MACHINE.holding(pHost)
    return addresses.address(pHost)


@_status
def cudaHostRegister(ptr: object, size: object, flags: int = cudaHostRegisterDefault) -> None:
    MACHINE.register_host(ptr, size)


@_status
def cudaHostUnregister(ptr: object) -> None:
    MACHINE.register_host(ptr, 1)


@_status
def cudaFree(devPtr: object) -> None:
    MACHINE.free_on_device(devPtr)


@_status
def cudaFreeAsync(devPtr: object, hStream: object) -> None:
    MACHINE.stream(hStream)
    MACHINE.free_on_device(devPtr)


@_status
def cudaFreeHost(ptr: object) -> None:
    MACHINE.free(ptr, MemoryPlace.PINNED)


@_status
def cudaMemcpy(dst: object, src: object, count: object, kind: object) -> None:
    MACHINE.copy(dst, src, count, kind)


@_status
def cudaMemcpyAsync(
    dst: object, src: object, count: object, kind: object, stream: object = None
) -> None:
    MACHINE.stream(stream)
    MACHINE.copy(dst, src, count, kind)


@_status
def cudaMemcpy2D(
    dst: object, dpitch: int, src: object, spitch: int, width: object, height: object, kind: object
) -> None:
    MACHINE.copy_rows(Rows(dst, dpitch), Rows(src, spitch), (width, height), kind)


@_status
def cudaMemcpy2DAsync(
    dst: object,
    dpitch: int,
    src: object,
    spitch: int,
    width: object,
    height: object,
    kind: object,
    stream: object = None,
) -> None:
    MACHINE.stream(stream)
    MACHINE.copy_rows(Rows(dst, dpitch), Rows(src, spitch), (width, height), kind)


@_value
def cudaPointerGetAttributes(ptr: object) -> cudaPointerAttributes:
    return cudaPointerAttributes(MACHINE.pointer_facts(ptr))


@_status
def cudaMemset(devPtr: object, value: object, count: object) -> None:
    MACHINE.fill(devPtr, value, count)


@_status
def cudaMemsetAsync(devPtr: object, value: object, count: object, stream: object = None) -> None:
    MACHINE.stream(stream)
    MACHINE.fill(devPtr, value, count)


@_two_values
def cudaMemGetInfo() -> tuple[int, int]:
    found = MACHINE.free_and_total()
    return found.free, found.total


@_value
def cudaMemPoolCreate(poolProps: object) -> cudaMemPool_t:
    return cudaMemPool_t(MACHINE.pools.new({}))


@_status
def cudaMemPoolDestroy(memPool: object) -> None:
    MACHINE.pools.destroy(addresses.address(memPool))


@_status
def cudaMemPoolTrimTo(memPool: object, minBytesToKeep: object) -> None:
    MACHINE.pools.state(addresses.address(memPool))


@_value
def cudaMemPoolGetAttribute(memPool: object, attr: object) -> int:
    return MACHINE.pools.state(addresses.address(memPool)).get(addresses.address(attr), 0)


@_status
def cudaMemPoolSetAttribute(memPool: object, attr: object, value: object) -> None:
    attributes = MACHINE.pools.state(addresses.address(memPool))
    attributes[addresses.address(attr)] = addresses.address(value)


@_value
def cudaDeviceGetDefaultMemPool(device: object) -> cudaMemPool_t:
    MACHINE.device(device)
    return cudaMemPool_t(DEFAULT_POOL)


@_value
def cudaDeviceGetMemPool(device: object) -> cudaMemPool_t:
    MACHINE.device(device)
    return cudaMemPool_t(DEFAULT_POOL)


@_status
def cudaDeviceSetMemPool(device: object, memPool: object) -> None:
    MACHINE.device(device)
    MACHINE.pools.state(addresses.address(memPool))


@_value
def cudaStreamCreate() -> cudaStream_t:
    return cudaStream_t(MACHINE.make_stream())


@_value
def cudaStreamCreateWithFlags(flags: int) -> cudaStream_t:
    return cudaStream_t(MACHINE.make_stream())


@_value
def cudaStreamCreateWithPriority(flags: int, priority: int) -> cudaStream_t:
    return cudaStream_t(MACHINE.make_stream())


@_status
def cudaStreamDestroy(stream: object) -> None:
    MACHINE.destroy_stream(stream)


@_status
def cudaStreamSynchronize(stream: object) -> None:
    MACHINE.stream(stream)


@_status
def cudaStreamQuery(stream: object) -> None:
    MACHINE.stream(stream)


@_status
def cudaStreamWaitEvent(stream: object, event: object, flags: int = 0) -> None:
    MACHINE.stream(stream)
    MACHINE.event(event)


@_status
def cudaStreamBeginCapture(stream: object, mode: object) -> None:
    MACHINE.stream(stream)
    raise no_gpu(_GRAPH, NOT_SUPPORTED)


@_value
def cudaStreamEndCapture(stream: object) -> None:
    MACHINE.stream(stream)
    raise no_gpu(_GRAPH, NOT_SUPPORTED)


@_value
def cudaStreamIsCapturing(stream: object) -> cudaStreamCaptureStatus:
    MACHINE.stream(stream)
    return cudaStreamCaptureStatus.cudaStreamCaptureStatusNone


@_value
def cudaGraphCreate(flags: int) -> None:
    raise no_gpu(_GRAPH, NOT_SUPPORTED)


@_value
def cudaGraphInstantiate(graph: object, flags: int = 0) -> None:
    raise no_gpu(_GRAPH, NOT_SUPPORTED)


@_value
def cudaGraphInstantiateWithFlags(graph: object, flags: int = 0) -> None:
    raise no_gpu(_GRAPH, NOT_SUPPORTED)


@_value
def cudaGraphExecUpdate(hGraphExec: object, hGraph: object) -> None:
    raise no_gpu(_GRAPH, NOT_SUPPORTED)


@_status
def cudaGraphUpload(graphExec: object, stream: object) -> None:
    raise no_gpu(_GRAPH, NOT_SUPPORTED)


@_status
def cudaGraphLaunch(graphExec: object, stream: object) -> None:
    raise no_gpu(_GRAPH, NOT_SUPPORTED)


@_status
def cudaGraphDestroy(graph: object) -> None:
    raise no_gpu(_GRAPH, NOT_SUPPORTED)


@_status
def cudaGraphExecDestroy(graphExec: object) -> None:
    raise no_gpu(_GRAPH, NOT_SUPPORTED)


@_value
def cudaEventCreate() -> cudaEvent_t:
    return cudaEvent_t(MACHINE.make_event())


@_value
def cudaEventCreateWithFlags(flags: int) -> cudaEvent_t:
    return cudaEvent_t(MACHINE.make_event())


@_status
def cudaEventRecord(event: object, stream: object = None) -> None:
    MACHINE.record(event, stream)


@_status
def cudaEventSynchronize(event: object) -> None:
    MACHINE.event(event)


@_status
def cudaEventQuery(event: object) -> None:
    MACHINE.event(event)


@_value
def cudaEventElapsedTime(start: object, end: object) -> float:
    return MACHINE.milliseconds(start, end)


@_status
def cudaEventDestroy(event: object) -> None:
    MACHINE.destroy_event(event)


@_status
def cudaDeviceSynchronize() -> None:
    """Nothing is under way."""


@_status
def cudaDeviceReset() -> None:
    """Memory stays: no other context could have been using it."""


@_value
def cudaGetDevice() -> int:
    return 0


@_status
def cudaSetDevice(device: object) -> None:
    MACHINE.device(device)


@_value
def cudaGetDeviceCount() -> int:
    return 1


@_value
def cudaGetDeviceProperties(device: object) -> cudaDeviceProp:
    MACHINE.device(device)
    return cudaDeviceProp()


@_value
def cudaDeviceGetAttribute(attr: object, device: object) -> int:
    return MACHINE.attribute(attr, device)


@_value
def cudaRuntimeGetVersion() -> int:
    return device_facts.VERSION


@_value
def cudaDriverGetVersion() -> int:
    return device_facts.VERSION


@_value
def cudaGetErrorName(error: int) -> bytes:
    names = {int(e): e.name for e in cudaError_t}
    return names.get(int(error), UNKNOWN_CODE).encode()


@_value
def cudaGetErrorString(error: int) -> bytes:
    return TEXTS.get(int(error), UNKNOWN_CODE).encode()


def cudaGetLastError() -> tuple[cudaError_t]:
    """The status of this thread's latest failure, once."""
    return (cudaError_t(MACHINE.last_status(forget=True)),)


def cudaPeekAtLastError() -> tuple[cudaError_t]:
    """The status of this thread's latest failure."""
    return (cudaError_t(MACHINE.last_status(forget=False)),)
