"""MatMul, WideMatMul, Gemm, and 1x1 convolutions with channels last, by cuBLASLt.

Bias, residual, relu and GELU by tanh are done by the library; every other epilogue, the exact GELU
too, by a kernel of our own over the product. Knob ``rank``: which of the library's guesses for the
sizes that are tuned for.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

from tactix.base.dims import evaluate, symbols
from tactix.base.dtypes import DType
from tactix.base.errors import ExecutionError
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_cublaslt import work as work_of
from tactix_cublaslt.library import TYPES, CublasLt, cublaslt
from tactix_cublaslt.matmul import Algorithm, Matmul, Problem, Sizes
from tactix_cublaslt.work import MatmulWork
from tactix_cuda.library_tactic import LibraryTactic

GUESSES = 8
"""Algorithms that are asked for; the library seldom knows more. On an H200 the best of them was up
to 11 % faster than the first in float16, mostly 0 to 5 %.
"""
FIRST = 4
"""Of these one should need no workspace: below level 3 only the first ones are measured."""
WORKSPACE = 32 << 20
"""Bytes that an algorithm may want: what NVIDIA advises for Hopper."""
LARGEST = 1 << 40
"""Elements of a result; asked about more the library divides by zero, which ends the process."""
FLOPS = {DType.FP16: 6e14, DType.BF16: 6e14, DType.FP32: 4e13}
"""Per second, as estimates assume: products of BERT-base at batch 128 reached 5.9e14 to 7.2e14 in
float16 on an H200; of float32 no measurement is recorded.
"""
BANDWIDTH = 3e12
"""Bytes per second of the device's memory, as ``tactix_cuda.tactics.tile`` assumes."""
START = 3e-6
"""Seconds to start a call, and a kernel behind it. No measurement of it is recorded."""
NEXT = 1e-9
"""Seconds that keep the library's own order of its guesses, where estimates choose."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CublasLtTactic(), Tf32CublasLtTactic()]


class CublasLtTactic(LibraryTactic[MatmulWork, CublasLt]):
    """float16, bfloat16 and float32, summed in float32. ``library``: None for the device that is
    here.
    """

    key = "tactix.cublaslt@1"
    implements = (
        "tactix.MatMul@1",
        "tactix.Gemm@1",
        "tactix.WideMatMul@1",
        "tactix.Convolution@1",
        "tactix.WideConvolution@1",
    )
    source = "cublaslt"
    breadth = 2
    name = "cuBLASLt"
    find = staticmethod(cublaslt)
    compute = "float32"

    def match(self, node: Node, device: DeviceProperties) -> MatmulWork | Reject:
        w = work_of.work(node, self.compute)
        if isinstance(w, Reject):
            return w
        if not {w.problem.dtype, w.problem.out} <= TYPES.keys():
            return Reject("float16, bfloat16 or float32 with results of the same or of float32")
        reason = self.why_not(device)
        return Reject(reason) if reason else w

    def variants(self, w: MatmulWork, device: DeviceProperties) -> Sequence[Variant] | Reject:
        count = GUESSES if symbols(w.volume) else len(self._algorithms(w, {}))
        offered = [replace(w.variant, knobs=(("rank", r),)) for r in range(count)]
        return offered or Reject("cuBLASLt has no algorithm for it")

    def _algorithms(self, w: MatmulWork, env: dict[str, int]) -> list[Algorithm]:
        sizes = Sizes(*(evaluate(d, env) for d in w.sizes))
        if sizes.batch * sizes.m * sizes.n > LARGEST:
            raise ExecutionError(f"cuBLASLt is not asked about {sizes}", who=self.key)
        return algorithms(self.library(), w.problem, sizes)

    def cost(self, w: MatmulWork, variant: Variant, ctx: CompileContext) -> float | None:
        if not symbols(w.volume) <= set(ctx.opt):
            return None
        batch, m, n, k = (evaluate(d, ctx.opt) for d in w.sizes)
        moved = (
            batch * (m * k + k * n + (1 if w.is_folded else 3) * m * n) * w.problem.dtype.itemsize
        )
        seconds = max(2 * batch * m * n * k / FLOPS[w.problem.dtype], moved / BANDWIDTH)
        return seconds + START * (1 if w.is_folded else 2) + NEXT * variant.number("rank")

    def compile(self, w: MatmulWork, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        """Raises ExecutionError if the library has fewer guesses."""
        rank, found = variant.number("rank"), self._algorithms(w, dict(ctx.opt))
        if rank >= len(found):
            raise ExecutionError(f"cuBLASLt has {len(found)} algorithms for it", who=self.key)
        workspace = WORKSPACE if symbols(w.volume) else found[rank].workspace
        params = {
            "version": list(self.library().version),
            "problem": w.problem.to_json(),
            "algorithm": found[rank].code.hex(),
            "workspace": workspace,
        }
        return work_of.artifact(w, params, workspace, ctx)


class Tf32CublasLtTactic(CublasLtTactic):
    """float32 with operands rounded to 10 bits of mantissa."""

    key = "tactix.cublaslt_tf32@1"
    numerics = "tf32"
    compute = "tf32"


@functools.lru_cache(4096)
def algorithms(library: CublasLt, problem: Problem, sizes: Sizes) -> list[Algorithm]:
    """The library's guesses for a problem; among the first ones one without workspace. Raises
    LibraryFailure.

    What an algorithm counts with in its workspace is cleared before each run: another launch, which
    weighs in small products.
    """
    matmul = Matmul(library, problem, sizes)
    found = matmul.algorithms(GUESSES, WORKSPACE)
    bare = matmul.algorithms(1, 0) if all(a.workspace for a in found[:FIRST]) else []
    return [*found[:1], *bare, *(a for a in found[1:] if a not in bare)][:GUESSES]
