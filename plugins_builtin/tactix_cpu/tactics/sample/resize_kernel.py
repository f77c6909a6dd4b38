"""The text of Resize: tables, sums of whole rows, and sums within a row."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from tactix.base import dims
from tactix.base.dims import Dim
from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact, Packed
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext
from tactix_codegen.c import copy as c_copy
from tactix_codegen.c import text as c_text
from tactix_codegen.c.scalar import float_literal, int_range
from tactix_codegen.c.text import Args, block, comment, loop
from tactix_codegen.operations.resize import ROUNDED, place
from tactix_cpu.tactics.sample.axes import (
    WHOLE,
    AxisGroup,
    ComputedTaps,
    TableTaps,
    never_short,
    repeats,
    symbols_of,
)
from tactix_cpu.tactics.sample.sums import CpuSums

EXPANDED = range(2, 17)
"""Elements behind an axis for which its tables tell the place of each, so that vectors run on over
them: channels of images that are stored last.
"""
_UNROLLED = 8
"""Elements that a sum is written out of at most."""
_ON_STACK = 256
"""Rows that a row is the sum of, whose places are kept on the stack at most."""
_LONG_RUN = 512
"""Results of which no element is left out, from which on they have a loop of their own: rows of 112
took a third longer so, and rows of 1003 a quarter less (Zen 5).
"""
_PIXEL = 64
"""Bytes to which scratch memory is aligned."""


def resized_across(groups: Sequence[AxisGroup], lanes: int) -> int:
    """The group that is resized within rows; -1 if all are resized by sums of whole rows. Elements
    behind it are few: whole vectors, or tables that are known are expanded for them.
    """
    resized = [i for i, g in enumerate(groups) if g.taps is not None]
    if not resized:
        return -1
    last, behind = resized[-1], groups[resized[-1] + 1 :]
    if not behind:
        return last
    size = behind[0].size
    ready = isinstance(groups[last].taps, TableTaps) or is_vectors(size, lanes)
    return last if size in EXPANDED and ready else -1


def is_vectors(size: Dim, lanes: int) -> bool:
    """Whether so many elements are whole vectors of float32."""
    return lanes > 1 and dims.mod(size, lanes) == 0


def _aligned(size: Dim) -> Dim:
    return dims.ceildiv(size, _PIXEL) * _PIXEL


class GivenNumbers:
    """Scales and regions of axes whose sizes only running tells: from attributes."""

    def scale(self, args: Args, t: ComputedTaps) -> str:
        """Results for each element, as C."""
        if t.scale is not None:
            return float_literal(t.scale, double=True)
        return f"(double){args.dim(t.out)} / (double){args.dim(t.size)}"

    def region(self, args: Args, t: ComputedTaps) -> tuple[str, str] | None:
        """Start and end of the region of interest as C; None: all of the axis."""
        if t.region == WHOLE:
            return None
        start, end = (float_literal(v, double=True) for v in t.region)
        return start, end

    def told(self, args: Args) -> list[str]:
        """What a launch before all others does, that tells the sizes of the result."""
        return []


class _ResizeKernel:
    """What both kinds share. Group ``g`` has names ``i<g>`` (result), ``first<g>`` (element)."""

    def __init__(
        self,
        node: Node,
        groups: tuple[AxisGroup, ...],
        ctx: CompileContext,
        numbers: GivenNumbers,
    ) -> None:
        self.node, self.groups, self.ctx, self.numbers = node, groups, ctx, numbers
        self.across = across = resized_across(groups, ctx.device.lanes)
        self.args = Args(node)
        self.dtype = node.given[0].spec.dtype
        self.workspace: Dim = 0
        self.tables = {t.axis: self._room(t) for t in symbols_of(groups)}
        own = self._row_group()
        self.leading = range(own)
        self.inner: Dim = dims.prod(g.size for g in groups[across + 1 :]) if across >= 0 else 1
        self.pixels = self.inner != 1 and is_vectors(self.inner, ctx.device.lanes)
        self.row_in = self.args.size("ROW_IN", dims.prod(g.size for g in groups[own:]))
        self.row_out = self.args.size("ROW_OUT", dims.prod(g.out for g in groups[own:]))
        self.rows = self.args.size("ROWS", dims.prod(g.out for g in groups[:own]))

    def _row_group(self) -> int:
        """The first group that lies in rows."""
        if self.across >= 0:
            return self.across
        return len(self.groups) - (self.groups[-1].taps is None)

    @property
    def down(self) -> list[int]:
        """Groups that are resized by whole rows."""
        return [g for g in self.leading if self.groups[g].taps is not None]

    def reserve(self, size: Dim) -> Dim:
        """The offset of so many bytes of workspace."""
        begin, self.workspace = self.workspace, self.workspace + _aligned(size)
        return begin

    @property
    def is_expanded(self) -> bool:
        """Whether tables of the group within rows tell the place of every element behind it."""
        return self.inner != 1 and not self.pixels

    @property
    def weight(self) -> DType:
        """What weights are stored as."""
        return DType.FP32

    def _room(self, t: ComputedTaps) -> tuple[Dim, Dim]:
        """Offsets of its places and of its weights."""
        return self.reserve(t.out * 4), self.reserve(t.out * t.count * self.weight.itemsize)

    # Tables

    def taps(self, g: int) -> TableTaps | ComputedTaps:
        found = self.groups[g].taps
        assert found is not None
        return found

    def first(self, g: int) -> str:
        """The table of first elements: of the group within rows, times the elements behind it."""
        t = self.taps(g)
        if isinstance(t, ComputedTaps):
            return self.args.workspace(self.tables[t.axis][0], "int32_t")
        places = t.first
        if g == self.across and self.is_expanded:
            each = np.arange(self.inner, dtype=np.int32)  # type: ignore[arg-type]
            places = (places[:, None] * np.int32(len(each)) + each).reshape(-1)
        return self.args.constant(f"first{g}", Packed(-1, array=places), DType.INT32)

    def weights(self, g: int) -> str:
        """The table of weights, ``count`` rows of as many as there are results."""
        t = self.taps(g)
        if isinstance(t, ComputedTaps):
            return self.args.workspace(self.tables[t.axis][1], c_text.ctype(self.weight))
        shares = t.weights.astype(self.weight.numpy)
        if g == self.across and self.is_expanded:
            shares = np.repeat(shares, self.inner, axis=1)  # type: ignore[arg-type]
        return self.args.constant(f"weight{g}", Packed(-1, array=shares), self.weight)

    def _made_tables(self) -> list[str]:
        """What the first launch does."""
        lines = []
        for g, group in enumerate(self.groups):
            if isinstance(group.taps, ComputedTaps):
                t = group.taps
                out = self.args.dim(t.out)
                lines += [
                    comment(f"Where each result along axis {t.axis} lies between elements."),
                    block("", c_text.split(out), loop("i", "lo", "hi", *self._table(g, t))),
                ]
        return lines

    def _table(self, g: int, t: ComputedTaps) -> list[str]:
        """Statements that fill the tables at ``i``."""
        raise NotImplementedError

    def between(self, t: ComputedTaps) -> list[str]:
        """Declare ``at``, where result ``i`` lies, and ``scale``."""
        size, out = map(self.args.dim, (t.size, t.out))
        region = self.numbers.region(self.args, t)
        start, end = region or ("0.0", "1.0")
        between = place(self.node, "i", size, out, "scale", start, end)
        same = f"scale == 1.0 && {size} == {out}"
        if region is not None:
            same = f"{same} && {start} == 0.0 && {end} == 1.0"
        return [
            f"const double scale = {self.numbers.scale(self.args, t)};",
            comment("An axis that keeps its size is copied."),
            f"const double at = {same} ? (double)i : {between};",
        ]

    # Rows

    def decode(self) -> str:
        """Declare the coordinates of row ``o``."""
        outs = [self.args.dim(self.groups[g].out) for g in self.leading]
        return c_text.decode("o", [f"i{g}" for g in self.leading], outs)

    def plane(self) -> str:
        """The offset in x of the groups before rows that keep their size."""
        strides = c_text.contiguous_strides([g.size for g in self.groups])
        kept = [g for g in self.leading if g not in self.down]
        return self.args.offset([strides[g] for g in kept], [f"i{g}" for g in kept])

    def stride(self, g: int) -> str:
        """Elements of x from one step of a group to the next."""
        return self.args.dim(dims.prod(x.size for x in self.groups[g + 1 :]))

    def beyond(self) -> tuple[str, str]:
        """The condition that the row, and an element ``i`` of it, lies outside the input."""
        if self.node.attrs.coordinate_transformation_mode != "tf_crop_and_resize":
            return "", ""
        tests = [self._outside(g, f"i{g}") for g in self.down]
        inside = self._outside(self.across, f"i / {self.inner}") if self.across >= 0 else ""
        return " || ".join(t for t in tests if t), inside

    def _outside(self, g: int, index: str) -> str:
        t = self.taps(g)
        if isinstance(t, ComputedTaps):
            return f"TX_NAME(outside{g})(a, {index})"
        if not t.beyond.any():
            return ""
        flags = Packed(-1, array=t.beyond.astype(np.uint8))
        return f"{self.args.constant(f'beyond{g}', flags, DType.UINT8)}[{index}]"

    def helpers(self) -> str:
        """Functions that tell whether a result lies outside of an axis that running tells."""
        if self.node.attrs.coordinate_transformation_mode != "tf_crop_and_resize":
            return ""
        found = []
        for g, group in enumerate(self.groups):
            if isinstance(group.taps, ComputedTaps):
                last = f"(double)({self.args.dim(group.size)} - 1)"
                lines = [*self.between(group.taps), f"return at < 0.0 || at > {last};"]
                names = self.args.declarations("\n".join(lines))
                head = f"TX_INLINE int TX_NAME(outside{g})(const int64_t* a, int64_t i)"
                found.append(block(head, *names, *lines))
        return "\n".join(found)

    def extrapolated(self, row: list[str], value: str, forget: str = "") -> list[str]:
        """A row ``to``, with ``value`` where it lies outside; ``forget``: where all of it does."""
        whole, single = self.beyond()
        fill = loop("i", "0", self.row_out, f"to[i] = {value};")
        if single:
            row = [*row, loop("i", "0", self.row_out, f"if ({single}) to[i] = {value};")]
        return [block(f"if ({whole})", fill, forget, "continue;"), *row] if whole else row

    def finish(self, body: Sequence[str], begin: Sequence[str] = ()) -> KernelArtifact:
        """The kernel that runs ``body`` for each row ``o``; ``begin`` stands before the loop."""
        threads, before = max(1, self.ctx.threads), list[str]()
        told = self.numbers.told(self.args)
        for made in (told, self._made_tables()):
            if made:
                phase = f"if ({self.args.phase()} == {len(before)})"
                before.append(block(phase, *made, "return;"))
        lines = [
            *before,
            f"if (tid >= {threads}) return;",
            f"if (nt > {threads}) nt = {threads};",
            c_text.split(self.rows),
            *begin,
            loop("o", "lo", "hi", *body),
        ]
        preludes = (*c_copy.preludes(), *map(c_text.prelude, ("places.h", "sample.h")))
        return c_text.kernel(
            self.args,
            lines,
            self.ctx,
            helpers=self.helpers(),
            preludes=preludes,
            workspace=self.workspace,
            phases=1 + len(before),
            telling=1 if told else 0,
        )


class NearestKernel(_ResizeKernel):
    """Elements are moved; a row that comes again is copied from the one before."""

    def _room(self, t: ComputedTaps) -> tuple[Dim, Dim]:
        return self.reserve(t.out * 4), 0

    def artifact(self) -> KernelArtifact:
        width = self.dtype.itemsize
        element = f"uint{8 * width}_t"
        x, y = self.args.bytes_in(0), self.args.bytes_out(0)
        places = [f"(int64_t){self.first(g)}[i{g}] * {self.stride(g)}" for g in self.down]
        at, length = self.args.sum(self.plane(), *places), f"{self.row_out} * sizeof({element})"
        row = [
            comment("The row of x that this one repeats."),
            f"const {element}* from = (const {element}*){x} + {at};",
            *self._again(length),
            *self._across(element),
        ]
        body = [
            self.decode(),
            f"{element}* __restrict to = ({element}*){y} + o * {self.row_out};",
            *self.extrapolated(row, self._value(), "" if self.vectors else "before = 0;"),
        ]
        return self.finish(body, [] if self.vectors else [f"const {element}* before = 0;"])

    @property
    def vectors(self) -> int:
        """How many results each element of a row of up to 32 bits becomes, where vectors have whole
        groups of them; else 0.
        """
        if self.across < 0 or self.inner != 1 or self.dtype.itemsize > 4:
            return 0
        times = repeats(self.groups[self.across])
        return times if times in (2, 4) and times <= self.ctx.device.lanes else 0

    def _again(self, length: str) -> list[str]:
        """Rows that come again; where one is made by vectors that takes no longer than a copy,
        which would wait for what was just stored.
        """
        if self.vectors:
            return []
        return [
            comment("One that comes again is copied whole."),
            block(
                "if (from == before)",
                f"tx_copy((char*)to, (const char*)(to - {self.row_out}), {length});",
                "continue;",
            ),
            "before = from;",
        ]

    def _repeated(self, times: int) -> list[str]:
        """A vector of elements, of which some lanes are filled, becomes one of results."""
        repeat = f"tx_repeat_{times}(tx_load_n_i32(from + i / {times}, "
        rest = f"({self.row_out} - i) / {times}"
        return [
            "int64_t i = 0;",
            block(
                f"for (; i + TX_LANES <= {self.row_out}; i += TX_LANES)",
                f"tx_store_i32(to + i, {repeat}TX_LANES / {times})));",
            ),
            f"if (i < {self.row_out})",
            f"    tx_store_n_i32(to + i, {repeat}{rest})), {self.row_out} - i);",
        ]

    def _across(self, element: str) -> list[str]:
        if self.across < 0:
            return [f"tx_copy((char*)to, (const char*)from, {self.row_out} * sizeof({element}));"]
        group = self.groups[self.across]
        if self.vectors and self.dtype.itemsize == 4:
            return self._repeated(self.vectors)
        if self.vectors:
            repeat = f"tx_repeat_{self.vectors}_{8 * self.dtype.itemsize}"
            return [f"{repeat}(to, from, {self.args.dim(group.size)});"]
        times = repeats(group) if self.inner == 1 else 0
        if times:
            each = loop("r", "0", str(times), f"to[i * {times} + r] = from[i];")
            return [loop("i", "0", self.args.dim(group.size), each)]
        first = self.first(self.across)
        if self.pixels:
            each = f"to[p * {self.inner} + l] = from[{first}[p] * {self.inner} + l];"
            return [loop("p", "0", self.args.dim(group.out), loop("l", "0", f"{self.inner}", each))]
        return [loop("i", "0", self.row_out, f"to[i] = from[{first}[i]];")]

    def _value(self) -> str:
        """The bits of what stands outside."""
        from tactix_ops.layers.common import wide

        one = wide(np.zeros(1, self.dtype.numpy))
        with np.errstate(all="ignore"):
            made = np.asarray(self.node.attrs.extrapolation_value, one.dtype)
        return f"0x{int(made.astype(self.dtype.numpy).view(f'u{self.dtype.itemsize}')):x}ULL"

    def _table(self, g: int, t: ComputedTaps) -> list[str]:
        rounded = ROUNDED[self.node.attrs.nearest_mode].format(x="at", scale="scale")
        last = f"(double)({self.args.dim(t.size)} - 1)"
        rounded = f"at == floor(at) && scale == 1.0 ? at : {rounded}"
        return [
            *self.between(t),
            f"{self.first(g)}[i] = (int32_t)tx_between({rounded}, 0.0, {last});",
        ]


class WeightedKernel(_ResizeKernel):
    """Sums, of f32, f16 and bf16 in vectors of float32, of others in float64."""

    def __init__(
        self,
        node: Node,
        groups: tuple[AxisGroup, ...],
        ctx: CompileContext,
        numbers: GivenNumbers,
    ) -> None:
        self.sums = CpuSums(node.given[0].spec.dtype)
        super().__init__(node, groups, ctx, numbers)
        self.count = dims.prod(self.taps(g).count for g in self.down)
        self.lines: dict[str, str] = {}

    @property
    def weight(self) -> DType:
        return CpuSums(self.node.given[0].spec.dtype).number

    def taken(self, g: int) -> str:
        """How many elements along a group each result is the sum of."""
        t = self.taps(g)
        return f"taps{g}" if isinstance(t, ComputedTaps) and t.widens else self.args.dim(t.count)

    def _widths(self) -> list[str]:
        """Declare those that only running tells."""
        return [
            self._width(g, group.taps)
            for g, group in enumerate(self.groups)
            if isinstance(group.taps, ComputedTaps) and group.taps.widens
        ]

    def _width(self, g: int, t: ComputedTaps) -> str:
        size = self.args.dim(t.size)
        shrink = self._shrink(t, self.numbers.scale(self.args, t))
        reach = f"tx_resize_reach({self._radius}, {shrink})"
        return f"const int64_t taps{g} = {reach} < {size} ? {reach} : {size};"

    @property
    def _radius(self) -> int:
        return 1 if self.node.attrs.mode == "linear" else 2

    @staticmethod
    def _shrink(t: ComputedTaps, scale: str) -> str:
        """How much wider than one element the kernel is, as a factor."""
        return f"tx_between({scale}, 0.0, 1.0)" if t.widens else "1.0"

    def leaves_out(self, g: int) -> bool:
        """Whether elements of weight 0 are left out: times 0 a NaN or an infinity would be NaN."""
        t = self.taps(g)
        if isinstance(t, ComputedTaps):
            return True
        return self.dtype.is_float and not t.weights.astype(self.weight.numpy).all()

    @property
    def counts(self) -> bool:
        """Whether a row is the sum of ``n`` rows, which may be fewer than ``count``."""
        return any(self.leaves_out(g) for g in self.down)

    @property
    def is_known(self) -> bool:
        """Whether ``count`` is what most rows have."""
        return all(isinstance(self.taps(g), TableTaps) for g in self.down)

    # Scratch

    def line(self, name: str, size: Dim) -> str:
        """Of each thread, a row of sums."""
        return self._own(name, size, c_text.ctype(self.weight), self.weight.itemsize)

    def _own(self, name: str, size: Dim, element: str, itemsize: int) -> str:
        """An array of each thread."""
        if name not in self.lines:
            each = _aligned(size * itemsize)
            room = self.reserve(each * max(1, self.ctx.threads))
            pointer = self.args.workspace(room, element)
            step = self.args.dim(dims.floordiv(each, itemsize))
            self.lines[name] = f"{element}* __restrict {name} = {pointer} + tid * {step};"
        return name

    # Statements

    def _blend(self, source: DType, target: DType, y: str) -> str:
        """The weighted sum of ``rows``, to ``y``."""
        all_terms = str(self.count)
        if not self.counts:
            return self._blended(source, target, y, all_terms)
        some = self._blended(source, target, y, "n")
        if not self.is_known:
            return some
        whole = self._blended(source, target, y, all_terms)
        return c_text.choice(f"n == {all_terms}", [whole], [some])

    def _blended(self, source: DType, target: DType, y: str, terms: str) -> str:
        def body(count: str) -> list[str]:
            first = self.sums.loaded(source, "rows[0] + i", count)
            term = self.sums.loaded(source, "rows[k] + i", count)
            return [
                f"{self.sums.kind} s = {self.sums.splat('of[0]')} * {first};",
                loop("k", "1", terms, f"s += {self.sums.splat('of[k]')} * {term};"),
                self.sums.stored(target, f"{y} + i", "s", count),
            ]

        return self.sums.swept(self.row_in if y == "line" else self.row_out, body)

    def _stretch(self, source: str, target: DType, y: str) -> str:
        """Sums within the row ``source``, to ``y``."""
        if self.pixels:
            return self._stretch_pixels(source, target, y)
        whole = [self._neighbours(source, target, y, skips) for skips in (True, False)]
        begin, end = self._all_count()
        if begin == end:
            return self.sums.swept(self.row_out, whole[0])
        if (begin, end) == (0, self.groups[self.across].out):
            return self.sums.swept(self.row_out, whole[1])
        parts = [("0", str(begin), 0), (str(begin), str(end), 1), (str(end), self.row_out, 0)]
        swept = [self.sums.swept(last, whole[kind], first) for first, last, kind in parts]
        return "\n".join([comment("Results at both ends leave out elements."), *swept])

    def _all_count(self) -> tuple[int, int]:
        """Results [begin, end) within rows of which no element is left out: most, none or all."""
        t, factor = self.taps(self.across), self.inner
        if isinstance(t, ComputedTaps) or not isinstance(factor, int):
            return (0, 0)
        out = t.weights.shape[1]
        if not self.skips:
            return (0, out)
        short = np.flatnonzero((t.weights.astype(self.weight.numpy) == 0).any(axis=0))
        ends = [-1, *short.tolist(), out]
        begin, end = max(itertools.pairwise(ends), key=lambda pair: pair[1] - pair[0])
        most = (end - begin - 1) * factor >= max(_LONG_RUN, 3 * out * factor // 4)
        return ((begin + 1) * factor, end * factor) if most else (0, 0)

    def _neighbours(
        self, source: str, target: DType, y: str, skips: bool
    ) -> Callable[[str], list[str]]:
        """Statements that give results ``i``; ``skips``: whether elements may be left out."""
        factor = "" if self.inner == 1 else f" * {self.inner}"
        first, weights = self.first(self.across), self.weights(self.across)

        def term(k: str, count: str) -> str:
            shares = f"{weights} + i" if k == "0" else f"{weights} + {k} * {self.row_out} + i"
            begin = f"{source} + {k}{factor}" if k != "0" else source
            if self.sums.vector:
                share, value = c_text.load(DType.FP32, shares, count), f"tx_gather_f32({begin}, p)"
                return self._part(share, value, skips)
            return self._part(f"*({shares})", f"({begin})[p]", skips)

        def body(count: str) -> list[str]:
            place = f"{first} + i"
            place = c_text.load(DType.INT32, place, count) if self.sums.vector else f"*({place})"
            lines = [f"const {'vi' if self.sums.vector else 'int64_t'} p = {place};"]
            lines.append(f"{self.sums.kind} s = {term('0', count)};")
            lines += self._further(self.across, lambda k: f"s += {term(k, count)};")
            return [*lines, self.sums.stored(target, f"{y} + i", "s", count)]

        return body

    @property
    def skips(self) -> bool:
        """Whether results within rows leave out elements."""
        return self.dtype.is_float and self.leaves_out(self.across)

    def _part(self, share: str, value: str, skips: bool) -> str:
        """What an element of a row adds to a result."""
        return f"tx_part_{self.weight.value}({share}, {value})" if skips else f"{share} * {value}"

    def _further(self, g: int, add: Callable[[str], str]) -> list[str]:
        """Statements for all terms but the first; one for each of few."""
        count = self.taken(g)
        if count.isdigit() and int(count) <= _UNROLLED:
            return [add(str(k)) for k in range(1, int(count))]
        return [loop("k", "1", count, add("k"))]

    def _stretch_pixels(self, source: str, target: DType, y: str) -> str:
        """The same where what is behind the axis is whole vectors: nothing is gathered."""
        each = f"{self.inner}"
        first, weights = self.first(self.across), self.weights(self.across)
        out = self.args.dim(self.groups[self.across].out)

        def share(k: str) -> str:
            return f"{weights}[{k} * {out} + p]"

        def pixel(skips: bool) -> str:
            def term(k: str) -> str:
                value = self.sums.loaded(self.weight, f"from + {k} * {each} + l")
                return self._part(self.sums.splat(share(k)), value, skips)

            sums = [f"{self.sums.kind} s = {term('0')};"]
            sums += self._further(self.across, lambda k: f"s += {term(k)};")
            sums.append(self.sums.stored(target, f"{y} + p * {each} + l", "s"))
            return block(f"for (int64_t l = 0; l < {each}; l += {self.sums.lanes})", *sums)

        count = self.taken(self.across)
        text = pixel(self.skips)
        if self.skips and count.isdigit() and int(count) <= _UNROLLED:
            all_count = " && ".join(f"{share(str(k))} != 0" for k in range(int(count)))
            text = c_text.choice(all_count, [pixel(False)], [text])
        row = f"const {c_text.ctype(self.weight)}* from = {source} + {first}[p] * {each};"
        return loop("p", "0", out, row, text)

    def _gathered(self) -> list[str]:
        """Declare the ``rows`` that a row is the sum of, and their weights ``of``."""
        places, shares = [self.plane()], []
        for g in self.down:
            places.append(f"{self._element(g)} * {self.stride(g)}")
            shares.append(f"{self.weights(g)}[k{g} * {self.args.dim(self.groups[g].out)} + i{g}]")
        x = self.args.input(0)
        lines = [f"of[n] = {' * '.join(shares)};", f"rows[n++] = {x} + {self.args.sum(*places)};"]
        if self.counts:
            lines.insert(1, "if (of[n] == 0) continue;")
        text = "\n".join(lines)
        for g in reversed(self.down):
            text = loop(f"k{g}", "0", self.taken(g), text)
        return [
            comment("The rows of x around this one, and how much of each."),
            *self._row_list(),
            "int64_t n = 0;",
            text,
        ]

    def _row_list(self) -> list[str]:
        """Declare room for the ``rows``, and ``of``: with antialias there may be many."""
        element, kind = f"const {c_text.ctype(self.dtype)}*", c_text.ctype(self.weight)
        if isinstance(self.count, int) and self.count <= _ON_STACK:
            return [f"{element} rows[{self.count}];", f"{kind} of[{self.count}];"]
        self._own("rows", self.count, element, 8)
        self._own("of", self.count, kind, self.weight.itemsize)
        return []

    def _element(self, g: int) -> str:
        at = f"({self.first(g)}[i{g}] + k{g})"
        if never_short(self.groups[g]):
            return at
        last = f"{self.args.dim(self.groups[g].size)} - 1"
        return f"({at} < {last} ? {at} : {last})"

    # Kernels

    def artifact(self) -> KernelArtifact:
        row = self._kept_rows() if self._grows() else self._fresh_row()
        body = [
            self.decode(),
            f"{c_text.ctype(self.dtype)}* to = {self.args.output(0)} + o * {self.row_out};",
            *self.extrapolated(row, self._value()),
        ]
        begin = [*self._widths(), *self.lines.values()]
        if self._grows():
            begin += [f"int64_t held[{self.count}], plane = -1;"]
        elif self._slack():
            size = f"{self.row_in} + {self._slack()}"
            begin += [
                comment("An axis of few elements is followed by zeros."),
                loop("i", self.row_in, size, "line[i] = 0;"),
            ]
        return self.finish(body, begin)

    def _grows(self) -> bool:
        """Whether rows that are stretched are used again: one axis down, with no fewer results
        than elements, outermost but for those that keep their size.
        """
        if self.across < 0 or len(self.down) != 1 or not self.sums.vector:
            return False
        (g,) = self.down
        group = self.groups[g]
        known = all(isinstance(self.groups[i].taps, TableTaps) for i in (g, self.across))
        return known and group.out >= group.size  # type: ignore[operator]

    def _slack(self) -> Dim:
        """Elements behind a row that are read, with weight 0, where it is short."""
        if self.across < 0 or never_short(self.groups[self.across]):
            return 0
        return self.taps(self.across).count * (self.inner if self.pixels else 1)

    def _fresh_row(self) -> list[str]:
        if self.across < 0:
            down = comment("Down: the weighted sum of whole rows.")
            return [*self._gathered(), down, self._blend(self.dtype, self.dtype, "to")]
        source, lines = f"({self.args.input(0)} + {self.plane()})", []
        if self.down or self.dtype is not self.weight or self._slack():
            source = self.line("line", self._row_size() + self._slack())
            lines = self._summed_line() if self.down else [self._copied_line("line")]
        lines.append(comment("Across: weighted sums of neighbours."))
        return [*lines, self._stretch(source, self.dtype, "to")]

    def _row_size(self) -> Dim:
        return dims.prod(g.size for g in self.groups[self.across :])

    def _summed_line(self) -> list[str]:
        down = comment("Down: the weighted sum of whole rows, to a line.")
        return [*self._gathered(), down, self._blend(self.dtype, self.weight, "line")]

    def _copied_line(self, y: str, place: str = "") -> str:
        """A row of x as numbers to calculate with."""
        source = f"{self.args.input(0)} + {place or self.plane()} + i"

        def body(count: str) -> list[str]:
            value = self.sums.loaded(self.dtype, source, count)
            return [self.sums.stored(self.weight, f"{y} + i", value, count)]

        return self.sums.swept(self.row_in, body)

    def _kept_rows(self) -> list[str]:
        """A row from the stretched ones around it, of which those are kept that are used again."""
        (g,) = self.down
        count, size = self.count, dims.prod(x.out for x in self.groups[self.across :])
        kept = self.line("kept", size * count)
        place = self.args.sum(self.plane(), f"row * {self.stride(g)}")
        source = f"({self.args.input(0)} + {place})"
        lines = [f"float* slot = {kept} + row % {count} * {self.row_out};"]
        if self.dtype is not DType.FP32:
            source = self.line("line", self._row_size())
            lines.append(self._copied_line("line", place))
        missing = [*lines, self._stretch(source, DType.FP32, "slot"), f"held[row % {count}] = row;"]
        around = [
            f"of[n] = {self.weights(g)}[k * {self.args.dim(self.groups[g].out)} + i{g}];",
            *["if (of[n] == 0) continue;"] * self.counts,
            f"const int64_t row = {self.first(g)}[i{g}] + k;",
            comment("Across: weighted sums of neighbours."),
            block(f"if (held[row % {count}] != row)", *missing),
            f"rows[n++] = {kept} + row % {count} * {self.row_out};",
        ]
        image = self.plane()
        return [
            block(
                f"if (plane != {image})",
                f"plane = {image};",
                loop("k", "0", str(count), "held[k] = -1;"),
            ),
            f"const float* rows[{count}];",
            f"float of[{count}];",
            "int64_t n = 0;",
            loop("k", "0", str(count), *around),
            comment("Down: the weighted sum of stretched rows."),
            self._blend(DType.FP32, self.dtype, "to"),
        ]

    def _value(self) -> str:
        """What stands outside, as it is stored."""
        value = self.node.attrs.extrapolation_value
        if self.dtype.is_float and self.dtype.bits >= 32:
            return float_literal(value, double=self.dtype is DType.FP64)
        if self.dtype.is_float:
            bits = np.asarray(value, np.float64).astype(self.dtype.numpy).view(np.uint16)
            return str(int(bits))
        low, high = int_range(self.dtype)
        return str(int(np.clip(np.rint(value), low, high)))

    def _table(self, g: int, t: ComputedTaps) -> list[str]:
        a = self.node.attrs
        shape = f"{self.args.dim(t.size)}, {self.taken(g)}, reach, {self._radius}"
        kernel = f"{float_literal(a.cubic_coeff_a, double=True)}, shrink, {int(a.exclude_outside)}"
        tables = f"{self.first(g)} + i, {self.weights(g)} + i, {self.args.dim(t.out)}"
        name = f"tx_resize_weights_{self.weight.value}"
        return [
            *self.between(t),
            f"const double shrink = {self._shrink(t, 'scale')};",
            f"const int64_t reach = tx_resize_reach({self._radius}, shrink);",
            *([self._width(g, t)] if t.widens else []),
            f"{name}(at, {shape}, {kernel}, {tables});",
        ]
