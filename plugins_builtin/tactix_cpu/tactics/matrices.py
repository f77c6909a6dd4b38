"""Det and Inverse in C: elimination with the largest of a column as pivot, a thread a matrix.

Rows lie one after the other in a thread's workspace, and inner loops run along them. What is
computed in is the dtype itself, float32 for 16-bit floats, as LAPACK has it.
"""

from __future__ import annotations

from dataclasses import dataclass

from tactix.base import dims
from tactix.base.dims import Dim
from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import scalar as c_scalar
from tactix_codegen.c import text as c_text
from tactix_codegen.c.text import Args, block, comment, loop

SECONDS_A_STEP = 3e-10
"""Of a product and difference in a row. No measurement of it is on record."""

MOST_POWER = 9999
"""Powers of two beyond this are infinite or zero in every dtype."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [MatricesTactic()]


@dataclass(frozen=True)
class MatricesWork:
    """``count`` matrices of ``size`` rows; ``inverse``: as well the one matrix beside it."""

    node: Node
    count: Dim
    size: Dim
    inverse: bool

    @property
    def real(self) -> DType:
        """The dtype that is computed in."""
        return DType.FP64 if self.node.given[0].spec.dtype is DType.FP64 else DType.FP32

    @property
    def columns(self) -> Dim:
        """Of the rows that are eliminated: with the matrix that becomes the inverse."""
        return 2 * self.size if self.inverse else self.size


class MatricesTactic(Tactic[MatricesWork]):
    """f64, f32, f16 and bf16, linear."""

    key = "tactix.c_matrices@1"
    implements = ("tactix.Det@1", "tactix.Inverse@1")
    source = "c"
    spreads = True  # rows are swapped by size, which no number has
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> MatricesWork | Reject:
        x = node.given[0].spec
        if node.is_fused or not x.dtype.is_float or not c_text.has_ctype(x.dtype):
            return Reject("this kernel takes matrices of floats, and no epilogue")
        count = dims.prod(x.shape[:-2])
        return MatricesWork(node, count, x.shape[-1], node.layer.name == "Inverse")

    def cost(self, work: MatricesWork, variant: Variant, ctx: CompileContext) -> float | None:
        steps = work.count * work.size * work.size * work.columns
        return c_text.seconds(ctx, (steps, SECONDS_A_STEP))

    def compile(self, work: MatricesWork, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args, threads = Args(work.node), max(1, ctx.threads)
        room = work.size * work.columns * work.real.itemsize * threads
        return c_text.kernel(args, _matrices(args, work, threads), ctx, workspace=room)


def _matrices(args: Args, work: MatricesWork, threads: int) -> list[str]:
    real = c_text.ctype(work.real)
    args.size("N", work.size)
    args.size("COLUMNS", work.columns)
    workspace = args.workspace(0, real)
    body = [
        *_load(args, work),
        comment("The determinant is sign * fraction * 2^power: it may not overflow on the way."),
        f"{real} fraction = 1;",
        "int64_t power = 0;",
        loop("k", "0", "N", *_eliminate(work)),
        f"const int most = {MOST_POWER}, scale = (int)TX_MAX(TX_MIN(power, most), -most);",
        f"const {real} det = {_function(work, 'ldexp')}(fraction, scale);",
        *(_inverse(args, work) if work.inverse else [_det(args, work)]),
    ]
    return [
        *c_text.at_most(threads),
        c_text.split(args.size("MATRICES", work.count)),
        f"{real}* const m = {workspace} + tid * N * COLUMNS;",
        loop("matrix", "lo", "hi", *body),
    ]


def _function(work: MatricesWork, name: str) -> str:
    """Of C's library, for the dtype that is computed in."""
    return name if work.real is DType.FP64 else f"{name}f"


def _load(args: Args, work: MatricesWork) -> list[str]:
    dtype = work.node.given[0].spec.dtype
    element = c_scalar.element(dtype, f"{args.input(0)}[(matrix * N + i) * N + j]")
    one = [loop("j", "0", "N", "m[i * COLUMNS + N + j] = i == j;")] if work.inverse else []
    copied = loop("j", "0", "N", f"m[i * COLUMNS + j] = {element};")
    return [loop("i", "0", "N", copied, *one)]


def _eliminate(work: MatricesWork) -> list[str]:
    """Column ``k`` becomes zero below the pivot; above it, too, where the inverse is asked for."""
    real, fabs = c_text.ctype(work.real), _function(work, "fabs")
    below = f"if ({fabs}(m[i * COLUMNS + k]) > {fabs}(m[best * COLUMNS + k])) best = i;"
    swap = [
        f"const {real} other = m[best * COLUMNS + j];",
        "m[best * COLUMNS + j] = m[k * COLUMNS + j];",
        "m[k * COLUMNS + j] = other;",
    ]
    minus = loop("j", "k", "COLUMNS", "row[j] -= factor * pivots[j];")
    rows = [
        "if (i == k) continue;" if work.inverse else "",
        f"{real}* restrict const row = m + i * COLUMNS;",
        f"const {real} factor = row[k] / pivot;",
        minus,
    ]
    return [
        "int64_t best = k;",
        loop("i", "k + 1", "N", below),
        block("if (best != k)", "fraction = -fraction;", loop("j", "0", "COLUMNS", *swap)),
        f"const {real}* const pivots = m + k * COLUMNS;",
        f"const {real} pivot = pivots[k];",
        "int part;",
        f"fraction = {_function(work, 'frexp')}(fraction * pivot, &part);",
        "power += part;",
        block("if (pivot == 0)", "fraction = 0;", "break;"),
        loop("i", "0" if work.inverse else "k + 1", "N", *rows),
    ]


def _det(args: Args, work: MatricesWork) -> str:
    return f"{args.output()}[matrix] = {c_scalar.stored(work.node.outputs[0].spec.dtype, 'det')};"


def _inverse(args: Args, work: MatricesWork) -> list[str]:
    """Of a matrix whose determinant is zero, in this dtype, nothing is a number."""
    dtype, real = work.node.outputs[0].spec.dtype, c_text.ctype(work.real)
    value = "det == 0 ? NAN : m[i * COLUMNS + N + j] / pivot"
    store = f"{args.output()}[(matrix * N + i) * N + j] = {c_scalar.stored(dtype, 'v')};"
    row = loop("j", "0", "N", f"const {real} v = {value};", store)
    return [loop("i", "0", "N", f"const {real} pivot = m[i * COLUMNS + i];", row)]
