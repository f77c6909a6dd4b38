"""Reductions in C: sums, means, extremes and products over any axes, and global pooling, with a
pointwise epilogue.

Where the last axis is reduced a vector runs along it (rows); else vectors hold neighbouring results
(columns). Floats up to 32 bits run in vectors; of other dtypes rows run element by element, and
neighbours side by side in loops of which the compiler makes vectors. Spatial axes can also be
reduced in nhwc and ``cB``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tactix.base import dims
from tactix.base.dims import Dim
from tactix.base.dtypes import DType
from tactix.base.errors import ShapeError
from tactix.base.tensor import LINEAR, NHWC, Format, blocked
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import text as c_text
from tactix_codegen.c.epilogue import Epilogue, epilogue
from tactix_codegen.c.prologue import Prologue, prologue
from tactix_codegen.c.space import Space, strides_in
from tactix_codegen.operations.reduce import (
    KEPT,
    KINDS,
    REDUCED,
    Operands,
    ReductionOperator,
    axes_of,
    input_strides,
    kept_shape,
    operation_of,
    space,
)
from tactix_cpu.tactics.reduce.loops import COLUMN, CpuReductionKernel


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CpuReduceTactic()]


@dataclass(frozen=True)
class CpuReduceWork:
    """What to reduce: the operation, the node's epilogue and what stands before it, the reduced
    axes, and whether vectors can do it.
    """

    node: Node
    operation: ReductionOperator
    epilogue: Epilogue
    axes: tuple[int, ...]
    vector: bool
    prologue: Prologue | None = None


class CpuReduceTactic(Tactic[CpuReduceWork]):
    """Linear for all; with all spatial axes reduced also nhwc and ``cB`` inputs, the output linear
    or alike.
    """

    key = "tactix.c_reduce@1"
    implements = KINDS
    source = "c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> CpuReduceWork | Reject:
        x, anchor = node.given[0].spec, node.anchor
        assert anchor is not None
        if not c_text.has_ctype(x.dtype) or x.dtype is DType.BOOL:
            return Reject(f"no reduction of {x.dtype.value} in C")
        narrow = x.dtype.is_float and x.dtype.bits <= 32
        axes = axes_of(anchor, x.rank)
        before = _before(node, axes)
        if isinstance(before, Reject):
            return before
        found = epilogue(node, vector=narrow, prologue=narrow)
        if isinstance(found, Reject) and narrow and before is None:
            found, narrow = epilogue(node, vector=False), False
        if isinstance(found, Reject):
            return found
        return CpuReduceWork(node, operation_of(anchor), found, axes, narrow, before)

    def variants(self, work: CpuReduceWork, device: DeviceProperties) -> Sequence[Variant] | Reject:
        x = work.node.given[0].spec
        choices = [(LINEAR, LINEAR)]
        if (
            work.vector
            and not _beside(work)
            and x.rank > 2
            and work.axes == tuple(range(2, x.rank))
        ):
            choices += [(f, g) for f in (blocked(device.lanes), NHWC) for g in (LINEAR, f)]
        found = [_variant(work, *c) for c in choices]
        return [v for v in found if v is not None] or Reject(
            "an operand cannot be walked along the output"
        )

    def cost(self, work: CpuReduceWork, variant: Variant, ctx: CompileContext) -> float | None:
        return c_text.traffic(work.node, variant, ctx)

    def compile(self, work: CpuReduceWork, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args = c_text.Args(work.node)
        loops, valid = _space(work, variant)
        count = dims.prod(work.node.given[0].spec.shape[a] for a in work.axes)
        order = sorted(work.epilogue.operands)
        whole = valid is not None and variant.output_format(0).lanes > 1
        reduction = CpuReductionKernel(
            args, work.operation, loops, count, work.epilogue, order, valid, whole, work.prologue
        )
        body = reduction.vectors(ctx.device.lanes) if work.vector else reduction.elements()
        helpers = work.prologue.helpers if work.prologue else ""
        if work.vector and reduction.has_short_rows:
            helpers += COLUMN
        return c_text.kernel(args, body, ctx, helpers=helpers)


def _before(node: Node, axes: tuple[int, ...]) -> Prologue | Reject | None:
    """What every vector goes through first: of input 0, and at most one number for each result."""
    before, x = prologue(node), node.given[0].spec
    if before is None or isinstance(before, Reject):
        return before
    held = kept_shape(x.shape, axes)
    if any(node.given[i].spec.shape != held for i in before.beside) or len(before.beside) > 1:
        return Reject("what is read before the reduction has other elements than the results")
    assert node.anchor is not None
    read = node.specs[node.anchor.inputs[0]].dtype
    if before.source != 0 or any(t is not read for t in before.dtypes):
        return Reject("what stands before the reduction changes the dtype, or is not of input 0")
    return before


def _beside(work: CpuReduceWork) -> tuple[int, ...]:
    """The given input that is read beside input 0, if there is one."""
    return work.prologue.beside if work.prologue else ()


def _variant(work: CpuReduceWork, source: Format, target: Format) -> Variant | None:
    """Full operands in the output's format, others linear; None where that cannot be walked."""
    formats = [source, *[LINEAR] * (len(work.node.given) - 1)]
    for o in work.epilogue.operands.values():
        formats[o.index] = target if o.is_full else LINEAR
    made = Variant.of(formats, [target] * len(work.node.outputs))
    if not target.fits(len(work.epilogue.shape)):
        return None
    try:
        loops, _ = _space(work, made)
    except ShapeError:
        return None
    columns = work.vector and loops.tags[-1] != REDUCED
    return made if not columns or all(s[-1] in (0, 1) for s in loops.strides) else None


