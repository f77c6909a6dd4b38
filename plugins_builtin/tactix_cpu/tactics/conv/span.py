"""Convolution of small images: tiles over neighbouring pixels whatever their row, every tap of each
known at build.
"""

from __future__ import annotations

from tactix.contracts.tactic import CompileContext, Variant
from tactix_codegen.c.text import block, comment, ctype, loop, times
from tactix_codegen.c.tile import RegisterTile
from tactix_cpu.tactics.conv.kernel import ConvKernel, fitting
from tactix_cpu.tactics.conv.window import CpuConvolutionWindow

MOST_TAPS = 48
"""Most taps of all tiles together: each becomes code of its own, some hundred bytes, and 32 KiB of
it must stay in the first cache for instructions. No measurement of it is on record.
"""


def pixels_of(win: CpuConvolutionWindow) -> int | None:
    """Pixels of an output image if all sizes are known."""
    sizes = [d for d in (*win.out, *win.size) if isinstance(d, int)]
    return sizes[0] * sizes[1] if len(sizes) == 4 else None


def can_span(win: CpuConvolutionWindow, rows: int) -> bool:
    """Whether tiles of ``rows`` pixels across rows are worth their code: rows shorter than a tile,
    few tiles.
    """
    pixels, width = pixels_of(win), win.out[1]
    if pixels is None or win.is_pointwise or win.has_depth or not isinstance(width, int):
        return False
    return width < rows and -(-pixels // rows) * win.taps <= MOST_TAPS


class SpanKernel(ConvKernel):
    """One function for each tile of an image."""

    def __init__(self, win: CpuConvolutionWindow, variant: Variant, ctx: CompileContext) -> None:
        super().__init__(win, variant, ctx)
        self.copied, self.pitch = False, win.size[1]

    def _windowed(self) -> str:
        pixels, rows = pixels_of(self.win), self.tile.rows
        assert pixels is not None
        cases = []
        for i, start in enumerate(range(0, pixels, rows)):

            def taps(tile: RegisterTile, deep: str, start: int = start) -> str:
                return self._taps(tile, start, deep)

            self._add(f"t{i}", min(rows, pixels - start), taps)
            cases.append(f"case {i}: {self._call(f't{i}', 'xp', str(start), '0', '0')} break;")
        body = loop("q", "t", "t + next - u", block("switch (q)", *cases))
        return self._sweep(str(len(cases)), fitting(1), [], [body])

    def _taps(self, tile: RegisterTile, start: int, deep: str) -> str:
        """The sum of the pixels from ``start``."""
        win = self.win
        high, wide, across = win.size[0], win.size[1], win.out[1]
        assert isinstance(high, int)
        assert isinstance(wide, int)
        assert isinstance(across, int)
        lines: list[str] = []
        for tap in range(win.taps):
            i, j = divmod(tap, win.kernel[1])
            places: list[int | None] = []
            for p in range(start, start + tile.rows):
                y = p // across * win.strides[0] + i * win.dilations[0] - win.pads[0]
                x = p % across * win.strides[1] + j * win.dilations[1] - win.pads[1]
                places.append(y * wide + x if 0 <= y < high and 0 <= x < wide else None)
            if any(at is not None for at in places):
                at = f"column tap {j} of row tap {i}"
                lines += [
                    comment(at),
                    self._channels(tile, "xr", self.args.sum("wr", times(tap, "W_TAP")), places),
                ]
        head = (
            f"const {self.element}* xr = x + c * X_PLANE;\n"
            f"const {ctype(self.weights)}* wr = w + c * W_BLOCK;"
        )
        walk = loop("c", "0", deep, self._cells(deep), head, *lines)
        return f"{comment('blocks of CELL channels')}\n{walk}"
