"""The pack's own test: needs tactix and the pack installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from acme_blas import blas, launcher

import tactix
from tactix_sdk import errors
from tactix_sdk.testing import PackTests

RNG = np.random.default_rng(7)
needs_blas = pytest.mark.skipif(blas.gemm("f32") is None, reason="no BLAS was found")


@needs_blas
class TestPack(PackTests):
    pack = "acme-blas"


def dense(
    dtype: str, added: str, constant: bool = True
) -> tuple[Any, tactix.Builder, dict[str, Any]]:
    """x @ w, and a row or a tensor added; w may be given."""
    builder = tactix.Builder()
    network = builder.create_network("dense")
    kind = np.dtype({"f32": "float32", "f64": "float64"}[dtype])
    arrays = {n: RNG.standard_normal(s).astype(kind) for n, s in (("w", (24, 17)), ("row", (17,)))}
    x = network.add_input("x", dtype, ("b", "m", 24))
    w = network.add_constant(arrays["w"]) if constant else network.add_input("w", dtype, (24, 17))
    (y,) = network.add_layer("tactix.MatMul", [x, w])
    if added == "row":
        (y,) = network.add_layer("tactix.Add", [network.add_constant(arrays["row"]), y])
    if added == "tensor":
        (y,) = network.add_layer(
            "tactix.Add", [y, network.add_input("rest", dtype, ("b", "m", 17))]
        )
    network.mark_output(y, "y")
    return network, builder, arrays


def config(level: int = 0, **more: Any) -> tactix.BuilderConfig:
    made = tactix.BuilderConfig(timing_cache=False, builder_optimization_level=level, **more)
    made.enable("acme_blas")
    return made


@needs_blas
@pytest.mark.parametrize("added", ["", "row", "tensor"])
@pytest.mark.parametrize(("dtype", "constant"), [("f64", True), ("f64", False), ("f32", False)])
def test_results_at_several_shapes(dtype: str, added: str, constant: bool) -> None:
    network, builder, arrays = dense(dtype, added, constant)
    engine = builder.build(network, config(tactic_sources={"acme_blas", "numpy"}))
    assert engine.plan.steps[0].info["tactic"] == "acme_blas.gemm@1"
    for shape in ((1, 1), (2, 5), (0, 3), (3, 8)):
        feed = {
            n: RNG.standard_normal((*shape, k)).astype(arrays["w"].dtype)
            for n, k in (("x", 24), ("rest", 17))
        }
        want = (
            feed["x"] @ arrays["w"] + {"": 0, "row": arrays["row"], "tensor": feed["rest"]}[added]
        )
        got = engine.create_execution_context().run(
            {io.name: (feed | arrays)[io.name] for io in engine.plan.inputs}
        )["y"]
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-12 if dtype == "f64" else 2e-5)


@needs_blas
def test_it_is_asked_only_if_it_is_enabled() -> None:
    network, builder, _ = dense("f64", "")
    ours = config(tactic_sources={"acme_blas", "numpy"})
    assert [s.info["tactic"] for s in builder.build_plan(network, ours).steps] == [
        "acme_blas.gemm@1"
    ]
    plain = tactix.BuilderConfig(timing_cache=False)
    network, builder, _ = dense("f64", "")
    (step,) = builder.build_plan(network, plain).steps
    assert step.info["tactic"] != "acme_blas.gemm@1"


@needs_blas
def test_it_is_measured_against_tactixs_own_kernels() -> None:
    network, builder, _ = dense("f32", "row")
    plan = builder.build_plan(network, config(3))
    (bids,) = plan.ledger["nodes"].values()
    timed = {c["tactic"] for c in bids["candidates"] if c["status"] == "measured"}
    assert {"acme_blas.gemm@1", "tactix.c_gemm@1"} <= timed


def test_without_a_blas_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acme_blas.tactic.gemm", lambda dtype: None)
    network, builder, _ = dense("f64", "")
    with pytest.raises(errors.TactixError, match="no BLAS was found"):
        builder.build(network, config(tactic_sources={"acme_blas"}))


@needs_blas
def test_a_plan_says_what_is_missing_where_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    network, builder, _ = dense("f64", "")
    plan = builder.build_plan(network, config(tactic_sources={"acme_blas"}))
    monkeypatch.setattr(launcher, "gemm", lambda dtype: None)
    with pytest.raises(errors.ExecutionError, match="Install numpy's wheel"):
        tactix.Runtime().load(plan).create_execution_context().run({"x": np.ones((1, 1, 24))})
