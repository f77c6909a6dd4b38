"""Convolution of few channels, as the first of an image network has, by Hopper's matrix
instructions.

A first launch folds the image: a cell holds the pixels of one step of the strides with all their
channels, padded to 16 bytes; cells outside the image are zero. The convolution then goes over cells
with strides of one, and a row of its taps lies in memory as it is: to the copy engine it is one
pixel of many channels, though neighbours overlap.

Why: a stage is 64 channels of a tap (128 of bytes), of which an image of three channels would use
three. Of the first layer of ResNet-50 (7 x 7, steps of 2) a cell has 2 x 2 x 3 elements padded to
16, a row of taps 4 cells, so one stage holds a row, and there are 4 in place of 49. Knobs: those of
a Flow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tactix.base.dims import Dim, ceildiv, evaluate
from tactix.base.tensor import LINEAR, NHWC, Format
from tactix.contracts.artifact import KernelArtifact, Packed
from tactix.contracts.tactic import CompileContext, Tactic, Variant
from tactix_codegen.c.text import block, ctype
from tactix_codegen.cuda import window
from tactix_codegen.cuda.entry import KernelEntry
from tactix_codegen.cuda.window import ConvolutionWindow
from tactix_cuda.tactics import tile
from tactix_cuda.tactics.conv import FEW_CHANNELS
from tactix_cuda.tactics.hopper import conv as hopper_conv
from tactix_cuda.tactics.hopper import flow as hopper
from tactix_cuda.tactics.hopper.conv import HopperWindows
from tactix_cuda.tactics.hopper.flow import (
    First,
    Flow,
    FlowEntry,
    Made,
    PreloadedRows,
    WgmmaTypes,
    flow_of,
)
from tactix_cuda.tactics.tile import ProductSizes
from tactix_cuda.tensor_maps import TensorMap

UNIT = 16
"""Bytes that a thread of the first launch writes."""
THREADS = 256
"""Of a block of the first launch; chosen by hand, as threads share nothing."""
LARGEST_CELL = 1024
"""Elements that the first launch may put together: far more than steps of image networks make (48
for steps of 4 and three channels); no threshold was measured.
"""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [HopperStemTactic(), HopperIntegerStemTactic()]


@dataclass(frozen=True)
class FoldedStem:
    """A convolution as one over cells. ``shift``: rows and columns of zeros before the weights."""

    win: ConvolutionWindow
    kind: WgmmaTypes

    @property
    def unit(self) -> int:
        """Elements that a thread of the first launch writes, whole numbers of which are a cell."""
        return UNIT // self.kind.size

    @property
    def shift(self) -> tuple[int, int]:
        (top, left), (sy, sx) = self.win.begins, self.win.strides
        return -top % sy, -left % sx

    @property
    def kernel(self) -> tuple[int, int]:
        """Taps in cells."""
        sizes = zip(self.win.kernel, self.shift, self.win.strides, strict=True)
        down, across = (-(-(k + shift) // step) for k, shift, step in sizes)
        return down, across

    @property
    def used(self) -> int:
        """Elements of a cell that are of the image."""
        return self.win.strides[0] * self.win.strides[1] * self.win.c

    @property
    def cell(self) -> int:
        """Elements of a cell."""
        return -(-self.used // self.unit) * self.unit

    @property
    def row(self) -> int:
        """Elements of a row of taps."""
        return self.kernel[1] * self.cell

    @property
    def parts(self) -> int:
        """Stages of a row of taps."""
        return -(-self.row // self.kind.depth)

    @property
    def size(self) -> tuple[Dim, Dim]:
        """Cells of an image, down and across."""
        down, across = (o - 1 + k for o, k in zip(self.win.out, self.kernel, strict=True))
        return down, across

    @property
    def elements(self) -> Dim:
        return self.win.n * self.size[0] * self.size[1] * self.cell

    def work(self, size: dict[str, int]) -> ProductSizes:
        stored = evaluate(self.elements, size)
        depth = self.kernel[0] * self.parts * self.kind.depth
        return ProductSizes(1, evaluate(self.win.pixels, size), self.win.co, depth, stored)

    def tensor_map(self, rows: int) -> TensorMap:
        """Rows of taps as pixels: as many across as results, one cell apart."""
        (down, across), bytes_ = self.size, self.cell * self.kind.size
        shape = (self.row, self.win.out[1], down, self.win.n)
        strides = (bytes_, across * bytes_, down * across * bytes_)
        return TensorMap(
            self.win.dtype,
            shape,
            strides,
            (self.kind.depth, rows),
            (1,) * 4,
            ((0, 0), (0, 1 - self.kernel[0])),
        )

    def pack(self, f: Flow) -> Packed:
        """The weights along the elements of cells, as ``hopper.pack`` lays them."""
        win, (down, across), (sy, sx) = self.win, self.kernel, self.win.strides
        panels = -(-win.co // f.cols)
        spare = [
            k * s - own - b
            for k, s, own, b in zip(self.kernel, win.strides, win.kernel, self.shift, strict=True)
        ]
        rows = panels * f.cols
        steps: tuple[tuple[str, Any], ...] = (
            ("reshape", (win.co, win.c, *win.kernel)),
            (
                "pad",
                ((0, rows - win.co), (0, 0), (self.shift[0], spare[0]), (self.shift[1], spare[1])),
            ),
            ("reshape", (rows, win.c, down, sy, across, sx)),
            ("transpose", (0, 2, 4, 3, 5, 1)),
            ("reshape", (rows, down, across, self.used)),
            ("pad", ((0, 0),) * 3 + ((0, self.cell - self.used),)),
            ("reshape", (rows, down, self.row)),
            ("pad", ((0, 0), (0, 0), (0, self.parts * self.kind.depth - self.row))),
        )
        stages = down * self.parts
        return Packed(win.w, (*steps, *hopper.pack(panels, f.cols, stages, self.kind)))


class HopperStemTactic(HopperWindows):
    """float16 and bfloat16, summed in float32; up to four channels, constant weights."""

    key = "tactix.cuda_hopper_stem@1"

    def why_not(self, win: ConvolutionWindow) -> str:
        few = win.group == 1 and win.c <= FEW_CHANNELS and set(win.dilations) == {1}
        taken = few and self.folded(win).cell <= LARGEST_CELL
        return "" if taken else "one group of up to four channels, no dilation, small strides"

    def folded(self, win: ConvolutionWindow) -> FoldedStem:
        """The convolution over cells."""
        return FoldedStem(win, self.kinds[win.dtype])

    def reads(self, win: ConvolutionWindow) -> Format:
        return LINEAR if win.c < FEW_CHANNELS else NHWC

    def work(self, win: ConvolutionWindow, size: dict[str, int]) -> ProductSizes:
        return self.folded(win).work(size)

    def before(self, work: ProductSizes, kind: WgmmaTypes) -> float:
        """The first launch: each cell's elements written, as many read."""
        return tile.START + 2 * work.stored * kind.size / tile.BANDWIDTH

    def compile(
        self, win: ConvolutionWindow, variant: Variant, ctx: CompileContext
    ) -> KernelArtifact:
        f, folded, kind = flow_of(variant), self.folded(win), self.kinds[win.dtype]
        e = FlowEntry(win.node, f.threads)
        rows = PreloadedRows(
            e, win.node, win.epi, win.lead, win.co, window.pointers(win, e), cols=f.cols
        )
        stages = folded.kernel[0] * folded.parts
        made = Made(e, f, kind, rows, win.pixels, win.co, stages)
        oh, ow = (e.dim(d) for d in win.out)
        a = e.map_workspace(0, folded.tensor_map(f.rows))
        b = made.map_b(folded.pack(f))
        text, launch = made.text(
            f"tx_pixels<TX_NAME(window)>{{{a}, (int){oh}, (int){ow}}}", b, ctx.device
        )
        helpers = hopper_conv.geometry(kind.depth, folded.parts, 1, (1, 1), (1, 1), (0, 0))
        first = _fold(folded, KernelEntry(win.node, THREADS, "fold"), variant.input_format(win.x))
        workspace = folded.elements * kind.size
        return hopper.artifact(
            made, helpers + text, launch, ctx, first=[first], workspace=workspace
        )


