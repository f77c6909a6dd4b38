"""MatMul and Gemm on register tiles, with any pointwise epilogue.

b lies in panels of as many columns as a tile has: packed at build where it is constant, else by a
first launch into the workspace. The rows of a matrix are cut into about equal tiles; threads share
out a grid of row tiles and panels. While the tiles of a block multiply with one panel, they fetch
the next one into the second cache, line by line.
Knobs: ``rows`` and ``vectors`` of the largest tile; ``depth``, the steps of k after which partial
sums go to the workspace, so that a block of a stays in the second cache (0: all).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tactix.base.dims import Dim, ceildiv, evaluate, prod, symbols
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import tile as c_tile
from tactix_codegen.c.text import Args, block, comment, kernel, loop, split, times
from tactix_codegen.c.tile import GRID, Functions, RegisterTile, by_rows, finish, flat
from tactix_cpu.tactics.estimates import CLOCK, MEMORY, START
from tactix_cpu.tactics.matmul.product import CpuProduct, RowSite, product

DEPTH = 384
"""Steps of k in a part: a panel of 48 columns then has 72 KiB, which leaves most of the second
cache to a. Partial sums cost a load and a store of each result every so many steps, hence not less.
Whether it wins over 0 is left to measuring.
"""
DEEP = 1024
"""k from which on it is worth cutting: shorter panels have at most 192 KiB, less than a fifth of a
second cache of 1 MiB. No measurement of it is on record.
"""
L2_BYTES = 1 << 20
"""Bytes of the second cache, where the device does not tell: as Zen 4 and 5 have; servers of Intel
have 2 MiB since Sapphire Rapids.
"""
USUAL_DEPTH = 512
"""Steps of k that blocks of a are cut for where only running tells how many there are. A guess at
what models have: a wrong one makes blocks that are too large or too small for the cache.
"""
LINE = 16
"""Floats of a cache line of 64 bytes, as far as fetching goes."""
OFFERED = 4
"""Variants of a node at most: those of the fewest cycles. Each costs a compilation, 0.3 s with gcc
on the prototype, and timed runs.
"""
PACK = 0.2
"""Cycles for an element of a b that a launch packs: about three for a vector of 16 and its store.
No measurement of it is on record.
"""
UNCUT = 1.1
"""How much longer a deep product takes where nothing cuts k: panels that the row tiles read again
and again then come from the third cache. No measurement of it is on record.
"""
USUAL_SIZE = 64
"""What an unknown size counts as where variants are ranked. A guess: it only says which tiles are
tried.
"""
SETS, WAYS = 64, 8
"""Of a first cache of 32 KiB, in lines: as many lines as it has ways can lie at one distance of its
sets' size. Later ones of Intel have 12 ways.
"""
CROWDED = 1.25
"""How much longer a product takes whose rows of a lie so that they push each other out of the first
cache, as at a k of 1024 or 3072 in tiles of 14 rows: on a Zen 4 750 x 1024 x 256 took 4.46 ms in
tiles of 14 x 2 and 3.50 in those of 6 x 4, with a k of 1008 3.49 in either; 256 x 3072 x 768 13.6
and 11.0.
"""
FEW_ROWS = 32
"""Rows of a up to which a panel is read so rarely that where it comes from does not count. No
measurement of it is on record.
"""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CpuGemmTactic()]


class CpuGemmTactic(Tactic[CpuProduct]):
    """float32; any shapes, symbolic ones too."""

    key = "tactix.c_gemm@1"
    implements = ("tactix.Gemm@1", "tactix.MatMul@1")
    source = "c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> CpuProduct | Reject:
        return product(node)

    def variants(self, p: CpuProduct, device: DeviceProperties) -> Sequence[Variant]:
        found = [
            Variant.of(rows=rows, vectors=vectors, depth=depth)
            for rows, vectors in tile_shapes(p.m, p.n, device)
            for depth in _depths(p)
        ]
        return c_tile.best(found, lambda v: _cycles(p, v, device), OFFERED)

    def cost(self, p: CpuProduct, variant: Variant, ctx: CompileContext) -> float | None:
        if not symbols(p.rows * p.n * p.k * p.b_count) <= set(ctx.opt):
            return None
        elements = evaluate(p.b_count * p.k * p.n, ctx.opt)
        total = _cycles(p, variant, ctx.device, dict(ctx.opt)) * evaluate(prod(p.batch), ctx.opt)
        packing = 0 if p.constant_b else PACK * elements
        bytes_b = 4 * elements
        return START + (total + packing) / CLOCK / max(1, ctx.threads) + bytes_b / MEMORY

    def compile(self, p: CpuProduct, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        return _Kernel(p, variant, ctx).artifact()


def tile_shapes(m: Dim, n: Dim, device: DeviceProperties) -> list[tuple[int, int]]:
    """Tiles (rows, vectors) worth trying for m rows and n columns, none larger than these."""
    vectors = ceildiv(n, device.lanes)
    options = list(c_tile.shapes(device))
    if isinstance(m, int) and m <= 4:
        options = [(max(1, m), v) for v in (2, 4, 8, 1)]
    found: dict[tuple[int, int], None] = {}
    for rows, wide in options:
        if (
            isinstance(m, int) and m > 0
        ):  # equal tiles: 10 of 13 rows rather than 9 of 14 and a rest of 4
            rows = -(-m // -(-m // rows))
        found[rows, min(wide, max(1, vectors)) if isinstance(vectors, int) else wide] = None
    return list(found)


def _depths(p: CpuProduct) -> tuple[int, ...]:
    return (DEPTH, 0) if isinstance(p.k, int) and p.k >= DEEP and not _is_small(p.m) else (0,)


def _is_small(m: Dim) -> bool:
    return isinstance(m, int) and m <= FEW_ROWS


def _cycles(
    p: CpuProduct, v: Variant, device: DeviceProperties, opt: dict[str, int] | None = None
) -> float:
    """Cycles of a product on one core, by the tile's cycles per step; unknown sizes count as 64."""
    size = {s: USUAL_SIZE for d in (p.m, p.n, p.k) for s in symbols(d)} | (opt or {})
    m, n, k = (evaluate(d, size) for d in (p.m, p.n, p.k))
    rows, vectors = v.number("rows"), v.number("vectors")
    panels = -(-n // (vectors * device.lanes))
    tiles = max(1, -(-m // rows))
    (least, more), total = divmod(m, tiles), 0.0
    for count, height in ((more, least + 1), (tiles - more, least)):
        for size_ in _pieces(height, _sizes(p.m, rows)) * (count > 0):
            total += count * c_tile.step_cycles(size_, vectors, c_tile.chains_for(size_, vectors))
    far = UNCUT if k >= DEEP and not v.number("depth") and m > FEW_ROWS else 1.0
    crowded = CROWDED if not p.transposed_a and _crowd(min(rows, m), k) else 1.0
    return total * panels * k * far * crowded


def _crowd(rows: int, k: int) -> bool:
    """Whether lines of so many rows, k floats apart, are more than their sets of the first cache
    hold.
    """
    lines, rest = divmod(k, LINE)
    return rest == 0 and rows > WAYS * (SETS // math.gcd(SETS, lines))


def _sizes(m: Dim, rows: int) -> tuple[int, ...]:
    """Heights of the tiles that m rows are cut into: two that differ by one; lower ones too where m
    is not known.
    """
    if isinstance(m, int):
        least, more = divmod(m, max(1, -(-m // rows)))
        return tuple(n for n in (least + 1, least) if n and (n == least or more)) or (1,)
    return (rows, *(n for n in dict.fromkeys((rows - 1, 16, 8, 4, 2, 1)) if 0 < n < rows))


def _pieces(height: int, sizes: Sequence[int]) -> list[int]:
    """The tiles that a number of rows is run by."""
    out = []
    for n in sizes:
        count, height = divmod(height, n)
        out += [n] * count
    return out


def _unroll(tile: RegisterTile) -> int:
    """Steps of k written out: at most 56 FMA a round.

    2 were as good as more for tiles of 14 x 2; a loop of 16 steps lost 40 %, as it left the cache
    of decoded instructions (README, the prototype).
    """
    return 4 if tile.rows * tile.vectors <= 12 else 2


def _lines_ahead(p: CpuProduct, tile: RegisterTile, opt: dict[str, int]) -> int:
    """Cache lines of the next panel to fetch per round of steps, so that all row tiles together
    fetch all of it.

    A round reads ``unroll * vectors`` lines of its panel, and each of the row tiles reads all of
    it. So nothing is fetched twice, and a line comes into the second cache a panel's time before it
    is used. The prototype's ResNet-50 went from 33.6 to 31.8 ms by such fetches (README).
    """
    m = evaluate(p.m, opt) if symbols(p.m) <= opt.keys() else USUAL_SIZE
    tiles = -(-m // tile.rows)
    return -(-_unroll(tile) * tile.vectors // tiles) if p.constant_b and tiles > 1 else 0


class _Kernel:
    """Writes one kernel."""

    def __init__(self, p: CpuProduct, variant: Variant, ctx: CompileContext) -> None:
        self.p, self.ctx = p, ctx
        self.tile = RegisterTile(
            variant.number("rows"), variant.number("vectors"), max(4, ctx.device.lanes)
        )
        self.depth: int = variant.number("depth")
        self.args = Args(p.node)
        self.functions = Functions(self.args)
        panels = ceildiv(p.n, self.tile.width)
        sizes = {
            "M": p.m,
            "N": p.n,
            "K": p.k,
            "TILES": ceildiv(p.m, self.tile.rows),
            "PANELS": panels,
        }
        for name, size in {**sizes, "WIDTH": self.tile.width}.items():
            self.args.size(name, size)
        self.partial_bytes: Dim = p.rows * panels * (self.tile.width * 4) if self.depth else 0
        self.packed_bytes: Dim = (
            0 if p.constant_b else p.b_count * panels * p.k * (self.tile.width * 4)
        )
        self.x = self.args.input(p.a)
        self.lines = _lines_ahead(p, self.tile, dict(ctx.opt))

    def artifact(self) -> KernelArtifact:
        if self.p.constant_b:
            self.w, phases = self.args.constant("b", self.p.pack_b(self.tile.width)), 1
        else:
            self.w, phases = self.args.workspace(self.partial_bytes), 2
        self.partial = self.args.workspace(0) if self.depth else ""
        sizes = _sizes(self.p.m, self.tile.rows)
        for rows in sizes:
            self._function(
                RegisterTile(
                    rows,
                    self.tile.vectors,
                    self.tile.lanes,
                    c_tile.chains_for(rows, self.tile.vectors),
                    keeps=True,
                )
            )
        body = [self._multiply(sizes)]
        if phases == 2:
            self.args.phase(0)
            body = [block("if (phase == 0)", self._pack(), "return;"), *body]
        size = self.partial_bytes + self.packed_bytes
        helpers = f"{GRID}{self.functions.text()}"
        return kernel(self.args, body, self.ctx, helpers=helpers, workspace=size, phases=phases)

    def _function(self, tile: RegisterTile) -> None:
        left = "" if isinstance(self.p.n, int) and self.p.n % tile.width == 0 else "N - col"
        site = RowSite(self.args, self.p.lead, self.p.n, tile.lanes, left)
        parameters = "const float* x, const float* w, int64_t row, int64_t col"
        parameters += ", const float* ahead, int64_t stride" * bool(self.lines)
        body = [tile.zero()]
        if self.depth:
            parameters += ", int64_t depth, float* part, int first, int last"
            body += [
                block("if (!first)", tile.load("part")),
                *self._steps(tile, "depth"),
                tile.join(),
            ]
            body.append(block("if (!last)", tile.save("part"), "return;"))
        else:
            body += [*self._steps(tile, "K"), tile.join()]
        about = (
            f"{tile.rows} rows of y from row on, "
            f"and {tile.vectors} x {tile.lanes} columns from col on: "
        )
        about += (
            "sums s<row>_<vector> of x, rows of a, times w, a panel of b, then what follows "
            "the product."
        )
        about += " Sums over a part of k wait in part." * bool(self.depth)
        about += " ahead: cache lines of the next panel." * bool(self.lines)
        self.functions.add(
            f"t{tile.name}", parameters, [*body, *finish(tile, self.p.epi, site)], about
        )

    def _steps(self, tile: RegisterTile, depth: str) -> list[str]:
        unroll = _unroll(tile)
        step = times(unroll, "M") if self.p.transposed_a else str(unroll)
        one = "M" if self.p.transposed_a else "1"
        fetch = [
            f"__builtin_prefetch({self.args.sum('ahead', str(i * LINE))}, 0, 2);"
            for i in range(self.lines)
        ]
        fetch += ["ahead += stride;"] * bool(fetch)
        body = [
            *fetch,
            tile.steps(unroll, self._element),
            f"x += {step};",
            f"w += {times(unroll, 'WIDTH')};",
        ]
        rest = [tile.steps(1, self._element), f"x += {one};", "w += WIDTH;"]
        lines = [comment(f"{unroll} steps of k at a time"), "int64_t k = 0;"]
        lines.append(block(f"for (; k + {unroll} <= {depth}; k += {unroll})", *body))
        if self.depth or not isinstance(self.p.k, int) or self.p.k % unroll:
            lines.append(block(f"for (; k < {depth}; k++)", *rest))
        return lines

    def _element(self, row: int, step: int) -> str:
        if self.p.transposed_a:
            return f"x[{self.args.sum(times(step, 'M'), str(row))}]"
        return f"x[{self.args.sum(times(row, 'K'), str(step))}]"

    def _multiply(self, sizes: tuple[int, ...]) -> str:
        batched = bool(self.p.batch)
        units = f"{self._count(self.p.batch)} * TILES" if batched else "TILES"
        k0, depth = ("k0", "depth") if self.depth else ("0", "K")
        panels = loop("p", "g[2]", "g[3]", *self._panel(sizes, k0, depth))
        body = [*self._block(batched, k0), comment("panels of WIDTH columns of b"), panels]
        walk = block("for (int64_t u = g[0], next; u < g[1]; u = next)", *body)
        lines = [
            comment("blocks of tiles [t, end) of rows of a, whose part stays in the second cache"),
            walk,
        ]
        if self.depth:
            head = f"const int64_t depth = K - k0 < {self.depth} ? K - k0 : {self.depth};"
            parts = loop("k0", "0", "K", head, *lines, step=self.depth)
            lines = [comment(f"parts of {self.depth} steps of k"), parts]
        mine = comment(
            "of the grid of row tiles and panels this thread has tiles [g[0], g[1]) and panels "
            "[g[2], g[3])"
        )
        return "\n".join(
            [
                mine,
                "int64_t g[4];",
                f"TX_NAME(grid)({units}, PANELS, tid, nt, g);",
                *self._cuts(),
                *lines,
            ]
        )

    def _cuts(self) -> list[str]:
        """Declare how rows fall into tiles, ``more`` of ``least + 1`` and then those of ``least``,
        and these into blocks: about equal ones, whose part of a takes up to half of the second
        cache. The other half is for the panel in use, the one that is fetched, and results; no
        measurement of that share is on record.
        """
        depth = self.depth or (self.p.k if isinstance(self.p.k, int) else USUAL_DEPTH)
        known = isinstance(self.p.m, int) and self.p.m > 0
        cut = (
            "M / TILES, more = M % TILES"
            if known
            else "TILES ? M / TILES : 0, more = TILES ? M % TILES : 0"
        )
        half = int(self.ctx.device.facts.get("l2", L2_BYTES)) // 2
        most = max(1, half // (4 * self.tile.rows * max(1, depth)))
        return [
            comment(
                "the first tiles, as many as `more`, have least + 1 rows, the others least; "
                "`each` make a block"
            ),
            f"const int64_t least = {cut};",
            f"const int64_t blocks = (g[1] - g[0] + {most - 1}) / {most};",
            "const int64_t each = blocks ? (g[1] - g[0] + blocks - 1) / blocks : 1;",
        ]

    def _count(self, sizes: tuple[Dim, ...]) -> str:
        return self.args.dim(prod(sizes))

    def _block(self, batched: bool, k0: str) -> list[str]:
        """Declare the next block of row tiles, of one matrix of a: tiles [t, end) of it, its first
        row in y.
        """
        p = self.p
        lines = [
            "const int64_t item = u / TILES, t = u % TILES;" if batched else "const int64_t t = u;"
        ]
        lines.append("next = u + each < g[1] ? u + each : g[1];")
        a, b, row = "0", "0", "0"
        if batched:
            lines.append("if (next > u - t + TILES) next = u - t + TILES;")
            sizes = [self.args.dim(d) for d in p.batch]
            a, b = (
                flat("item", sizes, p.a_batch, self.args),
                flat("item", sizes, p.b_batch, self.args),
            )
            row = "item * M"
        matrix = f"({a}) * M * K" if a != "0" else "0"
        start = "0" if k0 == "0" else "k0 * M" if p.transposed_a else k0
        lines.append(f"const float* xb = {self.args.sum(self.x, matrix, start)};")
        panel = f"({b}) * PANELS * K * WIDTH" if b != "0" else "0"
        lines.append(f"const float* wb = {self.args.sum(self.w, panel)};")
        return [*lines, f"const int64_t end = t + next - u, row0 = {row};"]

    def _panel(self, sizes: tuple[int, ...], k0: str, depth: str) -> list[str]:
        rows = "xb + r" if self.p.transposed_a else "xb + r * K"
        panel = "p * K" if k0 == "0" else f"(p * K + {k0})"
        common = f"a, {rows}, wb + {panel} * WIDTH, row0 + r, p * WIDTH"
        if self.lines:
            common += f", ahead, ahead < stop ? {self.lines * LINE} : 0"
        if self.depth:
            part = f"{self.partial} + (p * {self.args.dim(self.p.rows)} + row0 + r) * WIDTH"
            common += f", {depth}, {part}, k0 == 0, k0 + {self.depth} >= K"
        calls = by_rows(
            sizes, "r", "last", lambda rows: f"TX_NAME(t{rows}x{self.tile.vectors})({common});"
        )
        first, last = (f"{at} * least + ({at} < more ? {at} : more)" for at in ("i", "(i + 1)"))
        fetched = (
            f"ahead += {depth} / {_unroll(self.tile)} * {self.lines * LINE};" if self.lines else ""
        )
        walk = loop(
            "i",
            "t",
            "end",
            f"int64_t r = {first};",
            f"const int64_t last = {last};",
            calls,
            fetched,
        )
        about = (
            "row tiles of the block"
            + ", each of which fetches its share of the next panel" * bool(self.lines)
        )
        return [*self._ahead(k0, depth), comment(about), walk]

    def _ahead(self, k0: str, depth: str) -> list[str]:
        """Declare what to fetch during a panel: the next one, after the last the first of the next
        depth.
        """
        if not self.lines:
            return []
        after = (
            "(p + 1) * K" if k0 == "0" else "((p + 1 < g[3] ? (p + 1) * K : g[2] * K + depth) + k0)"
        )
        return [
            f"const float* ahead = wb + {after} * WIDTH;",
            f"const float* stop = ahead + {depth} * WIDTH;",
        ]

    def _pack(self) -> str:
        """The first launch: every matrix of b into panels."""
        b, count = self.args.input(self.p.b), self.args.dim(self.p.b_count)
        head = [
            "const int64_t item = q / PANELS, col = q % PANELS * WIDTH, left = N - col;",
            f"float* out = {self.w} + q * K * WIDTH;",
        ]
        if self.p.transposed_b:
            place = f"{b}[(item * N + col + j) * K + k]"
            copy = loop("j", "0", "WIDTH", f"out[k * WIDTH + j] = j < left ? {place} : 0.0f;")
        else:
            copy = f"const float* row = {b} + (item * K + k) * N + col;\n" + "\n".join(
                self._pack_vector(v) for v in range(self.tile.vectors)
            )
        about = comment(
            "the first launch lays b in panels: K rows of WIDTH columns, zeros past the last"
        )
        panels = loop("q", "lo", "hi", *head, loop("k", "0", "K", copy))
        return "\n".join([about, split(f"{count} * PANELS"), panels])

    def _pack_vector(self, v: int) -> str:
        at, lanes = v * self.tile.lanes, self.tile.lanes
        row, left = self.args.sum("row", str(at)), f"left{f' - {at}' * bool(at)}"
        part = f"left > {at} ? tx_load_n_f32({row}, {left}) : tx_zero()"
        whole = f"left >= {at + lanes} ? tx_load_f32({row}) : {part}"
        return f"tx_store_f32({self.args.sum('out', 'k * WIDTH', str(at))}, {whole});"
