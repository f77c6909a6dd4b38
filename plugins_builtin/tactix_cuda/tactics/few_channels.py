"""Convolution of few channels into few, as the first one of a small image network, without tensor
cores: a thread sums ``channels`` outputs of ``cols`` neighbouring pixels.

Why: such a convolution is bound by memory, and tiles of tensor cores are mostly empty there. Of 640
x 640 pixels of three channels into 16 (3 x 3, steps of 2) these took 17 us on an H200, of which
memory needs 3. Weights lie in shared memory in float32, where all threads read the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from tactix.base.dims import ceildiv, evaluate, symbols
from tactix.base.tensor import LINEAR, NHWC
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c.text import block
from tactix_codegen.cuda import window
from tactix_codegen.cuda.entry import STATIC_SHARED, KernelEntry, artifact
from tactix_codegen.cuda.results import RowResults
from tactix_codegen.cuda.window import ConvolutionWindow
from tactix_cuda.tactics import tile
from tactix_cuda.tactics.conv import FEW_CHANNELS
from tactix_cuda.tactics.direct_conv import PRODUCTS, THREADS, by_taps, place, strip_threads
from tactix_cuda.tactics.rows import FLOATS

MOST_OUTPUTS = 64
"""Output channels: with more, tensor cores are well filled."""
CHOICES = ((2, 16), (4, 8), (1, 16), (2, 32), (4, 16), (2, 8))
"""Pixels and channels of a thread, whose sums are its registers."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CudaFewChannelsTactic()]


class CudaFewChannelsTactic(Tactic[ConvolutionWindow]):
    """float16, bfloat16 and float32, summed in float32; from linear to channels last."""

    key = "tactix.cuda_few_channels_conv@1"
    implements = ("tactix.Convolution@1", "tactix.WideConvolution@1")
    device = "cuda"
    source = "cuda_c"

    def match(self, node: Node, device: DeviceProperties) -> ConvolutionWindow | Reject:
        win = window.window(node)
        if isinstance(win, Reject):
            return win
        few = win.group == 1 and win.c <= FEW_CHANNELS and win.co <= MOST_OUTPUTS
        if not few or _shared(win) > STATIC_SHARED or win.dtype not in FLOATS:
            return Reject("this kernel takes one group of few channels of a float of up to 32 bits")
        return win if _choices(win) else Reject("output channels come by eight")

    def variants(
        self, win: ConvolutionWindow, device: DeviceProperties
    ) -> Sequence[Variant] | Reject:
        found = window.formats(win, LINEAR)
        if isinstance(found, Reject):
            return found
        outputs = (NHWC,) * len(win.node.outputs)
        return [Variant.of(found, outputs, cols=c, channels=n) for c, n in _choices(win)]

    def cost(self, win: ConvolutionWindow, variant: Variant, ctx: CompileContext) -> float | None:
        elements = win.n * (win.size[0] * win.size[1] * win.c + win.out[0] * win.out[1] * win.co)
        if not symbols(elements) <= set(ctx.opt):
            return None
        size = dict(ctx.opt)
        moved = evaluate(elements, size) * win.dtype.itemsize / tile.BANDWIDTH
        products = evaluate(win.pixels, size) * win.co * win.taps * win.c
        # each block brings the weights into its shared memory
        blocks = -(-evaluate(strip_threads(win, variant), size) // THREADS)
        cycles = products / PRODUCTS + blocks * _shared(win) / 4 / THREADS * 2
        # a product needs its weight once for all pixels of the thread
        cycles *= 1 + 1 / variant.number("cols") / 4
        seconds: float = tile.START + max(moved, cycles / max(1, ctx.device.cores) / tile.CLOCK)
        return seconds

    def compile(
        self, win: ConvolutionWindow, variant: Variant, ctx: CompileContext
    ) -> KernelArtifact:
        e = KernelEntry(win.node, THREADS)
        blocks = ceildiv(strip_threads(win, variant), THREADS)
        return artifact([e.kernel(*_body(win, e, variant))], [e.launch(blocks)], [e], ctx)


def _choices(win: ConvolutionWindow) -> list[tuple[int, int]]:
    return [(cols, channels) for cols, channels in CHOICES if win.co % channels == 0]


def _shared(win: ConvolutionWindow) -> int:
    """Bytes of all weights in float32."""
    return win.c * win.taps * win.co * 4


def _body(win: ConvolutionWindow, e: KernelEntry, v: Variant) -> list[str]:
    cols, channels = v.number("cols"), v.number("channels")
    rows = RowResults(e, win.node, win.epi, win.lead, win.co, window.pointers(win, e))
    wide = e.dim(win.out[1])
    put = block(
        f"for (int k = 0; k < {channels}; k += 8)",
        "const int col = from + k;",
        "const float* v = sum[j] + k;",
        rows.store(),
    )
    return [
        *_weights(win, e),
        *place(win, e, cols, channels),
        "const int from = col;",
        f"float sum[{cols}][{channels}] = {{}};",
        _products(win, e, cols, channels),
        f"const int64_t line = ((int64_t)image * {e.dim(win.out[0])} + y) * {wide};",
        "#pragma unroll",
        block(
            f"for (int j = 0; j < {cols}; j++)",
            f"if (begin + j >= {wide}) break;",
            "const int64_t row = line + begin + j;",
            "#pragma unroll",
            put,
        ),
    ]


def _weights(win: ConvolutionWindow, e: KernelEntry) -> list[str]:
    """All weights into shared memory, as (input channels, taps, output channels)."""
    w, count = e.constant("w", by_taps(win), win.dtype), win.c * win.taps * win.co
    load = f"tx_load_{win.dtype.value}<1>(weights + i, {w} + i);"
    return [
        f"alignas(16) __shared__ float weights[{count}];",
        block(f"for (int i = threadIdx.x; i < {count}; i += {THREADS})", load),
        "__syncthreads();",
    ]


def _products(win: ConvolutionWindow, e: KernelEntry, cols: int, channels: int) -> str:
    """Add the products of all taps and input channels."""
    x, high, wide = e.input(win.x), e.dim(win.size[0]), e.dim(win.size[1])
    (down, across), (dy, dx), (top, left) = win.kernel, win.dilations, win.begins
    line = f"{x} + (((int64_t)image * {win.c} + q) * {high} + iy) * {wide}"
    tap = [
        f"const float* own = weights + ((q * {down} + r) * {across} + s) * {win.co} + from;",
        "#pragma unroll",
        block(
            f"for (int j = 0; j < {cols}; j++)",
            f"const int ix = (begin + j) * {win.strides[1]} - {left} + s * {dx};",
            "float in = 0.0f;",
            f"if (ix >= 0 && ix < {wide}) tx_load_{win.dtype.value}<1>(&in, line + ix);",
            "#pragma unroll",
            f"for (int k = 0; k < {channels}; k++) sum[j][k] = fmaf(in, own[k], sum[j][k]);",
        ),
    ]
    row = [
        f"const int iy = y * {win.strides[0]} - {top} + r * {dy};",
        f"if (iy < 0 || iy >= {high}) continue;",
        f"const auto* line = {line};",
        "#pragma unroll",
        block(f"for (int s = 0; s < {across}; s++)", *tap),
    ]
    return block(
        f"for (int q = 0; q < {win.c}; q++)", block(f"for (int r = 0; r < {down}; r++)", *row)
    )
