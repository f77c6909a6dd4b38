"""Strided copies in C: what all layers that only move elements come down to.

A ``Copy`` walks loops with a stride for the source and one for the target. Neighbouring loops are
joined; then the last loop is a run of bytes, a fill, or a strided walk, and two loops that swap are
walked in tiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tactix.base import dims
from tactix.base.dims import Dim
from tactix.base.dtypes import DType
from tactix.contracts.tactic import CompileContext
from tactix_codegen.c import text as c_text
from tactix_codegen.c.space import collapse
from tactix_codegen.c.text import Args, block, loop

WIDTHS = (1, 2, 4, 8)
"""Bytes of elements that can be moved."""


def preludes() -> tuple[str, ...]:
    """Preludes of kernels made of copies."""
    return (*c_text.vector_preludes(), c_text.prelude("move.h"))


def movable(dtype: DType) -> bool:
    """Whether elements of that dtype are plain bytes of a known width."""
    return not dtype.on_host and dtype.itemsize in WIDTHS


def bits(value: float, dtype: DType) -> int:
    """The bit pattern of a number in a dtype, as ``fill`` takes it."""
    import numpy as np

    return int(np.asarray(value).astype(dtype.numpy).view(f"u{dtype.itemsize}"))


@dataclass(frozen=True)
class Copy:
    """``source``: the given input's index, or -1 to fill with ``value`` (the bits of an element).

    ``sizes`` of the loops; strides and offsets in elements.
    """

    source: int
    target: int
    sizes: tuple[Dim, ...]
    source_strides: tuple[Dim, ...]
    target_strides: tuple[Dim, ...]
    source_offset: Dim = 0
    target_offset: Dim = 0
    value: int = 0


def fill(
    target: int, sizes: Sequence[Dim], strides: Sequence[Dim], offset: Dim, value: int
) -> Copy:
    """Write the same element everywhere; ``value``: its bits."""
    return Copy(-1, target, tuple(sizes), (0,) * len(sizes), tuple(strides), 0, offset, value)


def statements(args: Args, copies: Sequence[Copy], width: int, ctx: CompileContext) -> list[str]:
    """C for all copies, each shared between the threads; ``width``: bytes of an element."""
    return [block("", *_Writer(args, c, width, ctx).text()) for c in copies]


class _Writer:
    """The C text of one copy."""

    def __init__(self, args: Args, copy: Copy, width: int, ctx: CompileContext) -> None:
        self.args, self.copy, self.width, self.ctx = args, copy, width, ctx
        self.element = f"uint{8 * width}_t"
        self.bits = str(8 * width)
        self.constant = f"({self.element})0x{copy.value:x}ULL"
        self.space = collapse(copy.sizes, (copy.source_strides, copy.target_strides))
        self.swapped = self._swapped_loop()

    def text(self) -> list[str]:
        target = self.args.bytes_out(self.copy.target)
        offset = self.args.dim(self.copy.target_offset)
        heads = [f"{self.element}* y = ({self.element}*){target} + {offset};"]
        if self.copy.source >= 0:
            x = f"(const {self.element}*){self.args.bytes_in(self.copy.source)}"
            heads.append(
                f"const {self.element}* x = {x} + {self.args.dim(self.copy.source_offset)};"
            )
        if self.swapped is not None:
            return [*heads, *self._tiles(self.swapped)]
        if len(self.space.sizes) == 1 or self._few_rows():
            return [*heads, *self._split_last()]
        return [*heads, *self._split_rows()]

    def _swapped_loop(self) -> int | None:
        """A loop along which the source is contiguous while the target is along the last."""
        source, target = self.space.strides
        if self.copy.source < 0 or source[-1] in (0, 1) or target[-1] != 1:
            return None
        return next((i for i in range(len(source) - 2, -1, -1) if source[i] == 1), None)

    def _few_rows(self) -> bool:
        rows = dims.prod(self.space.sizes[:-1])
        if not dims.symbols(rows) <= set(self.ctx.opt):
            return False
        return dims.evaluate(rows, self.ctx.opt) < 4 * self.ctx.threads

    def _run(self, begin: str, count: str) -> str:
        """The last loop from ``begin`` on, ``count`` steps, at ``p`` and ``q``."""
        source, target = self.space.strides[0][-1], self.space.strides[1][-1]
        q = "q" if begin == "0" else f"q + {begin} * {self.args.dim(target)}"
        p = "p" if begin == "0" else f"p + {begin} * {self.args.dim(source)}"
        if self.copy.source < 0 and target == 1:
            return f"tx_fill_{self.bits}({q}, {self.constant}, {count});"
        if self.copy.source < 0:
            place = f"({q})[k * {self.args.dim(target)}]"
            return loop("k", "0", count, f"{place} = {self.constant};")
        if source == 1 and target == 1:
            return f"tx_copy((char*)({q}), (const char*)({p}), ({count}) * {self.width});"
        if source == 0 and target == 1:
            return f"tx_fill_{self.bits}({q}, *({p}), {count});"
        if target == 1:
            return f"tx_stride_{self.bits}({q}, {p}, {count}, {self.args.dim(source)});"
        strides = f"{self.args.dim(target)}, {self.args.dim(source)}"
        return f"tx_scatter_{self.bits}({q}, {p}, {count}, {strides});"

    def _places(self, loops: Sequence[int]) -> list[str]:
        """Declare ``q`` and ``p`` at the current position of the loops."""
        names = [f"i{i}" for i in loops]
        source, target = ([s[i] for i in loops] for s in self.space.strides)
        out = [f"{self.element}* q = y + {self.args.offset(target, names)};"]
        if self.copy.source >= 0:
            out.append(f"const {self.element}* p = x + {self.args.offset(source, names)};")
        return out

    def _split_last(self) -> list[str]:
        """Few rows: every thread has a part of each."""
        outer = list(range(len(self.space.sizes) - 1))
        text = "\n".join([*self._places(outer), self._run("lo", "hi - lo")])
        for i in reversed(outer):
            text = loop(f"i{i}", "0", self.args.dim(self.space.sizes[i]), text)
        return [
            c_text.split(self.args.dim(self.space.sizes[-1]), 64 // self.width),
            text if outer else block("", text),
        ]

    def _split_rows(self) -> list[str]:
        """A thread has a run of rows; the position is worked out once per run of the last but one
        loop.
        """
        outer = list(range(len(self.space.sizes) - 1))
        sizes = [self.args.dim(self.space.sizes[i]) for i in outer]
        rows, row = sizes[-1], f"i{outer[-1]}"
        steps = [f"q += {self.args.dim(self.space.strides[1][-2])};"]
        if self.copy.source >= 0:
            steps.append(f"p += {self.args.dim(self.space.strides[0][-2])};")
        body = [
            c_text.decode("o", [f"i{i}" for i in outer], sizes),
            f"const int64_t run = {rows} - {row} < hi - o ? {rows} - {row} : hi - o;",
            *self._places(outer),
            loop("r", "0", "run", self._run("0", self.args.dim(self.space.sizes[-1])), *steps),
            "o += run;",
        ]
        total = self.args.dim(dims.prod(self.space.sizes[:-1]))
        return [c_text.split(total), block("for (int64_t o = lo; o < hi;)", *body)]

    def _tiles(self, swapped: int) -> list[str]:
        """Two loops that swap, in tiles of TX_TILE by TX_TILE."""
        last = len(self.space.sizes) - 1
        outer = [i for i in range(last) if i != swapped]
        a, b = (self.args.dim(self.space.sizes[i]) for i in (swapped, last))
        # Along the shorter of both first, so that lines of the cache are soon whole.
        to, by = self.space.sizes[last], self.space.sizes[swapped]
        short = isinstance(to, int) and isinstance(by, int) and to < by
        order = {"ta": swapped, "tb": last} if short else {"tb": last, "ta": swapped}
        tiles = [self.args.dim(dims.ceildiv(self.space.sizes[i], 16)) for i in order.values()]
        sizes = [*(self.args.dim(self.space.sizes[i]) for i in outer), *tiles]
        total = " * ".join(f"(int64_t){s}" for s in sizes)
        sy, sx = (
            self.args.dim(self.space.strides[1][swapped]),
            self.args.dim(self.space.strides[0][last]),
        )
        body = [
            c_text.decode("o", [*(f"i{i}" for i in outer), *order], sizes),
            *self._places(outer),
            f"const int64_t a = tx_tile(ta, {a}), b = tx_tile(tb, {b});",
            (
                f"const int64_t na = {a} - a < TX_TILE ? {a} - a : TX_TILE, "
                f"nb = {b} - b < TX_TILE ? {b} - b : TX_TILE;"
            ),
            f"tx_swap_{self.bits}(q + a * {sy} + b, p + b * {sx} + a, na, nb, {sy}, {sx});",
        ]
        return [c_text.split(total), loop("o", "lo", "hi", *body)]
