"""IntegerMatMul on register tiles, with any pointwise epilogue; the kernel of c_bf16_gemm too.

b is constant and lies in panels ``[panel][k / group][column][group]``. Threads share out a grid of
row tiles and panels. Knobs: ``rows`` and ``vectors`` of the tile.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tactix.base.dims import Dim, Shape, ceildiv, evaluate, prod, symbols
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix.contracts.artifact import KernelArtifact, Packed
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c.epilogue import Epilogue, epilogue
from tactix_codegen.c.text import Args, block, kernel, loop
from tactix_codegen.c.tile import GRID, Functions, by_rows, rest_sizes
from tactix_cpu.tactics import dot_tile as byte
from tactix_cpu.tactics.dot_tile import Dot, DotTile, SortedSteps
from tactix_cpu.tactics.estimates import CLOCK, MEMORY, START
from tactix_cpu.tactics.matmul.product import RowSite

BLOCK_BYTES = 1 << 19
"""Bytes of a that one sweep over the panels reads: half of a second cache of 1 MiB. The panel in
use, the next one and results take the rest. No measurement of it is on record.
"""
OFFERED = 2
"""Variants of a node at most: those of the fewest cycles. Each costs a compilation, 0.3 s with gcc
on the prototype (README); no measurement of their number is on record.
"""
FEWEST_ROWS = 8
MOST_DEPTH = 1 << 14
"""Of products on a matrix unit: rows, as fewer leave a tile of 16 mostly empty; bytes of a row, of
which a copied tile (16 rows, 256 KiB) fits on the stack. No measurement of either is on record.
"""
USUAL_ROWS = 64
"""What an unknown number of rows counts as where variants are ranked. A guess: it only says which
tiles are tried.
"""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [ByteGemmTactic()]


@dataclass(frozen=True)
class DotProduct:
    """``y[m, n] = epilogue(bias[n] + sum over k of a[m, k] b[k, n])``; ``inputs``: given ones for
    a, b and the bias.

    ``turned``: b is stored (n, k).
    """

    node: Node
    dot: Dot
    inputs: tuple[int, int, int]
    lead: Shape
    k: int
    n: int
    turned: bool
    flip: bool
    epi: Epilogue

    @property
    def m(self) -> Dim:
        return prod(self.lead)


def dot_product(node: Node, dot: Dot) -> DotProduct | Reject:
    """The product that a node with constant weights is, or why the kernel cannot take it."""
    epi, anchor = epilogue(node), node.anchor
    if isinstance(epi, Reject):
        return epi
    assert anchor is not None
    a, b, c = (*anchor.inputs, -1)[:3]
    if (
        not byte.constant_channels(node, (b, c))
        or node.given[b].spec.rank != 2
        or node.given[a].spec.rank < 2
    ):
        return Reject("this kernel takes matrices, the right one and the bias constant")
    if any(node.given[i].spec.dtype not in dot.dtypes for i in (a, b)):
        return Reject("the tensors have other dtypes than this kernel's")
    if anchor.layer.name == "Gemm" and not _is_plain(
        anchor.attrs, *(node.given[i].spec for i in (b, c) if i >= 0)
    ):
        return Reject("this kernel takes a Gemm without factors, and a bias for each column")
    turned = bool(getattr(anchor.attrs, "transB", False))
    k, n = node.given[b].spec.const.shape[:: -1 if turned else 1]
    if 0 in (k, n, *epi.shape):
        return Reject("a tensor is empty")
    flip = node.given[a].spec.dtype is DType.INT8
    return DotProduct(node, dot, (a, b, c), epi.shape[:-1], k, n, turned, flip, epi)


def _is_plain(attrs: Any, b: TensorSpec, c: TensorSpec | None = None) -> bool:
    columns = b.shape[0 if attrs.transB else 1]
    return (
        not attrs.transA
        and attrs.alpha == 1
        and attrs.beta == 1
        and (c is None or c.shape == (columns,))
    )


class ByteGemmTactic(Tactic[DotProduct]):
    """u8 or i8 times constant i8; any sizes, rows may be symbolic."""

    key = "tactix.c_int8_gemm@1"
    implements: tuple[str, ...] = ("tactix.IntegerMatMul@1",)
    source = "c"
    by_signature = True
    dot: Dot = byte.BYTES

    def match(self, node: Node, device: DeviceProperties) -> DotProduct | Reject:
        p = dot_product(node, byte.dot_on(self.dot, device))
        if isinstance(p, Reject):
            return p
        if isinstance(p.m, int):
            p = replace(p, dot=byte.dot_of_rows(p.dot, p.m))
        return Reject("the matrix unit is faster") if fills_tiles(p, device) else p

    def variants(self, p: DotProduct, device: DeviceProperties) -> Sequence[Variant]:
        ranked = sorted(dict.fromkeys(_tiles(p, device)), key=lambda t: _cycles(p, t, device, {}))
        return [Variant.of(rows=rows, vectors=vectors) for rows, vectors in ranked[:OFFERED]]

    def cost(self, p: DotProduct, variant: Variant, ctx: CompileContext) -> float | None:
        if not symbols(p.m) <= set(ctx.opt):
            return None
        tile = variant.number("rows"), variant.number("vectors")
        cycles = _cycles(p, tile, ctx.device, dict(ctx.opt))
        return START + cycles / CLOCK / max(1, ctx.threads) + p.k * p.n * p.dot.size / MEMORY

    def compile(self, p: DotProduct, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        return DotGemmKernel(p, variant, ctx).artifact()


def fills_tiles(p: DotProduct, device: DeviceProperties) -> bool:
    """Whether the device's matrix unit takes the product: it is then the fastest by far.

    A step that is not whole reads on in memory, where there may be a NaN of floats, which no weight
    makes nothing.
    """
    depth, few = p.k * p.dot.size, isinstance(p.m, int) and p.m < FEWEST_ROWS
    whole = depth % byte.DEEP == 0 or (p.dot is byte.BYTES and depth > byte.DEEP)
    return whole and depth <= MOST_DEPTH and not few and byte.has_tiles(device, p.dot)


def _tiles(p: DotProduct, device: DeviceProperties) -> list[tuple[int, int]]:
    """Tiles worth trying, none wider or taller than the product."""
    wide = -(-p.n // device.lanes)
    options = byte.tile_shapes(p.dot, device)
    if isinstance(p.m, int) and p.m <= 4:
        options = tuple((p.m, v) for v in (4, 8, 2))
    out = []
    for rows, vectors in options:
        if isinstance(p.m, int):  # equal tiles: 13 of 128 rows rather than 14 and a rest of 2
            rows = -(-p.m // -(-p.m // rows))
        out.append((rows, min(vectors, wide)))
    return out


def _cycles(
    p: DotProduct, tile: tuple[int, int], device: DeviceProperties, opt: dict[str, int]
) -> float:
    """Cycles on one core: each tile's steps and epilogue, once for every panel."""
    m = evaluate(p.m, {**dict.fromkeys(symbols(p.m), USUAL_ROWS), **opt})
    rows, vectors = tile
    steps, panels, total, left = -(-p.k // p.dot.group), -(-p.n // (vectors * device.lanes)), 0.0, m
    for size in (rows, *rest_sizes(rows, p.m if isinstance(p.m, int) else None)):
        count, left = divmod(left, size)
        total += count * (
            byte.tile_cycles(p.dot, device, size, vectors) * steps
            + byte.finish_cycles(size, vectors)
        )
    return total * panels


class DotGemmKernel:
    """Writes one kernel."""

    def __init__(self, p: DotProduct, variant: Variant, ctx: CompileContext) -> None:
        self.p, self.ctx = p, ctx
        self.rows, self.vectors = variant.number("rows"), variant.number("vectors")
        self.lanes = max(4, ctx.device.lanes)
        self.width = self.vectors * self.lanes
        self.panels, self.steps = -(-p.n // self.width), -(-p.k // p.dot.group)
        self.args = Args(p.node)
        self.functions = Functions(self.args)

    def artifact(self) -> KernelArtifact:
        """The kernel as data."""
        dot, axis = self.p.dot, 0 if self.p.turned else 1
        first = byte.starts(self.p.node, self.p.inputs, self.panels * self.width, axis, dot)
        self.x = self.args.input(self.p.inputs[0])
        packed = self.sorted.packed() if dot.sorted else self._packed()
        self.w = self.args.constant("b", packed, dot.weights)
        self.first = self.args.constant("first", first, dot.sums)
        sizes = self._sizes()
        for rows in sizes:
            self._function(rows)
        body = self._multiply(sizes)
        made = kernel(
            self.args,
            [body],
            self.ctx,
            helpers=f"{GRID}{self.functions.text()}",
            preludes=byte.preludes(dot),
        )
        return byte.without_fma(made) if byte.rounds_sums(self.p.epi.results) else made

    def _packed(self) -> Packed:
        """b as [panel][k / group][column][group]: a vector of 32-bit lanes is then what one dot
        product multiplies, a column's group to a lane; zeros past the last k and column.
        """
        p, steps, panels, width, group = (
            self.p,
            self.steps,
            self.panels,
            self.width,
            self.p.dot.group,
        )
        work: tuple[tuple[str, Any], ...] = (
            *([("transpose", (1, 0))] if p.turned else []),
            ("pad", ((0, group * steps - p.k), (0, panels * width - p.n))),
            ("reshape", (steps, group, panels, width)),
            ("transpose", (2, 0, 3, 1)),
        )
        return Packed(p.inputs[1], work)

    @functools.cached_property
    def sorted(self) -> SortedSteps:
        """The steps over b where they have an order of their own."""
        offsets = tuple(4 * q for q in range(self.p.k // 4))
        last = self.p.k % 4 > 0
        sizes = self.panels, self.width, self.lanes
        return SortedSteps(self._packed(), self.p.dot, *sizes, offsets, last)

    def _sizes(self) -> tuple[int, ...]:
        m = self.p.m if isinstance(self.p.m, int) else None
        rest = rest_sizes(self.rows, m)
        return rest if m is not None and m < self.rows else (self.rows, *rest)

    def _function(self, rows: int) -> None:
        p = self.p
        dot = p.dot
        offsets = tuple(m * p.k * dot.size for m in range(rows))
        near, far = byte.ahead(p.m / self.rows if isinstance(p.m, int) else USUAL_ROWS)
        tile = DotTile(dot, offsets, self.vectors, self.lanes, p.flip, near, far)
        left = "" if p.n % self.width == 0 else f"({p.n} - col)"
        site = RowSite(self.args, p.lead, p.n, self.lanes, left)
        body = [tile.start(f"{self.first} + col")]
        if dot.sorted:
            order = self.args.constant("order", self.sorted.order(), DType.INT32)
            row = self.sorted.row(f"col / {self.width}")
            body += [f"const int32_t* order = {order} + {row};", *tile.sorted(p.k // 4)]
            body += [f"x += {4 * (p.k // 4)};"] if p.k % 4 else []
        else:
            body.append(tile.run(p.k // dot.group))
        body += [tile.last(p.k % dot.group * dot.size)] if p.k % dot.group else []
        parameters = "const uint8_t* x, const int8_t* w, int64_t row, int64_t col"
        self.functions.add(f"t{rows}", parameters, [*body, *tile.finish(p.epi, site)])

    def _multiply(self, sizes: tuple[int, ...]) -> str:
        """Loops over this thread's blocks of row tiles, panels, tiles: the rows of a block stay in
        the second cache for all panels, a panel stays in the first for all tiles of a block.
        """
        p, m, rows = self.p, self.args.dim(self.p.m), self.rows
        most = max(1, BLOCK_BYTES // (rows * p.k * p.dot.size))
        slab = self.sorted.slab if p.dot.sorted else 4 * self.steps * self.width
        panel = f"(const int8_t*){self.w} + p * {slab}"

        def call(size: int) -> str:
            x = f"(const uint8_t*){self.x} + r * {p.k * p.dot.size}"
            return f"TX_NAME(t{size})(a, {x}, {panel}, r, p * {self.width});"

        walk = loop(
            "p", "g[2]", "g[3]", f"int64_t r = t * {rows};", by_rows(sizes, "r", "end", call)
        )
        head = [
            f"const int64_t next = t + {most} < g[1] ? t + {most} : g[1];",
            f"const int64_t end = next * {rows} < {m} ? next * {rows} : {m};",
        ]
        tiles = self.args.dim(ceildiv(p.m, rows))
        sweep = block(f"for (int64_t t = g[0]; t < g[1]; t += {most})", *head, walk)
        return f"int64_t g[4];\nTX_NAME(grid)({tiles}, {self.panels}, tid, nt, g);\n{sweep}"
