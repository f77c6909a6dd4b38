"""Resize in C: all modes, any number of axes; linear format.

Places and weights are tables: constants of the plan where sizes are known, else made by a first
launch. Rows of the result are made one by one: first down, as the weighted sum of whole rows, then
across. Where rows grow in number, those that are already stretched are kept and used again.
"""

from __future__ import annotations

from dataclasses import dataclass

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import text as c_text
from tactix_cpu.tactics.sample.axes import AxisGroup, groups_of
from tactix_cpu.tactics.sample.resize_kernel import (
    EXPANDED,
    GivenNumbers,
    NearestKernel,
    WeightedKernel,
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
    """A tensor to resize, and its axes."""

    node: Node
    groups: tuple[AxisGroup, ...]

    @property
    def across(self) -> int:
        """The group that is resized within rows; -1 if all are resized by sums of whole rows."""
        resized = [i for i, g in enumerate(self.groups) if g.taps is not None]
        if not resized:
            return -1
        last, behind = resized[-1], self.groups[resized[-1] + 1 :]
        return last if not behind or behind[0].size in EXPANDED else -1


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
        found = groups_of(node)
        if isinstance(found, Reject):
            return found
        if not any(g.taps for g in found):
            return Reject("no axis is resized")
        return CpuResizeWork(node, found)

    def cost(self, work: CpuResizeWork, variant: Variant, ctx: CompileContext) -> float | None:
        seconds = c_text.traffic(work.node, variant, ctx)
        if seconds is None:
            return None
        y = work.node.outputs[0].spec
        each = 0.0 if work.node.attrs.mode == "nearest" else _seconds(work, y.dtype)
        return seconds + dims.evaluate(y.numel, ctx.opt) * each / max(1, ctx.threads)

    def compile(self, work: CpuResizeWork, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        nearest = work.node.attrs.mode == "nearest"
        kernel = NearestKernel if nearest else WeightedKernel
        return kernel(work.node, work.groups, work.across, ctx, GivenNumbers()).artifact()


def _seconds(work: CpuResizeWork, dtype: DType) -> float:
    """For one result."""
    down = 1
    for i, g in enumerate(work.groups):
        down *= g.taps.count if g.taps and i != work.across else 1
    across = work.groups[work.across].taps if work.across >= 0 else None
    return (
        down * _DOWN
        + (across.count * _ACROSS if across else 0.0)
        + (0.0 if dtype in FLOATS else _ROUNDED)
    )
