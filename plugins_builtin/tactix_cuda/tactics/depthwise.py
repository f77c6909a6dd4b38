"""Depthwise convolution in CUDA, nhwc, with pointwise layers behind; f32, f16 and bf16, sums in
float32.

A thread makes some neighbouring columns of an output row for as many channels as 16 bytes hold; an
input pixel is loaded once for all columns that it takes part in. Where ``apart``, it does so for
one row of taps, and a block adds what its rows make: small images fill a GPU then, and a thread
waits for memory once. Knobs: ``columns``, ``apart``.
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
from tactix_cuda.tactics.rows import FLOATS

SHARED = 0.5
"""What ``cost`` adds for taps: a thread of one column loads every pixel for each of its taps, one
of several columns once for all that use it. It puts the knob's choices in order; no measurement of
it is recorded.
"""
ROW = 0.35e-6
"""Seconds of a row of taps, whose loads wait for memory together: some 600 cycles of 1.7 GHz."""
FEWEST, MOST = 3, 16
"""Rows of taps that a block takes apart: it has 512 threads at most."""
PARTS = 48
"""Rows of taps times columns whose sums fit into 48 KiB of shared memory: of eight channels, of 32
strips, 4 bytes each.
"""
LANES = 32
"""Strips of columns of a block whose rows are ``apart``: a warp for each row."""
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
        choices = [(4, 0), (2, 0), (1, 0)]
        if FEWEST <= g.kernel[0] <= MOST:
            choices += [(c, 1) for c in (4, 2) if c * g.kernel[0] <= PARTS]
        made = [fused.variant_in(g.node, g.around, NHWC, columns=c, apart=a) for c, a in choices]
        try:
            OutputSite(CudaArgs(g.node), g.around, made[0])
        except ShapeError as e:
            return Reject(e.what)
        # no more columns of a thread than the next power of two beyond those of a row
        width = g.around.shape[-1]
        return [v for v in made if not isinstance(width, int) or v.number("columns") < 2 * width]

    def cost(self, g: DepthwiseGeometry, variant: Variant, ctx: CompileContext) -> float | None:
        seconds = text.traffic(g.node, variant, ctx)
        if seconds is None:
            return None
        waits = 2 if variant.number("apart") else g.kernel[0]  # for the others' sums, too
        return seconds * (1 + SHARED / variant.number("columns")) + waits * ROW

    def compile(
        self, g: DepthwiseGeometry, variant: Variant, ctx: CompileContext
    ) -> KernelArtifact:
        kernel = _Depthwise(CudaArgs(g.node), g, variant)
        body, threads = kernel.body(), kernel.site.threads
        if not variant.number("apart"):
            return text.kernel(kernel.args, body, ctx, text.blocks(threads))
        grid = text.blocks(threads, LANES)
        return text.kernel(kernel.args, body, ctx, grid, threads=LANES * g.kernel[0])


class _Depthwise:
    """The text of one kernel."""

    def __init__(self, args: CudaArgs, g: DepthwiseGeometry, variant: Variant) -> None:
        self.args, self.g = args, g
        self.columns, self.apart = variant.number("columns"), bool(variant.number("apart"))
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
        if self.apart:
            return self._apart()
        out = [*site.head(), *self._bias(), f"float acc[{self.columns}][{v}];"]
        out += [*self._columns(*text.lanes(v, "acc[m][k] = bias[k];")), self._rows()]
        return [*out, *self._stores()]

    def _bias(self) -> list[str]:
        """Declare what sums begin with."""
        g, v = self.g, self.v
        if g.bias < 0:
            return [f"float bias[{v}] = {{}};"]
        spec = self.args.node.given[g.bias].spec
        place = f"{self.args.input(g.bias)} + c"
        loads, lane = text.fetch(self.args, "b", place, spec.dtype, 1, v)
        return [f"float bias[{v}];", *loads, *text.lanes(v, f"bias[k] = {lane};")]

    def _apart(self) -> list[str]:
        """A warp for each row of taps of 32 strips; then it adds its share of the columns."""
        site, v, rows, kind = self.site, self.v, self.g.kernel[0], self.site.kind
        total = self.args.dim(site.threads)
        sums = self._columns(*text.lanes(v, f"parts[team][m * {v} + k][lane] = acc[m][k];"))
        return [
            f"if (({kind})blockIdx.x * {LANES} >= {total}) return;",
            "// [row of taps][column and channel][strip]: a warp's lanes are in different banks",
            f"__shared__ float parts[{rows}][{self.columns * v}][{LANES}];",
            f"const int lane = threadIdx.x % {LANES}, team = threadIdx.x / {LANES};",
            f"const {kind} number = ({kind})blockIdx.x * {LANES} + lane;",
            f"const {kind} t = number < {total} ? number : {total} - 1;",
            *site.place(),
            f"float acc[{self.columns}][{v}] = {{}};",
            f"const {kind} h = {self._line('team')};",
            block(f"if ({self._is_inside('h')})", "const int i = team;", *self._row()),
            *sums,
            "__syncthreads();",
            f"if (number >= {total}) return;",
            *self._bias(),
            *self._added(rows),
        ]

    def _added(self, rows: int) -> list[str]:
        """Every column of this warp's share: the sums of all rows, in their order."""
        v, o = self.v, f"o{self.last}"
        one = f"for (int r = 0; r < {rows}; r++) sum[k] += parts[r][m * {v} + k][lane];"
        place = f"const {self.site.kind} {o} = start + m;"
        stores = block(
            f"if ({o} < {self.args.dim(self.g.around.shape[-1])})",
            f"float sum[{v}];",
            *text.lanes(v, "sum[k] = bias[k];", one),
            *self.site.finish("sum[k]"),
        )
        share = f"for (int m = team; m < {self.columns}; m += {rows})"
        return [f"const {self.site.kind} start = {o};", block(share, place, stores)]

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
        g = self.g
        inside = f"if (!({self._is_inside('h')})) continue;"
        unrolled = "#pragma unroll\n" if g.kernel[0] <= UNROLLED else ""
        head = f"for (int i = 0; i < {g.kernel[0]}; i++)"
        line = f"const {self.site.kind} h = {self._line('i')};"
        return unrolled + block(head, line, inside, *self._row())

    def _line(self, tap: str) -> str:
        """The input row of a row of taps."""
        g = self.g
        return "0" if g.is_flat else f"o0 * {g.strides[0]} - {g.pads[0]} + {tap} * {g.dilations[0]}"

    def _is_inside(self, row: str) -> str:
        return f"{row} >= 0 && {row} < {self.args.dim(self.g.size[0])}"

    def _row(self) -> list[str]:
        """One row of taps: weights and each input column once, before the sums wait for them."""
        g, v, taps = self.g, self.v, self.g.kernel[1]
        channels = self.args.dim(g.around.spec.shape[1])
        out: list[str] = []
        names = []
        for t in range(taps):
            place = f"{self.weights} + (i * {taps} + {t}) * {channels} + c"
            loads, lane = text.fetch(self.args, f"w{t}", place, self.dtype, 1, v)
            out += loads
            names.append(lane)
        users: dict[int, list[tuple[int, str]]] = {}
        for m in range(self.columns):
            for t in range(taps):
                at = m * g.strides[1] + t * g.dilations[1]
                users.setdefault(at, []).append((m, names[t]))
        start = f"o{self.last} * {g.strides[1]} - {g.pads[1]}"
        out.append(f"const {self.site.kind} first = {start};")
        for at in sorted(users):
            out += self._pixel(at)
        for at, found in sorted(users.items()):
            out += text.lanes(v, *(f"acc[{m}][k] += p{at}[k] * {w};" for m, w in found))
        return out

    def _pixel(self, at: int) -> list[str]:
        """Declare and load ``p<at>``, the input column ``at`` from the first; beside it zeros."""
        place = (
            f"{self.args.input(0)} + ({self.args.offset(self.source, ['n', 'h', f'l{at}', 'c'])})"
        )
        load = f"tx_load_{self.dtype.value}<{self.v}>(p{at}, {place});"
        return [
            f"const {self.site.kind} l{at} = first + {at};",
            f"float p{at}[{self.v}] = {{}};",
            f"if (l{at} >= 0 && l{at} < {self.args.dim(self.g.size[1])}) {load}",
        ]
