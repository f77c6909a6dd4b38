"""Any convolution and transposed convolution in CUDA: given weights, one to three axes, groups,
doubles, bytes.

A thread makes some output channels of one pixel, linear format: knob ``channels``. What the kernels
for channels last take is theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tactix.base import dims
from tactix.base.dims import Dim
from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import text as c_text
from tactix_codegen.c.scalar import element
from tactix_codegen.c.text import block
from tactix_codegen.cuda import fused, text, window
from tactix_codegen.cuda.fused import Around
from tactix_codegen.cuda.site import OutputSite
from tactix_codegen.cuda.text import CudaArgs
from tactix_cuda.tactics import tile

CHANNELS = (8, 4, 2, 1)
"""Output channels of a thread that are tried: an input element is loaded once for all of them."""
RATE = 4e12
"""Products per second that estimates assume where all multiprocessors are busy: about a seventh of
what an H200 makes in float32 from registers (132 x 128 a cycle), as each has loads beside it. No
measurement of it is recorded.
"""
RESIDENT = 512
"""Threads that keep a multiprocessor busy; with fewer products take longer in proportion."""
LOAD = 4
"""Products that take as long as loading an element of x, which is done once for all channels of a
thread. No measurement of it is recorded.
"""
SUMS = {DType.FP64: "double", DType.UINT8: "int", DType.INT8: "int"}
DTYPES = (DType.FP32, DType.FP16, DType.BF16, *SUMS)


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [PlainConvTactic()]


@dataclass(frozen=True)
class PlainConvGeometry:
    """Per spatial axis: kernel, stride, dilation, padding before. ``bias``: given input, or -1."""

    node: Node
    around: Around
    turned: bool
    w: int
    bias: int
    group: int
    inner: int
    outer: int
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[Dim, ...]
    pad_value: int


def geometry(node: Node) -> PlainConvGeometry | Reject:
    """The node's geometry; or why this tactic cannot take it."""
    found = fused.around(node, prologue=False)
    if isinstance(found, Reject):
        return found
    assert node.anchor is not None
    a, x, (w, *bias) = node.anchor.attrs, found.spec, found.parameters
    weights, turned = node.given[w].spec, node.anchor.layer.name.endswith("ConvTranspose")
    rank, sizes = x.rank - 2, weights.shape
    if not 1 <= rank <= 3 or x.dtype not in DTYPES or weights.dtype not in DTYPES:
        return Reject(f"this kernel takes one to three spatial axes, not {x} and {weights}")
    if (
        not all(isinstance(d, int) for d in sizes)
        or not isinstance(x.shape[1], int)
        or found.reads_source
    ):
        return Reject(
            "channels or weights are not of known size, or x is read again behind the convolution"
        )
    if not turned and x.dtype in tile.KINDS and not isinstance(window.window(node), Reject):
        return Reject("kernels for channels last take this convolution")
    outer = int(sizes[1]) if turned else int(sizes[0]) // a.group  # type: ignore[arg-type]
    ones = (1,) * rank
    return PlainConvGeometry(
        node,
        found,
        turned,
        w,
        bias[0] if bias else -1,
        a.group,
        x.shape[1] // a.group,
        outer,
        tuple(int(d) for d in sizes[2:]),  # type: ignore[arg-type]
        tuple(a.strides) or ones,
        tuple(a.dilations) or ones,
        tuple(a.pads)[:rank] or (0,) * rank,
        getattr(a, "pad_value", 0),
    )


class PlainConvTactic(Tactic[PlainConvGeometry]):
    """f32, f16, bf16, f64, summed in float32 or float64; 8-bit integers, summed in int32."""

    key = "tactix.cuda_plain_conv@1"
    implements = tuple(
        f"tactix.{n}@1"
        for n in (
            "Convolution",
            "WideConvolution",
            "ConvTranspose",
            "WideConvTranspose",
            "IntegerConvolution",
        )
    )
    device = "cuda"
    source = "cuda_c"

    def match(self, node: Node, device: DeviceProperties) -> PlainConvGeometry | Reject:
        return geometry(node)

    def variants(self, g: PlainConvGeometry, device: DeviceProperties) -> Sequence[Variant]:
        return [Variant.of(channels=c) for c in CHANNELS if g.outer % c == 0]

    def cost(self, g: PlainConvGeometry, variant: Variant, ctx: CompileContext) -> float | None:
        seconds = text.traffic(g.node, variant, ctx)
        work: Dim = dims.prod(g.around.spec.shape if g.turned else g.around.shape)
        taps = dims.prod(g.kernel) * (g.outer if g.turned else g.inner)
        if seconds is None or not dims.symbols(work) <= set(ctx.opt):
            return None
        # seconds: traffic, and products beside it, slower where threads are too few
        threads = dims.evaluate(dims.prod(g.around.shape), ctx.opt) / variant.number("channels")
        idle = max(1.0, ctx.device.cores * RESIDENT / max(1.0, threads))
        reads = 1 + LOAD / variant.number("channels")
        return seconds + dims.evaluate(work * taps, ctx.opt) * idle * reads / RATE

    def compile(
        self, g: PlainConvGeometry, variant: Variant, ctx: CompileContext
    ) -> KernelArtifact:
        writer = _Writer(CudaArgs(g.node), g, variant)
        body = writer.body()
        return text.kernel(writer.args, body, ctx, text.blocks(writer.threads))


