"""Convolutions and attention by a double of cuDNN: descriptors, graphs, plans as data, what is
captured, and errors.
"""

from __future__ import annotations

import dataclasses
import gc
import json
from pathlib import Path
from typing import Any

import asked
import harness as h
import numpy as np
import pytest
import simt
from fake_cudnn import FakeCudnnFunctions, fake_cudnn
from fake_driver import FakeApi, fake_device
from library_cases import attentions, convolutions, kept, real, tokens

from tactix.base.dims import sym
from tactix.base.dtypes import DType
from tactix.base.errors import (
    CompilerError,
    ExecutionError,
    PlanCompatibilityError,
    PlanFormatError,
)
from tactix.base.tensor import TensorSpec
from tactix.contracts.artifact import KernelArtifact, Source
from tactix.contracts.launcher import LinkContext
from tactix.contracts.tactic import CompileContext, Reject
from tactix.select.bench import Bench, Expected
from tactix.select.compile import Toolchain, with_binary
from tactix_cuda.device import CudaDevice
from tactix_cuda.library import LibraryFailure
from tactix_cudnn import compiler
from tactix_cudnn.attention import CudnnAttention
from tactix_cudnn.attention_tactic import CudnnAttentionTactic
from tactix_cudnn.compiler import CudnnCompiler
from tactix_cudnn.convolution import CudnnConvolution
from tactix_cudnn.convolution_tactic import CudnnConvolutionTactic
from tactix_cudnn.graph import CudnnWork
from tactix_cudnn.launcher import CudnnLauncher
from tactix_cudnn.library import Cudnn
from tactix_cudnn.plan import Binding

CONTEXT = CompileContext(simt.DEVICE)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACTIX_CACHE_DIR", str(tmp_path))


