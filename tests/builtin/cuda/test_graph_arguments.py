"""Argument tables, grids and graphs of a run, over a driver whose device is the host."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cuda_steps import BLOCK, SHARED, add_step, scale_step
from fake_driver import FakeApi, FakeKernel, PlainTypes, fake_device

from tactix.base.errors import AllocationError, ExecutionError, ShapeError
from tactix.contracts.artifact import Binary, Launch
from tactix.contracts.launcher import LinkContext, Step
from tactix_cuda.device import CudaDevice
from tactix_cuda.graph import COPIES, CudaRun
from tactix_cuda.launcher import CubinLauncher

SIZES = [1, 255, 256, 257, 1000, 100003]


def floats(address: int, n: int) -> Any:
    return np.frombuffer((ctypes.c_float * n).from_address(address), np.float32)


def add(grid: Sequence[int], x: int, y: int, z: int, n: int) -> None:
    floats(z, n)[:] = floats(x, n) + floats(y, n)


def scale(grid: Sequence[int], x: int, c: int, w: int, n: int) -> None:
    floats(w, n)[:] = floats(x, n) * np.resize(floats(c, 4), n)


def shift(grid: Sequence[int], w: int, x: int, y: int, n: int) -> None:
    floats(y, n)[:] = floats(w, n) - floats(x, n)


def types() -> list[Any]:
    """The fake's structures, and the binding's own where it is installed."""
    try:
        from cuda.bindings import driver
    except ImportError:
        return [PlainTypes]
    return [PlainTypes, driver]


@pytest.fixture(params=types(), ids=lambda t: getattr(t, "__name__", "binding"))
def here(request: pytest.FixtureRequest) -> tuple[CudaDevice, FakeApi]:
    bodies = {
        "k_a": FakeKernel(4, add),
        "k_s": FakeKernel(4, scale),
        "k_s_shift": FakeKernel(4, shift),
    }
    return fake_device(bodies, request.param)


def steps() -> list[Step]:
    return [add_step(Binary(b"first", "k_a")), scale_step(Binary(b"second", "k_s"))]


def linked(device: CudaDevice, some: Sequence[Step]) -> CudaRun:
    launcher = CubinLauncher()
    made = device.link(some, {launcher.key: launcher}, LinkContext(device, 1, lambda key: None))  # type: ignore
    assert isinstance(made, CudaRun)
    return made


def buffers(n: int) -> list[Any]:
    rng = np.random.default_rng(n)
    sizes = [n, n, n, n, 4, 64 + n]
    return [rng.standard_normal(k).astype(np.float32) for k in sizes]


def addresses(arrays: Sequence[Any]) -> list[int]:
    return [a.ctypes.data for a in arrays]


@pytest.mark.parametrize("n", SIZES)
def test_grids_and_results(here: tuple[CudaDevice, FakeApi], n: int) -> None:
    device, api = here
    run, b = linked(device, steps()), buffers(n)
    run.bind({"n": n}, addresses(b))
    assert api.ran == []
    run()
    assert np.array_equal(b[2], b[0] + b[1])
    assert np.array_equal(b[3], b[2] * np.resize(b[4], n) - b[2])
    blocks = -(-n // BLOCK)
    assert [(r.symbol, r.grid, r.block, r.shared) for r in api.ran] == [
        ("k_a", (blocks, 1, 1), (BLOCK, 1, 1), 0),
        ("k_s", (blocks, 1, 1), (BLOCK, 1, 1), 0),
        ("k_s_shift", (blocks, 1, 1), (BLOCK, 1, 1), SHARED),
    ]
    x, c, w, _ = (b[i].ctypes.data for i in (2, 4, 5, 3))
    assert api.ran[1].args == (x, c, w + 256, n)
    assert api.ran[2].args[0] == w + 256


def test_one_run_takes_one_shape_after_the_other(here: tuple[CudaDevice, FakeApi]) -> None:
    device, _api = here
    run = linked(device, steps())
    for n in (7, 300, 7, 0, 513):
        b = buffers(n)
        run.bind({"n": n}, addresses(b))
        run()
        assert np.array_equal(b[3], b[2] * np.resize(b[4], n) - b[2])


def test_nothing_is_launched_for_empty_tensors(here: tuple[CudaDevice, FakeApi]) -> None:
    device, api = here
    run = linked(device, steps())
    run.bind({"n": 0}, addresses(buffers(0)))
    run()
    run.repeat(50)
    assert api.ran == []


def test_rebind_reaches_all_users_of_a_buffer_and_no_other(
    here: tuple[CudaDevice, FakeApi],
) -> None:
    device, api = here
    run, b = linked(device, steps()), buffers(100)
    run.bind({"n": 100}, addresses(b))
    run()
    api.log.clear()
    other, scratch = np.full(100, 3, np.float32), np.zeros(164, np.float32)
    run.rebind(0, other.ctypes.data)
    run.rebind(5, scratch.ctypes.data)
    run()
    assert np.array_equal(b[2], other + b[1])
    assert np.array_equal(b[3], b[2] * np.resize(b[4], 100) - b[2])
    assert np.array_equal(scratch[64:], b[2] * np.resize(b[4], 100))
    assert api.log.count("cuGraphExecKernelNodeSetParams") == 3
    assert "cuGraphInstantiate" not in api.log
    api.log.clear()
    run()
    assert "cuGraphExecKernelNodeSetParams" not in api.log


def test_rebind_before_the_first_run(here: tuple[CudaDevice, FakeApi]) -> None:
    device, api = here
    run, b = linked(device, steps()[:1]), buffers(5)
    run.bind({"n": 5}, [0, *addresses(b)[1:]])
    run.rebind(0, b[0].ctypes.data)
    run()
    assert np.array_equal(b[2], b[0] + b[1])
    assert "cuGraphExecKernelNodeSetParams" not in api.log


@pytest.mark.parametrize("times", [1, COPIES - 1, COPIES, 2 * COPIES + 3])
def test_repeat(here: tuple[CudaDevice, FakeApi], times: int) -> None:
    device, api = here
    run, b = linked(device, steps()), buffers(9)
    run.bind({"n": 9}, addresses(b))
    run.repeat(times)
    assert len(api.ran) == 3 * times
    assert api.log.count("cuGraphLaunch") == times // COPIES + times % COPIES


def test_repeat_after_rebind_uses_the_new_address(here: tuple[CudaDevice, FakeApi]) -> None:
    device, _api = here
    run, b = linked(device, steps()[:1]), buffers(9)
    run.bind({"n": 9}, addresses(b))
    run.repeat(COPIES)
    out = np.zeros(9, np.float32)
    run.rebind(2, out.ctypes.data)
    run()
    out[:] = 0
    run.repeat(COPIES)
    assert np.array_equal(out, b[0] + b[1])


def test_waiting_and_streams(here: tuple[CudaDevice, FakeApi]) -> None:
    device, api = here
    run, b = linked(device, steps()), buffers(9)
    run.bind({"n": 9}, addresses(b))
    api.log.clear()
    run()
    assert api.log.count("cuStreamSynchronize") == 1
    api.log.clear()
    stream = device.create_stream()
    stream.submit(run)
    assert "cuStreamSynchronize" not in api.log
    assert device.current() is device.default_stream


@pytest.mark.parametrize(("name", "waits"), [("CUDA_LAUNCH_BLOCKING", 3), ("TACTIX_CUDA_GRAPH", 0)])
def test_plain_launches_say_why(
    here: tuple[CudaDevice, FakeApi], monkeypatch: pytest.MonkeyPatch, name: str, waits: int
) -> None:
    device, api = here
    monkeypatch.setenv(name, str(int(waits > 0)))
    run, b = linked(device, steps()), buffers(300)
    assert name in run.plain
    run.bind({"n": 300}, addresses(b))
    run()
    assert np.array_equal(b[3], b[2] * np.resize(b[4], 300) - b[2])
    assert api.log.count("cuLaunchKernel") == 3
    assert api.log.count("cuStreamSynchronize") == waits + 1
    assert "cuGraphCreate" not in api.log
    api.fail["cuStreamSynchronize"] = 700
    if waits:
        with pytest.raises(
            ExecutionError, match=r"^add: cuStreamSynchronize failed: CUDA_ERROR_ILLEGAL_ADDRESS"
        ):
            run()


@pytest.mark.parametrize("graph", ["0", "1"])
def test_clusters(
    here: tuple[CudaDevice, FakeApi], monkeypatch: pytest.MonkeyPatch, graph: str
) -> None:
    device, api = here
    monkeypatch.setenv("TACTIX_CUDA_GRAPH", graph)
    step = steps()[0]
    launch = replace(step.artifact.launches[0], grid=(8, 2), block=(16, 2, 2), cluster=(4, 2))
    step = replace(step, artifact=replace(step.artifact, launches=(launch,)))
    run = linked(device, [step])
    run.bind({"n": 4}, addresses(buffers(4)))
    run()
    assert (api.ran[0].grid, api.ran[0].block, api.ran[0].cluster) == (
        (8, 2, 1),
        (16, 2, 2),
        (4, 2, 1),
    )


@pytest.mark.parametrize(
    "launch",
    [
        {"block": (2048,)},
        {"block": (32, 33)},
        {"block": (1, 1, 65)},
        {"grid": (1, 65536)},
        {"block": (0,)},
    ],
)
def test_launches_that_no_device_can_make(
    here: tuple[CudaDevice, FakeApi], launch: dict[str, Any]
) -> None:
    device, _api = here
    step = steps()[0]
    bad = replace(step.artifact, launches=(replace(step.artifact.launches[0], **launch),))
    run = linked(device, [replace(step, artifact=bad)])
    with pytest.raises(ExecutionError, match=r"^add: a launch of"):
        run.bind({"n": 3}, addresses(buffers(3)))


def test_modules_are_loaded_once(here: tuple[CudaDevice, FakeApi]) -> None:
    device, api = here
    kept = LinkContext(device, 1, lambda key: None)  # type: ignore
    for _ in range(3):
        device.link(steps(), {CubinLauncher.key: CubinLauncher()}, kept)
    assert api.log.count("cuModuleLoadData") == 2
    assert api.log.count("cuModuleGetFunction") == 3
    assert "cuModuleUnload" not in api.log
    del kept
    gc.collect()
    assert api.log.count("cuModuleUnload") == 2
    linked(device, steps())
    assert api.log.count("cuModuleLoadData") == 4


def test_what_cannot_be_linked(here: tuple[CudaDevice, FakeApi]) -> None:
    device, api = here
    with pytest.raises(ExecutionError, match="scale: its machine code has no kernel 'k_x'"):
        linked(device, [scale_step(Binary(b"third", "k_x"))])
    with pytest.raises(ExecutionError, match="scale: it has no machine code"):
        linked(device, [scale_step()])
    with pytest.raises(ExecutionError, match="asks for constant c"):
        linked(device, [replace(steps()[1], constants={})])
    bad = replace(steps()[0].artifact, launches=(Launch((), (1, 1, 1, 1)),))
    with pytest.raises(ShapeError, match="4 axes"):
        linked(device, [replace(steps()[0], artifact=bad)])
    for status, cure in ((209, r"compute capability 9\.0"), (222, "Update the driver")):
        api.fail["cuModuleLoadData"] = status
        with pytest.raises(ExecutionError, match=f"scale: machine code for another device.*{cure}"):
            linked(device, [scale_step(Binary(b"fourth", "k_s"))])


def test_launchers_of_other_devices_are_refused(here: tuple[CudaDevice, FakeApi]) -> None:
    device, _api = here
    launcher = CubinLauncher()
    launcher.device = "cpu"
    context = LinkContext(device, 1, lambda key: None)  # type: ignore
    with pytest.raises(ExecutionError, match="cannot run on cuda: it is for cpu"):
        device.link(steps(), {launcher.key: launcher}, context)
    with pytest.raises(ExecutionError, match="cannot run on cuda: there is none"):
        device.link(steps(), {}, context)


def test_errors_name_the_step_and_cudas_reason(here: tuple[CudaDevice, FakeApi]) -> None:
    device, api = here
    run = linked(device, steps())
    api.fail["cuGraphAddKernelNode"] = 1
    run.bind({"n": 3}, addresses(buffers(3)))
    with pytest.raises(
        ExecutionError, match="add: cuGraphAddKernelNode failed: CUDA_ERROR_INVALID_VALUE: the text"
    ):
        run()
    api.fail["cuGraphAddKernelNode"] = 2
    with pytest.raises(AllocationError, match="CUDA_ERROR_OUT_OF_MEMORY"):
        run()
    api.fail.clear()
    run()
    api.fail["cuFuncSetAttribute"] = 1
    other = linked(device, [scale_step(Binary(b"fifth", "k_s"))])
    with pytest.raises(ExecutionError, match="scale: cuFuncSetAttribute failed"):
        other.bind({"n": 3}, addresses(buffers(3)))
