"""Depthwise IntegerConvolution in blocked formats.

A thread copies a band of one channel block's rows, with pads, to its stack. Four neighbouring
pixels are then loaded and turned once, so that a lane holds one channel's four bytes: the taps of
as many output pixels as fit in them, each one product with weights shifted to its place. On AVX2
without VNNI the band has pairs of neighbouring pixels in 16 bits instead, a lane for a channel,
which products read from memory: two for a row of three taps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
PAIRS_BYTES = 24 << 10
"""Of a band of pairs, four bytes for each pixel of a channel: three quarters of a first cache of 32
KiB. No measurement of it is on record.
"""
VECTOR, ROW, ROW_IN_PAIRS = 6, 2, 4
"""Cycles for a vector of results, and more for each row of taps: the epilogue; loading and turning
pixels, and products, without VNNI of pairs. By windows of 3 and of 5 rows on a Zen 4, as it is and
held back to x86-64-v3 and v4, within a factor of 1.6.
"""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [ByteDepthwiseTactic()]


@dataclass(frozen=True)
class _Work:
    """What ``match`` reads off a node. ``in_pairs``: products are summed by pairs of pixels."""

    win: DotWindow
    in_pairs: bool


class ByteDepthwiseTactic(Tactic[_Work]):
    """u8 or i8 with constant i8 weights, one output channel for each input channel, one or two
    spatial axes.
    """

    key = "tactix.c_int8_depthwise@1"
    implements = ("tactix.IntegerConvolution@1",)
    source = "c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> _Work | Reject:
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
        return _Work(win, _pairs_fit(win, device))

    def variants(self, work: _Work, device: DeviceProperties) -> Sequence[Variant] | Reject:
        win, lanes = work.win, max(4, device.lanes)
        wide = [blocked(4 * lanes)] if win.c % (4 * lanes) == 0 else []
        found = [
            window.variant_of(win, fmt, fmt, blocked(lanes)) for fmt in (*wide, blocked(lanes))
        ]
        made = [v for v in found if isinstance(v, Variant)]
        return made or found[0]  # type: ignore[return-value]

    def cost(self, work: _Work, variant: Variant, ctx: CompileContext) -> float | None:
        win = work.win
        if not symbols(win.n) <= set(ctx.opt):
            return None
        vectors = -(-win.c // max(4, ctx.device.lanes)) * win.pixels * evaluate(win.n, ctx.opt)
        quick = byte.has_byte_dots(ctx.device) or work.in_pairs
        row = ROW if quick else ROW_IN_PAIRS
        return START + vectors * (VECTOR + row * win.kernel[0]) / CLOCK / max(1, ctx.threads)

    def compile(self, work: _Work, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        made = _PairsKernel if work.in_pairs else _Kernel
        return made(work.win, variant, ctx).artifact()


def _pitch(win: DotWindow) -> int:
    """Pixels of a padded row."""
    return win.size[1] + win.pads[1] + win.pads[3]


def _pairs_step(win: DotWindow) -> int:
    """Pixels from one pair of a band to the next: with even strides windows begin at even ones."""
    return 2 - win.strides[1] % 2


def _pairs_pitch(win: DotWindow) -> int:
    """Pairs of a padded row."""
    return -(-_pitch(win) // _pairs_step(win))


def _pairs_fit(win: DotWindow, device: DeviceProperties) -> bool:
    """Whether the device multiplies pairs, and a band of them fits."""
    fits = _reach(win) * _pairs_pitch(win) * device.lanes * 4 <= PAIRS_BYTES
    return fits and byte.dot_on(byte.BYTES, device).widened


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

    dot = byte.BYTES
    limit = BAND_BYTES

    def __init__(self, win: DotWindow, variant: Variant, ctx: CompileContext) -> None:
        self.win, self.ctx = win, ctx
        self.lanes = max(4, ctx.device.lanes)
        self.blocks = -(-win.c // self.lanes)
        self.row = self._row()
        self.quads, self.shared = _quads(win), _shared(win)
        most = max(1, self.limit // self.row)
        self.lines = max(1, min(win.out[0], (most - _reach(win)) // win.strides[0] + 1))
        self.args = Args(win.node)
        self.cell = variant.input_format(win.inputs[0]).lanes
        self.site = DotSite(self.args, win, self.lanes, "", variant)

    def _row(self) -> int:
        """Bytes of a row of the band."""
        return _pitch(self.win) * self.lanes

    def artifact(self) -> KernelArtifact:
        """The kernel as data."""
        made = kernel(self.args, self._body(), self.ctx, preludes=byte.preludes(self.dot))
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
        count = self._count()
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

    def _count(self) -> int:
        """Vectors of weights."""
        return _weights(self.win)

    def _inside(self, source: str) -> list[str]:
        """Fill a row of the band at ``out``."""
        win, lanes, wide = self.win, self.lanes, self.win.size[1]
        _, left, _, right = win.pads
        return [
            f"memset(out, {win.fill}, {left * lanes});" if left else "",
            *self._pixels(f"out + {left * lanes}", f"{source} + "),
            f"memset(out + {(left + wide) * lanes}, {win.fill}, {right * lanes});" if right else "",
        ]

    def _beyond(self) -> str:
        """Fill a row of the band beyond the border."""
        return f"memset(out, {self.win.fill}, {self.row});"

    def _copy(self) -> list[str]:
        """The band's input rows."""
        win, high, top = self.win, self.win.size[0], self.win.pads[0]
        inside = self._inside(f"(const uint8_t*){self.args.input(win.inputs[0])}")
        rows = f"(lines - 1) * {win.strides[0]} + {_reach(win)}"
        body = [
            f"const int64_t at = top * {win.strides[0]} + r - {top};",
            f"uint8_t* out = band + r * {self.row};",
            block(f"if (at < 0 || at >= {high})", self._beyond()),
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


class _PairsKernel(_Kernel):
    """Whose band has pairs of pixels in 16 bits."""

    dot = byte.WIDENED_BYTES
    limit = PAIRS_BYTES

    def __init__(self, win: DotWindow, variant: Variant, ctx: CompileContext) -> None:
        super().__init__(win, variant, ctx)
        self.shared = 1

    @property
    def pairs(self) -> int:
        """Pairs that cover a row of taps."""
        return -(-self.win.kernel[1] // 2)

    def _row(self) -> int:
        return _pairs_pitch(self.win) * self.lanes * 4

    def _count(self) -> int:
        return self.win.kernel[0] * self.pairs

    def _packed(self, given: Sequence[Any]) -> Any:
        """Weights as [block][row tap][pair][channel][2] in 16 bits."""
        import numpy as np

        win, (kh, kw) = self.win, self.win.kernel
        out = np.zeros((self.blocks * self.lanes, kh, 2 * self.pairs), np.int16)
        out[: win.c, :, :kw] = given[win.inputs[1]].reshape(win.c, kh, kw)
        shaped = out.reshape(self.blocks, self.lanes, kh, self.pairs, 2)
        return shaped.transpose(0, 2, 3, 1, 4).copy().view(np.int8)

    def _inside(self, source: str) -> list[str]:
        """Pairs of a row, those at its borders one by one; what stands behind the last pixel does
        not count.
        """
        win, step, pitch = self.win, _pairs_step(self.win), _pitch(self.win)
        high, wide = win.size
        left, cell = win.pads[1], 4 * self.lanes
        many = self.cell // self.lanes
        place = (
            f"((plane / {many}) * {high} + at) * {wide * self.cell} + plane % {many} * {self.lanes}"
        )

        def store(place: str, pixel: str, next_: str) -> str:
            return f"tx_store_i32(out + {place}, {pixel} | {next_} << 16);"

        first = max(0, -(-left // step) * step)
        last = first + max(0, (left + wide - 1 - first) // step * step)
        border = [
            store(str(i // step * cell), self._pixel(i), self._pixel(i + 1))
            for i in (*range(0, first, step), *range(last, pitch, step))
        ]
        inner = store(f"i / {step} * {cell}", self._at("i"), self._at("i + 1"))
        return [
            f"const uint8_t* in = {source} + {place} - {left * self.cell};",
            loop("i", str(first), str(last), inner, step=step),
            *border,
        ]

    def _at(self, pixel: str) -> str:
        load = f"tx_load_u8(in + ({pixel}) * {self.cell})"
        return f"({load} ^ 128)" if self.win.flip else load

    def _pixel(self, number: int) -> str:
        """The pixel of that number in a padded row, as an unsigned byte in each lane."""
        left, wide = self.win.pads[1], self.win.size[1]
        return self._at(str(number)) if left <= number < left + wide else self._filled()

    def _filled(self) -> str:
        return f"tx_splat_i({self.win.fill ^ 128 if self.win.flip else self.win.fill})"

    def _beyond(self) -> str:
        fill = f"const vi fill = {self._filled()} * 0x00010001;"
        store = "tx_store_i32(out + i, fill);"
        return f"{fill}\n{loop('i', '0', str(self.row), store, step=4 * self.lanes)}"

    def _groups(self, groups: int, pixels: int) -> list[str]:
        out = [f"vi {', '.join(f's{m} = start' for m in range(pixels))};"]
        step, cell = _pairs_step(self.win), 4 * self.lanes
        move = self.win.strides[1] // step * cell
        for i in range(self.win.kernel[0]):
            for p in range(self.pairs):
                at = i * self.win.dilations[0] * self.row + 2 // step * p * cell
                w = f"w{i * self.pairs + p}"
                out += [
                    f"s{m} = tx_dot2_at(s{m}, {w}, xl + x * {move} + {at + m * move});"
                    for m in range(pixels)
                ]
        out.append("const int64_t pixel = line + x;")
        out += [byte.result(self.win.epi, self.site, f"s{m}", str(m), 0, "") for m in range(pixels)]
        return out
