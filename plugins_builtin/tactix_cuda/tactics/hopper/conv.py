"""Convolution over channels-last activations by Hopper's matrix instructions; the copy engine finds
the windows.

A stage of k is 64 channels of a tap, or 128 where a channel is a byte. The copy engine's im2col
mode (PTX ISA, "Tensor Copy im2col mode") walks pixels in the order of outputs, row by row and image
by image, and gives zeros where a window is outside: no thread computes addresses of windows. Knobs:
those of a Flow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tactix.base.dims import Shape, evaluate, prod, symbols
from tactix.base.dtypes import DType
from tactix.base.tensor import NHWC, Format
from tactix.contracts.artifact import KernelArtifact, Packed
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c.text import block
from tactix_codegen.cuda import window
from tactix_codegen.cuda.window import ConvolutionWindow
from tactix_cuda.tactics.hopper import flow as hopper
from tactix_cuda.tactics.hopper.flow import FlowEntry, Made, PreloadedRows, WgmmaTypes, flow_of
from tactix_cuda.tactics.tile import ProductSizes
from tactix_cuda.tensor_maps import TensorMap

UNIT = 16
"""Bytes that pixels must be multiples of."""
LARGEST_STEP, LARGEST_CORNER, LARGEST_OFFSET = 8, 127, 255
"""What a tensor map and a copy of windows can say (CUDA driver API, cuTensorMapEncodeIm2col): steps
between windows along an axis; pixels by which a corner of the box of windows departs from the
image's, of 8 bits with a sign where two axes are spatial; pixels by which a tap departs from its
window, of 8 bits.
"""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [HopperConvTactic(), HopperIntegerConvTactic()]


class HopperWindows(Tactic[ConvolutionWindow]):
    """What convolutions by Hopper's matrix instructions have in common."""

    implements: tuple[str, ...] = ("tactix.Convolution@1", "tactix.WideConvolution@1")
    device = "cuda"
    source = "cuda_c"
    kinds: Mapping[DType, WgmmaTypes] = hopper.KINDS

    def why_not(self, win: ConvolutionWindow) -> str:
        """Empty if the kernel takes such windows, else what it takes."""
        raise NotImplementedError

    def reads(self, win: ConvolutionWindow) -> Format:
        """How the image lies."""
        return NHWC

    def work(self, win: ConvolutionWindow, size: dict[str, int]) -> ProductSizes:
        """The product that it is, at these sizes."""
        raise NotImplementedError

    def before(self, work: ProductSizes, kind: WgmmaTypes) -> float:
        """Seconds of launches before the product."""
        return 0.0

    def match(self, node: Node, device: DeviceProperties) -> ConvolutionWindow | Reject:
        win = window.window(node)
        if isinstance(win, Reject):
            return win
        if not hopper.usable(win.dtype, device, self.kinds):
            return Reject(f"no matrix instructions of sm_90a for {win.dtype.value} on this device")
        if win.has_other_pads:
            return Reject("zeros around the image, which are all that the copy engine fills in")
        reason = self.why_not(win)
        return Reject(reason) if reason else win

    def variants(
        self, win: ConvolutionWindow, device: DeviceProperties
    ) -> Sequence[Variant] | Reject:
        found = window.formats(win, self.reads(win))
        if isinstance(found, Reject):
            return found
        works = [self.work(win, s) for s in win.sizes()]
        flows = hopper.best(works, device, self.kinds[win.dtype])
        return hopper.variants(flows, found, (NHWC,) * len(win.node.outputs))

    def cost(self, win: ConvolutionWindow, variant: Variant, ctx: CompileContext) -> float | None:
        if not symbols(prod((win.n, *win.size, *win.out))) <= set(ctx.opt):
            return None
        w = self.work(win, dict(ctx.opt))
        kind = self.kinds[win.dtype]
        return self.before(w, kind) + hopper.seconds(w, flow_of(variant), ctx.device, kind)


