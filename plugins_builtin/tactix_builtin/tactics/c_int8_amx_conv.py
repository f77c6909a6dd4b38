"""IntegerConvolution, and WideConvolution of bfloat16, on the AMX matrix unit of x86-64; steps of one pixel.

A first launch copies the input with its pads, 64 bytes of channels to a pixel, its rows dealt out over as many parts
as the stride. Output pixels are counted over rows as wide as the padded input, so that the input pixels of neighbours
lie one step apart whatever the tap; those past the end of a row are computed and left. Blocks of 32 of them and 32
channels: two tiles of x times two of w.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tactix.contracts.artifact import KernelArtifact, Packed
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix.words.dims import evaluate, symbols
from tactix.words.tensor import blocked
from tactix_builtin.tactics import c_int8_tile as byte
from tactix_builtin.tactics import c_int8_window as window
from tactix_builtin.tactics.c_int8_amx import RATES
from tactix_builtin.tactics.c_int8_tile import BYTES, DEEP, HALVES, HIGH, SIDE, Dot, DotTile
from tactix_builtin.tactics.c_int8_window import DotSite, DotWindow
from tactix_builtin.tactics.c_text import Args, block, kernel, loop
from tactix_builtin.tactics.c_text import prelude as text_of
from tactix_builtin.tactics.c_tile import GRID, Functions

BLOCK_BYTES = 1 << 19
"""Bytes of input that one sweep over the panels reads."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [ByteAmxConvTactic(), HalfAmxConvTactic()]


