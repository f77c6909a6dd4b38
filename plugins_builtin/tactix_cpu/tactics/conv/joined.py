"""Convolution whose groups have a half or less of a vector: as many as fill one are computed side
by side, each lane with the inputs of its own group.

A vector of a pixel holds the channels of all these groups. For each channel of a group it is
permuted once, so that every lane has that channel of its group, for all the results of a line that
the pixel takes part in.
"""

from __future__ import annotations

from typing import Any

from tactix.contracts.artifact import Packed
from tactix.contracts.tactic import CompileContext, Variant
from tactix_codegen.c.text import block, ctype
from tactix_codegen.c.tile import SHUFFLE, RegisterTile
from tactix_cpu.tactics.conv.kernel import ConvKernel
from tactix_cpu.tactics.conv.window import CpuConvolutionWindow, TileRun


class JoinedKernel(ConvKernel):
    """The loops of ConvKernel with a panel for each channel block, and one block deep."""

    def __init__(self, win: CpuConvolutionWindow, variant: Variant, ctx: CompileContext) -> None:
        super().__init__(win, variant, ctx)
        self.depth_of_cell = win.c // win.group // win.joined
        self.slab = win.all_taps * self.depth_of_cell * self.tile.width
        self.tail = 0

    def _helpers(self) -> str:
        return f"{SHUFFLE}{super()._helpers()}"

    def _most(self) -> int:
        """One chain: sums of neighbouring pixels take turns."""
        return 1

    def _packed(self) -> Packed:
        """Weights as (panel, row tap, step, column tap, lane, channel of a step), zero past the
        channels; row taps slice after slice where there are three axes.
        """
        win, lanes, once = self.win, self.tile.lanes, self.at_once
        rows, columns = win.depth.kernel * win.kernel[0], win.kernel[1]
        steps = self.depth_of_cell // once
        packing: tuple[tuple[str, Any], ...] = (
            ("reshape", (win.co, steps, once, rows, columns)),
            ("pad", ((0, self.panels * lanes - win.co), *((0, 0),) * 4)),
            ("reshape", (self.panels, lanes, steps, once, rows, columns)),
            ("transpose", (0, 4, 2, 5, 1, 3)),
        )
        return Packed(win.w, packing)

    def _cell(
        self, tile: RegisterTile, x: str, w: str, tap: int, run: TileRun | None, more: str = ""
    ) -> str:
        head = f"const {self.element}* xr = {x};\nconst {ctype(self.weights)}* wr = {w};"
        return block("", head, *self._taps_of_row(tile, run))

    def _taps_of_row(self, tile: RegisterTile, run: TileRun | None) -> list[str]:
        win = self.win
        users: dict[int, list[tuple[int, int]]] = {}
        for m in range(tile.rows):
            for t in range(win.kernel[1]):
                if run is None or run.pattern[m][t]:
                    at = m * win.strides[1] + t * win.dilations[1]
                    users.setdefault(at, []).append((m, t))
        return [
            block(
                "", *self._weights(k), *(self._pixel_of(k, at, users[at]) for at in sorted(users))
            )
            for k in range(self.depth_of_cell // self.at_once)
        ]

    def _weights(self, step: int) -> list[str]:
        """Declare those of a step, of every column tap."""
        count, lanes = self.win.kernel[1], self.tile.lanes
        places = [f"wr + {(step * count + t) * lanes * self.at_once}" for t in range(count)]
        if self.at_once == 2:
            return [
                f"const vi k{t} = tx_load_i32((const int32_t*)({p}));" for t, p in enumerate(places)
            ]
        return [f"const vf k{t} = tx_load_f32({p});" for t, p in enumerate(places)]

    def _pixel_of(self, step: int, at: int, users: list[tuple[int, int]]) -> str:
        """What the pixel ``at`` pixels on adds to the sums (row, column tap) that it is part of."""
        each = self.depth_of_cell
        lanes = [lane // each * (each // self.at_once) + step for lane in range(self.tile.lanes)]
        pairs = self.at_once == 2
        kind, load = ("vi", "tx_pairs_of") if pairs else ("vf", "tx_load_f32")
        add = "s{m}_0 = tx_dot2(s{m}_0, v, k{t});" if pairs else "s{m}_0 += v * k{t};"
        return block(
            "",
            f"const {kind} x = {load}({self.args.sum('xr', self._at(at))});",
            f"const {kind} v = TX_SHUFFLE(x, x, {', '.join(map(str, lanes))});",
            *(add.format(m=m, t=t) for m, t in users),
        )
