"""The host as a device: facts, streams, events, copies, linking, memory."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from importlib import resources
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tactix.base.errors import AllocationError, ExecutionError, InvalidArgument
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.launcher import MOST_THREADS, LinkContext, Step
from tactix.run.segments import Segments
from tactix_cpu import allocators, devices, features, levels
from tactix_cpu import device as cpu
from tactix_cpu.allocator import ArenaAllocator
from tactix_cpu.device import CpuDevice


def test_what_the_plugin_offers() -> None:
    assert [d.key for d in devices()] == ["tactix.cpu@1"]
    assert [a.key for a in allocators()] == ["tactix.arena"]


def test_properties_fit_each_other() -> None:
    p = CpuDevice().properties()
    assert p.kind == "cpu"
    assert p.name
    assert p.cores >= 1
    assert p.memory > 1 << 20
    assert p.vector_bits == (512 if p.has("avx512f") else 256 if p.has("avx") else 128)
    assert p.facts["arch"]
    assert CpuDevice().available() == ""


CPUINFO = {
    "model name\t: Old One\nflags\t\t: fpu sse2 ht avx fma\n\nmodel name\t: Other": ("Old One", {"sse2", "avx", "fma"}),
    "Features\t: fp asimd asimddp sve crc32\n": ("", {"neon", "neon_dotprod", "sve"}),
}  # fmt: skip


@pytest.mark.parametrize("text", CPUINFO)
def test_features_are_normalised(text: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text(text)
    monkeypatch.setattr(cpu, "CPUINFO", path)
    properties = cpu._processor.__wrapped__()
    name, found = CPUINFO[text]
    assert properties.features == found
    assert not name or properties.name == name


def test_where_the_system_tells_nothing_the_baseline_is_left(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "CPUINFO", tmp_path / "none")
    monkeypatch.setattr(cpu.platform, "machine", lambda: "arm64")
    assert cpu._processor.__wrapped__().features == {"neon"}


def test_a_stream_works_in_order_on_a_thread_of_its_own() -> None:
    device = CpuDevice()
    stream, seen = device.create_stream(), []
    gate = threading.Event()
    stream.submit(lambda: gate.wait(10) and None)
    for i in range(50):
        stream.submit(lambda i=i: seen.append((i, threading.get_ident())))
    assert seen == []
    gate.set()
    stream.synchronize()
    assert [i for i, _ in seen] == list(range(50))
    assert {t for _, t in seen} != {threading.get_ident()}
    assert device.stream_of(stream.handle) is stream


def test_the_callers_stream_works_at_once() -> None:
    seen: list[int] = []
    stream = CpuDevice().stream_of(0)
    stream.submit(lambda: seen.append(threading.get_ident()))
    assert seen == [threading.get_ident()]
    stream.synchronize()


def test_handles_are_unique_and_forgotten_with_their_stream() -> None:
    device = CpuDevice()
    a, b = device.create_stream(), device.create_stream()
    assert len({0, a.handle, b.handle}) == 3
    gone = b.handle
    del b
    for handle in (gone, 987654, -1):
        with pytest.raises(InvalidArgument, match="no stream"):
            device.stream_of(handle)


def test_the_first_error_of_a_stream_is_raised_once_and_later_work_is_done() -> None:
    stream, seen = CpuDevice().create_stream(), []

    def fail(what: str) -> None:
        raise ExecutionError(what)

    stream.submit(lambda: fail("one"))
    stream.submit(lambda: seen.append(1))
    stream.submit(lambda: fail("two"))
    with pytest.raises(ExecutionError, match="one"):
        stream.synchronize()
    stream.synchronize()
    assert seen == [1]


def test_events_are_reached_after_the_work_before_them() -> None:
    device = CpuDevice()
    stream, before, after = device.create_stream(), device.create_event(), device.create_event()
    pause = threading.Event()
    before.record(stream)
    stream.submit(lambda: pause.wait(0.02) and None)
    after.record(stream)
    assert after.elapsed(before) >= 0.02


def test_copies() -> None:
    device, allocator = CpuDevice(), ArenaAllocator()
    source = np.arange(24, dtype=np.int32).reshape(4, 6)
    address = allocator.allocate(source.nbytes)
    device.copy_in(address, source[:, ::2])
    out = np.zeros((4, 3), np.int32)
    device.copy_out(out, address)
    np.testing.assert_array_equal(out, source[:, ::2])
    frozen = np.zeros(12, np.int32)
    frozen.flags.writeable = False
    for bad in (source[:, ::2], frozen):
        with pytest.raises(InvalidArgument):
            device.copy_out(bad, address)
    allocator.deallocate(address)


@pytest.mark.parametrize("size", [0, 1, 4096, 5000, (2 << 20) + 7])
@pytest.mark.parametrize("alignment", [1, 64, 4096, 1 << 16])
def test_memory_is_aligned_zero_and_writable(size: int, alignment: int) -> None:
    allocator = ArenaAllocator()
    address = allocator.allocate(size, alignment)
    assert address > 0
    assert address % alignment == 0
    data = (ctypes.c_char * size).from_address(address)
    assert bytes(data) == bytes(size)
    ctypes.memset(address, 7, size)
    allocator.deallocate(address)
    with pytest.raises(InvalidArgument, match="not allocated"):
        allocator.deallocate(address)


def test_memory_that_cannot_be_had() -> None:
    for size in (1 << 62, 1 << 70):
        with pytest.raises(AllocationError, match=str(size)):
            ArenaAllocator().allocate(size)
    for size, alignment in ((-1, 64), (64, 0), (64, 48)):
        with pytest.raises(InvalidArgument):
            ArenaAllocator().allocate(size, alignment)


def test_the_allocator_serves_threads() -> None:
    allocator, taken = ArenaAllocator(), []

    def work() -> None:
        for i in range(100):
            address = allocator.allocate(1000 + i)
            ctypes.memset(address, i, 1000 + i)
            taken.append(address)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(set(taken)) == 400
    for address in taken:
        allocator.deallocate(address)


class _Recorder:
    """A launcher whose runnables write down what happens to them."""

    def __init__(self, key: str, log: list[Any]) -> None:
        self.key, self.log, self.device = key, log, "cpu"

    def link(self, steps: Sequence[Step], ctx: LinkContext) -> Any:
        names = "".join(s.name for s in steps)

        class Run:
            bind = staticmethod(
                lambda env, addresses: self.log.append(("bind", names, env["n"], addresses))
            )
            rebind = staticmethod(
                lambda buffer, address: self.log.append(("rebind", names, buffer, address))
            )
            repeat = staticmethod(lambda times: self.log.append(("repeat", names, times)))

            def __call__(_self) -> None:
                self.log.append(("run", names))

        return Run()


def _steps(text: str) -> list[Step]:
    """``"a:x b:y"``: step names and their launchers."""
    return [
        Step(n, KernelArtifact(key), (), ())
        for n, key in (word.split(":") for word in text.split())
    ]


def test_consecutive_steps_of_a_launcher_are_linked_together() -> None:
    device, log = CpuDevice(), []  # type: ignore[var-annotated]
    launchers: Any = {k: _Recorder(k, log) for k in "xy"}
    ctx: Any = SimpleNamespace(device=device, threads=1, layer=None)
    run = device.link(_steps("a:x b:x c:y d:x"), launchers, ctx)
    assert isinstance(run, Segments)
    run.bind({"n": 3}, [1, 2])
    run.rebind(1, 5)
    run()
    assert log[:3] == [("bind", n, 3, [1, 2]) for n in ("ab", "c", "d")]
    assert log[3:] == [("rebind", n, 1, 5) for n in ("ab", "c", "d")] + [
        ("run", n) for n in ("ab", "c", "d")
    ]
    log.clear()
    run.repeat(2)
    assert log == [("run", n) for n in ("ab", "c", "d")] * 2
    alone = device.link(_steps("a:x b:x"), launchers, ctx)
    assert not isinstance(alone, Segments)
    with pytest.raises(ExecutionError, match=r"b: no launcher 'z'.*x, y"):
        device.link(_steps("a:x b:z"), launchers, ctx)


def test_measuring_counts_all_runs() -> None:
    device, log = CpuDevice(), []  # type: ignore[var-annotated]
    run = device.link(_steps("a:x"), {"x": _Recorder("x", log)}, SimpleNamespace())  # type: ignore[dict-item, arg-type]
    assert device.measure(run, 7) > 0
    assert log == [("repeat", "a", 7)]


@pytest.mark.parametrize("level", features.LEVELS)
def test_a_target_has_the_features_of_its_level_alone(level: str) -> None:
    here, found = CpuDevice().properties(), CpuDevice().target(level)
    arch, bits, held = features.LEVELS[level]
    assert (found.kind, found.features, found.vector_bits) == ("cpu", held, bits)
    assert found.cores == here.cores
    if here.features >= held:
        assert (found.name, found.memory, found.facts) == (here.name, here.memory, here.facts)
    else:
        assert (found.name, found.facts) == (level, {"arch": arch})


def test_levels_hold_each_other() -> None:
    v2, v3, v4, arm = (
        features.LEVELS[level][2] for level in ("x86-64-v2", "x86-64-v3", "x86-64-v4", "armv8")
    )
    assert v2 < v3 < v4
    assert v4 <= features.X86
    assert not arm & v4
    assert {"amx_tile", "avx512_vnni"} <= features.X86 - v4


def test_a_target_that_this_machine_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    old = DeviceProperties(
        "cpu", "Old One", frozenset({"sse2", "avx"}), 256, 3, 1 << 30, {"arch": "x86_64", "l2": 99}
    )
    monkeypatch.setattr(cpu, "_properties", lambda: old)
    found = levels.target("x86-64-v3")
    assert (found.name, found.memory, found.facts, found.cores) == (
        "x86-64-v3",
        0,
        {"arch": "x86_64"},
        3,
    )
    with pytest.raises(InvalidArgument, match=r"no level 'x86-64-v9'.*x86-64-v2.*armv8"):
        levels.target("x86-64-v9")


def test_the_pool_takes_as_many_threads_as_can_be_asked_for() -> None:
    text = resources.files("tactix_cpu").joinpath("executor", "threads.c").read_text("utf-8")
    assert f"#define TXE_MAX_THREADS {MOST_THREADS} " in text