class HopperConvTactic(HopperWindows):
    """float16 and bfloat16, summed in float32; one group, constant weights."""

    key = "tactix.cuda_hopper_conv@1"

    def why_not(self, win: ConvolutionWindow) -> str:
        taken = win.group == 1 and win.c * win.dtype.itemsize % UNIT == 0 and _fits(win)
        return (
            ""
            if taken
            else "one group, pixels of whole 16 bytes, windows that the copy engine can say"
        )

    def work(self, win: ConvolutionWindow, size: dict[str, int]) -> ProductSizes:
        depth = self.kinds[win.dtype].depth
        channels = -(-win.c // depth) * depth
        image = evaluate(win.n * win.size[0] * win.size[1], size) * win.c
        return ProductSizes(1, evaluate(win.pixels, size), win.co, win.taps * channels, image)

    def compile(
        self, win: ConvolutionWindow, variant: Variant, ctx: CompileContext
    ) -> KernelArtifact:
        f, kind = flow_of(variant), self.kinds[win.dtype]
        e, parts = FlowEntry(win.node, f.threads), -(-win.c // kind.depth)
        rows = PreloadedRows(
            e, win.node, win.epi, win.lead, win.co, window.pointers(win, e), cols=f.cols
        )
        made = Made(e, f, kind, rows, win.pixels, win.co, win.taps * parts)
        a, helpers = _loader(win, made, parts)
        b = made.map_b(_pack(win, made, parts))
        text, launch = made.text(a, b, ctx.device)
        return hopper.artifact(made, helpers + text, launch, ctx)


class HopperIntegerConvTactic(HopperConvTactic):
    """8-bit integers by signed ones, summed in int32; one group, constant weights, zeros around."""

    key = "tactix.cuda_hopper_integer_conv@1"
    implements = ("tactix.IntegerConvolution@1",)
    kinds = hopper.BYTES


def _corners(win: ConvolutionWindow) -> tuple[tuple[int, int], tuple[int, int]]:
    """Where windows begin: (x, y) of the first, and of the last as counted from the last pixel."""
    first = (-win.begins[1], -win.begins[0])
    spans = [(k - 1) * d for k, d in zip(win.kernel, win.dilations, strict=True)]
    return first, (win.ends[1] - spans[1], win.ends[0] - spans[0])


def _fits(win: ConvolutionWindow) -> bool:
    """Whether steps, corners and the reach of taps, in pixels, are what the copy engine can say."""
    spans = [(k - 1) * d for k, d in zip(win.kernel, win.dilations, strict=True)]
    corners = [abs(n) for c in _corners(win) for n in c]
    return (
        max(win.strides) <= LARGEST_STEP
        and max(corners) <= LARGEST_CORNER
        and max(spans) <= LARGEST_OFFSET
    )


def _loader(win: ConvolutionWindow, made: Made, parts: int) -> tuple[str, str]:
    """The C text that makes the loader of windows, of rows where a window is a pixel; and what that
    needs.
    """
    e, f, depth = made.e, made.flow, made.kind.depth
    if win.is_pointwise:
        row = win.c * win.dtype.itemsize
        shape: Shape = (win.c, win.pixels)
        a = e.map_input(win.x, TensorMap(win.dtype, shape, (row,), (depth, f.rows)))
        return f"tx_matrix<{depth}>{{{a}}}", ""
    (high, wide), pixel = win.size, win.c * win.dtype.itemsize
    shape, strides = (win.c, wide, high, win.n), (pixel, wide * pixel, high * wide * pixel)
    steps = (1, win.strides[1], win.strides[0], 1)
    a = e.map_input(
        win.x, TensorMap(win.dtype, shape, strides, (depth, f.rows), steps, _corners(win))
    )
    oh, ow = (e.dim(d) for d in win.out)
    helpers = geometry(depth, parts, win.kernel[1], win.strides, win.dilations, win.begins)
    return f"tx_pixels<TX_NAME(window)>{{{a}, (int){oh}, (int){ow}}}", helpers


Pair = tuple[int, int]


def geometry(
    depth: int, parts: int, across: int, strides: Pair, dilations: Pair, begins: Pair
) -> str:
    """The constants that tx_pixels asks for: channels of a stage, stages of a tap, taps of a row;
    the others down and across.
    """
    values = {
        "DEPTH": depth,
        "PARTS": parts,
        "ACROSS": across,
        "STRIDE_Y": strides[0],
        "STRIDE_X": strides[1],
        "DILATION_Y": dilations[0],
        "DILATION_X": dilations[1],
        "TOP": begins[0],
        "LEFT": begins[1],
    }
    return (
        block(
            "struct TX_NAME(window)", *(f"static const int {k} = {v};" for k, v in values.items())
        )
        + ";\n"
    )


def _pack(win: ConvolutionWindow, made: Made, parts: int) -> Packed:
    """Weights (output channels, taps and channels) as ``hopper.pack`` lays them, zero outside."""
    f, kind = made.flow, made.kind
    panels, channels = -(-win.co // f.cols), parts * kind.depth
    steps: tuple[tuple[str, Any], ...] = (
        ("reshape", (win.co, win.c, win.taps)),
        ("transpose", (0, 2, 1)),
        ("pad", ((0, panels * f.cols - win.co), (0, 0), (0, channels - win.c))),
    )
    return Packed(win.w, (*steps, *hopper.pack(panels, f.cols, win.taps * parts, kind)))
