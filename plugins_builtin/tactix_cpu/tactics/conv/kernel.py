"""The text of the convolution kernel; see c_conv."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tactix.base.dims import Dim, ceildiv, evaluate, prod, symbols
from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact, Packed
from tactix.contracts.device import DeviceProperties
from tactix.contracts.tactic import CompileContext, Variant
from tactix_codegen.c import tile as c_tile
from tactix_codegen.c.text import (
    Args,
    block,
    comment,
    ctype,
    kernel,
    loop,
    split,
    times,
    vector_preludes,
)
from tactix_codegen.c.tile import GRID, Functions, RegisterTile, by_rows, finish
from tactix_cpu.tactics import dot_tile as byte
from tactix_cpu.tactics.conv.window import BlockedSite, CpuConvolutionWindow, TileRun, row_runs

INPUT_BYTES = 1 << 20
"""Bytes of input that one sweep over the panels reads: all of a second cache of 1 MiB, or half of
one of 2 MiB. More input for a sweep means reading the weights less often. No measurement of it is
on record.
"""
PANEL_BYTES = 1 << 14
"""Bytes of a panel's weights that stay in the first cache, of 32 KiB or more, and are not asked for
ahead. No measurement of it is on record.
"""
NEAR, FAR = 16, 128
"""Steps that weights are asked for ahead: into the first cache; into the second where few tiles
share a panel.

