"""Max and average pooling in C, in 1 to 3 dimensions, with a pointwise epilogue; f32, f16 and bf16,
and the largest of bytes, which float32 holds exactly.

In nhwc and ``cB`` a vector holds channels; in linear tensors it holds neighbouring windows of a
row.
"""

from __future__ import annotations

from collections.abc import Sequence

from tactix.base.dtypes import DType
from tactix.base.errors import ShapeError
from tactix.base.tensor import LINEAR, NHWC, Format, blocked
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import text as c_text
from tactix_codegen.c.epilogue import Epilogue, epilogue
from tactix_codegen.operations import pool
from tactix_codegen.operations.pool import window_of
from tactix_cpu.tactics.pool.kernel import BYTES, CpuPoolWork, PoolKernel, operand_strides
from tactix_cpu.tactics.pool.lines import LINE, LinePoolKernel

_LINEAR = 4
"""How much longer pooling of linear images is estimated to take: vectors of windows at a stride are
put together of several loads. No measurement of it is on record.
"""

FLOATS = (DType.FP32, DType.FP16, DType.BF16)


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CpuPoolTactic()]


class CpuPoolTactic(Tactic[CpuPoolWork]):
    """One variant per format; input and output share it."""

    key = "tactix.c_pool@1"
    implements = pool.KINDS
    source = "c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> CpuPoolWork | Reject:
        spec = node.given[0].spec
        window = window_of(node)
        if spec.dtype not in FLOATS and (window.average or spec.dtype not in BYTES):
            return Reject(f"no pooling of {spec.dtype.value} in C")
        if not 3 <= spec.rank <= 5:
            return Reject(f"no pooling of rank {spec.rank} in C")
        found = epilogue(node)
        return found if isinstance(found, Reject) else CpuPoolWork(node, window, found)

    def variants(self, work: CpuPoolWork, device: DeviceProperties) -> Sequence[Variant]:
        formats = (blocked(device.lanes), NHWC, LINEAR)
        return [v for f in formats if (v := _variant(work.node, work.epilogue, f))]

    def cost(self, work: CpuPoolWork, variant: Variant, ctx: CompileContext) -> float | None:
        seconds = c_text.traffic(work.node, variant, ctx)
        slow = _LINEAR if variant.input_format(0).is_linear else 1
        return None if seconds is None else seconds * slow

    def compile(self, work: CpuPoolWork, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        is_linear = variant.input_format(0).is_linear
        takes_lines = is_linear and _takes_lines(work, ctx.device.lanes)
        kind = LinePoolKernel if takes_lines else PoolKernel
        writer = kind(c_text.Args(work.node), work, variant)
        body = writer.linear() if is_linear else writer.channels()
        preludes = (*c_text.vector_preludes(), c_text.prelude("pool.h"))
        return c_text.kernel(writer.args, body, ctx, preludes=preludes)


def _takes_lines(work: CpuPoolWork, lanes: int) -> bool:
    """Whether windows of a row of a linear image are taken out of a line of joined elements.

    Where they share none (2 x 2 in steps of two) reading them in place takes half the time; but
    floats of 16 bits have no loads at a step, and fewer windows than a vector has lanes would be
    read one after the other. A line of huge windows would not fit a stack.
    """
    w = work.window
    span = (w.kernel[-1] - 1) * w.dilations[-1] + 1
    are_shared = span > w.strides[-1]
    is_half = work.node.given[0].spec.dtype not in (DType.FP32, *BYTES)
    wide = w.out[-1]
    are_few = isinstance(wide, int) and wide < lanes
    return (are_shared or is_half or are_few) and max(span, w.strides[-1]) <= LINE


def _variant(node: Node, found: Epilogue, fmt: Format) -> Variant | None:
    formats = [fmt, *[LINEAR] * (len(node.given) - 1)]
    for o in found.operands.values():
        formats[o.index] = fmt if o.is_full else LINEAR
    made = Variant.of(formats, [fmt] * len(node.outputs))
    try:
        strides = operand_strides(node, found, made)
    except ShapeError:
        return None
    return made if all(s[-1] in (0, 1) for s in strides.values()) else None
