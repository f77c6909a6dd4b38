"""Kernels of a network whose weights are more than the caches hold are timed with weights in memory,
whosever they are; and a key of the timing cache says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from strangers import GEMM, installed

import tactix
from tactix.base.errors import CompilerError
from tactix.network.definition import NetworkDefinition, weight_bytes
from tactix.plan import container
from tactix_cpu.device import CpuDevice
from tactix_isolate import bench, eviction

SIZE = (3, 16, 16)


def network(b: tactix.Builder) -> NetworkDefinition:
    """A product with constant weights of 3 KiB."""
    net = b.create_network("product")
    weights = net.add_constant(np.ones(SIZE, np.float32), "weights")
    x = net.add_input("x", "f32", (3, 5, 16))
    net.mark_output(net.add_layer("tactix.MatMul", [x, weights], name="node")[0], "y")
    return net


def built(enable: str = "", **fields: Any) -> tactix.Plan:
    b = tactix.Builder(session=tactix.Session(enable=[enable] if enable else []))
    settings = {"timing_cache": False, "threads": 2, **fields}
    return b.build_plan(network(b), tactix.BuilderConfig(**settings))


@pytest.fixture
def streamed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """As if caches held nothing. Bytes of what is evicted, once for each candidate."""
    evicted: list[int] = []
    made = eviction.eviction

    def noted(code: Any, sizes: Any) -> Any:
        evicted.append(sum(sizes.values()))
        return made(code, sizes)

    monkeypatch.setattr(bench, "is_streamed", lambda weights, device: True)
    monkeypatch.setattr(bench, "LEAST", 1)
    monkeypatch.setattr(bench, "eviction", noted)
    return evicted


def chosen(plan: tactix.Plan) -> list[dict[str, Any]]:
    return [c for c in plan.ledger["nodes"]["node"]["candidates"] if c["status"] == "measured"]


@pytest.mark.parametrize(
    ("facts", "weights", "is_streamed"),
    [
        ({"l2": 1 << 20, "l3": 1 << 25}, 1 << 25, False),
        ({"l2": 1 << 20, "l3": 1 << 25}, (1 << 25) + 1, True),
        ({"l2": 1 << 20}, (1 << 20) + 1, True),
        ({}, 1 << 40, False),
    ],
)
def test_the_largest_cache_decides(facts: dict[str, int], weights: int, is_streamed: bool) -> None:
    device = replace(CpuDevice().properties(), facts=facts)
    assert eviction.is_streamed(weights, device) == is_streamed


def test_weights_are_what_a_run_reads_whole() -> None:
    b = tactix.Builder()
    net = network(b)
    table = net.add_constant(np.ones((1000, 16), np.float32), "table")
    rows = net.add_layer("tactix.Gather", [table, net.add_input("i", "i64", (3,))])[0]
    net.mark_output(rows, "rows")
    assert weight_bytes(net) == 4 * np.prod(SIZE)


def test_kernels_are_timed_with_weights_in_memory(streamed: list[int]) -> None:
    times = chosen(built())
    if not times:
        pytest.skip("nothing compiles here")
    assert streamed
    assert min(streamed) >= 4 * np.prod(SIZE), "packed weights may be padded"
    assert all(c["seconds"] > 0 for c in times)


def test_a_packs_kernels_are_timed_so_in_their_process(
    streamed: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = []
    load = bench.CpuBench.eviction

    def noted(self: Any, *arguments: Any) -> Any:
        jobs.append(load(self, *arguments))
        return jobs[-1]

    monkeypatch.setattr(bench.CpuBench, "eviction", noted)
    with installed(tmp_path, "acme_gemm", GEMM):
        plan = built(enable="acme_gemm")
    own = [c for c in chosen(plan) if c["tactic"].startswith("acme")]
    if not own:
        pytest.skip("nothing compiles here")
    assert all(step is not None for step in jobs)
    assert own[0]["seconds"] > 0


def test_what_is_evicted_keeps_its_content(streamed: list[int]) -> None:
    plan = built()
    x = np.random.default_rng(0).standard_normal((3, 5, 16), dtype=np.float32)
    y = tactix.load(container.dump(plan), on_untrusted="allow")(x)
    assert np.allclose(y, x @ np.ones(SIZE, np.float32), atol=1e-5)


def test_times_of_both_kinds_are_not_taken_for_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def conditions(is_streamed: bool) -> Callable[[int, Any], bool]:
        return lambda weights, device: is_streamed

    found = []
    for is_streamed in (False, True):
        monkeypatch.setattr(bench, "is_streamed", conditions(is_streamed))
        b = bench.CpuBench.__new__(bench.CpuBench)
        b.device = CpuDevice()
        found.append(tuple(b.conditions))
    assert found[0] == ()
    assert found[1] != found[0]


def test_without_a_compiler_for_it_kernels_are_timed_as_they_are(
    streamed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise CompilerError("no such instruction")

    monkeypatch.setattr(bench, "code", fails)
    built()
    assert not streamed
