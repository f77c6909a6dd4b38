"""Kernels over a grid of tiles: which block has which, parts of k, the launch that adds these.

Tiles that run at a time share operands in the L2 cache: ``tx_tile_of`` (lib/tile.cuh) gives blocks
that start one after the other eight rows of tiles, column by column (CUTLASS calls this threadblock
swizzling), so that those which run together need few rows of a and few columns of b.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tactix.base.dims import Dim, ceildiv, symbols
from tactix.contracts.artifact import Launch
from tactix.contracts.graph import Node
from tactix_codegen.c.text import block
from tactix_codegen.cuda.entry import KernelEntry
from tactix_codegen.cuda.results import WIDTH, RowResults
from tactix_cuda.tactics.tile import BlockTile

REDUCE_THREADS = 128
"""Of a block that adds parts of k: eight columns each, 1024 sums a block."""


class Tiled:
    """``batch`` products of m rows and n columns, ``stages`` of k, in ``splits`` parts.

    ``each``: where that is not 0, columns come in groups of so many, and no tile has columns of
    two; a multiple of eight where k is split.

    The C variables of a tile: ``item`` of the batch, tile ``i``, ``j``, its first ``row0``
    (int64_t) and ``col0`` (int), its stages ``first`` to ``first + count``; with ``each`` the
    ``group`` and the column behind its last one, ``end``. Loaders ``a`` and ``b`` are for the
    caller to declare.
    """

    def __init__(
        self,
        node: Node,
        tile: BlockTile,
        batch: Dim,
        m: Dim,
        n: Dim,
        stages: Dim,
        splits: int,
        each: int = 0,
    ) -> None:
        self.node, self.tile, self.splits, self.each = node, tile, splits, each
        self.batch, self.m, self.n, self.stages = batch, m, n, stages
        self.entry = KernelEntry(node, tile.threads)
        self.pitch = ceildiv(n, WIDTH) * WIDTH
        # sums of every part, of 4 bytes: parts are added in one order, so that results repeat bit
        # by bit
        self.workspace: Dim = batch * m * self.pitch * (4 * splits) if splits > 1 else 0

    def finish(
        self, loaders: Sequence[str], warp: str, rows: Callable[[KernelEntry], RowResults]
    ) -> tuple[list[str], list[Launch], list[KernelEntry]]:
        """The product's texts, launches and entries, given its loaders; ``rows`` stores results."""
        e, t = self.entry, self.tile
        put = self._partial() if self.splits > 1 else rows(e).store()
        m = e.dim(self.m)
        lines = [
            "const int col = col0 + c;",
            f"if (row0 + r >= {m}) return;",
            f"const int64_t row = {'row0 + r' if self.batch == 1 else f'item * {m} + row0 + r'};",
            put,
        ]
        given = f"a, b, first, count, memory, [&](int r, int c, const {t.sum_type}* v)"
        call = f"tx_product<TX_NAME(tile), {warp}>({given}"
        body = [*self._place(), *loaders, block(call, *lines) + ");"]
        texts, launches = (
            [t.struct() + e.kernel(*body, blocks=t.blocks)],
            [e.launch(self._tiles(), t.shared_bytes)],
        )
        if self.splits == 1:
            return texts, launches, [e]
        reduce = KernelEntry(self.node, REDUCE_THREADS, "reduce")
        texts.append(reduce.kernel(*self._reduce(reduce, rows(reduce))))
        launches.append(
            reduce.launch(ceildiv(self.batch * self.m * (self.pitch // WIDTH), REDUCE_THREADS))
        )
        return texts, launches, [e, reduce]

    @property
    def panels(self) -> Dim:
        """Tiles side by side: of a group of columns, or of all."""
        return ceildiv(self.each or self.n, self.tile.cols)

    @property
    def _across(self) -> Dim:
        """Tiles side by side, of all columns."""
        return self.panels * ceildiv(self.n, self.each) if self.each else self.panels

    def _tiles(self) -> Dim:
        """Blocks: every part of k of every tile."""
        return self.batch * ceildiv(self.m, self.tile.rows) * self._across * self.splits

    def _place(self) -> list[str]:
        """Declare which tile the block has, and its stages of k.

        Parts of k of a tile are neighbours by number, then tiles, then items of the batch: blocks
        that run together share operands. The last part may have fewer stages than the others, or
        none.
        """
        e, t, tiles = self.entry, self.tile, self._tiles()
        down, across = (e.dim(d) for d in (ceildiv(self.m, t.rows), self._across))
        lines = [
            # a launch has one block at least, also where a size is 0 and there is no tile
            *([f"if ({e.dim(tiles)} == 0) return;"] if symbols(tiles) else []),
            "TX_SHARED(memory);",
            f"const uint32_t down = {down}, across = {across};",
            "uint32_t id = blockIdx.x, i, j;",
        ]
        if self.splits > 1:
            each = e.dim(ceildiv(self.stages, self.splits))
            lines += [
                f"const int first = (int)(id % {self.splits}) * {each}, "
                f"left = {e.dim(self.stages)} - first;",
                f"const int count = left < {each} ? left > 0 ? left : 0 : {each};",
                f"const int part = id % {self.splits};",
                f"id /= {self.splits};",
            ]
        else:
            lines.append(f"const int first = 0, count = {e.dim(self.stages)};")
        if self.batch != 1:
            lines += ["const int64_t item = id / (down * across);", "id %= down * across;"]
        lines.append("tx_tile_of(id, down, across, i, j);")
        return [
            *lines,
            f"const int64_t row0 = (int64_t)i * {t.rows};",
            *self._columns(),
        ]

    def _columns(self) -> list[str]:
        """Declare the tile's columns."""
        if not self.each:
            return [f"const int col0 = j * {self.tile.cols};"]
        panels = self.entry.dim(self.panels)
        return [
            f"const int group = j / {panels}, end = (group + 1) * {self.each};",
            f"const int col0 = group * {self.each} + (int)(j % {panels}) * {self.tile.cols};",
        ]

    def _partial(self) -> str:
        """Statements that put sums of a part of k into the workspace."""
        e, pitch = self.entry, self.entry.dim(self.pitch)
        at = f"((int64_t)part * {e.dim(self.batch * self.m)} + row) * {pitch} + col"
        kind = self.tile.sum_type
        four = f"tx_pack<{kind}, 4>"
        stores = [f"*({four}*)(to + {i}) = *(const {four}*)(v + {i});" for i in (0, 4)]
        to = f"{kind}* to = {e.workspace(0, kind)} + {at};"
        return block(f"if (col < {'end' if self.each else pitch})", to, *stores)

    def _reduce(self, e: KernelEntry, rows: RowResults) -> list[str]:
        """The second launch: sums of all parts, eight columns a thread."""
        pitch, total = e.dim(self.pitch), e.dim(self.batch * self.m)
        runs = e.dim(self.batch * self.m * (self.pitch // WIDTH))
        kind = self.tile.sum_type
        four = f"tx_pack<{kind}, 4>"
        add = [f"v[{i}] += p.v[{i}];\nv[{i + 4}] += q.v[{i}];" for i in range(4)]
        loads = f"const {four} p = *(const {four}*)from, q = *(const {four}*)(from + 4);"
        return [
            f"const int64_t t = (int64_t)blockIdx.x * {REDUCE_THREADS} + threadIdx.x;",
            f"if (t >= {runs}) return;",
            f"const int64_t row = t / ({pitch} / {WIDTH});",
            f"const int col = (int)(t % ({pitch} / {WIDTH})) * {WIDTH};",
            f"{kind} v[{WIDTH}] = {{}};",
            f"const {kind}* from = {e.workspace(0, kind)} + row * {pitch} + col;",
            "#pragma unroll",
            block(
                f"for (int s = 0; s < {self.splits}; s++)",
                loads,
                *add,
                f"from += (int64_t){total} * {pitch};",
            ),
            rows.store(),
        ]
