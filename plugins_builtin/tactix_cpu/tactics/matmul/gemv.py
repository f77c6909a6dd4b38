"""MatMul and Gemm that read b where it lies: few rows by a computed matrix, a matrix by a column,
and integers and float64 of any sizes.

Packing a b that each element of is multiplied once or a few times costs more than the product. A
block of results is summed in a buffer of the first cache, in one of two ways: rows of b are added,
several at a time, each times its element of a; or, where a result is the dot product of two lines
that lie in memory as they are, vectors run along these. Then the epilogue stores the block.
"""

from __future__ import annotations

from dataclasses import dataclass

from tactix.base.dims import Dim, ceildiv, prod
from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import text as c_text
from tactix_codegen.c.epilogue import EpilogueOperand, stored_element
from tactix_codegen.c.text import Args, block, comment, loop, times
from tactix_codegen.c.tile import flat
from tactix_cpu.tactics.estimates import CLOCK, MEMORY
from tactix_cpu.tactics.matmul.product import CpuProduct, product

ROWS = 4
"""Rows of a that an element of b is multiplied with at a time. From 5 rows on kernels that pack are
offered alone for float32. No measurement of others is on record.
"""
BLOCK = 1024
"""Results of a row in a block: four rows of float32 take a third of a first cache of 48 KiB.
"""
STEPS = {1: 8, 2: 8, 3: 4, 4: 4}
"""Rows of b that are added at a time, by the rows of a: sums are loaded and stored once for them.
No measurement of others is on record.
"""
LINES = 8
"""Dot products at a time: as many chains hide the latency of FMA."""
PRODUCTS = 8
"""In a cycle, where everything lies in the first cache. No measurement of it is on record."""
WIDE = (DType.INT32, DType.INT64, DType.UINT32, DType.UINT64, DType.FP64)
"""Dtypes of products that have no other kernel: of any number of rows."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CpuGemvTactic()]


@dataclass(frozen=True)
class ProductInPlace:
    """``lines``: results are dot products of lines, of a (``n`` is 1) or of a transposed b."""

    p: CpuProduct
    dtype: DType
    lines: bool

    @property
    def of_a(self) -> bool:
        """Whether the lines are a's, and b is one vector."""
        return self.lines and self.p.n == 1

    @property
    def rows(self) -> int:
        """Rows of results in a block."""
        m = self.p.m
        return 1 if self.of_a else max(1, min(m, ROWS)) if isinstance(m, int) else ROWS


class CpuGemvTactic(Tactic[ProductInPlace]):
    """Any shapes, symbolic ones too, with any pointwise epilogue."""

    key = "tactix.c_gemv@1"
    implements = ("tactix.Gemm@1", "tactix.MatMul@1")
    source = "c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> ProductInPlace | Reject:
        anchor = node.anchor
        if anchor is None:
            return Reject("this kernel takes a product, and what follows it")
        dtype = node.given[anchor.inputs[0]].spec.dtype
        wide = dtype in WIDE and (dtype is DType.FP64 or anchor.layer.name == "MatMul")
        p = product(node, WIDE if wide else (DType.FP32,), vector=False)
        if isinstance(p, Reject):
            return p
        if p.transposed_a:
            return Reject("this kernel takes rows of a as they lie")
        if p.n == 1:
            return ProductInPlace(p, dtype, dtype is DType.FP32)
        few = isinstance(p.m, int) and p.m <= ROWS and not p.constant_b
        if not wide and not few:
            return Reject(f"packed kernels are faster from {ROWS + 1} rows on, or by a constant")
        return ProductInPlace(p, dtype, p.transposed_b)

    def cost(self, work: ProductInPlace, variant: Variant, ctx: CompileContext) -> float | None:
        p, size = work.p, work.dtype.bits // 8
        products = p.rows * p.n * p.k
        read = size * (p.b_count * p.k * p.n + p.rows * p.k)
        threads = max(1, ctx.threads)
        each = 1 / (PRODUCTS * 4 / size * CLOCK * threads)
        return c_text.seconds(ctx, (products, each), (read, 1 / MEMORY))

    def compile(
        self, work: ProductInPlace, variant: Variant, ctx: CompileContext
    ) -> KernelArtifact:
        return _Kernel(work, ctx).artifact()


