"""Allocators of others over the fake driver: pycuda's pool by a stand-in, and users' objects as
TensorRT asks for.
"""

from __future__ import annotations

import ctypes
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_driver import fake_device

from tactix.base.errors import AllocationError, InvalidArgument, PluginError
from tactix_cuda import allocators
from tactix_cuda.device import the_device
from tactix_cuda.external_allocators import GpuAllocator, PycudaAllocator
from tactix_cuda.memory import PoolAllocator


class Pieces:
    """Host memory by address. ``log``: the calls."""

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.live: dict[int, Any] = {}
        self.most = 1 << 20

    def take(self, size: int) -> int | None:
        if size > self.most:
            return None
        held = (ctypes.c_ubyte * (size + 512))()
        address = -(-ctypes.addressof(held) // 512) * 512
        self.live[address] = held
        return address


class Sync(Pieces):
    def allocate(self, size: int, alignment: int, flags: int) -> int | None:
        self.log.append(("allocate", size, alignment, flags))
        return self.take(size)

    def deallocate(self, memory: int) -> bool:
        self.log.append(("deallocate", memory))
        return self.live.pop(memory, None) is not None


class Async(Pieces):
    def allocate_async(self, size: int, alignment: int, flags: int, stream: int) -> int | None:
        self.log.append(("allocate_async", size, alignment, flags, stream))
        return self.take(size)

    def deallocate_async(self, memory: int, stream: int) -> bool:
        self.log.append(("deallocate_async", memory, stream))
        return self.live.pop(memory, None) is not None


class Both(Sync, Async):
    pass


@pytest.mark.parametrize("kind", [Sync, Async, Both])
def test_a_users_memory_goes_back_the_way_it_came(kind: Any) -> None:
    device, _api = fake_device()
    own = kind()
    memory = GpuAllocator(own, device)
    stream = device.create_stream().handle
    a, b = memory.allocate(100), memory.allocate(0, 256, stream)
    plain, ordered = kind is not Async, kind is not Sync
    assert own.log[0] == (("allocate", 100, 64, 0) if plain else ("allocate_async", 100, 64, 0, 0))
    assert own.log[1] == (
        ("allocate_async", 1, 256, 0, stream) if ordered else ("allocate", 1, 256, 0)
    )
    memory.deallocate(a)
    memory.deallocate(b, stream)
    assert own.log[2] == (("deallocate", a) if plain else ("deallocate_async", a, 0))
    assert own.log[3] == (("deallocate_async", b, stream) if ordered else ("deallocate", b))
    assert not own.live


def test_a_users_memory_is_waited_for() -> None:
    device, api = fake_device()
    stream = device.create_stream().handle
    for own, given, call in (
        (Sync(), 0, "cuCtxSynchronize"),
        (Sync(), stream, "cuStreamSynchronize"),
        (Async(), 0, "cuCtxSynchronize"),
        (Async(), stream, ""),
    ):
        memory = GpuAllocator(own, device)
        a = memory.allocate(8, 64, given)
        api.log.clear()
        memory.deallocate(a, given)
        assert [x for x in api.log if "Synchronize" in x] == ([call] if call else [])


def test_a_user_who_gives_no_memory_or_the_wrong_one() -> None:
    device, _api = fake_device()
    own = Sync()
    memory = GpuAllocator(own, device)
    with pytest.raises(
        AllocationError,
        match=r"^Sync: cannot have 2097152 bytes of device memory: it gave no address",
    ):
        memory.allocate(2 << 20)
    own.take = lambda size: 4097  # type: ignore[method-assign]
    with pytest.raises(AllocationError, match="it gave 0x1001, which is no multiple of 64"):
        memory.allocate(1)
    own.take = lambda size: 1 // 0  # type: ignore[method-assign,return-value]
    with pytest.raises(AllocationError, match="ZeroDivisionError"):
        memory.allocate(1)
    with pytest.raises(AllocationError, match="was not taken back"):
        memory.deallocate(64)
    with pytest.raises(InvalidArgument, match="a SimpleNamespace is no allocator"):
        GpuAllocator(SimpleNamespace(allocate=print), device)


# -- pycuda --------------------------------------------------------------------------------------


class FakePool(Pieces):
    def allocate(self, size: int) -> Any:
        assert sys.modules["pycuda"].driver.stack  # type: ignore[attr-defined]
        address = self.take(size)
        if address is None:
            raise MemoryError("out of memory")
        piece = SimpleNamespace(free=lambda: self.live.pop(address))
        return type("Piece", (), {"__int__": lambda s: address, "free": lambda s: piece.free()})()


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> FakePool:
    made, stack = FakePool(), list[int]()
    context = SimpleNamespace(push=lambda: stack.append(1), pop=stack.pop)
    device = SimpleNamespace(retain_primary_context=lambda: context)
    package = ModuleType("pycuda")
    package.driver = SimpleNamespace(
        init=lambda: None, Device=lambda n: device, Error=OSError, stack=stack
    )  # type: ignore
    package.tools = SimpleNamespace(DeviceMemoryPool=lambda: made)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pycuda", package)
    return made


def test_pycudas_pool(pool: FakePool) -> None:
    device, _api = fake_device()
    memory = PycudaAllocator(device)
    a = memory.allocate(1000)
    assert list(pool.live) == [a]
    with pytest.raises(AllocationError, match="out of memory"):
        memory.allocate(1 << 30)
    with pytest.raises(InvalidArgument):
        memory.allocate(4, 3)
    x, y = np.arange(10, dtype=np.int32), np.zeros(10, np.int32)
    device.copy_in(a, x)
    device.copy_out(y, a)
    assert np.array_equal(x, y)
    memory.deallocate(a)
    assert not pool.live
    with pytest.raises(InvalidArgument, match="is not allocated"):
        memory.deallocate(a)
    assert not sys.modules["pycuda"].driver.stack  # type: ignore[attr-defined]


def test_without_pycuda_it_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pycuda", None)
    device, _api = fake_device()
    with pytest.raises(AllocationError, match=r"pycuda is not installed.*pip install pycuda"):
        PycudaAllocator(device).allocate(1)


def test_the_drivers_pool_is_the_default_and_an_object_takes_its_place() -> None:
    from tactix.run.link import allocator_of

    found = {a.key: a for a in sorted(allocators(), key=lambda a: a.key)}
    session, device = SimpleNamespace(allocators=found), the_device()
    assert isinstance(allocator_of(session, device), PoolAllocator)
    assert allocator_of(session, device, "tactix.cuda.pycuda@1") is found["tactix.cuda.pycuda@1"]
    own = GpuAllocator(Sync(), device)
    assert allocator_of(session, device, own) is own
    with pytest.raises(PluginError, match="no allocator 'x' for cuda"):
        allocator_of(session, device, "x")
    with pytest.raises(PluginError, match="for cuda"):
        allocator_of(session, device, SimpleNamespace(key="a", device="cpu"))  # type: ignore[arg-type]
