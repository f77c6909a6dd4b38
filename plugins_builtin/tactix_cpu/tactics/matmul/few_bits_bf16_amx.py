"""FewBitsMatMul whose activations may be rounded, of many rows on the AMX matrix unit in bfloat16.

Both sides are rounded to bfloat16: numbers of 8 bits have steps of 1/127 of the largest of their
block, bfloat16 has 1/256 of each number itself, so results depart less than the permission grants.
Sums of int8 would have to be scaled for each block of 32, which takes the vector unit longer than
it takes to multiply the block.

A first launch rounds rows, and lays them out tile by tile. Then each thread writes a panel of
weights out as bfloat16, which stays in the second cache, and multiplies all rows of a sweep with
it, 32 rows and 32 columns at a time. Few rows are multiplied as ``few_bits_int8`` does, from the
same panels.
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
from tactix_codegen.c.text import block, comment, kernel, loop
from tactix_codegen.c.tile import GRID, RegisterTile
from tactix_cpu.tactics.dot_tile import HALVES, HIGH, SIDE, has_tiles
from tactix_cpu.tactics.estimates import CLOCK, MEMORY, START
from tactix_cpu.tactics.matmul.few_bits import FewBitsProduct
from tactix_cpu.tactics.matmul.few_bits_int8 import (
    FewBitsInt8Tactic,
    RoundedRowsKernel,
    rounded_cost,
)
from tactix_cpu.tactics.matmul.int8_amx import RATES, RESULT, multiply, tiles_to
from tactix_cpu.tactics.matmul.product import RowSite

FEW = 24
"""Rows up to which bytes are multiplied: a panel written out costs as much as some 16 rows do."""
STEP = 32
"""Numbers along k of a tile: 64 bytes of bfloat16."""
SWEEP = 3 << 19
"""Bytes of rounded rows that one sweep over the weights reads: three quarters of the second cache
of 2 MiB that servers of Intel with AMX have. Each sweep writes all weights out again, so it has
``LEAST`` blocks of rows even where they are longer.
"""
LEAST = 4
WRITE = 5.0
"""Cycles to write 32 weights out: two each of shifts, looked up numbers and scalings, and rounding,
ordering and storing them, of which two start in a cycle.
"""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [HalfAmxFewBitsTactic()]


class HalfAmxFewBitsTactic(FewBitsInt8Tactic):
    """float32 that may be rounded times constant weights; rows may be symbolic."""

    key = "tactix.c_few_bits_bf16_amx@1"
    requires = HALVES.unit

    def match(self, node: Node, device: DeviceProperties) -> FewBitsProduct | Reject:
        if not has_tiles(device, HALVES):
            return Reject("it needs AMX with bfloat16, and AVX-512")
        p = super().match(node, device)
        if isinstance(p, Reject):
            return p
        if isinstance(p.m, int) and p.m <= FEW:
            return Reject(f"{FEW} rows or fewer are multiplied as bytes")
        if p.n <= HIGH:
            return Reject("there are too few columns for two tiles")
        return p

    def variants(self, p: FewBitsProduct, device: DeviceProperties) -> Sequence[Variant]:
        """Panels of as many vectors as few rows want, one pair of tiles or two."""
        shapes = [Variant.of(rows=6, vectors=2), Variant.of(rows=3, vectors=4)]
        return shapes[:1] if isinstance(p.m, int) or p.n <= SIDE else shapes

    def cost(self, p: FewBitsProduct, variant: Variant, ctx: CompileContext) -> float | None:
        if not symbols(p.m) <= set(ctx.opt):
            return None
        m = evaluate(p.m, ctx.opt)
        if m <= FEW:
            return rounded_cost(p, variant, ctx, m)
        rows, columns = (-(-size // SIDE) * SIDE for size in (m, p.n))
        sweeps = -(-rows // (SIDE * _blocks_of_sweep(p)))
        writing = sweeps * columns * p.k / STEP * WRITE / CLOCK
        work = 2 * rows * columns * p.k / RATES[HALVES] + rows * columns * RESULT
        stored = p.n * p.k * p.bits / 8
        return 2 * START + (writing + work) / max(1, ctx.threads) + stored / MEMORY

    def compile(self, p: FewBitsProduct, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        return _Kernel(p, variant, ctx).artifact()


def _steps(p: FewBitsProduct) -> int:
    """Tiles along k, of numbers that blocks have behind the last one too."""
    return -(-p.blocks * p.block // STEP)


def _blocks_of_sweep(p: FewBitsProduct) -> int:
    """Blocks of rows that one sweep over the weights multiplies."""
    return max(LEAST, SWEEP // (SIDE * STEP * 2 * _steps(p)))


class _Kernel(RoundedRowsKernel):
    """Writes one kernel."""

    def __init__(self, p: FewBitsProduct, variant: Variant, ctx: CompileContext) -> None:
        super().__init__(p, variant, ctx, FEW)
        self.steps = _steps(p)
        self.blocks: Dim = ceildiv(p.m, SIDE)
        self.pairs = self.vectors // 2
        for name, size in {"STEPS": self.steps, "BLOCKS_OF_ROWS": self.blocks}.items():
            self.args.size(name, size)

    def artifact(self) -> KernelArtifact:
        p, threads = self.p, max(1, self.ctx.threads)
        phase = self.args.phase(0)
        body = []
        if not isinstance(p.m, int):
            few = "\n".join(self.few_rows())
            self.functions.add("bytes", "int tid, int nt", [few])
            body.append(block(f"if (M <= {FEW})", "TX_NAME(bytes)(a, tid, nt);", "return;"))
        room = self.room if body else 0
        rows = self.blocks * (SIDE * STEP * 2 * self.steps)
        panel = self.width * STEP * 2 * self.steps
        self.halves = self.args.workspace(room, "uint16_t")
        self.panel = self.args.workspace(room + rows, "uint16_t")
        body += [
            block(f"if ({phase} == 0)", *self._lay_out(), "return;"),
            *c_text.at_most(threads),
            self._blocks(),
        ]
        amx, bf16 = c_text.prelude("amx.h"), c_text.prelude("bf16.h")
        return kernel(
            self.args,
            body,
            self.ctx,
            helpers=f"{amx}{GRID}{self.functions.text()}",
            preludes=(*self.preludes(), bf16),
            workspace=room + rows + threads * panel,
            phases=2,
        )

    # -- the first launch --------------------------------------------------------------------------

    def _lay_out(self) -> list[str]:
        """Rows as tiles of 16 rows and 32 numbers: ``[16 rows][step][row][number]``."""
        source = f"{self.args.input(self.p.inputs[0])} + r * K + k"
        whole = [
            f"tx_store_bf16(out, tx_load_f32({source}));",
            f"tx_store_bf16(out + {HIGH}, tx_load_f32({source} + {HIGH}));",
        ]
        part = [
            "const int64_t left = r < M ? K - k : 0;",
            f"tx_store_bf16(out, tx_load_n_f32({source}, left > 0 ? left : 0));",
            f"tx_store_bf16(out + {HIGH}, "
            f"tx_load_n_f32({source} + {HIGH}, left > {HIGH} ? left - {HIGH} : 0));",
        ]
        row = [
            f"const int64_t r = q / STEPS * {HIGH} + i, k = q % STEPS * {STEP};",
            f"uint16_t* out = {self.halves} + (q * {HIGH} + i) * {STEP};",
            c_text.choice(f"r < M && k + {STEP} <= K", whole, part),
        ]
        return [
            comment("rows in bfloat16, tile by tile, zeros behind the last row and number"),
            c_text.split("BLOCKS_OF_ROWS * 2 * STEPS"),
            loop("q", "lo", "hi", loop("i", "0", str(HIGH), *row)),
        ]

    # -- tiles -------------------------------------------------------------------------------------

    def _write(self) -> None:
        """The function that writes a panel out."""
        each = range(self.vectors)
        factors = [
            line
            for n in each
            for line in (
                f"const vf scale{n} = {self.numbers.scale(n)};",
                f"const vf less{n} = {self.numbers.zero(n)} * scale{n};",
            )
        ]
        stores = [
            f"tx_store_i32({self._pair_of(pair, n)}, tx_halves({self._weight(n, 2 * pair)}, "
            f"{self._weight(n, 2 * pair + 1)}));"
            for pair in range(self.p.group // 2)
            for n in each
        ]
        move = f"w += {4 * self.width}; out += {self.p.group * SIDE};"
        group = loop(
            "g", "0", str(self.p.block // self.p.group), *self.numbers.loads(), *stores, move
        )
        numbers = self.p.blocks * self.p.block
        rest = (self.steps * STEP - numbers) * SIDE
        clear = [
            f"memset(panel + {half * self._half + numbers * SIDE}, 0, {2 * rest});"
            for half in range(self.pairs)
        ]
        body = [
            f"const uint8_t* w = {self.numbers.panel};",
            "uint16_t* out = panel;",
            loop("j", "0", "BLOCKS", *factors, group),
            *(clear if rest else []),
        ]
        about = (
            f"the {self.width} columns from col on as bfloat16: of each {SIDE} columns, pairs of "
            "numbers that follow each other along k, a row of columns for each pair."
        )
        self.functions.add("write", "uint16_t* panel, int64_t col", body, about)

    @property
    def _half(self) -> int:
        """Numbers of 32 columns of a panel that is written out."""
        return self.steps * STEP * SIDE

    def _pair_of(self, pair: int, vector: int) -> str:
        """Where a pair of numbers of a group goes, of 16 columns."""
        half, tile = divmod(vector, 2)
        return f"out + {half * self._half + 2 * pair * SIDE + tile * 2 * HIGH}"

    def _weight(self, vector: int, i: int) -> str:
        return f"{self.numbers.number(vector, i)} * scale{vector} - less{vector}"

    def _product(self) -> None:
        """The function that multiplies 32 rows with 32 columns."""
        left = "" if self.p.n % SIDE == 0 else "N - col"
        site = RowSite(self.args, self.p.lead, self.p.n, self.lanes, left)
        tile = RegisterTile(SIDE, 2, self.lanes)

        def finish(guarded: bool) -> str:
            return c_tile.finish_saved(tile, self.p.epi, site, "sums", guarded, rows="rows")

        body = [
            f"float sums[{SIDE * SIDE}] __attribute__((aligned(64)));",
            f"const int64_t rows = M - row < {SIDE} ? M - row : {SIDE};",
            f"const uint16_t* lower = upper + STEPS * {HIGH * STEP};",
            *(f"_tile_zero({n});" for n in range(4)),
            loop(
                "k",
                "0",
                f"STEPS * {HIGH * STEP}",
                *multiply("dpbf16ps", "upper + k", "lower + k", 2 * STEP),
                step=HIGH * STEP,
            ),
            *tiles_to("sums"),
            c_text.choice(f"{left} >= {SIDE}", [finish(False)], [finish(True)])
            if left
            else finish(False),
        ]
        about = f"{SIDE} rows of y from row on, and {SIDE} columns from col on."
        parameters = "const uint16_t* upper, const int8_t* w, int64_t row, int64_t col"
        self.functions.add("product", parameters, body, about)

    def _blocks(self) -> str:
        """Sweeps over this thread's panels with as many rows as stay in a cache."""
        self._write()
        self._product()
        most = _blocks_of_sweep(self.p)
        calls = [
            f"TX_NAME(product)(a, {self.halves} + t * STEPS * {SIDE * STEP}, "
            f"(const int8_t*)(panel + {half * self._half}), t * {SIDE}, "
            f"p * WIDTH + {half * SIDE});"
            for half in range(self.pairs)
        ]
        guarded = [
            call if half == 0 else f"if (p * WIDTH + {half * SIDE} < N) {call}"
            for half, call in enumerate(calls)
        ]
        sweep = [
            f"const int64_t end = u + {most} < g[1] ? u + {most} : g[1];",
            loop(
                "p",
                "g[2]",
                "g[3]",
                "TX_NAME(write)(a, panel, p * WIDTH);",
                loop("t", "u", "end", *guarded),
            ),
        ]
        return "\n".join(
            [
                comment(
                    "of the grid of blocks of rows and panels this thread has blocks [g[0], g[1]) "
                    "and panels [g[2], g[3])"
                ),
                "int64_t g[4];",
                "TX_NAME(grid)(BLOCKS_OF_ROWS, PANELS, tid, nt, g);",
                "if (g[0] >= g[1] || g[2] >= g[3]) return;",
                f"uint16_t* panel = {self.panel} + tid * {self.pairs * self._half};",
                "TX_NAME(begin)();",
                loop("u", "g[0]", "g[1]", *sweep, step=most),
                "_tile_release();",
            ]
        )
