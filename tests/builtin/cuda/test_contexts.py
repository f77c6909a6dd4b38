"""Contexts of one engine over the fake driver: memory, streams, branches, the L2 cache, when code
is loaded.
"""

from __future__ import annotations

import io
from typing import Any

import cuda_contexts as c
import cuda_engine as e
import numpy as np
import pytest
from cuda_steps import add_step, scale_step
from fake_driver import FakeApi, FakeKernel, fake_device
from test_engine import combine

import tactix
from tactix.base.errors import AllocationError, ConfigError
from tactix.base.logger import Logger, Severity
from tactix.contracts.artifact import Binary
from tactix.contracts.launcher import LinkContext
from tactix.run.runtime import Runtime
from tactix_codegen.compiling import symbol
from tactix_cuda import device as real
from tactix_cuda.device import CudaDevice
from tactix_cuda.external_allocators import GpuAllocator
from tactix_cuda.launcher import CubinLauncher
from tactix_cuda.memory import RecyclingAllocator
from tactix_cuda.nvrtc import why_missing
from tactix_cuda.persisting import chosen

pytestmark = pytest.mark.skipif(bool(why_missing()), reason=why_missing())

Here = tuple[CudaDevice, FakeApi]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Here:
    made = fake_device({symbol(e.RIGHT.code): combine(1), symbol(e.WRONG.code): combine(-1)})
    monkeypatch.setattr(real, "the_device", lambda: made[0])
    return made


def plan_of(**fields: Any) -> tuple[tactix.Builder, tactix.Plan]:
    built = e.builder()
    return built, built.build_plan(e.sums(built), e.config(**fields))


def engine_of(here: Here, **more: Any) -> Any:
    built, plan = plan_of()
    return Runtime(session=built.session, **more).load(plan)


def test_memory_of_the_callers(here: Here) -> None:
    c.check_users_memory(engine_of(here), RecyclingAllocator(here[0]))


def test_alignment(here: Here) -> None:
    c.check_alignment(engine_of(here), RecyclingAllocator(here[0]))


def test_many_contexts_and_streams(here: Here) -> None:
    c.check_streams(engine_of(here), RecyclingAllocator(here[0]))


def test_the_cache(here: Here) -> None:
    _device, api = here
    c.check_cache(engine_of(here))
    windows = {r.window for r in api.ran if r.window}
    assert len(windows) == 1  # of the only weight
    ((_address, size, ratio, kept),) = windows
    assert (size, ratio, kept) == (4 * 301, 1.0, "CU_ACCESS_PROPERTY_PERSISTING")
    assert api.log.count("cuCtxSetLimit") == 1


@pytest.mark.parametrize("graph", ["0", "1"])
def test_windows_of_launches(monkeypatch: pytest.MonkeyPatch, graph: str) -> None:
    monkeypatch.setenv("TACTIX_CUDA_GRAPH", graph)
    device, api = fake_device(
        {"k_a": FakeKernel(4), "k_s": FakeKernel(4), "k_s_shift": FakeKernel(4)}
    )
    launcher = CubinLauncher()
    context = LinkContext(device, 1, lambda key: None, {4: 16}, persistent_cache_limit=100)  # type: ignore
    steps = [add_step(Binary(b"first", "k_a")), scale_step(Binary(b"second", "k_s"))]
    run = device.link(steps, {launcher.key: launcher}, context)
    held = [np.zeros(k, np.float32) for k in (7, 7, 7, 7, 4, 71)]
    run.bind({"n": 7}, [a.ctypes.data for a in held])
    run()
    place = held[4].ctypes.data
    assert [r.window[:2] for r in api.ran if r.window] == [(place, 16)]
    assert [r.symbol for r in api.ran if r.window] == ["k_s"]


def test_which_weights_stay() -> None:
    users = {
        k: [(0, 0, s) for s in starts]
        for k, starts in {1: [0], 2: [1, 2, 3], 3: [4], 4: [5, 5]}.items()
    }
    weights = {1: 50, 2: 60, 3: 10, 4: 10, 9: 1}
    assert chosen(users, weights, 1000, 1000) == [2, 3, 4, 1]
    assert chosen(users, weights, 85, 1000) == [2, 3, 4]
    assert chosen(users, weights, 1000, 55) == [3, 4, 1]
    assert chosen(users, weights, 5, 1000) == []


