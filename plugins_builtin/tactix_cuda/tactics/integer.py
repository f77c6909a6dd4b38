"""Products and convolutions of 8-bit integers in CUDA, summed in int32 four at a time (dp4a),
channels last.

Output pixels, or rows, times output channels are cut into tiles of 64 x 64; constant weights are
packed for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tactix.base.dims import Dim, ceildiv, evaluate, symbols
from tactix.base.dtypes import DType
from tactix.base.tensor import NHWC
from tactix.contracts.artifact import KernelArtifact, Packed
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c.text import block
from tactix_codegen.cuda import results, window
from tactix_codegen.cuda.entry import KernelEntry, artifact
from tactix_codegen.cuda.product import CudaProduct, product
from tactix_codegen.cuda.results import RowResults
from tactix_codegen.cuda.window import ConvolutionWindow
from tactix_cuda.tactics import tile

TILE, THREADS = 64, 256
"""Rows, columns and bytes of k of a tile, by 16 x 16 threads with 4 x 4 sums each; a thread loads
16 bytes of a row of each operand for a stage (``tx_integer_tile``).
"""
RATE = 150
"""Products per cycle of a multiprocessor that estimates assume, four of them by one dp4a. No
measurement of it is recorded.
"""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [IntegerConvTactic(), IntegerProductTactic()]


@dataclass(frozen=True)
class Sums:
    """What a tile sums over: ``depth`` bytes of each of ``count`` rows and of ``n`` columns."""

    count: Dim
    n: int
    depth: int
    piece: int

    @property
    def stages(self) -> int:
        return -(-self.depth // TILE)

    @property
    def tiles(self) -> Dim:
        """Blocks: tiles of TILE rows by TILE columns."""
        return ceildiv(self.count, TILE) * (-(-self.n // TILE))

    def packed(self, index: int, steps: tuple[tuple[str, Any], ...]) -> Packed:
        """``steps`` give (n, depth); padded to whole tiles."""
        pad = ((0, -self.n % TILE), (0, -self.depth % TILE))
        return Packed(index, (*steps, ("pad", pad)))

    def seconds(self, ctx: CompileContext) -> float | None:
        if not symbols(self.tiles) <= set(ctx.opt):
            return None
        blocks, cores = evaluate(self.tiles, ctx.opt), max(1, ctx.device.cores)
        # one tile on a multiprocessor at a time: TILE ** 3 products a stage, one wait a tile
        waves = -(-blocks // cores)
        return tile.START + waves * (self.stages * TILE**3 / RATE + tile.LATENCY) / tile.CLOCK


def _piece(depth: int) -> int | None:
    """Bytes of a row that one access loads."""
    return next((p for p in (16, 8, 4) if depth % p == 0), None)


@dataclass(frozen=True)
class IntegerConvWork:
    """A convolution, and its tiles."""

    window: ConvolutionWindow
    sums: Sums


@dataclass(frozen=True)
class IntegerProductWork:
    """A product, and its tiles."""

    product: CudaProduct
    sums: Sums


class IntegerConvTactic(Tactic[IntegerConvWork]):
    """One or two spatial axes, one group, a multiple of four input channels."""

    key = "tactix.cuda_integer_conv@1"
    implements = ("tactix.IntegerConvolution@1",)
    device = "cuda"
    source = "cuda_c"

    def match(self, node: Node, device: DeviceProperties) -> IntegerConvWork | Reject:
        win = window.window(node)
        if isinstance(win, Reject):
            return win
        piece = _piece(win.c)
        if win.group != 1 or piece is None:
            return Reject("this kernel takes one group and channels in fours")
        return IntegerConvWork(win, Sums(win.pixels, win.co, win.c * win.taps, piece))

    def variants(
        self, work: IntegerConvWork, device: DeviceProperties
    ) -> Sequence[Variant] | Reject:
        found, outputs = window.formats(work.window, NHWC), work.window.node.outputs
        return found if isinstance(found, Reject) else [Variant.of(found, (NHWC,) * len(outputs))]

    def cost(self, work: IntegerConvWork, variant: Variant, ctx: CompileContext) -> float | None:
        return work.sums.seconds(ctx)

    def compile(
        self, work: IntegerConvWork, variant: Variant, ctx: CompileContext
    ) -> KernelArtifact:
        win, sums = work.window, work.sums
        e = KernelEntry(win.node, THREADS)
        steps: tuple[tuple[str, Any], ...] = (
            ("reshape", (win.co, win.c, win.taps)),
            ("transpose", (0, 2, 1)),
            ("reshape", (win.co, sums.depth)),
        )
        rows = RowResults(e, win.node, win.epi, win.lead, win.co, window.pointers(win, e))
        weights = e.constant("w", sums.packed(win.w, steps), DType.INT8)
        load = [*_pixel(win, e), *_load_pixels(win, e, sums)]
        body = _body(e, sums, win.dtype, load, weights, rows)
        return artifact(
            [e.kernel(*body)], [e.launch(sums.tiles)], [e], ctx, more=("dp4a.cuh", "integer.cuh")
        )


class IntegerProductTactic(Tactic[IntegerProductWork]):
    """A constant right matrix for all, a multiple of four bytes deep."""

    key = "tactix.cuda_integer_product@1"
    implements = ("tactix.IntegerMatMul@1",)
    device = "cuda"
    source = "cuda_c"

    def match(self, node: Node, device: DeviceProperties) -> IntegerProductWork | Reject:
        p = product(node)
        if isinstance(p, Reject):
            return p
        sums = _sums_of_rows(p)
        if sums is None:
            return Reject("this kernel takes one constant matrix, a multiple of four deep")
        reason = results.why_not(p.epi)
        return Reject(reason) if reason else IntegerProductWork(p, sums)

    def cost(self, work: IntegerProductWork, variant: Variant, ctx: CompileContext) -> float | None:
        return work.sums.seconds(ctx)

    def compile(
        self, work: IntegerProductWork, variant: Variant, ctx: CompileContext
    ) -> KernelArtifact:
        p, sums = work.product, work.sums
        e = KernelEntry(p.node, THREADS)
        turned: tuple[tuple[str, Any], ...] = (("reshape", (sums.n, sums.depth)),)
        plain: tuple[tuple[str, Any], ...] = (
            ("reshape", (sums.depth, sums.n)),
            ("transpose", (1, 0)),
        )
        weights = e.constant(
            "w", sums.packed(p.b.index, turned if p.b.turned else plain), DType.INT8
        )
        count = e.dim(sums.count)
        load = _load(
            sums,
            [f"const bool ok = k < {sums.depth} && own < {count};"],
            f"(const char*){e.input(p.a.index)} + own * {sums.depth} + k",
            "0",
        )
        rows = RowResults(e, p.node, p.epi, p.lead, p.n)
        body = _body(e, sums, p.dtype, load, weights, rows)
        return artifact(
            [e.kernel(*body)], [e.launch(sums.tiles)], [e], ctx, more=("dp4a.cuh", "integer.cuh")
        )


def _sums_of_rows(p: CudaProduct) -> Sums | None:
    """The tiles of one constant matrix, a multiple of four deep; None of others."""
    if p.batch or p.a.turned or not p.can_pack:
        return None
    n, k = (evaluate(d, {}) for d in (p.n, p.k))
    piece = _piece(k)
    return Sums(p.m, n, k, piece) if piece else None


def _pixel(win: ConvolutionWindow, e: KernelEntry) -> list[str]:
    """Declare where the window of this thread's row begins."""
    high, wide = (e.dim(d) for d in win.out)
    return [
        f"const int64_t image = own / {wide} / {high};",
        f"const int top = (int)(own / {wide} % {high}) * {win.strides[0]} - {win.begins[0]};",
        f"const int left = (int)(own % {wide}) * {win.strides[1]} - {win.begins[1]};",
    ]


