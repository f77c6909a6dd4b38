"""The stand-in for CUDA: each face with good and bad arguments, programs in the style of public
examples, threads, and subprocesses.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tactix.base.errors import ConfigError
from tactix_cuda.device import CudaDevice
from tactix_cuda.driver import Driver
from tactix_tensorrt import cuda_stand_in
from tactix_tensorrt.cuda_stand_in import (
    addresses,
    driver,
    library,
    memory,
    modules,
    nvrtc,
    runtime,
)
from tactix_tensorrt.cuda_stand_in import pycuda_driver as pycuda
from tactix_tensorrt.cuda_stand_in.cudart import CudartLibrary
from tactix_tensorrt.cuda_stand_in.machine import MACHINE
from tactix_tensorrt.cuda_stand_in.pycuda_compiler import CompileError, SourceModule
from tactix_tensorrt.plugin_steps.device_arrays import OnHost

OK = runtime.cudaError_t.cudaSuccess
INVALID = runtime.cudaError_t.cudaErrorInvalidValue
NO_MEMORY = runtime.cudaError_t.cudaErrorMemoryAllocation
HANDLE = runtime.cudaError_t.cudaErrorInvalidResourceHandle
Kind = runtime.cudaMemcpyKind
linux = pytest.mark.skipif(sys.platform != "linux", reason="libcudart is a file on Linux only")
UNMAPPED = 1 << 46
"""An address that systems give to nobody: mappings begin at the end of user space, or at its
begin.
"""


@pytest.fixture
def installed() -> Iterator[tuple[str, ...]]:
    yield cuda_stand_in.install(force=True)
    cuda_stand_in.uninstall()


def good(answer: tuple[Any, ...]) -> Any:
    """What a call gives, as programs take it."""
    status, *values = answer
    assert int(status) == 0, status
    return values[0] if len(values) == 1 else tuple(values)


def settled() -> int:
    """Bytes that are free when what nobody holds is gone."""
    gc.collect()
    return MACHINE.free_and_total().free


def device_memory(size: int) -> int:
    address = good(runtime.cudaMalloc(size))
    assert isinstance(address, int)
    return address


# -- cuda-python's runtime ------------------------------------------------------------------------


def test_a_program_of_the_runtime(installed: tuple[str, ...]) -> None:
    from cuda.bindings import runtime as cudart

    host = np.arange(1000, dtype=np.float32)
    back = np.zeros_like(host)
    stream = good(cudart.cudaStreamCreate())
    start, end = good(cudart.cudaEventCreate()), good(cudart.cudaEventCreate())
    place = good(cudart.cudaMalloc(host.nbytes))
    assert place % 256 == 0
    kinds = cudart.cudaMemcpyKind
    assert good(cudart.cudaEventRecord(start, stream)) == ()
    good(
        cudart.cudaMemcpyAsync(
            place, host.ctypes.data, host.nbytes, kinds.cudaMemcpyHostToDevice, stream
        )
    )
    good(cudart.cudaMemcpyAsync(back, place, host.nbytes, kinds.cudaMemcpyDeviceToHost, stream))
    good(cudart.cudaEventRecord(end, stream))
    good(cudart.cudaEventSynchronize(end))
    good(cudart.cudaStreamSynchronize(stream))
    np.testing.assert_array_equal(back, host)
    assert good(cudart.cudaEventElapsedTime(start, end)) >= 0
    for event in (start, end):
        good(cudart.cudaEventDestroy(event))
    good(cudart.cudaStreamDestroy(stream))
    good(cudart.cudaFree(place))
    assert cudart.cudaFree(place) == (INVALID,)


def test_pinned_memory_is_an_array(installed: tuple[str, ...]) -> None:
    from cuda import cudart

    address = good(cudart.cudaMallocHost(64))
    pointer = ctypes.cast(address, ctypes.POINTER(ctypes.c_float))
    array = np.ctypeslib.as_array(pointer, (16,))
    array[:] = 3
    place = device_memory(64)
    assert cudart.cudaMemcpy(place, array, 64, Kind.cudaMemcpyHostToDevice) == (OK,)
    assert ctypes.string_at(place, 64) == array.tobytes()
    assert cudart.cudaMemcpy(address, place, 64, Kind.cudaMemcpyHostToDevice) == (INVALID,)
    assert cudart.cudaFree(address) == (INVALID,)
    assert cudart.cudaFreeHost(address) == (OK,)
    assert cudart.cudaFreeHost(address) == (INVALID,)


@pytest.mark.parametrize(
    ("name", "more", "free", "rest"),
    [
        ("cudaMalloc", (), "cudaFree", ()),
        ("cudaMallocAsync", (0,), "cudaFreeAsync", (0,)),
        ("cudaMallocFromPoolAsync", (1, 0), "cudaFreeAsync", (None,)),
        ("cudaMallocManaged", (1,), "cudaFree", ()),
        ("cudaMallocHost", (), "cudaFreeHost", ()),
        ("cudaHostAlloc", (0,), "cudaFreeHost", ()),
    ],
)
def test_allocations(name: str, more: tuple[object, ...], free: str, rest: tuple[object]) -> None:
    allocate, release = getattr(runtime, name), getattr(runtime, free)
    found = good(allocate(100, *more))
    assert ctypes.string_at(found, 100) == bytes(100)
    assert release(found + 1, *rest) == (INVALID,)
    assert release(found, *rest) == (OK,)
    assert release(found, *rest) == (INVALID,)
    assert release(0, *rest) == (OK,)
    assert allocate(0, *more) == (OK, 0)
    assert allocate(-1, *more) == (INVALID, None)
    assert allocate(1 << 62, *more) == (NO_MEMORY, None)
    with pytest.raises(TypeError, match="an integer is required, not str"):
        allocate("100", *more)


@pytest.mark.parametrize(
    ("to", "source", "size", "kind", "status"),
    [
        ("device", "host", 64, 1, 0),
        ("device", "host", 65, 1, 1),
        ("device", "host", -1, 1, 1),
        ("device", "host", 0, 1, 0),
        ("device", "host", 64, 2, 1),
        ("device", "host", 64, 3, 1),
        ("device", "host", 64, 4, 0),
        ("device", "host", 64, 5, 21),
        ("host", "device", 64, 2, 0),
        ("host", "device", 65, 2, 1),
        ("host", "device", 64, 1, 1),
        ("host", "host", 64, 0, 0),
        ("host", "host", 64, 4, 0),
        ("device", "device", 64, 3, 0),
        ("managed", "device", 64, 3, 0),
        ("managed", "host", 64, 0, 0),
        ("pinned", "host", 64, 0, 0),
        ("pinned", "host", 4097, 0, 1),
        ("pinned", "device", 64, 2, 0),
        ("pinned", "device", 64, 3, 1),
        ("null", "device", 64, 2, 1),
        ("unmapped", "device", 64, 2, 1),
        ("device", "unmapped", 64, 1, 1),
        ("freed", "host", 64, 1, 1),
        ("constant", "device", 64, 2, 1),
        ("device", "constant", 64, 1, 0),
        ("strided", "device", 64, 2, 1),
        ("device", "bfloat16", 64, 1, 0),
    ],
)
def test_copies(to: str, source: str, size: int, kind: int, status: int) -> None:
    freed = device_memory(64)
    places: dict[str, object] = {
        "device": device_memory(64),
        "managed": good(runtime.cudaMallocManaged(64, 1)),
        "pinned": good(runtime.cudaMallocHost(4096)),
        "host": np.arange(64, dtype=np.uint8),
        "constant": bytes(64),
        "null": None,
        "unmapped": UNMAPPED,
        "freed": freed,
        "strided": np.zeros((64, 2), np.uint8)[:, 0],
        "bfloat16": np.ones(32, ml_dtypes.bfloat16),
    }
    good(runtime.cudaFree(freed))
    copied = runtime.cudaMemcpy(places[to], places[source], size, kind)
    assert [int(c) for c in copied] == [status]
    again = runtime.cudaMemcpyAsync(places[to], places[source], size, kind, 0)
    assert copied == again
    for name in ("device", "managed"):
        good(runtime.cudaFree(places[name]))
    good(runtime.cudaFreeHost(places["pinned"]))


def test_what_a_plugin_is_given_is_the_devices_while_it_runs() -> None:
    given, found = np.arange(6, dtype=np.float32), np.zeros(6, np.float32)

    def copied(address: int, count: int) -> int:
        return runtime.cudaMemcpy(found, address, count, Kind.cudaMemcpyDeviceToHost)[0]

    with OnHost() as place:
        first, second = place.hold(given), place.hold(given + 1)
        assert copied(first, 24) == OK
        assert np.array_equal(found, given)
        assert copied(second + 8, 16) == OK
        assert copied(second, 28) == INVALID
        assert copied(second + 24, 1) == INVALID
        assert runtime.cudaFree(first) == (INVALID,)
    assert copied(first, 24) == INVALID


def test_memory_is_lent_as_long_as_anyone_lends_it() -> None:
    own = np.zeros(4, np.uint8)
    address, lent = own.ctypes.data, MACHINE.memory.lent
    with lent({address: 2, 0: 8}):
        with lent({address: 4}):
            assert good(runtime.cudaMemset(address, 1, 4)) == ()
        assert runtime.cudaMemset(address, 2, 4) == (INVALID,)
        assert good(runtime.cudaMemset(address, 2, 2)) == ()
        assert runtime.cudaMemset(0, 2, 1) == (INVALID,)
    assert runtime.cudaMemset(address, 3, 1) == (INVALID,)
    assert own.tolist() == [2, 2, 1, 1]


def test_a_copy_inside_of_an_allocation() -> None:
    place = device_memory(100)
    data = np.arange(10, dtype=np.uint8)
    assert runtime.cudaMemcpy(place + 90, data, 10, Kind.cudaMemcpyHostToDevice) == (OK,)
    assert runtime.cudaMemcpy(place + 91, data, 10, Kind.cudaMemcpyHostToDevice) == (INVALID,)
    assert ctypes.string_at(place + 90, 10) == data.tobytes()
    good(runtime.cudaFree(place))


def test_what_is_no_address_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="str is no address: give None, an integer, or an object"):
        runtime.cudaMemcpy("here", 0, 4, Kind.cudaMemcpyHostToHost)


def test_fills() -> None:
    place = device_memory(64)
    assert runtime.cudaMemset(place, 0x1AB, 10) == (OK,)
    assert runtime.cudaMemsetAsync(place + 10, 1, 2, 0) == (OK,)
    assert ctypes.string_at(place, 13) == b"\xab" * 10 + b"\1\1\0"
    assert runtime.cudaMemset(place, 0, 65) == (INVALID,)
    assert runtime.cudaMemset(place, 0, -1) == (INVALID,)
    assert runtime.cudaMemset(np.zeros(4), 0, 4) == (INVALID,)
    assert runtime.cudaMemset(UNMAPPED, 0, 0) == (OK,)
    result = driver.CUresult
    assert driver.cuMemsetD32(place, 0x01020304, 2) == (result.CUDA_SUCCESS,)
    assert driver.cuMemsetD16(place + 8, 0xFFFE, 1) == (result.CUDA_SUCCESS,)
    assert driver.cuMemsetD8(place + 10, 7, 1) == (result.CUDA_SUCCESS,)
    assert ctypes.string_at(place, 11) == b"\4\3\2\1\4\3\2\1\xfe\xff\7"
    assert driver.cuMemsetD32(place, 0, 17) == (result.CUDA_ERROR_INVALID_VALUE,)
    good(runtime.cudaFree(place))


def test_rows_are_copied() -> None:
    data = np.arange(12, dtype=np.uint8).reshape(3, 4)
    place, back = device_memory(64), np.zeros((3, 2), np.uint8)
    stream = good(runtime.cudaStreamCreate())
    to, fro = Kind.cudaMemcpyHostToDevice, Kind.cudaMemcpyDeviceToHost
    assert runtime.cudaMemcpy2D(place, 16, data, 4, 4, 3, to) == (OK,)
    rows = [data[0].tobytes(), bytes(12), data[1].tobytes(), bytes(12), data[2].tobytes()]
    assert ctypes.string_at(place, 36) == b"".join(rows)
    assert runtime.cudaMemcpy2DAsync(back, 2, place + 1, 16, 2, 3, fro, stream) == (OK,)
    np.testing.assert_array_equal(back, data[:, 1:3])
    assert runtime.cudaMemcpy2D(place, 16, data, 4, 4, 4, to) == (INVALID,)
    assert runtime.cudaMemcpy2D(place, 16, data, 4, 4, 0, to) == (OK,)
    narrow = runtime.cudaMemcpy2D(place, 2, data, 4, 4, 3, to)
    assert narrow == (runtime.cudaError_t.cudaErrorInvalidPitchValue,)
    good(runtime.cudaFree(place))


def test_what_memory_an_address_is() -> None:
    types = runtime.cudaMemoryType
    own = np.zeros(1)
    for address, kind, device, both in (
        (device_memory(8), types.cudaMemoryTypeDevice, 0, (True, False)),
        (good(runtime.cudaMallocHost(8)), types.cudaMemoryTypeHost, 0, (True, True)),
        (good(runtime.cudaMallocManaged(8)), types.cudaMemoryTypeManaged, 0, (True, True)),
        (own.ctypes.data, types.cudaMemoryTypeUnregistered, -2, (False, True)),
    ):
        found = good(runtime.cudaPointerGetAttributes(address))
        assert (found.type, found.device) == (kind, device)
        pointers = found.devicePointer, found.hostPointer
        assert pointers == tuple(address if there else 0 for there in both)


def test_streams() -> None:
    stream = good(runtime.cudaStreamCreateWithFlags(runtime.cudaStreamNonBlocking))
    other = good(runtime.cudaStreamCreateWithPriority(0, -1))
    assert int(stream)
    assert stream != other
    assert stream == runtime.cudaStream_t(int(stream)) == driver.CUstream(stream)
    assert hash(stream) == hash(runtime.cudaStream_t(int(stream)))
    assert repr(stream) == f"<cudaStream_t {int(stream):#x}>"
    assert ctypes.c_void_p.from_address(stream.getPtr()).value == int(stream)
    event = good(runtime.cudaEventCreateWithFlags(0))
    for handle in (stream, int(stream), 0, None, runtime.cudaStream_t(), 1, 2):
        assert runtime.cudaStreamSynchronize(handle) == (OK,)
        assert runtime.cudaStreamQuery(handle) == (OK,)
        assert runtime.cudaStreamWaitEvent(handle, event, 0) == (OK,)
    assert runtime.cudaStreamDestroy(stream) == (OK,)
    assert runtime.cudaStreamDestroy(stream) == (HANDLE,)
    assert runtime.cudaStreamDestroy(0) == (HANDLE,)
    assert runtime.cudaStreamSynchronize(stream) == (HANDLE,)
    assert runtime.cudaMallocAsync(8, stream) == (HANDLE, None)
    assert runtime.cudaMemsetAsync(0, 0, 0, 77) == (HANDLE,)
    with pytest.raises(TypeError, match="an integer is required, not str"):
        runtime.cudaStream_t("x")
    assert runtime.cudaStreamBeginCapture(other, 0) == (runtime.cudaError_t.cudaErrorNotSupported,)


def test_events() -> None:
    first, last = good(runtime.cudaEventCreate()), good(runtime.cudaEventCreate())
    assert runtime.cudaEventElapsedTime(first, last) == (HANDLE, None)
    for event in (first, last):
        assert runtime.cudaEventRecord(event, 0) == (OK,)
    assert runtime.cudaEventQuery(last) == (OK,)
    assert good(runtime.cudaEventElapsedTime(first, last)) >= 0
    assert good(runtime.cudaEventElapsedTime(last, first)) <= 0
    assert runtime.cudaEventRecord(first, 12345) == (HANDLE,)
    assert runtime.cudaEventDestroy(first) == (OK,)
    assert runtime.cudaEventDestroy(first) == (HANDLE,)
    assert runtime.cudaEventSynchronize(first) == (HANDLE,)


def test_pools() -> None:
    properties = runtime.cudaMemPoolProps()
    properties.allocType = runtime.cudaMemAllocationType.cudaMemAllocationTypePinned
    properties.location.type = runtime.cudaMemLocationType.cudaMemLocationTypeDevice
    pool = good(runtime.cudaMemPoolCreate(properties))
    release = runtime.cudaMemPoolAttr.cudaMemPoolAttrReleaseThreshold
    assert runtime.cudaMemPoolGetAttribute(pool, release) == (OK, 0)
    assert runtime.cudaMemPoolSetAttribute(pool, release, 1 << 20) == (OK,)
    most = driver.cuuint64_t(np.uint64(2**64 - 1))
    assert runtime.cudaMemPoolSetAttribute(pool, release, most) == (OK,)
    assert runtime.cudaMemPoolGetAttribute(pool, release) == (OK, 2**64 - 1)
    assert runtime.cudaMemPoolSetAttribute(pool, release, 1 << 20) == (OK,)
    assert runtime.cudaMemPoolGetAttribute(pool, release) == (OK, 1 << 20)
    assert runtime.cudaDeviceSetMemPool(0, pool) == (OK,)
    place = good(runtime.cudaMallocFromPoolAsync(32, pool, 0))
    assert runtime.cudaFreeAsync(place, 0) == (OK,)
    assert runtime.cudaMemPoolTrimTo(pool, 0) == (OK,)
    assert runtime.cudaMemPoolDestroy(pool) == (OK,)
    assert runtime.cudaMemPoolDestroy(pool) == (HANDLE,)
    assert runtime.cudaMallocFromPoolAsync(32, pool, 0) == (HANDLE, None)
    default = good(runtime.cudaDeviceGetDefaultMemPool(0))
    assert default == good(runtime.cudaDeviceGetMemPool(0))
    assert runtime.cudaMemPoolDestroy(default) == (HANDLE,)


def test_the_device() -> None:
    wrong = runtime.cudaError_t.cudaErrorInvalidDevice
    assert good(runtime.cudaGetDeviceCount()) == 1
    assert good(runtime.cudaGetDevice()) == 0
    assert runtime.cudaSetDevice(0) == (OK,)
    assert runtime.cudaSetDevice(1) == (wrong,)
    assert runtime.cudaGetDeviceProperties(1) == (wrong, None)
    told = good(runtime.cudaGetDeviceProperties(0))
    assert b"stand-in" in told.name
    attribute = runtime.cudaDeviceAttr
    major = good(runtime.cudaDeviceGetAttribute(attribute.cudaDevAttrComputeCapabilityMajor, 0))
    assert major == told.major
    assert runtime.cudaDeviceGetAttribute(attribute.cudaDevAttrWarpSize, -1) == (wrong, None)
    settled()
    free, total = good(runtime.cudaMemGetInfo())
    assert 0 < free <= total == told.totalGlobalMem
    place = device_memory(1 << 20)
    assert good(runtime.cudaMemGetInfo())[0] == free - (1 << 20)
    good(runtime.cudaFree(place))
    assert good(runtime.cudaMemGetInfo())[0] == free
    assert runtime.cudaDeviceSynchronize() == runtime.cudaDeviceReset() == (OK,)
    assert good(runtime.cudaRuntimeGetVersion()) == good(runtime.cudaDriverGetVersion()) == 12090


def test_errors_are_told_and_remembered(capsys: pytest.CaptureFixture[str]) -> None:
    runtime.cudaGetLastError()
    place = device_memory(8)
    good(runtime.cudaFree(place))
    assert runtime.cudaFree(place) == (INVALID,)
    assert capsys.readouterr().err == (
        f"[tactix] [E] CUDA stand-in: cudaFree: {place:#x} was freed before\n"
    )
    assert runtime.cudaPeekAtLastError() == runtime.cudaGetLastError() == (INVALID,)
    assert runtime.cudaGetLastError() == (OK,)
    assert runtime.cudaGetErrorName(INVALID) == (OK, b"cudaErrorInvalidValue")
    assert runtime.cudaGetErrorString(2) == (OK, b"out of memory")
    assert runtime.cudaGetErrorString(123456) == (OK, b"unrecognized error code")


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda p: runtime.cudaFree(p + 4), "lies 4 bytes inside of an allocation"),
        (lambda p: runtime.cudaFree(UNMAPPED), "was not allocated here"),
        (lambda p: runtime.cudaFreeHost(p), "is device memory, which another call frees"),
        (
            lambda p: runtime.cudaMemset(p + 2, 0, 16),
            "leave an allocation of 16 bytes, which has 14",
        ),
        (
            lambda p: runtime.cudaMemset(UNMAPPED, 0, 16),
            "is no device memory: no allocation has it",
        ),
        (lambda p: runtime.cudaMemcpy(p, np.zeros(1), 16, 1), "16 bytes leave a buffer of 8 bytes"),
        (lambda p: runtime.cudaMemcpy(p, UNMAPPED, 16, 1), "are no memory of this process"),
        (
            lambda p: runtime.cudaMemcpy(bytes(16), p, 16, 2),
            "the target of a copy may not be written",
        ),
        (lambda p: runtime.cudaMalloc(-5), "a size of -5 bytes is below zero"),
        (lambda p: driver.cuLaunchKernel(0, 1, 1, 1), "a kernel needs a GPU"),
    ],
)
def test_what_the_log_says(call: Any, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    place = device_memory(16)
    assert int(call(place)[0]) != 0
    told = capsys.readouterr().err
    assert text in told
    assert told.count("\n") == 1
    good(runtime.cudaFree(place))


def test_host_registration() -> None:
    array = np.zeros(1000)
    assert runtime.cudaHostRegister(array.ctypes.data, array.nbytes, 0) == (OK,)
    assert runtime.cudaHostUnregister(array.ctypes.data) == (OK,)
    assert runtime.cudaHostRegister(UNMAPPED, 8, 0) == (INVALID,)
    pinned = good(runtime.cudaHostAlloc(8, runtime.cudaHostAllocMapped))
    assert runtime.cudaHostGetDevicePointer(pinned, 0) == (OK, pinned)
    assert runtime.cudaHostGetDevicePointer(UNMAPPED, 0) == (INVALID, None)
    good(runtime.cudaFreeHost(pinned))


# -- cuda-python's driver and NVRTC ---------------------------------------------------------------


def test_a_program_of_the_driver(installed: tuple[str, ...]) -> None:
    from cuda.bindings import driver as cuda

    good(cuda.cuInit(0))
    device = good(cuda.cuDeviceGet(0))
    assert good(cuda.cuDeviceGetCount()) == 1
    assert b"stand-in" in good(cuda.cuDeviceGetName(100, device))
    assert good(cuda.cuDeviceGetName(4, device)) == b"tac"
    context = good(cuda.cuCtxCreate(0, device))
    assert good(cuda.cuCtxGetCurrent()) == context
    host = np.random.default_rng(0).random(100)
    place = good(cuda.cuMemAlloc(host.nbytes))
    stream = good(cuda.cuStreamCreate(cuda.CUstream_flags.CU_STREAM_NON_BLOCKING))
    event = good(cuda.cuEventCreate(cuda.CUevent_flags.CU_EVENT_DEFAULT))
    good(cuda.cuMemcpyHtoDAsync(place, host.ctypes.data, host.nbytes, stream))
    second = good(cuda.cuMemAllocAsync(host.nbytes, stream))
    good(cuda.cuMemcpyDtoDAsync(second, place, host.nbytes, stream))
    good(cuda.cuEventRecord(event, stream))
    good(cuda.cuStreamWaitEvent(stream, event, 0))
    back = np.zeros_like(host)
    good(cuda.cuMemcpyDtoHAsync(back.ctypes.data, second, host.nbytes, stream))
    good(cuda.cuStreamSynchronize(stream))
    np.testing.assert_array_equal(back, host)
    assert good(cuda.cuMemGetAddressRange(int(place) + 8)) == (place, host.nbytes)
    good(cuda.cuMemFree(place))
    good(cuda.cuMemFreeAsync(second, stream))
    good(cuda.cuEventDestroy(event))
    good(cuda.cuStreamDestroy(stream))
    good(cuda.cuCtxDestroy(context))
    assert int(good(cuda.cuCtxGetCurrent())) == 0


def test_contexts() -> None:
    invalid = driver.CUresult.CUDA_ERROR_INVALID_HANDLE
    first, second = good(driver.cuCtxCreate(None, 0, 0)), good(driver.cuCtxCreate(0, 0))
    assert good(driver.cuCtxPopCurrent()) == second
    assert good(driver.cuCtxGetCurrent()) == first
    good(driver.cuCtxSetCurrent(second))
    assert good(driver.cuCtxGetCurrent()) == second
    good(driver.cuCtxPushCurrent(first))
    for context in (first, second):
        good(driver.cuCtxDestroy(context))
    assert driver.cuCtxPushCurrent(first) == (invalid,)
    assert driver.cuCtxDestroy(first) == (invalid,)
    primary = good(driver.cuDevicePrimaryCtxRetain(0))
    good(driver.cuCtxPushCurrent(primary))
    good(driver.cuDevicePrimaryCtxRelease(0))
    assert good(driver.cuCtxPopCurrent()) == primary
    assert int(good(driver.cuCtxGetDevice())) == 0
    good(driver.cuCtxSynchronize())
    with pytest.raises(TypeError, match="takes flags and a device"):
        driver.cuCtxCreate(0)


@pytest.mark.parametrize(
    ("name", "more", "free"),
    [
        ("cuMemAlloc", (), driver.cuMemFree),
        ("cuMemAllocManaged", (1,), driver.cuMemFree),
        ("cuMemAllocHost", (), driver.cuMemFreeHost),
        ("cuMemHostAlloc", (0,), driver.cuMemFreeHost),
    ],
)
def test_allocations_of_the_driver(name: str, more: tuple[object, ...], free: Any) -> None:
    allocate, result = getattr(driver, name), driver.CUresult
    found = good(allocate(24, *more))
    assert ctypes.string_at(int(found), 24) == bytes(24)
    assert free(int(found) + 8) == (result.CUDA_ERROR_INVALID_VALUE,)
    assert free(found) == (result.CUDA_SUCCESS,)
    assert free(found) == (result.CUDA_ERROR_INVALID_VALUE,)
    for size in (0, -1):
        assert allocate(size, *more) == (result.CUDA_ERROR_INVALID_VALUE, None)
    assert allocate(1 << 62, *more) == (result.CUDA_ERROR_OUT_OF_MEMORY, None)


def test_copies_of_the_driver() -> None:
    invalid = driver.CUresult.CUDA_ERROR_INVALID_VALUE
    place, host = good(driver.cuMemAlloc(16)), np.arange(16, dtype=np.uint8)
    good(driver.cuMemcpy(place, host, 16))
    good(driver.cuMemcpyAsync(int(place) + 8, place, 8, None))
    back = np.zeros(16, np.uint8)
    good(driver.cuMemcpyDtoH(back, place, 16))
    assert back.tolist() == [*range(8), *range(8)]
    assert driver.cuMemcpyHtoD(host, place, 16) == (invalid,)
    assert driver.cuMemcpyHtoD(place, host, 17) == (invalid,)
    assert driver.cuMemcpyDtoH(place, host, 16) == (invalid,)
    assert driver.cuMemcpyDtoD(place, host, 16) == (invalid,)
    good(driver.cuMemcpyDtoD(place, int(place) + 1, 8))
    good(driver.cuMemFree(place))


def test_texts_of_the_driver() -> None:
    result = driver.CUresult
    assert (
        good(driver.cuGetErrorName(result.CUDA_ERROR_INVALID_VALUE)) == b"CUDA_ERROR_INVALID_VALUE"
    )
    assert good(driver.cuGetErrorString(2)) == b"out of memory"
    assert driver.cuGetErrorString(123456) == (result.CUDA_ERROR_INVALID_VALUE, None)
    capability = good(driver.cuDeviceComputeCapability(0))
    attribute = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR
    assert good(driver.cuDeviceGetAttribute(attribute, 0)) == capability[1]
    assert good(driver.cuDeviceTotalMem(0)) == good(driver.cuMemGetInfo())[1]
    assert driver.cuDeviceGet(3) == (result.CUDA_ERROR_INVALID_DEVICE, None)


@pytest.mark.parametrize(
    ("call", "status", "values"),
    [
        (lambda: driver.cuModuleLoadData(b"ptx"), "CUDA_ERROR_NO_BINARY_FOR_GPU", 1),
        (lambda: driver.cuModuleLoadDataEx(b"", 0, [], []), "CUDA_ERROR_NO_BINARY_FOR_GPU", 1),
        (lambda: driver.cuModuleLoad(b"a.cubin"), "CUDA_ERROR_NO_BINARY_FOR_GPU", 1),
        (lambda: driver.cuLibraryLoadData(b"", 0, 0), "CUDA_ERROR_NO_BINARY_FOR_GPU", 1),
        (lambda: driver.cuModuleGetFunction(0, b"f"), "CUDA_ERROR_INVALID_HANDLE", 1),
        (lambda: driver.cuModuleUnload(0), "CUDA_ERROR_INVALID_HANDLE", 0),
        (lambda: driver.cuLaunchKernel(0), "CUDA_ERROR_NO_BINARY_FOR_GPU", 0),
    ],
)
def test_kernels_are_refused(
    call: Any, status: str, values: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call() == (driver.CUresult[status], *(None,) * values)
    told = capsys.readouterr().err
    assert "GPU" in told
    assert told.count("\n") == 1


def test_sources_are_refused_and_their_log_says_why() -> None:
    result = nvrtc.nvrtcResult
    program = good(nvrtc.nvrtcCreateProgram(b"source", b"a.cu", 0, [], []))
    assert nvrtc.nvrtcCompileProgram(program, 0, []) == (result.NVRTC_ERROR_COMPILATION,)
    size = good(nvrtc.nvrtcGetProgramLogSize(program))
    log = b" " * size
    good(nvrtc.nvrtcGetProgramLog(program, log))
    assert log.endswith(b"runs them\0")
    assert nvrtc.nvrtcGetProgramLog(program, b" ") == (result.NVRTC_ERROR_INVALID_INPUT,)
    for ask in (nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetCUBINSize):
        assert ask(program) == (result.NVRTC_ERROR_INVALID_PROGRAM, None)
    for take in (nvrtc.nvrtcGetPTX, nvrtc.nvrtcGetCUBIN):
        assert take(program, b"") == (result.NVRTC_ERROR_INVALID_PROGRAM,)
    good(nvrtc.nvrtcDestroyProgram(program))
    assert nvrtc.nvrtcDestroyProgram(program) == (result.NVRTC_ERROR_INVALID_PROGRAM,)
    assert nvrtc.nvrtcCompileProgram(0, 0, []) == (result.NVRTC_ERROR_INVALID_PROGRAM,)
    assert good(nvrtc.nvrtcGetErrorString(6)) == b"NVRTC_ERROR_COMPILATION"
    assert good(nvrtc.nvrtcVersion()) == (12, 9)


# -- pycuda ---------------------------------------------------------------------------------------


def test_a_program_of_pycuda(installed: tuple[str, ...]) -> None:
    import pycuda.autoinit
    import pycuda.driver as cuda

    host_in = cuda.pagelocked_empty(1 << 10, np.float32)
    host_out = cuda.pagelocked_empty((2, 512), dtype=np.float32)
    host_in[:] = np.arange(1 << 10)
    d_in, d_out = cuda.mem_alloc(host_in.nbytes), cuda.mem_alloc(host_in.nbytes)
    stream, start, end = cuda.Stream(), cuda.Event(), cuda.Event()
    assert all(isinstance(i, int) for i in (int(d_in), stream.handle))
    start.record(stream)
    cuda.memcpy_htod_async(d_in, host_in, stream)
    cuda.memcpy_dtod_async(d_out, int(d_in), host_in.nbytes, stream)
    cuda.memcpy_dtoh_async(host_out, d_out, stream)
    end.record(stream)
    stream.synchronize()
    assert stream.is_done()
    assert end.synchronize().query()
    np.testing.assert_array_equal(host_out.ravel(), host_in)
    assert start.time_till(end) == end.time_since(start) >= 0
    stream.wait_for_event(end)
    d_in.free()
    with pytest.raises(cuda.LogicError, match="was freed before"):
        d_in.free()
    assert pycuda.autoinit.device.name() == cuda.Device(0).name()
    assert pycuda.autoinit.context.get_device() == cuda.Device(0)


def test_pycuda_copies() -> None:
    data = np.random.default_rng(1).random((3, 5))
    place = pycuda.to_device(data)
    np.testing.assert_array_equal(pycuda.from_device(place, (3, 5), np.float64), data)
    np.testing.assert_array_equal(pycuda.from_device_like(place, data), data)
    turned = pycuda.from_device(place, (5, 3), np.float64, order="F")
    np.testing.assert_array_equal(turned, data.T)
    pycuda.memset_d8(place, 1, 2)
    pycuda.memset_d16(int(place) + 2, 0x0203, 1)
    pycuda.memset_d32(place + 4, 5, 1)
    assert ctypes.string_at(int(place), 8) == b"\1\1\3\2\5\0\0\0"
    pycuda.memcpy_htod(place, data)
    second = pycuda.mem_alloc(data.nbytes)
    pycuda.memcpy_dtod(second, place, data.nbytes)
    back = np.empty_like(data)
    pycuda.memcpy_dtoh(back, second)
    np.testing.assert_array_equal(back, data)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda p: pycuda.mem_alloc(0), pycuda.LogicError),
        (lambda p: pycuda.mem_alloc(-1), pycuda.LogicError),
        (lambda p: pycuda.mem_alloc(1 << 62), pycuda.MemoryError),
        (lambda p: pycuda.mem_alloc("1"), TypeError),
        (lambda p: pycuda.memcpy_htod(p, np.zeros(9, np.uint8)), pycuda.LogicError),
        (lambda p: pycuda.memcpy_dtoh(np.zeros(9, np.uint8), p), pycuda.LogicError),
        (lambda p: pycuda.memcpy_dtoh(bytes(8), p), pycuda.LogicError),
        (lambda p: pycuda.memcpy_htod(p, 5), TypeError),
        (lambda p: pycuda.memcpy_htod(np.zeros(1), np.zeros(1)), pycuda.LogicError),
        (lambda p: pycuda.memcpy_dtod(p, p, 9), pycuda.LogicError),
        (lambda p: pycuda.from_device(p, 2, np.float64), pycuda.LogicError),
        (lambda p: pycuda.memset_d8(p, 0, 9), pycuda.LogicError),
        (lambda p: pycuda.Device(1), pycuda.LogicError),
        (lambda p: pycuda.pagelocked_empty(1 << 60, np.float32), pycuda.MemoryError),
        (lambda p: pycuda.Event().time_till(pycuda.Event()), pycuda.LogicError),
        (lambda p: pycuda.module_from_buffer(b""), pycuda.LogicError),
        (lambda p: pycuda.module_from_file("a.cubin"), pycuda.LogicError),
        (lambda p: SourceModule("__global__ void f() {}"), CompileError),
        (lambda p: pycuda.device_attribute.NO_SUCH, AttributeError),
    ],
)
def test_what_pycuda_refuses(call: Any, error: type[Exception]) -> None:
    place = pycuda.mem_alloc(8)
    with pytest.raises(error):
        call(place)
    place.free()


def test_what_pycuda_refuses_of_streams_and_contexts() -> None:
    context = pycuda.Device(0).make_context()
    current = pycuda.Context.get_current()
    assert current is not None
    assert current.handle == context.handle
    pycuda.Context.synchronize()
    pycuda.Context.pop()
    context.push()
    context.detach()
    with pytest.raises(pycuda.LogicError, match="is no context that was made here"):
        context.push()
    with pytest.raises(pycuda.LogicError, match="is no context"):
        context.detach()


def test_pycuda_memory_ends_with_what_holds_it() -> None:
    before = settled()
    place = pycuda.mem_alloc(1 << 20)
    array = pycuda.pagelocked_empty((1 << 18,), np.float32)
    managed = pycuda.managed_empty((16, 16), np.int8, mem_flags=pycuda.mem_attach_flags.GLOBAL)
    view = array[5:].reshape(-1, 1)
    del array
    assert MACHINE.free_and_total().free == before - (2 << 20) - 256
    view[:] = 7  # its memory is there as long as a view is
    del place, view, managed
    assert settled() == before


def test_memory_that_ended_twice_is_nobody_elses() -> None:
    place = pycuda.mem_alloc(4096)
    address = int(place)
    good(runtime.cudaFree(address))
    others = [device_memory(4096) for _ in range(4)]
    assert address not in others  # which is kept as long as its holder
    del place
    settled()
    for other in others:
        good(runtime.cudaFree(other))


def test_pycuda_arrays() -> None:
    made = pycuda.pagelocked_zeros((2, 3), np.float16, order="F")
    assert made.flags.f_contiguous
    assert made.dtype == np.float16
    assert not made.any()
    assert pycuda.pagelocked_empty_like(made).shape == (2, 3)
    assert pycuda.pagelocked_empty((0, 3), np.float32).shape == (0, 3)
    assert pycuda.pagelocked_empty((), np.float32).shape == ()
    managed = pycuda.managed_zeros(4, np.int32)
    driver.cuMemsetD32(managed.ctypes.data, 9, 4)
    assert managed.tolist() == [9] * 4


def test_pycuda_arrays_on_the_device(installed: tuple[str, ...]) -> None:
    import pycuda.gpuarray as gpuarray

    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    made = gpuarray.to_gpu(data)
    assert (made.shape, made.dtype, made.nbytes, made.size, len(made)) == ((2, 3), "f4", 24, 6, 2)
    assert made.ptr == int(made.gpudata)
    np.testing.assert_array_equal(made.get(), data)
    other = gpuarray.zeros_like(made)
    assert not other.get().any()
    other.set(data * 2)
    np.testing.assert_array_equal(other.copy().reshape((3, -1)).get(), (data * 2).reshape(3, 2))
    np.testing.assert_array_equal(other.fill(7).ravel().get(), [7] * 6)
    turned = gpuarray.to_gpu_async(data.T)
    assert turned.strides == data.T.strides
    np.testing.assert_array_equal(turned.get(), data.T)
    assert gpuarray.empty((0, 3), np.int32).get().shape == (0, 3)
    with pytest.raises(ValueError, match=r"float32 \(2, 3\) is needed, not of float64"):
        other.set(data.astype(np.float64))


def test_pycuda_tools(installed: tuple[str, ...]) -> None:
    from pycuda import gpuarray, tools

    context = tools.make_default_context()
    assert context.get_device() == tools.get_default_device()
    pool = tools.DeviceMemoryPool()
    np.testing.assert_array_equal(gpuarray.zeros(3, np.int32, pool.allocate).get(), [0] * 3)
    pool.free_held()
    assert tools.PageLockedMemoryPool().allocate((2, 2), np.int8).shape == (2, 2)
    assert tools.context_dependent_memoize(lambda: [1])() == [1]
    tools.clear_context_caches()
    context.pop()


def test_pycuda_device() -> None:
    pycuda.init()
    device = pycuda.Device(0)
    assert pycuda.Device.count() == 1
    attribute = pycuda.device_attribute.MULTIPROCESSOR_COUNT
    assert device.get_attribute(attribute) == good(driver.cuDeviceGetAttribute(16, 0))
    assert device.total_memory() == pycuda.mem_get_info()[1]
    assert device.compute_capability() == good(driver.cuDeviceComputeCapability(0))
    assert pycuda.get_version() == (12, 9, 0)


# -- libcudart through ctypes ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = cuda_stand_in.write_folder(tmp_path_factory.mktemp("folder"))
    assert folder.libraries is not None
    return ctypes.CDLL(str(folder.libraries / "libcudart.so"))


@pytest.fixture(params=["python", pytest.param("compiled", marks=(pytest.mark.compiler, linux))])
def cudart(request: pytest.FixtureRequest) -> Any:
    return CudartLibrary() if request.param == "python" else request.getfixturevalue("compiled")


def test_the_seven_entries_as_polygraphy_calls_them(cudart: Any) -> None:
    """Its ``Cuda`` class: pointers by reference, sizes as ``c_size_t``, kinds as ``c_int``."""
    stream, place = ctypes.c_void_p(), ctypes.c_void_p()
    assert cudart.cudaStreamCreate(ctypes.byref(stream)) == 0
    assert cudart.cudaMalloc(ctypes.byref(place), ctypes.c_size_t(400)) == 0
    data = np.arange(100, dtype=np.float32)
    back = np.zeros_like(data)
    size = ctypes.c_size_t(400)
    to, fro = ctypes.c_int(1), ctypes.c_int(2)
    host, result = ctypes.c_void_p(data.ctypes.data), ctypes.c_void_p(back.ctypes.data)
    assert cudart.cudaMemcpyAsync(place, host, size, to, stream) == 0
    assert cudart.cudaStreamSynchronize(stream) == 0
    assert cudart.cudaMemcpy(result, place, size, fro) == 0
    np.testing.assert_array_equal(back, data)
    assert cudart.cudaMemcpy(result, place, ctypes.c_size_t(401), fro) == 1
    assert cudart.cudaFree(place) == 0
    assert cudart.cudaFree(place) == 1
    assert cudart.cudaFree(ctypes.c_void_p(None)) == 0
    assert cudart.cudaStreamDestroy(stream) == 0
    assert cudart.cudaStreamDestroy(stream) == 400
    assert cudart.cudaMemcpyAsync(place, host, size, to, stream) == 400


class PointerAttributes(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("device", ctypes.c_int),
        ("devicePointer", ctypes.c_void_p),
        ("hostPointer", ctypes.c_void_p),
    )


def test_rows_and_pointers_of_the_library(cudart: Any) -> None:
    place, found = ctypes.c_void_p(), PointerAttributes()
    assert cudart.cudaMalloc(ctypes.byref(place), ctypes.c_size_t(64)) == 0
    assert place.value is not None
    data, back = np.arange(12, dtype=np.uint8).reshape(3, 4), np.zeros((3, 2), np.uint8)
    sizes = [ctypes.c_size_t(n) for n in range(17)]
    host, result = ctypes.c_void_p(data.ctypes.data), ctypes.c_void_p(back.ctypes.data)
    assert cudart.cudaMemcpy2D(place, sizes[16], host, sizes[4], sizes[4], sizes[3], 1) == 0
    inner, none = ctypes.c_void_p(place.value + 1), ctypes.c_void_p(None)
    rows = (result, sizes[2], inner, sizes[16], sizes[2], sizes[3], 2)
    assert cudart.cudaMemcpy2DAsync(*rows, none) == 0
    np.testing.assert_array_equal(back, data[:, 1:3])
    assert cudart.cudaMemcpy2D(place, sizes[2], host, sizes[4], sizes[4], sizes[3], 1) == 12
    assert cudart.cudaPointerGetAttributes(ctypes.byref(found), inner) == 0
    assert (found.type, found.device, found.devicePointer) == (2, 0, inner.value)
    assert found.hostPointer is None
    assert cudart.cudaPointerGetAttributes(ctypes.byref(found), host) == 0
    assert (found.type, found.device, found.hostPointer) == (0, -2, host.value)
    assert cudart.cudaFree(place) == 0


def test_the_library_refuses(cudart: Any, capfd: pytest.CaptureFixture[str]) -> None:
    place, pinned = ctypes.c_void_p(), ctypes.c_void_p()
    assert cudart.cudaMalloc(ctypes.byref(place), ctypes.c_size_t(64)) == 0
    assert cudart.cudaMallocHost(ctypes.byref(pinned), ctypes.c_size_t(64)) == 0
    cudart.cudaGetLastError()  # of tests before
    host = (ctypes.c_char * 64)()
    wrong = ctypes.c_void_p(UNMAPPED)
    inside = ctypes.c_void_p((place.value or 0) + 1)
    refused = [
        (1, cudart.cudaMalloc, None, ctypes.c_size_t(8)),
        (1, cudart.cudaMalloc, wrong, ctypes.c_size_t(8)),
        (2, cudart.cudaMalloc, ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(-1)),
        (1, cudart.cudaFree, inside),
        (1, cudart.cudaFree, pinned),
        (1, cudart.cudaFreeHost, place),
        (1, cudart.cudaMemcpy, inside, host, ctypes.c_size_t(64), 1),
        (1, cudart.cudaMemcpy, host, host, ctypes.c_size_t(8), 1),
        (1, cudart.cudaMemcpy, pinned, host, ctypes.c_size_t(8), 1),
        (1, cudart.cudaMemcpy, place, wrong, ctypes.c_size_t(8), 4),
        (1, cudart.cudaMemcpy, place, host, ctypes.c_size_t(-1), 1),
        (1, cudart.cudaMemcpy, ctypes.byref(host, 1), host, ctypes.c_size_t(-1), 0),
        (21, cudart.cudaMemcpy, place, host, ctypes.c_size_t(8), 9),
        (1, cudart.cudaMemset, inside, 0, ctypes.c_size_t(64)),
        (400, cudart.cudaMemsetAsync, place, 0, ctypes.c_size_t(8), wrong),
        (400, cudart.cudaStreamSynchronize, wrong),
        (1, cudart.cudaStreamCreate, None),
        (101, cudart.cudaSetDevice, 1),
    ]
    for status, call, *args in refused:
        assert call(*args) == status
        assert capfd.readouterr().err.count("\n") == 1
        assert cudart.cudaGetLastError() == status
    assert cudart.cudaGetLastError() == 0
    assert cudart.cudaFree(place) == cudart.cudaFreeHost(pinned) == 0


def test_the_library_tells(cudart: Any) -> None:
    number, version, current = ctypes.c_int(), ctypes.c_int(), ctypes.c_int(-1)
    assert cudart.cudaGetDeviceCount(ctypes.byref(number)) == 0
    assert cudart.cudaRuntimeGetVersion(ctypes.byref(version)) == 0
    assert cudart.cudaGetDevice(ctypes.byref(current)) == 0
    assert (number.value, version.value, current.value) == (1, 12090, 0)
    cudart.cudaGetErrorString.restype = cudart.cudaGetErrorName.restype = ctypes.c_char_p
    assert cudart.cudaGetErrorString(2) == b"out of memory"
    assert cudart.cudaGetErrorName(1) == b"cudaErrorInvalidValue"
    assert cudart.cudaGetErrorString(123456) == b"unrecognized error code"
    assert cudart.cudaSetDevice(0) == cudart.cudaDeviceSynchronize() == 0
    empty = ctypes.c_void_p(7)
    assert cudart.cudaMalloc(ctypes.byref(empty), ctypes.c_size_t(0)) == 0
    assert empty.value is None


def test_the_library_fills(cudart: Any) -> None:
    place = ctypes.c_void_p()
    assert cudart.cudaMalloc(ctypes.byref(place), ctypes.c_size_t(16)) == 0
    assert cudart.cudaMemset(place, 3, ctypes.c_size_t(8)) == 0
    assert cudart.cudaMemsetAsync(place, 4, ctypes.c_size_t(2), None) == 0
    assert ctypes.string_at(place, 9) == b"\4\4" + b"\3" * 6 + b"\0"
    assert cudart.cudaFree(place) == 0


def test_threads_of_the_library(cudart: Any) -> None:
    def work(seed: int) -> bool:
        data, back = np.full(1000 + seed, seed, np.uint8), np.zeros(1000 + seed, np.uint8)
        for _ in range(40):
            place = ctypes.c_void_p()
            size = ctypes.c_size_t(data.nbytes)
            done = cudart.cudaMalloc(ctypes.byref(place), size)
            done |= cudart.cudaMemcpy(place, ctypes.c_void_p(data.ctypes.data), size, 1)
            done |= cudart.cudaMemcpy(ctypes.c_void_p(back.ctypes.data), place, size, 2)
            done |= cudart.cudaFree(place)
            if done or not np.array_equal(back, data):
                return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(work, range(1, 17)))


def test_events_and_more_of_the_ctypes_face() -> None:
    cudart = CudartLibrary()
    first, last, place = (ctypes.c_void_p() for _ in range(3))
    for event in (first, last):
        assert cudart["cudaEventCreate"](ctypes.byref(event)) == 0
        assert cudart["cudaEventRecord"](event, None) == 0
    milliseconds = ctypes.c_float(-1)
    assert cudart["cudaEventElapsedTime"](ctypes.byref(milliseconds), first, last) == 0
    assert milliseconds.value >= 0
    assert cudart["cudaEventDestroy"](first) == 0
    assert cudart["cudaEventSynchronize"](first) == 400
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert cudart["cudaMemGetInfo"](ctypes.byref(free), ctypes.byref(total)) == 0
    assert 0 < free.value <= total.value
    assert cudart["cudaMallocManaged"](ctypes.byref(place), 8, 1) == 0
    assert runtime.cudaMemset(place, 0, 8) == (OK,)  # one table for all faces
    assert cudart["cudaFreeAsync"](place, None) == 0
    with pytest.raises(AttributeError, match="libcudart has no cudaNothing; it has cudaDevice"):
        cudart["cudaNothing"]


# -- threads --------------------------------------------------------------------------------------


def test_allocations_from_several_threads() -> None:
    before = settled()

    def work(seed: int) -> list[int]:
        data, found = np.full(500 + seed, seed, np.uint8), []
        for _ in range(50):
            place = device_memory(data.nbytes)
            found.append(place)
            good(runtime.cudaMemcpy(place, data, data.nbytes, Kind.cudaMemcpyHostToDevice))
            if len(found) > 3:
                good(runtime.cudaFree(found.pop(0)))
        for place in found:
            assert ctypes.string_at(place, data.nbytes) == data.tobytes()
        return found

    with ThreadPoolExecutor(8) as threads:
        left = [place for found in threads.map(work, range(16)) for place in found]
    assert len(left) == len(set(left))
    assert before - MACHINE.free_and_total().free == sum(3 * (500 + s) for s in range(16))
    for place in left:
        good(runtime.cudaFree(place))
    assert MACHINE.free_and_total().free == before


def test_errors_are_of_a_thread() -> None:
    runtime.cudaGetLastError()
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(runtime.cudaFree, UNMAPPED).result() == (INVALID,)
        assert runtime.cudaGetLastError() == (OK,)
        assert thread.submit(runtime.cudaGetLastError).result() == (INVALID,)


# -- install --------------------------------------------------------------------------------------


def test_install_and_uninstall() -> None:
    before = {name: sys.modules.get(name) for name in (*modules.PYCUDA, *modules.CUDA_PYTHON)}
    real = ctypes.CDLL
    names = cuda_stand_in.install(force=True)
    try:
        assert names == cuda_stand_in.install()
        assert {"cuda.bindings.runtime", "cuda.cudart", "pycuda.driver"} <= set(names)
        for name in names:
            assert importlib.import_module(name) is sys.modules[name]
            assert importlib.util.find_spec(name) is not None
        assert importlib.import_module("cuda").cudart is runtime
        assert importlib.import_module("pycuda.driver") is pycuda
        for name in ("libcudart.so", "/usr/local/cuda/lib64/libcudart.so.12", "cudart64_12.dll"):
            assert isinstance(ctypes.CDLL(name), CudartLibrary)
            assert isinstance(ctypes.cdll.LoadLibrary(name), CudartLibrary)
        assert ctypes.util.find_library("cudart") == "libcudart.so"
        assert isinstance(ctypes.CDLL(None), real)
        with pytest.raises(OSError, match="no_such_library"):
            ctypes.CDLL("libno_such_library.so")
    finally:
        cuda_stand_in.uninstall()
    assert ctypes.CDLL is real
    assert {name: sys.modules.get(name) for name in before} == before


def test_nothing_is_shadowed_where_engines_are_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACTIX_TENSORRT_DEVICE", "cuda")
    real = ctypes.CDLL
    assert cuda_stand_in.install() == ()
    assert ctypes.CDLL is real
    monkeypatch.setenv("TACTIX_TENSORRT_DEVICE", "cpu")
    try:
        assert "cuda.bindings.runtime" in cuda_stand_in.install()
    finally:
        cuda_stand_in.uninstall()
    monkeypatch.setenv("TACTIX_TENSORRT_DEVICE", "tpu")
    with pytest.raises(ConfigError, match="'tpu'"):
        cuda_stand_in.install()


def test_a_kernel_compiler_that_is_installed_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    real = type(sys)("real")
    vars(real)["nvrtcVersion"] = lambda: (0, 99, 1)
    monkeypatch.setattr(modules, "_has_nvrtc", lambda: True)
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", real)
    assert "cuda.bindings.nvrtc" not in cuda_stand_in.install(force=True)
    try:
        assert sys.modules["cuda.bindings.nvrtc"] is real
        assert importlib.import_module("cuda.nvrtc").nvrtcVersion() == (0, 99, 1)
    finally:
        cuda_stand_in.uninstall()


MADE_OF_THE_DRIVER = """
from cuda.bindings.driver import OWN
def nvrtcVersion():
    return 0, OWN, 1
