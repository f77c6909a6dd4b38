"""The device over a driver that is not one: properties, reasons, copies, streams, events, memory."""

from __future__ import annotations

import gc
import sys
from typing import Any

import fake_driver
import numpy as np
import pytest
from fake_driver import FakeApi, fake_device

from tactix.base.errors import AllocationError, ExecutionError, InvalidArgument
from tactix_cuda.device import CudaDevice
from tactix_cuda.driver import Driver
from tactix_cuda.memory import LARGE, PoolAllocator, RecyclingAllocator


def test_properties() -> None:
    device, _api = fake_device()
    p = device.properties()
    assert (p.kind, p.name, p.cores, p.memory) == ("cuda", "Fake GPU", 132, 1 << 30)
    assert {"sm_80", "sm_90", "sm_90a", "cubin_90"} <= p.features
    assert p.facts["l2"] == 60 << 20
    assert device.available() == ""


def test_reasons_for_not_being_available(monkeypatch: pytest.MonkeyPatch) -> None:
    device, api = fake_device()
    api.fail["cuInit"] = 500
    assert "CUDA_ERROR_NOT_FOUND: the text" in device.available()
    assert "0 is not" not in CudaDevice(1, Driver(FakeApi())).available()
    assert "the driver shows 1 devices, 1 is not" in CudaDevice(1, Driver(FakeApi())).available()
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    assert "pip install tactix[cuda]" in CudaDevice().available()


def test_an_older_device_is_not_available(monkeypatch: pytest.MonkeyPatch) -> None:
    device, _ = fake_device()
    monkeypatch.setitem(fake_driver.ATTRIBUTES, "COMPUTE_CAPABILITY_MAJOR", 7)
    monkeypatch.setitem(fake_driver.ATTRIBUTES, "COMPUTE_CAPABILITY_MINOR", 5)
    assert device.available().endswith(
        "has compute capability 7.5; kernels are written for 8.0 and later"
    )


def test_without_a_driver_the_reason_is_one_line() -> None:
    class NoDriver(FakeApi):
        def _cuInit(self, flags: int) -> Any:
            raise RuntimeError("no such library\nmore\nand more")

    assert CudaDevice(driver=Driver(NoDriver())).available() == "no NVIDIA driver: no such library"


@pytest.mark.parametrize("shape", [(), (0,), (3, 5, 7), (100003,)])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "bool"])
def test_copies(shape: tuple[int, ...], dtype: str) -> None:
    device, _api = fake_device()
    memory = PoolAllocator(device)
    x = np.random.default_rng(1).integers(0, 2, shape).astype(dtype)
    y = np.ones_like(x)
    address = memory.allocate(x.nbytes)
    device.copy_in(address, x)
    device.copy_out(y, address)
    assert np.array_equal(x, y)
    memory.deallocate(address)


def test_copies_of_odd_arrays() -> None:
    device, _api = fake_device()
    memory = PoolAllocator(device)
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    address = memory.allocate(x.nbytes)
    device.copy_in(address, x.T)
    y = np.empty((6, 4), np.float32)
    device.copy_out(y, address)
    assert np.array_equal(y, x.T)
    with pytest.raises(InvalidArgument, match="not contiguous"):
        device.copy_out(x.T, address)
    y.flags.writeable = False
    with pytest.raises(InvalidArgument, match="read-only"):
        device.copy_out(y, address)


def test_copies_wait_outside_of_submit_only() -> None:
    device, api = fake_device()
    x = np.zeros(4, np.float32)
    address = PoolAllocator(device).allocate(16)
    api.log.clear()
    device.copy_in(address, x)
    assert api.log[-1] == "cuStreamSynchronize"
    api.log.clear()
    device.create_stream().submit(lambda: device.copy_in(address, x))
    assert "cuStreamSynchronize" not in api.log


