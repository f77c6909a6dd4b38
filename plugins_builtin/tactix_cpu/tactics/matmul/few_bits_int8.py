"""FewBitsMatMul whose activations may be rounded to int8: weights of 2, 4 or 8 bits times bytes,
with any pointwise epilogue.

A first launch rounds each block of a row, the numbers that share a scale of the weights, to signed
bytes with a scale of their own, and sums them up. Tiles then take the weights as they lie
(``PackedNumbers``): a shift and a mask leave numbers of a lane's column as four unsigned bytes, for
dot products with four bytes of each row. Sums of a block are integers, exact; less the sum of its
bytes by the zero point, and times both scales, they add up in float32.
Knobs: ``rows`` and ``vectors`` of the largest tile.
"""

from __future__ import annotations

from collections.abc import Sequence

from tactix.base.dims import Dim, ceildiv, evaluate, symbols
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import text as c_text
from tactix_codegen.c import tile as c_tile
from tactix_codegen.c.text import Args, block, comment, kernel, loop
from tactix_codegen.c.tile import GRID, Functions, RegisterTile, by_rows, finish
from tactix_cpu.tactics import dot_tile as byte
from tactix_cpu.tactics.estimates import CLOCK, MEMORY, START
from tactix_cpu.tactics.matmul.few_bits import (
    AHEAD,
    FewBitsProduct,
    PackedNumbers,
    few_bits_preludes,
    few_bits_product,
)
from tactix_cpu.tactics.matmul.product import RowSite

LONGEST = 256
"""Numbers of a block at most: one that is far from the others makes the steps of its block wide."""
AT_ONCE = 1 << 19
"""Bytes of rounded rows that one sweep over the weights reads: half of a second cache of 1 MiB. The
panel in use takes the rest.
"""
SCALING = 3.0
"""Operations that add a vector of sums of a block: made floats, scaled and added. Two start in a
cycle.
"""
ROUNDING = 0.5
"""Cycles to round a number of a, as a share of a vector. No measurement of it is on record."""
SUMS, SUMS_NARROW, WIDEST = 12, 4, 4
"""Vectors of sums of a block with 32 registers and with 16, as many being sums of all blocks; and
vectors of a tile at most. On a Zen 5 tiles of 1 x 4, 3 x 4 and 6 x 2 were the fastest for 1, 3 and
128 rows of 2048 numbers of 4 bits (0.9 to 1.0 of the others' time).
"""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [FewBitsInt8Tactic()]


