"""IntegerMatMul, and WideMatMul of bfloat16, on the AMX matrix unit of x86-64.

Blocks of 32 rows and 32 columns: two tiles of a times two of b into four tiles of sums, which begin
with the bias of their columns. b lies in the panels of c_int8_gemm. The rows that fill no tile are
copied, with zeros behind them. While the unit multiplies a block, the vector unit takes the sums of
the block before to the outputs, a few rows at each step. Rows that fill no more than one tile, as
those of decoding, are multiplied as such: the time is then that of reading b.
"""

from __future__ import annotations

from collections.abc import Sequence

from tactix.base.dims import ceildiv, evaluate, symbols
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c.text import block, kernel, loop, split
from tactix_codegen.c.text import prelude as text_of
from tactix_codegen.c.tile import GRID
from tactix_cpu.tactics import dot_tile as byte
from tactix_cpu.tactics.dot_tile import BYTES, DEEP, HALVES, HIGH, SIDE, Dot, DotTile
from tactix_cpu.tactics.estimates import MEMORY, START
from tactix_cpu.tactics.matmul.int8 import DotGemmKernel, DotProduct, dot_product, fills_tiles
from tactix_cpu.tactics.matmul.product import RowSite

BLOCK_BYTES = 5 << 18
"""Bytes of a that one sweep over the panels reads: most of the second cache (1.25 of 2 MiB, as
servers of Intel with AMX have), for each sweep reads all of b. No measurement of it is on record.
"""
RATES = {BYTES: 1.8e12, HALVES: 9e11}
"""Operations per second of a core, for estimates: about 0.3 of what the unit does at 3 GHz, which
is 2048 a cycle of bytes and 1024 of bfloat16 (Intel, Optimization Reference Manual). Whole networks
reach 22 to 24 % of the peak in int8, 22 to 40 % in bfloat16 (docs/benchmarks.md, batch 1, 1 thread:
resnet50, vit_b16, gpt2, bert_base); no measurement of products alone is on record.
"""
RESULT = 2e-10
"""Seconds for each result, for estimates: 0.6 cycles at 3 GHz, about ten for a vector of 16. It
counts where the depth is small. No measurement of it is on record.
"""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [ByteAmxTactic(), HalfAmxTactic()]


def rows_left(when: str, x: str, rows: str, depth: int, beyond: int = 0) -> list[str]:
    """Copy the rows of ``depth`` bytes that fill no tile to ``rest``, with zeros behind them, if
    ``when`` holds.

    Tiles that read ``beyond`` the last row by so many bytes make it the last rows always, full tile
    or not.
    """
    odd = f"({rows} - 1) % {HIGH} + 1" if beyond else f"{rows} % {HIGH}"
    size = HIGH * depth + beyond
    return [
        f"uint8_t rest[{size}] __attribute__((aligned(64)));",
        block(
            f"if ({when})" if beyond else f"if ({when} && {rows} % {SIDE})",
            f"const int64_t odd = {odd};",
            f"memcpy(rest, {x} + ({rows} - odd) * {depth}, odd * {depth});",
            f"memset(rest + odd * {depth}, 0, {size} - odd * {depth});",
        ),
    ]


def shared_out(
    rows: str, panels: int, kind: str, first: Sequence[str], walk: str, pending: str
) -> str:
    """A walk over this thread's part ``g`` of so many rows of blocks and panels, after the lines
    ``first``.

    There are sums of the block that is multiplied and of the one before, of which ``pending`` tells
    the place.
    """
    return "\n".join(
        [
            "int64_t g[4];",
            f"TX_NAME(grid)({rows}, {panels}, tid, nt, g);",
            "if (g[0] >= g[1] || g[2] >= g[3]) return;",
            f"{kind} sums[2][{SIDE * SIDE}] __attribute__((aligned(64)));",
            f"const {kind}* old = sums[1];",
            "int at = 0;",
            *first,
            "TX_NAME(begin)();",
            walk,
            f"TX_NAME(rest)(a, old, {pending});",
            "_tile_release();",
        ]
    )


