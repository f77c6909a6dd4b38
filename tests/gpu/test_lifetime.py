"""Device memory after engines have come and gone, and plans of cubins where there is a driver and nothing else."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import cuda_engine as e
import numpy as np
import pytest
from alone import feeds
from test_cubins_alone import MODELS, build, run

import tactix
from tactix.run.runtime import Runtime
from tactix_builtin.cuda.device import CudaDevice

pytestmark = pytest.mark.gpu

ROUND = 2 << 20


def memory(device: CudaDevice) -> tuple[int, int]:
    """Bytes of the pool that are in use, and bytes of the whole device that are not."""
    gc.collect()
    device.activate()
    call, api = device.driver.call, device.driver.api
    call("cuCtxSynchronize")
    pool = call("cuDeviceGetDefaultMemPool", device.native)
    used = call("cuMemPoolGetAttribute", pool, api.CUmemPool_attribute.CU_MEMPOOL_ATTR_USED_MEM_CURRENT)
    return int(used), int(call("cuMemGetInfo")[0])


def test_engines_leave_nothing(device: CudaDevice, tmp_path: Path) -> None:
    """The device's free memory is compared where no other tests run at the same time."""
    built = e.builder()
    plan = built.build_plan(e.sums(built), e.config())
    tactix.plan.container.save(plan, tmp_path / "plan")

    def use() -> None:
        engine = Runtime(session=built.session).deserialize(tmp_path / "plan")
        e.check_engine(engine)
        context = engine.create_execution_context()
        context.run(e.feeds(1000))
        context.close()

    use()
    used, free = memory(device)
    for _ in range(50):
        use()
    now, left = memory(device)
    assert now == used
    if "PYTEST_XDIST_WORKER" not in os.environ:
        assert abs(free - left) <= ROUND


def test_contexts_leave_nothing(device: CudaDevice) -> None:
    built = e.builder()
    engine = Runtime(session=built.session).load(built.build_plan(e.sums(built), e.config()))
    engine.create_execution_context().run(e.feeds(3))
    used, _ = memory(device)
    for i in range(200):
        context = engine.create_execution_context()
        context.run(e.feeds(1 + i % 5))
    del context
    assert memory(device)[0] == used


def arrays(engine: Any, given: dict[str, Any]) -> list[Any]:
    got = engine(given)
    return list(got.values()) if isinstance(got, dict) else [got]


def test_plans_of_cubins_need_only_the_driver(device: CudaDevice, tmp_path: Path) -> None:
    plans = build(tmp_path, f"sm_{device.properties().facts['capability']}")
    run("real", plans)
    builder = tactix.Builder()
    for model in MODELS:
        config = tactix.BuilderConfig(timing_cache=False, builder_optimization_level=0, device="tactix.cpu@1")
        cpu = Runtime(session=builder.session).load(builder.build_plan(builder.import_model(model), config))
        for sizes in ((1, 16), (3, 7)):
            with np.load(f"{plans[model.stem]}.{sizes[0]}x{sizes[1]}.npz") as found:
                for got, want in zip(found.values(), arrays(cpu, feeds(cpu, sizes)), strict=True):
                    limit = 1e-4 * max(1.0, float(np.abs(want).max()))
                    assert float(np.abs(got - want).max()) <= limit, (model.stem, sizes)
