"""MatMul and Gemm of float32 on the AMX matrix unit of x86-64, to the accuracy of float32.

The unit multiplies bfloat16 and adds float32. A float is the sum of three bfloat16 without error
(its leading 8 bits, the next 8, the rest); of the nine products of such parts the six largest are
summed (as in G. Henry, P. T. P. Tang, A. Heinecke, Leveraging the bfloat16 Artificial Intelligence
Datatype for Higher-Precision Computations, 2019), so that what is left out is below 2^-22 of each
product.

A first launch cuts a into such parts, tile by tile. b stays float32 in panels of 32 columns; while
a slab of a few steps of it is multiplied, the next slab is cut into parts, so that the vector unit
works beside the matrix unit. Rows of a that hold an infinity or NaN are multiplied by vectors
instead, since a part of an infinity times zero is NaN.
"""

from __future__ import annotations

from math import inf

import numpy as np

from tactix.base.dims import Dim, Shape, ceildiv, evaluate, prod, symbols
from tactix.contracts.artifact import KernelArtifact, Packed
from tactix.contracts.device import DeviceProperties
from tactix.contracts.expr import walk
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c.epilogue import Epilogue
from tactix_codegen.c.text import Args, block, kernel, loop, prelude, split
from tactix_codegen.c.tile import GRID, Functions, RegisterTile, TileSite, finish_saved
from tactix_cpu.tactics.dot_tile import HALVES, has_tiles
from tactix_cpu.tactics.estimates import MEMORY, START
from tactix_cpu.tactics.matmul.product import CpuProduct, RowSite, product

WIDTH, DEPTH, HIGH = 32, 32, 16
"""Columns of a panel, two tiles side by side; k of a step, the bfloat16 of a tile's row of 64
bytes; rows of a tile (dot_tile.SIDE says why, and names the manual).
"""
PARTS = 3
"""bfloat16 whose sum a float is: 3 x 8 bits make its 24."""
TILE = HIGH * DEPTH
"""Elements of a tile of bfloat16: 512, 1 KiB."""
A_STEP = PARTS * TILE
"""Elements of a step of a row tile, cut into parts ``[part][row][k]``: 1536, 3 KiB."""
B_STEP = PARTS * 2 * TILE
"""Elements of a step of a panel, cut into parts of two tiles each: 3072, 6 KiB."""
W_STEP = DEPTH * WIDTH
"""Floats of a step of a panel before it is cut: 1024, 4 KiB."""
FEWEST = 8
"""Rows of a below which a tile, of 16, is mostly empty. Where fewer would still pay is not on
record.
"""
GROUP = 16
"""Row tiles that are multiplied with a slab before the next slab: each pays its share for cutting
the slab, so many are better, as long as their parts stay in the second cache (``_pass_steps``). No
measurement of their number is on record.
"""
SLABS = (12, 10, 9, 8, 7)
"""Steps of a slab: what divides the depth best. A slab in parts has 6 KiB a step, 42 to 72 KiB; the
one that is multiplied and the one that is cut meanwhile stay in the second cache, on the stack of
the thread. No measurement of these lengths is on record.
"""
ORDER = ((0, 2), (0, 1), (1, 1), (1, 0), (0, 0), (2, 0))
"""Parts of a and b in the order in which they are multiplied: each pair keeps one part of the pair
before, so that six pairs need 7 loads of parts in place of 12.
"""
L2_BYTES = 1 << 20
"""Bytes of the second cache, where the device does not tell; see gemm.L2_BYTES."""
PARTS_SHARE = 5, 8
"""Part of the second cache that the parts of a group of rows may take, as numerator and
denominator: two slabs and the sums take the rest. No measurement of it is on record.
"""
FLOPS = 3.5e11
"""Floating-point operations of float32 per second of a core, for estimates. Six products of
bfloat16 make one, 1024 operations a cycle (Intel, Optimization Reference Manual), so that a core of
3 GHz could do 5.1e11: this is two thirds of it. No measurement of it alone is on record; networks
of such products reach 99 to 114 % of the peak of float32 instructions (docs/benchmarks.md, fp32, 1
thread: bert_base, vit_b16, gpt2).
"""
CUT_A, CUT_B = 2e-10, 1e-10
"""Seconds to cut an element of a, in a launch of its own, and of b, beside the matrix unit: both
for estimates. At 3 GHz a vector of 16 takes 10 and 5 cycles. No measurement of them is on record.
"""
SPILL, SPILL_RATE = 1 << 24, 5e9
"""Bytes of parts that go to memory and come back, as they are more than a core's share of the third
cache, and bytes of them per second: 16 ms more for 65 MB on two cores of a Sapphire Rapids guest
(a convolution of 64 channels and 27 taps over 6272 pixels).
"""
PLACE = f"{{0}} / {HIGH} * {B_STEP} + {{0}} % {HIGH} * {2 * HIGH}"
"""Where a pair of rows of b goes in a slab: ``[step][part][half of the
columns][pair][column][row]``. The unit takes pairs of k side by side
(Intel, Software Developer's Manual, TDPBF16PS).
"""
FREE = frozenset({"var", "const", "add", "sub", "neg", "abs", "min", "max"})
"""Operations of results that are an instruction each, whoever writes it: no functions, and no
products, which would be rounded before they are added. With the sigmoids of efficientnet_b0 as well
a call took 3.5 % more.
"""
PARAMETERS = (
    "const uint16_t* a, int64_t pitch, const uint16_t* b, float* sums, int first, "
    "const float* w, uint16_t* s, int64_t cut"
)
"""Parts of a, the distance of its tiles, a slab, sums, whether they start; what to cut, to where,
from which row on.
"""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [AmxGemmTactic()]


