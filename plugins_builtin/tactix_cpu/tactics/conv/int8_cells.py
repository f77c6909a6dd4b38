"""The input of a byte convolution as cells that the matrix unit's tiles read: 64 bytes of channels
to a pixel.

Of an image with few channels a cell holds four channels of as many neighbouring rows as the stride,
so that the taps of such rows in neighbouring columns are 64 bytes. The rows of a copy are dealt out
over as many parts as the stride, so that the cells of an output row's neighbour lie one row apart;
one tap needs only every so manieth row and column.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tactix.base.tensor import Format
from tactix.contracts.artifact import Packed
from tactix_codegen.c.text import Args, block, loop, split
from tactix_cpu.tactics.conv.int8_window import FEW_CHANNELS, DotWindow
from tactix_cpu.tactics.dot_tile import DEEP, HIGH, SIDE


@dataclass(frozen=True)
class Cells:
    """``pick``: of how many rows and columns the copy takes one; ``step``: its rows and columns
    between neighbours.
    """

    win: DotWindow
    source: Format
    pick: tuple[int, int]
    step: tuple[int, int]

    @classmethod
    def of(cls, win: DotWindow, source: Format) -> Cells:
        """The cells that a convolution reads from an input of that format."""
        single = [k == 1 and not source.is_linear for k in win.kernel]
        pick: Any = tuple(s if one else 1 for s, one in zip(win.strides, single, strict=True))
        step: Any = tuple(1 if one else s for s, one in zip(win.strides, single, strict=True))
        return cls(win, source, pick, step)

    @property
    def direct(self) -> bool:
        """Whether the input is read where it lies."""
        return self.source.lanes == DEEP and self.win.is_pointwise and self.win.pixels >= SIDE

    @property
    def image_rows(self) -> int:
        """Rows of an image of few channels that a cell joins; else 0."""
        return self.step[0] if self.source.is_linear else 0

    @property
    def cell(self) -> int:
        """Bytes of a cell."""
        return FEW_CHANNELS * self.image_rows or DEEP

    @property
    def planes(self) -> int:
        return 1 if self.image_rows else self.win.c // DEEP

    @property
    def taps(self) -> tuple[int, int]:
        """Rows of cells, and runs of 64 bytes in each, that a result needs of a plane."""
        if not self.image_rows:
            return self.win.kernel
        return -(-self.win.kernel[0] // self.image_rows), -(-self.win.kernel[1] * self.cell // DEEP)

    @property
    def steps(self) -> int:
        """Products of tiles that a block of results needs."""
        return self.planes * self.taps[0] * self.taps[1]

    @property
    def tap(self) -> int:
        """Bytes between neighbouring taps or runs."""
        return DEEP if self.image_rows else self.win.dilations[1] * DEEP

    @property
    def move(self) -> int:
        """Bytes between the cells of neighbouring results."""
        return self.step[1] * self.cell

    @property
    def out_wide(self) -> int:
        """Results of a row, with those that are left."""
        _, left, _, right = self.win.pads
        return (
            self.win.out[1]
            if self.pick[1] > 1
            else -(-(self.win.size[1] + left + right) // self.step[1])
        )

    @property
    def wide(self) -> int:
        """Cells of a row."""
        return self.out_wide * self.step[1]

    @property
    def part_rows(self) -> int:
        """Rows of a part; of an image of few channels there is one part."""
        top, _, bottom, _ = self.win.pads
        rows = (
            self.win.out[0]
            if self.pick[0] > 1
            else -(-(self.win.size[0] + top + bottom) // self.step[0])
        )
        return max(rows, self.win.out[0] + self.taps[0] - 1) if self.image_rows else rows

    @property
    def parts(self) -> int:
        return 1 if self.image_rows else self.step[0]

    @property
    def places(self) -> int:
        """Results of an image, with those that are left."""
        return self.win.out[0] * self.out_wide

    @property
    def plane(self) -> int:
        """Bytes."""
        return self.parts * self.part_rows * self.wide * self.cell

    @property
    def image(self) -> int:
        """Bytes."""
        return self.planes * self.plane

    @property
    def reach(self) -> int:
        """Bytes that tiles may read behind the last image."""
        return SIDE * self.move + self.taps[1] * self.tap + DEEP

    def row_of_tap(self, tap: str) -> str:
        """Bytes to a row of taps, as C."""
        if self.image_rows:
            return f"{tap} * {self.wide * self.cell}"
        dy, parts = self.win.dilations[0], self.parts
        return (
            f"({tap} * {dy} % {parts} * {self.part_rows} + {tap} * {dy} / {parts}) "
            f"* {self.wide * DEEP}"
        )

    def packed(self, panels: int) -> Packed:
        """Weights as [panel][plane][row of taps][tap or run][group of four bytes][column][4].

        A step is 16 groups of 32 columns, two tiles of the unit side by side, which takes the right
        side with four elements of k in 32 bits (Intel, Software Developer's Manual, TDPBUSD).
        """
        win, rows = self.win, self.image_rows
        kh, kw = win.kernel
        if not rows:
            steps: tuple[tuple[str, Any], ...] = (
                ("reshape", (win.co, win.c, kh, kw)),
                ("pad", ((0, panels * SIDE - win.co), (0, 0), (0, 0), (0, 0))),
                ("reshape", (panels, SIDE, self.planes, HIGH, 4, kh, kw)),
                ("transpose", (0, 2, 5, 6, 3, 1, 4)),
            )
            return Packed(win.inputs[1], steps)
        (high, runs), columns = self.taps, DEEP // self.cell
        pads = (panels * SIDE - win.co, FEW_CHANNELS - win.c, high * rows - kh, runs * columns - kw)
        steps = (
            ("reshape", (win.co, win.c, kh, kw)),
            ("pad", tuple((0, p) for p in pads)),
            ("reshape", (panels, SIDE, FEW_CHANNELS, high, rows, runs, columns)),
            ("transpose", (0, 3, 5, 6, 4, 1, 2)),
        )
        return Packed(win.inputs[1], steps)

    def copy(self, args: Args, target: str) -> str:
        """The first launch: every row of every plane of every image, with its pads."""
        rows = self.planes * self.parts * self.part_rows
        body = self._image_row(args) if self.image_rows else self._row(args)
        head = f"uint8_t* out = {target} + r * {self.wide * self.cell};"
        return f"{split(args.dim(self.win.n * rows))}\n{loop('r', 'lo', 'hi', head, *body)}"

    def _row(self, args: Args) -> list[str]:
        win, (py, px), fill = self.win, self.pick, self.win.fill
        high, wide = win.size
        top, left, _, _ = win.pads
        before = -(-left // px)
        there = max(0, min(self.wide, -(-(wide + left) // px)) - before)
        after, first = self.wide - before - there, before * px - left
        lanes = self.source.lanes
        many = DEEP // lanes
        x = f"(const uint8_t*){args.input(win.inputs[0])}"
        move = [
            (
                f"memcpy(to + i * {DEEP} + {j * lanes}, in + {j * high * wide * lanes} + i "
                f"* {px * lanes}, {lanes});"
            )
            for j in range(many)
        ]
        whole = (
            [f"memcpy(to, in, {there * DEEP});"]
            if many == px == 1
            else [loop("i", "0", str(there), *move)]
        )
        count = self.parts * self.part_rows
        y = f"(q % {self.part_rows} * {self.parts} + q / {self.part_rows}) * {py} - {top}"
        return [
            f"const int64_t p = r / {count}, q = r % {count}, y = {y};",
            block(
                f"if (y < 0 || y >= {high})",
                f"memset(out, {fill}, {self.wide * DEEP});",
                "continue;",
            ),
            f"memset(out, {fill}, {before * DEEP});" if before else "",
            f"memset(out + {(before + there) * DEEP}, {fill}, {after * DEEP});" if after else "",
            f"const uint8_t* in = {x} + ((p * {many * high} + y) * {wide} + {first}) * {lanes};",
            f"uint8_t* to = out + {before * DEEP};",
            *whole,
        ]

    def _image_row(self, args: Args) -> list[str]:
        """Rows of all channels joined; rows of pads stand in an array."""
        win, rows = self.win, self.image_rows
        (high, wide), (top, left, _, _) = win.size, win.pads
        kind = f"uint{8 * self.cell}_t"
        x = f"(const uint8_t*){args.input(win.inputs[0])}"
        lines, taken = [], []
        for j in range(rows):
            lines.append(
                f"const int64_t y{j} = q * {rows} + {j - top}, in{j} = y{j} >= 0 && y{j} < {high};"
            )
            for c in range(win.c):
                lines.append(
                    f"const uint8_t* x{j}_{c} = in{j} ? image + ({c * high} + y{j}) * {wide} : pad;"
                )
            taken += [f"({kind})x{j}_{c}[i] << {8 * (FEW_CHANNELS * j + c)}" for c in range(win.c)]
        right = self.wide - left - wide
        edges = [f"memset(out, {win.fill}, {left * self.cell});"] if left else []
        edges += (
            [f"memset(out + {(left + wide) * self.cell}, {win.fill}, {right * self.cell});"]
            if right
            else []
        )
        return [
            f"const int64_t q = r % {self.part_rows};",
            f"const uint8_t* image = {x} + r / {self.part_rows} * {win.c * high * wide};",
            f"uint8_t pad[{wide}];",
            f"memset(pad, {win.fill}, {wide});",
            *lines,
            *edges,
            f"{kind}* to = ({kind}*)(out + {left * self.cell});",
            loop("i", "0", str(wide), f"to[i] = {' | '.join(taken)};"),
        ]
