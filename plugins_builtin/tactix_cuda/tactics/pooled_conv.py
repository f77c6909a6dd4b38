"""Convolution of few channels and the largest of windows of its results in one kernel, as image
networks begin: f16, bf16 and bytes, by ``mma.sync``.

Why: the first layer of ResNet-50 makes 64 channels of 112 x 112 pixels, which nothing but the
pooling behind it reads: in float16 1.6 MB an image are written and read again, where the image
itself has 0.3 and what is pooled 0.4. Here a block makes the results under a tile of pooled pixels
in shared memory, of pixels that it read once (lib/pooled_conv.cuh). Results on the edges of tiles
are made twice: of 8 x 14 pooled pixels, windows of 3 x 3 and strides of 2 a tenth of all.

Knobs: ``down`` and ``across``, pooled pixels of a tile; ``warps`` of a block; ``each``, how many
times 16 results a warp makes at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tactix.base.dims import Dim, ceildiv, dmin, evaluate, prod, symbols
from tactix.base.dtypes import DType
from tactix.base.tensor import LINEAR, NHWC, Format
from tactix.contracts.artifact import KernelArtifact, Packed
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix.fuse.split import apart
from tactix_codegen.c.text import block
from tactix_codegen.cuda import text, window
from tactix_codegen.cuda.entry import KernelEntry, artifact
from tactix_codegen.cuda.results import WIDTH, RowResults
from tactix_codegen.cuda.window import ConvolutionWindow
from tactix_codegen.operations.pool import PoolWindow, window_of
from tactix_cuda.tactics import tile
from tactix_cuda.tactics.conv import FEW_CHANNELS
from tactix_cuda.tactics.halo_conv import GROUP, OFFERED

QUAD = 4
"""Taps of a line that are multiplied at once, of cells of four channels."""
MOST_OUTPUTS = 64
MOST_TAPS = 64
"""Of a convolution: its steps are unrolled. And of a window that is pooled."""
PART = 16
"""Bytes of a result that a thread pools at once."""
CHOICES = (
    (8, 7, 4, 2),
    (8, 14, 8, 2),
    (7, 14, 7, 2),
    (8, 7, 8, 2),
    (4, 8, 5, 2),
    (4, 4, 6, 1),
)
"""Pooled pixels of a tile down and across, warps, and times 16 results; chosen by hand such that
windows of 3 x 3 by strides of 2, as there are most of, leave little of the last results unused.
Four times 16 results at once took a fifth to a third longer on an H200: fewer warps are resident.
"""
OTHER_REGISTERS = 64
"""Of a thread beside its sums, an assumption: blocks that a multiprocessor holds are counted by."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CudaPooledConvTactic()]


@dataclass(frozen=True)
class CudaPooledConvolution:
    """``win``: the convolution, over the inputs of the whole node; ``pool``: what follows."""

    win: ConvolutionWindow
    pool: PoolWindow

    @property
    def kind(self) -> str:
        """How the pixels are multiplied."""
        return (tile.BYTES | tile.KINDS)[self.win.dtype]

    @property
    def result(self) -> DType:
        """What is pooled."""
        return self.win.node.outputs[0].spec.dtype

    @property
    def reads(self) -> Format:
        return LINEAR if self.win.c < FEW_CHANNELS else NHWC


class CudaPooledConvTactic(Tactic[CudaPooledConvolution]):
    """Up to four channels into at most 64, nothing behind the pooling; constant weights."""

    key = "tactix.cuda_pooled_conv@1"
    implements = ("tactix.MaxPool@1",)
    device = "cuda"
    source = "cuda_c"
    beyond = "examples are single layers, it takes chains"

    def match(self, node: Node, device: DeviceProperties) -> CudaPooledConvolution | Reject:
        if not node.body.is_chain:
            return Reject("no convolution stands before it in the node")
        first, last = apart(node)
        if last.is_fused or node.given[: len(first.given)] != first.given:
            return Reject("this kernel takes nothing behind the pooling")
        win = window.window(first)
        if isinstance(win, Reject):
            return win
        work = CudaPooledConvolution(replace(win, node=node), window_of(last))
        reason = _why_not(work)
        if reason:
            return Reject(reason)
        return work if _choices(work, device) else Reject("no tile fits into shared memory")

    def variants(
        self, work: CudaPooledConvolution, device: DeviceProperties
    ) -> Sequence[Variant] | Reject:
        found = window.formats(work.win, work.reads)
        if isinstance(found, Reject):
            return found
        sizes = work.win.sizes()
        layouts = sorted(
            _choices(work, device), key=lambda t: sum(_seconds(t, s, device) for s in sizes)
        )
        return [
            Variant.of(found, (NHWC,), down=t.down, across=t.across, warps=t.warps, each=t.each)
            for t in layouts[:OFFERED]
        ]

    def cost(
        self, work: CudaPooledConvolution, variant: Variant, ctx: CompileContext
    ) -> float | None:
        if not symbols(prod((work.win.n, *work.win.size, *work.pool.out))) <= set(ctx.opt):
            return None
        return _seconds(_layout(work, variant), dict(ctx.opt), ctx.device)

    def compile(
        self, work: CudaPooledConvolution, variant: Variant, ctx: CompileContext
    ) -> KernelArtifact:
        layout = _layout(work, variant)
        e = KernelEntry(work.win.node, layout.threads)
        resident = layout.resident(ctx.device)
        body = _body(e, layout)
        grid = dmin(layout.tiles, max(1, ctx.device.cores) * resident)
        return artifact(
            [_struct(layout), e.kernel(*body, blocks=resident)],
            [e.launch(grid, layout.shared)],
            [e],
            ctx,
            more=("ptx.cuh", "largest.cuh", "pooled_conv.cuh"),
        )


