"""Convolution of few channels in the linear format: vectors hold neighbouring pixels of a line,
where blocks of channels would be mostly empty, or would have to be made and taken apart.

A unit is a band of lines of a group, or a part of their columns. A thread copies the input that the
unit needs to memory of its own, with zeros for what lies beyond the borders and columns sorted by
their remainder modulo the stride, so that all taps are loads of vectors. A convolution of single
pixels, which all are one line, reads its input where it lies, but for what is no whole tile. Tiles
are some lines times some channels of the group times some vectors of columns: a vector of the input
is loaded once for all lines of the tile that it takes part in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tactix.base.dims import Dim, ceildiv, evaluate, prod, symbols
from tactix.base.dtypes import DType
from tactix.base.errors import ShapeError
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import tile as c_tile
from tactix_codegen.c.epilogue import EpilogueOperand
from tactix_codegen.c.text import (
    Args,
    at_most,
    block,
    comment,
    decode,
    kernel,
    load,
    loop,
    prelude,
    splat,
    split,
    store,
    times,
    vector_preludes,
)
from tactix_codegen.c.tile import (
    Functions,
    RegisterTile,
    by_rows,
    finish,
    flat,
    is_row_major,
)
from tactix_cpu.tactics.conv.general import ConvolutionTaps, known_taps
from tactix_cpu.tactics.estimates import CLOCK, START

FEW = 8
"""Channels of a group up to which vectors of channels are at most half full on the widest
processors: of the input, whose lines are copied.
"""
MANY = 4096
"""Products of a pixel up to which those of single pixels are made so: 16 KiB of weights, half of a
first cache of 32 KiB, as the weights are read for every tile.
"""
CHANNELS = 8
"""Most channels of a tile."""
LINES = 4
"""Lines of a tile where windows have several: a window of three loads a vector of the input half as
often as with tiles of one line.
"""
COLUMNS = 1024
"""Columns of a unit, so that threads share a long line."""
COPY_BYTES = 1 << 14
"""Bytes of the copy that a unit works on, so that it stays in a first cache of 32 KiB."""
PIECES = 4
"""Units for each thread at least, if there are so many tiles: see conv.kernel."""
STEP = 0.7
"""Cycles of a tap for a vector of results: one FMA, of which two start in a cycle, and loads of
which most are of two lines of the cache.
"""
COPY = 4.0
"""Bytes that are copied in a cycle. No measurement of it is on record."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [LinesConvTactic()]


