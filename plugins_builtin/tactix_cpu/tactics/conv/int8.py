"""IntegerConvolution in the blocked format, on register tiles of neighbouring output pixels;
c_bf16_conv's kernel too.

A unit is a run of output pixels that tiles cover alike: a tile of a 1x1 convolution, an output row,
or, of small images, as many rows as one tile holds. Knobs: ``rows`` (pixels) and ``vectors``
(channel blocks) of a tile.
"""

from __future__ import annotations

import functools
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
from tactix_codegen.c.text import Args, block, kernel, loop
from tactix_codegen.c.tile import GRID, Functions
from tactix_cpu.tactics import dot_tile as byte
from tactix_cpu.tactics.conv import int8_window as window
from tactix_cpu.tactics.conv.int8_window import DotSite, DotWindow
from tactix_cpu.tactics.dot_tile import Dot, DotTile, SortedSteps
from tactix_cpu.tactics.estimates import CLOCK, START

BLOCK_BYTES = 1 << 18
"""Bytes of input that one sweep over the panels reads: a quarter of a second cache of 1 MiB, for a
panel's weights must stay beside it. No measurement of it is on record.
"""
OFFERED = 2
"""Variants of a node at most: those of the fewest cycles. Each costs a compilation, 0.3 s with gcc
on the prototype (README); no measurement of their number is on record.
"""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [ByteConvTactic()]


