"""Products by a double of cuBLASLt: layouts, epilogues, algorithms as data, what is captured, and
errors.
"""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Sequence
from typing import Any

import asked
import harness as h
import numpy as np
import pytest
import simt
from fake_cublaslt import FakeFunctions, fake_cublaslt
from fake_driver import FakeApi, fake_device
from library_cases import EIGHTS, ERF, cases, kept, real

from tactix.base.dims import sym
from tactix.base.dtypes import DType
from tactix.base.errors import ExecutionError, PlanCompatibilityError, PlanFormatError
from tactix.base.tensor import TensorSpec
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.launcher import LinkContext, Step
from tactix.contracts.tactic import CompileContext, Reject
from tactix.select.bench import Bench, Expected, sample
from tactix_codegen.cuda.target import required_features
from tactix_cublaslt.launcher import CublasLtLauncher
from tactix_cublaslt.library import CublasLt
from tactix_cublaslt.matmul import Algorithm, Matmul, Problem
from tactix_cublaslt.tactic import CublasLtTactic, Tf32CublasLtTactic
from tactix_cuda import nvrtc
from tactix_cuda.device import CudaDevice
from tactix_cuda.library import LibraryDescription, LibraryFailure, load

CONTEXT = CompileContext(simt.DEVICE)


class Here:
    """A fake device with a fake library, and the tactic and the launcher over both."""

    def __init__(self, **more: Any) -> None:
        self.device: CudaDevice
        self.api: FakeApi
        self.device, self.api = fake_device()
        self.library: CublasLt
        self.functions: FakeFunctions
        self.library, self.functions = fake_cublaslt(self.api, **more)
        self.tactic = CublasLtTactic(self.library)
        launcher = CublasLtLauncher(self.library)
        context = LinkContext(self.device, 1, lambda key: None)  # type: ignore[arg-type,return-value]
        self.bench = Bench(context, {launcher.key: launcher})

    def artifact(self, node: Any, rank: int = 0, **opt: int) -> KernelArtifact:
        offered = asked.variants(self.tactic, node, simt.DEVICE)
        assert not isinstance(offered, Reject), offered.reason
        return asked.artifact(self.tactic, node, offered[rank], CompileContext(simt.DEVICE, opt))

    def run(
        self, node: Any, arrays: Sequence[Any], env: dict[str, int], artifact: KernelArtifact
    ) -> float:
        """The departure from the reference, in budgets."""
        variant = asked.variants(self.tactic, node, simt.DEVICE)[0]  # type: ignore[index]
        runnable, got = self.bench.prepare(node, kept(artifact), variant, arrays, env)
        runnable()
        return self.bench.check(node, variant, got, Expected(node, arrays, env))


@pytest.mark.parametrize("name", cases())
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_results_are_those_of_the_reference(name: str) -> None:
    here, folded = Here(), 0
    for case in cases()[name](here.tactic):
        artifact = here.artifact(case.node, **case.env)
        if len(artifact.launches) > 1:
            continue  # the kernel behind the call needs a device
        folded += 1
        arrays = list(case.arrays) if case.arrays is not None else sample(case.node, case.env)
        assert here.run(case.node, arrays, dict(case.env), artifact) <= 1, case.node.name
        assert [r.symbol for r in here.api.ran] == ["cublasLtMatmul"]
        here.api.ran.clear()
    assert folded > 0


def linear(m: Any = 33, dtype: str = "f16") -> Any:
    return h.node("MatMul", [TensorSpec(DType(dtype), (m, 40)), real(dtype, 40, 24)], [1])


def test_offered_algorithms_are_variants_and_data() -> None:
    here = Here(offered=5)
    offered = asked.variants(here.tactic, linear(), simt.DEVICE)
    assert not isinstance(offered, Reject)
    assert [v.knob("rank") for v in offered] == [0, 1, 2, 3, 4]
    made = [here.artifact(linear(), r) for r in range(5)]
    assert len({a.digest for a in made}) == 5
    for i, a in enumerate(made):
        assert bytes.fromhex(a.params["algorithm"])[:1] == bytes([i + 1])
        assert a.params["version"] == [13, 1, 0]
        assert (a.code, a.workspace, a.requires) == (None, 512, required_features(simt.DEVICE))
    wanted = here.functions.asked[0]
    assert wanted == {1: 32 << 20, 5: 16, 6: 16, 7: 16, 8: 16}