class LinesConvTactic(Tactic[ConvolutionTaps[int]]):
    """float32, one or two spatial axes, or any number for single pixels; groups of few channels,
    computed weights, symbolic sizes and pads.
    """

    key = "tactix.c_conv_lines@1"
    implements = ("tactix.Convolution@1",)
    source = "c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> ConvolutionTaps[int] | Reject:
        try:
            taps = known_taps(node)
        except ShapeError as e:
            return Reject(str(e))
        if isinstance(taps, Reject):
            return taps
        flat_taps = _flattened(taps)
        inputs, outputs = taps.c // taps.group, taps.co // taps.group
        if flat_taps is not None:
            many = inputs * outputs > MANY
            return Reject("so many channels are vectors of their own") if many else flat_taps
        if len(taps.kernel) > 2:
            return Reject("lines of one or two spatial axes only")
        if inputs > FEW:
            return Reject(f"a group has more than {FEW} channels, which are vectors of their own")
        return taps

    def cost(
        self, taps: ConvolutionTaps[int], variant: Variant, ctx: CompileContext
    ) -> float | None:
        results = taps.n * taps.co * prod(taps.out)
        read = taps.n * taps.c * prod(taps.size)
        if not symbols(results) | symbols(read) <= set(ctx.opt):
            return None
        steps = evaluate(results, ctx.opt) * (taps.c // taps.group) * math.prod(taps.kernel)
        cycles = steps / max(4, ctx.device.lanes) * STEP + evaluate(read, ctx.opt) * 4 / COPY
        return START + cycles / CLOCK / max(1, ctx.threads)

    def compile(
        self, taps: ConvolutionTaps[int], variant: Variant, ctx: CompileContext
    ) -> KernelArtifact:
        return LinesKernel(taps, ctx).artifact()


def _flattened(taps: ConvolutionTaps[int]) -> ConvolutionTaps[int] | None:
    """A convolution of single pixels as one over a line of them all; None for others, and where an
    operand cannot be walked so.
    """
    ones, zeros = (1,) * len(taps.kernel), (0,) * len(taps.kernel)
    moving = taps.strides != ones or taps.begins != zeros or taps.size != taps.out
    if taps.kernel != ones or moving:
        return None
    operands = {}
    for v, o in taps.epi.operands.items():
        steps = o.strides[2:]
        even = all(s == 0 for s in steps) or (steps[-1] == 1 and is_row_major(taps.out, steps))
        if not even:
            return None
        operands[v] = replace(o, strides=(*o.strides[:2], steps[-1]))
    line = (prod(taps.out),)
    epi = replace(taps.epi, operands=operands, shape=(*taps.epi.shape[:2], *line))
    return replace(
        taps,
        size=line,
        out=line,
        kernel=(1,),
        strides=(1,),
        dilations=(1,),
        stuffing=(1,),
        begins=(0,),
        epi=epi,
    )


@dataclass(frozen=True)
class BandSite:
    """Results in linear lines of ``out[-1]`` columns; implements c_tile.TileSite. Rows of a tile
    are the ``channels`` of its first line, then those of the next.

    The kernel's C variables: ``image``, ``channel``, ``line`` and ``col`` of the tile's first
    result.
    """

    args: Args
    taps: ConvolutionTaps[int]
    lanes: int
    left: str
    channels: int

    def _place(self, row: str) -> tuple[str, str]:
        """Channel and line of a row of a tile, a number or a variable."""
        each = self.channels
        if row.isdigit():
            line, channel = (str(k) for k in divmod(int(row), each))
        else:
            line, channel = (row, "0") if each == 1 else (f"{row} / {each}", f"{row} % {each}")
        return self.args.sum("channel", channel), self.args.sum("line", line)

    def place(self, operand: EpilogueOperand, row: str, vector: int, count: str) -> str:
        n, c, *outer, last = operand.strides
        channel, line = self._place(row)
        terms = [f"image * {self.args.dim(n)}"] * (n != 0)
        terms += [f"({channel}) * {self.args.dim(c)}"] * (c != 0)
        sizes = [self.args.dim(d) for d in self.taps.out[:-1]]
        terms.append(flat(line, sizes, outer, self.args))
        pointer = self.args.sum(self.args.input(operand.index), *terms)
        if last == 0:
            return splat(operand.dtype, pointer)
        return load(operand.dtype, self.args.sum(pointer, "col", str(vector * self.lanes)), count)

    def put(self, output: int, dtype: DType, value: str, row: str, vector: int, count: str) -> str:
        channel, line = self._place(row)
        channels = self.args.size("Y_CHANNELS", self.taps.co)
        lines = self.args.size("Y_LINES", prod(self.taps.out[:-1]))
        wide = self.args.size("Y_WIDE", self.taps.out[-1])
        first = f"((image * {channels} + {channel}) * {lines} + {line}) * {wide}"
        at = self.args.sum(self.args.output(output), first, "col", str(vector * self.lanes))
        return store(dtype, at, value, count)


class LinesKernel:
    """Writes one kernel. One axis is that of columns, and there is one line."""

    def __init__(self, taps: ConvolutionTaps[int], ctx: CompileContext) -> None:
        self.taps, self.ctx, t = taps, ctx, taps
        self.args = Args(t.node)
        self.functions = Functions(self.args)
        self.lanes = max(4, ctx.device.lanes)
        self.inputs, self.outputs = t.c // t.group, t.co // t.group
        self.channels = min(CHANNELS, self.outputs)
        self.in_place = _flattened(t) is not None
        flat_image = len(t.kernel) == 1
        self.high: Dim = 1 if flat_image else t.size[0]
        self.out_high: Dim = 1 if flat_image else t.out[0]
        self.kernel = (1, *t.kernel) if flat_image else t.kernel
        self.strides = (1, *t.strides) if flat_image else t.strides
        self.dilations = (1, *t.dilations) if flat_image else t.dilations
        self.begins = (0, *t.begins) if flat_image else t.begins
        self.lines, self.vectors = self._tile()
        self.columns = self._columns()
        self.reach = self.dilations[1] * (self.kernel[1] - 1) // self.strides[1]
        copied = self.vectors * self.lanes if self.in_place else self.columns + self.reach
        self.pitch = -(-copied // self.lanes) * self.lanes
        """Columns of one remainder in a line of the copy: whole vectors, so that lines are
        aligned.
        """
        self.band = self._band()

    def _tile(self) -> tuple[int, int]:
        """Lines and vectors of a tile: up to 16 sums of 32 registers, or 8 of 16."""
        most = c_tile.registers(self.ctx.device) // 2
        lines = max(1, LINES // self.channels) if self.kernel[0] > 1 else 1
        if isinstance(self.out_high, int):
            lines = min(lines, max(1, self.out_high))
        vectors = max(1, min(8, most // (lines * self.channels)))
        wide = self.taps.out[-1]
        if not isinstance(wide, int):
            return lines, vectors
        needed = max(1, -(-wide // self.lanes))
        # The fewest vectors of columns that there are not, then the largest tile.
        return lines, min(range(1, vectors + 1), key=lambda v: (-(-needed // v) * v, -v))

    def _columns(self) -> int:
        """Of a unit: whole tiles."""
        tile, wide = self.vectors * self.lanes, self.taps.out[-1]
        wanted = COLUMNS if not isinstance(wide, int) else min(COLUMNS, max(1, wide))
        return -(-wanted // tile) * tile

    def _lines_of_copy(self, band: int) -> int:
        return (band - 1) * self.strides[0] + self.dilations[0] * (self.kernel[0] - 1) + 1

    def _band(self) -> int:
        """Lines of a unit: as many as fit, of which threads have some each."""
        if self.in_place:
            return 1
        line = self.inputs * self.strides[1] * self.pitch * 4
        high, most = self.out_high, COPY_BYTES
        band = self.lines
        while self._lines_of_copy(band + self.lines) * line <= most:
            band += self.lines
        opt, parts = self.ctx.opt, ceildiv(self.taps.out[-1], self.columns)
        units = self.taps.n * self.taps.group * parts
        if isinstance(high, int):
            band = min(band, max(1, high))
            if self.ctx.threads > 1 and symbols(units) <= set(opt):
                bands = -(-PIECES * self.ctx.threads // max(1, evaluate(units, opt)))
                band = min(band, max(self.lines, high // bands // self.lines * self.lines))
        return band

    def artifact(self) -> KernelArtifact:
        self.args.size("TAPS", math.prod(self.kernel))
        self.args.size("KERNEL", self.kernel[1])
        self.args.size("STRIDE", self.strides[1])
        self.args.size("INPUTS", self.inputs)
        self.args.size("OUTPUTS", self.outputs)
        self.args.size("PITCH", self.pitch)
        self.args.size("LINE", self.strides[1] * self.pitch)
        self.args.size("PLANE", self._lines_of_copy(self.band) * self.strides[1] * self.pitch)
        self.args.size("COLUMNS", self.columns)
        self.args.size("BAND", self.band)
        even = isinstance(self.out_high, int) and self.out_high % self.lines == 0
        sizes = [self.lines] if even else [self.lines, 1]
        rest = c_tile.rest_sizes(self.channels, self.outputs)
        for lines in sizes:
            for channels in (self.channels, *rest):
                self._function(lines, channels)
        body = self._units(sizes, (self.channels, *rest))
        return kernel(
            self.args,
            body,
            self.ctx,
            helpers=f"{self._copied_line()}{self.functions.text()}",
            preludes=(*vector_preludes(), prelude("pool.h")),
            workspace=4 * self._copy() * max(1, self.ctx.threads),
        )

    def _copy(self) -> int:
        """Floats of a thread's copy, and a vector behind them."""
        plane = self._lines_of_copy(self.band) * self.strides[1] * self.pitch
        return self.inputs * plane + self.lanes

    def _function(self, lines: int, channels: int) -> None:
        """The function of a tile of so many lines and channels."""
        t, tile = self.taps, RegisterTile(lines * channels, self.vectors, self.lanes)
        wide = t.out[-1]
        full = isinstance(wide, int) and wide % tile.width == 0
        left = "" if full else f"({self.args.size('Y_WIDE', wide)} - col)"
        place = "j" if self.dilations[1] == 1 else f"j * {self.dilations[1]}"
        column = place if self.strides[1] == 1 else f"{place} % STRIDE * PITCH + {place} / STRIDE"
        read = range(self._lines_of_copy(lines))
        steps = [self._line_of_input(tile, channels, at) for at in read]
        taps = loop(
            "j",
            "0",
            "KERNEL",
            f"const float* xt = x + c * plane + {column};",
            "const float* wt = w + c * TAPS + j;",
            *steps,
        )
        body = [
            tile.zero(),
            loop("c", "0", "INPUTS", taps),
            *finish(tile, t.epi, BandSite(self.args, t, self.lanes, left, channels)),
        ]
        about = (
            f"{lines} lines from line on, {channels} channels from channel on, {self.vectors} x "
            f"{self.lanes} columns from col on: sums s<line and channel>_<vector> over the taps "
            "and channels of x, the window of the first result, times w."
        )
        parameters = (
            "const float* x, int64_t plane, const float* w, int64_t image, int64_t channel, "
            "int64_t line, int64_t col"
        )
        self.functions.add(f"t{lines}x{channels}", parameters, body, about)

    def _line_of_input(self, tile: RegisterTile, channels: int, at: int) -> str:
        """A line of the copy, times the weights of all lines of the tile that it is a tap of."""

        def weight(m: int, u: int) -> str | None:
            line, channel = divmod(m, channels)
            tap, rest = divmod(at - line * self.strides[0], self.dilations[0])
            if rest or not 0 <= tap < self.kernel[0]:
                return None
            offset = self.args.sum(times(channel, "INPUTS * TAPS"), times(tap, "KERNEL"))
            return f"wt[{offset}]"

        return tile.steps(1, weight, self.args.sum("xt", times(at, "LINE")))

    def _units(self, sizes: list[int], channels: tuple[int, ...]) -> list[str]:
        t, args = self.taps, self.args
        lines, wide = args.size("Y_LINES", self.out_high), args.size("Y_WIDE", t.out[-1])
        bands = args.size("BANDS", ceildiv(self.out_high, self.band))
        parts = args.size("PARTS", ceildiv(t.out[-1], self.columns))
        high, x_wide = args.size("X_LINES", self.high), args.size("X_WIDE", t.size[-1])
        args.size("X_CHANNELS", t.c)
        image = f"(image * X_CHANNELS + group * INPUTS) * {high} * {x_wide}"
        unit = [
            decode("u", ["image", "group", "band", "part"], ["0", str(t.group), bands, parts]),
            "const int64_t first = band * BAND, left = part * COLUMNS;",
            f"const int64_t end = first + BAND < {lines} ? first + BAND : {lines};",
            f"const int64_t past = left + COLUMNS < {wide} ? left + COLUMNS : {wide};",
            f"const float* const in = {args.input(t.x)} + {image};",
            f"const float* const weights = {args.input(t.w)} + group * OUTPUTS * INPUTS * TAPS;",
            *(self._in_place(channels) if self.in_place else self._copied(sizes, channels)),
        ]
        total = args.dim(t.n * t.group)
        return [
            *at_most(max(1, self.ctx.threads)),
            f"float* const copy = {args.workspace(0)} + tid * {args.size('COPY', self._copy())};",
            comment("bands of lines of a group, and parts of their columns"),
            split(f"{total} * {bands} * {parts}"),
            loop("u", "lo", "hi", *unit),
        ]

    def _tiles(self, channels: tuple[int, ...], lines: int, x: str, plane: str) -> str:
        """The tiles of all channels for some lines and a vector of columns."""

        def call(count: int) -> str:
            w, channel = "weights + m * INPUTS * TAPS", "group * OUTPUTS + m"
            return f"TX_NAME(t{lines}x{count})(a, {x}, {plane}, {w}, image, {channel}, line, col);"

        return block("", "int64_t m = 0;", by_rows(channels, "m", "OUTPUTS", call))

    def _in_place(self, channels: tuple[int, ...]) -> list[str]:
        """Tiles of single pixels, of which only the last ones are copied."""
        size = self.vectors * self.lanes
        copied = loop(
            "c",
            "0",
            "INPUTS",
            "TX_NAME(line)(copy + c * PLANE, in + c * X_WIDE, col, X_WIDE, PITCH);",
        )
        body = [
            f"const int whole = col + {size} <= X_WIDE;",
            block("if (!whole)", copied),
            "const float* const x = whole ? in + col : copy;",
            "const int64_t plane = whole ? X_WIDE : PLANE, line = first;",
            self._tiles(channels, 1, "x", "plane"),
        ]
        return [loop("col", "left", "past", *body, step=size)]

    def _copied(self, sizes: list[int], channels: tuple[int, ...]) -> list[str]:
        """Tiles of windows, of a copy with zeros around it."""
        args, down = self.args, self.strides[0]
        above, before = (args.dim(d) for d in self.begins)
        name = "line" if self.strides[1] == 1 else "sorted"
        line = loop(
            "i",
            "0",
            f"(end - first - 1) * {down} + {self.dilations[0] * (self.kernel[0] - 1) + 1}",
            f"const int64_t at = first * {down} + i - {above};",
            "float* to = copy + c * PLANE + i * LINE;",
            "const int inside = at >= 0 && at < X_LINES;",
            f"const int64_t from = left * STRIDE - {before}, wide = inside ? X_WIDE : 0;",
            f"TX_NAME({name})(to, in + (c * X_LINES + at) * X_WIDE, from, wide, count);",
        )
        x = f"copy + (line - first) * {down} * LINE + (col - left)"
        tiles = by_rows(
            sizes, "line", "end", lambda count: self._tiles(channels, count, x, "PLANE")
        )
        return [
            comment("what the unit needs of the input, with zeros around it"),
            f"const int64_t count = {self._count()};",
            loop("c", "0", "INPUTS", line),
            loop(
                "col",
                "left",
                "past",
                "int64_t line = first;",
                tiles,
                step=self.vectors * self.lanes,
            ),
        ]

    def _count(self) -> str:
        """How many columns of a remainder a unit reads: of an open width, those of its tiles."""
        if isinstance(self.taps.out[-1], int):
            return "PITCH"
        tile = self.vectors * self.lanes
        return f"(past - left + {tile - 1}) / {tile} * {tile} + {self.reach}"

    def _copied_line(self) -> str:
        """The functions that copy a line."""
        copied = [
            "const int64_t before = from < 0 ? -from : 0, past = wide - from;",
            "const int64_t begin = before < count ? before : count;",
            "const int64_t end = past < begin ? begin : past < count ? past : count;",
            "int64_t q = 0;",
            "for (; q < begin; q += TX_LANES) tx_store_f32(to + q, tx_zero());",
            "for (q = begin; q + TX_LANES <= end; q += TX_LANES)",
            "    tx_store_f32(to + q, tx_load_f32(x + from + q));",
            block(
                "if (q < end)",
                "tx_store_f32(to + q, tx_load_n_f32(x + from + q, end - q));",
                "q += TX_LANES;",
            ),
            "for (; q < count; q += TX_LANES) tx_store_f32(to + q, tx_zero());",
        ]
        about = comment(
            "`count` columns from `from` on of a line of x that is `wide`, zeros beside it; "
            "up to a vector behind them is written, too."
        )
        line = "const float* x, int64_t from, int64_t wide, int64_t count)"
        text = f"{about}\n{block(f'TX_INLINE void TX_NAME(line)(float* to, {line}', *copied)}\n"
        if self.strides[1] == 1:
            return text
        about = comment(
            "The same, sorted: every STRIDE-th, `count` of them, then those behind each."
        )
        store_it = "tx_store_f32(to + p * PITCH + q, tx_load_step(row + q * STRIDE + p, STRIDE));"
        sorted_ = [
            f"enum {{ STRIDE = {self.strides[1]}, PITCH = {self.pitch} }};",
            "float row[STRIDE * PITCH + TX_LANES];",
            "TX_NAME(line)(row, x, from, wide, count * STRIDE);",
            loop("p", "0", "STRIDE", loop("q", "0", "count", store_it, step="TX_LANES")),
        ]
        head = f"TX_INLINE void TX_NAME(sorted)(float* to, {line}"
        return f"{text}{about}\n{block(head, *sorted_)}\n"
