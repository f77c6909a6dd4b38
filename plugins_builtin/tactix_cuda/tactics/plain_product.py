"""Matrix products in CUDA that the tiles of floats do not take: float64, integers, and 8-bit ones
into int32.

A thread makes one element; neighbours read neighbouring columns of b.
"""

from __future__ import annotations

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import text as c_text
from tactix_codegen.c.scalar import element
from tactix_codegen.c.text import block
from tactix_codegen.c.tile import flat
from tactix_codegen.cuda import results, text
from tactix_codegen.cuda.entry import KernelEntry, artifact
from tactix_codegen.cuda.product import CudaProduct, product
from tactix_codegen.cuda.results import RowResults
from tactix_codegen.cuda.text import BLOCK
from tactix_cuda.tactics import tile

RATE = 1e12
"""Products per second that estimates assume: both operands of each are loaded. No measurement of it
is recorded; these products are offered where no tile is, so it only stands beside libraries.
"""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [PlainProductTactic()]


class PlainProductTactic(Tactic[CudaProduct]):
    """All operands as they lie, symbolic sizes."""

    key = "tactix.cuda_plain_product@1"
    implements = ("tactix.MatMul@1", "tactix.Gemm@1", "tactix.IntegerMatMul@1")
    device = "cuda"
    source = "cuda_c"

    def match(self, node: Node, device: DeviceProperties) -> CudaProduct | Reject:
        p = product(node)
        if isinstance(p, Reject):
            return p
        if p.dtype in tile.KINDS or not c_text.has_ctype(p.dtype):
            return Reject(f"no plain products of {p.dtype.value}")
        reason = results.why_not(p.epi)
        return Reject(reason) if reason else p

    def cost(self, p: CudaProduct, variant: Variant, ctx: CompileContext) -> float | None:
        seconds = text.traffic(p.node, variant, ctx)
        work = dims.prod((*p.lead, p.n, p.k))  # products
        if seconds is None or not dims.symbols(work) <= set(ctx.opt):
            return None
        return seconds + dims.evaluate(work, ctx.opt) / RATE

    def compile(self, p: CudaProduct, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        e = KernelEntry(p.node, BLOCK)
        rows = RowResults(e, p.node, p.epi, p.lead, p.n)
        total = rows.count * p.n
        return artifact([e.kernel(*_body(p, e, rows))], [e.launch(text.blocks(total))], [e], ctx)


def _body(p: CudaProduct, e: KernelEntry, rows: RowResults) -> list[str]:
    m, n, k = (e.dim(d) for d in (p.m, p.n, p.k))
    sizes = [e.dim(d) for d in p.batch]
    of_a, of_b = (p.node.given[x.index].spec.dtype for x in (p.a, p.b))
    first, second = (flat("item", sizes, x.strides, e) for x in (p.a, p.b))
    a = f"q * {m} + r" if p.a.turned else f"r * {k} + q"
    b = f"col * (int64_t){k} + q" if p.b.turned else f"q * {n} + col"
    left = element(of_a, f"{e.input(p.a.index)}[({first}) * {m} * {k} + {a}]")
    right = element(of_b, f"{e.input(p.b.index)}[({second}) * {n} * {k} + {b}]")
    wide = (
        "double"
        if p.dtype is DType.FP64
        else "int"
        if p.dtype.bits == 8
        else text.number_type(p.dtype)
    )
    return [
        *text.flat(e, "int64_t", rows.count * p.n),
        f"const int64_t row = t / {n}, item = row / {m}, r = row % {m};",
        f"const int col = (int)(t % {n});",
        f"{wide} v[1] = {{}};",
        block(f"for (int64_t q = 0; q < {k}; q++)", f"v[0] += ({wide}){left} * ({wide}){right};"),
        rows.store(1),
    ]
