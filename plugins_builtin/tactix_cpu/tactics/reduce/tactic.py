"""Reductions in C: sums, means, extremes and products over any axes, and global pooling, with a pointwise epilogue.

Where the last axis is reduced a vector runs along it (rows); else vectors hold neighbouring results (columns). Floats
up to 32 bits run in vectors, other dtypes element by element. Spatial axes can also be reduced in nhwc and ``cB``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix.words import dims
from tactix.words.dims import Dim
from tactix.words.errors import ShapeError
from tactix.words.tensor import LINEAR, NHWC, Format, blocked
from tactix_codegen.c import text as c_text
from tactix_codegen.c.epilogue import Epilogue, epilogue
from tactix_codegen.c.space import Space, collapse, strides_in
from tactix_cpu.tactics.reduce.loops import OPERATIONS, Reduction

KEPT, REDUCED = "kept", "reduced"


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [ReduceTactic()]


@dataclass(frozen=True)
class Plan:
    """What to reduce: the node's epilogue, the reduced axes, and whether vectors can do it."""

    epilogue: Epilogue
    axes: tuple[int, ...]
    vector: bool


def plan_of(node: Node) -> Plan | Reject:
    """The plan, or why there is none."""
    x = node.given[0].spec
    anchor = node.anchor
    assert anchor is not None
    name = anchor.layer.name
    if not c_text.has_ctype(x.dtype) or x.dtype.value == "bool":
        return Reject(f"no reduction of {x.dtype.value} in C")
    axes = tuple(range(2, x.rank)) if "Global" in name else tuple(sorted(a % x.rank for a in anchor.attrs.axes))
    narrow = x.dtype.is_float and x.dtype.bits <= 32
    found = epilogue(node) if narrow else epilogue(node, vector=False)
    if isinstance(found, Reject) and narrow:
        found, narrow = epilogue(node, vector=False), False
    return found if isinstance(found, Reject) else Plan(found, axes, narrow)


class ReduceTactic(Tactic):
    """Linear for all; with all spatial axes reduced also nhwc and ``cB`` inputs, the output linear or alike."""

    key = "tactix.c_reduce@1"
    implements = tuple(f"tactix.{name}@1" for name in OPERATIONS)
    source = "c"
    by_signature = True

    def variants(self, node: Node, device: DeviceProperties) -> Sequence[Variant] | Reject:
        plan = plan_of(node)
        if isinstance(plan, Reject):
            return plan
        x = node.given[0].spec
        choices = [(LINEAR, LINEAR)]
        if plan.vector and x.rank > 2 and plan.axes == tuple(range(2, x.rank)):
            choices += [(f, g) for f in (blocked(device.lanes), NHWC) for g in (LINEAR, f)]
        found = [_variant(node, plan, *c) for c in choices]
        return [v for v in found if v is not None] or Reject("an operand cannot be walked along the output")

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        return c_text.traffic(node, variant, ctx)

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        plan = plan_of(node)
        assert isinstance(plan, Plan)
        assert node.anchor is not None
        args = c_text.Args(node)
        space, valid = _space(node, plan, variant)
        count = dims.prod(node.given[0].spec.shape[a] for a in plan.axes)
        order = sorted(plan.epilogue.operands)
        whole = valid is not None and variant.output_format(0).lanes > 1
        operation = OPERATIONS[node.anchor.layer.name]
        reduction = Reduction(args, operation, space, count, plan.epilogue, order, valid, whole)
        body = reduction.vectors(ctx.device.lanes) if plan.vector else reduction.elements()
        return c_text.kernel(args, body, ctx)


def _variant(node: Node, plan: Plan, source: Format, target: Format) -> Variant | None:
    """Full operands have the output's format, others are linear; None where that cannot be walked."""
    formats = [source, *[LINEAR] * (len(node.given) - 1)]
    for o in plan.epilogue.operands.values():
        formats[o.index] = target if o.is_full else LINEAR
    made = Variant.of(formats, [target] * len(node.outputs))
    if not target.fits(len(plan.epilogue.shape)):
        return None
    try:
        space, _ = _space(node, plan, made)
    except ShapeError:
        return None
    columns = plan.vector and space.tags[-1] != REDUCED
    return made if not columns or all(s[-1] in (0, 1) for s in space.strides) else None


def _space(node: Node, plan: Plan, variant: Variant) -> tuple[Space, Dim | None]:
    """Loops with strides of the input, the output, and the operands by variable; and the channels of partial blocks."""
    x, fmt = node.given[0].spec, variant.input_format(0)
    if fmt.lanes > 1:
        return _blocked_space(node, plan, variant)
    kept = [i for i in range(x.rank) if i not in plan.axes]
    own = c_text.contiguous_strides(x.shape) if fmt == LINEAR else _nhwc_strides(x.shape)
    shape = plan.epilogue.shape
    targets = [c_text.contiguous_strides(shape)] + [o.strides for _, o in sorted(plan.epilogue.operands.items())]
    spread = [_over_input(t, x.rank, kept, len(shape)) for t in targets]
    order = list(range(x.rank)) if fmt == LINEAR else [0, *plan.axes, 1]
    tags = [REDUCED if i in plan.axes else KEPT for i in order]
    strides = [[s[i] for i in order] for s in (own, *spread)]
    return collapse([x.shape[i] for i in order], strides, tags), None


def _nhwc_strides(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """Strides along (N, C, spatial...) of a tensor stored channels last."""
    batch, *spatial, channel = c_text.contiguous_strides((shape[0], *shape[2:], shape[1]))
    return (batch, channel, *spatial)


def _over_input(strides: Sequence[Dim], rank: int, kept: Sequence[int], out_rank: int) -> list[Dim]:
    """Strides along the output's dims as strides along the input's: 0 where it is reduced."""
    out: list[Dim] = [0] * rank
    for position, axis in enumerate(kept):
        out[axis] = strides[axis if out_rank == rank else position]
    return out


def _blocked_space(node: Node, plan: Plan, variant: Variant) -> tuple[Space, Dim | None]:
    """Loops (N, blocks, spatial, lanes); the output may be linear, where channels of a sample lie together."""
    x, fmt, target = node.given[0].spec, variant.input_format(0), variant.output_format(0)
    n, blocks, *spatial, lanes = fmt.storage_shape(x.shape)
    size = dims.prod(spatial)
    channels: Dim = x.shape[1] if target == LINEAR else blocks * lanes
    strides: list[tuple[Dim, ...]] = [(blocks * size * lanes, size * lanes, lanes, 1), (channels, lanes, 0, 1)]
    for _, o in sorted(plan.epilogue.operands.items()):
        s = strides_in(node.given[o.index].spec, variant.input_format(o.index), plan.epilogue.shape, fmt)
        strides.append((s[0], s[1], 0, s[-1]))
    exact = dims.mod(x.shape[1], lanes) == 0
    return Space((n, blocks, size, lanes), tuple(strides), (KEPT, KEPT, REDUCED, KEPT)), None if exact else x.shape[1]
