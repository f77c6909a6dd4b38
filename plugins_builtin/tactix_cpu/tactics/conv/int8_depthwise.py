"""Depthwise IntegerConvolution in blocked formats.

A thread copies a band of one channel block's rows, with pads, to its stack. Four neighbouring
pixels are then loaded and turned once, so that a lane holds one channel's four bytes: the taps of
as many output pixels as fit in them, each one product with weights shifted to its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tactix.base.dims import evaluate, symbols
from tactix.base.dtypes import DType
from tactix.base.tensor import blocked
from tactix.contracts.artifact import KernelArtifact, Packed
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c.text import Args, block, kernel, loop
from tactix_cpu.tactics import dot_tile as byte
from tactix_cpu.tactics.conv import int8_window as window
from tactix_cpu.tactics.conv.int8_window import DotSite, DotWindow
from tactix_cpu.tactics.estimates import CLOCK, START

BAND_BYTES = 20 << 10
"""Bytes of a band, which stays in the first cache, of 32 KiB or more, while its rows are read once
for every row of taps. It lies on the stack. No measurement of it is on record.
"""
UNROLLED = 4
"""Groups of output pixels that are computed side by side: a dot product waits 5 cycles for its sum
(dot_tile.LATENCY), and a group of a 3 x 3 window at stride 1 has two sums. No measurement of it is
on record.
"""
MOST_WEIGHTS = 16
"""Vectors of weights that are kept in registers: half of 32, the others hold sums and pixels. No
measurement of it is on record.
"""
VECTOR, ROW, ROW_IN_PAIRS = 6, 2, 4
"""Cycles for a vector of results, and more for each row of taps: the epilogue; loading and turning
pixels, and products, without VNNI of pairs. By windows of 3 and of 5 rows on a Zen 4, as it is and
held back to x86-64-v3 and v4, within a factor of 1.6.
"""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [ByteDepthwiseTactic()]


class ByteDepthwiseTactic(Tactic[DotWindow]):
    """u8 or i8 with constant i8 weights, one output channel for each input channel, one or two
    spatial axes.
    """

    key = "tactix.c_int8_depthwise@1"
    implements = ("tactix.IntegerConvolution@1",)
    source = "c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> DotWindow | Reject:
        win = window.dot_window(node)
        if isinstance(win, Reject):
            return win
        if win.group != win.c or win.co != win.c:
            return Reject("one output channel for each input channel only")
        lanes = max(4, device.lanes)
        if (
            win.dilations[1] != 1
            or _reach(win) * _pitch(win) * lanes > BAND_BYTES
            or _weights(win) > MOST_WEIGHTS
        ):
            return Reject("columns are dilated, or rows or windows are too large")
        return win

    def variants(self, win: DotWindow, device: DeviceProperties) -> Sequence[Variant] | Reject:
        lanes = max(4, device.lanes)
        wide = [blocked(4 * lanes)] if win.c % (4 * lanes) == 0 else []
        found = [
            window.variant_of(win, fmt, fmt, blocked(lanes)) for fmt in (*wide, blocked(lanes))
        ]
        made = [v for v in found if isinstance(v, Variant)]
        return made or found[0]  # type: ignore[return-value]

    def cost(self, win: DotWindow, variant: Variant, ctx: CompileContext) -> float | None:
        if not symbols(win.n) <= set(ctx.opt):
            return None
        vectors = -(-win.c // max(4, ctx.device.lanes)) * win.pixels * evaluate(win.n, ctx.opt)
        row = ROW if byte.has_byte_dots(ctx.device) else ROW_IN_PAIRS
        return START + vectors * (VECTOR + row * win.kernel[0]) / CLOCK / max(1, ctx.threads)

    def compile(self, win: DotWindow, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        return _Kernel(win, variant, ctx).artifact()


def _pitch(win: DotWindow) -> int:
    """Pixels of a padded row."""
    return win.size[1] + win.pads[1] + win.pads[3]


def _reach(win: DotWindow, lines: int = 1) -> int:
    """Input rows that ``lines`` output rows need."""
    return (lines - 1) * win.strides[0] + (win.kernel[0] - 1) * win.dilations[0] + 1


def _quads(win: DotWindow) -> int:
    """Loads of four pixels that cover a row of taps."""
    return -(-win.kernel[1] // 4)


def _shared(win: DotWindow) -> int:
    """Output pixels whose taps lie in the same four pixels."""
    return max(1, (4 - win.kernel[1]) // win.strides[1] + 1) if win.kernel[1] <= 4 else 1


def _weights(win: DotWindow) -> int:
    return win.kernel[0] * _quads(win) * _shared(win)


class _Kernel:
    """Writes one kernel."""

    def __init__(self, win: DotWindow, variant: Variant, ctx: CompileContext) -> None:
        self.win, self.ctx = win, ctx
        self.lanes = max(4, ctx.device.lanes)
        self.blocks = -(-win.c // self.lanes)
        self.row = _pitch(win) * self.lanes
        self.quads, self.shared = _quads(win), _shared(win)
        most = max(1, BAND_BYTES // self.row)
        self.lines = max(1, min(win.out[0], (most - _reach(win)) // win.strides[0] + 1))
        self.args = Args(win.node)
        self.cell = variant.input_format(win.inputs[0]).lanes
        self.site = DotSite(self.args, win, self.lanes, "", variant)

    def artifact(self) -> KernelArtifact:
        """The kernel as data."""
        made = kernel(self.args, self._body(), self.ctx, preludes=byte.preludes())
        return byte.without_fma(made) if byte.rounds_sums(self.win.epi.results) else made

    def _packed(self, given: Sequence[Any]) -> Any:
        """Weights as [block][row tap][load][pixel of the group][channel][4], zero where a pixel's
        tap is another's.

        A dot product adds four neighbouring pixels, of which a window of 3 takes three: weights
        shifted by the stride make the next pixel's result of the same load.
        """
        import numpy as np

        win, kw = self.win, self.win.kernel[1]
        w = given[win.inputs[1]].reshape(win.c, win.kernel[0], kw)
        out = np.zeros(
            (self.blocks * self.lanes, win.kernel[0], self.shared, self.quads * 4), np.int8
        )
        for r in range(self.shared):
            out[: win.c, :, r, r * win.strides[1] : r * win.strides[1] + kw] = w
        shaped = out.reshape(self.blocks, self.lanes, win.kernel[0], self.shared, self.quads, 4)
        return shaped.transpose(0, 2, 4, 3, 1, 5)

    def _body(self) -> list[str]:
        win, lanes, bands = self.win, self.lanes, -(-self.win.out[0] // self.lines)
        w = self.args.constant("w", Packed(-1, array=self._packed), DType.INT8)
        size = self.blocks * lanes
        first = self.args.constant("first", byte.starts(win.node, win.inputs, size, 0), DType.INT32)
        count = _weights(win)
        weights = [
            f"const vi w{i} = tx_load_i32({w} + (block * {count} + {i}) * {4 * lanes});"
            for i in range(count)
        ]
        body = [
            f"const int64_t plane = u / {bands}, top = u % {bands} * {self.lines};",
            f"const int64_t image = plane / {self.blocks}, block = plane % {self.blocks};",
            (
                f"const int64_t lines = {win.out[0]} - top < {self.lines} ? {win.out[0]} - top "
                f": {self.lines};"
            ),
            *self._copy(),
            *weights,
            f"const vi start = tx_load_i32({first} + block * {lanes});",
            loop("y", "0", "lines", *self._line()),
        ]
        # Four pixels are loaded at once: the last load reaches up to 8 pixels behind the band.
        scratch = _reach(win, self.lines) * self.row + 8 * lanes
        total = f"{self.args.dim(win.n)} * {self.blocks * bands}"
        return [
            f"uint8_t band[{scratch}] __attribute__((aligned(64)));",
            f"int64_t lo, hi;\ntx_split({total}, 1, tid, nt, &lo, &hi);",
            loop("u", "lo", "hi", *body),
        ]

    def _copy(self) -> list[str]:
        """The band's input rows."""
        win, lanes = self.win, self.lanes
        high, wide = win.size
        top, left, _, right = win.pads
        source = f"(const uint8_t*){self.args.input(win.inputs[0])}"
        inside = [
            f"memset(out, {win.fill}, {left * lanes});" if left else "",
            *self._pixels(f"out + {left * lanes}", f"{source} + "),
            f"memset(out + {(left + wide) * lanes}, {win.fill}, {right * lanes});" if right else "",
        ]
        rows = f"(lines - 1) * {win.strides[0]} + {_reach(win)}"
        body = [
            f"const int64_t at = top * {win.strides[0]} + r - {top};",
            f"uint8_t* out = band + r * {self.row};",
            block(f"if (at < 0 || at >= {high})", f"memset(out, {win.fill}, {self.row});"),
            block("else", *inside),
        ]
        return [loop("r", "0", rows, *body)]

    def _pixels(self, target: str, source: str) -> list[str]:
        """One row of the channel block: it stands by itself, or is a part of every pixel's cell."""
        (high, wide), lanes, many = self.win.size, self.lanes, self.cell // self.lanes
        if many == 1:
            return [
                f"memcpy({target}, {source}(plane * {high} + at) * {wide * lanes}, {wide * lanes});"
            ]
        place = f"(plane / {many} * {high} + at) * {wide * self.cell} + plane % {many} * {lanes}"
        move = f"memcpy({target} + i * {lanes}, in + i * {self.cell}, {lanes});"
        return [f"const uint8_t* in = {source}{place};", loop("i", "0", str(wide), move)]

    def _line(self) -> list[str]:
        """One output row: groups of pixels, and those that are left."""
        wide, step = self.win.out[1], self.shared * UNROLLED
        whole = wide // step * step
        lines = [
            f"const uint8_t* xl = band + y * {self.win.strides[0] * self.row};",
            f"const int64_t line = (top + y) * {wide};",
        ]
        if whole:
            lines.append(loop("x", "0", str(whole), *self._groups(UNROLLED, step), step=step))
        if wide > whole:
            left = wide - whole
            lines.append(
                block(
                    "", f"const int64_t x = {whole};", *self._groups(-(-left // self.shared), left)
                )
            )
        return lines

    def _groups(self, groups: int, pixels: int) -> list[str]:
        """The first ``pixels`` output pixels of neighbouring groups from ``x`` on."""
        out = [f"vi {', '.join(f's{m} = start' for m in range(groups * self.shared))};"]
        move = self.win.strides[1] * self.lanes
        for i in range(self.win.kernel[0]):
            for q in range(self.quads):
                at = i * self.win.dilations[0] * self.row + 4 * q * self.lanes
                out += [
                    self._load(g, f"xl + x * {move} + {at + g * self.shared * move}", i, q)
                    for g in range(groups)
                ]
        out.append("const int64_t pixel = line + x;")
        out += [byte.result(self.win.epi, self.site, f"s{m}", str(m), 0, "") for m in range(pixels)]
        return out

    def _load(self, group: int, x: str, tap: int, quad: int) -> str:
        start = (tap * self.quads + quad) * self.shared
        sums = " ".join(
            f"s{m} = tx_dot4(s{m}, v, w{start + r});"
            for r in range(self.shared)
            for m in (group * self.shared + r,)
        )
        pixels = f"tx_four_pixels({x})"
        return f"{{ const vi v = {f'tx_flip({pixels})' if self.win.flip else pixels}; {sums} }}"