def _space(work: CpuReduceWork, variant: Variant) -> tuple[Space, Dim | None]:
    """Loops with strides of the input, the output, and the operands by variable; and the channels
    of partial blocks.
    """
    x, fmt = work.node.given[0].spec, variant.input_format(0)
    if fmt.lanes > 1:
        return _blocked_space(work, variant)
    shape = work.epilogue.shape
    behind = [
        c_text.contiguous_strides(shape),
        *(o.strides for _, o in sorted(work.epilogue.operands.items())),
    ]
    before = [input_strides(x.shape, fmt)]
    beside = _beside(work)
    for i in beside:
        before.append(c_text.broadcast_strides(work.node.given[i].spec.shape, x.shape))
    loops = space(x.shape, work.axes, fmt, Operands(before, behind, len(shape)))
    if not beside:
        return loops, None
    source, last, *others = loops.strides
    return replace(loops, strides=(source, *others, last)), None


def _blocked_space(work: CpuReduceWork, variant: Variant) -> tuple[Space, Dim | None]:
    """Loops (N, blocks, spatial, lanes); the output may be linear, where channels of a sample lie
    together.
    """
    x, fmt = work.node.given[0].spec, variant.input_format(0)
    target = variant.output_format(0)
    n, blocks, *spatial, lanes = fmt.storage_shape(x.shape)
    size = dims.prod(spatial)
    channels: Dim = x.shape[1] if target == LINEAR else blocks * lanes
    strides: list[tuple[Dim, ...]] = [
        (blocks * size * lanes, size * lanes, lanes, 1),
        (channels, lanes, 0, 1),
    ]
    for _, o in sorted(work.epilogue.operands.items()):
        s = strides_in(
            work.node.given[o.index].spec, variant.input_format(o.index), work.epilogue.shape, fmt
        )
        strides.append((s[0], s[1], 0, s[-1]))
    exact = dims.mod(x.shape[1], lanes) == 0
    return Space(
        (n, blocks, size, lanes), tuple(strides), (KEPT, KEPT, REDUCED, KEPT)
    ), None if exact else x.shape[1]
