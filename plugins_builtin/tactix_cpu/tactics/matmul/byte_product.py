"""ByteMatMul: products of two computed matrices of bytes, less their zero points, summed in int32.

A first launch lays b in panels ``[panel][k / 4][column][4]`` of signed bytes, with what the sums of
each column begin with, and sums rows of a. Tiles then take four bytes of a row of a for dot
products with all columns of a panel. Of unsigned bytes a' and signed ones b',
``sum (a' - z) (b' - w) = sum a' b' - w sum a' - z sum b' + k z w``: exact, as int32 wraps.
Knobs: ``rows`` and ``vectors`` of the tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tactix.base.dims import Dim, ceildiv, evaluate, prod, symbols
from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import text as c_text
from tactix_codegen.c.epilogue import epilogue
from tactix_codegen.c.text import Args, block, comment, kernel, loop
from tactix_codegen.c.tile import GRID, Functions, by_rows, flat, rest_sizes
from tactix_cpu.tactics import dot_tile as byte
from tactix_cpu.tactics.dot_tile import DotTile
from tactix_cpu.tactics.estimates import CLOCK, START
from tactix_cpu.tactics.matmul.product import CpuProduct, RowSite, matrix_product

GROUP = 4
"""Bytes of k that a dot product takes."""
PACK = 0.1
"""Cycles for a byte of b that the first launch moves: about eleven operations for 64 of them, of
which two start in a cycle. No measurement of it is on record.
"""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [ByteProductTactic()]


@dataclass(frozen=True)
class ByteProduct:
    """``zero_a``, ``zero_b``: given inputs with one int32; -1: the zero point is 0."""

    p: CpuProduct
    zero_a: int
    zero_b: int
    signed_a: bool
    signed_b: bool
    rows_a: Dim

    @property
    def sums_rows(self) -> bool:
        """Whether a row's sum counts: unless b's zero point as a signed byte is 0."""
        return self.zero_b >= 0 or not self.signed_b


class ByteProductTactic(Tactic[ByteProduct]):
    """u8 or i8 on either side; any sizes, symbolic ones too."""

    key = "tactix.c_byte_product@1"
    implements = ("tactix.ByteMatMul@1",)
    source = "c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> ByteProduct | Reject:
        epi, anchor = epilogue(node), node.anchor
        if isinstance(epi, Reject):
            return epi
        assert anchor is not None
        a, b, *zeros = anchor.inputs
        p = matrix_product(node, (a, b), epi)
        if any(d == 0 for d in (*epi.shape, p.k)):
            return Reject("a tensor is empty")
        left, right = (node.given[i].spec for i in (a, b))
        zero_a, zero_b = (*zeros, -1, -1)[:2]
        signed = (left.dtype is DType.INT8, right.dtype is DType.INT8)
        return ByteProduct(p, zero_a, zero_b, *signed, prod(left.shape[:-1]))

    def variants(self, work: ByteProduct, device: DeviceProperties) -> Sequence[Variant]:
        p = work.p
        found: dict[tuple[int, int], None] = {}
        for rows, vectors in byte.tile_shapes(byte.dot_on(byte.BYTES, device), device)[:2]:
            high = -(-p.m // -(-p.m // rows)) if isinstance(p.m, int) else rows
            wide = min(vectors, -(-p.n // device.lanes)) if isinstance(p.n, int) else vectors
            found[high, wide] = None
        return [Variant.of(rows=rows, vectors=vectors) for rows, vectors in found]

    def cost(self, work: ByteProduct, variant: Variant, ctx: CompileContext) -> float | None:
        p = work.p
        if not symbols(p.rows * p.n * p.k * p.b_count) <= set(ctx.opt):
            return None
        rows, vectors = variant.number("rows"), variant.number("vectors")
        m, n, k = (evaluate(d, ctx.opt) for d in (p.m, p.n, p.k))
        tiles = evaluate(prod(p.batch), ctx.opt) * -(-m // rows)
        panels = -(-n // (vectors * max(4, ctx.device.lanes)))
        step = byte.tile_cycles(byte.dot_on(byte.BYTES, ctx.device), ctx.device, rows, vectors)
        cycles = tiles * panels * (-(-k // GROUP) * step + byte.finish_cycles(rows, vectors))
        cycles += PACK * evaluate(p.b_count, ctx.opt) * k * n
        return 2 * START + cycles / CLOCK / max(1, ctx.threads)

    def compile(self, work: ByteProduct, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        return _Kernel(work, variant, ctx).artifact()


class _Kernel:
    """Writes one kernel."""

    def __init__(self, work: ByteProduct, variant: Variant, ctx: CompileContext) -> None:
        self.work, self.p, self.ctx = work, work.p, ctx
        self.lanes = max(4, ctx.device.lanes)
        self.dot = byte.dot_on(byte.BYTES, ctx.device)
        self.rows, self.vectors = variant.number("rows"), variant.number("vectors")
        self.width = self.vectors * self.lanes
        self.args = Args(self.p.node)
        self.functions = Functions(self.args)
        p = self.p
        self.panels, self.steps = ceildiv(p.n, self.width), ceildiv(p.k, GROUP)
        sizes = {
            "M": p.m,
            "N": p.n,
            "K": p.k,
            "WIDTH": self.width,
            "PANELS": self.panels,
            "STEPS": self.steps,
            "TILES": ceildiv(p.m, self.rows),
        }
        for name, size in sizes.items():
            self.args.size(name, size)

    def artifact(self) -> KernelArtifact:
        p, args = self.p, self.args
        columns = p.b_count * self.panels * (self.width * 4)
        packed = columns * self.steps * (self.dot.column // 4)
        self.packed = args.workspace(0, "uint8_t")
        self.first = args.workspace(packed, "int32_t")
        self.sums = args.workspace(packed + columns, "int32_t")
        args.phase(0)
        sizes = self._sizes()
        for rows in sizes:
            self._tile(rows)
        body = [block("if (phase == 0)", *self._zeros(), *self._lay(), "return;")]
        made = kernel(
            args,
            [*body, *self._multiply(sizes)],
            self.ctx,
            helpers=f"{GRID}{self.functions.text()}",
            preludes=byte.preludes(self.dot),
            workspace=packed + columns + self.work.rows_a * 4,
            phases=2,
        )
        return byte.without_fma(made) if byte.rounds_sums(p.epi.results) else made

    def _sizes(self) -> tuple[int, ...]:
        m = self.p.m if isinstance(self.p.m, int) else None
        rest = rest_sizes(self.rows, m)
        return rest if m is not None and m < self.rows else (self.rows, *rest)

    # -- the first launch --------------------------------------------------------------------------

    def _zeros(self) -> list[str]:
        """Declare the zero points of a as unsigned and of b as signed bytes."""
        work = self.work
        given_a = f"{self.args.input(work.zero_a)}[0]" if work.zero_a >= 0 else "0"
        given_b = f"{self.args.input(work.zero_b)}[0]" if work.zero_b >= 0 else "0"
        return [
            f"const int32_t za = {given_a}{' + 128' * work.signed_a};",
            f"const int32_t zb = {given_b}{'' if work.signed_b else ' - 128'};",
            "const int32_t corner = (int32_t)((uint32_t)K * (uint32_t)za * (uint32_t)zb);",
        ]

    def _lay(self) -> list[str]:
        """Panels of b, their columns' sums, and rows' sums of a."""
        b, count = self.args.input(self.p.b), self.args.dim(self.p.b_count)
        each = range(self.vectors)
        head = [
            "const int64_t item = q / PANELS, col = q % PANELS * WIDTH, left = N - col;",
            f"const uint8_t* source = (const uint8_t*){b} + item * K * N + col;",
            f"uint8_t* out = {self.packed} + q * STEPS * WIDTH * {self.dot.column};",
            f"vi {', '.join(f't{n} = tx_splat_i(0)' for n in each)};",
        ]
        sums = [
            f"tx_store_i32({self.first} + q * WIDTH + {n * self.lanes}, corner - za * t{n});"
            for n in each
        ]
        steps = [
            "const int64_t k = s * 4;",
            *(self._group(n) for n in each),
            f"source += 4 * N; out += {self.dot.column} * WIDTH;",
        ]
        panels = loop("q", "lo", "hi", *head, loop("s", "0", "STEPS", *steps), *sums)
        return [
            comment("panels of b: four rows of k side by side, as signed bytes"),
            block("", c_text.split(f"{count} * PANELS"), panels),
            *([self._row_sums()] if self.work.sums_rows else []),
        ]

    def _group(self, vector: int) -> str:
        """Four bytes of each of a vector's columns; rows past the last are zeros when signed."""
        at = vector * self.lanes
        absent = "0" if self.work.signed_b else "128"
        left = f"left - {at}" if at else "left"
        rows = []
        for i in range(GROUP):
            place = self.args.sum("source", f"{i} * N" if i else "0", str(at))
            whole = f"tx_load_u8({place})"
            some = f"(left > {at} ? tx_load_n_u8({place}, {left}) : tx_splat_i(0))"
            value = f"left >= {at + self.lanes} ? {whole} : {some}"
            if i:
                value = f"k + {i} < K ? ({value}) : tx_splat_i({absent})"
            rows.append(f"const vi r{i} = {value};")
        turned = "" if self.work.signed_b else " ^ (int32_t)0x80808080"
        return block(
            "",
            *rows,
            f"const vi g = (r0 | r1 << 8 | r2 << 16 | (vi)((vu)r3 << 24)){turned};",
            *self._stored(self.dot.column * at),
            f"t{vector} = tx_dot4(t{vector}, tx_splat_i(0x01010101), g);",
        )

    def _stored(self, at: int) -> list[str]:
        """Store the group ``g`` of signed bytes as products read it."""
        if not self.dot.widened:
            return [f"tx_store_i32(out + {at}, g);"]
        odd = at + 4 * self.lanes
        return [
            f"tx_store_i32(out + {at}, tx_even_signed(g));",
            f"tx_store_i32(out + {odd}, tx_odd_signed(g));",
        ]

    def _row_sums(self) -> str:
        kind = "int8_t" if self.work.signed_a else "uint8_t"
        more = " + 128 * (uint32_t)K" if self.work.signed_a else ""
        rows = [
            f"const {kind}* restrict const line = {self.args.input(self.p.a)} + r * K;",
            "int32_t total = 0;",
            loop("k", "0", "K", "total += line[k];"),
            f"{self.sums}[r] = (int32_t)(-(uint32_t)zb * ((uint32_t)total{more}));",
        ]
        split = c_text.split(self.args.dim(self.work.rows_a))
        about = comment("sums of rows of a, times the zero point of b")
        return block("", about, split, loop("r", "lo", "hi", *rows))

    # -- tiles -------------------------------------------------------------------------------------

    def _tile(self, rows: int) -> None:
        p, each = self.p, range(self.vectors)
        tile = DotTile(self.dot, (0,) * rows, self.vectors, self.lanes, self.work.signed_a)
        start = "z{n} + tx_splat_i(row_sums[{m}])" if self.work.sums_rows else "z{n}"
        first = [f"const vi z{n} = tx_load_i32(first + {n * self.lanes});" for n in each]
        sums = [f"s{m}_{n} = {start.format(m=m, n=n)}" for m, n in tile.places]
        left = "" if isinstance(p.n, int) and p.n % self.width == 0 else "(N - col)"
        site = RowSite(self.args, p.lead, p.n, self.lanes, left)
        move = f"x += 4; w += {self.dot.column} * WIDTH;"

        def row(m: int) -> str:
            return f"x + {m} * K" if m else "x"

        body = [
            *first,
            f"vi {', '.join(sums)};",
            loop("s", "0", "K / 4", tile.step("w", 0, lambda m: tile.quad(row(m))), move),
            block("if (K % 4)", tile.step("w", 0, lambda m: f"tx_quad_n({row(m)}, K % 4)")),
            *tile.finish(p.epi, site),
        ]
        about = f"{rows} rows of y from row on, and {self.width} columns from col on."
        parameters = (
            "const uint8_t* x, const uint8_t* w, const int32_t* first, const int32_t* row_sums, "
            "int64_t row, int64_t col"
        )
        self.functions.add(f"t{rows}", parameters, body, about)

    def _multiply(self, sizes: tuple[int, ...]) -> list[str]:
        """The second launch: row tiles of every matrix, times panels."""
        p, args = self.p, self.args
        batch = [args.dim(d) for d in p.batch]
        a, b = (flat("item", batch, s, args) if p.batch else "0" for s in (p.a_batch, p.b_batch))

        def call(size: int) -> str:
            x = f"(const uint8_t*){args.input(p.a)} + (from + r) * K"
            w = f"{self.packed} + panel * STEPS * WIDTH * {self.dot.column}"
            more = f"{self.first} + panel * WIDTH, {self.sums} + from + r"
            return f"TX_NAME(t{size})(a, {x}, {w}, {more}, item * M + r, p * WIDTH);"

        tile = [
            f"const int64_t panel = ({b}) * PANELS + p;",
            f"int64_t r = u % TILES * {self.rows};",
            by_rows(sizes, "r", "end", call),
        ]
        item = [
            f"const int64_t item = u / TILES, from = ({a}) * M;",
            f"const int64_t next = (u % TILES + 1) * {self.rows}, end = next < M ? next : M;",
            loop("p", "g[2]", "g[3]", *tile),
        ]
        units = f"{args.dim(prod(p.batch))} * TILES" if p.batch else "TILES"
        return [
            comment(
                "of the grid of row tiles and panels this thread has tiles [g[0], g[1]) and panels "
                "[g[2], g[3])"
            ),
            "int64_t g[4];",
            f"TX_NAME(grid)({units}, PANELS, tid, nt, g);",
            loop("u", "g[0]", "g[1]", *item),
        ]
