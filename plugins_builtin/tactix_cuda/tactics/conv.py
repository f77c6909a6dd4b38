"""Convolution as a product of windows and packed weights, over channels-last activations.

A stage of k is some channels of one or more taps; windows are copied from the image as they are
needed. Channels that do not fill copies of 16 bytes (8 of bytes; of up to four channels four) are
padded by a first launch; images of fewer than four are read linear there. Knobs: those of a
BlockTile, ``split`` as in gemm, ``channels`` of a padded pixel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tactix.base.dims import Dim, ceildiv, evaluate, prod, symbols
from tactix.base.dtypes import DType
from tactix.base.tensor import LINEAR, NHWC, Format
from tactix.contracts.artifact import KernelArtifact, Launch, Packed
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c.text import block, ctype
from tactix_codegen.cuda import window
from tactix_codegen.cuda.entry import KernelEntry, artifact
from tactix_codegen.cuda.results import RowResults
from tactix_codegen.cuda.window import ConvolutionWindow
from tactix_cuda.tactics import tile
from tactix_cuda.tactics.tile import BlockTile, ProductSizes, tile_of
from tactix_cuda.tactics.tiled import Tiled

FEW_CHANNELS = 4
"""Channels that a pixel is padded to at most: in whole 16 bytes an image of three channels would
have eight of float16, and five eighths of all products would be by zero.
"""
PAD_THREADS = 256
"""Of a block of the launch that pads; chosen by hand, as threads share nothing."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CudaConvTactic(), Tf32ConvTactic(), IntegerWindowTactic()]


class CudaConvTactic(Tactic[ConvolutionWindow]):
    """float16, bfloat16 and float32, summed in float32; one group, constant weights."""

    key = "tactix.cuda_conv@1"
    implements: tuple[str, ...] = ("tactix.Convolution@1", "tactix.WideConvolution@1")
    device = "cuda"
    source = "cuda_c"

    def kind(self, dtype: DType) -> str:
        """How operands of that dtype are multiplied; empty if they are not."""
        return tile.KINDS.get(dtype, "")

    def match(self, node: Node, device: DeviceProperties) -> ConvolutionWindow | Reject:
        win = window.window(node)
        if isinstance(win, Reject) or (self.kind(win.dtype) and win.group == 1):
            return win
        return Reject("it takes one group of a dtype that is multiplied in tiles")

    def variants(
        self, win: ConvolutionWindow, device: DeviceProperties
    ) -> Sequence[Variant] | Reject:
        found = window.formats(win, _source(win))
        if isinstance(found, Reject):
            return found
        outputs, channels = (NHWC,) * len(win.node.outputs), _channels(win)
        sizes = [_work(win, channels, s) for s in win.sizes()]
        choices = tile.best(sizes, tile.tiles(self.kind(win.dtype), device), device)
        return [
            Variant.of(found, outputs, **vars(t), split=s, channels=channels) for t, s in choices
        ]

    def cost(self, win: ConvolutionWindow, variant: Variant, ctx: CompileContext) -> float | None:
        if not symbols(prod((win.n, *win.size, *win.out))) <= set(ctx.opt):
            return None
        channels = variant.number("channels")
        w = _work(win, channels, dict(ctx.opt))
        # where channels are padded, a launch before the product reads and writes the image once
        padding = 0.0
        if channels != win.c:
            elements = evaluate(win.n * win.size[0] * win.size[1], dict(ctx.opt)) * (
                channels + win.c
            )
            padding = tile.START + elements * win.dtype.itemsize / tile.BANDWIDTH
        return padding + tile.seconds(w, tile_of(variant), variant.number("split"), ctx.device)

    def compile(
        self, win: ConvolutionWindow, variant: Variant, ctx: CompileContext
    ) -> KernelArtifact:
        return _compile(win, variant, ctx)


class Tf32ConvTactic(CudaConvTactic):
    """float32 with operands rounded to 10 bits of mantissa."""

    key = "tactix.cuda_tf32_conv@1"
    numerics = "tf32"

    def kind(self, dtype: DType) -> str:
        return "tf32" if dtype is DType.FP32 else ""


class IntegerWindowTactic(CudaConvTactic):
    """8-bit integers by signed ones, summed in int32; one group, constant weights."""

    key = "tactix.cuda_integer_windows@1"
    implements = ("tactix.IntegerConvolution@1",)

    def kind(self, dtype: DType) -> str:
        return tile.BYTES.get(dtype, "")


