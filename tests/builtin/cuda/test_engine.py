"""A whole build and its engine on a device that is not host memory, over a driver that stands for
CUDA's.
"""

from __future__ import annotations

import ctypes
import gc
import json
from collections.abc import Sequence
from pathlib import Path

import cuda_engine as e
import fake_driver
import numpy as np
import pytest
from fake_driver import FakeApi, FakeKernel, fake_device

import tactix
from tactix.base.errors import ConfigError, PlanCompatibilityError
from tactix.contracts.launcher import Runnable
from tactix.plan import container
from tactix.plan.compat import warnings
from tactix.run.context import ExecutionContext
from tactix.run.runtime import Runtime
from tactix_codegen.compiling import symbol
from tactix_cuda import device as real
from tactix_cuda.device import CudaDevice
from tactix_cuda.memory import RecyclingAllocator
from tactix_cuda.nvrtc import why_missing
from tactix_cuda.prefixes import ascending
from tactix_inspect.profile import PlanProfile
from tactix_inspect.profiling import observed, profile, told
from tactix_inspect.trace import trace

pytestmark = pytest.mark.skipif(bool(why_missing()), reason=why_missing())


def combine(sign: int) -> FakeKernel:
    def body(grid: Sequence[int], x: int, y: int, z: int, n: int) -> None:
        a, b, c = (
            np.frombuffer((ctypes.c_float * n).from_address(p), np.float32) for p in (x, y, z)
        )
        c[:] = a + sign * b

    return FakeKernel(4, body)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> tuple[CudaDevice, FakeApi]:
    made = fake_device({symbol(e.RIGHT.code): combine(1), symbol(e.WRONG.code): combine(-1)})
    monkeypatch.setattr(real, "the_device", lambda: made[0])
    return made


def test_build_and_run(here: tuple[CudaDevice, FakeApi], tmp_path: Path) -> None:
    built = e.builder()
    plan = built.build_plan(e.sums(built), e.config())
    e.check_candidates(plan)
    assert plan.device["kind"] == "cuda"
    container.save(plan, tmp_path / "plan")
    engine = Runtime(session=built.session, on_untrusted="allow").deserialize(tmp_path / "plan")
    assert engine.device is here[0]
    e.check_engine(engine)
    e.check_addresses(engine, here[0], RecyclingAllocator(here[0]))


def test_a_plan_of_a_gpu_that_is_slower_in_its_own_way_warns(
    here: tuple[CudaDevice, FakeApi], monkeypatch: pytest.MonkeyPatch
) -> None:
    built = e.builder()
    plan, family = (
        built.build_plan(e.sums(built), e.config(target=t)) for t in ("", "SAME_COMPUTE_CAPABILITY")
    )
    assert warnings(plan, here[0].properties(), tactix.__version__) == []
    for attribute, value in (
        ("GLOBAL_MEMORY_BUS_WIDTH", 5120),
        ("L2_CACHE_SIZE", 50 << 20),
        ("INTEGRATED", 1),
    ):
        monkeypatch.setitem(fake_driver.ATTRIBUTES, attribute, value)
    other = fake_device()[0].properties()
    (text,) = warnings(plan, other, tactix.__version__)
    for part in (
        "memory bus bits 6144 (here 5120)",
        "l2 62914560 (here 52428800)",
        "integrated 0 (here 1)",
    ):
        assert part in text
    assert "shared" not in text
    assert warnings(family, other, tactix.__version__) == []


def test_memory_comes_back(here: tuple[CudaDevice, FakeApi]) -> None:
    built = e.builder()
    engine = built.build(e.sums(built), e.config())
    e.check_engine(engine)
    assert here[1].memory
    del engine
    gc.collect()
    assert not here[1].memory


def test_a_profile_takes_times_of_the_device(
    here: tuple[CudaDevice, FakeApi], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step takes what it adds to the run that ends with it: here a second for each kernel."""
    device, api = here

    def seconds(runnable: Runnable, times: int) -> float:
        before = len(api.ran)
        runnable.repeat(times)
        return float(len(api.ran) - before)

    monkeypatch.setattr(device, "measure", seconds)
    built = e.builder()
    plan = built.build_plan(e.sums(built), e.config())
    engine = Runtime(session=built.session).load(plan)
    found = profile(engine, e.feeds(3), runs=2)
    assert found.method == CudaDevice.timing
    assert sorted(s.name for s in found.steps) == ["first", "fourth", "second", "third"]
    assert [s.seconds for s in found.steps] == [1.0] * 4
    assert [s.start for s in found.steps] == sorted(s.start for s in found.steps)
    assert found.in_steps == 4.0
    e.check_engine(engine)


def test_a_profile_runs_in_memory_of_the_device(
    here: tuple[CudaDevice, FakeApi], monkeypatch: pytest.MonkeyPatch
) -> None:
    api, given = here[1], list[int]()
    plain = ExecutionContext.execute_v2

    def watched(context: ExecutionContext, bindings: list[int]) -> bool:
        assert all(a in api.memory for a in bindings)
        given.extend(bindings)
        return plain(context, bindings)

    monkeypatch.setattr(ExecutionContext, "execute_v2", watched)
    built = e.builder()
    plan = built.build_plan(e.sums(built), e.config())
    engine = Runtime(session=built.session).load(plan)
    runs = observed(engine, e.feeds(3), runs=2)
    assert given
    sizes = {"x": 1204, "y": 1204, "a": 84, "b": 84, "u": 1204, "v": 84}
    assert {c.name: c.nbytes for c in runs.copies} == sizes
    assert [c.name for c in runs.copies if not c.into] == ["u", "v"]
    shapes = {k: x.shape for k, x in e.feeds(3).items()}
    events = [x for x in trace(plan, shapes, runs)["traceEvents"] if x["ph"] == "X"]
    inputs = [x["ts"] + x["dur"] for x in events if x["name"].endswith(" to the device")]
    steps = [x["ts"] for x in events if x["cat"] == "steps"]
    back = [x["ts"] for x in events if x["name"].endswith(" to the host")]
    assert max(inputs) <= min(steps) + 1e-3 <= max(steps) <= min(back) + 1e-3
    p = told(engine, e.feeds(3), runs, None)
    assert PlanProfile.from_json(json.loads(json.dumps(p.to_json()))) == p


def test_times_of_prefixes_ascend() -> None:
    assert ascending([1.0, 3.0, 2.0, 4.0]) == [1.0, 2.5, 2.5, 4.0]
    assert ascending([3.0, 2.0, 1.0]) == [2.0, 2.0, 2.0]
    assert ascending([]) == []


@pytest.mark.parametrize("name", ["sm_80", "sm_90", "sm_100"])
def test_a_build_for_a_device_that_is_not_here(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    device, api = fake_device()
    api.fail["cuInit"] = 500
    monkeypatch.setattr(real, "the_device", lambda: device)
    built = e.builder()
    with pytest.raises(ConfigError, match="CUDA_ERROR_NOT_FOUND"):
        built.build_plan(e.sums(built), e.config())
    plan = built.build_plan(e.sums(built), e.config(target=name))
    assert name in plan.device["features"]
    assert len(plan.steps) == 4
    with pytest.raises(PlanCompatibilityError, match="is not here"):
        Runtime(session=built.session).load(plan)
