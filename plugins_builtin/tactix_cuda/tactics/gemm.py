"""MatMul, WideMatMul, Gemm and IntegerMatMul on tensor cores, or exact in float32; any shapes, any
pointwise epilogue.

A constant b lies packed by stages of tiles; other operands are copied as they lie, whichever way
they are turned.
Knobs: those of a BlockTile, and ``split``: parts of k that blocks of their own sum; a second launch
adds these.
"""

from __future__ import annotations

from collections.abc import Sequence

from tactix.base.dims import Dim, ceildiv, evaluate, prod, symbols
from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c.tile import flat
from tactix_codegen.cuda import results, text
from tactix_codegen.cuda.entry import artifact
from tactix_codegen.cuda.product import CudaProduct, Matrix, product
from tactix_codegen.cuda.results import RowResults
from tactix_cuda.tactics import tile
from tactix_cuda.tactics.tile import BlockTile, ProductSizes, tile_of
from tactix_cuda.tactics.tiled import Tiled

LIKELY = (64, 1024, 16384)
"""Rows to expect where a symbol counts them: tokens of a short call, of some, of a large batch."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CudaGemmTactic(), Tf32GemmTactic(), IntegerGemmTactic()]


class CudaGemmTactic(Tactic[CudaProduct]):
    """float16, bfloat16 and float32, summed in float32."""

    key = "tactix.cuda_gemm@1"
    implements: tuple[str, ...] = ("tactix.MatMul@1", "tactix.Gemm@1", "tactix.WideMatMul@1")
    device = "cuda"
    source = "cuda_c"

    def kind(self, dtype: DType) -> str:
        """How operands of that dtype are multiplied; empty if they are not."""
        return tile.KINDS.get(dtype, "")

    def match(self, node: Node, device: DeviceProperties) -> CudaProduct | Reject:
        p = product(node)
        if isinstance(p, Reject):
            return p
        reason = results.why_not(p.epi)
        if reason or not self.kind(p.dtype):
            return Reject(reason or f"no tiles of {p.dtype.value}")
        return p

    def variants(self, p: CudaProduct, device: DeviceProperties) -> Sequence[Variant]:
        found = tile.best(works(p), tile.tiles(self.kind(p.dtype), device), device)
        return [Variant.of(**vars(t), split=s) for t, s in found if s == 1 or isinstance(p.k, int)]

    def cost(self, p: CudaProduct, variant: Variant, ctx: CompileContext) -> float | None:
        if not symbols(prod((*p.batch, p.m, p.n, p.k))) <= set(ctx.opt):
            return None
        batch, m, n, k = (evaluate(d, ctx.opt) for d in (prod(p.batch), p.m, p.n, p.k))
        return tile.seconds(
            ProductSizes(batch, m, n, k), tile_of(variant), variant.number("split"), ctx.device
        )

    def compile(self, p: CudaProduct, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        return _compile(p, tile_of(variant), variant.number("split"), ctx)


class Tf32GemmTactic(CudaGemmTactic):
    """float32 with operands rounded to 10 bits of mantissa."""

    key = "tactix.cuda_tf32_gemm@1"
    numerics = "tf32"

    def kind(self, dtype: DType) -> str:
        return "tf32" if dtype is DType.FP32 else ""


class IntegerGemmTactic(CudaGemmTactic):
    """8-bit integers by a constant b of signed ones, summed in int32."""

    key = "tactix.cuda_integer_gemm@1"
    implements = ("tactix.IntegerMatMul@1",)

    def kind(self, dtype: DType) -> str:
        return tile.BYTES.get(dtype, "")

    def match(self, node: Node, device: DeviceProperties) -> CudaProduct | Reject:
        p = super().match(node, device)
        if isinstance(p, Reject) or p.can_pack:
            return p
        return Reject("bytes are multiplied along k, so b has to be packed when it is built")


def works(p: CudaProduct) -> list[ProductSizes]:
    """Sizes to choose tiles for: symbols stand for some likely numbers."""
    unknown = symbols(prod((*p.batch, p.m, p.n, p.k)))
    out = []
    for size in LIKELY if unknown else (1,):
        batch, m, n, k = (evaluate(d, dict.fromkeys(unknown, size)) for d in (1, p.m, p.n, p.k))
        out.append(ProductSizes(batch if unknown else evaluate(prod(p.batch), {}), m, n, k))
    return out


def _compile(p: CudaProduct, t: BlockTile, splits: int, ctx: CompileContext) -> KernelArtifact:
    made = Tiled(p.node, t, prod(p.batch), p.m, p.n, ceildiv(p.k, t.depth), splits)
    args = made.entry
    sizes = [args.dim(d) for d in p.batch]
    turned_a, turned_b = p.a.turned, not p.can_pack and not p.b.turned
    a = _operand(p, p.a, made, ("a", p.m, t.rows, "row0"), turned_a, sizes)
    if p.can_pack:
        b = _packed(p, made, sizes)
    else:
        b = _operand(p, p.b, made, ("b", p.n, t.cols, "col0"), turned_b, sizes)
    epi = (p.epi, p.lead)
    texts, launches, entries = made.finish(
        a + b, t.warp(turned_a, turned_b), lambda e: RowResults(e, p.node, *epi, p.n)
    )
    return artifact(texts, launches, entries, ctx, more=tile.PRELUDES, workspace=made.workspace)


def _operand(
    p: CudaProduct,
    x: Matrix,
    made: Tiled,
    axis: tuple[str, Dim, int, str],
    turned: bool,
    sizes: Sequence[str],
) -> list[str]:
    """Declare the loader of an operand as it lies; ``axis``: name, length, the tile's part of it,
    where that begins.
    """
    (name, length, part, first), t, args = axis, made.tile, made.entry
    k, other = args.dim(p.k), args.dim(length)
    pointer = args.input(x.index)
    matrix = flat("item", sizes, x.strides, args) if p.batch else "0"
    if matrix != "0":
        pointer = f"{pointer} + (int64_t)({matrix}) * {k} * {other}"
    bytes_ = piece(length if turned else p.k, t.size)
    if not turned:
        kind = f"tx_rows<{part}, {t.chunks}, {t.threads}, {bytes_}>"
        row = f"(int64_t){k} * {t.size}"
        return [f"{kind} {name};", f"{name}.start({pointer}, {first}, {other}, {row}, {row});"]
    kind = f"tx_columns<{t.depth}, {part * t.size // 16}, {t.threads}, {bytes_}>"
    width = f"(int64_t){other} * {t.size}"
    return [
        f"{kind} {name};",
        f"{name}.start({pointer}, {first} * {t.size}, {width}, {width}, {k});",
    ]


def _packed(p: CudaProduct, made: Tiled, sizes: Sequence[str]) -> list[str]:
    """Declare the loader of a packed b."""
    t, args = made.tile, made.entry
    panels, stages = int(ceildiv(p.n, t.cols)), int(ceildiv(p.k, t.depth))  # type: ignore[arg-type]
    pointer = args.constant("b", p.pack_b(t.cols, t.depth), p.node.given[p.b.index].spec.dtype)
    matrix = flat("item", sizes, p.b.strides, args) if p.batch else "0"
    panel = f"({matrix}) * {panels} + j" if matrix != "0" else "j"
    start = f"b.start({pointer} + (int64_t)({panel}) * {stages * t.cols * t.depth});"
    return [f"tx_packed<{t.cols}, {t.chunks}, {t.threads}> b;", start]


def piece(length: Dim, size: int) -> int:
    """Bytes that one copy of an operand may take whose rows are that many elements long."""
    return next((b for b in (16, 8, 4, 2) if b >= size and text.divides(b // size, length)), size)
