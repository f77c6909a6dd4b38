"""Deformable convolution in CUDA: samples of some pixels and weights of some channels come to
shared memory, where a block multiplies them; linear format.

Sums are kept in float32, those of float64 in float64. Every block of channels samples anew.
"""

from __future__ import annotations

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c.text import block
from tactix_codegen.cuda import text
from tactix_codegen.cuda.text import BLOCK, CudaArgs
from tactix_codegen.operations.deform import DeformableWork, deformable_of

_SIDE = 16
"""Threads of a block along pixels and along channels, and weights of a channel that are multiplied
between two barriers.
"""
_PIXELS = 4 * _SIDE
"""Pixels of a block: a thread has four."""
_MOST = 4
"""Channels of a thread at most."""
_PRODUCTS = 5e12
"""Multiplications of a second that ``cost`` takes for granted; no measurement of it is recorded."""
_FAR = 1 << 30
"""An offset that leads out of every image."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CudaDeformableTactic()]


class CudaDeformableTactic(Tactic[DeformableWork]):
    """Floats of 16 bits and more; weights may be inputs."""

    key = "tactix.cuda_deformable@1"
    implements = ("tactix.DeformableConvolution@1",)
    device = "cuda"
    source = "cuda_c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> DeformableWork | Reject:
        if 0 in node.given[1].spec.shape:
            return Reject("the weights are empty")
        if not all(isinstance(d, int) for d in node.given[1].spec.shape):
            return Reject("the size of the weights is not known")
        return deformable_of(node)

    def cost(self, work: DeformableWork, variant: Variant, ctx: CompileContext) -> float | None:
        w, y = work.node.given[1].spec, work.node.outputs[0].spec
        seconds = text.traffic(work.node, variant, ctx)
        if seconds is None:
            return None
        pixels = dims.evaluate(y.shape[0] * y.shape[2] * y.shape[3], ctx.opt)
        return seconds + pixels * dims.evaluate(w.numel, ctx.opt) / _PRODUCTS

    def compile(
        self, work: DeformableWork, variant: Variant, ctx: CompileContext
    ) -> KernelArtifact:
        return _Deformable(work).kernel(ctx)


class _Deformable:
    """The text of one kernel. A block has ``image``, ``group``, and from ``m0`` and ``p0`` on
    channels and pixels.
    """

    def __init__(self, work: DeformableWork) -> None:
        self.work, self.node, self.args = work, work.node, CudaArgs(work.node)
        x, w, y = (v.spec for v in (*self.node.given[:2], self.node.outputs[0]))
        a = self.node.attrs
        self.dtype, self.number = x.dtype, text.number_type(x.dtype)
        self.f = "" if self.dtype is DType.FP64 else "f"
        whole = [d for d in w.shape if isinstance(d, int)]
        results, self.channels, high, self.wide = whole
        self.taps, self.groups, self.results = high * self.wide, a.group, results // a.group
        self.depth = self.channels * self.taps
        self.per_thread = min(_MOST, -(-self.results // _SIDE))
        self.rows = self.per_thread * _SIDE
        self.pixels = y.shape[2] * y.shape[3]
        self.tiles = dims.ceildiv(self.pixels, _PIXELS)
        self.row_tiles = -(-self.results // self.rows)
        self.blocks = y.shape[0] * self.groups * self.row_tiles * self.tiles
        # tiles may reach beyond the pixels
        reach = y.numel + y.shape[0] * self.groups * self.row_tiles * self.rows * _PIXELS
        self.kind = text.index_type(reach, *(v.spec.numel for v in self.node.given))

    def kernel(self, ctx: CompileContext) -> KernelArtifact:
        args = self.args
        sizes = ["", str(self.groups), str(self.row_tiles), args.dim(self.tiles)]
        names = ["image", "group", "rows", "tile"]
        lines = [
            f"const {self.kind} unit = blockIdx.x;",
            f"if (unit >= {args.dim(self.blocks)}) return;",
            text.decode(self.kind, "unit", names, sizes),
            f"const {self.kind} m0 = rows * {self.rows}, p0 = tile * {_PIXELS};",
            f"const int own = threadIdx.x / {_SIDE}, lane = threadIdx.x % {_SIDE};",
            f"__shared__ {self.number} weights[{_SIDE}][{self.rows + 1}];",
            f"__shared__ {self.number} samples[{_SIDE}][{_PIXELS}];",
            block(f"const auto sample = [&](int k, {self.kind} pixel)", *self._sample()) + ";",
            f"{self.number} sum[{self.per_thread}][4] = {{}};",
            block(f"for (int k0 = 0; k0 < {self.depth}; k0 += {_SIDE})", *self._step()),
            *self._stored(),
        ]
        empty = self.node.outputs[0].spec.numel == 0
        return text.kernel(args, [] if empty else lines, ctx, self.blocks)

    def _step(self) -> list[str]:
        """Weights and samples come to shared memory, and are multiplied."""
        place = f"(group * {self.results} + m) * {self.depth} + k"
        weight = text.element(self.dtype, f"{self.args.input(1)}[{place}]")
        pixels = self.args.dim(self.pixels)
        inner = f"sum[i][j] += weights[k][own + i * {_SIDE}] * samples[k][lane + j * {_SIDE}];"
        products = ["#pragma unroll", block("for (int j = 0; j < 4; j++)", inner)]
        products = [
            "#pragma unroll",
            block(f"for (int i = 0; i < {self.per_thread}; i++)", *products),
        ]
        return [
            block(
                f"for (int e = threadIdx.x; e < {self.rows * _SIDE}; e += {BLOCK})",
                f"const int k = k0 + e % {_SIDE};",
                f"const {self.kind} m = m0 + e / {_SIDE};",
                f"{self.number} v = 0;",
                f"if (k < {self.depth} && m < {self.results}) v = {weight};",
                f"weights[e % {_SIDE}][e / {_SIDE}] = v;",
            ),
            block(
                f"for (int e = threadIdx.x; e < {_PIXELS * _SIDE}; e += {BLOCK})",
                f"const int k = k0 + e / {_PIXELS};",
                f"const {self.kind} pixel = p0 + e % {_PIXELS};",
                f"{self.number} v = 0;",
                f"if (k < {self.depth} && pixel < {pixels}) v = sample(k, pixel);",
                f"samples[e / {_PIXELS}][e % {_PIXELS}] = v;",
            ),
            "__syncthreads();",
            block(f"for (int k = 0; k < {_SIDE}; k++)", *products),
            "__syncthreads();",
        ]

    def _sample(self) -> list[str]:
        """The image between elements, where offsets move a tap of a pixel; 0 beyond its ends."""
        x, y, a = self.node.given[0].spec, self.node.outputs[0].spec, self.node.attrs
        strides, dilations = a.strides or (1, 1), a.dilations or (1, 1)
        pads, pixels = a.pads or (0, 0), self.args.dim(self.pixels)
        high, wide = (self.args.dim(d) for d in x.shape[2:])
        each, out_wide = self.groups * self.channels // a.offset_group, self.args.dim(y.shape[3])
        lines = [
            f"const {self.kind} c = group * {self.channels} + k / {self.taps};",
            f"const int tap = k % {self.taps};",
            f"const {self.kind} of = (image * {a.offset_group} + c / {each}) * {self.taps} + tap;",
        ]
        steps = (f"pixel / {out_wide}", f"pixel % {out_wide}")
        taps = (f"tap / {self.wide}", f"tap % {self.wide}")
        for i, r in enumerate(("r", "c")):
            place = f"{self.args.input(2)}[(of * 2 + {i}) * {pixels} + pixel]"
            whole = f"{steps[i]} * {strides[i]} - {self.args.dim(pads[i])}"
            whole += f" + {taps[i]} * {dilations[i]}"
            low = f"({r}_low > -{_FAR} ? ({r}_low < {_FAR} ? (int){r}_low : {_FAR}) : -{_FAR})"
            lines += [
                f"const {self.number} {r}_moved = {text.element(self.dtype, place)};",
                f"const {self.number} {r}_low = floor{self.f}({r}_moved);",
                f"const {self.number} {r}_share = {r}_moved - {r}_low;",
                f"const int64_t {r}_at = (int64_t)({whole}) + {low};",
            ]
        element = f"{self.args.input(0)}[((image * {self.groups * self.channels} + c) * {high}"
        element = text.element(self.dtype, f"{element} + row) * {wide} + column]")
        share = "(i ? r_share : 1 - r_share) * (j ? c_share : 1 - c_share)"
        inside = f"row >= 0 && row < {high} && column >= 0 && column < {wide}"
        corner = [
            "const int64_t row = r_at + i, column = c_at + j;",
            f"if ({inside}) s += {share} * {element};",
        ]
        corners = block("for (int j = 0; j < 2; j++)", *corner)
        corners = block("for (int i = 0; i < 2; i++)", "#pragma unroll", corners)
        result = "s"
        if self.work.mask >= 0:
            place = f"{self.args.input(self.work.mask)}[of * {pixels} + pixel]"
            result = f"s * {text.element(self.dtype, place)}"
        return [*lines, f"{self.number} s = 0;", "#pragma unroll", corners, f"return {result};"]

    def _stored(self) -> list[str]:
        """The sums and the bias to memory."""
        pixels, all_results = self.args.dim(self.pixels), self.groups * self.results
        channel = f"group * {self.results} + m"
        value = "sum[i][j]"
        if self.work.bias >= 0:
            bias = text.element(self.dtype, f"{self.args.input(self.work.bias)}[{channel}]")
            value = f"{value} + {bias}"
        at = f"(image * {all_results} + {channel}) * {pixels} + pixel"
        store = f"{self.args.output(0)}[{at}] = {text.stored(self.dtype, value)};"
        inner = block(
            "for (int j = 0; j < 4; j++)",
            f"const {self.kind} pixel = p0 + lane + j * {_SIDE};",
            f"if (pixel < {pixels}) {store}",
        )
        outer = block(
            f"for (int i = 0; i < {self.per_thread}; i++)",
            f"const {self.kind} m = m0 + own + i * {_SIDE};",
            f"if (m >= {self.results}) continue;",
            "#pragma unroll",
            inner,
        )
        return ["#pragma unroll", outer]