@pytest.mark.parametrize("aux", [-1, 0, 1, 3])
def test_auxiliary_streams(here: Here, aux: int) -> None:
    built = e.builder()
    net = built.create_network("pair")
    x, y = (net.add_input(name, "f32", (301,)) for name in "xy")
    for name, given in (("p", [x, y]), ("q", [x, x])):  # nothing in common but what they read
        net.mark_output(net.add_layer("tactix.Add", given, name=name)[0], name)
    plan = built.build_plan(net, e.config(max_aux_streams=aux))
    assert plan.meta["max_aux_streams"] == aux
    here[1].edges.clear()
    f = {k: v for k, v in e.feeds(1).items() if k in "xy"}
    got = Runtime(session=built.session).load(plan)(f)
    np.testing.assert_array_equal(got["p"], f["x"] + f["y"])
    np.testing.assert_array_equal(got["q"], f["x"] + f["x"])
    assert [[], [] if aux else [0]] in here[1].edges.values()


@pytest.mark.parametrize(("aux", "beside"), [(-1, True), (1, True), (0, False)])
def test_small_tensors_lie_apart_so_that_steps_run_beside_each_other(
    here: Here, aux: int, beside: bool
) -> None:
    built, plan = plan_of(max_aux_streams=aux)
    engine = Runtime(session=built.session).load(plan)
    here[1].edges.clear()
    f = e.feeds(5)
    for name, y in engine(f).items():
        np.testing.assert_array_equal(y, e.expected(f)[name])
    size = engine.device_memory_size({name: x.shape for name, x in f.items()})
    assert size == (1216 + 192 if beside else 1216)  # 4 * 301 and 4 * 35 bytes, in multiples of 64
    (edges,) = {str(x) for x in here[1].edges.values()}
    assert edges == str([[], [0], [], [2]] if beside else [[], [0], [1], [2]])


def test_fewer_auxiliary_streams_than_none() -> None:
    with pytest.raises(ConfigError, match="max_aux_streams is -2"):
        e.config(max_aux_streams=-2).check()


def test_code_is_loaded_when_the_first_shape_is_bound(here: Here) -> None:
    _device, api = here
    built, plan = plan_of()
    api.log.clear()
    engine = Runtime(session=built.session).load(plan)
    contexts = [engine.create_execution_context() for _ in range(3)]
    assert "cuModuleLoadData" not in api.log
    for k, context in enumerate(contexts):
        context.run(e.feeds(5 + k))
    assert api.log.count("cuModuleLoadData") == 1


def test_memory_is_told(here: Here) -> None:
    out = io.StringIO()
    engine = engine_of(here, logger=Logger(Severity.INFO, out))
    context = engine.create_execution_context()
    context.run(e.feeds(50))
    context.run(e.feeds(5000))
    small, large = (
        engine.device_memory_size({k: x.shape for k, x in e.feeds(n).items()}) for n in (50, 5000)
    )
    told = [line.removeprefix("[tactix] [I] ") for line in out.getvalue().splitlines()]
    assert f"sums: {4 * 301} bytes of weights on cuda" in told
    assert f"sums: {small} bytes for a context, 0 before" in told
    assert f"sums: {large} bytes for a context, {small} before" in told
    assert engine.inspect()["memory"]["weights"] == 4 * 301
    assert any("End engine of sums: CPU +" in text and "GPU +0, now: CPU" in text for text in told)


def test_memory_in_use_counts_what_is_allocated(here: Here) -> None:
    device, _ = here
    before = device.memory_used()
    kept = device.driver.call("cuMemAlloc", 1 << 20)
    assert device.memory_used() - before >= 1 << 20
    device.driver.call("cuMemFree", kept)
    assert device.memory_used() == before


class Users:
    """An allocator as TensorRT asks for one; over the fake's memory."""

    def __init__(self, api: FakeApi) -> None:
        self.api, self.live, self.refuses = api, set[int](), False

    def allocate_async(self, size: int, alignment: int, flags: int, stream: int) -> int | None:
        if self.refuses:
            return None
        (address,) = self.api._cuMemAlloc(size)
        self.live.add(address)
        return address

    def deallocate_async(self, memory: int, stream: int) -> bool:
        self.api._cuMemFree(memory)
        self.live.remove(memory)
        return True


def test_an_allocator_of_the_users(here: Here) -> None:
    device, api = here
    own = Users(api)
    engine = engine_of(here, allocator=GpuAllocator(own, device))
    assert own.live
    e.check_engine(engine)
    own.refuses = True
    with pytest.raises(AllocationError, match=r"Users: cannot have .* it gave no address"):
        engine.create_execution_context().run(e.feeds(3))


def test_one_that_finds_no_graph_warns_through_the_engines_logger(here: Here) -> None:
    out = io.StringIO()
    engine = engine_of(here, logger=Logger(stream=out))
    here[1].fail["cuGraphInstantiate"] = 801
    e.check_engine(engine)
    assert (
        "kernels are launched one by one, which takes longer: no CUDA graph: cuGraphInstantiate"
        in out.getvalue()
    )