def _load_pixels(win: ConvolutionWindow, e: KernelEntry, sums: Sums) -> list[str]:
    high, wide = (e.dim(d) for d in win.size)
    across, count = win.kernel[1], e.dim(sums.count)
    place = [
        f"const int tap = k / {win.c}, c = k % {win.c};",
        f"const int iy = top + tap / {across} * {win.dilations[0]}, "
        f"ix = left + tap % {across} * {win.dilations[1]};",
        f"const bool ok = k < {sums.depth} && own < {count} "
        f"&& iy >= 0 && iy < {high} && ix >= 0 && ix < {wide};",
    ]
    pointer = f"(const char*){e.input(win.x)} + ((image * {high} + iy) * {wide} + ix) * {win.c} + c"
    pad = (win.pad_value & 255) * 0x01010101
    return _load(sums, place, pointer, f"(int){pad:#x}")


def _load(sums: Sums, place: Sequence[str], pointer: str, none: str) -> list[str]:
    """The function that loads 16 bytes of a row, ``piece`` at a time; ``none``: a word where there
    is nothing.
    """
    words = sums.piece // 4
    take = [
        f"struct alignas({sums.piece}) piece {{ int w[{words}]; }} got;",
        f"if (ok) got = *(const piece*)({pointer});",
    ]
    put = f"for (int j = 0; j < {words}; j++) to.w[i * {words} + j] = ok ? got.w[j] : {none};"
    body = block(
        f"for (int i = 0; i < {4 // words}; i++)",
        f"const int k = stage * {TILE} + (int)threadIdx.x % 4 * 16 + i * {sums.piece};",
        *place,
        *take,
        "#pragma unroll",
        put,
    )
    return [block("const auto load = [&](int stage, tx_words& to)", "#pragma unroll", body) + ";"]


def _body(
    e: KernelEntry, sums: Sums, dtype: DType, load: Sequence[str], weights: str, rows: RowResults
) -> list[str]:
    """All statements; ``load`` declares the function of that name for row ``own``."""
    across = -(-sums.n // TILE)
    row_of_b = f"(int64_t)(side + (int)threadIdx.x / 4) * {sums.stages * TILE}"
    of_b = f"*(const tx_words*)({weights} + {row_of_b}"
    made = f"tx_integer_tile(sum, {sums.stages}, tx_dp4a_{dtype.value}, load"
    return [
        f"const int64_t begin = blockIdx.x / {across} * (int64_t){TILE}, "
        "own = begin + threadIdx.x / 4;",
        f"const int side = blockIdx.x % {across} * {TILE};",
        *load,
        "int sum[4][4] = {};",
        f"{made}, [&](int stage, tx_words& to) {{",
        f"    to = {of_b} + stage * {TILE} + threadIdx.x % 4 * 16);",
        "});",
        "const int col = side + threadIdx.x % 16 * 4;",
        "#pragma unroll",
        block(
            "for (int i = 0; i < 4; i++)",
            "const int64_t row = begin + threadIdx.x / 16 * 4 + i;",
            f"if (row >= {e.dim(sums.count)}) break;",
            "const int* v = sum[i];",
            rows.store(4),
        ),
    ]
