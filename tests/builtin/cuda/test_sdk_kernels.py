"""Tactics of CUDA text by the SDK: with what is fused behind, on the emulator, and through NVRTC."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import asked
import pytest
import simt
from product_cases import GEMM, epilogues

from tactix.base.dims import ceildiv, prod
from tactix.contracts.artifact import Source
from tactix.contracts.tactic import CompileContext
from tactix_codegen.cuda.target import target
from tactix_cuda import nvrtc
from tactix_sdk import Kernel, Operation, Reject, cuda_tactic

BODY = """
const int64_t t = (int64_t)blockIdx.x * 64 + threadIdx.x;
if (t >= m * n) return;
float sum = 0;
for (int64_t p = 0; p < k; p++) sum += TX_IN0(t / n * k + p) * TX_IN1(p * n + t % n);
TX_STORE(t, sum);
"""


@cuda_tactic("acme.gemm@1", "tactix.MatMul@1", requires=("sm_80",))
def gemm(op: Operation) -> Kernel | Reject:
    a, b = op.inputs
    m = prod(a.shape[:-1])
    if b.rank != 2:
        return Reject("a tensor times a matrix")
    return Kernel(
        BODY,
        sizes={"m": m, "k": a.shape[-1], "n": b.shape[1]},
        grid=ceildiv(m * b.shape[1], 64),
        threads=64,
    )


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_results_are_those_of_the_reference(dtype: str, tmp_path: Path) -> None:
    cases = [
        replace(c, tactic=gemm)
        for c in epilogues(GEMM, dtype, 37, 24, 17)
        if c.node.kind in gemm.implements
    ]
    assert len(cases) == 2
    simt.check_all(cases, tmp_path)


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_it_compiles(architecture: str) -> None:
    if reason := nvrtc.why_missing():
        pytest.skip(reason)
    node, device = epilogues(GEMM, "f16", 37, 24, 17)[0].node, target(architecture)
    (variant,) = asked.variants(gemm, node, device)
    made = asked.artifact(gemm, node, variant, CompileContext(device))
    assert isinstance(made.code, Source)
    text = "\n".join(
        ["#define TX_ENTRY k0", "#define TX_NAME(x) k0_##x", *made.code.preludes, made.code.text]
    )
    assert (
        nvrtc.compile_text(text, (f"--gpu-architecture={architecture}", *nvrtc.FLAGS), "sdk")[:4]
        == b"\x7fELF"
    )
    assert made.requires[-1] == "sm_80"


def test_a_feature_that_is_not_there_is_said() -> None:
    other = cuda_tactic("acme.new@1", "tactix.MatMul@1", requires=("sm_999",))(lambda op: "")
    found = other.offers(epilogues(GEMM, "f16", 37, 24, 17)[0].node, simt.DEVICE)
    assert isinstance(found, Reject)
    assert "sm_999" in found.reason
