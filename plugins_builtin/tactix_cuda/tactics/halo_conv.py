"""Convolution of few channels, nhwc, by tensor cores on halos: f16 and bf16, sums in float32; bytes
by signed ones, sums in int32.

Why: tiles of ``conv.py`` read each pixel once for each tap, and of few channels they multiply
little of what they read: 32 channels into 32 of 64 images of 80 x 80 pixels took 80 us on an H200,
of which memory needs 12. Here a block reads a tile's pixels with all that
their windows touch once, and multiplies windows in place (lib/halo.cuh). Weights stay in shared
memory while the block takes one tile after the other.

Knobs: ``down`` and ``across``, pixels of a tile; ``warps`` of a block.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tactix.base.dims import Dim, ceildiv, dmin, evaluate, symbols
from tactix.base.dtypes import DType
from tactix.base.tensor import NHWC
from tactix.contracts.artifact import KernelArtifact, Packed
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c.text import block
from tactix_codegen.cuda import text, window
from tactix_codegen.cuda.entry import KernelEntry, artifact
from tactix_codegen.cuda.results import WIDTH, RowResults
from tactix_codegen.cuda.window import ConvolutionWindow
from tactix_cuda.tactics import tile

CHUNK = 16
"""Bytes of channels, which copies and matrices of ``ldmatrix`` are made of."""
GROUP = 32
"""Outputs of which a thread has eight neighbours."""
MOST_CHANNELS, MOST_OUTPUTS = 64, 64
"""With more, tiles of ``conv.py`` are well filled."""
MOST_TAPS = 25
CHOICES = ((8, 32, 8), (8, 16, 4), (16, 16, 8), (16, 32, 8), (4, 32, 4), (1, 128, 4))
"""Pixels of a tile down and across, and warps; chosen by hand, the last for one spatial axis."""
MOST_SUMS = 64
"""Of a thread: as many registers, beside as many for operands."""
OFFERED = 4
"""Tiles that are offered: each is compiled, checked and timed."""
REGISTERS = 128
"""Of a thread, at most: what blocks that a multiprocessor holds are counted by."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CudaHaloConvTactic(), CudaIntegerHaloConvTactic()]


class CudaHaloConvTactic(Tactic[ConvolutionWindow]):
    """Channels in by 16 bytes and out by eight, at most 64; windows of several pixels; constant
    weights.
    """

    key = "tactix.cuda_halo_conv@1"
    implements: tuple[str, ...] = ("tactix.Convolution@1",)
    device = "cuda"
    source = "cuda_c"

    def takes(self, dtype: DType) -> bool:
        """Whether pixels of that dtype are multiplied."""
        return tile.KINDS.get(dtype) in ("f16", "bf16")

    def match(self, node: Node, device: DeviceProperties) -> ConvolutionWindow | Reject:
        win = window.window(node)
        if isinstance(win, Reject):
            return win
        if not self.takes(win.dtype):
            return Reject("it takes floats of 16 bits, or bytes")
        few = win.c <= MOST_CHANNELS and win.co <= MOST_OUTPUTS
        if win.group != 1 or not few or win.c * win.dtype.itemsize % CHUNK or win.co % WIDTH:
            return Reject(
                f"it takes one group of at most {MOST_CHANNELS} channels, by {CHUNK} bytes"
            )
        if not 1 < win.taps <= MOST_TAPS:
            return Reject(f"it takes windows of 2 to {MOST_TAPS} pixels")
        return win if _choices(win, device) else Reject("no tile fits into shared memory")

    def variants(
        self, win: ConvolutionWindow, device: DeviceProperties
    ) -> Sequence[Variant] | Reject:
        found = window.formats(win, NHWC)
        if isinstance(found, Reject):
            return found
        outputs = (NHWC,) * len(win.node.outputs)
        sizes = win.sizes()
        layouts = sorted(
            _choices(win, device), key=lambda t: sum(_seconds(t, s, device) for s in sizes)
        )
        return [
            Variant.of(found, outputs, down=t.down, across=t.across, warps=t.warps)
            for t in layouts[:OFFERED]
        ]

    def cost(self, win: ConvolutionWindow, variant: Variant, ctx: CompileContext) -> float | None:
        if not symbols(math.prod((win.n, *win.size, *win.out))) <= set(ctx.opt):
            return None
        return _seconds(_layout(win, variant), dict(ctx.opt), ctx.device)

    def compile(
        self, win: ConvolutionWindow, variant: Variant, ctx: CompileContext
    ) -> KernelArtifact:
        layout = _layout(win, variant)
        e = KernelEntry(win.node, layout.threads)
        resident = layout.resident(ctx.device)
        body = _body(e, layout)
        grid = dmin(layout.tiles, max(1, ctx.device.cores) * resident)
        launch = e.launch(grid, layout.shared)
        return artifact(
            [_struct(layout), e.kernel(*body, blocks=resident)],
            [launch],
            [e],
            ctx,
            more=(*tile.PRELUDES, "halo.cuh"),
        )


class CudaIntegerHaloConvTactic(CudaHaloConvTactic):
    """8-bit integers by signed ones, summed in int32, with their zero point around an image."""

    key = "tactix.cuda_integer_halo_conv@1"
    implements = ("tactix.IntegerConvolution@1",)

    def takes(self, dtype: DType) -> bool:
        return dtype in tile.BYTES


