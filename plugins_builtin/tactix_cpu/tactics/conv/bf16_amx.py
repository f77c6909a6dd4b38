"""WideConvolution, and Convolution and ConvTranspose of bfloat16, on the AMX matrix unit of x86-64.

A thread copies the input of a band of output rows (c_band), then takes panel after panel of
weights, and in each the band's blocks of pixels; meanwhile the next panel is asked for. Knobs:
``rows`` (pixels) and ``vectors`` (of 16 channels) of a block, whose sums fill four tiles. A
transposed convolution without overlap is a product for each of its taps, which are more panels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tactix.base.dims import evaluate, symbols
from tactix.base.dtypes import DType
from tactix.base.tensor import LINEAR, blocked
from tactix.contracts.artifact import KernelArtifact, Packed
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c.epilogue import EpilogueOperand
from tactix_codegen.c.text import Args, block, ctype, kernel, loop, store
from tactix_codegen.c.text import prelude as text_of
from tactix_codegen.c.tile import GRID, Functions
from tactix_codegen.operations.convolution import FLAT
from tactix_cpu.tactics import dot_tile as byte
from tactix_cpu.tactics.conv import int8_window as window
from tactix_cpu.tactics.conv.band import bands_for
from tactix_cpu.tactics.conv.int8_window import FEW_CHANNELS, DotSite, DotWindow
from tactix_cpu.tactics.conv.transpose import spread
from tactix_cpu.tactics.dot_tile import DEEP, HALVES, HIGH, DotTile
from tactix_cpu.tactics.estimates import CLOCK, START

SHAPES = ((32, 2), (64, 1), (16, 4))
"""Pixels and vectors of blocks: four tiles of sums each, 2 x 2, 4 x 1 or 1 x 4, the last two for
few channels or few pixels. They load 4, 5 and 5 tiles for four products (dot_tile.SIDE).
"""
SUMS = 4
"""Tiles of sums, half of the eight registers."""
NEAR_CACHE = 1 << 15
"""Bytes of a panel that stay in the first cache: 32 of 48 KiB; the band's cells pass through the
rest. No measurement of it is on record.
"""
NEAR_WEIGHTS = 1 << 17
"""Bytes of weights that are not worth asking for ahead of their use: 128 KiB stay in the second
cache. No measurement of it is on record.
"""
OFFERED = 2
"""Variants of a node at most: those of the fewest cycles. Each costs a compilation, 0.3 s with gcc
on the prototype (README); no measurement of their number is on record.
"""
FAR = 1.2
"""Shapes whose estimate is so many times the best one's are not offered. No measurement of it is on
record.
"""

PRODUCT = 16
"""Cycles of the unit for a product of two tiles (Intel, Optimization Reference Manual)."""
LOAD, FAR_LOAD = 8, 24
"""Cycles to load a tile, 1 KiB, from the first cache: 16 rows, two a cycle (same manual); and from
the second: 43 bytes a cycle. No measurement of the latter is on record.
"""
RESULT = 4.5
"""Cycles to take a vector of 16 sums through the epilogue to the output."""
BLOCK = 60
"""Cycles of a block beside its steps: what it calls, and storing four tiles."""
COPY, LINEAR_COPY = 3, 2
"""Cycles to copy a cell of 64 bytes of blocked channels, and to join the channels of a pixel of a
linear image.
"""
PREPARED = 6
"""Cycles that the two vectors of a cell take more where something stands before the convolution.
No measurement of it is on record.
"""
PIECE = 256
"""Output pixels of the rows that a line is cut into: each row's copy has as many cells more as its
window is long, a tenth for windows of 25. No measurement of it is on record.
"""
WEIGHTS = 8
"""Bytes of weights that come from the second cache per cycle, once for every image. No measurement
of this or the three above is on record.
"""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [HalfAmxConvTactic()]


@dataclass(frozen=True)
class AmxConvWork:
    """``win``: what is summed; ``whole``: what becomes of it; ``turned``: it is transposed, and has
    ``taps``.

    ``line``: output pixels of a line that is cut into the rows of ``win``; 0 if none is.
    """

    win: DotWindow
    whole: DotWindow
    taps: tuple[int, int] = (1, 1)
    turned: bool = False
    line: int = 0

    @property
    def linear(self) -> bool:
        """Whether the input is read as a linear image."""
        return not self.turned and self.win.group == 1 and self.win.c <= FEW_CHANNELS

    def panels(self, columns: int) -> int:
        """Of weights of a group, those of all taps."""
        return self.taps[0] * self.taps[1] * -(-self.win.co_each // columns)


def work_of(node: Node) -> AmxConvWork | Reject:
    """What a node has the kernel do, or why it cannot."""
    if node.anchor is None or node.anchor.layer.name != "WideConvTranspose":
        win = window.prepared_window(node, HALVES, (1, 2, 3))
        if isinstance(win, Reject):
            return win
        few = win.before is not None and win.c <= FEW_CHANNELS
        return (
            Reject("layers before a convolution of few channels")
            if few
            else _cut(AmxConvWork(win, win))
        )
    found = spread(node)
    if isinstance(found, Reject):
        return found
    sizes: Any = (*found.size, *found.out)
    operands = found.epi.operands.values()
    if not all(isinstance(d, int) for d in sizes) or found.n == 0:
        return Reject("the sizes of the image are not known, or a tensor is empty")
    if not all(
        o.is_full or not any(o.strides) or window.per_channel(o, found.epi) for o in operands
    ):
        return Reject(
            "epilogue operands are one number, one per channel, or as large as the output"
        )
    win = DotWindow(
        found.x,
        found.w,
        -1,
        found.n,
        found.c,
        found.co,
        1,
        sizes[:2],
        sizes[:2],
        (1, 1),
        (1, 1),
        (1, 1),
        (0, 0, 0, 0),
        FLAT,
        node,
        found.epi,
        0,
        False,
        HALVES,
    )
    return AmxConvWork(win, replace(win, out=sizes[2:]), found.strides, True)


def _cut(work: AmxConvWork) -> AmxConvWork:
    """A long line as rows of PIECE pixels, so that threads share it, and its copy fits."""
    win, line = work.win, work.win.out[1]
    alone = not win.has_depth and (win.kernel[0], win.size[0], win.out[0]) == (1, 1, 1)
    if work.linear or not alone or win.kernel[1] == 1 or line < 2 * PIECE:
        return work
    return replace(work, win=replace(win, out=(-(-line // PIECE), PIECE)), line=line)


class HalfAmxConvTactic(Tactic[AmxConvWork]):
    """bf16 with constant bf16 weights, up to three spatial axes of known size; groups of whole
    channel blocks.
    """

    key = "tactix.c_bf16_amx_conv@1"
    implements = ("tactix.WideConvolution@1", "tactix.Convolution@1", "tactix.WideConvTranspose@1")
    source = "c"
    by_signature = True
    requires = HALVES.unit

    def match(self, node: Node, device: DeviceProperties) -> AmxConvWork | Reject:
        work = work_of(node)
        if isinstance(work, Reject):
            return work
        if not window.fills_tiles(work.win, device):
            return Reject("it needs AMX, groups of whole blocks, and more than a few pixels")
        return work

    def variants(self, work: AmxConvWork, device: DeviceProperties) -> Sequence[Variant] | Reject:
        win, fmt = work.win, blocked(16)
        found = window.formats(work.whole, LINEAR if work.linear else fmt, fmt)
        if isinstance(found, Reject):
            return found
        blocks = win.co_each // HIGH
        fit = [s for s in SHAPES if win.group == 1 or blocks % s[1] == 0]
        ranked = sorted((_cycles(work, s, 1), s) for s in fit)
        near = [s for cycles, s in ranked[:OFFERED] if cycles < FAR * ranked[0][0]]
        made = [fmt]
        if win.co <= HIGH and not any(o.is_full for o in win.epi.operands.values()):
            made.append(LINEAR)
        return [
            Variant.of(found, (f,) * len(win.node.outputs), rows=r, vectors=v)
            for r, v in near
            for f in made
        ]

    def cost(self, work: AmxConvWork, variant: Variant, ctx: CompileContext) -> float | None:
        if not symbols(work.win.n) <= set(ctx.opt):
            return None
        each = _cycles(work, (variant.number("rows"), variant.number("vectors")), ctx.threads)
        images = evaluate(work.win.n, ctx.opt) * work.win.group * work.win.places
        return 2 * START + each * images / CLOCK / max(1, ctx.threads)

    def compile(self, work: AmxConvWork, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        return _Kernel(work, variant, ctx).artifact()


def _cycles(work: AmxConvWork, shape: tuple[int, int], threads: int) -> float:
    """Of a group of an image, at one place of its depth: tiles come from the first cache, or
    weights from the second; results are written; the copy.
    """
    (pixels, vectors), win = shape, work.win
    b = bands_for(win, work.linear, pixels, threads, work.line)
    steps = b.planes * win.kernel[0] * b.runs
    panels = work.panels(HIGH * vectors)
    far = steps * DEEP * HIGH * vectors > NEAR_CACHE
    loads = LOAD * (pixels // HIGH) + (FAR_LOAD if far else LOAD) * vectors
    # Loads run beside the unit: what takes longer counts.
    block_cycles = max(SUMS * PRODUCT, loads) * steps + RESULT * pixels * vectors + BLOCK
    cell = (LINEAR_COPY if work.linear else COPY) + (PREPARED if win.before else 0)
    copied = b.planes * b.rows_for(b.rows) * b.wide * cell * b.bands
    weights = panels * steps * DEEP * HIGH * vectors / WEIGHTS
    return b.blocks(pixels) * panels * block_cycles + copied + weights


@dataclass(frozen=True)
class RowsSite(DotSite):
    """Results of few channels, row by row in the arrays ``t<output>``: from there they go to linear
    tensors.
    """

    def put(self, output: int, dtype: DType, value: str, row: str, vector: int, count: str) -> str:
        return store(dtype, f"t{output} + ({row}) * {HIGH}", value)

    def arrays(self, rows: int) -> list[str]:
        """Declare the arrays."""
        kinds = [ctype(v.spec.dtype) for v in self.win.node.outputs]
        return [
            f"{k} t{j}[{rows * HIGH}] __attribute__((aligned(64)));" for j, k in enumerate(kinds)
        ]

    def turned(self, step: int) -> list[str]:
        """Store the arrays' columns, a channel each, at every ``step``-th pixel."""
        place = f"(image * {self.win.co} + c) * {self.win.pixels} + pixel + m * {step}"
        moves = [
            f"{self.args.output(j)}[{place}] = t{j}[m * {HIGH} + c];"
            for j in range(len(self.win.node.outputs))
        ]
        return [loop("c", "0", str(self.win.co), loop("m", "0", "rows", *moves))]


