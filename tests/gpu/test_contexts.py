"""Contexts of one engine on the GPU: memory of the caller's, streams, branches of graphs, the L2
cache, allocators.
"""

from __future__ import annotations

import gc
from typing import Any

import cuda_contexts as c
import cuda_engine as e
import numpy as np
import pytest
from cuda_steps import LAUNCHER, N, operand

from tactix.base.errors import AllocationError
from tactix.contracts.artifact import KernelArtifact, Launch, Source, scalar, tensor_in, tensor_out
from tactix.contracts.launcher import LinkContext, Step
from tactix.plan.memory import plan_memory
from tactix.run.runtime import Runtime
from tactix_cuda.device import CudaDevice
from tactix_cuda.external_allocators import GpuAllocator, PycudaAllocator
from tactix_cuda.graph import CudaRun
from tactix_cuda.launcher import CubinLauncher
from tactix_cuda.memory import PoolAllocator
from tactix_cuda.nvrtc import NvrtcCompiler

pytestmark = pytest.mark.gpu

MIX = Source(
    "cuda_c",
    """
extern "C" __global__ void TX_ENTRY(const int* x, const int* y, int* z, long long n) {
    for (long long i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) {
        unsigned v = (unsigned)x[i] * 3 + (unsigned)y[i] * 5 + 1;
        for (int k = 0; k < 2000; k++) v = v * 1664525u + 1013904223u;
        z[i] = (int)v;
    }
}
""",
)


@pytest.fixture(scope="module")
def engine(device: CudaDevice) -> Any:
    built = e.builder()
    return Runtime(session=built.session).load(built.build_plan(e.sums(built), e.config()))


def test_memory_of_the_callers(engine: Any, device: CudaDevice) -> None:
    c.check_users_memory(engine, PoolAllocator(device))


def test_alignment(engine: Any, device: CudaDevice) -> None:
    c.check_alignment(engine, PoolAllocator(device))


def test_many_contexts_and_streams(engine: Any, device: CudaDevice) -> None:
    c.check_streams(engine, PoolAllocator(device), count=8, rounds=20)


def test_the_cache(engine: Any) -> None:
    c.check_cache(engine)


@pytest.mark.parametrize("aux", [-1, 0, 1, 3])
def test_auxiliary_streams(device: CudaDevice, aux: int) -> None:
    built = e.builder()
    plan = built.build_plan(e.sums(built), e.config(max_aux_streams=aux))
    e.check_engine(Runtime(session=built.session).load(plan))


def mixed(x: Any, y: Any) -> Any:
    v = x * np.int32(3) + y * np.int32(5) + np.int32(1)
    for _ in range(2000):
        v = v * np.int32(1664525) + np.int32(1013904223)
    return v


@pytest.mark.parametrize("aux", [-1, 1, 3, 15])
@pytest.mark.parametrize("n", [257, 20000])
def test_branches_in_an_arena(device: CudaDevice, n: int, aux: int) -> None:
    """Wide networks of slow kernels in one arena: a missing edge shows as a wrong number."""
    (code,) = NvrtcCompiler().compile([MIX], device.properties())
    rng = np.random.default_rng(n)
    args = (tensor_in(0), tensor_in(1), tensor_out(), scalar(N))
    artifact = KernelArtifact(LAUNCHER, (Launch(args, (7,), (256,)),), code)
    wired = [(int(rng.integers(max(0, k - 6), k)), int(rng.integers(0, k))) for k in range(2, 42)]
    steps = [
        Step(f"s{k}", artifact, (operand(a), operand(b)), (operand(k),))
        for k, (a, b) in enumerate(wired, 2)
    ]
    lives = [[k, k] for k in range(len(steps))]
    for k, pair in enumerate(wired):
        for b in pair:
            if b >= 2:
                lives[b - 2][1] = k
    lives[-1][1] = len(steps)
    offsets, total = plan_memory([4 * n] * len(lives), [(a, b) for a, b in lives])
    launcher, memory = CubinLauncher(), PoolAllocator(device)
    context = LinkContext(device, 1, lambda key: None, max_aux_streams=aux)  # type: ignore
    run = device.link(steps, {launcher.key: launcher}, context)
    assert isinstance(run, CudaRun)
    held = [rng.integers(-(2**30), 2**30, n).astype(np.int32) for _ in range(2)]
    arena, inputs = memory.allocate(total), [memory.allocate(4 * n) for _ in held]
    for address, x in zip(inputs, held, strict=True):
        device.copy_in(address, x)
    run.bind({"n": n}, [*inputs, *(arena + o for o in offsets)])
    with np.errstate(over="ignore"):
        for a, b in wired:
            held.append(mixed(held[a], held[b]))
    got = np.empty(n, np.int32)
    for times in (1, 1, 41):
        if times == 1:
            run()
        else:
            run.repeat(times)
        device.copy_out(got, arena + offsets[-1])
        assert np.array_equal(got, held[-1])
    assert run.plain == ""


class Users:
    """An allocator as TensorRT asks for one, over the driver's pool."""

    def __init__(self, device: CudaDevice) -> None:
        self.pool, self.live = PoolAllocator(device), set[int]()

    def allocate_async(self, size: int, alignment: int, flags: int, stream: int) -> int:
        address = self.pool.allocate(size, alignment, stream)
        self.live.add(address)
        return address

    def deallocate_async(self, memory: int, stream: int) -> bool:
        self.live.remove(memory)
        self.pool.deallocate(memory, stream)
        return True


def test_an_allocator_of_the_users(device: CudaDevice) -> None:
    own, built = Users(device), e.builder()
    plan = built.build_plan(e.sums(built), e.config())
    e.check_engine(Runtime(session=built.session, allocator=GpuAllocator(own, device)).load(plan))
    assert own.live


def test_pycudas_pool(device: CudaDevice) -> None:
    """Beside arrays of pycuda, which know the primary context; what an engine takes goes back to
    the pool.
    """
    pytest.importorskip("pycuda")
    built, memory = e.builder(), PycudaAllocator(device)
    plan = built.build_plan(e.sums(built), e.config())
    e.check_engine(Runtime(session=built.session, allocator=PycudaAllocator.key).load(plan))
    engine = Runtime(session=built.session, allocator=memory).load(plan)
    e.check_engine(engine)
    e.check_addresses(engine, device, PoolAllocator(device))
    c.check_streams(engine, PoolAllocator(device), count=4, rounds=5)
    _driver, context, pool = memory._pool
    assert pool.active_blocks > 0
    context.push()
    try:
        from pycuda import gpuarray

        x = gpuarray.to_gpu(np.arange(1000, dtype=np.float32), allocator=pool.allocate)
        given = memory.allocate(4000)
        device.copy_within(given, int(x.ptr), 4000)
        got = np.empty(1000, np.float32)
        device.copy_out(got, given)
        assert np.array_equal(got, x.get())
        memory.deallocate(given)
        del x
    finally:
        context.pop()
    with pytest.raises(AllocationError, match="bytes of device memory"):
        memory.allocate(1 << 50)
    del engine
    gc.collect()
    assert pool.active_blocks == 0
