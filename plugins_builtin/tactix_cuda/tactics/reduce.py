"""Reductions in CUDA: sums, means, extremes, products and logarithms of sums of exponentials over
any axes, and global pooling, by norms too.

Pointwise layers before and behind are fused. Where the last axis is reduced, threads side by side
share a result (rows); else they hold neighbouring results, and rows of threads share the reduced
loops (columns). Spatial axes can also be reduced in nhwc.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tactix.base.dtypes import DType
from tactix.base.tensor import LINEAR, NHWC, Format
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.region import BodyNode
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import text as c_text
from tactix_codegen.c.power import Power
from tactix_codegen.c.space import Space
from tactix_codegen.cuda import fused, text
from tactix_codegen.cuda.fused import Around
from tactix_codegen.cuda.text import CudaArgs
from tactix_codegen.operations.reduce import (
    KEPT,
    KINDS,
    Operands,
    axes_of,
    input_strides,
    operation_named,
    operation_of,
    space,
)
from tactix_cuda.tactics.reduce_loops import CudaReduction, CudaReductionKernel, ReductionWalk

LOG_SUM_EXP, NORM = "tactix.ReduceLogSumExp@1", "tactix.GlobalLpPool@1"
"""Kinds whose elements are more than joined."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CudaReduceTactic()]


@dataclass(frozen=True)
class CudaReduceWork:
    """How elements are joined, what surrounds it, and the reduced axes."""

    node: Node
    reduction: CudaReduction
    around: Around
    axes: tuple[int, ...]


class CudaReduceTactic(Tactic[CudaReduceWork]):
    """Linear for all; with all spatial axes reduced also an nhwc input, whose output is linear or
    alike.
    """

    key = "tactix.cuda_reduce@1"
    implements = (*KINDS, LOG_SUM_EXP, NORM)
    device = "cuda"
    source = "cuda_c"

    def match(self, node: Node, device: DeviceProperties) -> CudaReduceWork | Reject:
        found = fused.around(node)
        if isinstance(found, Reject):
            return found
        x, anchor = found.spec, node.anchor
        assert anchor is not None
        if not c_text.has_ctype(x.dtype) or x.dtype is DType.BOOL:
            return Reject(f"no reduction of {x.dtype.value} in CUDA")
        if anchor.layer.key == NORM and (not x.dtype.is_float or anchor.attrs.p < 1):
            return Reject(f"no {anchor.attrs.p}-norm of {x.dtype.value} in CUDA")
        if found.reads_source:
            return Reject("what is reduced is read again behind the reduction")
        return CudaReduceWork(node, _reduction(anchor, x.dtype), found, axes_of(anchor, x.rank))

    def variants(self, work: CudaReduceWork, device: DeviceProperties) -> Sequence[Variant]:
        x = work.around.spec
        choices: list[tuple[Format, Format]] = [(LINEAR, LINEAR)]
        if x.rank > 2 and work.axes == tuple(range(2, x.rank)) and work.around.is_plain:
            choices += [
                (NHWC, LINEAR),
                *([(NHWC, NHWC)] if len(work.around.shape) == x.rank else []),
            ]
        return [_variant(work, *c) for c in choices]

    def cost(self, work: CudaReduceWork, variant: Variant, ctx: CompileContext) -> float | None:
        return text.traffic(work.node, variant, ctx)

    def compile(
        self, work: CudaReduceWork, variant: Variant, ctx: CompileContext
    ) -> KernelArtifact:
        args, loops = CudaArgs(work.node), _space(work, variant.input_format(0))
        return CudaReductionKernel(args, work.reduction, loops, work.around, ctx).kernel()


def _reduction(anchor: BodyNode, dtype: DType) -> CudaReduction:
    """How the anchor joins elements of the dtype."""
    if anchor.layer.key == LOG_SUM_EXP:
        return _log_sum_exp("" if dtype is DType.FP64 else "f")
    if anchor.layer.key == NORM:
        power = Power(anchor.attrs.p, dtype)
        term = f"({power.term('{x}')})"
        return CudaReduction(
            (ReductionWalk(operation_named("ReduceSum"), term=term),), power.root("{acc}")
        )
    operation = operation_of(anchor)
    result = "{acc} / {n}" if operation.mean else "{acc}"
    return CudaReduction((ReductionWalk(operation),), result)


def _log_sum_exp(f: str) -> CudaReduction:
    """The largest element is taken out first, if it is finite, so that nothing overflows; ``f``:
    what names of functions end with.
    """
    largest = ReductionWalk(
        operation_named("ReduceMax"),
        "top",
        "most",
        settled=f"fabs{f}({{top}}) < TX_INF ? {{top}} : 0",
    )
    total = ReductionWalk(operation_named("ReduceSum"), term=f"exp{f}({{x}} - {{top}})")
    return CudaReduction((largest, total), f"log{f}({{acc}}) + {{top}}")


def _variant(work: CudaReduceWork, source: Format, target: Format) -> Variant:
    """Operands that lie along the output's channels and pixels have its format: one pixel is the
    same in both.
    """
    formats = [LINEAR] * len(work.node.given)
    formats[next(iter(work.around.before.values())).index if source != LINEAR else 0] = source
    return Variant.of(formats, [target] * len(work.node.outputs))


def _space(work: CudaReduceWork, fmt: Format) -> Space:
    """Loops with strides of the operands before, the outputs, and the operands behind."""
    around = work.around
    before = [o.strides for o in around.before.values()]
    if fmt != LINEAR:
        before = [input_strides(around.spec.shape, fmt)]
    behind = [c_text.contiguous_strides(around.shape), *(o.strides for o in around.after.values())]
    operands = Operands(before, behind, len(around.shape))
    return _tagged(space(around.spec.shape, work.axes, fmt, operands))


def _tagged(loops: Space) -> Space:
    """The one loop of one step that is left of all such loops is a result's."""
    return (
        Space(loops.sizes, tuple((0,) for _ in loops.strides), (KEPT,))
        if loops.tags == (None,)
        else loops
    )
