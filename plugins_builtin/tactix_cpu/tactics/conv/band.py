"""Bands of output rows of a bfloat16 convolution, and the copy of the input that each needs.

A band's input lies in memory of one thread as cells of 64 bytes, 32 channels of a pixel, plane
after plane; of three axes with planes for each tap of the first, so that a band is of one place
there; of an image with few channels, cells of four channels, so that eight neighbouring taps
are 64 bytes. Output pixels are counted over rows of ``out_wide``, so that the cells of neighbours
lie one step apart whatever the tap; those past the end of a row are computed and left. What stands
for pads behind a row is what stands for those before the next one.

A line of a convolution along one axis is cut into rows of some output pixels, so that it makes
several bands; each row's copy has what its own pixels need, also what the next row's has.
"""

from __future__ import annotations

from dataclasses import dataclass

from tactix.base.dims import evaluate
from tactix.base.dtypes import DType
from tactix_codegen.c.text import Args, block, loop
from tactix_cpu.tactics.conv.int8_window import FEW_CHANNELS, DotWindow
from tactix_cpu.tactics.conv.window import BlockedSite, prepared
from tactix_cpu.tactics.dot_tile import DEEP, HIGH

SCRATCH = 3 << 17
LARGE_SCRATCH = 5 << 18
"""Bytes of a band's copy: 384 KiB leave the rest of the second cache (2 MiB on servers of Intel
with AMX) to weights, which then are read from there for every band; where they do not stay there
anyway, bands of 1.25 MiB read them less often. No measurement of either is on record.
"""
LARGE_WEIGHTS = 1 << 20
"""Bytes of weights that do not stay in the second cache beside a band: half of it. No measurement
of it is on record.
"""