class _Layout:
    """How a tile lies in shared memory; the same numbers as lib/halo.cuh has."""

    def __init__(self, win: ConvolutionWindow, down: int, across: int, warps: int) -> None:
        self.win, self.down, self.across, self.warps = win, down, across, warps
        self.threads = 32 * warps
        self.groups = -(-win.co // GROUP)
        self.pixel = win.c * win.dtype.itemsize
        parts = self.pixel // CHUNK
        self.steps = -(-win.taps * parts // 2)
        self.output = (self.steps * 2 + 1) * CHUNK
        high, wide = (
            (size - 1) * stride + (taps - 1) * dilation + 1
            for size, stride, taps, dilation in zip(
                (down, across), win.strides, win.kernel, win.dilations, strict=True
            )
        )
        line = -(-wide // win.strides[1]) * win.strides[1]
        self.halo = -(-high * line * (parts | 1) * CHUNK // 128) * 128
        self.shared = 128 + self.groups * GROUP * self.output + 2 * self.halo
        self.sums = down * across // 16 // warps * self.groups * 16

    @property
    def tiles(self) -> Dim:
        """Of all images."""
        (high, wide), n = self.win.out, self.win.n
        return n * ceildiv(high, self.down) * ceildiv(wide, self.across)

    def resident(self, device: DeviceProperties) -> int:
        """Blocks that a multiprocessor has room for."""
        room = int(device.facts.get("shared_per_multiprocessor", 64 << 10))
        registers = int(device.facts.get("registers_per_multiprocessor", 65536))
        by_shared = room // (self.shared + tile.RESERVED)
        return max(1, min(by_shared, registers // (REGISTERS * self.threads)))


def _choices(win: ConvolutionWindow, device: DeviceProperties) -> list[_Layout]:
    limit = int(device.facts.get("shared_per_block", 48 << 10))
    found = [_Layout(win, *choice) for choice in CHOICES]
    return [t for t in found if t.shared <= limit and t.sums <= MOST_SUMS]


def _layout(win: ConvolutionWindow, variant: Variant) -> _Layout:
    return _Layout(win, *map(variant.number, ("down", "across", "warps")))


def _seconds(t: _Layout, size: dict[str, int], device: DeviceProperties) -> float:
    """An estimate: memory, or the tiles' products, reads of shared memory and halos."""
    win, cores = t.win, max(1, device.cores)
    tiles = evaluate(t.tiles, size)
    elements = evaluate(
        win.n * (win.size[0] * win.size[1] * win.c + win.out[0] * win.out[1] * win.co), size
    )
    pixels = t.down * t.across
    rate = tile.PRODUCTS[_kind(win)] * (tile.ON_HOPPER if device.has("sm_90") else 1.0)
    products = pixels * t.groups * GROUP * t.steps * 2 * CHUNK / win.dtype.itemsize / rate
    # a step's operands: 512 bytes for 16 pixels, and for 16 outputs
    read = (pixels // 16 + t.warps * t.groups * 2) * t.steps * 512
    shared = (read + t.halo) / tile.SHARED_BYTES
    waves = -(-tiles // cores)
    cycles = waves * (max(products, shared) + tile.BARRIER) + tile.LATENCY
    moved = elements * win.dtype.itemsize / tile.BANDWIDTH
    return tile.START + max(moved, cycles / tile.CLOCK)


def _weights(layout: _Layout) -> Packed:
    """(groups, outputs, steps and a chunk of padding): output 8 q + 2 j + e of a group lies in row
    8 j + 2 q + e, so that a thread of ``mma`` has eight neighbours of four tiles.
    """
    win, depth = layout.win, layout.win.taps * layout.win.c
    row = layout.output // win.dtype.itemsize
    steps: tuple[tuple[str, Any], ...] = (
        ("reshape", (win.co, win.c, win.taps)),
        ("transpose", (0, 2, 1)),
        ("reshape", (win.co, depth)),
        ("pad", ((0, layout.groups * GROUP - win.co), (0, row - depth))),
        ("reshape", (layout.groups, 4, 4, 2, row)),
        ("transpose", (0, 2, 1, 3, 4)),
    )
    return Packed(win.w, steps)


def _kind(win: ConvolutionWindow) -> str:
    """How its pixels are multiplied."""
    return (tile.BYTES | tile.KINDS)[win.dtype]


def _struct(layout: _Layout) -> str:
    win = layout.win
    values = {
        "TILE_Y": layout.down,
        "TILE_X": layout.across,
        "WARPS": layout.warps,
        **win.constants(),
        "PIXEL": layout.pixel,
        "PAD": window.pad_word(win),
        "OUTPUTS": win.co,
        "GROUPS": layout.groups,
    }
    about = {
        "TILE_Y": "outputs of a tile",
        "DOWN": "taps of a window",
        "TOP": "pixels of padding",
        "PIXEL": "bytes of its channels",
        "GROUPS": f"of {GROUP} outputs",
    }
    return text.struct("halo", values, about)


def _body(e: KernelEntry, layout: _Layout) -> list[str]:
    win = layout.win
    weights = win.node.given[win.w].spec.dtype
    x, w = e.input(win.x), e.constant("w", _weights(layout), weights)
    rows = RowResults(e, win.node, win.epi, win.lead, win.co, window.pointers(win, e))
    sizes = ", ".join(f"(int){e.dim(d)}" for d in (*win.size, *win.out))
    kind, count = _kind(win), e.dim(layout.tiles)
    sum_ = "int" if win.dtype in tile.BYTES else "float"
    put = block(f"const auto put = [&](int64_t row, int col, const {sum_}* v)", rows.store())
    return [
        "TX_SHARED(memory);",
        f"const tx_halo_images images = {{(const char*){x}, {sizes}}};",
        f"// stores eight results from column col of a pixel on: v, their sums\n{put};",
        f"tx_halo_product<TX_NAME(halo), tx_{kind}>(images, {w}, {count}, memory, put);",
    ]