def multiply(call: str, upper: str, lower: str, pitch: int) -> list[str]:
    """One step of a block: tiles of rows ``pitch`` bytes apart times the step of a panel at ``w``,
    which moves on.

    Registers: 0 to 3 hold sums, 4 and 5 tiles of rows, 6 and 7 tiles of columns. A row of a panel's
    step is 32 columns of 4 bytes, of which a tile takes 16. The second tile of rows is loaded last,
    as the first two products do not need it.
    """
    return [
        f"_tile_loadd(4, {upper}, {pitch});",
        f"_tile_loadd(6, w, {4 * SIDE});",
        f"_tile_loadd(7, w + {DEEP}, {4 * SIDE});",
        f"_tile_loadd(5, {lower}, {pitch});",
        *(f"_tile_{call}({2 * t + c}, {4 + t}, {6 + c});" for t in range(2) for c in range(2)),
        f"w += {DEEP * SIDE};",
    ]


def multiply_few(call: str) -> list[str]:
    """One step of a block of one tile of rows, which lies at ``x``, times the step of a panel at
    ``w``; both move on.

    The step after is asked for into the first cache: of weights that came from memory a thread read
    16.1 GB/s so, and 13.8 where it asked a panel ahead into the second (a Xeon with AMX, 2048 x
    5632 of bfloat16, the shortest of 172 turns in turn).
    """
    return [
        f"_tile_loadd(4, x, {DEEP});",
        f"_tile_loadd(6, w, {4 * SIDE});",
        f"_tile_loadd(7, w + {DEEP}, {4 * SIDE});",
        *(f"_tile_{call}({c}, 4, {6 + c});" for c in range(2)),
        f"x += {HIGH * DEEP}; w += {DEEP * SIDE};",
        loop("q", "0", str(SIDE), f"__builtin_prefetch(w + q * {DEEP}, 0, 3);"),
    ]


def ask_ahead() -> list[str]:
    """Ask for so many ``lines`` of the panel after, at ``next``, which moves on.

    Into the second cache (hint 2), as a panel's time passes before they are used. Callers share the
    lines of a panel out to its blocks, so that each is asked for once.
    """
    return [
        loop("q", "0", "lines", f"__builtin_prefetch(next + q * {DEEP}, 0, 2);"),
        f"next += lines * {DEEP};",
    ]


def tiles_from(first: str, high: int = 2) -> list[str]:
    """Load the tiles of sums, ``high`` times two, all rows the same: a pitch of 0 bytes reads one
    row 16 times.
    """
    return [
        f"_tile_loadd({2 * t + c}, {first} + {c * HIGH}, 0);" for t in range(high) for c in range(2)
    ]


def tiles_to(sums: str, high: int = 2) -> list[str]:
    """Store the tiles of sums, ``high`` times two, as rows of 32."""
    at = [(2 * t + c, t * HIGH * SIDE + c * HIGH) for t in range(high) for c in range(2)]
    return [f"_tile_stored({n}, {sums} + {place}, {4 * SIDE});" for n, place in at]


