"""RoiAlign and MaxRoiPool in C: bins of regions that data gives; linear format.

A bin of RoiAlign's mean is a weighted sum, and its weights are a product of those of rows and those
of columns, which are worked out once per region and serve all channels.
"""

from __future__ import annotations

from dataclasses import dataclass

from tactix.base import dims
from tactix.base.dims import Dim, Expr
from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import copy as c_copy
from tactix_codegen.c import text as c_text
from tactix_codegen.c.scalar import element, float_literal, stored
from tactix_codegen.c.text import Args, block, choice, comment, loop
from tactix_cpu.tactics.sample.sums import FLOATS, CpuSums

_NUMBERS = (*FLOATS, DType.FP64)
_PER_BIN = 40e-9
"""Seconds for a bin of one channel; Sapphire Rapids, one thread, bins of about 4 by 4 elements."""
_KEPT = 4096
"""Weighted neighbours of samples that are kept for all channels of a region: 32 KiB of float32 and
places. Regions with more (large ones without a sampling ratio) find theirs for each channel.
"""
_LINE = 64
"""Bytes to which scratch memory is aligned."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CpuRoiAlignTactic(), CpuMaxRoiPoolTactic()]


class CpuRoiAlignTactic(Tactic[Node]):
    """Floats, regions of any floats, owners of any integers."""

    key = "tactix.c_roi_align@1"
    implements = ("tactix.RoiAlign@1",)
    source = "c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> Node | Reject:
        x, regions, owners = (v.spec for v in node.given[:3])
        if node.is_fused:
            return Reject("no layers around it are fused by this tactic")
        if x.dtype not in _NUMBERS or regions.dtype not in _NUMBERS or not owners.dtype.is_int:
            return Reject(f"no regions of {x.dtype.value} at {regions.dtype.value} in C")
        if node.attrs.mode not in ("avg", "max"):
            return Reject(f"no mode {node.attrs.mode} of regions in C")
        return node

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        return _seconds(node, variant, ctx)

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        kernel = MeanOfRegions if node.attrs.mode == "avg" else LargestOfRegions
        return kernel(node, ctx).artifact()


class CpuMaxRoiPoolTactic(Tactic[Node]):
    """Floats."""

    key = "tactix.c_max_roi_pool@1"
    implements = ("tactix.MaxRoiPool@1",)
    source = "c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> Node | Reject:
        x, regions = (v.spec for v in node.given[:2])
        if node.is_fused:
            return Reject("no layers around it are fused by this tactic")
        if x.dtype not in _NUMBERS or regions.dtype not in _NUMBERS:
            return Reject(f"no regions of {x.dtype.value} at {regions.dtype.value} in C")
        if regions.is_const and any(isinstance(d, Expr) for d in x.shape[2:]):
            return Reject("constant regions of an image of open size, which may be empty")
        return node

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        return _seconds(node, variant, ctx)

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        return WholeElements(node, ctx).artifact()


def _seconds(node: Node, variant: Variant, ctx: CompileContext) -> float | None:
    seconds, bins = c_text.traffic(node, variant, ctx), node.outputs[0].spec.numel
    if seconds is None:
        return None
    return seconds + dims.evaluate(bins, ctx.opt) * _PER_BIN / max(1, ctx.threads)


@dataclass(frozen=True)
class BinAxis:
    """An axis of the image: ``letter`` in names, its size, how many bins, and where in a region its
    first corner stands.
    """

    letter: str
    size: Dim
    bins: int
    corner: int


class _Regions:
    """Units are channels of regions; what a region has of its own is made when it changes."""

    corners: int
    """Numbers of a region before its corners."""

    def __init__(self, node: Node, ctx: CompileContext) -> None:
        self.node, self.ctx, self.args = node, ctx, Args(node)
        x, y = node.given[0].spec, node.outputs[0].spec
        self.dtype, self.regions = x.dtype, node.given[1].spec.dtype
        self.sums = CpuSums(self.dtype)
        bins = tuple(int(d) for d in y.shape[2:])  # type: ignore[arg-type]
        self.axes = [
            BinAxis("r", x.shape[2], bins[0], self.corners + 1),
            BinAxis("c", x.shape[3], bins[1], self.corners),
        ]
        self.workspace: Dim = 0
        self.begin: list[str] = []

    def scratch(self, name: str, kind: str, count: Dim) -> str:
        """Of each thread, so many elements of a C type of up to 8 bytes."""
        each = dims.ceildiv(count * 8, _LINE) * _LINE
        place = self.args.workspace(self.workspace, "char")
        self.workspace = self.workspace + each * max(1, self.ctx.threads)
        pointer = f"({kind}*)({place} + tid * {self.args.dim(each)})"
        self.begin.append(f"{kind}* __restrict {name} = {pointer};")
        return name

    def region(self, i: int) -> str:
        """A number of region ``r`` as a double."""
        each = self.node.given[1].spec.shape[1]
        place = f"{self.args.input(1)}[r * {self.args.dim(each)} + {i}]"
        return f"(double){element(self.regions, place)}"

    def owner(self) -> str:
        """The image that region ``r`` is of."""
        raise NotImplementedError

    def made(self) -> list[str]:
        """What a region has of its own."""
        raise NotImplementedError

    def bins(self) -> list[str]:
        """All bins of one channel ``plane``, to ``to``."""
        raise NotImplementedError

    def artifact(self) -> KernelArtifact:
        x, y, args = self.node.given[0].spec, self.node.outputs[0].spec, self.args
        channels, threads = args.size("CHANNELS", x.shape[1]), max(1, self.ctx.threads)
        plane = args.size("PLANE", x.shape[2] * x.shape[3])
        size, kind = self.axes[0].bins * self.axes[1].bins, c_text.ctype(self.dtype)
        fresh = [
            "of = r;",
            f"image = tx_index({self.owner()}, {args.dim(x.shape[0])}, {args.fault()});",
            *self.made(),
        ]
        unit = [
            f"const int64_t r = u / {channels}, c = u % {channels};",
            block("if (r != of)", *fresh),
            "if (image < 0) continue;",
            f"{kind}* to = {args.output(0)} + u * {size};",
            comment("An image without elements has nothing in any bin."),
            block(f"if (!{plane})", loop("i", "0", str(size), "to[i] = 0;"), "continue;"),
            f"const {kind}* plane = {args.input(0)} + (image * {channels} + c) * {plane};",
            *self.bins(),
        ]
        loops = loop("u", "lo", "hi", *unit)
        lines = [
            f"if (tid >= {threads}) return;",
            f"if (nt > {threads}) nt = {threads};",
            c_text.split(f"{args.dim(y.shape[0])} * {channels}"),
            *self.begin,
            "int64_t of = -1, image = -1;",
            loops,
        ]
        preludes = (*c_copy.preludes(), *map(c_text.prelude, ("places.h", "sample.h", "regions.h")))
        return c_text.kernel(args, lines, self.ctx, preludes=preludes, workspace=self.workspace)


class _SampledRegions(_Regions):
    """RoiAlign: corners lie between elements."""

    corners = 0

    def owner(self) -> str:
        return f"(int64_t){self.args.input(2)}[r]"

    def placed(self, a: BinAxis) -> list[str]:
        """Declare where the region begins along an axis, and its length."""
        attrs = self.node.attrs
        half = attrs.coordinate_transformation_mode == "half_pixel"
        scale, shift = float_literal(attrs.spatial_scale, double=True), "0.5" if half else "0.0"
        first, last = (f"{self.region(i)} * {scale} - {shift}" for i in (a.corner, a.corner + 2))
        length = f"{a.letter}_last - {a.letter}_first"
        if not half:
            length = f"{length} > 1.0 ? {length} : 1.0"
        return [
            f"{a.letter}_first = {first};",
            f"const double {a.letter}_last = {last};",
            f"{a.letter}_length = {length};",
        ]

    def table(self, a: BinAxis) -> str:
        """The arguments by which the bins of an axis are told."""
        ratio = self.node.attrs.sampling_ratio
        return f"{a.letter}_first, {a.letter}_length, {a.bins}, {ratio}, {self.args.dim(a.size)}"

    def declared(self) -> None:
        """Declare what ``placed`` sets."""
        names = ", ".join(f"{a.letter}_first = 0.0, {a.letter}_length = 0.0" for a in self.axes)
        self.begin.append(f"double {names};")


class MeanOfRegions(_SampledRegions):
    """Rows of an image are added up to a line, and elements of the line to a bin."""

    def made(self) -> list[str]:
        lines = []
        self.declared()
        number = c_text.ctype(self.sums.number)
        for a in self.axes:
            lines += self.placed(a)
            at = self.scratch(f"{a.letter}_at", "int32_t", a.size * a.bins)
            of = self.scratch(f"{a.letter}_of", number, a.size * a.bins)
            self.begin.append(f"int64_t {a.letter}_count[{a.bins}];")
            name = f"tx_bin_weights_{self.sums.number.value}"
            lines.append(f"{name}({self.table(a)}, {at}, {of}, {a.letter}_count);")
        columns = self.args.size("COLUMNS", self.axes[1].size)
        return [
            comment("Which elements each bin has along each axis, and the weights of these."),
            *lines,
            comment("The columns that any bin has."),
            f"from = {columns}, until = 0;",
            loop(
                "b",
                "0",
                str(self.axes[1].bins),
                "const int64_t n = c_count[b];",
                "if (!n) continue;",
                f"const int64_t head = c_at[b * {columns}];",
                f"const int64_t tail = c_at[b * {columns} + n - 1] + 1;",
                "from = head < from ? head : from;",
                "until = tail > until ? tail : until;",
            ),
        ]

    def bins(self) -> list[str]:
        sums, number = self.sums, c_text.ctype(self.sums.number)
        line = self.scratch("line", number, self.axes[1].size)
        self.begin.append("int64_t from = 0, until = 0;")
        rows = self.args.size("IMAGE_ROWS", self.axes[0].size)
        columns = self.args.size("COLUMNS", self.axes[1].size)

        def down(count: str) -> list[str]:
            place = f"plane + r_at[b * {rows} + k] * {columns} + i"
            value = sums.loaded(self.dtype, place, count)
            share = sums.splat(f"r_of[b * {rows} + k]")
            return [
                f"{sums.kind} s = {sums.zero};",
                loop("k", "0", "r_count[b]", f"s += {share} * {value};"),
                sums.stored(sums.number, f"{line} + i", "s", count),
            ]

        result = "s" if self.dtype is sums.number else stored(self.dtype, "s")
        across = [
            f"{number} s = 0;",
            f"const int32_t* at = c_at + d * {columns};",
            f"const {number}* of = c_of + d * {columns};",
            loop("k", "0", "c_count[d]", f"s += of[k] * {line}[at[k]];"),
            f"to[b * {self.axes[1].bins} + d] = {result};",
        ]
        return [
            comment("Down: the rows of a bin to one line; across: its elements to a number."),
            loop(
                "b",
                "0",
                str(self.axes[0].bins),
                sums.swept("until", down, "from"),
                loop("d", "0", str(self.axes[1].bins), *across),
            ),
        ]


class LargestOfRegions(_SampledRegions):
    """The largest weighted neighbour of all samples of a bin. Where they are few, the neighbours of
    a region serve all channels, in an order in which vectors run along bins.
    """

    def made(self) -> list[str]:
        self.declared()
        lines = [line for a in self.axes for line in self.placed(a)]
        ratio = self.node.attrs.sampling_ratio
        for a in self.axes:
            self.begin.append(f"int64_t {a.letter}_count = 0;")
            count = f"tx_samples({a.letter}_length, {a.bins}, {ratio})"
            lines.append(f"{a.letter}_count = {count};")
        rows, columns = self.axes
        number = c_text.ctype(self.sums.number)
        self.begin += [
            f"enum {{ BINS = {rows.bins * columns.bins} }};",
            f"int32_t at[{_KEPT}];",
            f"{number} of_bin[{_KEPT}];",
            "int64_t kept = 0;",
        ]
        corner = [
            "const int64_t e = ((k * c_count + m) * 4 + i * 2 + j) * BINS + bin;",
            f"at[e] = (int32_t)(p[i] * {self.args.dim(columns.size)} + q[j]);",
            f"of_bin[e] = ({number})(w[i] * z[j]);",
        ]
        place = f"const int64_t bin = b * {columns.bins} + d;"
        fill = self._walk(place, loop("i", "0", "2", loop("j", "0", "2", *corner)))
        return [
            *lines,
            f"kept = r_count <= {_KEPT} && c_count <= {_KEPT} ? 4 * r_count * c_count : {_KEPT};",
            f"kept = kept * BINS <= {_KEPT} ? kept : 0;",
            comment("Places and weights of all neighbours."),
            block("if (kept)", fill),
        ]

    def bins(self) -> list[str]:
        columns = self.axes[1]
        number = c_text.ctype(self.sums.number)
        value = element(self.dtype, f"plane[p[i] * {self.args.dim(columns.size)} + q[j]]")
        infinite = "__builtin_inff()" if self.sums.vector else "__builtin_inf()"
        self.begin.append(f"{number} largest[BINS];")
        corner = [
            f"const {number} v = {value} * ({number})(w[i] * z[j]);",
            "largest[bin] = TX_MAX(largest[bin], v);",
        ]
        place = f"const int64_t bin = b * {columns.bins} + d;"
        found = self._walk(place, loop("i", "0", "2", loop("j", "0", "2", *corner)))
        ready = [
            f"const {number} v = {element(self.dtype, 'plane[at[e * BINS + bin]]')};",
            f"const {number} weighted = v * of_bin[e * BINS + bin];",
            "const int is_larger = (weighted > largest[bin]) | (weighted != weighted);",
            "largest[bin] = is_larger ? weighted : largest[bin];",
        ]
        result = "s" if self.dtype is self.sums.number else stored(self.dtype, "s")
        return [
            comment("Bins without samples are 0."),
            f"const {number} lowest = r_count && c_count ? -{infinite} : 0;",
            loop("bin", "0", "BINS", "largest[bin] = lowest;"),
            choice("kept", [loop("e", "0", "kept", loop("bin", "0", "BINS", *ready))], [found]),
            loop("bin", "0", "BINS", f"const {number} s = largest[bin];", f"to[bin] = {result};"),
        ]

    def _walk(self, place: str, body: str) -> str:
        """Over samples ``k`` and ``m`` of bins ``b`` and ``d``."""
        rows, columns = self.axes
        text = loop("m", "0", "c_count", *self._sample(columns, "d", "m", "q", "z"), body)
        text = loop("k", "0", "r_count", *self._sample(rows, "b", "k", "p", "w"), text)
        return loop("b", "0", str(rows.bins), loop("d", "0", str(columns.bins), place, text))

    def _sample(self, a: BinAxis, bin_: str, sample: str, places: str, shares: str) -> list[str]:
        where = f"{a.letter}_first, {a.letter}_length, {a.bins}, {a.letter}_count"
        return [
            f"int64_t {places}[2];",
            f"double {shares}[2];",
            f"tx_sample({where}, {bin_}, {sample}, {self.args.dim(a.size)}, {places}, {shares});",
        ]


class WholeElements(_Regions):
    """MaxRoiPool: corners are rounded to elements."""

    corners = 1

    def owner(self) -> str:
        return f"tx_i64_of({self.region(0)})"

    def made(self) -> list[str]:
        lines = []
        scale = float_literal(self.node.attrs.spatial_scale, double=True)
        for a in self.axes:
            first, last = (f"{self.region(i)} * {scale}" for i in (a.corner, a.corner + 2))
            self.begin.append(f"int64_t {a.letter}_from[{a.bins}], {a.letter}_until[{a.bins}];")
            pair = f"{a.letter}_from + b, {a.letter}_until + b"
            whole = f"tx_whole_bin({first}, {last}, {a.bins}, b, {self.args.dim(a.size)}, {pair});"
            lines.append(loop("b", "0", str(a.bins), whole))
        columns = self.axes[1]
        ends = [
            "from = c_from[d] < from ? c_from[d] : from;",
            "until = c_until[d] > until ? c_until[d] : until;",
        ]
        return [
            comment("The first element of each bin along each axis, and the one behind the last."),
            *lines,
            f"from = {self.args.dim(columns.size)}, until = 0;",
            loop("d", "0", str(columns.bins), *ends),
        ]

    def bins(self) -> list[str]:
        columns, number = self.axes[1], c_text.ctype(self.sums.number)
        line = self.scratch("line", number, columns.size)
        self.begin.append("int64_t from = 0, until = 0;")
        width = self.args.dim(columns.size)
        first = element(self.dtype, f"plane[r_from[b] * {width} + i]")
        other = element(self.dtype, f"plane[k * {width} + i]")
        result = "s" if self.dtype is self.sums.number else stored(self.dtype, "s")
        place = f"to[b * {columns.bins} + d]"
        across = [
            "if (r_from[b] >= r_until[b] || c_from[d] >= c_until[d])",
            block("", f"{place} = 0;", "continue;"),
            f"{number} s = {line}[c_from[d]];",
            "int nan = 0;",
            loop(
                "i",
                "c_from[d]",
                "c_until[d]",
                f"const {number} v = {line}[i];",
                "s = v > s ? v : s;",
                "nan |= v != v;",
            ),
            f'if (nan) s = {"__builtin_nanf" if self.sums.vector else "__builtin_nan"}("");',
            f"{place} = {result};",
        ]
        down = [
            loop("i", "from", "until", f"{line}[i] = {first};"),
            loop(
                "k",
                "r_from[b] + 1",
                "r_until[b]",
                loop(
                    "i",
                    "from",
                    "until",
                    f"const {number} v = {other};",
                    f"{line}[i] = TX_MAX({line}[i], v);",
                ),
            ),
        ]
        return [
            comment("Down: the largest of a bin's rows, to a line; across: of its columns."),
            loop(
                "b",
                "0",
                str(self.axes[0].bins),
                block("if (r_from[b] < r_until[b])", *down),
                loop("d", "0", str(columns.bins), *across),
            ),
        ]