class HopperIntegerStemTactic(HopperStemTactic):
    """8-bit integers by signed ones, summed in int32; up to four channels, zeros around."""

    key = "tactix.cuda_hopper_integer_stem@1"
    implements = ("tactix.IntegerConvolution@1",)
    kinds = hopper.BYTES


def _fold(folded: FoldedStem, e: KernelEntry, fmt: Format) -> First:
    """The launch that makes cells, 16 bytes a thread."""
    win, kind, unit = folded.win, ctype(folded.win.dtype), folded.unit
    groups = folded.cell // unit
    (sy, sx), (by, bx), c = win.strides, folded.shift, win.c
    down, across = (e.dim(d) for d in folded.size)
    high, wide = (e.dim(d) for d in win.size)
    x, to = e.input(win.x), e.workspace(0, kind)
    pixel = f"((image * {c} + part) * {high} + y) * {wide} + x"
    if not fmt.is_linear:
        pixel = f"((image * {high} + y) * {wide} + x) * {c} + part"
    each = [
        f"const int j = group * {unit} + k, part = j % {c};",
        f"const int64_t y = row % {down} * {sy} - {win.begins[0] + by} + j / {sx * c};",
        f"const int64_t x = cell % {across} * {sx} - {win.begins[1] + bx} + j / {c} % {sx};",
        f"const bool ok = j < {folded.used} && (uint64_t)y < (uint64_t){high} "
        f"&& (uint64_t)x < (uint64_t){wide};",
        f"v.v[k] = ok ? {x}[{pixel}] : ({kind})0;",
    ]
    body = [
        f"const int64_t t = (int64_t)blockIdx.x * {THREADS} + threadIdx.x, "
        f"cell = t / {groups}, row = cell / {across};",
        f"const int64_t image = row / {down};",
        f"const int group = (int)(t % {groups});",
        f"if (image >= {e.dim(win.n)}) return;",
        f"tx_pack<{kind}, {unit}> v;",
        "#pragma unroll",
        block(f"for (int k = 0; k < {unit}; k++)", *each),
        f"*(tx_pack<{kind}, {unit}>*)({to} + t * {unit}) = v;",
    ]
    return e.kernel(*body), e.launch(ceildiv(ceildiv(folded.elements, unit), THREADS)), e
