"""ReduceLogSumExp and LpNormalization in C: walks over lines of a tensor, one after the other.

Where a line goes along the last axis a vector runs along it; else vectors hold neighbouring lines.
float64 is computed element by element.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tactix.base import dims
from tactix.base.dims import Dim, Shape
from tactix.base.dtypes import DType
from tactix.base.tensor import LINEAR
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import text as c_text
from tactix_codegen.c.space import Space
from tactix_codegen.c.text import Args, block, comment, loop
from tactix_codegen.operations.reduce import REDUCED, Operands, space

SECONDS_A_BYTE = 1.7e-10
"""As what softmax's estimate takes for as many walks (norm/softmax.py: 6e9 bytes a second). No
measurement of it is on record.
"""
VECTORS = (DType.FP32, DType.FP16, DType.BF16)
Statement = Callable[[str, str], str]
"""Text for a vector ``v`` of a line; of the place behind ``x0`` and ``y0`` where it lies, and of
how many of its lanes count, empty for all.
"""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [LogSumExpTactic(), LpNormalizationTactic()]


@dataclass(frozen=True)
class LinesWork:
    """``space``: loops that are kept, one for each line, and reduced ones, along a line; strides of
    the input and the output.
    """

    node: Node
    space: Space


def _lines(node: Node, axes: tuple[int, ...], result: Shape) -> LinesWork | Reject:
    """Lines along axes of the first input; ``result``: of the output, as ``space`` takes it."""
    x = node.given[0].spec
    if node.is_fused:
        return Reject("lines take no epilogue")
    if x.dtype not in (*VECTORS, DType.FP64):
        return Reject(f"no lines of {x.dtype.value} in C")
    rank = x.rank
    own, strides = c_text.contiguous_strides(x.shape), c_text.contiguous_strides(result)
    places = sorted(a % rank for a in axes)
    if result == x.shape:
        return LinesWork(node, space(x.shape, places, LINEAR, Operands([own, own], [], rank)))
    behind = Operands([own], [strides], len(result))
    return LinesWork(node, space(x.shape, places, LINEAR, behind))


class LogSumExpTactic(Tactic[LinesWork]):
    """Over any axes; the largest element is taken out first, so that nothing overflows."""

    key = "tactix.c_logsumexp@1"
    implements = ("tactix.ReduceLogSumExp@1",)
    source = "c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> LinesWork | Reject:
        return _lines(node, node.attrs.axes, node.outputs[0].spec.shape)

    def cost(self, work: LinesWork, variant: Variant, ctx: CompileContext) -> float | None:
        return c_text.seconds(ctx, (2 * work.node.given[0].spec.nbytes(), SECONDS_A_BYTE))

    def compile(self, work: LinesWork, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        walk = LineWalk.of(work)
        return c_text.kernel(walk.args, walk.body(_log_sum_exp), ctx)


class LpNormalizationTactic(Tactic[LinesWork]):
    """Each line divided by the sum of its sizes, or the root of that of its squares."""

    key = "tactix.c_lp_normalization@1"
    implements = ("tactix.LpNormalization@1",)
    source = "c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> LinesWork | Reject:
        if node.attrs.p not in (1, 2):
            return Reject(f"no norm of order {node.attrs.p} in C")
        return _lines(node, (node.attrs.axis,), node.given[0].spec.shape)

    def cost(self, work: LinesWork, variant: Variant, ctx: CompileContext) -> float | None:
        return c_text.seconds(ctx, (3 * work.node.given[0].spec.nbytes(), SECONDS_A_BYTE))

    def compile(self, work: LinesWork, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        walk, p = LineWalk.of(work), work.node.attrs.p
        return c_text.kernel(walk.args, walk.body(lambda w, n: _normalized(w, n, p)), ctx)


# -- what is done to a line ------------------------------------------------------------------------


def _log_sum_exp(walk: LineWalk, count: str) -> list[str]:
    if walk.dtype is DType.FP64:
        return [
            "double top = -INFINITY, sum = 0;",
            walk.along(lambda at, n: "top = v > top ? v : top;", count),
            "top = isfinite(top) ? top : 0;",
            walk.along(lambda at, n: "sum += exp(v - top);", count),
            walk.result("log(sum) + top", count),
        ]
    return [
        "vf largest = tx_splat(-INFINITY), s = tx_zero();",
        walk.along(lambda at, n: f"largest = tx_max_c({_or_lowest(n)}, largest);", count),
        f"const vf most = {walk.joined('largest', 'tx_hmax_c')};",
        "const vf top = tx_select(tx_lt(tx_abs(most), tx_splat(INFINITY)), most, tx_zero());",
        walk.along(lambda at, n: f"s += {_kept('tx_exp2_flush((v - top) * TX_LOG2E)', n)};", count),
        f"const vf sum = {walk.joined('s', 'tx_hsum')};",
        walk.result("tx_log(sum) + top", count),
    ]


def _normalized(walk: LineWalk, count: str, p: int) -> list[str]:
    if walk.dtype is DType.FP64:
        size = "fabs(v)" if p == 1 else "v * v"
        return [
            "double sum = 0;",
            walk.along(lambda at, n: f"sum += {size};", count),
            f"const double norm = {'sum' if p == 1 else 'sqrt(sum)'};",
            walk.along(lambda at, n: walk.store(at, "norm != 0 ? v / norm : 0", n), count),
        ]
    size, divided = ("tx_abs(v)" if p == 1 else "v * v"), "v / norm"
    kept = f"tx_select(tx_eq(norm, tx_zero()), tx_zero(), {divided})"
    return [
        "vf s = tx_zero();",
        walk.along(lambda at, n: f"s += {size};", count),
        f"const vf sum = {walk.joined('s', 'tx_hsum')};",
        f"const vf norm = {'sum' if p == 1 else 'tx_sqrt(sum)'};",
        walk.along(lambda at, n: walk.store(at, kept, n), count),
    ]


def _or_lowest(count: str) -> str:
    return f"tx_select(tx_first({count}), v, tx_splat(-INFINITY))" if count else "v"


def _kept(value: str, count: str) -> str:
    return f"tx_keep({value}, {count})" if count else value


# -- walks -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LineWalk:
    """Text that walks lines of input 0. ``kept``, ``reduced``: numbers of loops of the space."""

    args: Args
    space: Space
    dtype: DType
    kept: tuple[int, ...]
    reduced: tuple[int, ...]

    @classmethod
    def of(cls, work: LinesWork) -> LineWalk:
        tags = list(enumerate(work.space.tags))
        args = Args(work.node)
        args.input(0), args.output()
        kept = tuple(i for i, t in tags if t != REDUCED)
        reduced = tuple(i for i, t in tags if t == REDUCED)
        return cls(args, work.space, work.node.given[0].spec.dtype, kept, reduced)

    @property
    def is_row(self) -> bool:
        """Whether vectors run along a line."""
        last = len(self.space.sizes) - 1
        return self.dtype is not DType.FP64 and last not in self.kept

    @property
    def is_column(self) -> bool:
        """Whether vectors hold neighbouring lines."""
        return self.dtype is not DType.FP64 and not self.is_row

    def body(self, line: Callable[[LineWalk, str], list[str]]) -> list[str]:
        """All lines, by the text of one; that gets how many lanes count, empty for all."""
        outer = self.kept[:-1] if self.is_column else self.kept
        names, sizes = [f"i{i}" for i in outer], [self._size(i) for i in outer]
        if not self.is_column:
            count = self.args.size("LINES", dims.prod(self.space.sizes[i] for i in outer))
            about = comment("Lines [lo, hi) are this thread's.")
            decoded = [c_text.decode("line", names, sizes)] if names else []
            return [about, c_text.split(count), loop("line", "lo", "hi", *decoded, *line(self, ""))]
        last = self._size(self.kept[-1])
        vectors = f"(({last} + TX_LANES - 1) / TX_LANES)"
        rows = self.args.size("ROWS", dims.prod(self.space.sizes[i] for i in outer))
        unit = [
            f"const int64_t row = unit / {vectors}, j = unit % {vectors} * TX_LANES;",
            c_text.decode("row", names, sizes) if names else "(void)row;",
            block(f"if (j + TX_LANES <= {last})", *line(self, "")),
            block("else", *line(self, f"{last} - j")),
        ]
        about = comment("Units are vectors of neighbouring lines; [lo, hi) are this thread's.")
        return [about, c_text.split(f"{rows} * {vectors}"), loop("unit", "lo", "hi", *unit)]

    def along(self, statement: Statement, count: str) -> str:
        """Walk the line: the statement for each vector, or element, of it."""
        if not self.is_row:
            return self._over(self.reduced, self._step(statement, "", count))
        *others, last = self.reduced or (self.kept[-1],)
        if not self.reduced:
            return block("", self._step(statement, "0", "1"))
        n = self._size(last)
        steps = [
            "int64_t i = 0;",
            block(
                f"for (; i + TX_LANES <= {n}; i += TX_LANES)", self._step(statement, "i", "", last)
            ),
            block(f"if (i < {n})", self._step(statement, "i", f"{n} - i", last)),
        ]
        return self._over(others, block("", *steps))

    def joined(self, vector: str, lanes: str) -> str:
        """What lanes of an accumulator come to, in every lane that tells a result."""
        return f"tx_splat({lanes}({vector}))" if self.is_row else vector

    def store(self, at: str, value: str, count: str) -> str:
        """A vector, or an element, at a place of the output."""
        if self.dtype is DType.FP64:
            return f"y0[{at}] = {value};"
        return c_text.store(self.dtype, f"y0 + {at}", value, count)

    def result(self, value: str, count: str) -> str:
        """The one number of the line, or those of neighbouring lines."""
        place = self._offset(1, self.kept, skip_last=self.is_column)
        if self.is_row:
            return self.store(place, value, "1")
        return self.store(self.args.sum(place, "j" if self.is_column else "0"), value, count)

    def _step(self, statement: Statement, index: str, count: str, last: int | None = None) -> str:
        """Load ``v`` and do the statement; ``index`` counts along the loop ``last`` of a row."""
        loops = [i for i in range(len(self.space.sizes)) if i != last]
        where = self._offset(0, loops, skip_last=self.is_column)
        index = "j" if self.is_column else index or "0"
        at = self.args.sum(where, index)
        if self.dtype is DType.FP64:
            return f"{{ const double v = x0[{at}]; {statement(at, '')} }}"
        load = c_text.load(self.dtype, f"x0 + {at}", count)
        return block("", f"const vf v = {load};", statement(at, count))

    def _over(self, loops: tuple[int, ...] | list[int], body: str) -> str:
        for i in reversed(loops):
            body = loop(f"i{i}", "0", self._size(i), body)
        return body

    def _size(self, i: int) -> str:
        return self.args.size(f"SIZE{i}", self.space.sizes[i])

    def _offset(self, operand: int, loops: tuple[int, ...] | list[int], skip_last: bool) -> str:
        """Elements from an operand's begin; the last kept loop is that of vectors."""
        walked = [i for i in loops if not (skip_last and i == self.kept[-1])]
        strides: list[Dim] = [self.space.strides[operand][i] for i in walked]
        return self.args.offset(strides, [f"i{i}" for i in walked])