class ByteConvTactic(Tactic[DotWindow]):
    """u8 or i8 with constant i8 weights, one or two spatial axes of known size, one group."""

    key = "tactix.c_int8_conv@1"
    implements: tuple[str, ...] = ("tactix.IntegerConvolution@1",)
    source = "c"
    by_signature = True
    dot: Dot = byte.BYTES

    def match(self, node: Node, device: DeviceProperties) -> DotWindow | Reject:
        win = window.dot_window(node, byte.dot_on(self.dot, device))
        if isinstance(win, Reject):
            return win
        if win.group != 1:
            return Reject("one group only")
        win = replace(win, dot=byte.dot_of_rows(win.dot, win.pixels))
        return Reject("the matrix unit is faster") if window.fills_tiles(win, device) else win

    def variants(self, win: DotWindow, device: DeviceProperties) -> Sequence[Variant] | Reject:
        fmt = blocked(max(4, device.lanes))
        found = window.formats(win, LINEAR if win.c <= window.FEW_CHANNELS else fmt, fmt)
        if isinstance(found, Reject):
            return found
        ranked = sorted(dict.fromkeys(_tiles(win, device)), key=lambda t: _cycles(win, t, device))
        outputs = (fmt,) * len(win.node.outputs)
        return [
            Variant.of(found, outputs, rows=rows, vectors=vectors)
            for rows, vectors in ranked[:OFFERED]
        ]

    def cost(self, win: DotWindow, variant: Variant, ctx: CompileContext) -> float | None:
        if not symbols(win.n) <= set(ctx.opt):
            return None
        cycles = _cycles(win, (variant.number("rows"), variant.number("vectors")), ctx.device)
        return START + cycles * evaluate(win.n, ctx.opt) / CLOCK / max(1, ctx.threads)

    def compile(self, win: DotWindow, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        return DotConvKernel(win, variant, ctx).artifact()


@dataclass(frozen=True)
class Cut:
    """An image's output as units of ``lines`` rows (0: of ``size`` pixels), each of tiles (start,
    pixels, count).

    ``rest``: the tiles of the last unit, where it is smaller.
    """

    lines: int
    units: int
    size: int
    tiles: tuple[tuple[int, int, int], ...]
    rest: tuple[tuple[int, int, int], ...] = ()


def cut(win: DotWindow, most: int) -> Cut:
    """Equal tiles of at most ``most`` pixels."""
    high, wide = win.out
    if win.is_pointwise:
        pixels = win.pixels
        size = -(-pixels // -(-pixels // most))
        left = pixels % size
        return Cut(0, -(-pixels // size), size, ((0, size, 1),), ((0, left, 1),) if left else ())
    if wide * 2 <= most:
        lines = min(high, most // wide)
        left = high % lines * wide
        return Cut(
            lines,
            -(-high // lines),
            lines * wide,
            ((0, lines * wide, 1),),
            ((0, left, 1),) if left else (),
        )
    size = -(-wide // -(-wide // most))
    count, left = divmod(wide, size)
    return Cut(1, high, wide, ((0, size, count), *([(wide - left, left, 1)] if left else [])))


def _tiles(win: DotWindow, device: DeviceProperties) -> list[tuple[int, int]]:
    wide = -(-win.co // max(4, device.lanes))
    options = byte.tile_shapes(win.dot, device)
    if win.pixels <= 2:
        options = tuple((win.pixels, v) for v in (4, 8, 2))
    return [(rows, min(vectors, wide)) for rows, vectors in options]


def _cycles(win: DotWindow, tile: tuple[int, int], device: DeviceProperties) -> float:
    """Cycles on one core for one image: every tile's steps and epilogue, once for every panel."""
    rows, vectors = tile
    lanes = max(4, device.lanes)
    c, panels = cut(win, rows), -(-win.co // (vectors * lanes))
    cell = window.FEW_CHANNELS if win.c <= window.FEW_CHANNELS else lanes
    steps = -(-win.c // cell) * (cell // win.dot.group) * win.kernel[0] * win.kernel[1]
    if win.kernel == (1, 1):
        steps = -(-win.c // win.dot.group)
    elif win.c <= window.FEW_CHANNELS and win.dilations[1] == 1:
        steps = win.kernel[0] * -(-win.c * win.kernel[1] // win.dot.group)

    def of(tiles: tuple[tuple[int, int, int], ...]) -> float:
        return sum(
            n
            * (
                byte.tile_cycles(win.dot, device, s, vectors) * steps
                + byte.finish_cycles(s, vectors)
            )
            for _, s, n in tiles
        )

    return panels * (of(c.tiles) * (c.units - bool(c.rest)) + of(c.rest))


class DotConvKernel:
    """Writes one kernel. Loops: blocks of units, panels, units, tiles; inside a tile planes, row
    taps, steps.
    """

    def __init__(self, win: DotWindow, variant: Variant, ctx: CompileContext) -> None:
        self.win, self.ctx = win, ctx
        self.lanes = max(4, ctx.device.lanes)
        self.rows, self.vectors = variant.number("rows"), variant.number("vectors")
        self.width = self.vectors * self.lanes
        self.linear = win.c <= window.FEW_CHANNELS
        self.src = window.source_of(win, self.lanes, self.linear)
        self.cut = cut(win, self.rows)
        self.panels = -(-win.co // self.width)
        row = self.src.planes * self.src.bytes * win.kernel[1]
        self.slab = -(-row // 4) * 4 * win.kernel[0] * self.width
        if win.dot.sorted:
            self.slab = self.sorted.slab
        self.args = Args(win.node)
        self.functions = Functions(self.args)

    def artifact(self) -> KernelArtifact:
        """The kernel as data."""
        src, win = self.src, self.win
        # The last group of a run may end behind the image.
        size = win.n * src.image + 4 * src.dense if src.copied else 0
        self.x = self.args.workspace(0, "uint8_t") if src.copied else self.args.input(win.inputs[0])
        packed = self.sorted.packed() if win.dot.sorted else self._packed()
        self.w = self.args.constant("w", packed, win.dot.weights)
        first = byte.starts(win.node, win.inputs, self.panels * self.width, 0, win.dot)
        self.first = self.args.constant("first", first, win.dot.sums)
        for _, pixels, _ in (*self.cut.tiles, *self.cut.rest):
            self._function(pixels)
        body = [self._sweep()]
        if src.copied:
            self.args.phase(0)
            body = [
                block(
                    "if (phase == 0)",
                    window.copy(self.args, win, src, self.x, self.linear),
                    "return;",
                ),
                *body,
            ]
        helpers = f"{GRID}{self.functions.text()}"
        made = kernel(
            self.args,
            body,
            self.ctx,
            helpers=helpers,
            preludes=byte.preludes(win.dot),
            workspace=size,
            phases=1 + src.copied,
        )
        return byte.without_fma(made) if byte.rounds_sums(self.win.epi.results) else made

    def _packed(self) -> Packed:
        """Weights as [panel][plane][row tap][column tap][channel / group][column][group]: in the
        order of the loops; a group, 4 bytes, is what a lane of a dot product takes.
        """
        win, src = self.win, self.src
        kh, kw = win.kernel
        if src.dense:
            return self._packed_dense()
        pad = (
            (0, self.panels * self.width - win.co),
            (0, src.planes * src.cell - win.c),
            (0, 0),
            (0, 0),
        )
        steps: tuple[tuple[str, Any], ...] = (
            ("reshape", (win.co, win.c, kh, kw)),
            ("pad", pad),
            (
                "reshape",
                (
                    self.panels,
                    self.width,
                    src.planes,
                    src.cell // win.dot.group,
                    win.dot.group,
                    kh,
                    kw,
                ),
            ),
            ("transpose", (0, 2, 5, 6, 3, 1, 4)),
        )
        return Packed(win.inputs[1], steps)

    def _packed_dense(self) -> Packed:
        """The same of an image whose row of taps is one run, filled up to whole groups: as
        [panel][row tap][element / group][column][group].
        """
        win, (kh, kw), group = self.win, self.win.kernel, self.win.dot.group
        groups, columns = -(-kw * win.c // group), self.panels * self.width
        steps: tuple[tuple[str, Any], ...] = (
            ("reshape", (win.co, win.c, kh, kw)),
            ("transpose", (0, 2, 3, 1)),
            ("reshape", (win.co, kh, kw * win.c)),
            ("pad", ((0, columns - win.co), (0, 0), (0, groups * group - kw * win.c))),
            ("reshape", (self.panels, self.width, kh, groups, group)),
            ("transpose", (0, 2, 3, 1, 4)),
        )
        return Packed(win.inputs[1], steps)

    def _offset(self, pixel: int) -> int:
        """Bytes from a tile's first pixel to another of its input pixels."""
        sy, sx = self.win.strides
        if self.cut.lines < 2:
            return pixel * sx * self.src.bytes
        y, x = divmod(pixel, self.win.out[1])
        return (y * sy * self.src.wide + x * sx) * self.src.bytes

    def _function(self, pixels: int) -> None:
        offsets = tuple(self._offset(m) for m in range(pixels))
        near, far = byte.ahead(self.win.pixels / self.rows)
        tile = DotTile(self.win.dot, offsets, self.vectors, self.lanes, self.win.flip, near, far)
        blocks = -(-self.win.co // self.lanes)
        left = "" if blocks % self.vectors == 0 else f"({blocks} - block) * {self.lanes}"
        site = DotSite(self.args, self.win, self.lanes, left)
        sums = self._sorted(tile) if tile.dot.sorted else [self._planes(tile)]
        body = [tile.start(f"{self.first} + block * {self.lanes}"), *sums]
        parameters = (
            "const uint8_t* x, const int8_t* w, int64_t image, int64_t block, int64_t pixel"
        )
        self.functions.add(f"t{pixels}", parameters, [*body, *tile.finish(self.win.epi, site)])

    @functools.cached_property
    def sorted(self) -> SortedSteps:
        """The steps over planes and taps where they have an order of their own; of one tap the last
        plane's end with the channels.
        """
        win, src = self.win, self.src
        (kh, kw), (dy, dx) = win.kernel, win.dilations
        rows = [
            c * src.plane + i * dy * src.wide * src.bytes
            for c in range(src.planes)
            for i in range(kh)
        ]
        if src.dense:
            taps = [4 * q for q in range(-(-kw * win.c // 4))]
        else:
            taps = [j * dx * src.bytes + q for j in range(kw) for q in range(0, src.bytes, 4)]
        offsets = [row + tap for row in rows for tap in taps]
        if (kh, kw) == (1, 1) and not src.dense:
            offsets = offsets[: -(-win.c // 4)]
        sizes = self.panels, self.width, self.lanes
        return SortedSteps(self._packed(), win.dot, *sizes, tuple(offsets))

    def _sorted(self, tile: DotTile) -> list[str]:
        """The sum over planes and taps in the order of the panel."""
        order = self.args.constant("order", self.sorted.order(), DType.INT32)
        row = self.sorted.row(f"block / {self.vectors}")
        return [f"const int32_t* order = {order} + {row};", *tile.sorted(len(self.sorted.offsets))]

    def _planes(self, tile: DotTile) -> str:
        """The sum over planes and taps; neighbouring column taps are one run. Of one tap the last
        plane's run ends with the channels.
        """
        win, src = self.win, self.src
        (kh, kw), (dy, dx) = win.kernel, win.dilations
        quads = src.bytes // 4
        if src.dense:
            row = self._dense_row(tile)
        elif dx == 1 or kw == 1:
            row = tile.run(kw * quads, "xr")
        else:
            row = loop("j", "0", str(kw), tile.run(quads, "xr"), f"xr += {(dx - 1) * src.bytes};")
        head = f"const uint8_t* xr = x + c * {src.plane}"
        left = -(-(win.c % src.cell) // win.dot.group)
        if (kh, kw) == (1, 1) and 0 < left < quads and not src.dense:
            last = block(
                "", f"const uint8_t* xr = x + {(src.planes - 1) * src.plane};", tile.run(left, "xr")
            )
            whole = loop("c", "0", str(src.planes - 1), f"{head};", row)
            return "\n".join([*[whole] * (src.planes > 1), last])
        if kh == 1:
            return loop("c", "0", str(src.planes), f"{head};", row)
        rows = loop("i", "0", str(kh), f"{head} + i * {dy * src.wide * src.bytes};", row)
        return loop("c", "0", str(src.planes), rows)

    def _dense_row(self, tile: DotTile) -> str:
        """A row of taps of an image. Bytes behind its end are multiplied with zeros; a number of
        bfloat16 that is none would make others none, and is not read.
        """
        elements, group = self.win.kernel[1] * self.win.c, self.win.dot.group
        if self.win.dot.size == 1 or elements % group == 0:
            return tile.run(-(-elements // group), "xr")
        last = tile.last(elements % group * self.win.dot.size, "xr")
        return f"{tile.run(elements // group, 'xr')}\n{last}\nw += {4 * self.width};"

    def _sweep(self) -> str:
        """Loops over this thread's units, in blocks of one image, and panels."""
        c, src, units = self.cut, self.src, self.cut.units
        step = (c.lines * self.win.strides[0] * src.wide if c.lines else c.size) * src.bytes
        most = max(1, BLOCK_BYTES // (step * src.planes))
        head = [
            f"const int64_t image = u / {units}, t = u % {units};",
            f"next = u + {most} < g[1] ? u + {most} : g[1];",
            f"if (next > u - t + {units}) next = u - t + {units};",
            f"const uint8_t* xi = (const uint8_t*){self.x} + image * {src.image};",
        ]
        unit = [f"const uint8_t* xu = xi + k * {step};", *self._unit()]
        panel = [
            f"const int64_t block = p * {self.vectors};",
            f"const int8_t* wp = (const int8_t*){self.w} + p * {self.slab};",
            loop("k", "t", "t + next - u", *unit),
        ]
        walk = block(
            "for (int64_t u = g[0], next; u < g[1]; u = next)",
            *head,
            loop("p", "g[2]", "g[3]", *panel),
        )
        total = f"{self.args.dim(self.win.n)} * {units}"
        return f"int64_t g[4];\nTX_NAME(grid)({total}, {self.panels}, tid, nt, g);\n{walk}"

    def _unit(self) -> list[str]:
        full = self._calls(self.cut.tiles)
        if not self.cut.rest:
            return full
        return [
            block(f"if (k + 1 < {self.cut.units})", *full),
            block("else", *self._calls(self.cut.rest)),
        ]

    def _calls(self, tiles: tuple[tuple[int, int, int], ...]) -> list[str]:
        out = []
        for start, pixels, count in tiles:
            at = f"q * {pixels}" if start == 0 and count > 1 else str(start)
            x = f"xu + ({at}) * {self.win.strides[1] * self.src.bytes}" if at != "0" else "xu"
            call = f"TX_NAME(t{pixels})(a, {x}, wp, image, block, k * {self.cut.size} + {at});"
            out.append(loop("q", "0", str(count), call) if count > 1 else call)
        return out
