"""Device memory after engines have come and gone, and plans of cubins where there is a driver and
nothing else.
"""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import cuda_engine as e
import numpy as np
import pytest
from alone import feeds, site
from gpu_networks import feed, outputs
from test_cubins_alone import MODELS, build, run

import tactix
from tactix.base.errors import AllocationError
from tactix.run.runtime import Runtime
from tactix_cuda.device import CudaDevice
from tactix_sdk.testing.memory import resident
from tactix_tools.check import Heard

pytestmark = pytest.mark.gpu

ROUND = 2 << 20
WARM = 30
INFERENCES = 10_000
HOST = 16 << 20
"""Bytes by which the process may grow over INFERENCES."""


def memory(device: CudaDevice) -> tuple[int, int]:
    """Bytes of the pool that are in use, and bytes of the whole device that are not."""
    gc.collect()
    device.activate()
    call, api = device.driver.call, device.driver.api
    call("cuCtxSynchronize")
    pool = call("cuDeviceGetDefaultMemPool", device.native)
    used = call(
        "cuMemPoolGetAttribute", pool, api.CUmemPool_attribute.CU_MEMPOOL_ATTR_USED_MEM_CURRENT
    )
    return int(used), int(call("cuMemGetInfo")[0])


def test_engines_leave_nothing(device: CudaDevice, tmp_path: Path) -> None:
    """The device's free memory is compared where no other tests run at the same time. The driver
    itself keeps more once many engines have run, 12 MiB on an H200, all of it within WARM of them:
    200 more change nothing.
    """
    built = e.builder()
    plan = built.build_plan(e.sums(built), e.config())
    tactix.plan.container.save(plan, tmp_path / "plan")

    def use() -> None:
        engine = Runtime(session=built.session, on_untrusted="allow").deserialize(tmp_path / "plan")
        e.check_engine(engine)
        context = engine.create_execution_context()
        context.run(e.feeds(1000))
        context.close()

    for _ in range(WARM):
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


@pytest.mark.parametrize("sources", [{"cuda_c", "view"}, None], ids=["cubins", "all"])
def test_inferences_over_changing_shapes_leave_nothing(device: CudaDevice, sources: Any) -> None:
    """Another batch and length each time; results stay what they were at first."""
    path = next(m for m in MODELS if m.stem == "encoder")
    engine = tactix.build(
        path, device=device.key, timing_cache=False, level=1, tactic_sources=sources
    )
    shapes = [(1 + i % 5, 1 + 5 * i % 31) for i in range(5 * 31)]
    given = [feed(engine, *shape) for shape in shapes]
    first = [outputs(engine, g) for g in given]
    (used, free), host = memory(device), resident()
    for i in range(INFERENCES):
        got = outputs(engine, given[i % len(given)])
    for got, want in zip([outputs(engine, g) for g in given], first, strict=True):
        for name, y in want.items():
            np.testing.assert_array_equal(got[name], y)
    now, left = memory(device)
    assert now == used
    assert resident() - host <= HOST
    if "PYTEST_XDIST_WORKER" not in os.environ:
        assert abs(free - left) <= ROUND


def outer(built: tactix.Builder) -> Any:
    """The largest element of each row of x y', a matrix of n x n between them."""
    net = built.create_network("outer")
    x, y = net.add_input("x", "f32", ("n", 2)), net.add_input("y", "f32", (2, "n"))
    (z,) = net.add_layer("tactix.MatMul", [x, y], name="product")
    net.mark_output(net.add_layer("tactix.ReduceMax", [z], axes=(1,), keepdims=False)[0], "z")
    return net


def columns(n: int) -> dict[str, Any]:
    rng = np.random.default_rng(n)
    return {
        "x": rng.standard_normal((n, 2), dtype=np.float32),
        "y": rng.standard_normal((2, n), dtype=np.float32),
    }


def check_outer(engine: Any) -> None:
    given = columns(100)
    np.testing.assert_allclose(
        engine(given), (given["x"] @ given["y"]).max(axis=1), rtol=1e-5, atol=1e-6
    )


def test_a_run_that_has_no_memory(device: CudaDevice) -> None:
    """16 TiB between its kernels."""
    built = tactix.Builder()
    config = tactix.BuilderConfig(
        device=device.key, timing_cache=False, builder_optimization_level=1
    )
    engine = built.build(outer(built), config)
    check_outer(engine)
    used, _ = memory(device)
    for _ in range(3):
        with pytest.raises(AllocationError, match="bytes of device memory"):
            engine(columns(1 << 21))
        check_outer(engine)
    assert memory(device)[0] == used


def test_a_build_that_has_no_memory(device: CudaDevice) -> None:
    """To measure at the profile's sizes: it chooses by estimate, says so, and its engine runs at
    others.
    """
    heard = Heard()
    built, used, n = tactix.Builder(heard), memory(device)[0], 1 << 23
    profile = tactix.OptimizationProfile()
    profile.set_shape("x", (1, 2), (n, 2), (n, 2))
    profile.set_shape("y", (2, 1), (2, n), (2, n))
    config = tactix.BuilderConfig(device=device.key, timing_cache=False, profiles=[profile])
    for _ in range(2):
        plan = built.build_plan(outer(built), config)
        assert memory(device)[0] == used
    assert any("is chosen by estimate" in text and "memory" in text for text in heard.warnings)
    assert not any("host" in s.info["tactic"] for s in plan.steps)
    check_outer(Runtime(session=built.session).load(plan))


def arrays(engine: Any, given: dict[str, Any]) -> list[Any]:
    got = engine(given)
    return list(got.values()) if isinstance(got, dict) else [got]


@pytest.mark.parametrize("which", ["real", "lean"])
def test_plans_of_cubins_need_only_the_driver(
    device: CudaDevice, tmp_path: Path, which: str
) -> None:
    """Which NVRTC and the vendor's libraries are kept from; ``lean``: all packages are but numpy
    and cuda-python.
    """
    plans = build(tmp_path, f"sm_{device.properties().facts['capability']}")
    (tmp_path / "site").mkdir()
    run(which, plans, site(tmp_path / "site"))
    builder = tactix.Builder()
    for model in MODELS:
        config = tactix.BuilderConfig(
            timing_cache=False, builder_optimization_level=0, device="tactix.cpu@1"
        )
        cpu = Runtime(session=builder.session).load(
            builder.build_plan(builder.import_model(model), config)
        )
        for sizes in ((1, 16), (3, 7)):
            with np.load(f"{plans[model.stem]}.{sizes[0]}x{sizes[1]}.npz") as found:
                for got, want in zip(found.values(), arrays(cpu, feeds(cpu, sizes)), strict=True):
                    limit = 1e-4 * max(1.0, float(np.abs(want).max()))
                    assert float(np.abs(got - want).max()) <= limit, (model.stem, sizes)