def test_a_symbol_has_all_ranks_and_the_compile_says_how_many_there_are() -> None:
    here, s = Here(offered=2), sym("s")
    offered = asked.variants(here.tactic, linear(s), simt.DEVICE)
    assert not isinstance(offered, Reject)
    assert len(offered) == 8
    assert here.artifact(linear(s), 1, s=7).workspace == (32 << 20) + 256
    with pytest.raises(ExecutionError, match="cuBLASLt has 2 algorithms for it"):
        here.artifact(linear(s), 2, s=7)


@pytest.mark.parametrize("wants", [0, 256])
def test_a_call_is_given_the_workspace_that_it_needs(wants: int) -> None:
    """Of a symbolic product, whose plan has room for what any size may need."""
    here, node = Here(wants=wants), linear(sym("s"))
    artifact = here.artifact(node, 1, s=7)
    assert artifact.params["workspace"] == 32 << 20
    for s in (7, 50):
        assert here.run(node, [real("f16", s, 40), node.inputs[1].const], {"s": s}, artifact) <= 1
    assert set(here.functions.given) == {wants}


@pytest.mark.parametrize(("wants", "asked"), [(0, [32 << 20]), (256, [32 << 20, 0])])
def test_one_without_workspace_is_asked_for(wants: int, asked: list[int]) -> None:
    here = Here(wants=wants)
    here.artifact(linear())
    assert [a[1] for a in here.functions.asked] == asked


def test_one_without_workspace_comes_second(monkeypatch: pytest.MonkeyPatch) -> None:
    def algorithms(matmul: Any, count: int, workspace: int) -> list[Algorithm]:
        return (
            [Algorithm(bytes([i]), 512) for i in range(count)]
            if workspace
            else [Algorithm(b"bare", 0)]
        )

    monkeypatch.setattr(Matmul, "algorithms", algorithms)
    here = Here()
    work = here.tactic.match(linear(), simt.DEVICE)
    assert not isinstance(work, Reject)
    made = here.tactic._algorithms(work, {})
    assert [a.code for a in made] == [b"\0", b"bare", *(bytes([i]) for i in range(1, 7))]


def test_sizes_that_no_device_holds_are_not_asked_about() -> None:
    here = Here()
    with pytest.raises(ExecutionError, match="cuBLASLt is not asked about"):
        here.artifact(linear(sym("s")), 0, s=1 << 40)
    assert not here.functions.asked


def test_other_sizes_get_the_first_choice_for_them() -> None:
    here, node = Here(), linear(sym("s"))
    artifact = here.artifact(node, 1, s=7)
    before = len(here.functions.asked)
    for s, more in ((7, 0), (50, 1)):
        x = [real("f16", s, 40), node.inputs[1].const]
        assert here.run(node, x, {"s": s}, artifact) <= 1
        assert len(here.functions.asked) - before == more
    here.functions.offered = 0
    with pytest.raises(
        ExecutionError,
        match=r"matmul: cuBLASLt has no algorithm for Sizes\(batch=1, m=9, n=24, k=40\)",
    ):
        here.run(node, [real("f16", 9, 40), node.inputs[1].const], {"s": 9}, artifact)


def test_nothing_is_called_for_no_rows() -> None:
    here, node = Here(), linear(sym("s"))
    artifact = here.artifact(node, s=7)
    here.run(node, [real("f16", 0, 40), node.inputs[1].const], {"s": 0}, artifact)
    assert here.api.ran == []