class ByteAmxConvTactic(Tactic):
    """u8 or i8 with constant i8 weights, one group, channels that fill tiles, images of known size."""

    key = "tactix.c_int8_amx_conv@1"
    implements: tuple[str, ...] = ("tactix.IntegerConvolution@1",)
    source = "c"
    native = True
    dot: Dot = BYTES

    def variants(self, node: Node, device: DeviceProperties) -> Sequence[Variant] | Reject:
        win = window.dot_window(node, self.dot)
        if isinstance(win, Reject):
            return win
        if not window.fills_tiles(win, device):
            return Reject("it needs AMX, channels that fill tiles, one group, and more than a few pixels")
        found = window.formats(node, win, blocked(16), blocked(16))
        if isinstance(found, Reject):
            return found
        return [Variant.of(found, (blocked(16),) * len(node.outputs))]

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        win = window.dot_window(node, self.dot)
        assert isinstance(win, DotWindow)
        if not symbols(win.n) <= set(ctx.opt):
            return None
        wide = -(-(win.size[1] + win.pads[1] + win.pads[3]) // win.strides[1])
        places, columns = win.out[0] * wide, -(-win.co // SIDE) * SIDE
        work = 2 * places * columns * win.c * win.kernel[0] * win.kernel[1] / RATES[self.dot]
        copied = places * win.c * self.dot.size / 1e10
        each = work + copied + places * columns * 2e-10
        return 1e-6 + each * evaluate(win.n, ctx.opt) / max(1, ctx.threads)

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        win = window.dot_window(node, self.dot)
        assert isinstance(win, DotWindow)
        return _Kernel(node, win, ctx).artifact()


class HalfAmxConvTactic(ByteAmxConvTactic):
    """bf16 with constant bf16 weights, one group, channels that fill tiles, images of known size."""

    key = "tactix.c_bf16_amx_conv@1"
    implements = ("tactix.WideConvolution@1", "tactix.Convolution@1")
    dot = HALVES


class _Kernel:
    """Writes one kernel."""

    def __init__(self, node: Node, win: DotWindow, ctx: CompileContext) -> None:
        self.node, self.win, self.ctx, self.dot = node, win, ctx, win.dot
        top, left, bottom, right = win.pads
        sy, sx = win.strides
        self.part_rows = -(-(win.size[0] + top + bottom) // sy)
        self.high = self.part_rows * sy
        self.out_wide = -(-(win.size[1] + left + right) // sx)
        self.wide = self.out_wide * sx
        self.cells = DEEP // (16 * win.dot.size)
        self.planes = win.c * win.dot.size // DEEP
        self.plane = self.high * self.wide * DEEP
        self.panels = -(-win.co // SIDE)
        self.places = win.out[0] * self.out_wide
        self.units = -(-self.places // SIDE)
        self.slab = self.planes * win.kernel[0] * win.kernel[1] * DEEP * SIDE
        self.args = Args(node)
        self.functions = Functions(self.args)

    def artifact(self) -> KernelArtifact:
        """The kernel as data."""
        win, dot = self.win, self.dot
        self.x = self.args.workspace(0, "uint8_t")
        self.w = self.args.constant("w", self._packed(), dot.weights)
        first = byte.starts(self.node, win.inputs, self.panels * SIDE, 0, dot, flipped=False)
        self.first = self.args.constant("first", first, dot.sums)
        self._finish()
        body = [block(f"if ({self.args.phase(0)} == 0)", self._copy(), "return;"), self._blocks()]
        helpers = f"{text_of('amx.h')}{GRID}{self._product()}{self.functions.text()}"
        reach = SIDE * win.strides[1] + (win.kernel[1] - 1) * win.dilations[1]
        size = win.n * (self.planes * self.plane) + reach * DEEP
        made = kernel(
            self.args, body, self.ctx, helpers=helpers, preludes=byte.preludes(), workspace=size, phases=2
        )  # fmt: skip
        return byte.without_fma(made) if byte.rounds_sums(win.epi.results) else made

    def _packed(self) -> Packed:
        """Weights as [panel][plane][row tap][column tap][channel / group][column][group]."""
        win, group = self.win, self.dot.group
        kh, kw = win.kernel
        steps: tuple[tuple[str, Any], ...] = (
            ("reshape", (win.co, win.c, kh, kw)), ("pad", ((0, self.panels * SIDE - win.co), (0, 0), (0, 0), (0, 0))),
            ("reshape", (self.panels, SIDE, self.planes, HIGH, group, kh, kw)), ("transpose", (0, 2, 5, 6, 3, 1, 4)),
        )  # fmt: skip
        return Packed(win.inputs[1], steps)

    def _copy(self) -> str:
        """The first launch: every row of every plane of the padded input."""
        win, cell, row = self.win, 16 * self.dot.size, self.wide * DEEP
        top, left, _, _ = win.pads
        right = self.wide - win.size[1] - left
        x = f"(const uint8_t*){self.args.input(win.inputs[0])}"
        plane = win.size[0] * win.size[1] * cell
        move = [
            f"memcpy(to + i * {DEEP} + {j * cell}, in + {j * plane} + i * {cell}, {cell});" for j in range(self.cells)
        ]
        body = [
            f"const int64_t p = r / {self.high}, q = r % {self.high};",
            f"const int64_t y = q % {self.part_rows} * {win.strides[0]} + q / {self.part_rows} - {top};",
            f"uint8_t* out = {self.x} + r * {row};",
            block(f"if (y < 0 || y >= {win.size[0]})", f"memset(out, {win.fill}, {row});", "continue;"),
            f"memset(out, {win.fill}, {left * DEEP});" if left else "",
            f"memset(out + {row - right * DEEP}, {win.fill}, {right * DEEP});" if right else "",
            f"const uint8_t* in = {x} + (p * {self.cells * win.size[0]} + y) * {win.size[1] * cell};",
            f"uint8_t* to = out + {left * DEEP};",
            loop("i", "0", str(win.size[1]), *move),
        ]
        total = self.args.dim(win.n * (self.planes * self.high))
        return f"int64_t lo, hi;\ntx_split({total}, 1, tid, nt, &lo, &hi);\n{loop('r', 'lo', 'hi', *body)}"

    def _product(self) -> str:
        """The function that sums a block over planes and taps."""
        win = self.win
        call = "dpbf16ps" if self.dot is HALVES else "dpbssd" if win.flip else "dpbusd"
        sy, (dy, dx), move = win.strides[0], win.dilations, DEEP * win.strides[1]
        step = [
            f"_tile_loadd(4, xt, {move});", f"_tile_loadd(5, xt + {HIGH * move}, {move});",
            f"_tile_loadd(6, w, {4 * SIDE});", f"_tile_loadd(7, w + {DEEP}, {4 * SIDE});",
            *(f"_tile_{call}({2 * t + c}, {4 + t}, {6 + c});" for t in range(2) for c in range(2)),
            f"w += {DEEP * SIDE};",
        ]  # fmt: skip
        row = f"(i * {dy} % {sy} * {self.part_rows} + i * {dy} / {sy})"
        place = f"x + c * {self.plane} + ({row} * {self.wide} + j * {dx}) * {DEEP}"
        taps = loop("j", "0", str(win.kernel[1]), f"const uint8_t* xt = {place};", *step)
        at = [
            (2 * t + c, f"first + {c * HIGH}", f"sums + {t * HIGH * SIDE + c * HIGH}") for t in (0, 1) for c in (0, 1)
        ]
        body = [
            *(f"_tile_loadd({n}, {start}, 0);" for n, start, _ in at),
            loop("c", "0", str(self.planes), loop("i", "0", str(win.kernel[0]), taps)),
            *(f"_tile_stored({n}, {to}, {4 * SIDE});" for n, _, to in at),
        ]
        kind = self.dot.element
        head = f"TX_NAME(product)(const uint8_t* x, const int8_t* w, const {kind}* first, {kind}* sums)"
        return block(f"TX_RARE void {head}", *body) + "\n"

    def _finish(self) -> None:
        """The function that takes a run of neighbouring sums of one output row to the outputs."""
        blocks = -(-self.win.co // 16)
        left = "" if blocks % 2 == 0 else f"({blocks} - block) * 16"
        site = DotSite(self.node, self.args, self.win, 16, left)
        tile = DotTile(self.dot, (0,), SIDE // HIGH, 16)
        body = tile.finish_saved(self.win.epi, site, "rows", bool(left))
        parameters = f"const {self.dot.element}* sums, int64_t rows, int64_t image, int64_t block, int64_t pixel"
        self.functions.add("finish", parameters, [body])

    def _runs(self) -> list[str]:
        """Statements for a run of sums from place ``f`` on: up to the end of its row, and of the block."""
        win = self.win
        return [
            f"const int64_t y = f / {self.out_wide}, column = f % {self.out_wide};",
            f"const int64_t past = f + {self.out_wide} - column < stop ? f + {self.out_wide} - column : stop;",
            f"const int64_t here = {win.out[1]} - column < past - f ? {win.out[1]} - column : past - f;",
            f"if (here > 0) TX_NAME(finish)(a, sums + (f - k * {SIDE}) * {SIDE}, here, image, p * 2, "
            f"y * {win.out[1]} + column);",
            "f = past;",
        ]

    def _blocks(self) -> str:
        """Loops over this thread's blocks of an image, panels, blocks; then runs of each block's rows."""
        win, units = self.win, self.units
        most = max(1, BLOCK_BYTES // (SIDE * DEEP * self.planes * win.strides[1]))
        inner = [
            f"TX_NAME(product)(xi + k * {SIDE * DEEP * win.strides[1]}, wp, {self.first} + p * {SIDE}, sums);",
            f"const int64_t stop = (k + 1) * {SIDE} < {self.places} ? (k + 1) * {SIDE} : {self.places};",
            block(f"for (int64_t f = k * {SIDE}; f < stop;)", *self._runs()),
        ]
        head = [
            f"const int64_t image = u / {units}, t = u % {units};",
            f"next = u + {most} < g[1] ? u + {most} : g[1];",
            f"if (next > u - t + {units}) next = u - t + {units};",
            f"const uint8_t* xi = {self.x} + image * {self.planes * self.plane};",
        ]
        panel = [
            f"const int8_t* wp = (const int8_t*){self.w} + p * {self.slab};",
            loop("k", "t", "t + next - u", *inner),
        ]
        walk = block("for (int64_t u = g[0], next; u < g[1]; u = next)", *head, loop("p", "g[2]", "g[3]", *panel))
        total = f"{self.args.dim(win.n)} * {units}"
        return "\n".join([
            "int64_t g[4];", f"TX_NAME(grid)({total}, {self.panels}, tid, nt, g);",
            "if (g[0] >= g[1] || g[2] >= g[3]) return;",
            f"{self.dot.element} sums[{SIDE * SIDE}] __attribute__((aligned(64)));",
            "TX_NAME(begin)();", walk, "_tile_release();",
        ])  # fmt: skip
