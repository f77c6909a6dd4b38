"""Transposed convolution whose windows do not overlap (kernel equal to stride, as in a U-Net), in
the blocked format.

Each tap is a product of its own: input pixels times that tap's weights, stored at every stride-th
output pixel. Of the others a rule makes convolutions (tactix_ops/rules/transposed.py);
c_conv_general takes what is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tactix.base.dims import symbols
from tactix.base.dtypes import DType
from tactix.base.tensor import blocked
from tactix.contracts.artifact import KernelArtifact, Packed
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import tile as c_tile
from tactix_codegen.c.epilogue import anchor_spec, epilogue
from tactix_codegen.operations.convolution import FLAT
from tactix_cpu.tactics.conv.direct import cycles
from tactix_cpu.tactics.conv.kernel import ConvKernel
from tactix_cpu.tactics.conv.window import CpuConvolutionWindow, formats, with_bias
from tactix_cpu.tactics.estimates import CLOCK, START

OFFERED = 3
"""Variants of a node at most: those of the fewest cycles. Each costs a compilation, 0.3 s with gcc
on the prototype (README); no measurement of their number is on record.
"""
DTYPES = (DType.FP32, DType.BF16)


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [ConvTransposeTactic()]


@dataclass(frozen=True)
class SpreadConvolution:
    """A convolution whose taps do not overlap, and what its cost is that of: one product with a
    channel for each tap.
    """

    win: CpuConvolutionWindow
    product: CpuConvolutionWindow


class ConvTransposeTactic(Tactic[SpreadConvolution]):
    """float32 or bf16, one or two spatial axes, constant weights, kernel equal to stride, one
    group, no pads.
    """

    key = "tactix.c_conv_transpose@1"
    implements = ("tactix.ConvTranspose@1", "tactix.WideConvTranspose@1")
    source = "c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> SpreadConvolution | Reject:
        win = spread(node)
        return win if isinstance(win, Reject) else SpreadConvolution(win, _taps_as_channels(win))

    def variants(
        self, work: SpreadConvolution, device: DeviceProperties
    ) -> Sequence[Variant] | Reject:
        win = work.win
        lanes = max(4, device.lanes)
        fmt = blocked(lanes)
        found = formats(win, fmt, fmt)
        if isinstance(found, Reject):
            return found
        width = win.size[1]
        sizes: dict[tuple[int, int], None] = {}
        for most, vectors in c_tile.shapes(device):
            rows = -(-width // -(-width // most)) if isinstance(width, int) else most
            sizes[rows, min(vectors, -(-win.co // lanes))] = None
        outputs = (fmt,) * len(win.node.outputs)
        options = [Variant.of(found, outputs, rows=r, vectors=v, blocks=0) for r, v in sizes]
        return c_tile.best(options, lambda v: cycles(work.product, v, device), OFFERED)

    def cost(self, work: SpreadConvolution, variant: Variant, ctx: CompileContext) -> float | None:
        win = work.win
        if not symbols(win.n * win.size[0] * win.size[1]) <= set(ctx.opt):
            return None
        found = cycles(work.product, variant, ctx.device, dict(ctx.opt))
        return START + found / CLOCK / max(1, ctx.threads)

    def compile(
        self, work: SpreadConvolution, variant: Variant, ctx: CompileContext
    ) -> KernelArtifact:
        return SpreadKernel(work.win, variant, ctx).artifact()


def spread(node: Node) -> CpuConvolutionWindow | Reject:
    """The geometry of a ConvTranspose node without overlap: strides equal to the kernel; or why it
    is none.
    """
    epi, anchor = epilogue(node), node.anchor
    if isinstance(epi, Reject):
        return epi
    assert anchor is not None
    x, w = (node.given[i].spec for i in anchor.inputs[:2])
    a, rank = anchor.attrs, x.rank - 2
    if rank not in (1, 2) or not w.is_const or x.dtype not in DTYPES or w.dtype is not x.dtype:
        return Reject(
            "these kernels take float32 or bf16, one or two spatial axes and constant weights"
        )
    kernel = tuple(int(k) for k in w.const.shape[2:])
    plain = (
        not any(a.pads) and not any(a.output_padding) and set(a.dilations) <= {1} and a.group == 1
    )
    if not plain or tuple(a.strides or (1,) * rank) != kernel:
        return Reject("not a kernel equal to its stride, without pads, dilations and groups")
    if any(d == 0 for d in (*x.shape, *w.shape)):
        return Reject("a tensor is empty")
    bias = (*anchor.inputs, -1)[2]
    biased = with_bias(node, epi, bias)
    if isinstance(biased, Reject):
        return biased

    def two(values: Sequence[Any]) -> Any:
        return (*(1,) * (2 - rank), *values)

    out = anchor_spec(node).shape[2:]
    return CpuConvolutionWindow(
        anchor.inputs[0],
        anchor.inputs[1],
        bias,
        x.shape[0],
        int(w.const.shape[0]),
        int(w.const.shape[1]),
        1,
        two(x.shape[2:]),
        two(out),
        two(kernel),
        two(kernel),
        (1, 1),
        (0, 0, 0, 0),
        FLAT,
        node,
        biased,
        x.dtype,
    )


def _single_tap(win: CpuConvolutionWindow) -> CpuConvolutionWindow:
    """The product of one tap: output pixels lie where the input's are."""
    return replace(win, out=win.size, kernel=(1, 1), strides=(1, 1))


def _taps_as_channels(win: CpuConvolutionWindow) -> CpuConvolutionWindow:
    return replace(_single_tap(win), co=win.co * win.taps)


class SpreadKernel(ConvKernel):
    """The loops of ConvKernel over input lines, with panels for every tap."""

    def __init__(self, win: CpuConvolutionWindow, variant: Variant, ctx: CompileContext) -> None:
        super().__init__(_single_tap(win), variant, ctx)
        self.whole = win
        self.per_tap = self.panels
        self.panels *= win.taps
        self.flat = False
        self.site = replace(self.site, win=win, step=win.strides[1])

    def _packed(self) -> Packed:
        """Weights as (tap, panel, channel block, step, width, channel of a step), zero past the
        channels.

        Each tap is a product with panels of its own.
        """
        win, width, cell, once = self.whole, self.tile.width, self.cell, self.at_once
        pad = (0, self.deep * cell - win.c), (0, self.per_tap * width - win.co), (0, 0)
        steps: tuple[tuple[str, Any], ...] = (
            ("reshape", (win.c, win.co, win.taps)),
            ("pad", pad),
            ("reshape", (self.deep, cell // once, once, self.per_tap, width, win.taps)),
            ("transpose", (5, 3, 0, 1, 4, 2)),
        )
        return Packed(win.w, steps)

    def _block(self) -> list[str]:
        return [
            (
                f"const int64_t block = p % {self.per_tap} * {self.tile.vectors}, "
                f"tap = p / {self.per_tap};"
            ),
            (
                f"const int64_t down = tap / {self.whole.kernel[1]}, "
                f"right = tap % {self.whole.kernel[1]};"
            ),
        ]

    def _pixel(self, column: str) -> str:
        sy, sx = self.whole.strides
        return f"(y * {sy} + down) * {self.args.dim(self.whole.out[1])} + right + {column} * {sx}"