class _Writer:
    """The text of one kernel. Names: ``n``, ``c`` (the first of a thread's channels ``c0``),
    ``o0``.. output pixel.
    """

    def __init__(self, args: CudaArgs, g: PlainConvGeometry, variant: Variant) -> None:
        self.args, self.g, self.rank, self.channels = (
            args,
            g,
            len(g.kernel),
            variant.number("channels"),
        )
        self.site = OutputSite(args, g.around, variant)
        n, c, *spatial = g.around.shape
        self.sizes: list[Dim] = [n, dims.floordiv(c, self.channels), *spatial]
        self.threads: Dim = dims.prod(self.sizes)
        self.wide = SUMS.get(g.around.spec.dtype, "float")

    def body(self) -> list[str]:
        g, kind = self.g, self.site.kind
        if 0 in (*g.around.spec.shape, *g.around.shape):
            return [] if 0 in g.around.shape else [*self._head(), self._finish()]
        head = [
            *self._head(),
            f"const {kind} group = c0 / {g.outer};",
            f"{self.wide} sum[{self.channels}] = {{}};",
        ]
        return [*head, self._taps(), self._finish()]

    def _head(self) -> list[str]:
        kind = self.site.kind
        names = ["n", "cs", *(f"o{i}" for i in range(self.rank))]
        sizes = [self.args.dim(s) for s in self.sizes]
        decoded = text.decode(kind, "t", names, sizes)
        return [
            *text.flat(self.args, kind, self.threads),
            decoded,
            f"const {kind} c0 = cs * {self.channels};",
        ]

    def _taps(self) -> str:
        """Loops over the taps around those over input channels."""
        g = self.g
        inside = " && ".join(self._inside(i) for i in range(self.rank))
        body = [
            f"const bool inside = {inside};",
            *([] if g.pad_value else ["if (!inside) continue;"]),
            *self._products(),
        ]
        loops = "\n".join(body)
        for i in reversed(range(self.rank)):
            loops = block(
                f"for (int k{i} = 0; k{i} < {g.kernel[i]}; k{i}++)", *self._place(i), loops
            )
        return loops

    def _place(self, i: int) -> list[str]:
        """Declare ``h<i>``, the input element that tap ``k<i>`` meets."""
        g, kind, pad = self.g, self.site.kind, self.args.dim(self.g.pads[i])
        if not g.turned:
            return [f"const {kind} h{i} = o{i} * {g.strides[i]} - {pad} + k{i} * {g.dilations[i]};"]
        met = f"m{i} = o{i} + {pad} - k{i} * {g.dilations[i]}"
        return [f"const {kind} {met}, h{i} = m{i} / {g.strides[i]};"]

    def _inside(self, i: int) -> str:
        size = self.args.dim(self.g.around.spec.shape[2 + i])
        if not self.g.turned:
            return f"h{i} >= 0 && h{i} < {size}"
        return f"m{i} >= 0 && m{i} % {self.g.strides[i]} == 0 && h{i} < {size}"

    def _products(self) -> list[str]:
        g, node = self.g, self.args.node
        taps = dims.prod(g.kernel)
        tap = "0"
        for i in range(self.rank):
            tap = f"({tap}) * {g.kernel[i]} + k{i}"
        strides = c_text.contiguous_strides(g.around.spec.shape)
        names = ["n", f"(group * {g.inner} + q)", *(f"h{i}" for i in range(self.rank))]
        x = element(
            g.around.spec.dtype,
            f"{self.args.input(self._source())}[{self.args.offset(strides, names)}]",
        )
        if g.pad_value:
            x = f"inside ? {x} : ({self.wide}){g.pad_value}"
        first = (
            f"(group * {g.inner} + q) * {g.outer} + c0 - group * {g.outer} + j"
            if g.turned
            else (f"(c0 + j) * {g.inner} + q")
        )
        w = element(node.given[g.w].spec.dtype, f"{self.args.input(g.w)}[({first}) * {taps} + tap]")
        add = f"for (int j = 0; j < {self.channels}; j++) sum[j] += x * {w};"
        inner = [f"const {self.wide} x = {x};", "#pragma unroll", add]
        return [
            f"const int tap = {tap};",
            "#pragma unroll 4",
            block(f"for ({self.site.kind} q = 0; q < {g.inner}; q++)", *inner),
        ]

    def _source(self) -> int:
        """The given input that is x."""
        assert self.args.node.anchor is not None
        return self.args.node.anchor.inputs[0]

    def _finish(self) -> str:
        g = self.g
        value = "sum[j]" if 0 not in g.around.spec.shape else "0"
        if g.bias >= 0:
            bias = element(self.args.node.given[g.bias].spec.dtype, f"{self.args.input(g.bias)}[c]")
            value = f"{value} + {bias}"
        results: list[Any] = [f"const {self.site.kind} c = c0 + j;", *self.site.finish(value)]
        return "#pragma unroll\n" + block(f"for (int j = 0; j < {self.channels}; j++)", *results)