class Here:
    """A fake device with a fake library, and a tactic, the compiler and the launcher over both."""

    def __init__(self, tactic: Any = CudnnConvolutionTactic, **more: Any) -> None:
        self.device: CudaDevice
        self.api: FakeApi
        self.device, self.api = fake_device()
        self.library: Cudnn
        self.functions: FakeCudnnFunctions
        self.library, self.functions = fake_cudnn(self.api, **more)
        self.tactic = tactic(self.library)
        launcher = CudnnLauncher(self.library)
        context = LinkContext(self.device, 1, lambda key: None)  # type: ignore[arg-type,return-value]
        self.bench = Bench(context, {launcher.key: launcher})

    def source(self, node: Any, rank: int = 0) -> KernelArtifact:
        offered = asked.variants(self.tactic, node, simt.DEVICE)
        assert not isinstance(offered, Reject), offered.reason
        return asked.artifact(self.tactic, node, offered[rank], CONTEXT)

    def artifact(self, node: Any, rank: int = 0) -> KernelArtifact:
        made = self.source(node, rank)
        return with_binary(
            made, Toolchain([CudnnCompiler(self.library)]).compile([made], simt.DEVICE)
        )

    def run(self, node: Any, arrays: Any, artifact: KernelArtifact) -> float:
        """The departure from the reference, in budgets."""
        variant = asked.variants(self.tactic, node, simt.DEVICE)[0]  # type: ignore[index]
        runnable, got = self.bench.prepare(node, kept(artifact), variant, arrays, {})
        runnable()
        return self.bench.check(node, variant, got, Expected(node, arrays, {}))


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize(
    ("tactic", "cases"),
    [(CudnnConvolutionTactic, convolutions), (CudnnAttentionTactic, attentions)],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_results_are_those_of_the_reference(tactic: Any, cases: Any, dtype: str) -> None:
    here = Here(tactic)
    for case in cases(dtype, here.tactic):
        assert here.run(case.node, list(case.arrays or ()), here.artifact(case.node)) <= 1, (
            case.node.name
        )
        assert [r.symbol for r in here.api.ran] == ["cudnnBackendExecute"]
        here.api.ran.clear()


IMAGE, WEIGHTS, BIAS = real("f16", 2, 16, 9, 7), real("f16", 24, 16, 3, 3), real("f16", 24)


def simple() -> Any:
    return h.node("Convolution", [IMAGE, WEIGHTS, BIAS], [1, 2], pads=(1, 1, 1, 1))


def test_engines_are_variants_and_plans_are_data() -> None:
    here, node = Here(), simple()
    sources = [here.source(node, rank) for rank in range(3)]
    assert [json.loads(s.code.text)["compiles"] for s in sources] == [False, False, True]  # type: ignore[union-attr]
    assert len({s.digest for s in sources}) == 3
    assert (sources[0].workspace, sources[0].params["version"]) == (64, [9, 19, 0])
    assert json.loads(here.artifact(node).code.blob)[0]["pads"] == [1, 1, 1, 1]  # type: ignore[union-attr]


def work(node: Any) -> Any:
    found = CudnnAttentionTactic().request(node)
    assert not isinstance(found, Reject), found.reason
    return found.what


def test_heads_are_read_where_a_product_leaves_them() -> None:
    here = Here(CudnnAttentionTactic)
    node = tokens("f16", here.tactic, 2, 70, 3, 32).node
    artifact = here.source(node)
    assert work(node).k == (70 * 288, 32, 288, 96)
    assert artifact.params["tensors"] == [[1, 0], [2, 192], [3, 384], [5, 0]]
    assert [a.index for a in artifact.launches[0].args[:3]] == [0, 0, 0]
    assert artifact.params["scalars"] == [[6, np.float32(32**-0.5).tobytes().hex()]]


def test_masks_that_hide_what_comes_later_are_not_read() -> None:
    cases = attentions("f16", CudnnAttentionTactic())
    found = [w for c in cases for w in [work(c.node)] if c.node.kind == "tactix.Attention@1"]
    assert [w.causal for w in found] == [*[False] * 9, True, True, False]
    assert [len(w.mask) for w in found[6:]] == [4, 4, 4, 0, 0, 4]
    assert [uid for uid, _ in found[10].binding.scalars] == [6, 7, 8, 9]


def test_too_much_workspace_is_no_engine() -> None:
    assert asked.variants(Here(wants=(64 << 20) + 1).tactic, simple(), simt.DEVICE) == Reject(
        "cuDNN has no engine for it"
    )


def test_an_engine_without_a_plan_is_an_error_of_its_step_alone() -> None:
    here, node = Here(broken=1), simple()
    assert here.run(node, [IMAGE, WEIGHTS, BIAS], here.artifact(node, 0)) <= 1
    with pytest.raises(
        ExecutionError, match="cuDNN has no plan: cudnnBackendFinalize of cuDNN failed: status 3000"
    ):
        here.run(node, [IMAGE, WEIGHTS, BIAS], here.artifact(node, 1))


def test_plans_are_cached() -> None:
    here = Here()
    first = here.artifact(simple())
    here.functions.fail["cudnnBackendFinalize"] = 3000
    assert here.artifact(simple()) == first


def test_a_new_address_is_used_from_the_next_run_on() -> None:
    here, node = Here(), simple()
    variant = asked.variants(here.tactic, node, simt.DEVICE)[0]  # type: ignore[index]
    runnable, (got,) = here.bench.prepare(
        node, here.artifact(node), variant, [IMAGE, WEIGHTS, BIAS], {}
    )
    runnable()
    other = real("f16", 2, 16, 9, 7)
    held = Bench.aligned(variant.input_format(0).pack(other))
    runnable.rebind(0, held.ctypes.data)
    runnable()
    assert here.bench.check(node, variant, [got], Expected(node, [other, WEIGHTS, BIAS], {})) <= 1
    assert "cuGraphExecKernelNodeSetParams" in here.api.log


def test_descriptors_are_given_back() -> None:
    here = Here()
    here.run(simple(), [IMAGE, WEIGHTS, BIAS], here.artifact(simple()))
    gc.collect()
    assert here.functions.made == {}


S = TensorSpec(DType.FP16, (sym("n"), 16, 9, 7))


QKV = [real("f16", 2, 3, 20, 32) for _ in range(3)]


BLIND = np.zeros((20, 20), np.float16)
BLIND[3] = -np.inf


def attention(*shapes: tuple[int, ...], dtype: str = "f16") -> Any:
    return h.node("Attention", [real(dtype, *s) for s in shapes])


@pytest.mark.parametrize(("node", "why"), [
    (h.node("Attention", [TensorSpec(DType.FP16, (sym("n"), 2, 9, 64))] * 3), "fixed sizes"),
    (attention(*[(2, 3, 20, 32)] * 3, dtype="f32"), "f16 and bf16"),
    (attention(*[(2, 3, 20, 36)] * 3), "multiple of 8 columns"),
    (attention(*[(2, 3, 20, 136)] * 3), "dims up to 128"),
    (h.node("TokenAttention", [real("f16", 2, 20, 100)] * 3, heads=3, dim=32, value_dim=32), "multiples of 16 bytes"),
    (attention((2, 1, 20, 32), (2, 3, 20, 32), (2, 3, 20, 32)), "repeats no queries"),
    (attention((2, 3, 20, 32), (1, 3, 20, 32), (1, 3, 20, 32)), "along heads alone"),
    (h.fused(QKV, [("Attention", (0, 1, 2), {}), ("Relu", (3,), {})], anchor=0), "no epilogue"),
    (h.fused(QKV, [("Attention", (0, 1, 2), {}), ("Mul", (3, 0), {})], anchor=0), "no epilogue"),
    (h.node("Attention", [*QKV, real("f64", 20, 20)]), "masks of f16"),
    (h.node("Attention", [*QKV, real("f16", 20, 20)]), "0, not NaN"),
    (h.node("Attention", [*QKV, BLIND], [3]), "0, not NaN"),
])  # fmt: skip
def test_what_attention_it_cannot_do_is_said(node: Any, why: str) -> None:
    found = asked.variants(Here(CudnnAttentionTactic).tactic, node, simt.DEVICE)
    assert isinstance(found, Reject)
    assert why in found.reason


@pytest.mark.parametrize(("node", "why"), [
    (h.node("Convolution", [S, WEIGHTS], [1]), "fixed sizes"),
    (h.node("Convolution", [IMAGE.astype(np.float32), WEIGHTS.astype(np.float32)], [1]), "float16 or bfloat16"),
    (h.fused([IMAGE, WEIGHTS], [("Convolution", (0, 1), {}), ("Sigmoid", (2,), {})], anchor=0, constants=[1]), "relu"),
    (h.node("Convolution", [IMAGE, WEIGHTS, BIAS], [1]), "constant bias"),
])  # fmt: skip
def test_what_it_cannot_do_is_said(node: Any, why: str) -> None:
    found = asked.variants(Here().tactic, node, simt.DEVICE)
    assert isinstance(found, Reject)
    assert why in found.reason


def test_another_version_is_refused() -> None:
    here, node = Here(), simple()
    artifact = here.artifact(node)
    old = dataclasses.replace(artifact, params={**artifact.params, "version": [9, 18, 0]})
    with pytest.raises(
        PlanCompatibilityError, match=r"choices of cuDNN 9\.18\.0: here is cuDNN 9\.19\.0"
    ):
        here.run(node, [IMAGE, WEIGHTS, BIAS], old)


@pytest.mark.parametrize("change", [
    {"version": 5}, {"tensors": {}}, {"tensors": None}, {"tensors": [[1, 0]]}, {"tensors": [["x", 0]]},
    {"tensors": [[1], [2], [3], [4]]}, {"scalars": 3}, {"scalars": [[1, "x"]]}, {"scalars": [[1, 2]]},
])  # fmt: skip
def test_damaged_params(change: dict[str, Any]) -> None:
    here, node = Here(), simple()
    artifact = here.artifact(node)
    with pytest.raises(PlanFormatError, match="cuDNN"):
        here.run(
            node,
            [IMAGE, WEIGHTS, BIAS],
            dataclasses.replace(artifact, params={**artifact.params, **change}),
        )


def test_a_plan_that_takes_more_workspace_than_it_has() -> None:
    here, node = Here(), simple()
    artifact = dataclasses.replace(here.artifact(node), workspace=8)
    with pytest.raises(ExecutionError, match="more workspace than it was given: it takes 64 bytes"):
        here.run(node, [IMAGE, WEIGHTS, BIAS], artifact)


@pytest.mark.parametrize(
    "function", ["cudnnCreate", "cudnnBackendCreateDescriptor", "cudnnBackendSetAttribute"]
)
def test_a_failed_status_names_the_function(function: str) -> None:
    here = Here()
    here.functions.fail[function] = 1001
    with pytest.raises(
        LibraryFailure, match=f"{function} of cuDNN failed: status 1001, text of 1001"
    ):
        here.source(simple())


def test_a_failed_run_names_the_step() -> None:
    here, node = Here(), simple()
    artifact = here.artifact(node)
    here.functions.fail["cudnnBackendExecute"] = 5000
    with pytest.raises(
        LibraryFailure, match="convolution: cudnnBackendExecute of cuDNN failed: status 5000"
    ):
        here.run(node, [IMAGE, WEIGHTS, BIAS], artifact)


@pytest.mark.parametrize("what", [
    CudnnConvolution(
        "f16", (1, 2, 3, 4), (5, 2, 1, 1), (1, 5, 3, 4), (1, 1), (1, 1), (0, 0), (0, 0), True, False, True
    ),
    CudnnAttention("bf16", (1, 2, 3, 4, 8, 8), (48, 24, 8, 0), (64, 32, 8, 0), (64, 32, 8, 8), (2, 1), 0.3, True, (4,)),
])  # fmt: skip
def test_work_is_json(what: CudnnWork) -> None:
    assert type(what).from_json(json.loads(json.dumps(what.to_json()))) == what
    assert Binding.from_json(json.loads(json.dumps(what.binding.to_json()))) == what.binding


# -- processes -----------------------------------------------------------------------------------


def sources(count: int) -> list[Source]:
    node = simple()
    return [
        Source("cudnn_graph", here.source(node, 2).code.text + " " * i)  # type: ignore[union-attr]
        for here in [Here()]
        for i in range(count)
    ]


def test_many_compiled_plans_are_made_in_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    parts: list[Any] = []

    def process(texts: Any) -> list[str]:
        parts.append(list(texts))
        return [f"plan of {len(t)}" for t in texts]

    monkeypatch.setattr(compiler, "_in_process", process)
    monkeypatch.setattr(compiler, "the_device", lambda: fake_device()[0])
    monkeypatch.setattr(compiler, "cudnn", lambda device: Here().library)
    monkeypatch.setattr(compiler.os, "cpu_count", lambda: 4)
    some = sources(20)
    made = CudnnCompiler().compile(some, simt.DEVICE)
    assert sorted(map(len, parts)) == [5, 5, 5, 5]
    assert [b.blob.decode() for b in made] == [f"plan of {len(s.text)}" for s in some]


def test_a_process_that_fails_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler.sys, "executable", "/bin/false")
    with pytest.raises(
        CompilerError, match="plans of cuDNN could not be made in a process: exit status 1"
    ):
        compiler._in_process(["{}"])
