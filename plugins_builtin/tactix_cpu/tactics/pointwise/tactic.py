"""Pointwise groups in C: any expression over broadcast operands, one loop nest, each element read
and written once.

float32, 16-bit floats, int32 and narrower, and bool beside them run in vectors; other dtypes,
mixtures and truths alone element by element.
Formats: linear, and for vectors also nhwc and ``cB`` with B the device's lanes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tactix.base.dims import Dim
from tactix.base.dtypes import DType
from tactix.base.errors import ShapeError
from tactix.base.tensor import LINEAR, NHWC, Format, blocked
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import scalar as c_scalar
from tactix_codegen.c import text as c_text
from tactix_codegen.c.rounding import rounded_part
from tactix_codegen.c.space import Space
from tactix_codegen.operations import pointwise
from tactix_codegen.operations.pointwise import PointwiseGroup
from tactix_cpu.tactics.pointwise.nest import LoopOperand, Nest

_BANDWIDTH = 4e9
"""Bytes per second for each lane of a vector: bytes that became floats, 0.4 MB with these, took 29,
3.6 and 3.3 us with 4, 8 and 16 lanes of a Zen 4.
"""
_SINGLE = 4
"""How much longer a group is estimated to take whose dtypes are computed element by element. No
measurement of it is on record.
"""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CpuPointwiseTactic()]


@dataclass(frozen=True)
class PointwiseWork:
    """What to compute, and whether vectors can do it."""

    node: Node
    group: PointwiseGroup
    vector: bool

    @property
    def rounds(self) -> bool:
        """Whether vectors of floats become bytes."""
        return self.vector and any(rounded_part(r) for r in self.group.program.results)


def loop_operands(
    args: c_text.Args, group: PointwiseGroup, strides: Sequence[tuple[Dim, ...]]
) -> tuple[list[LoopOperand], list[LoopOperand]]:
    """What a group reads and what it writes, with their strides along the loops."""
    operands = [
        LoopOperand(args.input(i), group.dtypes[k], strides[k])
        for k, i in enumerate(group.program.leaves)
    ]
    results = [
        LoopOperand(args.output(j), v.spec.dtype, strides[-1])
        for j, v in enumerate(args.node.outputs)
    ]
    return operands, results


class CpuPointwiseTactic(Tactic[PointwiseWork]):
    """One variant per format that all full operands share; operands that broadcast stay linear
    where they can.
    """

    key = "tactix.c_pointwise@1"
    implements = ("pointwise",)
    source = "c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> PointwiseWork | Reject:
        group = pointwise.group_of(node)
        if isinstance(group, Reject):
            return group
        results, dtypes = group.program.results, group.dtypes
        made = (v.spec.dtype for v in node.outputs)
        # Of truths alone the compiler makes vectors of bytes, four times as many as of floats.
        truths = all(t is DType.BOOL for t in (*dtypes, *made))
        reason = c_scalar.why_not_scalar(results, dtypes)
        if (reason or not truths) and not c_scalar.why_not_vector(results, dtypes):
            return PointwiseWork(node, group, True)
        return Reject(reason) if reason else PointwiseWork(node, group, False)

    def variants(self, work: PointwiseWork, device: DeviceProperties) -> Sequence[Variant] | Reject:
        formats: list[Format] = [LINEAR]
        if work.vector and len(work.group.shape) >= 3:
            formats += [blocked(device.lanes), NHWC]
        try:
            return [v for f in formats for v in pointwise.variants(work.node, work.group, f)]
        except ShapeError as e:
            return Reject(e.what)

    def cost(self, work: PointwiseWork, variant: Variant, ctx: CompileContext) -> float | None:
        slow = 1 if work.vector else _SINGLE
        bandwidth = _BANDWIDTH * max(4, ctx.device.lanes)
        seconds = c_text.traffic(work.node, variant, ctx, bandwidth)
        return None if seconds is None else seconds * slow

    def compile(self, work: PointwiseWork, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args, group = c_text.Args(work.node), work.group
        loops = pointwise.loops(work.node, group, variant)
        text = _nest(args, work, loops.space, loops.channels).text(ctx)
        if loops.likely is not None:
            holds = " && ".join(f"{args.dim(step)} == 1" for step in loops.moves)
            likely = _nest(args, work, loops.likely, loops.channels).text(ctx)
            text = [c_text.choice(holds, likely, text)]
        preludes = (*c_text.vector_preludes(), c_text.prelude("int8.h"))
        return c_text.kernel(args, text, ctx, preludes=preludes if work.rounds else None)


def _nest(args: c_text.Args, work: PointwiseWork, space: Space, channels: Dim | None) -> Nest:
    operands, results = loop_operands(args, work.group, space.strides)
    expressions = work.group.program.results
    return Nest(args, space.sizes, operands, results, expressions, work.vector, channels)
