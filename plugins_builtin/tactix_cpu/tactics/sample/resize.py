"""Resize in C: all modes, any number of axes; linear format, and nhwc and ``cB`` where images grow
or shrink: their storage is a tensor with other axes that keep their size.

Places and weights are tables: constants of the plan where sizes are known, else made by a first
launch. Rows of the result are made one by one: first down, as the weighted sum of whole rows, then
across. Where rows grow in number, those that are already stretched are kept and used again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.base.tensor import LINEAR, NHWC, Format, blocked
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import text as c_text
from tactix_codegen.operations.resize import moves_pixels_alone
from tactix_cpu.tactics.sample.axes import AxisGroup, axes_of, joined
from tactix_cpu.tactics.sample.resize_kernel import (
    GivenNumbers,
    NearestKernel,
    WeightedKernel,
    resized_across,
)
from tactix_cpu.tactics.sample.sums import FLOATS, WIDE

_ACROSS, _DOWN, _ROUNDED = 0.5e-9, 0.1e-9, 2e-9
"""Seconds for a result and each element it is made of in its row; for each row it is made of; and
for a result in float64. Sapphire Rapids, AVX-512, one thread.
"""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CpuResizeTactic()]


@dataclass(frozen=True)
class CpuResizeWork:
    """A tensor to resize, and its axes, one by one."""

    node: Node
    axes: tuple[AxisGroup, ...]

    def stored(self, fmt: Format) -> tuple[AxisGroup, ...]:
        """The axes of the storage, outermost first."""
        if fmt.is_linear:
            return joined(self.axes)
        batch, channels = self.node.given[0].spec.shape[:2]
        blocks = dims.ceildiv(channels, fmt.lanes) if fmt.lanes > 1 else 1
        pixel = fmt.lanes if fmt.lanes > 1 else channels
        outer, inner = AxisGroup(batch * blocks, batch * blocks), AxisGroup(pixel, pixel)
        return joined([outer, *self.axes[2:], inner])


class CpuResizeTactic(Tactic[CpuResizeWork]):
    """Numbers up to 32 bits and f64 in all modes, any dtype of a known width to the nearest."""

    key = "tactix.c_resize@1"
    implements = ("tactix.Resize@1",)
    source = "c"
    spreads = True  # a weight of zero times no number is none
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> CpuResizeWork | Reject:
        x, mode = node.given[0].spec, node.attrs.mode
        if node.is_fused:
            return Reject("no layers around it are fused by this tactic")
        if not c_text.has_ctype(x.dtype):
            return Reject(f"no resize of {x.dtype.value} in C")
        if mode != "nearest" and x.dtype not in (*FLOATS, *WIDE):
            return Reject(f"no {mode} resize of {x.dtype.value} in C")
        found = axes_of(node)
        if isinstance(found, Reject):
            return found
        if not any(g.taps for g in found):
            return Reject("no axis is resized")
        return CpuResizeWork(node, found)

    def variants(self, work: CpuResizeWork, device: DeviceProperties) -> Sequence[Variant]:
        # unused lanes of a block stay zero, as no pixel is filled
        beside = (blocked(device.lanes), NHWC) if moves_pixels_alone(work.node) else ()
        return [Variant.of([f], [f]) for f in (LINEAR, *beside)]

    def cost(self, work: CpuResizeWork, variant: Variant, ctx: CompileContext) -> float | None:
        seconds = c_text.traffic(work.node, variant, ctx)
        if seconds is None:
            return None
        y = work.node.outputs[0].spec
        groups = work.stored(variant.input_format(0))
        across = resized_across(groups, ctx.device.lanes)
        nearest = work.node.attrs.mode == "nearest"
        each = 0.0 if nearest else _seconds(groups, across, y.dtype, ctx.opt)
        return seconds + dims.evaluate(y.numel, ctx.opt) * each / max(1, ctx.threads)

    def compile(self, work: CpuResizeWork, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        nearest = work.node.attrs.mode == "nearest"
        kernel = NearestKernel if nearest else WeightedKernel
        return kernel(
            work.node, work.stored(variant.input_format(0)), ctx, GivenNumbers()
        ).artifact()


def _seconds(groups: Sequence[AxisGroup], within: int, dtype: DType, opt: dims.Env) -> float:
    """For one result; ``within``: the group that is resized within rows, or -1."""
    down = 1
    for i, g in enumerate(groups):
        down *= dims.evaluate(g.taps.count, opt) if g.taps and i != within else 1
    across = groups[within].taps if within >= 0 else None
    return (
        down * _DOWN
        + (dims.evaluate(across.count, opt) * _ACROSS if across else 0.0)
        + (0.0 if dtype in FLOATS else _ROUNDED)
    )
