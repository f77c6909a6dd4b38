"""MatMul and Gemm on register tiles, with any pointwise epilogue.

b lies in panels of as many columns as a tile has: packed at build where it is constant, else by a first launch into
the workspace. The rows of a matrix are cut into about equal tiles; threads share out a grid of row tiles and panels.
While the tiles of a block multiply with one panel, they fetch the next one into the second cache, line by line.
Knobs: ``rows`` and ``vectors`` of the largest tile; ``depth``, the steps of k after which partial sums go to the
workspace, so that a block of a stays in the second cache (0: all).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix.words.dims import Dim, ceildiv, evaluate, prod, symbols
from tactix_codegen.c import tile as c_tile
from tactix_codegen.c.text import Args, block, kernel, loop
from tactix_codegen.c.tile import GRID, Functions, Tile, by_rows, finish, flat
from tactix_cpu.tactics.matmul.product import Product, RowSite, product

DEPTH = 384
DEEP = 1024
L2_BYTES = 1 << 20
"""The second cache, where the device does not tell."""
LINE = 16
"""Floats of a cache line, as far as fetching goes."""
OFFERED = 4


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [GemmTactic()]


class GemmTactic(Tactic):
    """float32; any shapes, symbolic ones too."""

    key = "tactix.c_gemm@1"
    implements = ("tactix.Gemm@1", "tactix.MatMul@1")
    source = "c"
    by_signature = True

    def variants(self, node: Node, device: DeviceProperties) -> Sequence[Variant] | Reject:
        p = product(node)
        if isinstance(p, Reject):
            return p
        found = [
            Variant.of(rows=rows, vectors=vectors, depth=depth)
            for rows, vectors in tile_shapes(p.m, p.n, device)
            for depth in _depths(p)
        ]
        return c_tile.best(found, lambda v: _cycles(p, v, device), OFFERED)

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        p = product(node)
        assert not isinstance(p, Reject)
        if not symbols(p.rows * p.n * p.k * p.b_count) <= set(ctx.opt):
            return None
        elements = evaluate(p.b_count * p.k * p.n, ctx.opt)
        total = _cycles(p, variant, ctx.device, dict(ctx.opt)) * evaluate(prod(p.batch), ctx.opt)
        packing = 0 if p.constant_b else 0.2 * elements
        bytes_b = 4 * elements
        return 5e-7 + (total + packing) / 3e9 / max(1, ctx.threads) + bytes_b / 4e10

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        p = product(node)
        assert not isinstance(p, Reject)
        return _Kernel(p, node, variant, ctx).artifact()


def tile_shapes(m: Dim, n: Dim, device: DeviceProperties) -> list[tuple[int, int]]:
    """Tiles (rows, vectors) worth trying for m rows and n columns, none wider or taller than these."""
    vectors = ceildiv(n, device.lanes)
    options = list(c_tile.shapes(device))
    if isinstance(m, int) and m <= 4:
        options = [(max(1, m), v) for v in (2, 4, 8, 1)]
    found: dict[tuple[int, int], None] = {}
    for rows, wide in options:
        if isinstance(m, int) and m > 0:  # equal tiles: 10 of 13 rows rather than 9 of 14 and a rest of 4
            rows = -(-m // -(-m // rows))
        found[rows, min(wide, max(1, vectors)) if isinstance(vectors, int) else wide] = None
    return list(found)


def _depths(p: Product) -> tuple[int, ...]:
    return (DEPTH, 0) if isinstance(p.k, int) and p.k >= DEEP and not _is_small(p.m) else (0,)


def _is_small(m: Dim) -> bool:
    return isinstance(m, int) and m <= 32


def _cycles(p: Product, v: Variant, device: DeviceProperties, opt: dict[str, int] | None = None) -> float:
    """Cycles of one product on one core, by the tile's cycles per step; unknown sizes count as 64."""
    size = {s: 64 for d in (p.m, p.n, p.k) for s in symbols(d)} | (opt or {})
    m, n, k = (evaluate(d, size) for d in (p.m, p.n, p.k))
    rows, vectors = int(v.knob("rows")), int(v.knob("vectors"))
    panels = -(-n // (vectors * device.lanes))
    tiles = max(1, -(-m // rows))
    (least, more), total = divmod(m, tiles), 0.0
    for count, height in ((more, least + 1), (tiles - more, least)):
        for size_ in _pieces(height, _sizes(p.m, rows)) * (count > 0):
            total += count * c_tile.step_cycles(size_, vectors, c_tile.chains_for(size_, vectors))
    far = 1.1 if k >= DEEP and not v.knob("depth") and m > 32 else 1.0
    return total * panels * k * far


def _sizes(m: Dim, rows: int) -> tuple[int, ...]:
    """Heights of the tiles that m rows are cut into: two that differ by one; lower ones too where m is not known."""
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


def _unroll(tile: Tile) -> int:
    return 4 if tile.rows * tile.vectors <= 12 else 2


def _lines_ahead(p: Product, tile: Tile, opt: dict[str, int]) -> int:
    """Cache lines of the next panel to fetch per round of steps, so that all row tiles together fetch all of it."""
    m = evaluate(p.m, opt) if symbols(p.m) <= opt.keys() else 64
    tiles = -(-m // tile.rows)
    return -(-_unroll(tile) * tile.vectors // tiles) if p.constant_b and tiles > 1 else 0


@dataclass
class _Names:
    """C texts of the sizes."""

    m: str
    n: str
    k: str
    tiles: str
    panels: str


class _Kernel:
    """Writes one kernel."""

    def __init__(self, p: Product, node: Node, variant: Variant, ctx: CompileContext) -> None:
        self.p, self.ctx = p, ctx
        self.tile = Tile(variant.knob("rows"), variant.knob("vectors"), max(4, ctx.device.lanes))
        self.depth: int = variant.knob("depth")
        self.args = Args(node)
        self.functions = Functions(self.args)
        panels = ceildiv(p.n, self.tile.width)
        dims = (p.m, p.n, p.k, ceildiv(p.m, self.tile.rows), panels)
        self.names = _Names(*(self.args.dim(d) for d in dims))
        self.partial_bytes: Dim = p.rows * panels * (self.tile.width * 4) if self.depth else 0
        self.packed_bytes: Dim = 0 if p.constant_b else p.b_count * panels * p.k * (self.tile.width * 4)
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
            self._function(Tile(rows, self.tile.vectors, self.tile.lanes, c_tile.chains_for(rows, self.tile.vectors)))
        body = [self._multiply(sizes)]
        if phases == 2:
            self.args.phase(0)
            body = [block("if (phase == 0)", self._pack(), "return;"), *body]
        size = self.partial_bytes + self.packed_bytes
        helpers = f"{GRID}{self.functions.text()}"
        return kernel(self.args, body, self.ctx, helpers=helpers, workspace=size, phases=phases)

    def _function(self, tile: Tile) -> None:
        left = "" if isinstance(self.p.n, int) and self.p.n % tile.width == 0 else f"({self.names.n} - col)"
        site = RowSite(self.args, self.p.lead, self.p.n, tile.lanes, left)
        parameters = "const float* x, const float* w, int64_t row, int64_t col"
        parameters += ", const float* ahead, int64_t stride" * bool(self.lines)
        body = [tile.zero()]
        if self.depth:
            parameters += ", int64_t depth, float* part, int first, int last"
            body += [block("if (!first)", tile.load("part")), *self._steps(tile, "depth"), tile.join()]
            body.append(block("if (!last)", tile.save("part"), "return;"))
        else:
            body += [*self._steps(tile, self.names.k), tile.join()]
        self.functions.add(f"t{tile.name}", parameters, [*body, *finish(tile, self.p.epi, site)])

    def _steps(self, tile: Tile, depth: str) -> list[str]:
        unroll = _unroll(tile)
        step = f"{unroll} * {self.names.m}" if self.p.transposed_a else str(unroll)
        one = self.names.m if self.p.transposed_a else "1"
        fetch = [f"__builtin_prefetch(ahead + {i * LINE}, 0, 2);" for i in range(self.lines)]
        fetch += ["ahead += stride;"] * bool(fetch)
        body = [*fetch, tile.steps(unroll, self._element), f"x += {step};", f"w += {unroll * tile.width};"]
        rest = [tile.steps(1, self._element), f"x += {one};", f"w += {tile.width};"]
        lines = ["int64_t k = 0;", block(f"for (; k + {unroll} <= {depth}; k += {unroll})", *body)]
        if not depth.isdigit() or int(depth) % unroll:
            lines.append(block(f"for (; k < {depth}; k++)", *rest))
        return lines

    def _element(self, row: int, step: int) -> str:
        if self.p.transposed_a:
            return f"x[{self.args.sum(f'{step} * {self.names.m}' if step else '0', str(row))}]"
        return f"x[{self.args.sum(f'{row} * {self.names.k}' if row else '0', str(step))}]"

    def _multiply(self, sizes: tuple[int, ...]) -> str:
        s = self.names
        batched = bool(self.p.batch)
        units = f"{self._count(self.p.batch)} * {s.tiles}" if batched else s.tiles
        k0, depth = ("k0", "depth") if self.depth else ("0", s.k)
        body = loop("p", "g[2]", "g[3]", *self._panel(sizes, k0, depth))
        walk = block("for (int64_t u = g[0], next; u < g[1]; u = next)", *self._block(batched, k0), body)
        if self.depth:
            head = f"const int64_t depth = {s.k} - k0 < {self.depth} ? {s.k} - k0 : {self.depth};"
            walk = loop("k0", "0", s.k, head, walk, step=self.depth)
        return "\n".join(["int64_t g[4];", f"TX_NAME(grid)({units}, {s.panels}, tid, nt, g);", *self._cuts(), walk])

    def _cuts(self) -> list[str]:
        """Declare how rows fall into tiles, ``more`` of ``least + 1`` and then those of ``least``, and these into
        blocks: about equal ones, whose part of a takes up to half of the second cache."""
        s, depth = self.names, self.depth or (self.p.k if isinstance(self.p.k, int) else 512)
        half = int(self.ctx.device.facts.get("l2", L2_BYTES)) // 2
        most = max(1, half // (4 * self.tile.rows * max(1, depth)))
        return [
            f"const int64_t least = {s.tiles} ? {s.m} / {s.tiles} : 0, more = {s.tiles} ? {s.m} % {s.tiles} : 0;",
            f"const int64_t blocks = (g[1] - g[0] + {most - 1}) / {most};",
            "const int64_t each = blocks ? (g[1] - g[0] + blocks - 1) / blocks : 1;",
        ]

    def _count(self, sizes: tuple[Dim, ...]) -> str:
        return self.args.dim(prod(sizes))

    def _block(self, batched: bool, k0: str) -> list[str]:
        """Declare the next block of row tiles, of one matrix of a: tiles [t, end) of it, its first row in y."""
        s, p = self.names, self.p
        lines = [f"const int64_t item = u / {s.tiles}, t = u % {s.tiles};" if batched else "const int64_t t = u;"]
        lines.append("next = u + each < g[1] ? u + each : g[1];")
        a, b, row = "0", "0", "0"
        if batched:
            lines.append(f"if (next > u - t + {s.tiles}) next = u - t + {s.tiles};")
            sizes = [self.args.dim(d) for d in p.batch]
            a, b = flat("item", sizes, p.a_batch, self.args), flat("item", sizes, p.b_batch, self.args)
            row = f"item * {s.m}"
        matrix = f"({a}) * {s.m} * {s.k}" if a != "0" else "0"
        start = "0" if k0 == "0" else f"k0 * {s.m}" if p.transposed_a else k0
        lines.append(f"const float* xb = {self.args.sum(self.x, matrix, start)};")
        panel = f"({b}) * {s.panels} * {s.k} * {self.tile.width}" if b != "0" else "0"
        lines.append(f"const float* wb = {self.args.sum(self.w, panel)};")
        return [*lines, f"const int64_t end = t + next - u, row0 = {row};"]

    def _panel(self, sizes: tuple[int, ...], k0: str, depth: str) -> list[str]:
        s, width = self.names, self.tile.width
        step = "1" if self.p.transposed_a else s.k
        common = f"a, xb + r * {step}, wb + (p * {s.k} + {k0}) * {width}, row0 + r, p * {width}"
        if self.lines:
            common += f", ahead, ahead < stop ? {self.lines * LINE} : 0"
        if self.depth:
            part = f"{self.partial} + (p * {self.args.dim(self.p.rows)} + row0 + r) * {width}"
            common += f", {depth}, {part}, k0 == 0, k0 + {self.depth} >= {s.k}"
        calls = by_rows(sizes, "r", "last", lambda rows: f"TX_NAME(t{rows}x{self.tile.vectors})({common});")
        first, after = (f"{at} * least + ({at} < more ? {at} : more)" for at in ("i", "(i + 1)"))
        fetched = f"ahead += {depth} / {_unroll(self.tile)} * {self.lines * LINE};" if self.lines else ""
        walk = loop("i", "t", "end", f"int64_t r = {first};", f"const int64_t last = {after};", calls, fetched)
        return [*self._ahead(k0, depth), walk]

    def _ahead(self, k0: str, depth: str) -> list[str]:
        """Declare what to fetch during a panel: the next one, after the last the first of the next depth."""
        if not self.lines:
            return []
        k, width = self.names.k, self.tile.width
        after = f"(p + 1) * {k}" if k0 == "0" else f"(p + 1 < g[3] ? (p + 1) * {k} : g[2] * {k} + depth) + k0"
        return [f"const float* ahead = wb + ({after}) * {width};", f"const float* stop = ahead + {depth} * {width};"]

    def _pack(self) -> str:
        """The first launch: every matrix of b into panels."""
        s, width, b = self.names, self.tile.width, self.args.input(self.p.b)
        count = self.args.dim(self.p.b_count)
        head = [
            f"const int64_t item = q / {s.panels}, col = q % {s.panels} * {width}, left = {s.n} - col;",
            f"float* out = {self.w} + q * {s.k} * {width};",
        ]
        if self.p.transposed_b:
            place = f"{b}[(item * {s.n} + col + j) * {s.k} + k]"
            copy = loop("j", "0", str(width), f"out[k * {width} + j] = j < left ? {place} : 0.0f;")
        else:
            copy = f"const float* row = {b} + (item * {s.k} + k) * {s.n} + col;\n" + "\n".join(
                self._pack_vector(v) for v in range(self.tile.vectors)
            )
        units = f"int64_t lo, hi;\ntx_split({count} * {s.panels}, 1, tid, nt, &lo, &hi);"
        return f"{units}\n{loop('q', 'lo', 'hi', *head, loop('k', '0', s.k, copy))}"

    def _pack_vector(self, v: int) -> str:
        at, lanes, width = v * self.tile.lanes, self.tile.lanes, self.tile.width
        part = f"left > {at} ? tx_load_n_f32(row + {at}, left - {at}) : tx_zero()"
        whole = f"left >= {at + lanes} ? tx_load_f32(row + {at}) : {part}"
        return f"tx_store_f32(out + k * {width} + {at}, {whole});"