class FewBitsInt8Tactic(Tactic[FewBitsProduct]):
    """float32 that may be rounded times constant weights; any sizes, rows may be symbolic."""

    key = "tactix.c_few_bits_int8@1"
    implements = ("tactix.FewBitsMatMul@1",)
    source = "c"
    by_signature = True
    numerics = "int8_activations"
    spreads = True
    """Infinities in a row of ``a`` leave no number: its block has no scale."""

    def match(self, node: Node, device: DeviceProperties) -> FewBitsProduct | Reject:
        assert node.anchor is not None
        if not node.anchor.attrs.int8_activations:
            return Reject("the layer does not permit that its rows are rounded to int8")
        p = few_bits_product(node)
        if not isinstance(p, Reject) and p.block > LONGEST:
            return Reject(f"this kernel takes blocks of up to {LONGEST} numbers")
        return p

    def variants(self, p: FewBitsProduct, device: DeviceProperties) -> Sequence[Variant]:
        return [Variant.of(rows=rows, vectors=vectors) for rows, vectors in _tiles(p, device)]

    def cost(self, p: FewBitsProduct, variant: Variant, ctx: CompileContext) -> float | None:
        if not symbols(p.m) <= set(ctx.opt):
            return None
        return rounded_cost(p, variant, ctx, evaluate(p.m, ctx.opt))

    def compile(self, p: FewBitsProduct, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        return RoundedRowsKernel(p, variant, ctx).artifact()


def rounded_cost(p: FewBitsProduct, variant: Variant, ctx: CompileContext, m: int) -> float:
    """Seconds that the kernel takes for ``m`` rows, for estimates."""
    lanes = max(4, ctx.device.lanes)
    rows, vectors = variant.number("rows"), variant.number("vectors")
    tiles, high = -(-m // rows), min(m, rows)
    dot = byte.product_cycles(byte.BYTES, ctx.device)
    steps = p.blocks * p.block / 4 * (high * dot + 0.5 * (high + 2))  # loads, shift and mask
    ends = p.blocks * high * SCALING / 2
    panels = -(-p.n // (vectors * lanes))
    cycles = panels * vectors * tiles * (steps + ends) + ROUNDING * m * p.k
    stored = p.n * p.k * p.bits / 8
    return 2 * START + cycles / CLOCK / max(1, ctx.threads) + stored / MEMORY


def _tiles(p: FewBitsProduct, device: DeviceProperties) -> list[tuple[int, int]]:
    """Tiles (rows, vectors) whose sums, of a block and of all, stay in registers: wide ones of few
    rows, as each vector of weights is unpacked once for all rows, and equal ones of more.
    """
    most = SUMS if c_tile.registers(device) == 32 else SUMS_NARROW
    high = most // 2
    if isinstance(p.m, int):
        high = -(-p.m // -(-p.m // high))
    widest = min(WIDEST, most // high, -(-p.n // max(4, device.lanes)))
    lower = (max(1, high // 2), 2 * widest) if high > 2 else (high, -(-widest // 2))
    return list(dict.fromkeys([(high, widest), lower]))


class RoundedRowsKernel:
    """Writes one kernel. ``most``: rows that it is run with at most."""

    def __init__(
        self, p: FewBitsProduct, variant: Variant, ctx: CompileContext, most: Dim | None = None
    ) -> None:
        self.p, self.ctx = p, ctx
        self.most = p.m if most is None else most
        self.lanes = max(4, ctx.device.lanes)
        self.rows, self.vectors = variant.number("rows"), variant.number("vectors")
        self.width = self.vectors * self.lanes
        self.args = Args(p.node)
        self.functions = Functions(self.args)
        self.numbers = PackedNumbers(p, self.args, self.vectors, self.lanes)
        self.pitch = -(-p.blocks * p.block // 64) * 64 + 64
        """Bytes of a rounded row: not a power of two, which would put rows into the same places of
        a cache.
        """
        sizes: dict[str, Dim] = {"M": p.m, "N": p.n, "K": p.k, "PANELS": self.numbers.panels}
        for name, size in {**sizes, "PITCH": self.pitch}.items():
            self.args.size(name, size)

    def artifact(self) -> KernelArtifact:
        self.args.phase(0)
        return kernel(
            self.args,
            self.few_rows(),
            self.ctx,
            helpers=f"{GRID}{self.functions.text()}",
            preludes=self.preludes(),
            workspace=self.room,
            phases=2,
        )

    @staticmethod
    def preludes() -> tuple[str, ...]:
        """What the texts of this class include."""
        return (*few_bits_preludes(), *map(c_text.prelude, ("int8.h", "few_bits_int8.h")))

    @property
    def room(self) -> Dim:
        """Bytes of the workspace that rows take: their bytes, scales and sums of blocks."""
        return self.most * (self.pitch + 8 * self.p.blocks)

    def few_rows(self) -> list[str]:
        """Both launches."""
        rounded, factors = self.most * self.pitch, self.most * (4 * self.p.blocks)
        self.x = self.args.workspace(0, "int8_t")
        self.factors = self.args.workspace(rounded)
        self.total_type = "float" if self._has_zeros else "int32_t"
        self.totals = self.args.workspace(rounded + factors, self.total_type)
        return [block("if (phase == 0)", *self._round(), "return;"), self._multiply()]

    @property
    def _has_zeros(self) -> bool:
        return bool(self.numbers.zeros)

    # -- the first launch --------------------------------------------------------------------------

    def _round(self) -> list[str]:
        """Blocks of rows as signed bytes, their scales, and their sums."""
        p = self.p
        last = p.k - (p.blocks - 1) * p.block
        count = "BLOCK" if last == p.block else f"j + 1 < BLOCKS ? BLOCK : {last}"
        place = f"{self.x} + r * PITCH + j * BLOCK"
        source = f"{self.args.input(p.inputs[0])} + r * K + j * BLOCK"
        total = f"tx_round_block({place}, {source}, count, BLOCK, {p.bits}, {self.factors} + q)"
        if not self._has_zeros:
            total = f"-{1 << p.bits - 1} * {total}"
        body = [
            "const int64_t r = q / BLOCKS, j = q % BLOCKS;",
            f"const int64_t count = {count};",
            f"{self.totals}[q] = {total};",
        ]
        about = "blocks of rows in bytes, with scales, and sums" + (
            "" if self._has_zeros else " times the zero point, which is the same for all"
        )
        return [comment(about), c_text.split("M * BLOCKS"), loop("q", "lo", "hi", *body)]

    # -- tiles -------------------------------------------------------------------------------------

    def _multiply(self) -> str:
        """Sweeps over this thread's panels with as many rows as stay in a cache, tile by tile."""
        m = self.p.m if isinstance(self.p.m, int) else None
        rest = c_tile.rest_sizes(self.rows, m)
        sizes = rest if m is not None and m < self.rows else (self.rows, *rest)
        for rows in sizes:
            self._function(rows)
        most = max(1, AT_ONCE // (self.rows * self.pitch))

        def call(size: int) -> str:
            start = f"{self.x} + r * PITCH, {self.factors} + r * BLOCKS, {self.totals} + r * BLOCKS"
            return f"TX_NAME(dot{size})(a, {start}, r, p * WIDTH);"

        tiles_of_rows = [f"int64_t r = t * {self.rows};", by_rows(sizes, "r", "end", call)]
        sweep = [
            f"const int64_t next = t + {most} < g[1] ? t + {most} : g[1];",
            f"const int64_t end = next * {self.rows} < M ? next * {self.rows} : M;",
            loop("p", "g[2]", "g[3]", *tiles_of_rows),
        ]
        tiles = self.args.dim(ceildiv(self.p.m, self.rows))
        return "\n".join(
            [
                comment(
                    "of the grid of row tiles and panels this thread has tiles [g[0], g[1]) and "
                    "panels [g[2], g[3])"
                ),
                "int64_t g[4];",
                f"TX_NAME(grid)({tiles}, PANELS, tid, nt, g);",
                loop("t", "g[0]", "g[1]", *sweep, step=most),
            ]
        )

    def _function(self, rows: int) -> None:
        p = self.p
        tile = RegisterTile(rows, self.vectors, self.lanes)
        groups = loop("g", "0", str(p.block // p.group), *self._group(tile))
        body = [
            tile.zero(),
            f"const uint8_t* w = {self.numbers.panel};",
            loop("j", "0", "BLOCKS", self._start(tile), groups, *self._end(tile)),
        ]
        about = (
            f"{rows} rows of y from row on, and {self.vectors} x {self.lanes} columns from col on: "
            "integer sums b of each block, scaled and added up in s."
        )
        left = "" if p.n % self.width == 0 else "N - col"
        site = RowSite(self.args, p.lead, p.n, self.lanes, left)
        parameters = (
            f"const int8_t* x, const float* by, const {self.total_type}* totals, "
            "int64_t row, int64_t col"
        )
        self.functions.add(f"dot{rows}", parameters, [*body, *finish(tile, p.epi, site)], about)

    def _start(self, tile: RegisterTile) -> str:
        """Declare the sums of block ``j``: from the zero point, where it is the same for all."""
        first = "0" if self._has_zeros else "totals[{}]"
        sums = [
            f"b{m}_{n} = tx_splat_i({first.format(self._of_block(m))})" for m, n in tile.places()
        ]
        return f"vi {', '.join(sums)};"

    def _of_block(self, row: int) -> str:
        """The place of block ``j`` among those of all rows."""
        return f"{c_text.times(row, 'BLOCKS')} + j" if row else "j"

    def _group(self, tile: RegisterTile) -> list[str]:
        """The numbers in 32 bits of each column by those of each row."""
        dot = "tx_dot4" if self.p.bits == 8 else "tx_dot4_low"
        lines = self.numbers.loads()
        for place in range(8 // self.p.bits):
            u = [f"const vi u{n} = {self._bytes(n, place)};" for n in range(tile.vectors)]
            sums = []
            for m in range(tile.rows):
                at = self.args.sum("x", c_text.times(m, "PITCH"), str(4 * place))
                adds = (f"b{m}_{n} = {dot}(b{m}_{n}, u{n}, v);" for n in range(tile.vectors))
                sums.append(f"{{ const vi v = tx_quad({at}); {' '.join(adds)} }}")
            lines.append(block("", *u, *sums))
        row = 4 * self.width  # bytes
        ahead = [f"__builtin_prefetch(w + {AHEAD * row + at}, 0, 3);" for at in range(0, row, 64)]
        return [*lines, *ahead, f"x += {self.p.group}; w += {row};"]

    def _bytes(self, vector: int, place: int) -> str:
        """Of the four bytes in a lane the numbers that lie so many from their lowest bits."""
        bits = self.p.bits
        lane = f"tx_down(word{vector}, {bits * place})" if place else f"word{vector}"
        mask = (1 << bits) - 1
        return lane if bits == 8 else f"{lane} & {mask * 0x01010101:#010x}"

    def _end(self, tile: RegisterTile) -> list[str]:
        """Sums of block ``j``, scaled, to those of all."""
        lines = []
        for n in range(tile.vectors):
            factors = [f"const vf scale = {self.numbers.scale(n)};"]
            if self._has_zeros:
                factors.append(f"const vf zero = {self.numbers.zero(n)};")
            added = []
            for m in range(tile.rows):
                at = f"[{self._of_block(m)}]"
                total = f"tx_to_f(b{m}_{n})"
                if self._has_zeros:
                    total = f"({total} - zero * tx_splat(totals{at}))"
                added.append(f"{tile.acc(m, n)} += {total} * (scale * tx_splat(by{at}));")
            lines.append(block("", *factors, *added))
        return lines
