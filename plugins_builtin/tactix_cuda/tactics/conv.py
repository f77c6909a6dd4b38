"""Convolution as a product of windows and packed weights, over channels-last activations.

A stage of k is some channels of one or more taps; windows are copied from the image as they are
needed. Channels that do not fill copies of 16 bytes (8 of bytes; of up to four channels four) are
padded by a first launch; images of fewer than four are read linear there. Groups of few channels
are computed several together, as one with weights of zero between them. Knobs: those of a
BlockTile, ``split`` as in gemm, ``channels`` of a pixel that a tile reads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

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
from tactix_codegen.cuda.results import WIDTH, RowResults
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


JOINED = 24
"""Channels that groups which are computed together give at least, where there are as many: a tile
has 16 columns or more.
"""


@dataclass(frozen=True)
class Bundles:
    """Groups of channels, ``joined`` of which are computed together: ``count`` times ``channels``
    read, ``co`` made. One group's channels may be padded.
    """

    count: int
    joined: int
    channels: int
    co: int


@dataclass(frozen=True)
class ConvWork:
    """A convolution, and how its groups are computed together."""

    win: ConvolutionWindow
    bundles: Bundles


class CudaConvTactic(Tactic[ConvWork]):
    """float16, bfloat16 and float32, summed in float32; constant weights, groups of more than one
    channel.
    """

    key = "tactix.cuda_conv@1"
    implements: tuple[str, ...] = ("tactix.Convolution@1", "tactix.WideConvolution@1")
    device = "cuda"
    source = "cuda_c"

    def kind(self, dtype: DType) -> str:
        """How operands of that dtype are multiplied; empty if they are not."""
        return tile.KINDS.get(dtype, "")

    def match(self, node: Node, device: DeviceProperties) -> ConvWork | Reject:
        win = window.window(node)
        if isinstance(win, Reject):
            return win
        if not self.kind(win.dtype):
            return Reject("it takes dtypes that are multiplied in tiles")
        b = bundles(win)
        if win.group > 1 and (win.c == win.group or b.channels * win.dtype.itemsize % 4):
            return Reject("its groups have one channel, or fill no copies of 4 bytes")
        return ConvWork(win, b)

    def variants(self, work: ConvWork, device: DeviceProperties) -> Sequence[Variant] | Reject:
        win, b = work.win, work.bundles
        found = window.formats(win, _source(win))
        if isinstance(found, Reject):
            return found
        outputs = (NHWC,) * len(win.node.outputs)
        sizes = [_sizes(work, s) for s in win.sizes()]
        choices = tile.best(sizes, tile.tiles(self.kind(win.dtype), device), device)
        return [
            Variant.of(found, outputs, **vars(t), split=s, channels=b.channels)
            for t, s in choices
            if s == 1 or b.count == 1 or b.co % WIDTH == 0
        ]

    def cost(self, work: ConvWork, variant: Variant, ctx: CompileContext) -> float | None:
        win, b = work.win, work.bundles
        if not symbols(prod((win.n, *win.size, *win.out))) <= set(ctx.opt):
            return None
        w = _sizes(work, dict(ctx.opt))
        # where channels are padded, a launch before the product reads and writes the image once
        padding = 0.0
        if _is_padded(work):
            elements = evaluate(win.n * win.size[0] * win.size[1], dict(ctx.opt)) * (
                b.channels + win.c
            )
            padding = tile.START + elements * win.dtype.itemsize / tile.BANDWIDTH
        return padding + tile.seconds(w, tile_of(variant), variant.number("split"), ctx.device)

    def compile(self, work: ConvWork, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        return _compile(work, variant, ctx)


class Tf32ConvTactic(CudaConvTactic):
    """float32 with operands rounded to 10 bits of mantissa."""

    key = "tactix.cuda_tf32_conv@1"
    numerics = "tf32"

    def kind(self, dtype: DType) -> str:
        return "tf32" if dtype is DType.FP32 else ""


class IntegerWindowTactic(CudaConvTactic):
    """8-bit integers by signed ones, summed in int32; constant weights."""

    key = "tactix.cuda_integer_windows@1"
    implements = ("tactix.IntegerConvolution@1",)

    def kind(self, dtype: DType) -> str:
        return tile.BYTES.get(dtype, "")


def bundles(win: ConvolutionWindow) -> Bundles:
    """How the groups of a convolution are computed together."""
    if win.group == 1:
        return Bundles(1, 1, _channels(win), win.co)
    inner, outer = win.c // win.group, win.co // win.group
    joined = next(
        (j for j in range(1, win.group) if win.group % j == 0 and outer * j >= JOINED), win.group
    )
    return Bundles(win.group // joined, joined, inner * joined, outer * joined)


def _is_padded(work: ConvWork) -> bool:
    return work.bundles.count * work.bundles.channels != work.win.c


def _channels(win: ConvolutionWindow) -> int:
    """Channels of a pixel of one group as they are read: whole copies of 16 bytes, of 8 where a
    channel is a byte, or four where there are few.
    """
    unit = (
        4 if win.c <= FEW_CHANNELS else 8 if win.dtype.itemsize == 1 else 16 // win.dtype.itemsize
    )
    return -(-win.c // unit) * unit


def _source(win: ConvolutionWindow) -> Format:
    return LINEAR if win.c < FEW_CHANNELS else NHWC


def _sizes(work: ConvWork, size: dict[str, int]) -> ProductSizes:
    """The products that it is, at these sizes."""
    win, b = work.win, work.bundles
    image = evaluate(win.n * win.size[0] * win.size[1], size) * b.channels * b.count
    return ProductSizes(b.count, evaluate(win.pixels, size), b.co, win.taps * b.channels, image)


def pack_weights(win: ConvolutionWindow, b: Bundles, t: BlockTile) -> Packed:
    """(bundles, panels of output channels, stages, output channels, taps and channels of a stage),
    zero outside.
    """
    depth, panels = win.taps * b.channels, -(-b.co // t.cols)
    stages = -(-depth // t.depth)
    each = win.c // win.group * b.joined
    steps: tuple[tuple[str, Any], ...] = (
        ("reshape", (b.count, b.co, each, win.taps)),
        ("transpose", (0, 1, 3, 2)),
        ("pad", ((0, 0), (0, 0), (0, 0), (0, b.channels - each))),
        ("reshape", (b.count, b.co, depth)),
        ("pad", ((0, 0), (0, panels * t.cols - b.co), (0, stages * t.depth - depth))),
        ("reshape", (b.count, panels, t.cols, stages, t.depth)),
        ("transpose", (0, 1, 3, 2, 4)),
    )
    if b.joined == 1:
        return Packed(win.w, steps)
    return Packed(-1, steps, array=lambda given: _apart(given[win.w], b))


def _apart(w: Any, b: Bundles) -> Any:
    """Weights of groups that are computed together, (bundles, groups, groups, output channels, ...)
    from one group to another: zero but from each to itself, so on the diagonal of the two axes. A
    row that is as long as all of them and one more puts each a place behind the last.
    """
    inner = w.shape[1] * math.prod(w.shape[2:])
    own = b.co // b.joined * inner
    rows = np.pad(w.reshape(b.count, b.joined, own), ((0, 0), (0, 0), (0, b.joined * own)))
    flat = rows.reshape(b.count, -1)[:, : b.joined * b.joined * own]
    shape = (b.count, b.joined, b.joined, b.co // b.joined, inner)
    return flat.reshape(shape).transpose(0, 1, 3, 2, 4)


def _compile(work: ConvWork, variant: Variant, ctx: CompileContext) -> KernelArtifact:
    t, win, b = tile_of(variant), work.win, work.bundles
    stages = -(-win.taps * b.channels // t.depth)
    each = b.co if b.count > 1 else 0
    made = Tiled(win.node, t, 1, win.pixels, win.co, stages, variant.number("split"), each)
    e, image = made.entry, win.n * win.size[0] * win.size[1] * (b.channels * t.size)
    padded = _is_padded(work)
    x = e.workspace(made.workspace, f"{ctype(win.dtype)}") if padded else e.input(win.x)
    loaders = [*_windows(win, made, x, b), *_weights(win, made, b)]

    def rows(entry: KernelEntry) -> RowResults:
        turned = window.pointers(win, entry)
        part = each if entry is e else 0
        return RowResults(entry, win.node, win.epi, win.lead, win.co, turned, part)

    texts, launches, entries = made.finish(loaders, t.warp(), rows)
    if not padded:
        return artifact(
            [_geometry(win, b, t), *texts],
            launches,
            entries,
            ctx,
            more=tile.PRELUDES,
            workspace=made.workspace,
        )
    pad = KernelEntry(win.node, PAD_THREADS, "pad")
    first = _pad(pad, win, b.channels, made.workspace, variant.input_format(win.x))
    head = [_geometry(win, b, t), first[0]]
    workspace = made.workspace + image
    return artifact(
        [*head, *texts],
        [first[1], *launches],
        [pad, *entries],
        ctx,
        more=tile.PRELUDES,
        workspace=workspace,
    )


def _geometry(win: ConvolutionWindow, b: Bundles, t: BlockTile) -> str:
    """The constants that tx_windows asks for."""
    values = {
        "CHANNEL": b.channels * t.size,
        "PIXEL": b.channels * b.count * t.size,
        **win.constants(),
        "PAD": window.pad_word(win),
    }
    return (
        block(
            "struct TX_NAME(window)", *(f"static const int {k} = {v};" for k, v in values.items())
        )
        + ";\n"
    )


def _windows(win: ConvolutionWindow, made: Tiled, x: str, b: Bundles) -> list[str]:
    """Declare the loader of windows; of rows where a window is a pixel."""
    t, e, depth = made.tile, made.entry, b.channels * made.tile.size
    piece = next(size for size in (16, 8, 4, 2) if depth % size == 0)
    shape = f"{t.rows}, {t.chunks}, {t.threads}, {piece}"
    own = x if b.count == 1 else f"{x} + group * {b.channels}"
    if win.is_pointwise:
        pitch = f"(int64_t){depth * b.count}, (int64_t){depth}"
        return [f"tx_rows<{shape}> a;", f"a.start({own}, row0, {e.dim(win.pixels)}, {pitch});"]
    sizes = ", ".join(f"(int){e.dim(d)}" for d in (*win.size, *win.out))
    start = f"a.start({own}, row0, {e.dim(win.pixels)}, {sizes});"
    return [f"tx_windows<{shape}, TX_NAME(window)> a;", start]


def _weights(win: ConvolutionWindow, made: Tiled, b: Bundles) -> list[str]:
    """Declare the loader of weights. Tile ``j`` counts the panels of all bundles."""
    t = made.tile
    dtype = win.node.given[win.w].spec.dtype
    w = made.entry.constant("w", pack_weights(win, b, t), dtype)
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