def test_streams() -> None:
    device, api = fake_device()
    seen = []
    first, second = device.create_stream(), device.create_stream()
    assert first.handle != second.handle

    def inner() -> None:
        seen.append(device.current().handle)
        second.submit(lambda: seen.append(device.current().handle))
        seen.append(device.current().handle)

    first.submit(inner)
    assert seen == [first.handle, second.handle, first.handle]
    with pytest.raises(ZeroDivisionError):
        first.submit(lambda: 1 // 0)
    assert device.current().handle == 0
    assert device.stream_of(0) is device.default_stream
    assert device.stream_of(first.handle).handle == first.handle
    with pytest.raises(InvalidArgument):
        device.stream_of(-1)
    api.fail["cuStreamSynchronize"] = 700
    with pytest.raises(ExecutionError, match="CUDA_LAUNCH_BLOCKING=1"):
        second.synchronize()


def test_streams_and_events_are_destroyed() -> None:
    device, api = fake_device()
    stream, event = device.create_stream(), device.create_event()
    event.record(stream)
    view = device.stream_of(stream.handle)
    del view
    gc.collect()
    assert "cuStreamDestroy" not in api.log
    del stream, event
    gc.collect()
    assert {"cuStreamDestroy", "cuEventDestroy"} <= set(api.log)


def test_events_measure() -> None:
    device, api = fake_device()

    class Counted:
        runs = 0

        def repeat(self, times: int) -> None:
            assert device.local.stream is not None
            self.runs += times

    runnable: Any = Counted()
    assert (
        device.measure(runnable, 100) == 1.0
    )  # handles of the fake's events differ by one, which stands for a second
    assert runnable.runs >= 100
    assert api.log.count("cuEventRecord") == 2
    with pytest.raises(InvalidArgument, match="cannot be recorded"):
        device.create_event().record(object())  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [PoolAllocator, RecyclingAllocator])
def test_allocators(kind: Any) -> None:
    device, api = fake_device()
    memory = kind(device)
    a, b = memory.allocate(1000), memory.allocate(0, 256)
    assert a != b
    assert a % 256 == b % 256 == 0
    memory.deallocate(a)
    memory.deallocate(b)
    for size, alignment in ((-1, 64), (4, 3), (4, 0), (4, 512)):
        with pytest.raises(InvalidArgument):
            memory.allocate(size, alignment)
    api.fail |= {"cuMemAlloc": 2, "cuMemAllocAsync": 2}
    with pytest.raises(
        AllocationError, match=r"cannot have \d+ bytes of device memory: CUDA_ERROR_OUT_OF_MEMORY"
    ):
        memory.allocate(9999999)


def test_the_pool_waits_where_no_stream_is_named() -> None:
    device, api = fake_device()
    memory = PoolAllocator(device)
    stream = device.create_stream()
    memory.allocate(1)
    api.log.clear()
    a = memory.allocate(100, stream=stream.handle)
    memory.deallocate(a, stream=stream.handle)
    assert not {"cuStreamSynchronize", "cuCtxSynchronize"} & set(api.log)
    memory.deallocate(memory.allocate(100))
    assert {"cuStreamSynchronize", "cuCtxSynchronize"} <= set(api.log)


def test_the_cache_hands_out_what_came_back() -> None:
    device, api = fake_device()
    memory = RecyclingAllocator(device)
    a = memory.allocate(1000)
    memory.deallocate(a)
    assert memory.allocate(700) == a
    other = memory.allocate(700)
    assert other != a
    memory.deallocate(other, stream=5)
    assert memory.allocate(700) != other
    assert memory.allocate(700, stream=5) == other
    with pytest.raises(InvalidArgument, match="not allocated"):
        memory.deallocate(a + 512)
    big = memory.allocate(LARGE + 1)
    memory.deallocate(big)
    assert memory.trim() == 2 * LARGE
    assert big not in api.memory
    assert a in api.memory


def test_the_cache_gives_up_its_pieces_when_memory_ends() -> None:
    device, api = fake_device()
    memory = RecyclingAllocator(device)
    kept = memory.allocate(4096)
    memory.deallocate(kept)
    real, calls = api._cuMemAlloc, []

    def once(size: int) -> tuple[int]:
        calls.append(size)
        api.fail.pop("cuMemAlloc", None)
        return real(size)

    api._cuMemAlloc = once  # type: ignore[method-assign]
    api.fail["cuMemAlloc"] = 2
    freed: list[int] = []  # the host may give a new piece the address of one that was freed
    api._cuMemFree = lambda address, stream=0: (api.fail.clear(), freed.append(int(address)), ())[
        -1
    ]  # type: ignore
    assert memory.allocate(1 << 20)
    assert freed == [kept]
    assert calls == [1 << 20]


@pytest.mark.parametrize("kind", [PoolAllocator, RecyclingAllocator])
def test_memory_may_come_back_while_some_is_allocated(kind: Any) -> None:
    """As when the garbage collector runs in the middle of it."""
    device, api = fake_device()
    memory = kind(device)
    pieces = [memory.allocate(1000) for _ in range(5)]
    for p in pieces[:2]:
        memory.deallocate(p)
    real = api._cuMemAlloc

    def collecting(size: int) -> tuple[int]:
        memory.deallocate(pieces.pop())
        return real(size)

    api._cuMemAlloc = collecting  # type: ignore[method-assign]
    a, b = memory.allocate(5000), memory.allocate(6000)
    assert len({a, b, *pieces}) == 2 + len(pieces)