@pytest.mark.parametrize("graph", ["1", "0"])
def test_a_new_address_is_used_from_the_next_run_on(
    monkeypatch: pytest.MonkeyPatch, graph: str
) -> None:
    monkeypatch.setenv("TACTIX_CUDA_GRAPH", graph)
    here, node = Here(), linear()
    artifact = here.artifact(node)
    x, other, w = real("f16", 33, 40), real("f16", 33, 40), node.inputs[1].const
    runnable, (got,) = here.bench.prepare(
        node, artifact, asked.variants(here.tactic, node, simt.DEVICE)[0], [x, w], {}
    )
    runnable()
    held = Bench.aligned(other)
    runnable.rebind(0, held.ctypes.data)
    runnable()
    np.testing.assert_allclose(
        got.astype(np.float32),
        other.astype(np.float32) @ w.astype(np.float32),
        rtol=1e-2,
        atol=0.05,
    )
    runnable.repeat(41)
    assert len(here.api.ran) == 43
    assert ("cuGraphExecKernelNodeSetParams" in here.api.log) == (graph == "1")


def test_steps_of_both_launchers_are_one_graph() -> None:
    from cuda_steps import add_step

    from tactix_cuda.graph import CudaRun
    from tactix_cuda.launcher import CubinLauncher

    here, node = Here(), linear()
    artifact = here.artifact(node)
    device, _ = fake_device({})
    launchers = {x.key: x for x in (CubinLauncher(), CublasLtLauncher(here.library))}
    step = Step("product", artifact, (add_step().inputs[0],) * 2, (add_step().inputs[0],), {}, 1)
    made = device.link([step, step], launchers, LinkContext(device, 1, lambda key: None))  # type: ignore
    assert isinstance(made, CudaRun)


def test_descriptors_are_given_back() -> None:
    here = Here()
    here.run(linear(), [real("f16", 33, 40), linear().inputs[1].const], {}, here.artifact(linear()))
    here.bench.keep().clear()
    gc.collect()
    assert len(here.functions.made) == 1  # the handle


def test_exact_gelu_is_a_kernel_of_our_own() -> None:
    here = Here()
    (case,) = ERF(here.tactic)
    artifact = here.artifact(case.node)
    call, after = artifact.launches
    assert call.symbol == "cublasLtMatmul"
    assert after.symbol == ""
    assert artifact.params["problem"]["activation"] == ""
    assert "tx_gelu" in artifact.code.text  # type: ignore[union-attr]


@pytest.mark.skipif(bool(nvrtc.why_missing()), reason="needs NVRTC")
@pytest.mark.parametrize("name", [*cases(), "8 bits"])
def test_kernels_behind_the_call_compile(name: str) -> None:
    here = Here()
    found = cases().get(name, EIGHTS)(here.tactic)
    made = [here.artifact(c.node, **c.env) for c in found]
    sources = [a.code for a in made if a.code is not None]
    assert len(nvrtc.NvrtcCompiler().compile(sources, simt.DEVICE)) == len(sources)  # type: ignore[arg-type]


def test_tf32_is_asked_for_by_name() -> None:
    here = Here()
    tactic = Tf32CublasLtTactic(here.library)
    (offered, *_) = asked.variants(tactic, linear(dtype="f32"), simt.DEVICE)  # type: ignore[misc]
    made = asked.artifact(tactic, linear(dtype="f32"), offered, CONTEXT)
    assert made.params["problem"]["compute"] == "tf32"
    assert here.artifact(linear(dtype="f32")).params["problem"]["compute"] == "float32"


@pytest.mark.parametrize(("node", "why"), [
    (h.node("Convolution", [real("f16", 1, 16, 8, 8), real("f16", 24, 16, 3, 3)], [1]), "more than a pixel"),
    (h.node("MatMul", [np.ones((3, 3))] * 2), "float16, bfloat16 or float32"),
    (h.node("MatMul", [real("f16", 2, 3, 5, 8), real("f16", 3, 8, 4)]), "some of the batch axes only"),
])  # fmt: skip
def test_what_it_cannot_do_is_said(node: Any, why: str) -> None:
    found = asked.variants(Here().tactic, node, simt.DEVICE)
    assert isinstance(found, Reject)
    assert why in found.reason