A step of a tile of 14 x 2 takes 14 cycles (tile.step_cycles): 16 steps are 224 cycles ahead, 128
steps 1792, more than a third cache and memory take to answer. On a Zen 5 asking ahead took
ResNet-50 from 33.6 to 31.8 ms (README); no measurement of these distances is on record.
"""
FEW_TILES = 4
"""Tiles of an image that are few: each panel is then read so few times that it comes from memory
for most of them. No measurement of it is on record.
"""
PIECES = 4
"""Pieces of work for each thread from which lines are shared out whole: the longest share is then a
quarter over the mean at most. No measurement of it is on record.
"""
UNKNOWN_WIDTH = 256
"""Pixels of a row where only running tells: what a sweep's input is reckoned with. A guess: it only
says how many rows make a sweep.
"""


WORD_TILES = (6, 2), (4, 2), (3, 3), (4, 3), (12, 1)
"""Tiles of products of pairs of 16 bits on AVX2: of 97 billion products a second that a Zen 3 can
do, 6 x 2 did 79, 4 x 2 79, 3 x 3 77, 4 x 3 74.
"""


def register_tiles(
    win: CpuConvolutionWindow, device: DeviceProperties
) -> tuple[tuple[int, int], ...]:
    """Tiles (rows, vectors) that fill the registers."""
    if win.dtype is DType.INT16:
        return WORD_TILES
    return byte.shapes(device) if win.dtype is DType.BF16 else c_tile.shapes(device)


def step_cycles(
    win: CpuConvolutionWindow, rows: int, vectors: int, device: DeviceProperties
) -> float:
    """Cycles of a step of a register tile, which takes one channel, or a pair of 16 bits."""
    if win.dtype is DType.INT16:
        return byte.step_cycles(rows, vectors, byte.product_cycles(byte.WORDS, device))
    if win.dtype is DType.BF16:
        return byte.step_cycles(rows, vectors, byte.product_cycles(byte.HALVES, device))
    return c_tile.step_cycles(rows, vectors, c_tile.chains_for(rows, vectors))


def fitting(unit_bytes: int) -> int:
    """Units of so many bytes of input that one sweep reads."""
    return max(1, INPUT_BYTES // unit_bytes)


class ConvKernel:
    """Writes one kernel. Loops: blocks of rows, panels, channel blocks, rows, tiles; inside a tile
    channels, taps. Weights are of the input's dtype; those of bfloat16 are multiplied in pairs of
    channels.

    ``walks``: tiles take all panels of the thread one after the other, which then is the innermost
    of these loops. ``handed``: the name of a pointer to floats that functions of tiles get, too.
    """

    walks: bool = False
    handed: str = ""

    def __init__(self, win: CpuConvolutionWindow, variant: Variant, ctx: CompileContext) -> None:
        self.win, self.ctx, self.element = win, ctx, ctype(win.dtype)
        self.weights = win.dtype
        self.at_once = 32 // win.dtype.bits
        """Channels of a step."""
        self.linear = variant.input_format(win.x).is_linear
        self.tile = RegisterTile(
            variant.number("rows"), variant.number("vectors"), max(4, ctx.device.lanes)
        )
        self.sweep: int = variant.number("blocks")
        self.args = Args(win.node)
        self.functions = Functions(self.args)
        lanes = self.tile.lanes
        self.cell = 1 if self.linear else lanes
        self.depth_of_cell = self.cell
        """Channels of a cell that a result is made of."""
        self.deep = -(-win.c // win.group // self.cell)
        self.tail = win.c // win.group % self.cell
        self.panels = -(-win.co // self.tile.width)
        self.groups = win.group
        self.slab = win.all_taps * self.cell * self.tile.width
        self.flat = win.is_pointwise
        self.lines = win.depth.size * win.size[0]
        blocks = -(-win.co // lanes)
        left = "" if blocks % self.tile.vectors == 0 else f"({blocks} - block) * {lanes}"
        self.site = BlockedSite(self.args, win, lanes, left)
        self.runs = None if win.is_pointwise else row_runs(win, self.tile.rows)
        pads = win.pads[1] + win.pads[3]
        self.copied = bool(pads) and self.runs is None
        self.pitch: Dim = win.size[1] + pads if self.copied else win.size[1]
        self.parts = self._parts_of_lines()

    def _tiles_of_line(self) -> Dim:
        if self.runs is None:
            return ceildiv(self.win.out[1], self.tile.rows)
        return sum(run.count for run in self.runs)

    def _parts_of_lines(self) -> int:
        """How many parts of a line, of some tiles each, threads may share: more than one where
        there are few lines, as convolutions along one axis have one.
        """
        opt = self.ctx.opt
        dims = (self.win.n * self.win.depth.out * self.win.out[0], self._tiles_of_line())
        if self.flat or not all(symbols(d) <= set(opt) for d in dims):
            return 1
        lines, tiles = (evaluate(d, opt) for d in dims)
        wanted = -(-PIECES * self.ctx.threads // max(1, lines * self.panels))
        return max(1, min(wanted, tiles)) if self.ctx.threads > 1 else 1

    def _name_sizes(self) -> None:
        """What the text calls them by: of x and of weights in elements, of results in floats."""
        win, width = self.win, self.tile.width
        sizes: dict[str, Dim] = {
            "CELL": self.cell,
            "DEEP": self.deep,
            "PANELS": self.panels,
            "WIDTH": width,
            "X_LINE": self.pitch * self.cell,
            "X_PLANE": self._plane(),
            "X_IMAGE": self.lines * self.pitch * (self.cell * self._planes()),
            "W_TAP": self.depth_of_cell * width,
            "W_LINE": win.kernel[1] * self.depth_of_cell * width,
            "W_BLOCK": self.slab,
            "W_PANEL": self.deep * self.slab,
        }
        if win.has_depth and not self.flat:
            sizes["X_SLICE"] = win.size[0] * self.pitch * self.cell
            sizes["W_SLICE"] = win.taps * self.depth_of_cell * width
        for name, size in sizes.items():
            self.args.size(name, size)

    def _plane(self) -> Dim:
        """Elements from a channel block of x to the next."""
        return self.lines * self.pitch * self.cell

    def _input(self, size: Dim) -> str:
        """What tiles read; ``size``: bytes of the workspace."""
        if self.copied:
            return self.args.workspace(size - self._copy_bytes(), self.element)
        return self.args.input(self.win.x)

    def _helpers(self) -> str:
        """C text before the kernel's entry."""
        return f"{self._grid()}{self.functions.text()}"

    def _grid(self) -> str:
        """How threads share tiles and panels."""
        return GRID

    def artifact(self) -> KernelArtifact:
        """The kernel as data."""
        self._name_sizes()
        size = self._workspace()
        self.x = self._input(size)
        self.w = self.args.constant("w", self._packed(), self.weights)
        self.partial = self.args.workspace(0) if self.sweep else ""
        *first, last = self._launches()
        if first:
            self.args.phase(0)
        body = [block(f"if (phase == {k})", text, "return;") for k, text in enumerate(first)]
        return kernel(
            self.args,
            [*body, last],
            self.ctx,
            helpers=self._helpers(),
            preludes=vector_preludes() if self.weights is DType.FP32 else byte.preludes(),
            workspace=size,
            phases=1 + len(first),
        )

    def _launches(self) -> list[str]:
        """The body of each launch."""
        own = self._pointwise() if self.flat else self._windowed()
        return [self._copy(), own] if self.copied else [own]

    def _packed(self) -> Packed:
        """Weights as (panel, channel block, row tap, column tap, step, width, channel of a step),
        zero past the channels; row taps slice after slice where there are three axes.

        In the order in which a tile's loops take them, so that it walks one run of memory, whose
        lines are asked for a fixed distance ahead.
        """
        win, width, cell = self.win, self.tile.width, self.cell
        channels = win.c // win.group
        pad = (0, self.panels * width - win.co), (0, self.deep * cell - channels), (0, 0), (0, 0)
        kernel = (win.depth.kernel * win.kernel[0], win.kernel[1])
        steps: tuple[tuple[str, Any], ...] = (
            ("reshape", (win.co, channels, *kernel)),
            ("pad", pad),
            (
                "reshape",
                (self.panels, width, self.deep, cell // self.at_once, self.at_once, *kernel),
            ),
            ("transpose", (0, 2, 5, 6, 3, 1, 4)),
        )
        return Packed(win.w, steps)

    def _workspace(self) -> Dim:
        pixels = self.win.n * prod(self.win.spatial)
        partial = pixels * (self.panels * self.tile.width * 4) if self.sweep else 0
        return partial + (self._copy_bytes() if self.copied else 0)

    def _copy_bytes(self) -> Dim:
        return (
            self.win.n
            * self._planes()
            * self.lines
            * self.pitch
            * (self.cell * self.win.dtype.itemsize)
        )

    def _planes(self) -> int:
        return -(-self.win.c // self.cell)

    def _function(self, size: int, run: TileRun | None) -> str:
        """The function of a tile of ``size`` pixels of a row; returns its name."""
        inner = None if run is None or run.is_inner else run
        name = f"t{size}" if inner is None else f"t{size}at{inner.start}"
        self._add(name, size, lambda tile, deep: self._reduce(tile, inner, deep))
        return name

    def _add(self, name: str, size: int, reduce: Callable[[RegisterTile, str], str]) -> None:
        """The function of a tile; ``reduce`` gives its sum over ``deep`` channel blocks."""
        chains = c_tile.chains_for(size, self.tile.vectors, self._most())
        pairs = self.at_once == 2
        tile = RegisterTile(
            size, self.tile.vectors, self.tile.lanes, chains, *self._ahead(), pairs=pairs
        )
        place, deep = (
            "int64_t image, int64_t block, int64_t pixel, int64_t top, int64_t bottom",
            "DEEP",
        )
        if self.win.has_depth:
            place += ", int64_t front, int64_t back"
        if self.walks:
            place += ", int64_t until"
        place += f", float* {self.handed}" if self.handed else ""
        parameters = f"const {self.element}* x, const {ctype(self.weights)}* w, {place}"
        body = [tile.zero()]
        if self.sweep:
            parameters += ", int64_t deep, float* part, int first, int last"
            body.append(block("if (!first)", tile.load("part")))
            deep = "deep"
        body += [reduce(tile, deep), tile.join()]
        if self.sweep:
            body.append(block("if (!last)", tile.save("part"), "return;"))
        about = (
            f"{size} pixels from pixel on, "
            f"{tile.vectors} x {tile.lanes} channels from channel block `block` on: "
        )
        about += f"sums s<pixel>_<vector> over {deep} blocks of CELL channels and the row taps "
        about += "from top to bottom, of x, "
        about += (
            "the window of the first pixel, times w, a panel of weights; "
            "then what follows the convolution."
        )
        about += " Sums over some of the channel blocks wait in part." * bool(self.sweep)
        body += self._finish(tile)
        self.functions.add(name, parameters, [self._walk(body)] if self.walks else body, about)

    def _finish(self, tile: RegisterTile) -> list[str]:
        """What follows the sums of a tile, and the stores."""
        return finish(tile, self.win.epi, self.site)

    def _walk(self, body: Sequence[str]) -> str:
        """The body of a tile for the panels from that of ``block`` up to ``until``."""
        vectors = self.tile.vectors
        step = f"block += {vectors}, x += {self.tile.width}, w += W_PANEL"
        return block(f"for (; block < until * {vectors}; {step})", *body)

    def _ahead(self) -> tuple[int, int]:
        """Steps that weights are asked for ahead, see RegisterTile."""
        if self.deep * self.slab * self.weights.itemsize <= PANEL_BYTES:
            return 0, 0
        high, wide = self.win.out
        few = (
            isinstance(high, int)
            and isinstance(wide, int)
            and high * wide <= FEW_TILES * self.tile.rows
        )
        return NEAR, FAR if few else 0

    def _most(self) -> int:
        """Chains of sums at most: a linear image has no steps enough to take turns in."""
        return 1 if self.linear else 4

    def _reduce(self, tile: RegisterTile, run: TileRun | None, deep: str) -> str:
        """The sum over channels and taps; with ``run``, taps that lie outside are left out."""
        kh, kw = self.win.kernel
        blocks = comment("blocks of CELL channels")
        if (kh, kw) == (1, 1) and not any(self.win.pads) and not self._has_slices():
            more = "x + (c + 1) * X_PLANE" if self.deep > 1 else ""
            one = self._cell(tile, "x + c * X_PLANE", "w + c * W_BLOCK", 0, None, more)
            return f"{blocks}\n{loop('c', '0', deep, self._cells(deep), one)}"
        down = self.win.dilations[0]
        row = "X_LINE" if down == 1 else self.args.size("X_DOWN", self.pitch * (down * self.cell))
        xs, ws = ("xs", "ws") if self.win.has_depth else ("x + c * X_PLANE", "w + c * W_BLOCK")
        xr, wr = f"{xs} + i * {row}", f"{ws} + i * W_LINE"
        rows = loop(
            "i",
            "top",
            "bottom",
            f"const {self.element}* xr = {xr};\nconst {ctype(self.weights)}* wr = {wr};",
            *self._taps_of_row(tile, run),
        )
        return f"{blocks}\n{loop('c', '0', deep, self._cells(deep), self._slices(rows))}"

    def _taps_of_row(self, tile: RegisterTile, run: TileRun | None) -> list[str]:
        """The sum over the column taps of a row of taps, at ``xr`` and ``wr``."""
        kw, across = self.win.kernel[1], self.win.dilations[1]
        if self.linear or run is not None:
            places = [
                (self.args.sum("xr", self._at(t * across)), self.args.sum("wr", times(t, "W_TAP")))
                for t in range(kw)
            ]
            return [self._cell(tile, x, w, t, run) for t, (x, w) in enumerate(places)]
        step = self._at(across)
        return [
            loop(
                "j",
                "0",
                str(kw),
                self._cell(tile, f"xr + j * {step}", "wr + j * W_TAP", 0, None),
            )
        ]

    def _has_slices(self) -> bool:
        """Whether a window has taps along the depth that may be left out."""
        return self.win.depth.kernel > 1 or self.win.depth.pad != 0

    def _slices(self, rows: str) -> str:
        """``rows`` for each slice of the window along the depth."""
        if not self.win.has_depth:
            return rows
        step = times(self.win.depth.dilation, "X_SLICE")
        return loop(
            "s",
            "front",
            "back",
            f"const {self.element}* xs = x + c * X_PLANE + s * {step};",
            f"const {ctype(self.weights)}* ws = w + c * W_BLOCK + s * W_SLICE;",
            rows,
        )

    def _at(self, pixels: int) -> str:
        """Elements from a pixel to one ``pixels`` to its right, as C."""
        return times(pixels, "CELL") if self.cell > 1 else str(pixels)

    def _cells(self, deep: str) -> str:
        """Declare the channels of block ``c``, where the last block has fewer."""
        if not self.tail:
            return ""
        last = f"c + 1 == {deep}{' && last' if self.sweep else ''}"
        return f"const int64_t cells = {last} ? {self.tail} : CELL;"

    def _cell(
        self, tile: RegisterTile, x: str, w: str, tap: int, run: TileRun | None, more: str = ""
    ) -> str:
        """One tap of one channel block, for neighbouring pixels."""
        step = self.win.strides[1]
        places = [
            m * step if run is None or run.pattern[m][tap] else None for m in range(tile.rows)
        ]
        return self._channels(tile, x, w, places, more)

    def _channels(
        self, tile: RegisterTile, x: str, w: str, places: Sequence[int | None], more: str = ""
    ) -> str:
        """The channels of a block at ``x``; ``places``: how many pixels from there each row's is,
        None for none.

        ``more``: where the next block's first pixel is, asked for ahead, a pixel at each step.
        """
        # 2 steps written out were best for large tiles, 16 lost 40 % (README, the prototype).
        once = self.at_once
        unroll = min(self.cell // once, 4 if tile.rows * tile.vectors <= 12 else 2)

        def element(m: int, u: int) -> str | None:
            if (pixels := places[m]) is None:
                return None
            at = self.args.sum(self._at(pixels), str(u * once))
            return f"tx_quad(xc + {at})" if tile.pairs else f"xc[{at}]"

        body = tile.steps(unroll, element, "wc")
        weights = f"const float* wc = {w};"
        if tile.pairs:
            weights = f"const int32_t* wc = (const int32_t*)({w});"
        head = f"const {self.element}* xc = {x};\n{weights}"
        if unroll * once < self.cell:
            advance = f"xc += {unroll * once};\nwc += {times(unroll, 'WIDTH')};"
            if more:
                step = self.win.strides[1] * once
                ahead = [self.args.sum("xn", self._at(u * step)) for u in range(unroll)]
                head += f"\nconst {self.element}* xn = {more};"
                body += "\n" + "\n".join(f"__builtin_prefetch({at}, 0, 3);" for at in ahead)
                advance += f"\nxn += {self._at(unroll * step)};"
            channels = "cells" if self.tail else "CELL"
            body = loop("k", "0", channels, body, advance, step=unroll * once)
        return block("", head, body)

    def _pointwise(self) -> str:
        """All pixels of an image in a row."""
        pixels = prod(self.win.spatial)
        rows, count = self.tile.rows, self.args.dim(pixels)
        known = pixels if isinstance(pixels, int) else None
        rest = c_tile.rest_sizes(rows, known)
        sizes = rest if known is not None and known < rows else (rows, *rest)
        names = {s: self._function(s, None) for s in sizes}
        tiles = self.args.dim(ceildiv(pixels, rows))

        def call(size: int) -> str:
            return self._call(names[size], f"xp + {self._from_start('q')} * CELL", "q", "0", "1")

        body = [f"int64_t q = t * {rows};", by_rows(sizes, "q", "end", call)]
        end = (
            f"const int64_t end = (t + next - u) * {rows} < {count} ? (t + next - u) * {rows} "
            f": {count};"
        )
        return self._sweep(tiles, self._tiles_of_sweep(), [end, *self._prepare()], body)

    def _tiles_of_sweep(self) -> int:
        """Of neighbouring pixels of an image."""
        return fitting(self.tile.rows * self.win.c * self.win.dtype.itemsize)

    def _prepare(self) -> list[str]:
        """C statements before the panels take the pixels up to ``end`` of tiles from ``t`` on."""
        return []

    def _from_start(self, pixel: str) -> str:
        """Pixels from where ``xp`` points to ``pixel``."""
        return pixel

    def _image(self) -> str:
        """What ``xp`` starts from in a sweep."""
        return f"{self.x} + image * X_IMAGE"

    def _windowed(self) -> str:
        """Row after row of windows."""
        rows = self.args.dim(self.win.depth.out * self.win.out[0] * self.parts)
        bytes_in = max(1, self._row_bytes() // self.parts)
        if self.parts == 1:
            line = loop("y", "t", "t + next - u", *self._line())
            return self._sweep(rows, fitting(bytes_in), [], [comment("lines of y"), line])
        tiles = self.args.size("TILES", self._tiles_of_line())
        parts = self.args.size("PARTS", self.parts)
        part = [
            f"const int64_t y = v / {parts}, part = v % {parts};",
            f"const int64_t from = part * {tiles} / {parts}, to = (part + 1) * {tiles} / {parts};",
        ]
        walk = loop("v", "t", "t + next - u", *part, *self._line())
        about = comment("tiles [from, to) of lines of y")
        return self._sweep(rows, fitting(bytes_in), [], [about, walk])

    def _row_bytes(self) -> int:
        width = self.pitch if isinstance(self.pitch, int) else UNKNOWN_WIDTH
        return self._planes() * self.cell * width * self.win.strides[0] * self.win.dtype.itemsize

    def _sweep(self, units: str, most: int, head: list[str], body: list[str]) -> str:
        """Loops over this thread's units, in blocks of at most ``most`` of one image, and panels;
        ``t`` is the block's first unit.
        """
        win = self.win
        self.args.size("SWEEP", most)
        start = [
            f"const int64_t image = u / {units}, t = u % {units};",
            "next = u + SWEEP < g[1] ? u + SWEEP : g[1];",
            f"if (next > u - t + {units}) next = u - t + {units};",
            *head,
        ]
        panel = [
            *self._block(),
            f"const {self.element}* xp = {self._image()}{self._channels_of_panel()};",
            f"const {ctype(self.weights)}* wp = {self.w} + p * W_PANEL;",
        ]
        if self.sweep:
            body = [self._sweeps(body)]
        walk = block(
            "for (int64_t u = g[0], next; u < g[1]; u = next)",
            *start,
            *self._panels(*panel, *body),
        )
        unit = "tiles of pixels" if self.flat else "lines"
        total = units if win.n == 1 else f"{self.args.dim(win.n)} * {units}"
        return "\n".join(
            [
                comment(
                    f"of the grid of {unit} and panels this thread has {unit} [g[0], "
                    "g[1]) and panels [g[2], g[3])"
                ),
                "int64_t g[4];",
                f"TX_NAME(grid)({total}, PANELS, tid, nt, g);",
                comment(
                    f"blocks of at most SWEEP {unit} of an image, "
                    "whose input stays in the second cache"
                ),
                walk,
            ]
        )

    def _panels(self, *body: str) -> list[str]:
        """``body`` for every panel ``p`` of this thread; for the first one where tiles walk."""
        if self.walks:
            return [block("", "const int64_t p = g[2];", *body)]
        about = comment("panels of WIDTH channels of y")
        return [about, loop("p", "g[2]", "g[3]", *body)]

    def _channels_of_panel(self) -> str:
        """What is added to an image's first element for the channels that panel ``p`` reads."""
        return f" + p / {self.panels // self.groups} * DEEP * X_PLANE" if self.groups > 1 else ""

    def _block(self) -> list[str]:
        """Declare the first channel block of panel ``p``."""
        return [f"const int64_t block = p * {self.tile.vectors};"]

    def _pixel(self, column: str) -> str:
        """The output pixel at a column of line ``y``."""
        return self.args.sum(f"y * {self.args.dim(self.win.out[1])}", column)

    def _sweeps(self, body: list[str]) -> str:
        """Channel blocks, some at a time."""
        head = f"const int64_t deep = DEEP - c0 < {self.sweep} ? DEEP - c0 : {self.sweep};"
        move = "xp += deep * X_PLANE;\nwp += deep * W_BLOCK;"
        return loop("c0", "0", "DEEP", head, *body, move, step=self.sweep)

    def _call(self, name: str, x: str, pixel: str, top: str, bottom: str) -> str:
        text = f"a, {x}, wp, image, block, {pixel}, {top}, {bottom}"
        if self.win.has_depth:
            text += ", 0, 1" if self.flat else ", front, back"
        text += ", g[3]" * self.walks + (f", {self.handed}" if self.handed else "")
        if self.sweep:
            pixels = self.args.dim(prod(self.win.spatial))
            images = self.args.dim(self.win.n)
            part = f"{self.partial} + ((p * {images} + image) * {pixels} + {pixel}) * WIDTH"
            text += f", deep, {part}, c0 == 0, c0 + {self.sweep} >= DEEP"
        return f"TX_NAME({name})({text});"

    def _line(self) -> list[str]:
        """One output row ``y``: which row taps are inside, and its tiles."""
        win = self.win
        high, wide = self.args.dim(win.size[0]), self.args.dim(win.out[1])
        d, kh, down = (
            win.dilations[0],
            win.kernel[0],
            f" * {win.strides[0]}" * (win.strides[0] != 1),
        )
        over, under = (
            ("-first", "below")
            if d == 1
            else (f"({x} + {d - 1}) / {d}" for x in ("-first", "below"))
        )
        line = "line" if win.has_depth else "y"
        head = [
            *self._slice_taps(),
            comment(
                "row taps [top, bottom) of the window are inside, the first is line `first` of x"
            ),
            (
                f"const int64_t first = {line}{down}{f' - {win.pads[0]}' * (win.pads[0] != 0)}, "
                f"below = {high} - first;"
            ),
            f"const int64_t top = first < 0 ? {over} : 0;",
            f"const int64_t reach = below > 0 ? {under} : 0, bottom = reach < {kh} ? reach : {kh};",
            f"const {self.element}* xl = xp{' + slice * X_SLICE' * win.has_depth} "
            "+ first * X_LINE;",
        ]

        def call(name: str) -> Callable[[str], str]:
            left = 0 if self.copied else win.pads[1]

            def at(column: str) -> str:
                return self._call(
                    name,
                    self._pixels_from("xl", column, left),
                    self._pixel(column),
                    "top",
                    "bottom",
                )

            return at

        if self.runs is not None:
            return [*head, *self._fixed_tiles(self.runs, call)]
        sizes = (self.tile.rows, *c_tile.rest_sizes(self.tile.rows, None))
        names = {s: self._function(s, None) for s in sizes}
        start, end = "int64_t q = 0;", wide
        if self.parts > 1:
            rows = self.tile.rows
            start, end = f"int64_t q = from * {rows};", "past"
            head.append(f"const int64_t past = to * {rows} < {wide} ? to * {rows} : {wide};")
        return [*head, start, by_rows(sizes, "q", end, lambda s: call(names[s])("q"))]

    def _slice_taps(self) -> list[str]:
        """Of three axes: which slices of the window of line ``y`` are inside."""
        if not self.win.has_depth:
            return []
        d, high = self.win.depth, self.args.dim(self.win.out[0])
        place = f"y / {high}{f' * {d.stride}' * (d.stride != 1)}{f' - {d.pad}' * (d.pad != 0)}"
        up = f" + {d.dilation - 1}) / {d.dilation}" if d.dilation != 1 else ")"
        return [
            comment(
                "slices [front, back) of the window are inside, the first is slice `slice` of x"
            ),
            f"const int64_t line = y % {high}, slice = {place};",
            f"const int64_t behind = {self.args.dim(d.size)} - slice;",
            f"const int64_t front = slice < 0 ? (-slice{up} : 0;",
            f"const int64_t most = behind > 0 ? (behind{up} : 0;",
            f"const int64_t back = most < {d.kernel} ? most : {d.kernel};",
        ]

    def _pixels_from(self, line: str, column: str, left: int) -> str:
        """Pointer to the first column tap of an output column's window; ``left``: of them lie
        before the line.
        """
        step = self.win.strides[1]
        if column.isdigit():
            pixels = int(column) * step - left
            return (
                f"{line} - {self._at(-pixels)}"
                if pixels < 0
                else self.args.sum(line, self._at(pixels))
            )
        first = f"{column}{f' * {step}' * (step != 1)}{f' - {left}' * (left != 0)}"
        return f"{line} + ({first}) * CELL"

    def _fixed_tiles(
        self, runs: list[TileRun], call: Callable[[str], Callable[[str], str]]
    ) -> list[str]:
        out, names, before = [], dict[Any, str](), 0
        for run in runs:
            if run.pattern not in names:
                names[run.pattern] = self._function(run.size, run)
            at = call(names[run.pattern])
            if run.count > 1:
                begin, end = self._bounds(before, run.count)
                out.append(loop("q", begin, end, at(f"({run.start} + q * {run.size})")))
            elif self.parts > 1:
                out.append(block(f"if (from <= {before} && {before} < to)", at(str(run.start))))
            else:
                out.append(at(str(run.start)))
            before += run.count
        return out

    def _bounds(self, before: int, count: int) -> tuple[str, str]:
        """Of ``count`` tiles behind ``before`` others, those that the part of the line has."""
        if self.parts == 1:
            return "0", str(count)
        begin = f"from > {before} ? from - {before} : 0"
        return begin, f"(to < {before + count} ? to : {before + count}) - {before}"

    def _copy(self) -> str:
        """The first launch: input rows with zeros on both sides."""
        win = self.win
        rows = self.args.dim(win.n * self._planes() * self.lines)
        pitch, width = (self.args.dim(d * self.cell) for d in (self.pitch, win.size[1]))
        size = win.dtype.itemsize
        left, right = win.pads[1] * self.cell * size, win.pads[3] * self.cell * size
        source = self.args.input(win.x)
        body = [
            f"{self.element}* out = {self.x} + r * {pitch};",
            f"memset(out, 0, {left});",
            f"memcpy(out + {win.pads[1] * self.cell}, {source} + r * {width}, {width} * {size});",
            f"memset(out + {pitch} - {win.pads[3] * self.cell}, 0, {right});",
        ]
        about = comment("the first launch: lines of x with zeros on both sides")
        return "\n".join([about, split(rows), loop("r", "lo", "hi", *body)])


def gathered(win: CpuConvolutionWindow) -> CpuConvolutionWindow:
    """For windows of one pixel some pixels apart: the pointwise convolution over the pixels that
    are read.
    """
    alone = win.kernel == (1, 1) and win.strides != (1, 1) and not any(win.pads)
    alone = alone and not win.has_depth
    return replace(win, size=win.out, strides=(1, 1)) if alone else win


class GatherKernel(ConvKernel):
    """A first launch copies the pixels that are read, so that they lie side by side."""

    def __init__(self, win: CpuConvolutionWindow, variant: Variant, ctx: CompileContext) -> None:
        super().__init__(gathered(win), variant, ctx)
        self.whole, self.copied = win, True

    def _copy(self) -> str:
        win, cell = self.whole, self.cell
        high, wide = (self.args.dim(d) for d in win.size)
        lines, width = (self.args.dim(d) for d in win.out)
        place = (
            f"((r / {lines} * {high} + r % {lines} * {win.strides[0]}) * {wide} + q "
            f"* {win.strides[1]}) * {cell}"
        )
        size = cell * win.dtype.itemsize
        copy = f"memcpy(out + q * {cell}, {self.args.input(win.x)} + {place}, {size});"
        rows = self.args.dim(win.n * self._planes() * win.out[0])
        out = f"{self.element}* out = {self.x} + r * {width} * {cell};"
        body = [out, loop("q", "0", width, copy)]
        about = comment("the first launch: the pixels of x that are read, side by side")
        return "\n".join([about, split(rows), loop("r", "lo", "hi", *body)])
