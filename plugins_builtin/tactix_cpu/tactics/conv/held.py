"""Lines of a convolution that are held in memory of one thread, as many as a window over them is
high, for what reads them next: the text that conv.pooled and conv.expanded share.
"""

from __future__ import annotations

from dataclasses import dataclass

from tactix.base.dims import Dim
from tactix.base.dtypes import DType
from tactix.contracts.tactic import CompileContext, Variant
from tactix_codegen.c.text import Args, comment, loop, store
from tactix_cpu.tactics.conv.kernel import UNKNOWN_WIDTH, ConvKernel, fitting
from tactix_cpu.tactics.conv.window import BlockedSite, CpuConvolutionWindow

NEAR_BYTES = 1 << 14
"""Bytes of a convolution that are made before they are read: half of a first cache of 32 KiB. No
measurement of it is on record.
"""


@dataclass(frozen=True)
class HeldWindows:
    """What reads the lines: ``kernel`` lines by columns, ``strides``, ``before``: pads above and on
    the left. ``out``: lines and columns of its results; ``around``: columns on the left and on the
    right that are held as zeros.
    """

    kernel: tuple[int, int]
    strides: tuple[int, int]
    before: tuple[Dim, Dim]
    out: tuple[Dim, Dim]
    around: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class HeldSite(BlockedSite):
    """Results go to the lines that a thread holds: ``made`` is where the image would begin of which
    these are a part; ``held``: floats of a channel block that it holds.
    """

    held: Dim = 0

    def put(self, output: int, dtype: DType, value: str, row: str, vector: int, count: str) -> str:
        pixel = self.args.sum("pixel", self._step(row))
        place = f"({pixel}) * {self.args.size('LANES', self.lanes)}"
        plane = [f"{vector} * {self.args.size('HELD', self.held)}"] if vector else []
        value = self._kept(value, dtype, vector)
        return store(dtype, self.args.sum("made", *plane, place), value)


class HeldKernel(ConvKernel):
    """The loops of ConvKernel over lines of windows, each behind the lines of the convolution that
    it is the first to need; some tiles of these lines at a time.

    ``reads_all``: lines are read once they are whole.
    """

    handed = "made"
    reads_all = False

    def __init__(
        self, win: CpuConvolutionWindow, windows: HeldWindows, variant: Variant, ctx: CompileContext
    ) -> None:
        self.windows, self.threads = windows, max(1, ctx.threads)
        super().__init__(win, variant, ctx)
        lanes = self.tile.lanes
        self.flat = False
        self.line = (win.out[1] + sum(windows.around)) * lanes
        self.held = self.line * windows.kernel[0]
        self.held_bytes = self.held * (self.tile.vectors * 4)
        self.site = HeldSite(self.args, win, lanes, self.site.left, held=self.held)

    def _columns(self) -> list[str]:
        """Statements that read the columns up to ``until`` of the lines [lowest, end), which are
        ``lines`` from ``start`` on: line ``o`` of results of each channel block of the panel.
        """
        raise NotImplementedError

    def _begin(self) -> list[str]:
        """Statements before all lines."""
        return []

    def _parts_of_lines(self) -> int:
        if self.reads_all:
            return 1
        tiles = self._tiles_of_line()
        most = tiles if isinstance(tiles, int) else -(-UNKNOWN_WIDTH // self.tile.rows)
        bytes_of_tile = self.windows.kernel[0] * self.tile.rows * self.tile.width * 4
        return max(1, min(most, -(-most * bytes_of_tile // NEAR_BYTES)))

    def _workspace(self) -> Dim:
        return super()._workspace() + self.held_bytes * self.threads

    def _windowed(self) -> str:
        windows, args = self.windows, self.args
        args.size("HELD", self.held)
        walk = loop("o", "t", "t + next - u", *self._line_of_windows())
        about = comment("lines of windows")
        body = ["int64_t made_lines = 0;", about, walk]
        most = fitting(max(1, self._row_bytes() * windows.strides[0]))
        text = self._sweep(args.dim(windows.out[0]), most, [], body)
        floats = args.size("HELD_FLOATS", self.held_bytes // 4)
        first = [
            f"if (tid >= {self.threads}) return;",
            f"if (nt > {self.threads}) nt = {self.threads};",
            f"float* held = {args.workspace(0)} + tid * {floats};",
            *self._begin(),
        ]
        return "\n".join([*first, text])

    def _line_of_windows(self) -> list[str]:
        windows, args = self.windows, self.args
        high, kernel, lanes = args.size("HIGH", self.win.out[0]), windows.kernel[0], self.tile.lanes
        line, row = args.size("LINE", self.line), args.size("ROW", self.win.out[1] * lanes)
        lead = f" + {windows.around[0] * lanes}" if windows.around[0] else ""
        made = f"float* made = held + y % {kernel} * {line} - y * {row}{lead};"
        start = f"o * {windows.strides[0]}{less(windows.before[0], args)}"
        return [
            f"const int64_t start = {start}, lowest = start > 0 ? start : 0;",
            f"const int64_t end = start + {kernel} < {high} ? start + {kernel} : {high};",
            comment("lines [begin, end) of the convolution are not made yet"),
            "const int64_t begin = made_lines > lowest ? made_lines : lowest;",
            "made_lines = end;",
            f"const float* lines[{kernel}];",
            loop("i", "lowest", "end", f"lines[i - start] = held + i % {kernel} * {line};"),
            "int64_t p0 = 0;",
            loop(
                "part",
                "0",
                str(self.parts),
                *self._range_of_tiles(),
                loop("y", "begin", "end", made, *self._line()),
                *self._columns(),
            ),
        ]

    def _range_of_tiles(self) -> list[str]:
        """Declare which tiles [from, to) of lines a part has, and behind which column they end."""
        wide = self.args.dim(self.win.out[1])
        if self.parts == 1:
            return [f"const int64_t until = {wide};"]
        tiles = self.args.size("TILES", self._tiles_of_line())
        found = [
            f"const int64_t from = part * {tiles} / {self.parts};",
            f"const int64_t to = (part + 1) * {tiles} / {self.parts};",
        ]
        if self.runs is None:
            rows = self.tile.rows
            return [*found, f"const int64_t until = to * {rows} < {wide} ? to * {rows} : {wide};"]
        width, count = self.win.out[1], self._tiles_of_line()
        assert isinstance(width, int)
        assert isinstance(count, int)
        base, more = divmod(width, count)
        larger = f" + (to < {more} ? to : {more})" if more else ""
        return [*found, f"const int64_t until = to * {base}{larger};"]


def less(pads: Dim, args: Args) -> str:
    """C text behind a number that pads are taken from."""
    return "" if pads == 0 else f" - {args.dim(pads)}"
