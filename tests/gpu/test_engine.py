"""A whole build and its engine on the GPU, by tactics of the test's own."""

from __future__ import annotations

import json
from pathlib import Path

import cuda_engine as e
import pytest

import tactix
from tactix.plan import container
from tactix.plugins.session import Session
from tactix.run.runtime import Runtime
from tactix_cuda.device import CudaDevice
from tactix_cuda.memory import PoolAllocator, RecyclingAllocator
from tactix_inspect.peaks import Roofline, measured
from tactix_tools.cli import main

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("allocator", [PoolAllocator.key, RecyclingAllocator.key])
def test_build_and_run(device: CudaDevice, tmp_path: Path, allocator: str) -> None:
    built = e.builder()
    plan = built.build_plan(e.sums(built), e.config())
    e.check_candidates(plan)
    container.save(plan, tmp_path / "plan")
    engine = Runtime(session=built.session, allocator=allocator, on_untrusted="allow").deserialize(
        tmp_path / "plan"
    )
    e.check_engine(engine)
    e.check_addresses(engine, device, PoolAllocator(device))


def test_a_plan_for_the_architecture_runs_here(device: CudaDevice) -> None:
    name = f"sm_{device.properties().facts['capability']}"
    built = e.builder()
    plan = built.build_plan(e.sums(built), e.config(target=name))
    e.check_engine(Runtime(session=built.session).load(plan))


MODELS = Path(__file__).parents[1] / "models"


def test_a_profile_of_a_plan(device: CudaDevice, tmp_path: Path) -> None:
    plan, out, traced = (str(tmp_path / name) for name in ("x.plan", "p.json", "t.json"))
    tactix.build(MODELS / "lenet.onnx", level=0, device="cuda").save(plan)
    assert main(["profile", plan, "--runs", "5", "-o", out, "--trace", traced]) == 0
    told = json.loads(Path(out).read_text())
    assert {c["name"] for c in told["copies"] if c["into"]} == {"x"}
    assert all(s["seconds"] >= 0 for s in told["steps"])
    events = json.loads(Path(traced).read_text())["traceEvents"]
    assert {s["name"] for s in told["steps"]} <= {e["name"] for e in events}


def test_peaks_are_measured(device: CudaDevice) -> None:
    found = measured(Session(), device, PoolAllocator(device), 1, 1 << 28)
    assert isinstance(found, Roofline)
    each_cycle = device.properties().cores * 3e9
    assert 1e12 < found.flops["f32"] <= 256 * each_cycle, (
        "128 multiply-adds a cycle, or work is skipped"
    )
    assert found.flops["f32"] < found.flops["f16"] <= 8192 * each_cycle
    assert found.nbytes > 1e11