def _channels(win: ConvolutionWindow) -> int:
    """Channels of a pixel as they are read: whole copies of 16 bytes, of 8 where a channel is a
    byte, or four where there are few.
    """
    unit = (
        4 if win.c <= FEW_CHANNELS else 8 if win.dtype.itemsize == 1 else 16 // win.dtype.itemsize
    )
    return -(-win.c // unit) * unit


def _source(win: ConvolutionWindow) -> Format:
    return LINEAR if win.c < FEW_CHANNELS else NHWC


def _work(win: ConvolutionWindow, channels: int, size: dict[str, int]) -> ProductSizes:
    """The product that it is, at these sizes."""
    image = evaluate(win.n * win.size[0] * win.size[1], size) * channels
    return ProductSizes(1, evaluate(win.pixels, size), win.co, win.taps * channels, image)


def pack_weights(win: ConvolutionWindow, channels: int, t: BlockTile) -> Packed:
    """(panels of output channels, stages, output channels, taps and channels of a stage), zero
    outside.
    """
    depth, panels = win.taps * channels, -(-win.co // t.cols)
    stages = -(-depth // t.depth)
    steps: tuple[tuple[str, Any], ...] = (
        ("reshape", (win.co, win.c, win.taps)),
        ("transpose", (0, 2, 1)),
        ("pad", ((0, 0), (0, 0), (0, channels - win.c))),
        ("reshape", (win.co, depth)),
        ("pad", ((0, panels * t.cols - win.co), (0, stages * t.depth - depth))),
        ("reshape", (panels, t.cols, stages, t.depth)),
        ("transpose", (0, 2, 1, 3)),
    )
    return Packed(win.w, steps)


def _compile(win: ConvolutionWindow, variant: Variant, ctx: CompileContext) -> KernelArtifact:
    t, channels = tile_of(variant), variant.number("channels")
    stages = -(-win.taps * channels // t.depth)
    made = Tiled(win.node, t, 1, win.pixels, win.co, stages, variant.number("split"))
    e, image = made.entry, win.n * win.size[0] * win.size[1] * (channels * t.size)
    padded = channels != win.c
    x = e.workspace(made.workspace, f"{ctype(win.dtype)}") if padded else e.input(win.x)
    loaders = [*_windows(win, made, x, channels), *_weights(win, made, channels)]

    def rows(entry: KernelEntry) -> RowResults:
        turned = window.pointers(win, entry)
        return RowResults(entry, win.node, win.epi, win.lead, win.co, turned)

    texts, launches, entries = made.finish(loaders, t.warp(), rows)
    if not padded:
        return artifact(
            [_geometry(win, channels, t), *texts],
            launches,
            entries,
            ctx,
            more=tile.PRELUDES,
            workspace=made.workspace,
        )
    pad = KernelEntry(win.node, PAD_THREADS, "pad")
    first = _pad(pad, win, channels, made.workspace, variant.input_format(win.x))
    head = [_geometry(win, channels, t), first[0]]
    workspace = made.workspace + image
    return artifact(
        [*head, *texts],
        [first[1], *launches],
        [pad, *entries],
        ctx,
        more=tile.PRELUDES,
        workspace=workspace,
    )


def _geometry(win: ConvolutionWindow, channels: int, t: BlockTile) -> str:
    """The constants that tx_windows asks for."""
    values = {
        "CHANNEL": channels * t.size,
        "DOWN": win.kernel[0],
        "ACROSS": win.kernel[1],
        "STRIDE_Y": win.strides[0],
        "STRIDE_X": win.strides[1],
        "DILATION_Y": win.dilations[0],
        "DILATION_X": win.dilations[1],
        "TOP": win.begins[0],
        "LEFT": win.begins[1],
        # four bytes of it, as the int32 that they are
        "PAD": int.from_bytes(bytes([win.pad_value & 255] * 4), "little", signed=True),
    }
    return (
        block(
            "struct TX_NAME(window)", *(f"static const int {k} = {v};" for k, v in values.items())
        )
        + ";\n"
    )


def _windows(win: ConvolutionWindow, made: Tiled, x: str, channels: int) -> list[str]:
    """Declare the loader of windows; of rows where a window is a pixel."""
    t, e = made.tile, made.entry
    piece = next(b for b in (16, 8, 4, 2) if channels * t.size % b == 0)
    shape = f"{t.rows}, {t.chunks}, {t.threads}, {piece}"
    if win.is_pointwise:
        row = f"(int64_t){channels * t.size}"
        return [f"tx_rows<{shape}> a;", f"a.start({x}, row0, {e.dim(win.pixels)}, {row}, {row});"]
    sizes = ", ".join(f"(int){e.dim(d)}" for d in (*win.size, *win.out))
    start = f"a.start({x}, row0, {e.dim(win.pixels)}, {sizes});"
    return [f"tx_windows<{shape}, TX_NAME(window)> a;", start]


def _weights(win: ConvolutionWindow, made: Tiled, channels: int) -> list[str]:
    t = made.tile
    dtype = win.node.given[win.w].spec.dtype
    w = made.entry.constant("w", pack_weights(win, channels, t), dtype)
    panel = int(made.stages) * t.cols * t.depth  # type: ignore[arg-type]
    return [
        f"tx_packed<{t.cols}, {t.chunks}, {t.threads}> b;",
        f"b.start({w} + (int64_t)j * {panel});",
    ]


def _pad(
    e: KernelEntry, win: ConvolutionWindow, channels: int, offset: Dim, fmt: Format
) -> tuple[str, Launch]:
    """The launch that copies the image with channels last and padded by zeros."""
    kind, width = ctype(win.dtype), math.gcd(channels, 16 // win.dtype.itemsize)
    groups, plane = channels // width, win.size[0] * win.size[1]
    x, to, pixels = e.input(win.x), e.workspace(offset, kind), win.n * plane
    if fmt.is_linear:
        element = (
            f"{x}[(pixel / {e.dim(plane)} * {win.c} + c) * {e.dim(plane)} + pixel % {e.dim(plane)}]"
        )
    else:
        element = f"{x}[pixel * {win.c} + c]"
    body = [
        f"const int64_t t = (int64_t)blockIdx.x * {PAD_THREADS} + threadIdx.x, "
        f"pixel = t / {groups};",
        f"if (pixel >= {e.dim(pixels)}) return;",
        f"tx_pack<{kind}, {width}> v;",
        "#pragma unroll",
        block(
            f"for (int k = 0; k < {width}; k++)",
            f"const int c = (int)(t % {groups}) * {width} + k;",
            f"v.v[k] = c < {win.c} ? {element} : ({kind})0;",
        ),
        f"*(tx_pack<{kind}, {width}>*)({to} + t * {width}) = v;",
    ]
    return e.kernel(*body), e.launch(ceildiv(pixels * groups, PAD_THREADS))
