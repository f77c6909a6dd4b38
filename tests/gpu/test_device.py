"""The CUDA device itself: memory, streams, events, graphs of hand-written kernels, and what errors
say.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_steps import ADD, SCALE, add_step, scale_step

from tactix.base.errors import AllocationError, ExecutionError
from tactix.contracts.artifact import Launch, Source, scalar, tensor_out
from tactix.contracts.launcher import LinkContext, Step
from tactix_codegen.cuda.target import target
from tactix_cuda.device import CudaDevice, the_device
from tactix_cuda.graph import COPIES, CudaRun
from tactix_cuda.launcher import CubinLauncher
from tactix_cuda.memory import PoolAllocator, RecyclingAllocator
from tactix_cuda.nvrtc import NvrtcCompiler

pytestmark = pytest.mark.gpu

__all__ = ["the_device"]

SIZES = [1, 3, 255, 256, 257, 1000, 100003, (1 << 20) + 1]


class Buffers:
    """The six buffers of the two steps, in device memory."""

    def __init__(self, device: CudaDevice, n: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        sizes = [n, n, n, n, 4, 64 + n]
        self.device, self.n = device, n
        self.host = [rng.standard_normal(k).astype(np.float32) for k in sizes]
        self.memory = PoolAllocator(device)
        self.addresses = [self.memory.allocate(4 * k) for k in sizes]
        for address, x in zip(self.addresses, self.host):
            device.copy_in(address, x)

    def read(self, i: int) -> Any:
        out = np.empty_like(self.host[i])
        self.device.copy_out(out, self.addresses[i])
        return out

    def expected(self) -> tuple[Any, Any]:
        total = self.host[0] + self.host[1]
        return total, total * np.resize(self.host[4], self.n) - total

    def check(self) -> None:
        total, last = self.expected()
        np.testing.assert_array_equal(self.read(2), total)
        np.testing.assert_allclose(
            self.read(3), last, rtol=1e-5, atol=1e-5
        )  # a fused multiply-add may be used

    def free(self) -> None:
        for a in self.addresses:
            self.memory.deallocate(a)


def compiled(device: CudaDevice, sources: Sequence[Source]) -> list[Any]:
    return list(NvrtcCompiler().compile(sources, device.properties()))


def linked(device: CudaDevice, steps: Sequence[Step]) -> CudaRun:
    launcher = CubinLauncher()
    run = device.link(steps, {launcher.key: launcher}, LinkContext(device, 1, lambda key: None))  # type: ignore
    assert isinstance(run, CudaRun)
    return run


def both(device: CudaDevice) -> CudaRun:
    first, second = compiled(device, [ADD, SCALE])
    return linked(device, [add_step(first), scale_step(second)])


def one(device: CudaDevice, text: str, **launch: Any) -> CudaRun:
    """A kernel of an output and a number."""
    (code,) = compiled(device, [Source("cuda_c", text)])
    step = add_step(code)
    made = Launch((tensor_out(), scalar(1)), **{"grid": (1,), "block": (1,), **launch})
    return linked(device, [replace(step, artifact=replace(step.artifact, launches=(made,)))])


def test_properties(device: CudaDevice) -> None:
    p = device.properties()
    assert p.name
    assert p.cores > 0
    assert p.memory > 1 << 30
    assert p.has(f"sm_{p.facts['capability']}")
    assert p.facts["shared_per_block"] >= 48 << 10
    assert p.facts["l2"] > 0


@pytest.mark.parametrize("n", SIZES)
def test_two_steps(device: CudaDevice, n: int) -> None:
    run, b = both(device), Buffers(device, n)
    run.bind({"n": n}, b.addresses)
    run()
    b.check()
    b.free()


def test_one_run_takes_one_shape_after_the_other(device: CudaDevice) -> None:
    run = both(device)
    for n in (7, 100003, 0, 513, 7):
        b = Buffers(device, n, seed=n)
        run.bind({"n": n}, b.addresses)
        run()
        b.check()
        b.free()


def test_rebind(device: CudaDevice) -> None:
    run, b, other = both(device), Buffers(device, 1001), Buffers(device, 1001, seed=5)
    run.bind({"n": 1001}, b.addresses)
    run()
    for i in (0, 1, 3):
        run.rebind(i, other.addresses[i])
    run()
    total = other.host[0] + other.host[1]
    np.testing.assert_array_equal(b.read(2), total)
    want = total * np.resize(b.host[4], 1001) - total
    np.testing.assert_allclose(other.read(3), want, rtol=1e-5, atol=1e-5)
    run.repeat(COPIES + 1)
    np.testing.assert_allclose(other.read(3), want, rtol=1e-5, atol=1e-5)


def test_runs_under_way_keep_their_addresses(device: CudaDevice) -> None:
    run, stream = both(device), device.create_stream()
    all_of = [Buffers(device, 1 << 20, seed=i) for i in range(6)]
    run.bind({"n": 1 << 20}, all_of[0].addresses)
    for b in all_of:
        for i, address in enumerate(b.addresses):
            run.rebind(i, address)
        stream.submit(run)
    stream.synchronize()
    for b in all_of:
        b.check()
        b.free()


@pytest.mark.parametrize("name", ["CUDA_LAUNCH_BLOCKING", "TACTIX_CUDA_GRAPH"])
def test_plain_launches(device: CudaDevice, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "1" if name == "CUDA_LAUNCH_BLOCKING" else "0")
    run, b = both(device), Buffers(device, 5000)
    assert run.plain
    run.bind({"n": 5000}, b.addresses)
    run()
    b.check()


def test_threads_with_streams_of_their_own(device: CudaDevice) -> None:
    made = [(both(device), Buffers(device, 30000 + i, seed=i)) for i in range(4)]
    failed: list[BaseException] = []

    def work(run: CudaRun, b: Buffers) -> None:
        try:
            stream = device.create_stream()
            run.bind({"n": b.n}, b.addresses)
            for _ in range(50):
                stream.submit(run)
            stream.synchronize()
        except BaseException as e:
            failed.append(e)

    threads = [threading.Thread(target=work, args=m) for m in made]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed
    for _, b in made:
        b.check()


def test_copies_in_a_stream(device: CudaDevice) -> None:
    memory, stream = PoolAllocator(device), device.create_stream()
    x = np.random.default_rng(3).standard_normal((301, 77)).astype(np.float16)
    y = np.zeros_like(x)
    address = memory.allocate(x.nbytes, stream=stream.handle)

    def work() -> None:
        device.copy_in(address, x)
        device.copy_out(y, address)

    stream.submit(work)
    memory.deallocate(address, stream=stream.handle)
    np.testing.assert_array_equal(x, y)


def test_measured_seconds_are_seconds(device: CudaDevice) -> None:
    n = 1 << 24
    run, b = both(device), Buffers(device, n)
    run.bind({"n": n}, b.addresses)
    device.measure(run, 1)
    seconds = device.measure(run, 50) / 50
    moved = 4 * n * 8
    assert moved / 50e12 < seconds < 0.1
    b.check()
    begin, end = device.create_event(), device.create_event()
    begin.record(device.default_stream)
    run()
    end.record(device.default_stream)
    assert 0 < end.elapsed(begin) < 1
    b.free()


@pytest.mark.parametrize("kind", [PoolAllocator, RecyclingAllocator])
def test_memory_ends_and_goes_on(device: CudaDevice, kind: Callable[[CudaDevice], Any]) -> None:
    memory = kind(device)
    with pytest.raises(AllocationError, match="CUDA_ERROR_OUT_OF_MEMORY"):
        memory.allocate(1 << 45)
    pieces = [memory.allocate(1000 + i) for i in range(100)]
    assert len(set(pieces)) == 100
    assert all(p % 256 == 0 for p in pieces)
    for p in pieces:
        memory.deallocate(p)
    assert memory.allocate(1 << 20)


def test_clusters(device: CudaDevice) -> None:
    if not device.properties().has("sm_90"):
        pytest.skip("clusters came with compute capability 9.0")
    text = """