class _Kernel:
    """Writes one kernel."""

    def __init__(self, work: ProductInPlace, ctx: CompileContext) -> None:
        self.work, self.p, self.ctx = work, work.p, ctx
        self.args = Args(self.p.node)
        self.type = c_text.ctype(work.dtype)
        self.results: Dim = self.p.m if work.of_a else self.p.n

    def artifact(self) -> KernelArtifact:
        p, args = self.p, self.args
        for name, size in {"M": p.m, "N": p.n, "K": p.k, "RESULTS": self.results}.items():
            args.size(name, size)
        args.size("ROWS", self.work.rows)
        args.size("BLOCK", BLOCK)
        args.size("BLOCKS", ceildiv(self.results, BLOCK))
        high: Dim = 1 if self.work.of_a else ceildiv(p.m, self.work.rows)
        args.size("HEIGHTS", high)
        units = args.size("UNITS", prod(p.batch) * high * ceildiv(self.results, BLOCK))
        sums = self._dots() if self.work.lines else self._columns()
        body = [
            comment("blocks [lo, hi) of results are this thread's"),
            c_text.split(units),
            loop("u", "lo", "hi", *self._block(), *sums, self._finish()),
        ]
        return c_text.kernel(args, body, self.ctx)

    def _block(self) -> list[str]:
        """Declare a block: its matrices, its first row and result, and its size."""
        p, args = self.p, self.args
        sizes = [args.dim(d) for d in p.batch]
        item = "u / (BLOCKS * HEIGHTS)"
        a, b = (flat(item, sizes, s, args) if p.batch else "0" for s in (p.a_batch, p.b_batch))
        return [
            f"const int64_t row = {item} * M, first = u % BLOCKS * BLOCK;",
            "const int64_t top = u / BLOCKS % HEIGHTS * ROWS;",
            "const int64_t count = RESULTS - first < BLOCK ? RESULTS - first : BLOCK;",
            f"const int64_t rows = {'1' if self.work.of_a else 'M - top < ROWS ? M - top : ROWS'};",
            f"const {self.type}* restrict const a = {args.input(p.a)} + ({a}) * M * K;",
            f"const {self.type}* restrict const b = {args.input(p.b)} + ({b}) * K * N;",
            f"{self.type} sum[ROWS * BLOCK];",
        ]

    # -- sums --------------------------------------------------------------------------------------

    def _columns(self) -> list[str]:
        """Rows of b, several at a time, each times its elements of a."""
        steps = STEPS[self.work.rows]
        height = range(self.work.rows)
        return [
            comment("rows that there are not repeat the last one, and are not stored"),
            f"const {self.type}* left[ROWS];",
            loop("r", "0", "ROWS", "left[r] = a + (top + (r < rows ? r : rows - 1)) * K;"),
            "memset(sum, 0, sizeof sum);",
            comment(f"{steps} rows of b at a time"),
            "int64_t k = 0;",
            block(f"for (; k + {steps} <= K; k += {steps})", *self._added(steps, height)),
            block("for (; k < K; k++)", *self._added(1, height)),
        ]

    def _added(self, steps: int, height: range) -> list[str]:
        factors = [
            f"const {self.type} a{r}_{s} = left[{r}][k + {s}];"
            for r in height
            for s in range(steps)
        ]
        loads = [f"const {self.type} b{s} = line[{times(s, 'N')} + j];" for s in range(steps)]
        adds = [
            f"sum[{times(r, 'BLOCK')} + j] += "
            f"{' + '.join(f'a{r}_{s} * b{s}' for s in range(steps))};"
            for r in height
        ]
        line = f"const {self.type}* restrict const line = b + k * N + first;"
        return [*factors, line, loop("j", "0", "count", *loads, *adds)]

    def _dots(self) -> list[str]:
        """Lines, several at a time, by each of the vectors."""
        matrix, vectors = ("a", "b") if self.work.of_a else ("b", "a + top * K")
        return [
            f"const {self.type}* restrict const lines = {matrix} + first * K;",
            loop(
                "r",
                "0",
                "rows",
                f"const {self.type}* restrict const vector = {vectors} + r * K;",
                *(self._vectors() if self.work.dtype is DType.FP32 else self._one_by_one()),
            ),
        ]

    def _one_by_one(self) -> list[str]:
        """Dot products of what has no vectors."""
        step = loop("k", "0", "K", "s += vector[k] * lines[j * K + k];")
        return [loop("j", "0", "count", f"{self.type} s = 0;", step, "sum[r * BLOCK + j] = s;")]

    def _vectors(self) -> list[str]:
        return [
            "int64_t j = 0;",
            comment(f"{LINES} lines at a time"),
            block(f"for (; j + {LINES} <= count; j += {LINES})", *_dots(LINES)),
            block("for (; j < count; j++)", *_dots(1)),
        ]

    # -- results -----------------------------------------------------------------------------------

    def _finish(self) -> str:
        """Sums through the epilogue, into the output."""
        p, args = self.p, self.args
        names = [f"i{d}" for d in range(len(p.lead))]

        def where(o: EpilogueOperand) -> str:
            return args.offset(o.strides, [*names, "col"])

        finished = stored_element(args, p.epi, "acc", where, "y * N + col")
        accumulated = [f"const {self.type} acc = sum[r * BLOCK + j];", *finished]
        decoded = [c_text.decode("y", names, [args.dim(d) for d in p.lead])] * bool(p.epi.operands)
        if self.work.of_a:
            at = ["const int64_t y = row + first + j, col = 0;", *decoded]
            return loop("j", "0", "count", "const int64_t r = 0;", *at, *accumulated)
        within = loop("j", "0", "count", "const int64_t col = first + j;", *accumulated)
        return loop("r", "0", "rows", "const int64_t y = row + top + r;", *decoded, within)


def _dots(count: int) -> list[str]:
    """Dot products of the vector and ``count`` lines from j on."""
    each = range(count)
    return [
        f"vf {', '.join(f's{i} = tx_zero()' for i in each)};",
        "const float* restrict const line = lines + j * K;",
        "int64_t k = 0;",
        block(
            "for (; k + TX_LANES <= K; k += TX_LANES)",
            "const vf v = tx_load_f32(vector + k);",
            *(f"s{i} += v * tx_load_f32(line + {times(i, 'K')} + k);" for i in each),
        ),
        block(
            "if (k < K)",
            "const vf v = tx_load_n_f32(vector + k, K - k);",
            *(f"s{i} += v * tx_load_n_f32(line + {times(i, 'K')} + k, K - k);" for i in each),
        ),
        *(f"sum[r * BLOCK + j + {i}] = tx_hsum(s{i});" for i in each),
    ]