class AmxGemmTactic(Tactic[CpuProduct]):
    """float32; one constant finite matrix b for all rows; any shapes of a, symbolic ones too."""

    key = "tactix.c_gemm_amx@1"
    implements = ("tactix.Gemm@1", "tactix.MatMul@1")
    source = "c"
    by_signature = True
    requires = HALVES.unit

    def match(self, node: Node, device: DeviceProperties) -> CpuProduct | Reject:
        if not has_tiles(device, HALVES):
            return Reject("it needs AMX with bfloat16, and AVX-512")
        p = product(node)
        if isinstance(p, Reject):
            return p
        if not p.constant_b or p.batch or p.transposed_a or p.b_count != 1:
            return Reject("it takes one constant right side, and rows of a")
        if p.k == 0 or p.n == 0 or (isinstance(p.m, int) and p.m < FEWEST):
            return Reject("there are too few rows or columns")
        if not np.isfinite(node.given[p.b].array).all():
            return Reject("a weight is not finite")
        return p

    def cost(self, p: CpuProduct, variant: Variant, ctx: CompileContext) -> float | None:
        if not symbols(p.m) <= set(ctx.opt):
            return None
        if evaluate(p.m, ctx.opt) < FEWEST:
            return inf
        m, n, k = (evaluate(d, ctx.opt) for d in (p.m, p.n, p.k))
        return seconds(m, n, k, ctx.threads)

    def compile(self, p: CpuProduct, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        return _GemmKernel(p, ctx).artifact()


def seconds(m: int, n: int, k: int, threads: int, images: int = 1, matrices: int = 1) -> float:
    """An estimate of ``images`` products of m rows and k with a matrix of n columns, which they
    take in turn.
    """
    m, n, k = (-(-d // unit) * unit for d, unit in ((m, HIGH), (n, WIDTH), (k, DEPTH)))
    # Cutting b is hidden behind the unit where there are rows enough: all of it shows below 128
    # rows, a quarter at a group of 256, less with more. No measurement of that is on record.
    cutting = CUT_B * n * k / max(1, 4 * m // (GROUP * HIGH)) + CUT_A * m * k
    parts = images * 2 * PARTS * m * k
    spilled = parts / SPILL_RATE if parts > SPILL else 0.0
    work = (images * (2 * m * n * k / FLOPS + cutting) + spilled) / max(1, threads)
    return 4 * START + work + matrices * 4 * n * k / MEMORY


def slab_steps(steps: int) -> int:
    """Steps of a slab, for so many in all."""
    return (
        min(SLABS, key=lambda s: (-(-steps // s) * s, SLABS.index(s)))
        if steps > SLABS[0]
        else steps
    )


class PartsKernel:
    """Writes one kernel: ``images`` times ``m`` rows of a, cut into parts of ``depth`` elements
    each, times b; or times one of ``matrices``, which images take in turn.

    What a subclass tells: b as panels, where elements of a row lie, and where results go, at the C
    variables ``image``, ``row`` and ``col``.
    """

    def __init__(
        self,
        node: Node,
        ctx: CompileContext,
        m: Dim,
        n: int,
        depth: int,
        epi: Epilogue,
        images: Dim,
        matrices: int = 1,
    ) -> None:
        self.m, self.n, self.epi, self.images, self.ctx = m, n, epi, images, ctx
        self.matrices = matrices
        self.args = Args(node)
        self.functions = Functions(self.args)
        steps = -(-depth // DEPTH)
        self.slab = slab_steps(steps)
        self.steps = -(-steps // self.slab) * self.slab
        self.rows = min(evaluate(m, ctx.opt) if symbols(m) <= set(ctx.opt) else 128, GROUP * HIGH)
        self.pass_steps = self._pass_steps()
        pairs = max(1, self.rows // (2 * HIGH))
        # Pairs of rows of b that are cut for each step of a pair of tiles: the least that is done
        # with the next slab (16 pairs a step) when all pairs of tiles are.
        self.rate = next(r for r in (1, 2, 4, 8, 16) if r * pairs >= HIGH)
        self.tiles: Dim = ceildiv(m, HIGH)

    @property
    def preludes(self) -> tuple[str, ...] | None:
        """What the text includes beside amx.h, if not what vectors need alone."""
        return None

    def right_side(self, start: Dim) -> tuple[str, Dim]:
        """A pointer to ``panels``, and the bytes of workspace from ``start`` on that these take."""
        return self.args.constant("b", self.panels()), 0

    def helpers(self) -> str:
        """C functions that the lines of ``place`` call."""
        return ""

    def before(self) -> list[str]:
        """C statements of the first launch that make the right side, if it is no constant."""
        return []

    def panels(self) -> Packed:
        """b as (matrices, panels, k, columns of a panel), zero past its end, float32: its parts
        would be half as much again to read.
        """
        raise NotImplementedError

    def place(self) -> list[str]:
        """C lines that declare, for ``step`` of a row: pointer ``x``, ``half`` to its last 16,
        ``left`` elements.
        """
        raise NotImplementedError

    def site(self) -> tuple[TileSite, str]:
        """Where results go, and C text to stand before."""
        raise NotImplementedError

    def _pass_steps(self) -> int:
        """Steps after which partial sums are put aside, so that the parts of a group of rows stay
        in the cache.
        """
        share, of = PARTS_SHARE
        most = int(self.ctx.device.facts.get("l2", L2_BYTES)) * share // of
        row = DEPTH * PARTS * 2  # bytes of a row's step in parts of 2 bytes
        fit = max(1, most // (self.rows * row * self.slab)) * self.slab
        passes = -(-self.steps // fit)
        return -(-self.steps // (passes * self.slab)) * self.slab

    def artifact(self) -> KernelArtifact:
        """The kernel as data."""
        args, panels = self.args, -(-self.n // WIDTH)
        groups: Dim = self.images * ceildiv(self.m, GROUP * HIGH)
        cells = self.images * self.tiles * self.steps
        # Bytes: a step of a tile in parts; a flag of 4, filled up to cache lines.
        parts, flags = cells * (2 * A_STEP), ceildiv(cells, 16) * 64
        sums: Dim = (
            groups * (panels * GROUP * HIGH * WIDTH * 4) if self.pass_steps < self.steps else 0
        )
        self.w, written = self.right_side(parts + flags + sums)
        self.right = "matrix" if self.matrices > 1 else self.w
        self.parts, self.flags = args.workspace(0, "uint16_t"), args.workspace(parts, "int32_t")
        self.sums = args.workspace(parts + flags) if sums != 0 else ""
        self._finish()
        body = [
            block(f"if ({args.phase(0)} == 0)", self._cut(), *self.before(), "return;"),
            self._multiply(panels, args.dim(groups)),
        ]
        own = f"{self.helpers()}{GRID}{self._round(2)}{self._round(1)}{self.functions.text()}"
        helpers = f"{prelude('amx.h')}{own}"
        size = parts + flags + sums + written
        return kernel(
            args,
            body,
            self.ctx,
            helpers=helpers,
            preludes=self.preludes,
            workspace=size,
            phases=2,
            straight=self._is_straight(),
        )

    def _is_straight(self) -> bool:
        """Whether next to all of its time goes into the functions of ``_round``."""
        ops = {s.op for s in walk(self.epi.results)}
        return ops <= FREE and not self.helpers()

    def _finish(self) -> None:
        """Functions that write results: of 32 rows, of one row, and of one row that is multiplied
        by vectors.
        """
        site, before = self.site()
        where = "int64_t image, int64_t row, int64_t col"
        for rows in (2 * HIGH, 1):
            tile = RegisterTile(rows, 2, 16)
            body = finish_saved(tile, self.epi, site, "sums", False)
            if site.left:
                rest = finish_saved(tile, self.epi, site, "sums", True)
                body = f"{block(f'if ({site.left} >= {WIDTH})', body)}\n{block('else', rest)}"
            self.functions.add(
                f"finish{rows}", f"const float* sums, {where}", ["(void)image;", before, body]
            )
        walk = loop(
            "k",
            "0",
            "(left < 32 ? left : 32)",
            "const vf v = tx_splat(x[k < 16 ? k : k - 16 + half]);",
            f"const float* b = w + (step * {DEPTH} + k) * 32;",
            "s0 += v * tx_load_f32(b);",
            "s1 += v * tx_load_f32(b + 16);",
        )
        self.functions.add(
            "vectors",
            f"const float* w, {where}",
            [
                "vf s0 = tx_zero(), s1 = tx_zero();",
                loop("step", "0", str(self.steps), *self.place(), walk),
                "float sums[32] __attribute__((aligned(64)));",
                "tx_store_f32(sums, s0);",
                "tx_store_f32(sums + 16, s1);",
                "TX_NAME(finish1)(a, sums, image, row, col);",
            ],
        )

    def _round(self, tiles: int) -> str:
        """The function ``TX_NAME(round{tiles})``: one slab times one or two row tiles, and some of
        the next slab.
        """
        # Registers: 0 to 3 hold sums, 4 and 5 a part of a for either tile, 6 and 7 a part of b for
        # either half of the columns. Between products stand pieces of the cutting: the unit takes
        # 16 cycles for each, in which the vector unit would idle.
        held, lines = (-1, -1), []
        place = [
            f"const int64_t row = cut + k * {self.rate};",
            f"uint16_t* to = s + {PLACE.format('row')};",
        ]
        for g, (i, j) in enumerate(ORDER):
            if i != held[0]:
                lines += [
                    f"_tile_loadd({4 + t}, a + {t} * pitch + {i * TILE}, 64);" for t in range(tiles)
                ]
            if j != held[1]:
                lines += [f"_tile_loadd({6 + c}, b + {(2 * j + c) * TILE}, 64);" for c in range(2)]
            lines += [
                f"_tile_dpbf16ps({2 * t + c}, {4 + t}, {6 + c});"
                for t in range(tiles)
                for c in range(2)
            ]
            lines += [
                f"if (more) TX_NAME(cut)(w + (row + {n}) * 64, to + {n * 32});"
                for n in range(g * self.rate // len(ORDER), (g + 1) * self.rate // len(ORDER))
            ]
            held = (i, j)
        lines.append(f"a += {A_STEP}; b += {B_STEP};")
        at = [(t, c, f"sums + {t * 512 + c * 16}") for t in range(tiles) for c in range(2)]
        body = [
            block("if (first)", *(f"_tile_zero({2 * t + c});" for t, c, _ in at)),
            block("else", *(f"_tile_loadd({2 * t + c}, {place}, 128);" for t, c, place in at)),
            loop("k", "0", str(self.slab), *place, *lines),
            *(f"_tile_stored({2 * t + c}, {place}, 128);" for t, c, place in at),
        ]
        head = f"TX_INLINE void TX_NAME(any{tiles})({PARAMETERS}, const int more)"
        both = [
            block(
                f"TX_RARE void TX_NAME({name}{tiles})({PARAMETERS})",
                f"TX_NAME(any{tiles})(a, pitch, b, sums, first, w, s, cut, {more});",
            )
            for more, name in enumerate(("plain", "round"))
        ]
        return "\n".join([block(head, *body), *both, ""])

    def _cut(self) -> str:
        """The first launch: rows of a as parts ``[tile][step][part][row][k]``; whether any is not
        finite.
        """
        steps, tiles = self.steps, self.args.dim(self.tiles)
        out = f"{self.parts} + u * {A_STEP} + r * {DEPTH}"
        body = [
            f"const int64_t step = u % {steps}, image = u / {steps} / {tiles};",
            "int bad = 0;",
            "(void)image;",
            loop(
                "r",
                "0",
                str(HIGH),
                f"const int64_t row = u / {steps} % {tiles} * {HIGH} + r;",
                *self.place(),
                f"bad |= TX_NAME(cut_row)(x, half, left, {out});",
            ),
            f"{self.flags}[u] = bad;",
        ]
        mine = split(self.args.dim(self.images * self.tiles * steps))
        return f"{mine}\n{loop('u', 'lo', 'hi', *body)}"

    def _multiply(self, panels: int, groups: str) -> str:
        m, size, each = (
            self.args.dim(self.m),
            GROUP * HIGH,
            self.args.dim(ceildiv(self.m, GROUP * HIGH)),
        )
        group = [
            f"const int64_t image = u / {each}, row0 = u % {each} * {size};",
            (
                f"const int64_t rows = {m} - row0 < {size} ? {m} - row0 : {size}, "
                f"tiles = (rows + {HIGH - 1}) / {HIGH};"
            ),
            (
                f"const int64_t first = (image * {self.args.dim(self.tiles)} + row0 / {HIGH}) "
                f"* {self.steps};"
            ),
            *self._matrix(panels),
            "int bad = 0;",
            loop("i", "first", f"first + tiles * {self.steps}", f"bad |= {self.flags}[i];"),
            block(
                "if (bad)",
                f"if (d + {self.pass_steps} >= {self.steps})",
                self._by_vectors(),
                "continue;",
            ),
            f"const uint16_t* rows_of_a = {self.parts} + (first + d) * {A_STEP};",
            "int at = 0;",
            *self._cut_slab(
                f"{self.right} + (g[2] * {self.steps} + d) * {W_STEP}", "slabs[0]", "0"
            ),
            loop("p", "g[2]", "g[3]", *self._panel(groups)),
        ]
        walk = loop("u", "g[0]", "g[1]", *group)
        stop = f"d + {self.pass_steps} < {self.steps} ? d + {self.pass_steps} : {self.steps}"
        passes = loop(
            "d", "0", str(self.steps), f"const int64_t end = {stop};", walk, step=self.pass_steps
        )
        own = "" if self.sums else f"float own[{size * WIDTH}] __attribute__((aligned(64)));"
        head = [
            "int64_t g[4];",
            f"TX_NAME(grid)({groups}, {panels}, tid, nt, g);",
            "if (g[2] >= g[3]) return;",
        ]
        slabs = f"uint16_t slabs[2][{self.slab * B_STEP}] __attribute__((aligned(64)));"
        return "\n".join([*head, slabs, own, "TX_NAME(begin)();", passes, "_tile_release();"])

    def _matrix(self, panels: int) -> list[str]:
        """Declare where b of this image lies, where there are several."""
        if self.matrices == 1:
            return []
        size = panels * self.steps * W_STEP
        return [f"const float* {self.right} = {self.w} + image % {self.matrices} * {size};"]

    def _cut_slab(self, source: str, target: str, begin: str) -> list[str]:
        cut = f"TX_NAME(cut)({source} + j * 64, {target} + {PLACE.format('j')});"
        return [loop("j", begin, str(self.slab * HIGH), cut)]

    def _by_vectors(self) -> str:
        call = (
            f"TX_NAME(vectors)(a, {self.right} + p * {self.steps * W_STEP}, image, row0 + r, "
            f"p * {WIDTH});"
        )
        return loop("p", "g[2]", "g[3]", loop("r", "0", "rows", call))

    def _panel(self, groups: str) -> list[str]:
        """All slabs of a panel in this pass, then the results."""
        steps, slab = self.steps, self.slab
        sums = f"{self.sums} + (p * {groups} + u) * {GROUP * HIGH * WIDTH}" if self.sums else "own"
        after = f"k + {slab} < end ? p * {steps} + k + {slab} : (p + 1) * {steps} + d"
        common = (
            f"rows_of_a + (t * {steps} + k - d) * {A_STEP}, {steps * A_STEP}, slabs[at], "
            "sums + t * 512, k == 0"
        )
        more = f"{common}, next, slabs[1 - at], cut"
        calls = [
            "const int two = t + 1 < tiles;",
            block(
                f"if (next && cut < {slab * HIGH})",
                f"if (two) TX_NAME(round2)({more});",
                f"else TX_NAME(round1)({more});",
                f"cut += {slab * self.rate};",
            ),
            f"else if (two) TX_NAME(plain2)({common}, 0, 0, 0);",
            f"else TX_NAME(plain1)({common}, 0, 0, 0);",
        ]
        walk = [
            (
                f"const float* next = k + {slab} < end || p + 1 < g[3] "
                f"? {self.right} + ({after}) * {W_STEP} : 0;"
            ),
            "int64_t cut = 0;",
            loop("t", "0", "tiles", *calls, step=2),
            block("if (next)", *self._cut_slab("next", "slabs[1 - at]", "cut")),
            "at = 1 - at;",
        ]
        last = [
            f"const int64_t row = row0 + t * {HIGH};",
            (
                f"if (rows - t * {HIGH} >= 32) TX_NAME(finish32)(a, sums + t * 512, image, row, "
                f"p * {WIDTH});"
            ),
            "else "
            + loop(
                "r",
                "0",
                f"rows - t * {HIGH}",
                f"TX_NAME(finish1)(a, sums + t * 512 + r * 32, image, row + r, p * {WIDTH});",
            ),
        ]
        return [
            f"float* sums = {sums};",
            loop("k", "d", "end", *walk, step=slab),
            block(f"if (end == {steps})", loop("t", "0", "tiles", *last, step=2)),
        ]


class RowsKernel(PartsKernel):
    """Rows of a row-major matrix, the given input ``a``; ``lead``: the axes that they flatten."""

    def __init__(
        self, node: Node, ctx: CompileContext, lead: Shape, n: int, k: int, epi: Epilogue, a: int
    ) -> None:
        super().__init__(node, ctx, prod(lead), n, k, epi, 1)
        self.lead, self.k, self.x = lead, k, self.args.input(a)

    def place(self) -> list[str]:
        return [
            f"const float* x = {self.x} + row * {self.k} + step * {DEPTH};",
            (
                f"const int64_t half = 16, left = row < {self.args.dim(self.m)} "
                f"? {self.k} - step * {DEPTH} : 0;"
            ),
        ]

    def site(self) -> tuple[TileSite, str]:
        left = f"({self.n} - col)" if self.n % WIDTH else ""
        return RowSite(self.args, self.lead, self.n, 16, left), ""


class _GemmKernel(RowsKernel):
    """Times a constant matrix of float32."""

    def __init__(self, p: CpuProduct, ctx: CompileContext) -> None:
        assert isinstance(p.k, int)
        assert isinstance(p.n, int)
        super().__init__(p.node, ctx, p.lead, p.n, p.k, p.epi, p.a)
        self.p = p

    def panels(self) -> Packed:
        return self.p.pack_b(WIDTH, self.steps * DEPTH)
