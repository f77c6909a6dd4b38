"""Convolution of groups without tensor cores: a thread sums some neighbouring columns of an output
row.

Depthwise (each output channel reads one input channel, as many of them): eight channels a thread,
channels last, the taps of a row shared between columns. Other groups: one output channel. Knobs:
``cols`` of a thread, ``channels``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tactix.base.dims import Dim, ceildiv, evaluate, symbols
from tactix.base.tensor import NHWC
from tactix.contracts.artifact import KernelArtifact, Packed
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c.text import block
from tactix_codegen.cuda import window
from tactix_codegen.cuda.entry import KernelEntry, artifact
from tactix_codegen.cuda.results import WIDTH, RowResults
from tactix_codegen.cuda.window import ConvolutionWindow
from tactix_cuda.tactics import tile

THREADS = 128
"""Of a block; chosen by hand. Threads share nothing, so that only whole warps matter."""
BUSY = 512
"""Threads that keep a multiprocessor busy, a quarter of those that it holds; with fewer products
take longer in proportion.
"""
PRODUCTS = 64
"""Products that a multiprocessor makes in a cycle beside their loads: half of what it can (see
``tile.PRODUCTS``). No measurement of it is recorded.
"""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [DirectConvTactic()]


class DirectConvTactic(Tactic[ConvolutionWindow]):
    """float16, bfloat16 and float32, summed in float32; any groups, constant weights, channels
    last.
    """

    key = "tactix.cuda_direct_conv@1"
    implements = ("tactix.Convolution@1", "tactix.WideConvolution@1")
    device = "cuda"
    source = "cuda_c"

    def match(self, node: Node, device: DeviceProperties) -> ConvolutionWindow | Reject:
        win = window.window(node)
        if isinstance(win, Reject) or (win.group != 1 and win.dtype in tile.KINDS):
            return win
        return Reject("this kernel takes groups of a float of up to 32 bits")

    def variants(
        self, win: ConvolutionWindow, device: DeviceProperties
    ) -> Sequence[Variant] | Reject:
        found = window.formats(win, NHWC)
        if isinstance(found, Reject):
            return found
        outputs = (NHWC,) * len(win.node.outputs)
        # columns that share a thread's weights, chosen by hand; no more of them than the next power
        # of two beyond those of a row
        cols = [
            c
            for c in (4, 2, 8, 1)
            if not isinstance(win.out[1], int) or c == 1 or c < 2 * win.out[1]
        ]
        return [Variant.of(found, outputs, cols=c, channels=_channels(win)) for c in cols]

    def cost(self, win: ConvolutionWindow, variant: Variant, ctx: CompileContext) -> float | None:
        elements = win.n * (win.size[0] * win.size[1] * win.c + win.out[0] * win.out[1] * win.co)
        if not symbols(elements) <= set(ctx.opt):
            return None
        # seconds: traffic of x and y, or products, slower where threads are too few to keep all
        # busy
        size, cols = dict(ctx.opt), variant.number("cols")
        work = evaluate(win.pixels, size) * win.co * win.taps * (win.c // win.group)
        threads = evaluate(strip_threads(win, variant), size)
        idle = max(1.0, ctx.device.cores * BUSY / max(1, threads))
        # every further column adds ``strides`` pixels to the taps of the first one: a factor in
        # favour of few columns, of which no measurement is recorded
        reads = 1 + (cols - 1) * win.strides[1] / win.kernel[1] / cols
        products = work * reads / (ctx.device.cores * PRODUCTS) / tile.CLOCK * idle
        seconds: float = tile.START + max(
            evaluate(elements, size) * win.dtype.itemsize / tile.BANDWIDTH, products
        )
        return seconds

    def compile(
        self, win: ConvolutionWindow, variant: Variant, ctx: CompileContext
    ) -> KernelArtifact:
        e = KernelEntry(win.node, THREADS)
        blocks = ceildiv(strip_threads(win, variant), THREADS)
        return artifact([e.kernel(*_body(win, e, variant))], [e.launch(blocks)], [e], ctx)


def _channels(win: ConvolutionWindow) -> int:
    """Output channels of a thread: eight of a depthwise convolution, else one."""
    depthwise = win.group == win.c == win.co
    return next(c for c in (WIDTH, 4, 2, 1) if win.c % c == 0) if depthwise else 1


def strip_threads(win: ConvolutionWindow, v: Variant) -> Dim:
    """Of the launch: one for each strip of columns of an output row, and ``channels`` of it."""
    strips = ceildiv(win.out[1], v.number("cols"))
    return win.n * win.out[0] * strips * (win.co // v.number("channels"))


def by_taps(win: ConvolutionWindow) -> Packed:
    """(input channels of a group, taps, output channels)."""
    inner = win.c // win.group
    steps: tuple[tuple[str, Any], ...] = (
        ("reshape", (win.co, inner, win.taps)),
        ("transpose", (1, 2, 0)),
    )
    return Packed(win.w, steps)


def _body(win: ConvolutionWindow, e: KernelEntry, v: Variant) -> list[str]:
    cols, channels, kind = v.number("cols"), v.number("channels"), win.dtype.value
    rows = RowResults(e, win.node, win.epi, win.lead, win.co, window.pointers(win, e))
    wide = e.dim(win.out[1])
    put = block(
        f"if (begin + j < {wide})",
        "const int64_t row = line + begin + j;",
        "const float* v = sum[j];",
        rows.store(channels),
    )
    return [
        *place(win, e, cols, channels),
        f"float sum[{cols}][{channels}] = {{}};",
        *_taps(win, e, cols, channels, kind),
        f"const int64_t line = ((int64_t)image * {e.dim(win.out[0])} + y) * {wide};",
        "#pragma unroll",
        block(f"for (int j = 0; j < {cols}; j++)", put),
    ]


def place(win: ConvolutionWindow, e: KernelEntry, cols: int, channels: int) -> list[str]:
    """Declare what the thread sums: ``col``, columns from ``begin`` on, row ``y`` of ``image``.

    Neighbouring threads have neighbouring channels, so that a warp reads and writes runs of memory.
    """
    across = win.co // channels
    parts = e.dim(ceildiv(win.out[1], cols))
    return [
        f"const int64_t t = (int64_t)blockIdx.x * {THREADS} + threadIdx.x, strip = t / {across};",
        f"const int col = (int)(t % {across}) * {channels}, "
        f"begin = (int)(strip % {parts}) * {cols};",
        f"const int y = (int)(strip / {parts} % {e.dim(win.out[0])});",
        f"const int64_t image = strip / {parts} / {e.dim(win.out[0])};",
        f"if (image >= {e.dim(win.n)}) return;",
    ]


def _taps(win: ConvolutionWindow, e: KernelEntry, cols: int, channels: int, kind: str) -> list[str]:
    """Add the products of all taps and input channels."""
    x, w = e.input(win.x), e.constant("w", by_taps(win), win.dtype)
    inner, high, wide = win.c // win.group, e.dim(win.size[0]), e.dim(win.size[1])
    (down, across), (dy, dx), (top, left) = win.kernel, win.dilations, win.begins
    source = "col" if win.co == win.c == win.group else f"col / {win.co // win.group} * {inner} + q"
    at = f"{x} + ((image * {high} + iy) * {wide} + ix) * {win.c} + {source}"
    fma = f"for (int k = 0; k < {channels}; k++) sum[j][k] = fmaf(in[k], own[k], sum[j][k]);"
    column = [
        f"const int ix = (begin + j) * {win.strides[1]} - {left} + s * {dx};",
        f"if (ix < 0 || ix >= {wide}) continue;",
        f"float in[{channels}];",
        f"tx_load_{kind}<{channels}>(in, {at});",
        "#pragma unroll",
        fma,
    ]
    tap_of_q = f"((int64_t)q * {win.taps} + r * {across} + s)"
    tap = [
        f"float own[{channels}];",
        f"tx_load_{kind}<{channels}>(own, {w} + {tap_of_q} * {win.co} + col);",
        "#pragma unroll",
        block(f"for (int j = 0; j < {cols}; j++)", *column),
    ]
    row = [
        f"const int iy = y * {win.strides[0]} - {top} + r * {dy};",
        f"if (iy < 0 || iy >= {high}) continue;",
        "#pragma unroll",
        block(f"for (int s = 0; s < {across}; s++)", *tap),
    ]
    return [
        block(
            f"for (int q = 0; q < {inner}; q++)", block(f"for (int r = 0; r < {down}; r++)", *row)
        )
    ]