class ByteAmxTactic(Tactic[DotProduct]):
    """u8 or i8 times constant i8, of a depth that fills tiles; rows may be symbolic."""

    key = "tactix.c_int8_amx@1"
    implements: tuple[str, ...] = ("tactix.IntegerMatMul@1",)
    source = "c"
    by_signature = True
    dot: Dot = BYTES
    requires = BYTES.unit

    def match(self, node: Node, device: DeviceProperties) -> DotProduct | Reject:
        p = dot_product(node, self.dot)
        if isinstance(p, Reject):
            return p
        if not fills_tiles(p, device):
            return Reject("it needs AMX, a depth that fills tiles, and more than a few rows")
        return p

    def variants(self, p: DotProduct, device: DeviceProperties) -> Sequence[Variant]:
        return [Variant.of(rows=SIDE, vectors=SIDE // HIGH)]

    def cost(self, p: DotProduct, variant: Variant, ctx: CompileContext) -> float | None:
        if not symbols(p.m) <= set(ctx.opt):
            return None
        rows, columns = (-(-evaluate(d, ctx.opt) // SIDE) * SIDE for d in (p.m, p.n))
        depth = _whole_steps(p) // self.dot.size
        work = 2 * rows * columns * depth / RATES[self.dot] + rows * columns * RESULT
        return 2 * START + work / max(1, ctx.threads) + p.k * p.n * self.dot.size / MEMORY

    def compile(self, p: DotProduct, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        return _Kernel(p, variant, ctx).artifact()


class HalfAmxTactic(ByteAmxTactic):
    """bf16 times constant bf16, of a depth that fills tiles; rows may be symbolic."""

    key = "tactix.c_bf16_amx@1"
    implements = ("tactix.WideMatMul@1", "tactix.MatMul@1", "tactix.Gemm@1")
    dot = HALVES
    requires = HALVES.unit


def _whole_steps(p: DotProduct) -> int:
    """Bytes of a row with those that fill its last step.

    They are what follows in memory: weights of 0 stand beside them, which make any bytes nothing.
    """
    return -(-p.k * p.dot.size // DEEP) * DEEP


class _Kernel(DotGemmKernel):
    """Writes one kernel."""

    def __init__(self, p: DotProduct, variant: Variant, ctx: CompileContext) -> None:
        super().__init__(p, variant, ctx)
        self.depth, self.deep = p.k * p.dot.size, _whole_steps(p)  # bytes: of a row, of its steps
        self.steps = self.deep // (p.dot.size * p.dot.group)

    def artifact(self) -> KernelArtifact:
        """The kernel as data."""
        p, dot, axis = self.p, self.p.dot, 0 if self.p.turned else 1
        first = byte.starts(p.node, p.inputs, self.panels * SIDE, axis, dot, flipped=False)
        self.x = self.args.input(p.inputs[0])
        self.w = self.args.constant("b", self._packed(), dot.weights)
        self.first = self.args.constant("first", first, dot.sums)
        self.call = "dpbf16ps" if dot is HALVES else "dpbssd" if p.flip else "dpbusd"
        body = []
        if not isinstance(p.m, int) or p.m <= HIGH:
            body.append(self._few())
        if not isinstance(p.m, int) or p.m > HIGH:
            pending = f"const {dot.element}* sums, int64_t row, int64_t stop, int64_t col"
            self.functions.add("rest", pending, [self._finish(SIDE)])
            self._product(pending)
            body.append(self._blocks())
        helpers = f"{text_of('amx.h')}{GRID}{self.functions.text()}"
        made = kernel(self.args, body, self.ctx, helpers=helpers, preludes=byte.preludes())
        return byte.without_fma(made) if byte.rounds_sums(p.epi.results) else made

    def _finish(self, most: int) -> str:
        """Statements that take at most so many rows of ``sums`` from ``row`` on to the outputs."""
        p = self.p
        left = "" if p.n % SIDE == 0 else f"({p.n} - col)"
        site = RowSite(self.args, p.lead, p.n, self.lanes, left)
        tile = DotTile(p.dot, (0,), SIDE // HIGH, self.lanes)
        body = tile.finish_saved(p.epi, site, "rows", False)
        if left:
            body = "\n".join(
                [
                    block(f"if ({left} >= {SIDE})", body),
                    block("else", tile.finish_saved(p.epi, site, "rows", True)),
                ]
            )
        rows = f"const int64_t rows = stop - row < {most} ? stop - row : {most};"
        return block("", rows, body, "row += rows;", f"sums += rows * {SIDE};")

    def _product(self, pending: str) -> None:
        """The function that multiplies two tiles of rows with a panel, and meanwhile finishes the
        block before.
        """
        kind = self.p.dot.element
        step = [
            *multiply(self.call, "upper + k", "lower + k", self.depth),
            *ask_ahead(),
            self._finish(-(-SIDE * DEEP // self.deep)),
        ]
        parameters = (
            "const uint8_t* upper, const uint8_t* lower, const int8_t* w, const int8_t* next, "
            "int64_t lines, "
            f"const {kind}* first, {kind}* made, {pending}"
        )
        walk = loop("k", "0", str(self.deep), *step, step=DEEP)
        self.functions.add("product", parameters, [*tiles_from("first"), walk, *tiles_to("made")])

    def _few(self) -> str:
        """All there is where rows fill no more than one tile: they are copied as the steps read
        them, 64 bytes of 16 rows together, which lie apart in the first cache, and for each panel
        two tiles of sums go to the outputs at once.
        """
        p, m, depth, deep = self.p, self.args.dim(self.p.m), self.depth, self.deep
        kind = p.dot.element
        body = [
            f"{kind} made[{HIGH * SIDE}] __attribute__((aligned(64)));",
            f"const {kind}* sums = made;",
            "int64_t row = 0;",
            *tiles_from("first", 1),
            loop("k", "0", str(deep), *multiply_few(self.call), step=DEEP),
            *tiles_to("made", 1),
            self._finish(HIGH),
        ]
        parameters = (
            f"const uint8_t* x, const int8_t* w, const {kind}* first, int64_t stop, int64_t col"
        )
        self.functions.add("few", parameters, body)
        size = f"{depth} - k < {DEEP} ? {depth} - k : {DEEP}" if deep > depth else str(DEEP)
        copy = loop(
            "k",
            "0",
            str(deep),
            loop(
                "r",
                "0",
                m,
                f"memcpy(x + k * {HIGH} + r * {DEEP}, (const uint8_t*){self.x} + r * {depth} + k, "
                f"{size});",
            ),
            step=DEEP,
        )
        panel = (
            f"TX_NAME(few)(a, x, (const int8_t*){self.w} + p * {deep * SIDE}, "
            f"{self.first} + p * {SIDE}, {m}, p * {SIDE});"
        )
        lines = [
            f"uint8_t x[{HIGH * deep}] __attribute__((aligned(64)));",
            f"memset(x, 0, {HIGH * deep});",
            copy,
            "TX_NAME(begin)();",
            split(str(self.panels)),
            loop("p", "lo", "hi", panel),
            "_tile_release();",
        ]
        self.functions.add("narrow", "int tid, int nt", lines)
        call = "TX_NAME(narrow)(a, tid, nt);"
        return call if isinstance(p.m, int) else block(f"if ({m} <= {HIGH})", call, "return;")

    def _blocks(self) -> str:
        """Loops over this thread's blocks: rows that stay in the cache, panels, rows."""
        p, m = self.p, self.args.dim(self.p.m)
        depth, deep = self.depth, self.deep
        most = max(1, BLOCK_BYTES // (SIDE * depth))  # blocks of rows in a sweep
        tiles = self.args.dim(ceildiv(p.m, SIDE))
        x = f"(const uint8_t*){self.x}"
        upper, lower = f"end - from < {HIGH}", f"end - from < {SIDE}"
        if deep > depth:  # the last rows lie in rest, full tile or not
            upper, lower = f"end - from <= {HIGH}", f"end == {m}"
        inner = [
            f"const int64_t from = t * {SIDE}, end = from + {SIDE} < {m} ? from + {SIDE} : {m};",
            f"const uint8_t* upper = {upper} ? rest : {x} + from * {depth};",
            f"const uint8_t* lower = {lower} ? rest : upper + {HIGH * depth};",
            f"TX_NAME(product)(a, upper, lower, panel, after + (t - u) * lines * {deep}, lines, "
            f"{self.first} + p * {SIDE}, sums[at], old, row, stop, col);",
            f"old = sums[at]; row = from; stop = end; col = p * {SIDE}; at = 1 - at;",
        ]
        panel = [
            (
                f"const int8_t* panel = (const int8_t*){self.w} + p * {deep * SIDE}, "
                f"*after = panel + {deep * SIDE};"
            ),
            loop("t", "u", "next", *inner),
        ]
        walk = [
            f"const int64_t next = u + {most} < g[1] ? u + {most} : g[1];",
            f"const int64_t lines = ({SIDE - 1} + next - u) / (next - u);",
            loop("p", "g[2]", "g[3]", *panel),
        ]
        left = rows_left(f"g[1] == {tiles}", x, m, depth, deep - depth)
        first = [*left, "int64_t row = 0, stop = 0, col = 0;"]
        return shared_out(
            tiles,
            self.panels,
            p.dot.element,
            first,
            loop("u", "g[0]", "g[1]", *walk, step=most),
            "row, stop, col",
        )