@dataclass(frozen=True)
class SpreadSite(DotSite):
    """Results at every ``step``-th pixel of a row."""

    step: int = 1

    def place(self, operand: EpilogueOperand, row: str, vector: int, count: str) -> str:
        return super().place(operand, f"({row}) * {self.step}", vector, count)

    def put(self, output: int, dtype: DType, value: str, row: str, vector: int, count: str) -> str:
        return super().put(output, dtype, value, f"({row}) * {self.step}", vector, count)


class _Kernel:
    """Writes one kernel."""

    def __init__(self, work: AmxConvWork, variant: Variant, ctx: CompileContext) -> None:
        self.work, self.win, self.ctx, self.variant = work, work.win, ctx, variant
        self.pixels, self.vectors = variant.number("rows"), variant.number("vectors")
        self.columns = self.vectors * HIGH
        self.threads = max(1, ctx.threads)
        self.bands = bands_for(self.win, work.linear, self.pixels, self.threads, work.line)
        self.per_tap = -(-self.win.co_each // self.columns)
        self.panels = work.panels(self.columns)
        self.steps = self.bands.planes * self.win.kernel[0] * self.bands.runs
        self.slab = self.steps * DEEP * self.columns
        self.args = Args(self.win.node)
        self.functions = Functions(self.args)

    def artifact(self) -> KernelArtifact:
        """The kernel as data."""
        size = self.bands.scratch(self.pixels)
        self.x = self.args.workspace(0, "uint8_t")
        self.w = self.args.constant("w", self._packed(), HALVES.weights)
        axis = 1 if self.work.turned else 0
        first = byte.starts(
            self.win.node,
            self.win.inputs,
            self.per_tap * self.columns * self.win.group,
            axis,
            HALVES,
            flipped=False,
        )
        self.first = self.args.constant("first", first, HALVES.sums)
        self._finish()
        body = [self._walk(size)]
        own = f"{self.bands.functions()}{self._product()}{self.functions.text()}"
        helpers = f"{text_of('amx.h')}{GRID}{own}"
        return kernel(
            self.args,
            body,
            self.ctx,
            helpers=helpers,
            preludes=byte.preludes(),
            workspace=size * self.threads,
        )

    def _packed(self) -> Packed:
        """Weights as [panel][depth tap][plane][row tap][run of taps][pair of channels][column][2].

        A step is 16 pairs of all columns: the unit takes the right side with two elements of k in
        32 bits (Intel, Software Developer's Manual, TDPBF16PS). In linear images a run of taps, 8
        of 4 channels, takes the place of a plane's 32 channels.
        """
        win, b, kd = self.win, self.bands, self.win.depth.kernel
        kh, kw = win.kernel
        panels = self.per_tap * win.group
        pad = (0, panels * self.columns - win.co)
        if self.work.turned:
            taps = self.work.taps[0] * self.work.taps[1]
            spread: tuple[tuple[str, Any], ...] = (
                ("reshape", (win.c, win.co, taps)),
                ("pad", ((0, b.planes * 32 - win.c), pad, (0, 0))),
                ("reshape", (b.planes, HIGH, 2, self.per_tap, self.columns, taps)),
                ("transpose", (5, 3, 0, 1, 4, 2)),
            )
            return Packed(win.inputs[1], spread)
        if not b.linear:
            steps: tuple[tuple[str, Any], ...] = (
                ("reshape", (win.co, win.c_each, kd, kh, kw)),
                ("pad", (pad, (0, b.deep * 32 - win.c_each), (0, 0), (0, 0), (0, 0))),
                ("reshape", (panels, self.columns, b.deep, HIGH, 2, kd, kh, kw)),
                ("transpose", (0, 5, 2, 6, 7, 3, 1, 4)),
            )
            return Packed(win.inputs[1], steps)
        dx, taps = win.dilations[1], DEEP // b.cell
        steps = (
            ("reshape", (win.co, win.c, kd * kh, kw, 1)),
            ("pad", (pad, (0, FEW_CHANNELS - win.c), (0, 0), (0, 0), (0, dx - 1))),
            ("reshape", (self.panels * self.columns, FEW_CHANNELS, kd * kh, kw * dx)),
            ("pad", ((0, 0), (0, 0), (0, 0), (0, b.runs * taps - kw * dx))),
            ("reshape", (self.panels, self.columns, FEW_CHANNELS // 2, 2, kd * kh, b.runs, taps)),
            ("transpose", (0, 4, 5, 6, 2, 1, 3)),
        )
        return Packed(win.inputs[1], steps)

    def _product(self) -> str:
        """The function that sums a block over planes and taps, and asks for weights ``ahead``."""
        b, win = self.bands, self.win
        across = DEEP if b.linear else DEEP * win.dilations[1]
        steps = [
            f"const uint8_t* xs = xt + j * {across};",
            *self._step(),
            f"w += {DEEP * self.columns};",
        ]
        if lines := self._lines:
            steps += [f"__builtin_prefetch(ahead + {q * DEEP}, 0, 2);" for q in range(lines)]
            steps.append(f"ahead += {lines * DEEP};")
        xt = f"const uint8_t* xt = x + c * {b.plane} + {b.tap('i')} * {b.cell};"
        taps = loop("i", "0", str(win.kernel[0]), xt, loop("j", "0", str(b.runs), *steps))
        at = [
            (t, t // self.vectors * HIGH * self.columns + t % self.vectors * HIGH)
            for t in range(SUMS)
        ]
        body = [
            *(f"_tile_loadd({t}, first + {t % self.vectors * HIGH}, 0);" for t, _ in at),
            loop("c", "0", str(b.planes), taps),
            *(f"_tile_stored({t}, sums + {place}, {4 * self.columns});" for t, place in at),
        ]
        parameters = (
            "const uint8_t* x, const int8_t* w, const int8_t* ahead, const float* first, "
            "float* sums"
        )
        return block(f"TX_RARE void TX_NAME(product)({parameters})", *body) + "\n"

    @property
    def _lines(self) -> int:
        """Lines of the next panel that each step asks for, so that the blocks of a band ask for all
        of it.

        A step of a panel has as many lines of 64 bytes as it has columns, and is asked for by the
        same step of every block; it comes into the second cache (hint 2) a panel's time ahead.
        """
        if self.panels * self.slab <= NEAR_WEIGHTS:
            return 0
        blocks = -(-self.bands.rows * self.bands.out_wide // self.pixels)
        return -(-self.columns // blocks)

    def _step(self) -> list[str]:
        """Products of tiles: the fewer ones stay in registers, the others take turns in what is
        left.

        Registers: 0 to 3 hold sums, the last one or two the side with fewer tiles; the other side's
        take turns in the rest, so that a load need not wait for the product before.
        """
        high, wide = self.pixels // HIGH, self.vectors
        move = self.bands.cell * self.bands.step[1]
        x = [f"xs + {t * HIGH * move}, {move}" for t in range(high)]
        w = [f"w + {c * DEEP}, {4 * self.columns}" for c in range(wide)]
        few, many = (x, w) if high < wide else (w, x)
        kept = [8 - len(few) + k for k in range(len(few))]
        turns = [SUMS + k % (8 - SUMS - len(few)) for k in range(len(many))]
        lines = [f"_tile_loadd({r}, {place});" for r, place in zip(kept, few, strict=True)]
        for k, (turn, place) in enumerate(zip(turns, many, strict=True)):
            lines.append(f"_tile_loadd({turn}, {place});")
            for f, r in enumerate(kept):
                t, c, a, b = (f, k, r, turn) if high < wide else (k, f, turn, r)
                lines.append(f"_tile_dpbf16ps({t * wide + c}, {a}, {b});")
        return lines

    def _finish(self) -> None:
        """The function that takes a run of neighbouring sums to the outputs."""
        blocks, step = -(-self.win.co // HIGH), self.work.taps[1]
        whole = blocks % self.vectors == 0 or self.win.group > 1
        left = "" if whole else f"({blocks} - block) * {HIGH}"
        tile = DotTile(HALVES, (0,), self.vectors, HIGH)
        if self.variant.output_format(0).is_linear:
            rows = RowsSite(self.args, self.work.whole, HIGH, left)
            finish = tile.finish_saved(self.win.epi, rows, "rows", bool(left))
            body = [*rows.arrays(self.pixels), finish, *rows.turned(step)]
        else:
            site = SpreadSite(self.args, self.work.whole, HIGH, left, step=step)
            body = [tile.finish_saved(self.win.epi, site, "rows", bool(left))]
        parameters = "const float* sums, int64_t rows, int64_t image, int64_t block, int64_t pixel"
        self.functions.add("finish", parameters, body)

    def _results(self) -> list[str]:
        """Statements that finish a block: all of it, or a run of sums for each row of pixels."""
        wide, pixels, out = self.bands.out_wide, self.pixels, self.win.out[1]
        call = "TX_NAME(finish)(a, {}, image, block, {});"
        if self.bands.is_even and self.work.taps == (1, 1) and not self.work.line:
            count = f"places - k * {pixels} < {pixels} ? places - k * {pixels} : {pixels}"
            return [call.format(f"sums, {count}", f"{self._row0} * {out} + k * {pixels}")]
        there, pixel = self._place()
        run = [
            f"const int64_t y = f / {wide}, column = f % {wide};",
            f"const int64_t past = f + {wide} - column < stop ? f + {wide} - column : stop;",
            f"const int64_t last = {there};",
            "const int64_t here = last - column < past - f ? last - column : past - f;",
            (
                "if (here > 0) "
                f"{call.format(f'sums + (f - k * {pixels}) * {self.columns}, here', pixel)}"
            ),
            "f = past;",
        ]
        return [
            f"const int64_t stop = (k + 1) * {pixels} < places ? (k + 1) * {pixels} : places;",
            block(f"for (int64_t f = k * {pixels}; f < stop;)", *run),
        ]

    def _place(self) -> tuple[str, str]:
        """How many pixels row ``y`` of a band has, and which pixel that of ``column`` is."""
        out, row = self.win.out[1], f"({self._row0} + y)"
        if line := self.work.line:
            return f"{line} - {row} * {out} < {out} ? {line} - {row} * {out} : {out}", (
                f"{row} * {out} + column"
            )
        (sy, sx), wide = self.work.taps, self.work.whole.out[1]
        return str(out), f"({row} * {sy} + tap / {sx}) * {wide} + column * {sx} + tap % {sx}"

    @property
    def _row0(self) -> str:
        """The first row of a band, among those of all places of the depth."""
        return f"(z0 * {self.win.out[0]} + y0)" if self.win.has_depth else "y0"

    def _units(self) -> tuple[int, list[str]]:
        """Bands of an image, in all groups and at all places of the depth; and statements that
        declare which one ``u`` is.
        """
        bands, group, out = self.bands.bands, self.win.group, self.win.places
        count = bands * group * out
        lines = [f"const int64_t image = u / {count}, y0 = u % {bands} * {self.bands.rows};"]
        if self.win.has_depth:
            lines.append(f"const int64_t z0 = u / {bands} % {out};")
        if group > 1:
            lines.append(f"const int64_t group = u / {bands * out} % {group};")
        return count, lines

    def _walk(self, size: int) -> str:
        """Loops over this thread's bands, panels, and blocks of pixels."""
        b, win = self.bands, self.win
        product = [
            f"s + k * {self.pixels * b.step[1] * b.cell}",
            "wp",
            f"wp + {self.slab} + k * {self.steps * self._lines * DEEP}",
            f"{self.first} + block * {HIGH}",
            "sums",
        ]
        count, unit = self._units()
        at, first = "p", f"p % {self.per_tap} * {self.vectors}"
        if win.group > 1:
            at = f"(group * {self.panels} + p)"
            first = f"group * {win.co_each // HIGH} + {first}"
        panel = [
            f"const int8_t* wp = (const int8_t*){self.w} + {at} * {self.slab};",
            f"const int64_t block = {first}, tap = p / {self.per_tap};\n(void)tap;",
            loop("k", "0", "blocks", f"TX_NAME(product)({', '.join(product)});", *self._results()),
        ]
        band = [
            *unit,
            f"const int64_t rows = {win.out[0]} - y0 < {b.rows} ? {win.out[0]} - y0 : {b.rows};",
            (
                f"const int64_t places = rows * {b.out_wide}, "
                f"blocks = (places + {self.pixels - 1}) "
                f"/ {self.pixels};"
            ),
            b.copy(self.args, "s"),
            loop("p", "g[2]", "g[3]", *panel),
        ]
        total = f"{self.args.dim(win.n)} * {count}"
        return "\n".join(
            [
                f"if (tid >= {self.threads}) return;",
                f"if (nt > {self.threads}) nt = {self.threads};",
                "int64_t g[4];",
                f"TX_NAME(grid)({total}, {self.panels}, tid, nt, g);",
                "if (g[0] >= g[1] || g[2] >= g[3]) return;",
                f"uint8_t* s = {self.x} + tid * {size};",
                f"float sums[{self.pixels * self.columns}] __attribute__((aligned(64)));",
                "TX_NAME(begin)();",
                loop("u", "g[0]", "g[1]", *band),
                "_tile_release();",
            ]
        )
