"""Products of few rows with a constant matrix: a warp walks along k for some columns, reading each
weight once.

Knobs: ``cols`` of a warp; ``slices``: warps that share the k of the same columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tactix.base.dims import ceildiv, evaluate
from tactix.contracts.artifact import KernelArtifact, Packed
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c.text import block
from tactix_codegen.cuda import results, text
from tactix_codegen.cuda.entry import KernelEntry, artifact
from tactix_codegen.cuda.product import CudaProduct, product
from tactix_codegen.cuda.results import RowResults
from tactix_cuda.tactics import tile

MOST_ROWS = 16
"""Rows from which on tiles of tensor cores, which have 16, are full."""
MOST_SUMS = 32
"""Sums that a thread holds at most, in registers: each weight is loaded once for all rows."""
WARPS = 8
"""Of a block: as many as may share the k of the same columns (``slices`` is 8 at most)."""
RESIDENT = 4
"""Blocks that a multiprocessor holds in the estimate: 32 warps, half of the 64 that fit."""
ROUND, PRODUCT = 100, 2.5
"""What the estimate assumes: cycles of a round of loads beside its products, and of one product of
a thread. No measurement of them is recorded.
"""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [GemvTactic()]


class GemvTactic(Tactic[CudaProduct]):
    """float16, bfloat16 and float32; up to 16 rows, constant b, one matrix."""

    key = "tactix.cuda_gemv@1"
    implements = ("tactix.MatMul@1", "tactix.Gemm@1", "tactix.WideMatMul@1")
    device = "cuda"
    source = "cuda_c"

    def match(self, node: Node, device: DeviceProperties) -> CudaProduct | Reject:
        p = product(node)
        if isinstance(p, Reject):
            return p
        if (
            not isinstance(p.m, int)
            or p.m > MOST_ROWS
            or p.batch
            or not p.can_pack
            or p.dtype not in tile.KINDS
        ):
            return Reject(f"this kernel takes up to {MOST_ROWS} rows and one constant matrix")
        if p.a.turned and p.m > 1:
            return Reject("this kernel takes rows that lie along k")
        reason = results.why_not(p.epi)
        return Reject(reason) if reason else p

    def variants(self, p: CudaProduct, device: DeviceProperties) -> Sequence[Variant]:
        most = MOST_SUMS // evaluate(p.m, {})
        found = [Variant.of(cols=c, slices=s) for c in (1, 2, 4) for s in (1, 2, 4, 8) if c <= most]
        return sorted(found, key=lambda v: _seconds(p, v, device))[: tile.OFFERED]

    def cost(self, p: CudaProduct, variant: Variant, ctx: CompileContext) -> float:
        return _seconds(p, variant, ctx.device)

    def compile(self, p: CudaProduct, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        e = KernelEntry(p.node, 32 * WARPS)
        body = _body(p, e, variant)
        grid = ceildiv(p.n, WARPS // variant.number("slices") * variant.number("cols"))
        shared = WARPS * int(p.m) * variant.number("cols") * 4  # type: ignore[arg-type]
        return artifact([e.kernel(*body)], [e.launch(grid, shared)], [e], ctx, more=("ptx.cuh",))


def _seconds(p: CudaProduct, v: Variant, device: DeviceProperties) -> float:
    """An estimate: the weights once from memory, as far as enough warps ask for them, or one warp's
    rounds. A round is 16 bytes of each lane along k, of every column.
    """
    m, n, k = (evaluate(d, {}) for d in (p.m, p.n, p.k))
    each = 16 // p.dtype.itemsize
    rounds = -(-k // (32 * each * v.number("slices")))
    blocks = -(-n // (WARPS // v.number("slices") * v.number("cols")))
    waves = -(-blocks // (max(1, device.cores) * RESIDENT))
    together = min(RESIDENT, -(-blocks // max(1, device.cores)))
    chain = waves * (tile.LATENCY + rounds * (100 + m * v.number("cols") * each * 2.5 * together))
    seconds: float = tile.START + max(n * k * p.dtype.itemsize / tile.BANDWIDTH, chain / tile.CLOCK)
    return seconds


def _pack(p: CudaProduct, each: int) -> Packed:
    """b as (n, k), k padded to whole accesses."""
    n, k = (evaluate(d, {}) for d in (p.n, p.k))
    deep = (0, -k % each)
    if p.b.turned:
        steps: tuple[tuple[str, Any], ...] = (("reshape", (n, k)), ("pad", ((0, 0), deep)))
    else:
        steps = (("reshape", (k, n)), ("transpose", (1, 0)), ("pad", ((0, 0), deep)))
    return Packed(p.b.index, steps)


def _body(p: CudaProduct, e: KernelEntry, v: Variant) -> list[str]:
    m, n, k = int(p.m), int(p.n), int(p.k)  # type: ignore[arg-type]
    cols, slices = v.number("cols"), v.number("slices")
    each, kind, groups = 16 // p.dtype.itemsize, p.dtype.value, WARPS // slices
    deep = -(-k // each) * each
    x, w = e.input(p.a.index), e.constant("b", _pack(p, each), p.dtype)
    fma = f"for (int i = 0; i < {each}; i++) sum[r][c] = fmaf(x[i], w[c][i], sum[r][c]);"
    column = f"(int64_t)(col0 + c < {n} ? col0 + c : 0)"
    multiply = [
        f"float w[{cols}][{each}];",
        "#pragma unroll",
        f"for (int c = 0; c < {cols}; c++)",
        f"    tx_load_{kind}<{each}>(w[c], {w} + {column} * {deep} + k);",
        "#pragma unroll",
        block(
            f"for (int r = 0; r < {m}; r++)",
            f"float x[{each}];",
            *_row(p, x, k, each),
            "#pragma unroll",
            f"for (int c = 0; c < {cols}; c++)",
            "#pragma unroll",
            fma,
        ),
    ]
    start = f"(warp % {slices} * 32 + lane) * {each}"
    fold = "for (int o = 16; o; o /= 2) sum[r][c] += __shfl_xor_sync(0xffffffffu, sum[r][c], o);"
    keep = f"if (lane == 0) part[(warp * {m} + r) * {cols} + c] = sum[r][c];"
    return [
        "TX_SHARED(memory);",
        "float* part = (float*)memory;",
        "const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;",
        f"const int col0 = (blockIdx.x * {groups} + warp / {slices}) * {cols};",
        f"float sum[{m}][{cols}] = {{}};",
        block(f"for (int k = {start}; k < {deep}; k += {32 * slices * each})", *multiply),
        "#pragma unroll",
        f"for (int r = 0; r < {m}; r++)",
        "#pragma unroll",
        block(f"for (int c = 0; c < {cols}; c++)", "#pragma unroll", fold, keep),
        "__syncthreads();",
        *_results(p, e, cols, slices, groups),
    ]


def _row(p: CudaProduct, x: str, k: int, each: int) -> list[str]:
    """Load a row's elements into ``x``."""
    kind = p.dtype.value
    if text.divides(each, k):
        return [f"tx_load_{kind}<{each}>(x, {x} + r * {k} + k);"]
    one = f"x[i] = 0.0f; if (k + i < {k}) tx_load_{kind}<1>(x + i, {x} + r * {k} + k + i);"
    return ["#pragma unroll", block(f"for (int i = 0; i < {each}; i++)", one)]


def _results(p: CudaProduct, e: KernelEntry, cols: int, slices: int, groups: int) -> list[str]:
    """The sums of all slices through the epilogue, one a thread."""
    m = int(p.m)  # type: ignore[arg-type]
    one = f"part[((group * {slices} + s) * {m} + (int)row) * {cols} + c]"
    add = f"for (int s = 0; s < {slices}; s++) v[0] += {one};"
    body = [
        f"const int c = t % {cols}, group = t / {m * cols}, "
        f"col = (blockIdx.x * {groups} + group) * {cols} + c;",
        f"const int64_t row = t / {cols} % {m};",
        "float v[1] = {0.0f};",
        "#pragma unroll",
        add,
        RowResults(e, p.node, p.epi, p.lead, p.n).store(1),
    ]
    return [block(f"for (int t = threadIdx.x; t < {groups * m * cols}; t += {32 * WARPS})", *body)]