@dataclass(frozen=True)
class Bands:
    """``rows``: output rows of a band; ``linear``: the input is a linear image of few channels.

    ``line``: output pixels of the line that rows are pieces of, 0 where rows are an image's.
    """

    win: DotWindow
    linear: bool
    rows: int
    line: int = 0

    @property
    def cell(self) -> int:
        """Bytes of a pixel."""
        return 2 * FEW_CHANNELS if self.linear else DEEP

    @property
    def deep(self) -> int:
        """Planes of one tap of the depth axis."""
        return 1 if self.linear else -(-self.win.c_each * 2 // DEEP)

    @property
    def planes(self) -> int:
        """Of all taps of the depth axis."""
        return self.win.depth.kernel * self.deep

    @property
    def pick(self) -> tuple[int, int]:
        """The copy takes every so manieth row and column: one tap needs no others."""
        return tuple(
            s if k == 1 else 1 for s, k in zip(self.win.strides, self.win.kernel, strict=True)
        )  # type: ignore[return-value]

    @property
    def step(self) -> tuple[int, int]:
        """Rows and columns of the copy between neighbours."""
        return tuple(
            1 if k == 1 else s for s, k in zip(self.win.strides, self.win.kernel, strict=True)
        )  # type: ignore[return-value]

    @property
    def runs(self) -> int:
        """Tiles of 64 bytes that a row of taps takes."""
        kernel, dilation = self.win.kernel[1], self.win.dilations[1]
        return -(-kernel * dilation * self.cell // DEEP) if self.linear else kernel

    @property
    def lead(self) -> int:
        """Cells before the first of a row."""
        return 0 if self.line else -(-self.win.pads[1] // self.pick[1])

    @property
    def used(self) -> int:
        """Cells from the first to the last that a row of results needs."""
        return (
            (self.win.out[1] - 1) * self.step[1]
            + (self.win.kernel[1] - 1) * self.win.dilations[1]
            + 1
        )

    @property
    def count(self) -> int:
        """Cells of a row that come from the input."""
        there = -(-(self.win.size[1] + self.win.pads[1]) // self.pick[1])
        return max(0, min(self.used, there) - self.lead)

    @property
    def out_wide(self) -> int:
        """Output pixels of a row, with those that are left."""
        return max(
            self.win.out[1], -(-max(self.lead + self.count, self.used - self.lead) // self.step[1])
        )

    @property
    def wide(self) -> int:
        """Cells of a row."""
        return self.out_wide * self.step[1]

    @property
    def is_even(self) -> bool:
        """Whether every computed pixel is one."""
        return self.out_wide == self.win.out[1]

    @property
    def part_rows(self) -> int:
        """Rows of each of the parts that the rows are dealt out to, and room for zeros."""
        room = -(-self.tail // (self.wide * self.cell))
        return -(-self.rows_for(self.rows) // self.step[0]) + room

    def rows_for(self, rows: int) -> int:
        """Rows of the copy that so many output rows need."""
        return (rows - 1) * self.step[0] + (self.win.kernel[0] - 1) * self.win.dilations[0] + 1

    @property
    def tail(self) -> int:
        """Bytes behind the last row of a part that must be zeros."""
        return self.lead * self.cell + (self.runs * DEEP if self.linear else 0)

    @property
    def plane(self) -> int:
        """Bytes."""
        return -(-self.step[0] * self.part_rows * self.wide * self.cell // DEEP) * DEEP

    def scratch(self, pixels: int) -> int:
        """Bytes for one thread, where blocks are of so many pixels: the last one's taps reach
        behind the last row.
        """
        reach = pixels * self.step[1] + (self.win.kernel[1] - 1) * self.win.dilations[1]
        return -(-(self.planes * self.plane + reach * self.cell + DEEP) // DEEP) * DEEP

    @property
    def bands(self) -> int:
        """Of an image."""
        return -(-self.win.out[0] // self.rows)

    def blocks(self, pixels: int) -> int:
        """Blocks of so many pixels in an image."""
        last = self.win.out[0] - (self.bands - 1) * self.rows
        return (self.bands - 1) * -(-self.rows * self.out_wide // pixels) + -(
            -last * self.out_wide // pixels
        )

    def tap(self, i: str) -> str:
        """Cells from a place to the first of its taps in row ``i``."""
        down, step = self.win.dilations[0], self.step[0]
        row = (
            f"{i} * {down}"
            if step == 1
            else f"({i} * {down} % {step} * {self.part_rows} + {i} * {down} / {step})"
        )
        return f"{row} * {self.wide}"

    def copy(self, args: Args, to: str) -> str:
        """Copy what output rows ``y0`` to ``y0 + rows`` of ``image`` need."""
        step, bytes_ = self.step[0], self.wide * self.cell
        if self.win.before is not None:
            return loop("p", "0", str(self.planes), *self._depth(to), *self._prepared(args, to))
        if self.win.has_pointwise_planes and not self.linear:
            whole = self._joined(args, "y0", f"rows * {self.wide}", f"{to} + p * {self.plane}")
            return loop("p", "0", str(self.planes), *self._depth(to), *whole)
        row = self._row(args)
        place = f"(r % {step} * {self.part_rows} + r / {step}) * {bytes_}"
        head = f"uint8_t* out = {to} + p * {self.plane} + {place};"
        needed = f"(rows - 1) * {step} + {self.rows_for(1)}"
        zeros = f"if (r + {step} >= {needed}) memset(out + {bytes_}, 0, {self.tail});"
        inner = loop("r", "0", needed, *self._unused(), head, zeros if self.tail else "", *row)
        return loop("p", "0", str(self.planes), *self._depth(to), inner)

    def _prepared(self, args: Args, to: str) -> list[str]:
        """Statements that put what stands before a convolution of single pixels into plane ``p``:
        each cell holds two channel blocks.
        """
        win, blocks = self.win, -(-self.win.c // HIGH)
        line = f"z * {win.size[0]} + y0" if win.has_depth else "y0"
        x = f"{args.input(win.x)} + (image * {blocks} + block) * {self._pixels * HIGH}"
        beyond = loop(
            "pixel", "from", "end", f"memset(made + (pixel - from) * {DEEP // 2}, 0, 32);"
        )
        half = [
            "const int64_t block = 2 * p + half;",
            f"uint16_t* made = (uint16_t*)({to} + p * {self.plane}) + half * {HIGH};",
            block(f"if (block >= {blocks})", beyond, "continue;") if blocks % 2 else "",
            *prepared(BlockedSite(args, win, HIGH, ""), x, "made", DType.BF16, DEEP // 2),
        ]
        return [
            f"const int64_t from = ({line}) * {self.wide}, end = from + rows * {self.wide};",
            loop("half", "0", "2", *half),
        ]

    def _depth(self, to: str) -> list[str]:
        """Statements that declare ``z``, where plane ``p`` lies along the depth; one beyond the
        border is cleared.
        """
        d = self.win.depth
        if not self.win.has_depth:
            return []
        beyond = f"memset({to} + p * {self.plane}, 0, {self.plane});"
        return [
            f"const int64_t z = z0 * {d.stride} + p / {self.deep} * {d.dilation} - {d.pad};",
            block(f"if (z < 0 || z >= {d.size})", beyond, "continue;"),
        ]

    def _unused(self) -> list[str]:
        """Parts that no tap reads are left out."""
        step = self.step[0]
        read = {i * self.win.dilations[0] % step for i in range(self.win.kernel[0])}
        return [f"if (r % {step} == {q}) continue;" for q in range(step) if q not in read]

    def _row(self, args: Args) -> list[str]:
        if self.line:
            return self._piece(args)
        win, cell = self.win, self.cell
        left, end = self.lead * cell, (self.lead + self.count) * cell
        rest = self.wide * cell - end
        column = self.lead * self.pick[1] - win.pads[1]
        out = f"out + {left}"
        return [
            f"const int64_t y = y0 * {win.strides[0]} + r * {self.pick[0]} - {win.pads[0]};",
            block(
                f"if (y < 0 || y >= {win.size[0]})",
                f"memset(out, 0, {self.wide * cell});",
                "continue;",
            ),
            f"memset(out, 0, {left});" if left else "",
            f"memset(out + {end}, 0, {rest});" if rest else "",
            *self._joined(args, "y", str(self.count), out, column),
        ]

    def _piece(self, args: Args) -> list[str]:
        """Of a line: its cells from the first that the row needs, with zeros on both sides."""
        win, cell = self.win, self.cell
        step = win.out[1] * win.strides[1]
        return [
            f"const int64_t from = (y0 + r) * {step} - {win.pads[1]};",
            f"const int64_t rest = {win.size[1]} - from;",
            f"const int64_t begin = from < 0 ? (-from < {self.used} ? -from : {self.used}) : 0;",
            f"const int64_t end = rest > {self.used} ? {self.used} : rest > begin ? rest : begin;",
            f"memset(out, 0, begin * {cell});",
            f"memset(out + end * {cell}, 0, ({self.wide} - end) * {cell});",
            *self._joined(args, "0", "end - begin", f"out + begin * {cell}", "from + begin"),
        ]

    def _joined(self, args: Args, y: str, count: str, out: str, column: int | str = 0) -> list[str]:
        """Statements that join the channels of ``count`` pixels from a row's ``column`` on."""
        win, pixels = self.win, self._pixels
        x = f"(const uint16_t*){args.input(win.inputs[0])}"
        if self.linear:
            taken = " | ".join(
                f"(uint64_t)in[{c * pixels} + i * {self.pick[1]}] << {16 * c}" for c in range(win.c)
            )
            line = f"image * {win.c} * {win.size[0]} + {y}"
            if self.win.has_depth:
                line = f"(image * {win.c} * {win.depth.size} + z) * {win.size[0]} + {y}"
            start = f"const uint16_t* in = {x} + ({line}) * {win.size[1]} + {column};"
            return [
                f"{start}\nuint64_t* to = (uint64_t*)({out});",
                loop("i", "0", count, f"to[i] = {taken};"),
            ]
        blocks = -(-win.c_each // 16)
        first = f"2 * (p % {self.deep})" if win.depth.kernel > 1 else "2 * p"
        image = f"(image * {win.group} + group)" if win.group > 1 else "image"
        plane = f"{image} * {blocks} + {first}"
        if self.win.has_depth:
            plane = f"({plane}) * {win.depth.size} + z"
        place = f"(({plane}) * {win.size[0]} + {y}) * {win.size[1]} + {column}"
        both, one = (f"TX_NAME({n})(in, {count}, {out});" for n in ("pair", "single"))
        odd = f"if ({first} + 1 < {blocks}) {both}\nelse {one}" if blocks % 2 else both
        return [f"const uint16_t* in = {x} + ({place}) * 16;", odd]

    @property
    def _pixels(self) -> int:
        """Of a channel of the input."""
        return evaluate(self.win.depth.size, {}) * self.win.size[0] * self.win.size[1]

    def functions(self) -> str:
        """The C functions that the copy calls."""
        if self.win.before is not None:
            return self.win.before.helpers + "\n"
        if self.linear:
            return ""
        second = 16 * self._pixels
        low = f"_mm256_loadu_si256((const __m256i*)(in + i * {16 * self.pick[1]}))"
        high = {"pair": low.replace("(in ", f"(in + {second} "), "single": "_mm256_setzero_si256()"}
        made = []
        for name in ("pair", "single") if -(-self.win.c_each // 16) % 2 else ("pair",):
            to = "(__m256i*)(to + i * 64"
            body = [
                f"_mm256_store_si256({to}), {low});",
                f"_mm256_store_si256({to} + 32), {high[name]});",
            ]
            head = f"static void TX_NAME({name})(const uint16_t* in, int64_t count, uint8_t* to)"
            made.append(block(head, loop("i", "0", "count", *body)))
        return "\n".join(made) + "\n"


def bands_for(win: DotWindow, linear: bool, pixels: int, threads: int, line: int = 0) -> Bands:
    """Bands whose copies fit, with the fewest blocks of so many pixels; several for threads where
    weights are small.
    """
    high = win.out[0]
    weights = 2 * win.c_each * win.co_each * win.depth.kernel * win.kernel[0] * win.kernel[1]
    budget = LARGE_SCRATCH if weights > LARGE_WEIGHTS else SCRATCH
    images = win.n * win.group * win.places
    most = (
        high
        if weights > LARGE_WEIGHTS or not isinstance(images, int)
        else -(-high * images // threads)
    )
    # Of the bands that fit, the smaller half reads the weights too often; in the others the fewest
    # blocks are the fewest pixels computed for nothing.
    options = [Bands(win, linear, r, line) for r in range(1, min(high, max(1, most)) + 1)]
    fitting = [b for b in options if b.scratch(pixels) <= budget] or options[:1]
    kept = fitting[len(fitting) // 2 :]
    return min(reversed(kept), key=lambda b: b.blocks(pixels))
