"""Depthwise convolution in CUDA, nhwc, with pointwise layers behind; f32, f16 and bf16, sums in
float32.

A thread makes some neighbouring columns of an output row for as many channels as 16 bytes hold; an
input pixel is loaded once for all columns that it takes part in. Knob: ``columns``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tactix.base.dims import Dim
from tactix.base.errors import ShapeError
from tactix.base.tensor import NHWC
from tactix.contracts.artifact import KernelArtifact, Packed
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import text as c_text
from tactix_codegen.c.text import block
from tactix_codegen.cuda import fused, text
from tactix_codegen.cuda.fused import Around
from tactix_codegen.cuda.site import OutputSite
from tactix_codegen.cuda.text import CudaArgs
from tactix_cuda.tactics.pool import variant_in
from tactix_cuda.tactics.rows import FLOATS

SHARED = 0.5
"""What ``cost`` adds for taps: a thread of one column loads every pixel for each of its taps, one
of several columns once for all that use it. It puts the knob's choices in order; no measurement of
it is recorded.
"""
UNROLLED = 7
"""Rows of taps up to which the loop over them is unrolled: as many as the kernels of image networks
have.
"""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CudaDepthwiseTactic()]


@dataclass(frozen=True)
class DepthwiseGeometry:
    """Sizes are (rows, columns); one spatial axis gets a first one of size 1. ``w``, ``bias``:
    given inputs, or -1.
    """

    node: Node
    around: Around
    w: int
    bias: int
    size: tuple[Dim, Dim]
    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    pads: tuple[int, int]

    @property
    def is_flat(self) -> bool:
        """Whether there is one spatial axis."""
        return self.around.spec.rank == 3


def geometry(node: Node) -> DepthwiseGeometry | Reject:
    """The geometry of a depthwise node with constant weights; or why this tactic cannot take it."""
    found = fused.around(node, prologue=False)
    if isinstance(found, Reject):
        return found
    assert node.anchor is not None
    a, x = node.anchor.attrs, found.spec
    w, bias = (*found.parameters, -1)[:2]
    if x.rank not in (3, 4) or x.dtype not in FLOATS or node.given[w].const is None:
        return Reject("it takes f32, f16 and bf16, one or two spatial axes and constant weights")
    if not (isinstance(x.shape[1], int) and x.shape[1] == a.group == node.given[w].array.shape[0]):
        return Reject("not depthwise with one output channel for each input channel")
    if found.reads_source:
        return Reject("the input is read again behind the convolution")
    rank = x.rank - 2
    pads = tuple(a.pads)[:rank] or (0,) * rank
    if not all(isinstance(p, int) for p in pads):
        return Reject("pads are not known")

    def two(values: Sequence[Any], default: int = 1) -> Any:
        return (*(default,) * (2 - rank), *(tuple(values) or (default,) * rank))

    size, kernel = two(x.shape[2:]), two(node.given[w].array.shape[2:])
    strides, dilations = two(a.strides), two(a.dilations)
    return DepthwiseGeometry(node, found, w, bias, size, kernel, strides, dilations, two(pads, 0))


class CudaDepthwiseTactic(Tactic[DepthwiseGeometry]):
    """One output channel for each input channel."""

    key = "tactix.cuda_depthwise@1"
    implements = ("tactix.Convolution@1",)
    device = "cuda"
    source = "cuda_c"

    def match(self, node: Node, device: DeviceProperties) -> DepthwiseGeometry | Reject:
        return geometry(node)

    def variants(
        self, g: DepthwiseGeometry, device: DeviceProperties
    ) -> Sequence[Variant] | Reject:
        made = [variant_in(g.node, g.around, NHWC, columns=c) for c in (4, 2, 1)]
        try:
            OutputSite(CudaArgs(g.node), g.around, made[0])
        except ShapeError as e:
            return Reject(e.what)
        # no more columns of a thread than the next power of two beyond those of a row
        width = g.around.shape[-1]
        return [v for v in made if not isinstance(width, int) or v.number("columns") < 2 * width]

    def cost(self, g: DepthwiseGeometry, variant: Variant, ctx: CompileContext) -> float | None:
        seconds = text.traffic(g.node, variant, ctx)
        return None if seconds is None else seconds * (1 + SHARED / variant.number("columns"))

    def compile(
        self, g: DepthwiseGeometry, variant: Variant, ctx: CompileContext
    ) -> KernelArtifact:
        kernel = _Depthwise(CudaArgs(g.node), g, variant)
        body = kernel.body()
        return text.kernel(kernel.args, body, ctx, text.blocks(kernel.site.threads))


class _Depthwise:
    """The text of one kernel."""

    def __init__(self, args: CudaArgs, g: DepthwiseGeometry, variant: Variant) -> None:
        self.args, self.g = args, g
        self.columns = variant.number("columns")
        bias = (args.node.given[g.bias].spec.dtype,) if g.bias >= 0 else ()
        self.dtype = g.around.spec.dtype
        self.site = OutputSite(args, g.around, variant, self.columns, bias)
        self.v, self.last = self.site.width, 0 if g.is_flat else 1
        source = c_text.contiguous_strides(NHWC.storage_shape(g.around.spec.shape))
        self.source = (source[0], 0, *source[1:]) if g.is_flat else source
        self.weights = args.constant("w", self._packed(), self.dtype)

    def _packed(self) -> Packed:
        """Weights as (row tap, column tap, channel)."""
        (rows, columns), channels = self.g.kernel, self.g.around.spec.shape[1]
        steps: tuple[tuple[str, Any], ...] = (
            ("cast", self.dtype.value),
            ("reshape", (channels, rows * columns)),
            ("transpose", (1, 0)),
        )
        return Packed(self.g.w, steps)

    def body(self) -> list[str]:
        g, site, v = self.g, self.site, self.v
        if 0 in (*site.sizes, *g.around.spec.shape):
            return []
        first = text.lanes(v, "bias[k] = 0.0f;")
        if g.bias >= 0:
            spec = self.args.node.given[g.bias].spec
            loads, lane = text.fetch(
                self.args, "b", f"{self.args.input(g.bias)} + c", spec.dtype, 1, v
            )
            first = [*loads, *text.lanes(v, f"bias[k] = {lane};")]
        out = [*site.head(), f"float bias[{v}], acc[{self.columns}][{v}];", *first]
        out += [*self._columns(*text.lanes(v, "acc[m][k] = bias[k];")), self._rows()]
        return [*out, *self._stores()]

    def _stores(self) -> list[str]:
        """Every column that is there."""
        o, size = f"o{self.last}", self.args.dim(self.g.around.shape[-1])
        place = f"const {self.site.kind} {o} = start + m;"
        stores = self.site.finish("acc[m][k]")
        inside = stores if self.columns == 1 else [block(f"if ({o} < {size})", *stores)]
        return [f"const {self.site.kind} start = {o};", *self._columns(place, *inside)]

    def _columns(self, *body: str) -> list[str]:
        return ["#pragma unroll", block(f"for (int m = 0; m < {self.columns}; m++)", *body)]

    def _rows(self) -> str:
        """All taps of all rows."""
        g, kind = self.g, self.site.kind
        row = "0" if g.is_flat else f"o0 * {g.strides[0]} - {g.pads[0]} + i * {g.dilations[0]}"
        inside = f"if (h < 0 || h >= {self.args.dim(g.size[0])}) continue;"
        unrolled = "#pragma unroll\n" if g.kernel[0] <= UNROLLED else ""
        head = f"for (int i = 0; i < {g.kernel[0]}; i++)"
        return unrolled + block(head, f"const {kind} h = {row};", inside, *self._row())

    def _row(self) -> list[str]:
        """One row of taps: weights, then each input column once."""
        g, v, taps = self.g, self.v, self.g.kernel[1]
        channels = self.args.dim(g.around.spec.shape[1])
        out: list[str] = []
        names = []
        for t in range(taps):
            place = f"{self.weights} + (i * {taps} + {t}) * {channels} + c"
            loads, lane = text.fetch(self.args, f"w{t}", place, self.dtype, 1, v)
            out += loads
            names.append(lane)
        users: dict[int, list[tuple[int, int]]] = {}
        for m in range(self.columns):
            for t in range(taps):
                users.setdefault(m * g.strides[1] + t * g.dilations[1], []).append((m, t))
        start = f"o{self.last} * {g.strides[1]} - {g.pads[1]}"
        out.append(f"const {self.site.kind} first = {start};")
        for at, found in sorted(users.items()):
            out.append(self._pixel(at, [(m, names[t]) for m, t in found]))
        return out

    def _pixel(self, at: int, found: Sequence[tuple[int, str]]) -> str:
        """Add the input column ``at`` from the first to the sums that it takes part in."""
        place = f"{self.args.input(0)} + ({self.args.offset(self.source, ['n', 'h', 'l', 'c'])})"
        loads, lane = text.fetch(self.args, "x", place, self.dtype, 1, self.v)
        sums = text.lanes(self.v, *(f"acc[{m}][k] += {lane} * {w};" for m, w in found))
        column = f"const {self.site.kind} l = first + {at};"
        return block(
            "", column, block(f"if (l >= 0 && l < {self.args.dim(self.g.size[1])})", *loads, *sums)
        )
