"""Depthwise convolution in the blocked format and in nhwc: every channel by itself, tiles of
neighbouring pixels of one vector of channels.

An input pixel is loaded once for all output pixels of the tile that it takes part in. The mean of
the results over their pixels is taken on the way, where a network asks for it: of some lines at a
time, whose sums a second launch adds. Knob: ``rows``, pixels of a tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tactix.base.dims import Dim, evaluate, prod, symbols
from tactix.base.dtypes import DType
from tactix.base.tensor import NHWC, Format, blocked
from tactix.contracts.artifact import KernelArtifact, Packed
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import tile as c_tile
from tactix_codegen.c.text import block, comment, load, loop, split, store
from tactix_codegen.c.tile import RegisterTile
from tactix_cpu.tactics.conv.kernel import PIECES, ConvKernel
from tactix_cpu.tactics.conv.window import (
    ChannelsLastSite,
    CpuConvolutionWindow,
    SumsSite,
    TileRun,
    formats,
    summed_window,
)
from tactix_cpu.tactics.estimates import CLOCK, START


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CpuDepthwiseTactic()]


DTYPES = (DType.FP32, DType.BF16)

TAP = 0.5
"""Cycles of a tap for a vector of results: one FMA, of which two start in a cycle."""
TAP_LOADS = 2.0
"""Cycles of loads for a tap, which all pixels of a tile share: its weights, and pixels at the ends.
"""
RESULT = 8
"""Cycles to take a vector of results through the epilogue to the output. No measurement of this or
of ``TAP_LOADS`` is on record.
"""


class CpuDepthwiseTactic(Tactic[CpuConvolutionWindow]):
    """float32 or bf16, one or two spatial axes, constant weights, one output channel for each input
    channel.
    """

    key = "tactix.c_depthwise@1"
    implements = ("tactix.Convolution@1", "tactix.WideConvolution@1")
    source = "c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> CpuConvolutionWindow | Reject:
        win = summed_window(node, DTYPES)
        if isinstance(win, Reject):
            return win
        if not win.group == win.c == win.co:
            return Reject("not depthwise with one output channel for each input channel")
        return win

    def variants(
        self, win: CpuConvolutionWindow, device: DeviceProperties
    ) -> Sequence[Variant] | Reject:
        lanes = max(4, device.lanes)
        whole = isinstance(win.c, int) and win.c % lanes == 0
        beside = (NHWC,) if whole and not win.has_means else ()
        found = [_in_format(win, device, fmt) for fmt in (blocked(lanes), *beside)]
        if not any(isinstance(f, list) for f in found):
            return found[0]
        return [v for f in found if isinstance(f, list) for v in f]

    def cost(
        self, win: CpuConvolutionWindow, variant: Variant, ctx: CompileContext
    ) -> float | None:
        steps = win.n * win.out[0] * win.out[1] * (-(-win.c // max(4, ctx.device.lanes)))
        if not symbols(steps) <= set(ctx.opt):
            return None
        cycles = win.taps * (TAP + TAP_LOADS / variant.number("rows")) + RESULT
        return START + evaluate(steps, ctx.opt) * cycles / CLOCK / max(1, ctx.threads)

    def compile(
        self, win: CpuConvolutionWindow, variant: Variant, ctx: CompileContext
    ) -> KernelArtifact:
        kernel = MeansKernel if win.has_means else DepthwiseKernel
        return kernel(win, variant, ctx).artifact()


def _in_format(
    win: CpuConvolutionWindow, device: DeviceProperties, fmt: Format
) -> list[Variant] | Reject:
    """The variants that read and write one format."""
    given = formats(win, fmt, fmt)
    if isinstance(given, Reject):
        return given
    width = win.out[1]
    sizes = dict.fromkeys(
        -(-width // -(-width // r)) if isinstance(width, int) else r
        for r in _rows(win, fmt, device)
    )
    out = (fmt,) * len(win.node.outputs)
    return [Variant.of(given, out, rows=r, vectors=1, blocks=0) for r in sizes]


def _rows(win: CpuConvolutionWindow, fmt: Format, device: DeviceProperties) -> tuple[int, ...]:
    """Pixels of a tile: with the weights of one row of taps they fill the registers.

    Of 32: 20 sums, up to 7 weights and the pixel, with room for the epilogue; 14 and 7 divide the
    widths of images better (112, 56, 28, 14, 7). Of 16: 7 or 4. In nhwc neighbouring pixels lie far
    apart, and large tiles were slower: 256 channels of 56 x 56 with a GELU took 0.46 ms in tiles of
    7 and 0.90 in tiles of 14 in one run, 0.59 and 0.62 in another (an Intel guest with AMX).
    """
    many = c_tile.registers(device) == 32 and win.kernel[1] <= 7 and fmt != NHWC
    return (14, 7, 20) if many else (7, 4)


def packed_taps(win: CpuConvolutionWindow, lanes: int) -> Packed:
    """Weights as (channel block, row tap, column tap, channel in block): a vector for each tap;
    those of bfloat16 are widened here, once, and not in the loops.
    """
    panels = -(-win.c // lanes)
    steps: tuple[tuple[str, Any], ...] = (
        ("reshape", (win.c, win.taps)),
        ("pad", ((0, panels * lanes - win.c), (0, 0))),
        ("reshape", (panels, lanes, win.taps)),
        ("transpose", (0, 2, 1)),
        ("cast", "f32"),
    )
    return Packed(win.w, steps)


def tap_sums(
    win: CpuConvolutionWindow, tile: RegisterTile, cell: int, run: TileRun | None
) -> list[str]:
    """The products of a row of taps, whose weights are at ``wr``, with pixels from ``xr`` on, that
    lie ``cell`` elements apart: weights stay in registers, and each pixel is loaded once for all
    the sums that it takes part in.
    """
    taps, lanes = range(win.kernel[1]), tile.lanes
    users: dict[int, list[tuple[int, int]]] = {}
    for m in range(tile.rows):
        for t in taps:
            if run is None or run.pattern[m][t]:
                users.setdefault(m * win.strides[1] + t * win.dilations[1], []).append((m, t))
    weights = [f"const vf k{t} = tx_load_f32(wr + {t * lanes});" for t in taps]
    columns = []
    for at, found in sorted(users.items()):
        sums = [f"{tile.acc(m, 0)} += v * k{t};" for m, t in found]
        columns.append(block("", f"const vf v = {load(win.dtype, f'xr + {at * cell}')};", *sums))
    return [*weights, *columns]


class DepthwiseKernel(ConvKernel):
    """The loops of ConvKernel with a panel for each channel block, and one block deep.

    In nhwc tiles walk over the panels, so that pixels are read as they lie.
    """

    def __init__(self, win: CpuConvolutionWindow, variant: Variant, ctx: CompileContext) -> None:
        super().__init__(win, variant, ctx)
        self.deep, self.weights, self.at_once = 1, DType.FP32, 1
        self.groups = self.panels
        self.slab = win.taps * self.tile.lanes
        self.flat = False
        self.walks = variant.input_format(win.x) == NHWC
        if self.walks:
            self.cell = win.c
            self.site = ChannelsLastSite(self.args, win, self.tile.lanes, "")

    def _row_bytes(self) -> int:
        """A sweep is all lines: a panel reads none again, and in nhwc it takes turns in tiles."""
        return 1

    def _channels_of_panel(self) -> str:
        if not self.walks:
            return super()._channels_of_panel()
        return f" + p * {self.args.size('LANES', self.tile.lanes)}"

    def _packed(self) -> Packed:
        return packed_taps(self.win, self.tile.lanes)

    def _reduce(self, tile: RegisterTile, run: TileRun | None, deep: str) -> str:
        """A row of taps at a time."""
        win, lanes = self.win, tile.lanes
        row = self.args.dim(self.pitch * (win.dilations[0] * self.cell))
        head = (
            f"const {self.element}* xr = x + i * {row};\n"
            f"const float* wr = w + i * {win.kernel[1] * lanes};"
        )
        return loop("i", "top", "bottom", head, *tap_sums(win, tile, self.cell, run))


class MeansKernel(DepthwiseKernel):
    """The same, and the mean of the results: every unit of work is a part of the lines of one
    channel block, which leaves the sum of its results in the workspace, whoever computes it.
    """

    handed = "total"

    def __init__(self, win: CpuConvolutionWindow, variant: Variant, ctx: CompileContext) -> None:
        super().__init__(win, variant, ctx)
        self.parts = 1
        self.site = SumsSite(self.args, win, self.tile.lanes, "")
        self.bands = self._bands()

    def _bands(self) -> int:
        """Parts of an image's lines: some for each thread."""
        high, units = self.win.out[0], self.win.n * self.panels
        assert isinstance(high, int)
        opt = self.ctx.opt
        known = evaluate(units, opt) if symbols(units) <= set(opt) else self.panels
        wanted = -(-PIECES * self.ctx.threads // max(1, known)) if self.ctx.threads > 1 else 1
        return max(1, min(high, wanted))

    def _sums_bytes(self) -> Dim:
        return self.win.n * (self.bands * self.panels * self.tile.lanes * 4)

    def _workspace(self) -> Dim:
        return self._sums_bytes() + super()._workspace()

    def _finish(self, tile: RegisterTile) -> list[str]:
        # A sum of the tile first: sums of fewer terms round less off.
        add = "tx_store_f32(total, tx_load_f32(total) + sum);"
        return ["vf sum = tx_zero();", *super()._finish(tile), add]

    def _windowed(self) -> str:
        bands, lanes = self.args.size("BANDS", self.bands), self.args.size("LANES", self.tile.lanes)
        high = self.args.dim(self.win.out[0])
        self.sums = self.args.workspace(0)
        begin, end = (f"{band} * {high} / {bands}" for band in ("band", "(band + 1)"))
        one = [
            f"float* total = {self.sums} + ((image * {bands} + band) * PANELS + p) * {lanes};",
            "tx_store_f32(total, tx_zero());",
            comment("lines of y"),
            loop("y", begin, end, *self._line()),
        ]
        every = loop("band", "t", "t + next - u", *one)
        return self._sweep(bands, self.bands, [], [comment("bands of lines of y"), every])

    def _launches(self) -> list[str]:
        return [*super()._launches(), self._means()]

    def _means(self) -> str:
        """The last launch: adds the sums of a channel block's bands."""
        lanes, count = self.tile.lanes, self.args.size("COUNT", prod(self.win.spatial))
        place = f"{self.sums} + ((u / PANELS * BANDS + band) * PANELS + u % PANELS) * LANES"
        mean = f"sum / (float){count}"
        if self.win.c % lanes:
            mean = f"tx_keep({mean}, {self.win.c} - u % PANELS * {lanes})"
        body = [
            "vf sum = tx_zero();",
            loop("band", "0", "BANDS", f"sum += tx_load_f32({place});"),
            store(DType.FP32, f"{self.args.output(1)} + u * LANES", mean),
        ]
        about = comment("the last launch: means of channel blocks, of the sums of their bands")
        mine = split(self.args.dim(self.win.n * self.panels))
        return "\n".join([about, mine, loop("u", "lo", "hi", *body)])
