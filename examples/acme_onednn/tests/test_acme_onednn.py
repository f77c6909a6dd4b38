"""The pack's own test: needs tactix and the pack installed; parts of it oneDNN."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from math import erf
from typing import Any

import numpy as np
import pytest
from acme_onednn import launcher, tactic
from acme_onednn.library import library

import tactix
from tactix_sdk import errors
from tactix_sdk.testing import CHECKS, PackTests

RNG = np.random.default_rng(8)
needs_onednn = pytest.mark.skipif(library() is None, reason="no oneDNN was found")
ACTIVATIONS = {
    "": lambda y: y, "Relu": lambda y: np.maximum(y, 0), "Tanh": np.tanh, "Sigmoid": lambda y: 1 / (1 + np.exp(-y)),
    "LeakyRelu": lambda y: np.where(y < 0, 0.25 * y, y),
    "Gelu": lambda y: 0.5 * y * (1 + np.vectorize(erf, otypes=[float])(y / 2**0.5)),
}  # fmt: skip
KERNELS = [
    n for n, check in CHECKS.items() if check.run.__module__.endswith((".bids", ".shipping"))
]
"""Checks that run kernels."""


class TestPack(PackTests):
    pack = "acme-onednn"
    skip = {} if library() else dict.fromkeys(KERNELS, "no oneDNN was found")


class Dense:
    """act((x @ w + row) * rest)"""

    def __init__(self, act: str = "", row: bool = True, rest: bool = True) -> None:
        self.w, self.row = (
            (RNG.standard_normal(s) / 4).astype(np.float32) for s in ((24, 17), (17,))
        )
        self.builder, self.act, self.rest = tactix.Builder(), act, rest
        self.network = net = self.builder.create_network("dense")
        (y,) = net.add_layer(
            "tactix.MatMul", [net.add_input("x", "f32", ("b", "m", 24)), net.add_constant(self.w)]
        )
        if row:
            (y,) = net.add_layer("tactix.Add", [y, net.add_constant(self.row)])
        if rest:
            (y,) = net.add_layer("tactix.Mul", [net.add_input("rest", "f32", ("b", "m", 17)), y])
        if act:
            (y,) = net.add_layer(
                f"tactix.{act}", [y], **({"alpha": 0.25} if act == "LeakyRelu" else {})
            )
        net.mark_output(y, "y")
        self.row = self.row if row else np.zeros_like(self.row)

    def plan(self, level: int = 0, **more: Any) -> Any:
        config = tactix.BuilderConfig(timing_cache=False, builder_optimization_level=level, **more)
        config.enable("acme_onednn")
        return self.builder.build_plan(self.network, config)

    def expected(self, x: Any, rest: Any) -> Any:
        y = x.astype(np.float64) @ self.w + self.row
        return ACTIVATIONS[self.act](y * rest if self.rest else y)


@needs_onednn
@pytest.mark.parametrize("act", list(ACTIVATIONS))
@pytest.mark.parametrize(("row", "rest"), [(True, True), (True, False), (False, False)])
def test_what_follows_is_done_by_onednn(act: str, row: bool, rest: bool) -> None:
    dense = Dense(act, row, rest)
    plan = dense.plan(tactic_sources={"acme_onednn"})
    assert [s.info["tactic"] for s in plan.steps] == ["acme_onednn.matmul@1"]
    context = tactix.Runtime().load(plan).create_execution_context()
    for shape in ((1, 1), (2, 5), (0, 3), (3, 8), (2, 5)):
        feed = {
            n: RNG.standard_normal((*shape, k)).astype(np.float32)
            for n, k in (("x", 24), ("rest", 17))
        }
        got = context.run({io.name: feed[io.name] for io in plan.inputs})["y"]
        np.testing.assert_allclose(got, dense.expected(feed["x"], feed["rest"]), rtol=0, atol=3e-5)


@needs_onednn
@pytest.mark.parametrize("threads", [1, 2])
def test_threads_are_the_engines_and_nobody_elses(threads: int) -> None:
    dense, before = Dense("Relu"), library().c.omp_get_max_threads()
    plan = dense.plan(tactic_sources={"acme_onednn"})
    (step,) = plan.steps
    artifact = replace(step.artifact, params={**step.artifact.params, "threads": "all"})
    plan = replace(plan, steps=(replace(step, artifact=artifact),))
    x, rest = (RNG.standard_normal((9, 40, k)).astype(np.float32) for k in (24, 17))
    got = tactix.Runtime(max_threads=threads).load(plan)(x, rest)
    np.testing.assert_allclose(got, dense.expected(x, rest), rtol=0, atol=3e-5)
    assert library().c.omp_get_max_threads() == before


@needs_onednn
def test_contexts_run_beside_each_other() -> None:
    dense = Dense("Gelu")
    engine = tactix.Runtime(max_threads=1).load(dense.plan(tactic_sources={"acme_onednn"}))
    sizes = (("x", 24), ("rest", 17))
    feeds = [
        {n: RNG.standard_normal((3, 31, k)).astype(np.float32) for n, k in sizes} for _ in range(4)
    ]
    contexts = [engine.create_execution_context() for _ in feeds]
    with ThreadPoolExecutor(len(feeds)) as pool:
        for _ in range(20):
            found = list(pool.map(lambda c, f: c.run(f)["y"], contexts, feeds))
            for y, f in zip(found, feeds, strict=True):
                np.testing.assert_allclose(y, dense.expected(f["x"], f["rest"]), rtol=0, atol=3e-5)


@needs_onednn
def test_it_is_measured_against_tactixs_own_kernels() -> None:
    (bids,) = Dense("Relu").plan(3).ledger["nodes"].values()
    timed = {c["tactic"] for c in bids["candidates"] if c["status"] == "measured"}
    assert {"acme_onednn.matmul@1", "tactix.c_gemm@1"} <= timed


@needs_onednn
def test_what_onednn_has_no_word_for_is_left_to_others() -> None:
    with pytest.raises(errors.TactixError, match=r"no tactix\.Softplus@1 behind a product"):
        Dense("Softplus").plan(tactic_sources={"acme_onednn"})


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Dense().plan(tactic_sources={"acme_onednn"}) if library() else None
    monkeypatch.setattr(tactic.dnnl, "library", lambda: None)
    monkeypatch.setattr(launcher, "library", lambda: None)
    with pytest.raises(errors.TactixError, match="pip install 'acme-onednn"):
        Dense().plan(tactic_sources={"acme_onednn"})
    if plan is not None:
        with pytest.raises(errors.ExecutionError, match="pip install onednn-cpu-gomp"):
            tactix.Runtime().load(plan)(*(np.ones((1, 1, k), np.float32) for k in (24, 17)))