"""
USING_BOTH = """
from tactix_tensorrt import cuda_stand_in
cuda_stand_in.install(force=True)
from cuda.bindings import driver, nvrtc
from cuda import nvrtc as older
print(nvrtc.nvrtcVersion(), older.nvrtcVersion())
import cuda.bindings.driver, cuda.bindings.nvrtc
from tactix_tensorrt.cuda_stand_in import driver as ours
print(cuda.bindings.driver is driver is ours, cuda.bindings.nvrtc is nvrtc)
"""


def test_a_kernel_compiler_that_is_installed_is_imported_beside_its_own_driver(
    tmp_path: Path,
) -> None:
    bindings = tmp_path / "cuda" / "bindings"
    bindings.mkdir(parents=True)
    contents = {"__init__": "", "driver": "OWN = 99", "nvrtc": MADE_OF_THE_DRIVER}
    for name, content in contents.items():
        (bindings / f"{name}.py").write_text(content)
    (tmp_path / "cuda" / "__init__.py").touch()
    made = subprocess.run(
        [sys.executable, "-c", USING_BOTH],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.stdout.splitlines() == ["(0, 99, 1) (0, 99, 1)", "True True"], made.stderr


def test_a_kernel_compiler_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "_has_nvrtc", lambda: False)
    cuda_stand_in.install(force=True)
    try:
        assert importlib.import_module("cuda.bindings.nvrtc") is nvrtc
        assert importlib.import_module("cuda.nvrtc") is nvrtc
    finally:
        cuda_stand_in.uninstall()


def test_tactix_takes_the_stand_in_for_no_gpu(installed: tuple[str, ...]) -> None:
    with pytest.raises(RuntimeError, match=r"cuda\.bindings\.driver is tactix's stand-in"):
        Driver()
    assert CudaDevice().available() == (
        "no NVIDIA driver: cuda.bindings.driver is tactix's stand-in: host memory"
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("libcudart.so", True),
        (b"/a/b/libcudart.so.13", True),
        (Path("/a/libcudart.so.12.4"), True),
        ("libcudart_static.a", False),
        ("libcuda.so.1", False),
        (None, False),
    ],
)
def test_which_libraries_are_cudart(name: object, expected: bool) -> None:
    assert modules.is_cudart(name) is expected


# -- subprocesses ---------------------------------------------------------------------------------

PROGRAM = """
import ctypes, numpy as np
from cuda import cudart
import pycuda.driver, pycuda.autoinit
error, place = cudart.cudaMalloc(16)
assert error == cudart.cudaError_t.cudaSuccess, error
library = ctypes.CDLL("libcudart.so")
host = np.arange(4, dtype=np.float32)
assert library.cudaMemcpy(ctypes.c_void_p(place), ctypes.c_void_p(host.ctypes.data), 16, 1) == 0
print(pycuda.driver.from_device(place, 4, np.float32).tolist())
"""


def run(script: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=120
    )


def test_a_subprocess_gets_it_by_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TACTIX_TENSORRT_DEVICE", "cpu")
    other = tmp_path / "other"
    other.mkdir()
    (other / "sitecustomize.py").write_text("print('the other one, too')")
    monkeypatch.setenv("PYTHONPATH", str(other))
    monkeypatch.setattr(library, "library", lambda: None)
    folder = cuda_stand_in.write_folder(tmp_path / "new" / "folder")
    assert folder.libraries is None
    done = run(PROGRAM, folder.environment())
    assert (done.stdout, done.stderr) == ("the other one, too\n[0.0, 1.0, 2.0, 3.0]\n", "")


def test_a_program_and_what_it_starts_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TACTIX_TENSORRT_DEVICE", "cpu")
    script = tmp_path / "program.py"
    script.write_text(
        "import pycuda.autoinit, subprocess, sys\n"
        "print(pycuda.autoinit.device.count(), flush=True)\n"
        "if len(sys.argv) == 1: subprocess.run([sys.executable, __file__, 'child'], check=True)\n"
    )
    command = [sys.executable, "-m", "tactix_tensorrt", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("1\n1\n", "")


@linux
@pytest.mark.compiler
def test_a_subprocess_gets_the_library_by_the_loader_path(tmp_path: Path) -> None:
    folder = cuda_stand_in.write_folder(tmp_path)
    environment = folder.environment({"LD_LIBRARY_PATH": "/elsewhere"})
    assert environment["LD_LIBRARY_PATH"] == f"{folder.libraries}:/elsewhere"
    assert environment["PYTHONPATH"] == str(tmp_path)
    del environment["PYTHONPATH"]
    script = (
        "import ctypes; library = ctypes.CDLL('libcudart.so.12'); p = ctypes.c_void_p(); "
        "print(library.cudaMalloc(ctypes.byref(p), 8), library.cudaFree(p), library.cudaFree(p))"
    )
    done = run(script, environment)
    assert done.stdout == "0 0 1\n"
    assert "was freed before" in done.stderr


def test_without_a_compiler_there_is_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "find_compiler", lambda: ())
    assert library.library() is None


def test_sizes_and_addresses() -> None:
    assert addresses.address(np.uint64(5)) == 5
    assert addresses.address(ctypes.c_void_p(7)) == 7
    assert addresses.copy_end(np.array(3)).room == 8  # an array without axes is no integer
    assert not addresses.is_mapped(8, 1)
    buffer = ctypes.create_string_buffer(8)
    own = ctypes.addressof(buffer) + 1
    assert addresses.is_mapped(own, 1)
    for beyond in ((own, (1 << 64) - 1), (own, 1 << 64), (own + (1 << 64), 1)):
        assert not addresses.is_mapped(*beyond)
    table = memory.AllocationTable()
    made = table.allocate(8, memory.MemoryPlace.DEVICE)
    assert table.holding(made.address + 7) is made
    assert table.holding(made.address + 8) is None
    assert table.holding(made.address - 1) is None
