"""FewBitsMatMul: float32 rows times weights of 2, 4 or 8 bits, which plans and kernels keep as they
are, with any pointwise epilogue.

Weights lie in panels ``[panel][group][column]`` of 32 bits, a group the numbers of k that these
hold: a vector has one group of each of its columns, and a shift and a mask make the next number of
all of them. Few rows multiply numbers as they are made, block by block, and scale the sums of a
block; the zero point is taken off by the sum of the block's part of a. For more rows a thread
writes parts of a panel out in float32, which all its tiles of rows read.
Knobs: ``rows`` and ``vectors`` of the largest tile; up to ``DIRECT`` rows nothing is written out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tactix.base.dims import Dim, ceildiv, evaluate, symbols
from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact, Packed
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import text as c_text
from tactix_codegen.c import tile as c_tile
from tactix_codegen.c.text import Args, block, comment, kernel, loop
from tactix_codegen.c.tile import GRID, Functions, RegisterTile, by_rows, finish
from tactix_codegen.operations.few_bits import FewBitsWork, few_bits
from tactix_cpu.tactics.estimates import CLOCK, MEMORY, START
from tactix_cpu.tactics.matmul.gemm import tile_shapes
from tactix_cpu.tactics.matmul.product import RowSite

DIRECT = 6
"""Rows of a tile that multiplies numbers as it makes them: with 32 registers 6 x 2 sums of a block
and as many of all blocks.
"""
DIRECT_NARROW = 4
"""The same with 16 registers, of one vector."""
MOST_DIRECT = 8
"""Rows of a that are not worth a panel written out, which takes about as long as making the numbers
of two tiles. No measurement of it is on record.
"""
PART = 256
"""Steps of k that are written out at a time: 32 columns of them are 32 KiB, and stay in the first
or second cache for all tiles of rows.
"""
MAKE, WRITE = 1.5, 3.0
"""Cycles to make a vector of numbers, and to scale and write it too: three and six operations, of
which two start in a cycle.
"""
AHEAD = 16
"""Groups of each column, of 4 bytes, that few rows ask for ahead: 2 to 3 KiB. With 8 and with 16
they took 0.79 to 0.83 of the time of not asking, 1 row and 4 (130 MB of weights on a Xeon with
AVX-512, the shortest of 80 turns, other work running).
"""
OFFERED = 2
"""Variants of a node at most. Each costs a compilation, 0.3 s with gcc on the prototype."""
SCALES = (DType.FP32, DType.FP16)


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [FewBitsTactic()]


class FewBitsProduct(FewBitsWork):
    """How many numbers lie together."""

    @property
    def group(self) -> int:
        """Numbers in 32 bits."""
        return 32 // self.bits


def few_bits_product(node: Node) -> FewBitsProduct | Reject:
    """What a node computes, or why kernels of these cannot take it."""
    work = few_bits(node, FewBitsProduct, (DType.FP32,), SCALES)
    if isinstance(work, Reject):
        return work
    if work.block * work.bits % 32:
        return Reject("this kernel takes blocks of whole groups of 32 bits")
    return work


class FewBitsTactic(Tactic[FewBitsProduct]):
    """float32 times constant weights; any sizes, rows may be symbolic."""

    key = "tactix.c_few_bits@1"
    implements = ("tactix.FewBitsMatMul@1",)
    source = "c"
    by_signature = True
    spreads = True
    """Infinities in a row of ``a`` leave no number: zero points are taken off by sums of it."""

    def match(self, node: Node, device: DeviceProperties) -> FewBitsProduct | Reject:
        return few_bits_product(node)

    def variants(self, p: FewBitsProduct, device: DeviceProperties) -> Sequence[Variant]:
        if isinstance(p.m, int) and p.m <= MOST_DIRECT:
            rows = _direct_rows(p.m, device)
            few = [(rows, v) for v in _direct_vectors(rows, device)]
        else:
            few = tile_shapes(p.m, p.n, device)
        return [Variant.of(rows=rows, vectors=vectors) for rows, vectors in few[:OFFERED]]

    def cost(self, p: FewBitsProduct, variant: Variant, ctx: CompileContext) -> float | None:
        if not symbols(p.m) <= set(ctx.opt):
            return None
        m, lanes = evaluate(p.m, ctx.opt), max(4, ctx.device.lanes)
        rows, vectors = variant.number("rows"), variant.number("vectors")
        tiles = -(-m // rows)
        making = WRITE if m > MOST_DIRECT else MAKE * tiles
        each = making * vectors + tiles * c_tile.step_cycles(min(m, rows), vectors)
        panels = -(-p.n // (vectors * lanes))
        stored = p.n * p.k * p.bits / 8
        return START + panels * p.k * each / CLOCK / max(1, ctx.threads) + stored / MEMORY

    def compile(self, p: FewBitsProduct, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        return _Kernel(p, variant, ctx).artifact()


def _direct_rows(m: int, device: DeviceProperties) -> int:
    """Rows of tiles of about equal height."""
    most = DIRECT if c_tile.registers(device) == 32 else DIRECT_NARROW
    return -(-m // -(-m // most))


def _direct_vectors(rows: int, device: DeviceProperties) -> tuple[int, ...]:
    """Vectors of such tiles: two sums of each stay in registers."""
    if c_tile.registers(device) == 32:
        return (4, 2) if rows <= 2 else (2,)
    return (2, 1) if rows <= 2 else (1,)


class PackedNumbers:
    """The weights as constants of a kernel, in panels of ``vectors`` vectors, and how vectors of
    numbers are made of them. Sizes BLOCK, BLOCKS and WIDTH are the kernel's.
    """

    def __init__(self, p: FewBitsProduct, args: Args, vectors: int, lanes: int) -> None:
        self.p, self.args, self.vectors, self.lanes = p, args, vectors, lanes
        self.width = vectors * lanes
        self.panels = -(-p.n // self.width)
        for name, size in {"BLOCK": p.block, "BLOCKS": p.blocks, "WIDTH": self.width}.items():
            args.size(name, size)
        self.w = args.constant("b", self._packed_weights(), DType.UINT8)
        self.scales = self._vectors("s", p.inputs[2])
        self.zeros = self._vectors("z", p.inputs[3]) if p.inputs[3] >= 0 else ""

    def _packed_weights(self) -> Packed:
        """Bytes (n, blocks, bytes) as [panel][group][column][byte]."""
        p = self.p
        groups = p.blocks * p.block // p.group
        steps: tuple[tuple[str, Any], ...] = (
            ("reshape", (p.n, groups, 4)),
            ("pad", ((0, self.panels * self.width - p.n), (0, 0), (0, 0))),
            ("reshape", (self.panels, self.width, groups, 4)),
            ("transpose", (0, 2, 1, 3)),
        )
        return Packed(p.inputs[1], steps)

    def _vectors(self, name: str, index: int) -> str:
        """Numbers of blocks (n, blocks) as [panel][block][column]."""
        p = self.p
        steps: tuple[tuple[str, Any], ...] = (
            ("pad", ((0, self.panels * self.width - p.n), (0, 0))),
            ("reshape", (self.panels, self.width, p.blocks)),
            ("transpose", (0, 2, 1)),
        )
        return self.args.constant(name, Packed(index, steps), p.node.given[index].spec.dtype)

    def scale(self, vector: int) -> str:
        """A vector of the scales of block ``j``; ``col``: the panel's first column."""
        return self._of_block(self.scales, self.p.inputs[2], vector)

    def zero(self, vector: int) -> str:
        """The same of the zero points."""
        if not self.zeros:
            return f"tx_splat({1 << self.p.bits - 1}.0f)"
        value = self._of_block(self.zeros, self.p.inputs[3], vector)
        whole = self.p.node.given[self.p.inputs[3]].spec.dtype is DType.UINT8
        return f"tx_to_f({value})" if whole else value

    def _of_block(self, pointer: str, index: int, vector: int) -> str:
        dtype = self.p.node.given[index].spec.dtype
        place = self.args.sum(pointer, "col * BLOCKS + j * WIDTH", str(vector * self.lanes))
        return c_text.load(dtype, place)

    @property
    def panel(self) -> str:
        """Where the panel of ``col`` begins."""
        groups = self.p.blocks * self.p.block // self.p.group
        return f"{self.w} + col * {4 * groups}"

    def loads(self) -> list[str]:
        """Declare the vectors of the group at ``w``."""
        return [
            f"const vi word{n} = tx_load_i32(w + {4 * n * self.lanes});"
            for n in range(self.vectors)
        ]

    def number(self, vector: int, i: int) -> str:
        """Number ``i`` of a group."""
        lane = f"tx_down(word{vector}, {self.p.bits * i})" if i else f"word{vector}"
        return f"tx_number_{self.p.bits}({lane})"

    def writer(self) -> tuple[str, list[str], str]:
        """Parameters, body and comment of ``write(out, col, k0, depth)``: a part of a panel in
        float32, [k][column].
        """
        p = self.p
        each = range(self.vectors)
        factors = [
            line
            for n in each
            for line in (
                f"const vf scale{n} = {self.scale(n)};",
                f"const vf less{n} = {self.zero(n)} * scale{n};",
            )
        ]
        stores = [
            f"tx_store_f32({self.args.sum('out', str(i * self.width + n * self.lanes))}, "
            f"{self.number(n, i)} * scale{n} - less{n});"
            for i in range(p.group)
            for n in each
        ]
        move = f"w += {4 * self.width}; out += {p.group * self.width};"
        group = loop("g", "0", str(p.block // p.group), *self.loads(), *stores, move)
        body = [
            f"const uint8_t* w = {self.panel} + k0 / {p.group} * {4 * self.width};",
            loop("j", "k0 / BLOCK", "(k0 + depth + BLOCK - 1) / BLOCK", *factors, group),
        ]
        about = (
            f"depth steps of k from k0 on of the {self.width} columns from col on, in float32, "
            "a row of columns for each."
        )
        return "float* out, int64_t col, int64_t k0, int64_t depth", body, about


def few_bits_preludes() -> tuple[str, ...]:
    """What the texts of ``PackedNumbers`` include."""
    return (*c_text.vector_preludes(), c_text.prelude("few_bits.h"))


class _Kernel:
    """Writes one kernel."""

    def __init__(self, p: FewBitsProduct, variant: Variant, ctx: CompileContext) -> None:
        self.p, self.ctx = p, ctx
        self.lanes = max(4, ctx.device.lanes)
        self.rows, self.vectors = variant.number("rows"), variant.number("vectors")
        self.width = self.vectors * self.lanes
        self.panels = -(-p.n // self.width)
        self.args = Args(p.node)
        self.functions = Functions(self.args)
        sizes = {"M": p.m, "N": p.n, "K": p.k, "PANELS": self.panels}
        for name, size in sizes.items():
            self.args.size(name, size)
        self.numbers = PackedNumbers(p, self.args, self.vectors, self.lanes)

    def artifact(self) -> KernelArtifact:
        p, args = self.p, self.args
        self.x = args.input(p.inputs[0])
        few = isinstance(p.m, int) and p.m <= MOST_DIRECT
        direct = self._direct()
        threads = max(1, self.ctx.threads)
        room: Dim = 0
        if not few:
            room = threads * self._panel_bytes + self._sums_bytes * threads
            self.panel = args.workspace(0)
            start = args.workspace(threads * self._panel_bytes) if self._in_parts else ""
            self._sums = f"{start} + tid * M * WIDTH"
        body = direct if few else self._written()
        if isinstance(p.m, int):
            lines = [body]
        else:
            lines = [block(f"if (M <= {MOST_DIRECT})", direct, "return;"), body]
        head = [] if few else c_text.at_most(threads)
        return kernel(
            args,
            [*head, *lines],
            self.ctx,
            helpers=f"{GRID}{self.functions.text()}",
            preludes=few_bits_preludes(),
            workspace=room,
        )

    # -- few rows ----------------------------------------------------------------------------------

    def _direct(self) -> str:
        """Loops over this thread's panels, and tiles of rows that make numbers as they go."""
        p = self.p
        most = self.rows if isinstance(p.m, int) else min(self.rows, DIRECT_NARROW)
        sizes = self._sizes(most)
        for rows in sizes:
            self._direct_function(rows)

        def call(size: int) -> str:
            place = "p * WIDTH"
            return f"TX_NAME(few{size})(a, {self.x} + r * K, r, {place});"

        tiles = by_rows(sizes, "r", "M", call)
        return "\n".join(
            [
                comment("panels [first, end) of columns are this thread's"),
                "int64_t first, end;",
                "tx_split(PANELS, 1, tid, nt, &first, &end);",
                loop("p", "first", "end", "int64_t r = 0;", tiles),
            ]
        )

    def _sizes(self, most: int) -> tuple[int, ...]:
        m = self.p.m if isinstance(self.p.m, int) else None
        rest = c_tile.rest_sizes(most, m)
        return rest if m is not None and m < most else (most, *rest)

    def _direct_function(self, rows: int) -> None:
        p = self.p
        tile = RegisterTile(rows, self.vectors, self.lanes)
        whole, rest = divmod(p.k, p.block)
        part = [self._block(tile, "BLOCK", p.block)]
        body = [
            tile.zero(),
            f"const uint8_t* w = {self.numbers.panel};",
            loop("j", "0", str(whole), *part),
        ]
        if rest:
            at = [f"const int64_t j = {whole};", self._block(tile, str(rest), rest)]
            body.append(block("", comment("the last block, of which a row has a part"), *at))
        about = (
            f"{rows} rows of y from row on, and {self.vectors} x {self.lanes} columns from col on: "
            "sums s of blocks' sums b, from which zero points times sums of x are taken, times "
            "scales."
        )
        parameters = "const float* x, int64_t row, int64_t col"
        self.functions.add(
            f"few{rows}", parameters, [*body, *finish(tile, p.epi, self._site)], about
        )

    @property
    def _site(self) -> RowSite:
        left = "" if self.p.n % self.width == 0 else "N - col"
        return RowSite(self.args, self.p.lead, self.p.n, self.lanes, left)

    def _block(self, tile: RegisterTile, size: str, count: int) -> str:
        """Statements that add block ``j``, of ``count`` numbers, to the sums."""
        groups, rest = divmod(count, self.p.group)
        chains = c_tile.chains_for(tile.rows, tile.vectors, 2)
        sums = [f"b{m}_{n}_{c} = tx_zero()" for m, n in tile.places() for c in range(chains)]
        lines = [f"vf {', '.join(sums)};", f"const float* k = x + j * {self.p.block};"]
        lines.append(loop("g", "0", str(groups), *self._group(tile, self.p.group, chains)))
        if rest:
            lines.append(block("", *self._group(tile, rest, chains)))
        lines += [
            f"const vf t{m} = tx_splat(tx_total(x + {m} * K + j * {self.p.block}, {size}));"
            for m in range(tile.rows)
        ]
        for n in range(tile.vectors):
            added = [
                f"{tile.acc(m, n)} += scale * "
                f"({' + '.join(f'b{m}_{n}_{c}' for c in range(chains))} - zero * t{m});"
                for m in range(tile.rows)
            ]
            factors = f"const vf scale = {self.numbers.scale(n)}, zero = {self.numbers.zero(n)};"
            lines.append(block("", factors, *added))
        return "\n".join(lines)

    def _group(self, tile: RegisterTile, count: int, chains: int) -> list[str]:
        """``count`` numbers of each column, and of each row of x from ``k`` on."""
        lines = self.numbers.loads()
        for i in range(count):
            numbers = [f"const vf q{n} = {self.numbers.number(n, i)};" for n in range(tile.vectors)]
            sums = [
                " ".join(
                    [
                        f"{{ const vf v = tx_splat(k[{self.args.sum(f'{m} * K', str(i))}]);",
                        *(f"b{m}_{n}_{i % chains} += v * q{n};" for n in range(tile.vectors)),
                        "}",
                    ]
                )
                for m in range(tile.rows)
            ]
            lines.append(block("", *numbers, *sums))
        row = 4 * self.width  # bytes
        ahead = [f"__builtin_prefetch(w + {AHEAD * row + at}, 0, 3);" for at in range(0, row, 64)]
        return [*lines, *ahead, f"k += {count}; w += {row};"]

    # -- many rows ---------------------------------------------------------------------------------

    @property
    def _part(self) -> int:
        """Steps of k that are written out at a time: whole blocks, and no more than there are."""
        most = max(1, PART // self.p.block)
        return self.p.block * min(most, self.p.blocks)

    @property
    def _in_parts(self) -> bool:
        return self._part < self.p.k

    @property
    def _panel_bytes(self) -> int:
        return self._part * self.width * 4

    @property
    def _sums_bytes(self) -> Dim:
        """Of sums of all rows over a part of k."""
        return self.p.m * (self.width * 4) if self._in_parts else 0

    def _written(self) -> str:
        """Loops over this thread's panels, parts of k that it writes out, and tiles of rows."""
        self.functions.add("write", *self.numbers.writer())
        sizes = self._sizes(self.rows)
        for rows in sizes:
            self._tile_function(rows)
        sums = f", depth, {self._sums} + r * WIDTH, k0 == 0, k0 + {self._part} >= K"

        def call(size: int) -> str:
            common = f"a, {self.x} + r * K + k0, panel, r, p * WIDTH"
            return f"TX_NAME(many{size})({common}{sums if self._in_parts else ''});"

        tiles = self.args.dim(ceildiv(self.p.m, self.rows))
        parts = [
            f"const int64_t depth = K - k0 < {self._part} ? K - k0 : {self._part};",
            "TX_NAME(write)(a, panel, p * WIDTH, k0, depth);",
            f"int64_t r = g[0] * {self.rows};",
            by_rows(sizes, "r", "last", call),
        ]
        return "\n".join(
            [
                comment(
                    "of the grid of row tiles and panels this thread has tiles [g[0], g[1]) and "
                    "panels [g[2], g[3])"
                ),
                "int64_t g[4];",
                f"TX_NAME(grid)({tiles}, PANELS, tid, nt, g);",
                f"const int64_t last = g[1] * {self.rows} < M ? g[1] * {self.rows} : M;",
                f"float* panel = {self.panel} + tid * {self._panel_bytes // 4};",
                "if (g[0] >= g[1]) return;",
                loop("p", "g[2]", "g[3]", loop("k0", "0", "K", *parts, step=self._part)),
            ]
        )

    def _tile_function(self, rows: int) -> None:
        chains = c_tile.chains_for(rows, self.vectors)
        tile = RegisterTile(rows, self.vectors, self.lanes, chains)
        unroll, depth = max(2, chains), "depth" if self._in_parts else "K"
        steps = [tile.steps(unroll, _element), f"x += {unroll}; w += {unroll} * WIDTH;"]
        rest = [tile.steps(1, _element), "x++; w += WIDTH;"]
        body = [
            tile.zero(),
            *([block("if (!first)", tile.load("part"))] * self._in_parts),
            "int64_t k = 0;",
            block(f"for (; k + {unroll} <= {depth}; k += {unroll})", *steps),
            block(f"for (; k < {depth}; k++)", *rest),
            tile.join(),
            *([block("if (!last)", tile.save("part"), "return;")] * self._in_parts),
            *finish(tile, self.p.epi, self._site),
        ]
        about = f"{rows} rows of y from row on, and {tile.width} columns from col on: x times w."
        parameters = "const float* x, const float* w, int64_t row, int64_t col"
        if self._in_parts:
            parameters += ", int64_t depth, float* part, int first, int last"
            about += " Sums over a part of k wait in part."
        self.functions.add(f"many{rows}", parameters, body, about)


def _element(row: int, step: int) -> str:
    return f"x[{row} * K + {step}]"
