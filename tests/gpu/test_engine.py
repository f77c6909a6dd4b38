"""A whole build and its engine on the GPU, by tactics of the test's own."""

from __future__ import annotations

from pathlib import Path

import cuda_engine as e
import pytest

from tactix.plan import container
from tactix.run.runtime import Runtime
from tactix_cuda.device import CudaDevice
from tactix_cuda.memory import PoolAllocator, RecyclingAllocator

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
