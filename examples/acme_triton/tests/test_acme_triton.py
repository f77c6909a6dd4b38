"""The pack's own test: needs tactix and the pack installed; parts of it Triton, parts of it a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from acme_triton.tactic import TILES, matmul, matmul_kernel

import tactix
from tactix_cuda.device import the_device
from tactix_sdk import Reject, triton

missing, no_gpu = triton.why_missing(), the_device().available()
needs_triton = pytest.mark.skipif(bool(missing), reason=missing)
needs_gpu = pytest.mark.skipif(bool(missing or no_gpu), reason=missing or no_gpu)
RNG = np.random.default_rng(5)


def half(*shape: int) -> Any:
    return (RNG.standard_normal(shape) / 8).astype(np.float16)


class Dense:
    """act(x @ w + bias + rest), of any number of rows."""

    def __init__(self, k: int, n: int, act: str = "", rest: bool = True) -> None:
        self.w, self.bias, self.act = half(k, n), half(n), act
        self.builder = tactix.Builder()
        self.network = self.builder.create_network("dense")
        x = self.network.add_input("x", "f16", ("m", k))
        inputs = [x, self.network.add_constant(self.w)]
        (y,) = self.network.add_layer("tactix.MatMul", inputs)
        (y,) = self.network.add_layer("tactix.Add", [y, self.network.add_constant(self.bias)])
        if rest:
            (y,) = self.network.add_layer(
                "tactix.Add", [y, self.network.add_input("rest", "f16", ("m", n))]
            )
        if act:
            (y,) = self.network.add_layer(f"tactix.{act}", [y])
        self.network.mark_output(y, "y")

    def plan(self, target: str = "", level: int = 0, **more: Any) -> Any:
        profile = tactix.OptimizationProfile()
        for v in self.network.inputs:
            n = int(v.spec.shape[1])
            profile.set_shape(v.name, (1, n), (100, n), (300, n))
        config = tactix.BuilderConfig(
            device="tactix.cuda@1",
            target=target,
            builder_optimization_level=level,
            timing_cache=False,
            profiles=[profile],
            tactic_sources={"acme_triton"},
            **more,
        )
        config.enable("acme_triton")
        return self.builder.build_plan(self.network, config)

    def expected(self, x: Any, rest: Any) -> Any:
        y = x.astype(np.float32) @ self.w.astype(np.float32) + self.bias + rest
        if self.act == "Gelu":
            from math import erf

            return 0.5 * y * (1 + np.vectorize(erf)(y / np.sqrt(2)))
        return np.maximum(y, 0) if self.act else y


def variants(network: Any, target: str = "sm_90a") -> Any:
    found = matmul.offers(network.nodes[0], the_device().target(target))
    return found if isinstance(found, Reject) else found.variants


@pytest.mark.skipif(not missing, reason="Triton is installed")
def test_without_triton_it_says_so() -> None:
    found = variants(Dense(64, 48).network)
    assert isinstance(found, Reject)
    assert "pip install triton" in found.reason


def test_what_it_does_not_take_is_said() -> None:
    builder = tactix.Builder()
    network = builder.create_network("f32")
    x = network.add_input("x", "f32", (3, 8))
    network.mark_output(
        *network.add_layer("tactix.MatMul", [x, network.add_constant(np.ones((8, 4), np.float32))])
    )
    found = variants(network)
    assert isinstance(found, Reject)
    assert "float16" in found.reason


@needs_triton
def test_tiles_fit_the_architecture() -> None:
    network = Dense(64, 48).network
    assert len(variants(network)) == len(TILES)
    assert 0 < len(variants(network, "sm_86")) < len(TILES)
    plain = variants(network, "sm_90")
    assert isinstance(plain, Reject)
    assert "cubin_90a" in plain.reason


@needs_triton
@pytest.mark.parametrize(("target", "feature"), [("sm_90a", "cubin_90a"), ("sm_80", "cubin_80")])
def test_a_plan_of_cubins_is_built_without_a_gpu(target: str, feature: str) -> None:
    plan = Dense(96, 40, "Relu").plan(target)
    (step,) = plan.steps
    assert step.info["tactic"] == matmul.key
    assert step.artifact.launcher == "tactix.cuda.cubin@1"
    assert step.artifact.requires == (feature,)
    assert step.artifact.code.blob[:4] == b"\x7fELF"
    assert step.artifact.code.symbol == "matmul"
    (launch,) = step.artifact.launches
    assert len(launch.args) == 8
    assert launch.shared_bytes > 0
    assert [r.key for r in plan.requirements] == ["tactix.cuda.cubin@1"]


@needs_triton
def test_the_same_sources_give_the_same_code() -> None:
    constants = {
        "N": 40,
        "K": 96,
        "BM": 64,
        "BN": 64,
        "BK": 32,
        "GROUP": 8,
        "BIAS": True,
        "REST": False,
        "ACT": "",
    }
    kinds = (*((name, "*fp16") for name in ("a", "b", "bias", "rest", "y")), ("m", "i64"))
    made = []
    for _ in range(2):
        triton.compiled.cache_clear()
        made.append(triton.compiled(matmul_kernel, kinds, tuple(constants.items()), 4, 2, 80))
    assert made[0] == made[1]
    assert made[0].threads == 128


@needs_triton
@pytest.mark.skipif(not no_gpu, reason="a GPU is here")
def test_a_plan_for_a_gpu_says_what_is_missing() -> None:
    with pytest.raises(tactix.TactixError, match="cuda"):
        tactix.Runtime().load(Dense(96, 40).plan("sm_90a"))


@needs_gpu
@pytest.mark.parametrize("act", ["", "Relu", "Gelu"])
@pytest.mark.parametrize(("k", "n"), [(96, 40), (64, 256), (100, 33), (768, 768)])
def test_results_on_the_gpu(k: int, n: int, act: str) -> None:
    dense = Dense(k, n, act)
    engine = tactix.Runtime().load(dense.plan(level=4))
    for m in (1, 100, 37, 300):
        x, rest = half(m, k), half(m, n)
        got = np.asarray(engine(x, rest), np.float32)
        np.testing.assert_allclose(got, dense.expected(x, rest), rtol=5e-3, atol=5e-3)
