"""MatMul and Gemm on register tiles, with any pointwise epilogue.

b lies in panels of as many columns as a tile has: packed at build where it is constant, else by a first launch into
the workspace. Threads share out a grid of row tiles and panels. Knobs: ``rows`` and ``vectors`` of the tile; ``depth``,
the steps of k after which partial sums go to the workspace, so that a block of a stays in the second cache (0: all).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix.words.dims import Dim, ceildiv, evaluate, prod, symbols
from tactix_builtin.tactics import c_tile
from tactix_builtin.tactics.c_product import Product, RowSite, product
from tactix_builtin.tactics.c_text import Args, block, kernel, loop
from tactix_builtin.tactics.c_tile import GRID, Functions, Tile, by_rows, finish, flat

DEPTH = 384
DEEP = 1024
BLOCK_BYTES = 1 << 19
"""Bytes of a that one sweep over the panels reads: a part of the second cache."""
OFFERED = 4


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [GemmTactic()]


class GemmTactic(Tactic):
    """float32; any shapes, symbolic ones too."""

    key = "tactix.c_gemm@1"
    implements = ("tactix.Gemm@1", "tactix.MatMul@1")
    source = "c"
    native = True

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
    total, left = 0.0, m
    for size_ in (rows, *c_tile.rest_sizes(rows, p.m if isinstance(p.m, int) else None)):
        tiles, left = divmod(left, size_)
        total += tiles * c_tile.step_cycles(size_, vectors, c_tile.chains_for(size_, vectors))
    far = 1.1 if k >= DEEP and not v.knob("depth") and m > 32 else 1.0
    return total * panels * k * far


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

    def artifact(self) -> KernelArtifact:
        if self.p.constant_b:
            self.w, phases = self.args.constant("b", self.p.pack_b(self.tile.width)), 1
        else:
            self.w, phases = self.args.workspace(self.partial_bytes), 2
        self.partial = self.args.workspace(0) if self.depth else ""
        sizes = self._sizes()
        for rows in sizes:
            self._function(Tile(rows, self.tile.vectors, self.tile.lanes, c_tile.chains_for(rows, self.tile.vectors)))
        body = [self._multiply(sizes)]
        if phases == 2:
            self.args.phase(0)
            body = [block("if (phase == 0)", self._pack(), "return;"), *body]
        size = self.partial_bytes + self.packed_bytes
        helpers = f"{GRID}{self.functions.text()}"
        return kernel(self.args, body, self.ctx, helpers=helpers, workspace=size, phases=phases)

    def _sizes(self) -> tuple[int, ...]:
        m = self.p.m if isinstance(self.p.m, int) else None
        rest = c_tile.rest_sizes(self.tile.rows, m)
        return rest if m is not None and m < self.tile.rows else (self.tile.rows, *rest)

    def _function(self, tile: Tile) -> None:
        left = "" if isinstance(self.p.n, int) and self.p.n % tile.width == 0 else f"({self.names.n} - col)"
        site = RowSite(self.args, self.p.lead, self.p.n, tile.lanes, left)
        parameters = "const float* x, const float* w, int64_t row, int64_t col"
        body = [tile.zero()]
        if self.depth:
            parameters += ", int64_t depth, float* part, int first, int last"
            body += [block("if (!first)", tile.load("part")), *self._steps(tile, "depth"), tile.join()]
            body.append(block("if (!last)", tile.save("part"), "return;"))
        else:
            body += [*self._steps(tile, self.names.k), tile.join()]
        self.functions.add(f"t{tile.name}", parameters, [*body, *finish(tile, self.p.epi, site)])

    def _steps(self, tile: Tile, depth: str) -> list[str]:
        unroll = 4 if tile.rows * tile.vectors <= 12 else 2
        step = f"{unroll} * {self.names.m}" if self.p.transposed_a else str(unroll)
        one = self.names.m if self.p.transposed_a else "1"
        body = [tile.steps(unroll, self._element), f"x += {step};", f"w += {unroll * tile.width};"]
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
        return f"int64_t g[4];\nTX_NAME(grid)({units}, {s.panels}, tid, nt, g);\n{walk}"

    def _count(self, sizes: tuple[Dim, ...]) -> str:
        return self.args.dim(prod(sizes))

    def _block(self, batched: bool, k0: str) -> list[str]:
        """Declare the next block of row tiles: one matrix of a, and no more rows than the second cache holds."""
        s, p, rows = self.names, self.p, self.tile.rows
        depth = self.depth or (p.k if isinstance(p.k, int) else 512)
        most = max(1, BLOCK_BYTES // (4 * rows * max(1, depth)))
        lines = [f"const int64_t item = u / {s.tiles}, t = u % {s.tiles};" if batched else "const int64_t t = u;"]
        lines.append(f"next = u + {most} < g[1] ? u + {most} : g[1];")
        a, b, row = "0", "0", ""
        if batched:
            lines.append(f"if (next > u - t + {s.tiles}) next = u - t + {s.tiles};")
            sizes = [self.args.dim(d) for d in p.batch]
            a, b = flat("item", sizes, p.a_batch, self.args), flat("item", sizes, p.b_batch, self.args)
            row = f"item * {s.m} + "
        lines.append(f"const int64_t end = (t + next - u) * {rows} < {s.m} ? (t + next - u) * {rows} : {s.m};")
        matrix = f"({a}) * {s.m} * {s.k}" if a != "0" else "0"
        start = "0" if k0 == "0" else f"k0 * {s.m}" if p.transposed_a else k0
        lines.append(f"const float* xb = {self.args.sum(self.x, matrix, start)};")
        panel = f"({b}) * {s.panels} * {s.k} * {self.tile.width}" if b != "0" else "0"
        lines.append(f"const float* wb = {self.args.sum(self.w, panel)};")
        return [*lines, f"const int64_t row0 = {row}t * {rows};"]

    def _panel(self, sizes: tuple[int, ...], k0: str, depth: str) -> list[str]:
        s, width = self.names, self.tile.width
        step = "1" if self.p.transposed_a else s.k
        common = f"a, xb + r * {step}, wb + (p * {s.k} + {k0}) * {width}, row0 + r - t * {self.tile.rows}, p * {width}"
        if self.depth:
            rows = self.args.dim(self.p.rows)
            part = f"{self.partial} + (p * {rows} + row0 + r - t * {self.tile.rows}) * {width}"
            common += f", {depth}, {part}, k0 == 0, k0 + {self.depth} >= {s.k}"
        calls = by_rows(sizes, "r", "end", lambda rows: f"TX_NAME(t{rows}x{self.tile.vectors})({common});")
        return [f"int64_t r = t * {self.tile.rows};", calls]

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
