"""DynamicResize in C: the first launch tells the sizes of the result; linear format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import text as c_text
from tactix_codegen.c.scalar import element
from tactix_codegen.c.text import Args, block
from tactix_codegen.operations.resize import TAPS
from tactix_cpu.tactics.dot_tile import without_fma
from tactix_cpu.tactics.sample.axes import (
    WHOLE,
    AxisGroup,
    ComputedTaps,
    joined,
    widened,
    widens,
)
from tactix_cpu.tactics.sample.resize_kernel import GivenNumbers, NearestKernel, WeightedKernel
from tactix_cpu.tactics.sample.sums import FLOATS, WIDE
from tactix_ops.layers.dynamic_resize import crops

_ELEMENT = 1e-9
"""Seconds for a result of linear mode; Sapphire Rapids, one thread."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CpuDynamicResizeTactic()]


@dataclass(frozen=True)
class DynamicResizeWork:
    """The axes of a tensor to resize, and what tells their sizes."""

    node: Node
    groups: tuple[AxisGroup, ...]
    numbers: TensorNumbers


@dataclass(frozen=True)
class TensorNumbers(GivenNumbers):
    """Scales, sizes and regions of ``axes`` in given inputs of these numbers; -1: absent. There are
    scales or sizes.
    """

    node: Node
    axes: tuple[int, ...]
    scales: int
    sizes: int
    regions: int

    def scale(self, args: Args, t: ComputedTaps) -> str:
        if self.scales >= 0:
            return f"(double){self._number(args, self.scales, t.place)}"
        policy = self.node.attrs.keep_aspect_ratio_policy
        if policy == "stretch":
            return super().scale(args, t)
        return self._common(args, "fmin" if policy == "not_larger" else "fmax")

    def _common(self, args: Args, pick: str) -> str:
        """One scale for all axes."""
        found = ""
        for i, axis in enumerate(self.axes):
            size = args.dim(self.node.given[0].spec.shape[axis])
            each = f"(double){args.input(self.sizes)}[{i}] / (double){size}"
            found = f"{pick}({found}, {each})" if found else each
        return found

    def region(self, args: Args, t: ComputedTaps) -> tuple[str, str] | None:
        if self.regions < 0:
            return None
        places = (t.place, len(self.axes) + t.place)
        start, end = (f"(double){self._number(args, self.regions, p)}" for p in places)
        return start, end

    def _number(self, args: Args, index: int, place: int) -> str:
        """Of a tensor of floats."""
        return element(self.node.given[index].spec.dtype, f"{args.input(index)}[{place}]")

    def told(self, args: Args) -> list[str]:
        lines, fresh = ["if (tid) return;"], {}
        for i, axis in enumerate(self.axes):
            size = args.dim(self.node.given[0].spec.shape[axis])
            refused = args.refuse("an axis of {0} elements cannot be resized to {1}", size, f"n{i}")
            lines += [
                f"const int64_t n{i} = {self._wanted(args, i, size)};",
                block(f"if (n{i} < 0 || ({size} == 0 && n{i}))", refused, "return;"),
            ]
            name = dims.symbol_name(self.node.outputs[0].spec.shape[axis])
            assert name is not None
            fresh[name] = f"n{i}"
        return [*lines, *args.tell(fresh)]

    def _wanted(self, args: Args, i: int, size: str) -> str:
        """The size of axis ``i`` of the result."""
        if self.scales >= 0:
            scale = f"(float){self._number(args, self.scales, i)}"
            return f"tx_i64_of(floorf((float){size} * {scale}))"
        policy = self.node.attrs.keep_aspect_ratio_policy
        if policy == "stretch":
            return f"(int64_t){args.input(self.sizes)}[{i}]"
        by = self._common(args, "fmin" if policy == "not_larger" else "fmax")
        return f"tx_i64_of(floor({by} * (double){size} + 0.5))"


class CpuDynamicResizeTactic(Tactic[DynamicResizeWork]):
    """As Resize; scales in any floats, sizes in any integers."""

    key = "tactix.c_dynamic_resize@1"
    implements = ("tactix.DynamicResize@1",)
    source = "c"
    spreads = True  # as that of known sizes
    by_signature = True
    tells = True

    def match(self, node: Node, device: DeviceProperties) -> DynamicResizeWork | Reject:
        x, a = node.given[0].spec, node.attrs
        if node.is_fused:
            return Reject("no layers around it are fused by this tactic")
        if not c_text.has_ctype(x.dtype):
            return Reject(f"no resize of {x.dtype.value} in C")
        if a.mode != "nearest" and x.dtype not in (*FLOATS, *WIDE):
            return Reject(f"no {a.mode} resize of {x.dtype.value} in C")
        axes = tuple(i % x.rank for i in a.axes) or tuple(range(x.rank))
        numbers = _numbers(node, axes)
        if isinstance(numbers, Reject):
            return numbers
        return DynamicResizeWork(node, _groups(node, axes), numbers)

    def cost(self, work: DynamicResizeWork, variant: Variant, ctx: CompileContext) -> float | None:
        """As if the result had the size of the input: only running tells it."""
        x = work.node.given[0].spec
        if not dims.symbols(x.numel) <= set(ctx.opt):
            return None
        elements = dims.evaluate(x.numel, ctx.opt)
        return 2e-6 + elements * _ELEMENT / max(1, ctx.threads)

    def compile(
        self, work: DynamicResizeWork, variant: Variant, ctx: CompileContext
    ) -> KernelArtifact:
        kernel = NearestKernel if work.node.attrs.mode == "nearest" else WeightedKernel
        writer = kernel(work.node, work.groups, ctx, work.numbers)
        made = writer.artifact()
        # a multiplication and an addition that became one would round otherwise
        return without_fma(made)


def _groups(node: Node, axes: Sequence[int]) -> tuple[AxisGroup, ...]:
    y, made = node.outputs[0].spec, []
    for axis, size in enumerate(node.given[0].spec.shape):
        group = AxisGroup(size, size)
        if axis in axes:
            out, count = y.shape[axis], TAPS[node.attrs.mode]
            taps = ComputedTaps(axis, count, size, out, None, WHOLE, axes.index(axis))
            if widens(node.attrs):
                # one scale for all axes may be that of half an element less
                stretched = node.attrs.keep_aspect_ratio_policy == "stretch"
                taps = widened(taps, node.attrs.mode, 1 if stretched else 2)
            group = AxisGroup(size, out, taps)
        made.append(group)
    return joined(made)


def _numbers(node: Node, axes: tuple[int, ...]) -> TensorNumbers | Reject:
    """Which inputs count: scales before sizes, and none that are empty. Those that do are as long
    as the layer asks for.
    """
    places = (node.place(i) for i in (2, 3, 1))
    scales, sizes, regions = (p if p >= 0 and node.given[p].spec.numel != 0 else -1 for p in places)
    if scales < 0 and sizes < 0:
        return Reject("there are neither scales nor sizes")
    if scales >= 0 and sizes >= 0:
        if not isinstance(node.given[scales].spec.numel, int):
            return Reject("only running tells whether there are scales or sizes")
        sizes = -1
    if not crops(node.attrs):
        regions = -1
    for i in (scales, regions):
        if i >= 0 and node.given[i].spec.dtype not in (*FLOATS, DType.FP64):
            return Reject(f"no scales or regions of {node.given[i].spec.dtype.value} in C")
    return TensorNumbers(node, axes, scales, sizes, regions)
