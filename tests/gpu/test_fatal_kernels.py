"""Kernels that trap, write out of bounds or never end lose their race on a real device: the build
ends well, without them, and the device serves its process as before.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import cuda_engine as e
import numpy as np
import pytest
from kept_log import KeptLog

import tactix
from tactix.contracts.artifact import Source
from tactix.contracts.tactic import Tactic
from tactix.plugins.hookspecs import hookimpl
from tactix_cuda.device import CudaDevice
from tactix_cuda.memory import RecyclingAllocator
from tactix_isolate.allowance import TIMEOUT

pytestmark = pytest.mark.gpu

PATIENCE = 4.0
"""Seconds that a kernel of these may take here."""
START = 15.0
"""Seconds that a process may take to start where others are busy, too."""

KERNEL = """
__device__ unsigned runs;
extern "C" __global__ void TX_ENTRY(const float* x, const float* y, float* z, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) z[i] = x[i] + y[i];
    BODY
}
"""
LOST = "lost the device when it was tried"
BODIES = {
    "trap": ('asm volatile("trap;");', LOST),
    "outside": ("if (i < n) *(volatile float*)(z + (1ll << 42) + i) = 1.f;", LOST),
    "later": ('if (i == 0 && atomicAdd(&runs, 1u) > 2u) asm volatile("trap;");', LOST),
    "endless": (
        "for (volatile const float* p = x; i == 0 && *p == *p;) { }",
        f"did not end within {PATIENCE:g} s",
    ),
}


class Fatal(e.SumTactic):
    def __init__(self, name: str) -> None:
        super().__init__(f"test.a_{name}@1", "+")
        self.code = Source("cuda_c", KERNEL.replace("BODY", BODIES[name][0]))


class Pack:
    def __init__(self, *tactics: Tactic) -> None:
        self.tactics = list(tactics)

    @hookimpl
    def tactix_tactics(self) -> list[Tactic]:
        return self.tactics


def builder(heard: KeptLog, *tactics: Tactic) -> tactix.Builder:
    session = tactix.Session(plugins=[("test", Pack(*tactics))], enable=["test"])
    session.active_rules = list  # type: ignore[method-assign]  # sums stay apart
    return tactix.Builder(heard, session)


def use(device: CudaDevice) -> None:
    """The context of this process does what it did."""
    x = np.arange(1000, dtype=np.float32)
    got = np.zeros_like(x)
    memory = RecyclingAllocator(device)
    a, b = memory.allocate(x.nbytes), memory.allocate(x.nbytes)
    device.copy_in(a, x)
    device.copy_within(b, a, x.nbytes)
    device.copy_out(got, b)
    assert (got == x).all()
    memory.deallocate(a)
    memory.deallocate(b)
    memory.trim()


@pytest.mark.parametrize("name", BODIES)
def test_a_fatal_kernel_costs_itself_the_race(
    device: CudaDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(TIMEOUT, f"{PATIENCE:g}")
    use(device)
    bad, heard = Fatal(name), KeptLog()
    made = builder(heard, bad, e.RIGHT, e.WRONG)
    config = e.config(timing_cache=tmp_path / "timings.json")
    start = time.monotonic()
    engine = made.build(e.sums(made), config)
    seconds = time.monotonic() - start
    for node in ("first", "second", "third", "fourth"):
        rows: dict[str, Any] = {
            r["tactic"]: r for r in engine.plan.ledger["nodes"][node]["candidates"]
        }
        assert rows[bad.key]["status"] == "rejected"
        assert rows["test.right@1"]["chosen"]
        assert rows["test.right@1"]["status"] == "measured"
        assert "departs from the reference" in rows["test.wrong@1"]["reason"]
    fatal = [w for w in heard.warnings if "left out from now on" in w]
    assert fatal
    assert all(bad.key in w and BODIES[name][1] in w for w in fatal)
    print(f"{name}: {seconds:.1f} s, {len(fatal)} of the kernels were fatal")
    assert seconds < 30 + 3 * 2 * (START + PATIENCE)
    use(device)
    e.check_engine(engine)


def test_a_build_of_ours_leaves_no_memory(device: CudaDevice) -> None:
    """The process of trials is gone when the build is, with its context."""
    made = tactix.Builder()
    net = made.create_network("products")
    x = net.add_input("x", "f32", (64, 256))
    w = np.random.default_rng(0).standard_normal((256, 512)).astype(np.float32)
    (y,) = net.add_layer("tactix.MatMul", [x, net.add_constant(w)], name="product")
    net.mark_output(y, "y")
    use(device)
    before = device.memory_used()
    plan = made.build_plan(net, tactix.BuilderConfig(device="cuda", timing_cache=False))
    statuses = {r["status"] for r in plan.ledger["nodes"]["product"]["candidates"]}
    assert "measured" in statuses
    assert device.memory_used() - before < 256 << 20