def _why_not(work: CudaPooledConvolution) -> str:
    """Empty if the kernel takes these, else the reason."""
    win, pool = work.win, work.pool
    if win.dtype not in tile.BYTES and tile.KINDS.get(win.dtype) not in ("f16", "bf16"):
        return "it takes floats of 16 bits, and bytes"
    if work.result not in tile.BYTES and tile.KINDS.get(work.result) not in ("f16", "bf16"):
        return "it pools floats of 16 bits, and bytes"
    few = win.group == 1 and win.c <= FEW_CHANNELS and win.co <= MOST_OUTPUTS
    if not few or win.co * work.result.itemsize % PART or win.co % WIDTH:
        return f"it takes one group of few channels into parts of {PART} bytes"
    if set(win.dilations) | set(pool.dilations) != {1} or pool.rank != len(win.kernel):
        return "it takes windows of neighbours over two axes"
    if max(win.taps, math.prod(pool.kernel)) > MOST_TAPS:
        return f"it takes windows of at most {MOST_TAPS} pixels"
    if not all(isinstance(d, int) for d in pool.before):
        return "it takes constant pads"
    if any(any(o.strides[:-1]) for o in win.epi.operands.values()):
        return "it takes behind the convolution what is the same for all pixels"
    return ""


class _Layout:
    """How a tile lies in shared memory; the same numbers as lib/pooled_conv.cuh has."""

    def __init__(
        self, work: CudaPooledConvolution, down: int, across: int, warps: int, each: int
    ) -> None:
        self.work, self.down, self.across = work, down, across
        self.warps, self.each, self.threads = warps, each, 32 * warps
        win, pool = work.win, work.pool
        size = win.dtype.itemsize
        self.groups = -(-win.co // GROUP)
        self.quads = -(-win.kernel[1] // QUAD)
        self.steps = -(-win.kernel[0] * self.quads * size // 2)
        high, wide = (
            (tile_ - 1) * stride + taps
            for tile_, stride, taps in zip((down, across), pool.strides, pool.kernel, strict=True)
        )
        self.results = high * wide
        in_high = (high - 1) * win.strides[0] + win.kernel[0]
        in_wide = (wide - 1) * win.strides[1] + self.quads * QUAD
        self.pixels = in_high * in_wide
        pixels = size * (-(-self.pixels * QUAD // 128) * 128)
        weights = self.steps * self.groups * GROUP * 32
        self.shared = weights + pixels + self.results * win.co * work.result.itemsize
        self.registers = min(tile.MOST_REGISTERS, self.each * self.groups * 16 + OTHER_REGISTERS)

    @property
    def tiles(self) -> Dim:
        """Of all images."""
        high, wide = self.work.pool.out
        return self.work.win.n * ceildiv(high, self.down) * ceildiv(wide, self.across)

    def resident(self, device: DeviceProperties) -> int:
        """Blocks that a multiprocessor has room for."""
        room = int(device.facts.get("shared_per_multiprocessor", 64 << 10))
        registers = int(device.facts.get("registers_per_multiprocessor", 65536))
        by_shared = room // (self.shared + tile.RESERVED)
        return max(1, min(by_shared, registers // (self.registers * self.threads)))


def _choices(work: CudaPooledConvolution, device: DeviceProperties) -> list[_Layout]:
    limit = int(device.facts.get("shared_per_block", 48 << 10))
    found = [_Layout(work, *choice) for choice in CHOICES]
    return [t for t in found if t.shared <= limit]


def _layout(work: CudaPooledConvolution, variant: Variant) -> _Layout:
    return _Layout(work, *map(variant.number, ("down", "across", "warps", "each")))


def _seconds(t: _Layout, size: dict[str, int], device: DeviceProperties) -> float:
    """An estimate: memory, or the tiles' products and reads of shared memory."""
    win, pool, cores = t.work.win, t.work.pool, max(1, device.cores)
    tiles = evaluate(t.tiles, size)
    read = evaluate(win.n * win.size[0] * win.size[1], size) * win.c * win.dtype.itemsize
    written = evaluate(win.n * prod(pool.out), size) * win.co * t.work.result.itemsize
    times = -(-t.results // (t.warps * t.each * 16))
    made = times * t.warps * t.each  # times 16 results
    rate = tile.PRODUCTS[t.work.kind] * (tile.ON_HOPPER if device.has("sm_90") else 1.0)
    depth = 32 // win.dtype.itemsize
    products = made * 16 * t.groups * GROUP * t.steps * depth / rate
    # bytes of a step: 512 for 16 results, and 256 for eight outputs of each warp
    operands = made * t.steps * (512 + t.groups * 4 * 256 / t.each)
    pooled = t.results * win.co * t.work.result.itemsize * 2
    shared = (operands + pooled + t.pixels * QUAD * win.dtype.itemsize) / tile.SHARED_BYTES
    waves = -(-tiles // (cores * t.resident(device))) * t.resident(device)
    cycles = waves * (max(products, shared) + 2 * tile.BARRIER) + tile.LATENCY
    return tile.START + max((read + written) / tile.BANDWIDTH, cycles / tile.CLOCK)


def _weights(layout: _Layout) -> Packed:
    """(steps, outputs, taps, quads of a step, channels), as a lane's words lie side by side: of
    floats a step has one quad, of bytes two. Output 8 q + 2 j + e of a group lies in row
    8 j + 2 q + e, so that a thread of ``mma`` has eight neighbours of four tiles.
    """
    win, groups = layout.work.win, layout.groups
    down, across = win.kernel
    of_step = 2 // win.dtype.itemsize
    quads, rows = layout.steps * of_step, groups * GROUP
    steps: tuple[tuple[str, Any], ...] = (
        ("reshape", (win.co, win.c, down, across)),
        (
            "pad",
            (
                (0, rows - win.co),
                (0, QUAD - win.c),
                (0, 0),
                (0, layout.quads * QUAD - across),
            ),
        ),
        ("reshape", (groups, 4, 4, 2, QUAD, down * layout.quads, QUAD)),
        ("pad", ((0, 0),) * 5 + ((0, quads - down * layout.quads), (0, 0))),
        ("reshape", (groups, 4, 4, 2, QUAD, layout.steps, of_step, QUAD)),
        ("transpose", (5, 0, 2, 1, 3, 7, 6, 4)),
    )
    return Packed(win.w, steps)


def _struct(layout: _Layout) -> str:
    win, pool = layout.work.win, layout.work.pool
    values = {
        "TILE_Y": layout.down,
        "TILE_X": layout.across,
        "POOL_DOWN": pool.kernel[0],
        "POOL_ACROSS": pool.kernel[1],
        "POOL_STRIDE_Y": pool.strides[0],
        "POOL_STRIDE_X": pool.strides[1],
        "POOL_TOP": int(pool.before[0]),  # type: ignore[arg-type]
        "POOL_LEFT": int(pool.before[1]),  # type: ignore[arg-type]
        **win.constants(),
        "CHANNELS": win.c,
        "LAST": int(not layout.work.reads.is_linear),
        "OUTPUTS": win.co,
        "GROUPS": layout.groups,
        "PAD": win.pad_value,
        "WARPS": layout.warps,
        "EACH": layout.each,
    }
    about = {
        "TILE_Y": "pooled pixels of a tile",
        "POOL_DOWN": "results of a window",
        "DOWN": "taps of a window",
        "TOP": "pixels of padding",
        "LAST": "whether channels lie last",
        "GROUPS": f"of {GROUP} outputs",
        "EACH": "times 16 results at once",
    }
    return text.struct("pooled", values, about)


@dataclass(frozen=True)
class _Held(RowResults):
    """Results into shared memory, from the C variable ``to`` on."""

    def _put(self, output: int, dtype: DType, width: int) -> str:
        if dtype in tile.BYTES:
            kind = self.args.element_type(dtype)
            return f"tx_store_{dtype.value}<{width}>(({kind}*)to, r{output});"
        return f"tx_hold_{dtype.value}(to, r{output});"


def _body(e: KernelEntry, layout: _Layout) -> list[str]:
    work = layout.work
    win, pool = work.win, work.pool
    weights = win.node.given[win.w].spec.dtype
    x, w = e.input(win.x), e.constant("w", _weights(layout), weights)
    rows = _Held(e, win.node, win.epi, win.lead, win.co, window.pointers(win, e))
    sizes = ", ".join(f"(int){e.dim(d)}" for d in (*win.size, *win.out, *pool.out))
    sum_ = "int" if win.dtype in tile.BYTES else "float"
    names = f"TX_NAME(pooled), tx_{work.kind}, tx_largest_{work.result.value}"
    put = block(f"const auto put = [&](char* to, int col, const {sum_}* v)", rows.store())
    tiles = e.dim(layout.tiles)
    return [
        "TX_SHARED(memory);",
        f"const tx_pooled_images images = {{{x}, {sizes}}};",
        f"// stores eight results from column col of a pixel on: v, their sums\n{put};",
        f"tx_pooled_product<{names}>(images, {w}, {e.output(0)}, {tiles}, memory, put);",
    ]
