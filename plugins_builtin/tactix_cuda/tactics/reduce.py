"""Reductions in CUDA: sums, means, extremes and products over any axes, and global pooling.

Pointwise layers before and behind are fused. Where the last axis is reduced, threads side by side share a result
(rows); else they hold neighbouring results, and rows of threads share the reduced loops (columns). Spatial axes can
also be reduced in nhwc.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix.words.dims import Dim
from tactix.words.dtypes import DType
from tactix.words.tensor import LINEAR, NHWC, Format
from tactix_codegen.c import text as c_text
from tactix_codegen.c.space import Space, collapse
from tactix_codegen.cuda import fused, text
from tactix_codegen.cuda.fused import Around
from tactix_codegen.cuda.text import Args
from tactix_cpu.tactics.reduce import tactic as c_reduce
from tactix_cpu.tactics.reduce.loops import OPERATIONS
from tactix_cpu.tactics.reduce.tactic import KEPT, REDUCED
from tactix_cuda.tactics.reduce_loops import Reduction


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [ReduceTactic()]


@dataclass(frozen=True)
class Plan:
    """What surrounds the reduction, and the reduced axes."""

    around: Around
    axes: tuple[int, ...]


def plan_of(node: Node) -> Plan | Reject:
    """The plan, or why there is none."""
    found = fused.around(node)
    if isinstance(found, Reject):
        return found
    x, anchor = found.spec, node.anchor
    assert anchor is not None
    if not c_text.has_ctype(x.dtype) or x.dtype is DType.BOOL:
        return Reject(f"no reduction of {x.dtype.value} in CUDA")
    if found.reads_source:
        return Reject("what is reduced is read again behind the reduction")
    if "Global" in anchor.layer.name:
        return Plan(found, tuple(range(2, x.rank)))
    return Plan(found, tuple(sorted(a % x.rank for a in anchor.attrs.axes)))


class ReduceTactic(Tactic):
    """Linear for all; with all spatial axes reduced also an nhwc input, the output linear or alike."""

    key = "tactix.cuda_reduce@1"
    implements = tuple(f"tactix.{name}@1" for name in OPERATIONS)
    device = "cuda"
    source = "cuda_c"

    def variants(self, node: Node, device: DeviceProperties) -> Sequence[Variant] | Reject:
        plan = plan_of(node)
        if isinstance(plan, Reject):
            return plan
        x = plan.around.spec
        choices: list[tuple[Format, Format]] = [(LINEAR, LINEAR)]
        if x.rank > 2 and plan.axes == tuple(range(2, x.rank)) and plan.around.is_plain:
            choices += [(NHWC, LINEAR), *([(NHWC, NHWC)] if len(plan.around.shape) == x.rank else [])]
        return [_variant(node, plan, *c) for c in choices]

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        return text.traffic(node, variant, ctx)

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        plan = plan_of(node)
        assert isinstance(plan, Plan)
        assert node.anchor is not None
        space = _space(plan, variant.input_format(0))
        reduction = Reduction(Args(node), node.anchor.layer.name, space, plan.around, ctx)
        return reduction.kernel()


def _variant(node: Node, plan: Plan, source: Format, target: Format) -> Variant:
    """Operands that lie along the output's channels and pixels have its format: one pixel is the same in both."""
    formats = [LINEAR] * len(node.given)
    formats[next(iter(plan.around.before.values())).index if source != LINEAR else 0] = source
    return Variant.of(formats, [target] * len(node.outputs))


def _space(plan: Plan, fmt: Format) -> Space:
    """Loops with strides of the operands before, the outputs, and the operands behind."""
    around = plan.around
    rank = around.spec.rank
    kept = [i for i in range(rank) if i not in plan.axes]
    own = [o.strides for o in around.before.values()]
    if fmt != LINEAR:
        own = [c_reduce._nhwc_strides(around.spec.shape)]
    targets = [c_text.contiguous_strides(around.shape), *(o.strides for o in around.after.values())]
    spread = [c_reduce._over_input(t, rank, kept, len(around.shape)) for t in targets]
    order = list(range(rank)) if fmt == LINEAR else [0, *plan.axes, 1]
    tags = [REDUCED if i in plan.axes else KEPT for i in order]
    sizes: list[Dim] = [around.spec.shape[i] for i in order]
    return _tagged(collapse(sizes, [[s[i] for i in order] for s in (*own, *spread)], tags))


def _tagged(space: Space) -> Space:
    """The one loop of one step that is left of all such loops is a result's."""
    return Space(space.sizes, tuple((0,) for _ in space.strides), (KEPT,)) if space.tags == (None,) else space
