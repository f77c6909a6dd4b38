"""IntegerConvolution on the AMX matrix unit of x86-64, in blocks of 32 output pixels and 32
channels.

A convolution of single pixels reads its input where it lies, 64 channels to a cell; else a first
launch copies it with its pads (c_int8_cells). Output pixels are counted over rows as wide as the
copy's, so that the cells of neighbours lie one step apart whatever the tap; those past the end of a
row are computed and left. While the unit multiplies a block, the vector unit takes the sums of the
block before to the outputs, and the next panel of weights is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence

from tactix.base.dims import evaluate, symbols
from tactix.base.tensor import LINEAR, blocked
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c.text import Args, block, kernel, loop
from tactix_codegen.c.text import prelude as text_of
from tactix_codegen.c.tile import GRID, Functions
from tactix_cpu.tactics import dot_tile as byte
from tactix_cpu.tactics.conv import int8_window as window
from tactix_cpu.tactics.conv.int8_cells import Cells
from tactix_cpu.tactics.conv.int8_window import DotSite, DotWindow
from tactix_cpu.tactics.dot_tile import BYTES, DEEP, HIGH, SIDE
from tactix_cpu.tactics.estimates import START
from tactix_cpu.tactics.matmul.int8_amx import (
    RATES,
    ask_ahead,
    multiply,
    shared_out,
    tiles_from,
    tiles_to,
)

NEAR_BYTES, FAR_BYTES = 3 << 13, 1 << 20
"""Bytes of input that one sweep over the panels reads, 24 of the first cache's 48 KiB, if all
weights, up to 1 MiB, fit in the second cache, of 2 MiB on servers of Intel with AMX. Else a sweep
takes all blocks of an image, so that weights come once. No measurement of either is on record.
"""
RESULT = 1.5e-10
"""Seconds for each result: the vector unit's part, beside the matrix unit's; 7 cycles at 3 GHz for
a vector of 16. No measurement of it is on record.
"""
COPIED, JOINED = 2e10, 1e10
"""Bytes per second of a copy of whole cells, and of one that joins cells from smaller blocks or
from planes. No measurement of either is on record.
"""
NARROW, WIDE = blocked(16), blocked(DEEP)
"""Formats: blocks of a vector of sums, and of the 64 bytes of a tile's row."""
PENDING = "int64_t f, int64_t stop, int64_t image, int64_t block"
"""Places of a block whose sums are to be taken to the outputs."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [ByteAmxConvTactic()]


class ByteAmxConvTactic(Tactic[DotWindow]):
    """u8 or i8 with constant i8 weights, one group, images of known size; channels fill tiles, or
    are few.
    """

    key = "tactix.c_int8_amx_conv@1"
    implements = ("tactix.IntegerConvolution@1",)
    source = "c"
    by_signature = True
    requires = BYTES.unit

    def match(self, node: Node, device: DeviceProperties) -> DotWindow | Reject:
        win = window.dot_window(node)
        if isinstance(win, Reject):
            return win
        if not window.fills_tiles(win, device):
            return Reject(
                "it needs AMX, channels that fill tiles or are few, one group, and more than a "
                "few pixels"
            )
        return win

    def variants(self, win: DotWindow, device: DeviceProperties) -> Sequence[Variant] | Reject:
        wide = WIDE if win.co % DEEP == 0 else NARROW
        sources = (LINEAR,) if window.is_image(win) else (WIDE,) if wide is WIDE else (WIDE, NARROW)
        found = [window.variant_of(win, s, wide, NARROW) for s in sources]
        made = [v for v in found if isinstance(v, Variant)]
        return made or found[0]  # type: ignore[return-value]

    def cost(self, win: DotWindow, variant: Variant, ctx: CompileContext) -> float | None:
        if not symbols(win.n) <= set(ctx.opt):
            return None
        cells = Cells.of(win, variant.input_format(win.inputs[0]))
        places, columns = cells.places, -(-win.co // SIDE) * SIDE
        work = 2 * places * columns * cells.steps * DEEP / RATES[BYTES]
        speed = COPIED if cells.source == WIDE else JOINED
        copied = 0 if cells.direct else cells.image / speed
        each = max(work, places * columns * RESULT) + copied
        return 2 * START + each * evaluate(win.n, ctx.opt) / max(1, ctx.threads)

    def compile(self, win: DotWindow, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        return _Kernel(win, variant, ctx).artifact()


class _Kernel:
    """Writes one kernel."""

    def __init__(self, win: DotWindow, variant: Variant, ctx: CompileContext) -> None:
        self.win, self.variant, self.ctx = win, variant, ctx
        self.cells = Cells.of(win, variant.input_format(win.inputs[0]))
        self.panels = -(-win.co // SIDE)
        self.units = -(-self.cells.places // SIDE)
        self.args = Args(win.node)
        self.functions = Functions(self.args)

    def artifact(self) -> KernelArtifact:
        """The kernel as data."""
        win, cells = self.win, self.cells
        self.x = (
            self.args.input(win.inputs[0]) if cells.direct else self.args.workspace(0, "uint8_t")
        )
        self.w = self.args.constant("w", cells.packed(self.panels), BYTES.weights)
        first = byte.starts(win.node, win.inputs, self.panels * SIDE, 0, flipped=False)
        self.first = self.args.constant("first", first, BYTES.sums)
        self.functions.add("rest", f"const int32_t* sums, {PENDING}", [self._finish(SIDE)])
        self._product()
        body = [self._blocks()]
        if not cells.direct:
            copy = cells.copy(self.args, self.x)
            body = [block(f"if ({self.args.phase(0)} == 0)", copy, "return;"), *body]
        helpers = f"{text_of('amx.h')}{GRID}{self.functions.text()}"
        size = 0 if cells.direct else win.n * cells.image + cells.reach
        made = kernel(
            self.args,
            body,
            self.ctx,
            helpers=helpers,
            preludes=byte.preludes(),
            workspace=size,
            phases=1 if cells.direct else 2,
        )
        return byte.without_fma(made) if byte.rounds_sums(win.epi.results) else made

    def _product(self) -> None:
        """The function that sums a block over planes and taps, and meanwhile finishes the block
        before.
        """
        cells = self.cells
        call = "dpbssd" if self.win.flip else "dpbusd"
        step = [
            (
                f"const uint8_t* xt = x + c * {cells.plane} + {cells.row_of_tap('i')} + j "
                f"* {cells.tap};"
            ),
            *multiply(call, "xt", f"xt + {HIGH * cells.move}", cells.move),
            *ask_ahead(),
            self._finish(-(-SIDE // cells.steps)),
        ]
        taps = loop("i", "0", str(cells.taps[0]), loop("j", "0", str(cells.taps[1]), *step))
        parameters = (
            "const uint8_t* x, const int8_t* w, const int8_t* next, int64_t lines, "
            "const int32_t* first, "
            f"int32_t* made, const int32_t* sums, {PENDING}"
        )
        self.functions.add(
            "product",
            parameters,
            [*tiles_from("first"), loop("c", "0", str(cells.planes), taps), *tiles_to("made")],
        )

    def _finish(self, most: int) -> str:
        """Statements that take at most so many rows of ``sums``, from ``f`` on, to the outputs."""
        blocks, wide, out = -(-self.win.co // HIGH), self.cells.out_wide, self.win.out[1]
        left = "" if blocks % 2 == 0 else f"({blocks} - block) * {HIGH}"
        site = DotSite(self.args, self.win, HIGH, left, self.variant)
        row = ["const int64_t pixel = f + m;"]
        if wide != out:
            row = [
                (
                    f"const int64_t y = (uint32_t)(f + m) / {wide}, "
                    f"column = (uint32_t)(f + m) % {wide};"
                ),
                f"if (column >= {out}) continue;",
                f"const int64_t pixel = y * {out} + column;",
            ]
        sums = f"tx_load_i32(sums + m * {SIDE})", f"tx_load_i32(sums + m * {SIDE} + {HIGH})"
        text = byte.results(
            self.win.epi,
            site,
            sums,
            "0",
            [site.both(j, "0") for j in range(len(self.win.node.outputs))],
        )
        if left:
            one = byte.result(self.win.epi, site, sums[0], "0", 0, "")
            text = f"{block(f'if ({left} > {HIGH})', text)}\n{block('else', one)}"
        row.append(text)
        rows = f"const int64_t rows = stop - f < {most} ? stop - f : {most};"
        return block(
            "", rows, loop("m", "0", "rows", *row), "f += rows;", f"sums += rows * {SIDE};"
        )

    def _blocks(self) -> str:
        """Loops over this thread's blocks of an image, panels, blocks."""
        units, cells, slab = self.units, self.cells, self.cells.steps * DEEP * SIDE
        most = (
            max(2, NEAR_BYTES // (SIDE * cells.move * cells.planes))
            if self.panels * slab <= FAR_BYTES
            else units
        )
        last = cells.places - SIDE
        start = f"k * {SIDE} < {last} ? k * {SIDE} : {last}" if cells.direct else f"k * {SIDE}"
        inner = [
            f"const int64_t start = {start};",
            f"const int8_t* ahead = after + (k - t) * lines * {cells.steps * DEEP};",
            f"TX_NAME(product)(a, xi + start * {cells.move}, wp, ahead, lines, "
            f"{self.first} + p * {SIDE}, sums[at], "
            "old, f, stop, of, block);",
            (
                f"f = k * {SIDE}; stop = f + {SIDE} < {cells.places} ? f + {SIDE} "
                f": {cells.places}; "
                "of = image;"
            ),
            f"block = p * 2; old = sums[at] + (f - start) * {SIDE}; at = 1 - at;",
        ]
        head = [
            f"const int64_t image = u / {units}, t = u % {units};",
            f"next = u + {most} < g[1] ? u + {most} : g[1];",
            f"if (next > u - t + {units}) next = u - t + {units};",
            f"const int64_t lines = u == g[0] ? ({SIDE - 1} + next - u) / (next - u) : 0;",
            f"const uint8_t* xi = (const uint8_t*){self.x} + image * {cells.image};",
        ]
        panel = [
            f"const int8_t* wp = (const int8_t*){self.w} + p * {slab}, *after = wp + {slab};",
            loop("k", "t", "t + next - u", *inner),
        ]
        walk = block(
            "for (int64_t u = g[0], next; u < g[1]; u = next)",
            *head,
            loop("p", "g[2]", "g[3]", *panel),
        )
        total, first = (
            f"{self.args.dim(self.win.n)} * {units}",
            ["int64_t f = 0, stop = 0, of = 0, block = 0;"],
        )
        return shared_out(total, self.panels, "int32_t", first, walk, "f, stop, of, block")