def test_no_algorithm_is_no_bid() -> None:
    assert asked.variants(Here(offered=0).tactic, linear(), simt.DEVICE) == Reject(
        "cuBLASLt has no algorithm for it"
    )


def test_without_a_device_it_bids_nothing_and_says_why() -> None:
    from tactix_cuda.device import the_device

    if not the_device().available():
        pytest.skip("a device is here")
    found = asked.variants(CublasLtTactic(), linear(), simt.DEVICE)
    assert isinstance(found, Reject)
    assert "cuBLASLt chooses on the device itself" in found.reason


# -- errors --------------------------------------------------------------------------------------


def test_a_missing_library() -> None:
    absent = LibraryDescription(
        "cuNothing", "cunothing", ("libcunothing.so.1",), {}, "text", "nvidia-nothing"
    )
    with pytest.raises(
        ExecutionError,
        match=r"cuNothing is not here: .*libcunothing.so.1.*pip install nvidia-nothing",
    ):
        load(absent)


@pytest.mark.parametrize(
    "function", ["cublasLtCreate", "cublasLtMatmulAlgoGetHeuristic", "cublasLtMatrixLayoutCreate"]
)
def test_a_failed_status_while_bidding(function: str) -> None:
    here = Here()
    here.functions.fail[function] = 7
    with pytest.raises(
        LibraryFailure, match=f"{function} of cuBLASLt failed: status 7, text of 7"
    ) as e:
        here.artifact(linear())
    assert (e.value.library, e.value.function, e.value.status) == ("cuBLASLt", function, 7)


def test_a_failed_status_while_running_names_the_step() -> None:
    here, node = Here(), linear()
    artifact = here.artifact(node)
    here.functions.fail["cublasLtMatmul"] = 13
    with pytest.raises(
        LibraryFailure, match="matmul: cublasLtMatmul of cuBLASLt failed: status 13, text of 13"
    ):
        here.run(node, [real("f16", 33, 40), node.inputs[1].const], {}, artifact)
    here.functions.fail.clear()  # the stream captures no more
    assert here.run(node, [real("f16", 33, 40), node.inputs[1].const], {}, artifact) <= 1


def changed(artifact: KernelArtifact, **params: Any) -> KernelArtifact:
    return dataclasses.replace(artifact, params={**artifact.params, **params})


def test_another_version_is_refused() -> None:
    here, node = Here(), linear()
    with pytest.raises(
        PlanCompatibilityError, match=r"choices of cuBLASLt 13\.2\.1: here is cuBLASLt 13\.1\.0"
    ) as e:
        here.run(
            node,
            [real("f16", 33, 40), node.inputs[1].const],
            {},
            changed(here.artifact(node), version=[13, 2, 1]),
        )
    assert "VERSION_COMPATIBLE" in str(e.value)


@pytest.mark.parametrize("params", [
    {"algorithm": "00" * 63}, {"algorithm": 5}, {"algorithm": "xy" * 64}, {"workspace": -1}, {"version": None},
    {"problem": {}}, {"problem": {"dtype": "f16", "out": "i8"}}, {"problem": {"dtype": "f16", "out": "f16", "more": 1}},
    {"problem": {"dtype": "f16", "out": "f16", "activation": "sin"}}, {"problem": None},
    {"problem": {"dtype": "f16", "out": "f16", "alpha": "1"}},
])  # fmt: skip
def test_damaged_params(params: dict[str, Any]) -> None:
    here, node = Here(), linear()
    with pytest.raises(PlanFormatError, match="cuBLASLt"):
        here.run(
            node,
            [real("f16", 33, 40), node.inputs[1].const],
            {},
            changed(here.artifact(node), **params),
        )


def test_problems_are_json() -> None:
    p = Problem(DType.BF16, DType.FP32, "tf32", True, False, True, False, 0.5, 2.0, True, "gelu")
    assert Problem.from_json(p.to_json()) == p