extern "C" __global__ void TX_ENTRY(float* y, long long n) {
    unsigned rank, size;
    asm("mov.u32 %0, %cluster_ctarank;" : "=r"(rank));
    asm("mov.u32 %0, %cluster_nctarank;" : "=r"(size));
    y[blockIdx.x] = rank + 100 * size;
}"""
    for graph in ("1", "0"):
        with pytest.MonkeyPatch.context() as m:
            m.setenv("TACTIX_CUDA_GRAPH", graph)
            run, b = one(device, text, grid=(8,), cluster=(4,)), Buffers(device, 8)
        run.bind({"n": 8}, b.addresses)
        run()
        assert b.read(2).tolist() == [400, 401, 402, 403] * 2


@pytest.mark.parametrize(
    "launch", [{"block": (2048,)}, {"shared_bytes": 1 << 20}, {"grid": (1, 1 << 17)}]
)
def test_launches_that_cannot_be(device: CudaDevice, launch: dict[str, Any]) -> None:
    text = 'extern "C" __global__ void TX_ENTRY(float* y, long long n) { y[0] = n; }'
    run, b = one(device, text, **launch), Buffers(device, 4)

    def bind_and_run() -> None:
        run.bind({"n": 4}, b.addresses)
        run()

    with pytest.raises(
        ExecutionError, match=r"^add: (a launch of|cuFuncSetAttribute failed: CUDA_ERROR_)"
    ):
        bind_and_run()
    again = one(device, text)
    again.bind({"n": 4}, b.addresses)
    again()
    assert b.read(2)[0] == 1


def test_code_for_another_architecture(device: CudaDevice) -> None:
    other = "sm_80" if device.properties().facts["capability"] // 10 != 8 else "sm_90"
    (code,) = NvrtcCompiler().compile([ADD], target(other))
    with pytest.raises(ExecutionError, match="add: machine code for another device"):
        linked(device, [add_step(code)])


BROKEN = """
import sys
sys.path[:0] = {path!r}
import test_device as t
device = t.the_device()
text = 'extern "C" __global__ void TX_ENTRY(float* y, long long n) {{ *(float*)8 = n; }}'
run, b = t.one(device, text), t.Buffers(device, 4)
run.bind({{"n": 4}}, b.addresses)
try:
    run()
except t.ExecutionError as e:
    print(e)
"""


@pytest.mark.parametrize("blocking", ["0", "1"])
def test_a_kernel_that_writes_nowhere(
    device: CudaDevice, monkeypatch: pytest.MonkeyPatch, blocking: str
) -> None:
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", blocking)
    here = Path(__file__).parent
    path = [str(here), str(here.parent / "builtin" / "cuda"), *sys.path]
    said = subprocess.run(
        [sys.executable, "-c", BROKEN.format(path=path)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in said.stdout, said.stderr
    assert "The device is lost to this process" in said.stdout
    assert said.stdout.startswith("add: ") is (blocking == "1")
