"""Choosing on the device: the gate over rows that come again, cold constants, whole plans, and
builds without it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import cuda_engine as e
import harness as h
import numpy as np
import pytest

import tactix
from tactix.config import BuilderFlag
from tactix.contracts.graph import Node
from tactix.contracts.launcher import LinkContext
from tactix.contracts.tactic import CompileContext
from tactix.plan import container
from tactix.plugins.session import Session
from tactix.run.memory import Memory
from tactix.select.compile import Toolchain, with_binary
from tactix.select.enumerate import Terms, bid
from tactix.select.interleave import interleave
from tactix_codegen.cuda.target import target
from tactix_cuda import row_twins
from tactix_cuda.bench import CudaBench, Turns
from tactix_cuda.memory import PoolAllocator

MODELS = Path(__file__).parents[1] / "models"

pytestmark = pytest.mark.gpu

FROZEN = """
import sys, tactix
from tactix.plan import container
from tactix.config import BuilderFlag
model, cache, out = sys.argv[1:]
config = tactix.BuilderConfig(device="tactix.cuda@1", target="h200", timing_cache=cache, frozen=True,
                              flags={BuilderFlag.VERSION_COMPATIBLE})
built = tactix.Builder()
container.save(built.build_plan(built.import_model(model), config), out)
"""


@pytest.fixture
def h200(device: Any) -> Any:
    if device.properties().name != target("h200").name:
        pytest.skip(f"this is a {device.properties().name}")
    return device


@pytest.mark.parametrize("row_bytes", [1, 6, 4, 1 << 20, (1 << 20) + 2])
def test_rows_that_differ_from_their_twins(device: Any, row_bytes: int) -> None:
    """In their first and last bytes, and in one between."""
    rng = np.random.default_rng(row_bytes)
    twins = np.uint32([0, 1, *rng.integers(0, 2, 5000 if row_bytes < 100 else 60)])
    rows = rng.integers(0, 256, (2, row_bytes), dtype=np.uint8)[twins]
    for row, at in ((3, 0), (7, row_bytes - 1), (len(rows) - 1, row_bytes // 2)):
        rows[row, at] ^= 1
    differ, pool = np.zeros(len(rows), np.uint8), PoolAllocator(device)
    held = [Memory.allocate(pool, a.nbytes) for a in (rows, twins, differ)]
    for memory, array in zip(held, (rows, twins, differ), strict=True):
        device.copy_in(memory.address, array)
    found = row_twins.differing(device, *(m.address for m in held), len(rows), row_bytes)
    assert list(found) == [3, 7, len(rows) - 1]


def test_the_target_is_the_device(h200: Any) -> None:
    here, there = h200.properties(), target("h200")
    assert (here.features, here.cores, dict(here.facts)) == (
        there.features,
        there.cores,
        dict(there.facts),
    )


def bench_of(device: Any, session: Session) -> CudaBench:
    (allocator, *_) = [a for a in session.allocators.values() if a.device == "cuda"]
    context = LinkContext(device, 1, session.layers.__getitem__)
    assert issubclass(device.bench, CudaBench)
    return CudaBench(context, session.launchers, allocator)


def candidates(node: Node, device: Any, session: Session) -> list[Any]:
    """Variants and linked artifacts of all that bid for a node."""
    toolchain = Toolchain(session.compilers.values())
    tactics = [t for t in session.active_tactics() if not t.crosses]
    context = CompileContext(device.properties(), {})
    found = bid(node, tactics, context, Terms(level=2, lacks=toolchain.lacks)).candidates
    binaries = toolchain.compile((c.artifact for c in found), context.device)
    return [(c.variant, with_binary(c.artifact, binaries)) for c in found]


def test_fill_and_copy(device: Any) -> None:
    memory = bench_of(device, Session(group="build")).allocator
    assert memory is not None
    a, b = memory.allocate(1001), memory.allocate(1001)
    device.fill(a, 0xA5, 1001)
    device.copy_within(b, a, 1001)
    got = np.zeros(1001, np.uint8)
    device.copy_out(got, b)
    assert (got == 0xA5).all()
    memory.deallocate(a)
    memory.deallocate(b)


@pytest.mark.parametrize(("rows", "width"), [(500, 1024), (1, 2048), (8, 1500)])
def test_candidates_pass_the_gate_and_are_timed_cold(device: Any, rows: int, width: int) -> None:
    """Products whose weights come in turns: each is right with every copy, and takes no less than
    from the cache.
    """
    session = Session(group="build")
    bench, rng = bench_of(device, session), np.random.default_rng(rows)
    w = rng.standard_normal((1024, width)).astype(np.float16)
    node = h.node("MatMul", [np.zeros((rows, 1024), np.float16), w], [1])
    arrays, want = bench.trial(node, {})
    assert len(arrays[0]) == (4 if rows >= 8 else rows)
    found = candidates(node, device, session)
    assert found
    for variant, artifact in found:
        runnable, got = bench.prepare(node, artifact, variant, arrays, {})
        runnable.repeat(1)
        assert bench.check(node, variant, got, want) <= 1, (artifact, variant)
        assert isinstance(runnable, Turns)
        assert runnable.copies > 10
        ((first, *samples),) = interleave(bench.measure, [runnable])
        assert bench.check(node, variant, got, want) <= 1, (artifact, variant)
        assert 1e-6 < min(first, *samples) < 1e-3


@pytest.mark.parametrize("name", ["mlp", "lenet", "mobile"])
def test_a_frozen_build_without_a_gpu_takes_what_the_device_chose(
    h200: Any, tmp_path: Path, name: str
) -> None:
    model, cache, out = MODELS / f"{name}.onnx", tmp_path / "timings.json", tmp_path / "plan"
    flags = {BuilderFlag.VERSION_COMPATIBLE}
    config = tactix.BuilderConfig(device=h200.key, timing_cache=cache, flags=flags)
    built = tactix.Builder()
    here = built.build_plan(built.import_model(model), config)
    command = [sys.executable, "-c", FROZEN, str(model), str(cache), str(out)]
    subprocess.run(command, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""}, check=True, timeout=120)
    there = container.load(out)
    steps = [
        [(s.name, s.info["tactic"], s.info["variant"], s.artifact.code) for s in p.steps]
        for p in (here, there)
    ]
    assert steps[0] == steps[1]
    assert here.ledger.get("whole_plans") == there.ledger.get("whole_plans")


def test_the_fastest_whole_plan_is_taken(device: Any) -> None:
    built = tactix.Builder()
    config = tactix.BuilderConfig(device=device.key, timing_cache=False)
    plan = built.build_plan(built.import_model(MODELS / "residual.onnx"), config)
    whole_plans = plan.ledger.get("whole_plans", [])
    timed = [f["seconds"] for f in whole_plans]
    assert all(1e-6 < s < 1e-2 for s in timed)
    assert not whole_plans or whole_plans[timed.index(min(timed))]["chosen"]


def test_a_wrong_tactic_is_found_out(device: Any) -> None:
    built = e.builder()
    net = built.create_network("tall")
    x, y = (net.add_input(name, "f32", (1000, 301)) for name in "xy")
    (z,) = net.add_layer("tactix.Add", [x, y], name="first")
    net.mark_output(z, "z")
    plan = built.build_plan(net, e.config())
    rows = {r["tactic"]: r["status"] for r in plan.ledger["nodes"]["first"]["candidates"]}
    assert rows == {"test.wrong@1": "rejected", "test.right@1": "measured"}
