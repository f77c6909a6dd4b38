"""Reductions over axes that are the content of a tensor, in C: the first launch tells what is left.

Axes that go and that stay are runs of neighbours once axes of one element are left out and
neighbours of a kind are one axis. If the innermost one goes, a row of it makes a result (rows);
else neighbouring results are made together (columns).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import copy as c_copy
from tactix_codegen.c import text as c_text
from tactix_codegen.c.scalar import element, float_literal, int_literal, stored
from tactix_codegen.c.text import Args, block, choice, comment, loop
from tactix_codegen.operations.reduce import operation_named
from tactix_cpu.tactics.move.told_shapes import named_axes, size_list, told

JOINED, EXPONENTIAL = 0.5e-9, 6e-9
"""Seconds for an element, and for one whose exponential is taken. No measurement of them is on
record.
"""
LANES, TILE = 32, 256
"""Sums of a row side by side, and neighbouring results: vectors run over them."""
SOME = 32
"""Elements that are summed in float32 before they join a sum in float64."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [ToldReduceTactic()]


class ToldReduceTactic(Tactic[Node]):
    """All reductions of numbers, extremes of booleans too. Floats are summed in float64."""

    key = "tactix.c_told_reduce@1"
    implements = ("tactix.DynamicReduce@1",)
    source = "c"
    tells = True

    def match(self, node: Node, device: DeviceProperties) -> Node | Reject:
        x, axes = (v.spec for v in node.given)
        if not c_text.has_ctype(x.dtype):
            return Reject(f"no reduction of {x.dtype.value} in C")
        if x.dtype is DType.BOOL and node.attrs.reduction not in ("ReduceMax", "ReduceMin"):
            return Reject("no sums of booleans in C")
        if not axes.dtype.is_int or not c_text.has_ctype(axes.dtype):
            return Reject(f"no axes of {axes.dtype.value} in C")
        if not isinstance(axes.numel, int):
            return Reject("how many axes there are is not known")
        return node

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        each = EXPONENTIAL if node.attrs.reduction == "ReduceLogSumExp" else JOINED
        return c_text.seconds(ctx, (node.given[0].spec.numel, each / max(1, ctx.threads)))

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args = Args(node)
        body = [*_axes(args, node), _told(args, node), *_loops(node), *_reduced(args, node)]
        return c_text.kernel(args, body, ctx, preludes=c_copy.preludes(), phases=2, telling=1)


def _axes(args: Args, node: Node) -> list[str]:
    """Declare ``size``, and ``gone``, whose bit of an axis says that it is reduced."""
    rank, a = node.given[0].spec.rank, node.attrs
    every = node.given[1].spec.numel == 0 and not a.noop_with_empty_axes
    return [
        size_list("size", [args.dim(d) for d in node.given[0].spec.shape]),
        *named_axes(args, rank, "axis {0} of a tensor with {1} axes, or twice"),
        f"const uint64_t gone = {f'((uint64_t)1 << {rank}) - 1' if every else 'seen'};",
    ]


def _told(args: Args, node: Node) -> str:
    one = "out[n++] = 1;" if node.attrs.keepdims else "continue;"
    left = f"if (gone >> i & 1) {one}"
    rank = str(node.given[0].spec.rank)
    return told(args, ["int64_t n = 0;", loop("i", "0", rank, left, "else out[n++] = size[i];")])


def _loops(node: Node) -> list[str]:
    """Loops from the innermost on: sizes and strides of those that stay, and of those that go."""
    rank = node.given[0].spec.rank
    room = f"[{rank + 1}]"
    return [
        comment("Loops over what stays and what goes, from the innermost on: how often, how far."),
        f"int64_t stay{room} = {{1}}, far{room} = {{1}}, go{room} = {{1}}, deep{room} = {{1}};",
        "int64_t staying = 0, going = 0, step = 1, count = 1, results = 1, rows = 0;",
        block(
            f"for (int i = {rank}; i-- > 0;)",
            "if (size[i] == 1) continue;",
            "const int away = (int)(gone >> i & 1);",
            "int64_t* const often = away ? go : stay;",
            "int64_t* const by = away ? deep : far;",
            "int64_t* const n = away ? &going : &staying;",
            "if (step == 1) rows = away;",
            "if (*n && by[*n - 1] * often[*n - 1] == step) often[*n - 1] *= size[i];",
            "else often[*n] = size[i], by[(*n)++] = step;",
            "*(away ? &count : &results) *= size[i];",
            "step *= size[i];",
        ),
        "const int64_t turns = go[0] ? count / go[0] : 0;",
    ]


@dataclass(frozen=True)
class _Pass:
    """One walk over what is reduced to a result: ``value`` of an element ``v`` joins ``kept``."""

    kept: str
    kind: str
    start: str
    join: str
    value: str = "v"

    def joined(self, place: str, element_: str) -> list[str]:
        b = self.value.format(place=place)
        return [
            f"const {self.kind} v = {element_};",
            f"{self.kept}[{place}] = {self.join.format(a=f'{self.kept}[{place}]', b=f'({b})')};",
        ]


def _pass(kept: str, kind: str, layer: str, number: DType) -> _Pass:
    """That of a reducing layer; ``number``: the dtype of what it begins with."""
    operation = operation_named(layer)
    if number.is_float:
        start = float_literal(operation.start, double=number is DType.FP64)
    else:
        start = int_literal(operation.start, number, saturate=True)
    return _Pass(kept, kind, start, operation.join)


def _passes(node: Node) -> list[_Pass]:
    """Of LogSumExp the largest element first."""
    x, layer = node.given[0].spec.dtype, node.attrs.reduction
    if layer == "ReduceLogSumExp":
        sums = _pass("acc", "double", "ReduceSum", DType.FP64)
        top = _pass("top", "double", "ReduceMax", DType.FP64)
        return [top, replace(sums, value="exp(v - top[{place}])")]
    if layer in ("ReduceMax", "ReduceMin"):
        own = DType.FP32 if x.is_float and x.bits < 64 else x
        return [_pass("acc", c_text.ctype(own), layer, own)]
    if x.is_float:
        narrow = layer == "ReduceProd" and x is not DType.FP64
        wide = DType.FP32 if narrow else DType.FP64
    else:  # integers wrap as the dtype does
        whole = layer != "ReduceMean" or _is_whole(node)
        wide = DType.UINT64 if whole else DType.FP64
    return [_pass("acc", c_text.ctype(wide), layer, wide)]


def _reduced(args: Args, node: Node) -> list[str]:
    x, y = node.given[0].spec.dtype, node.outputs[0].spec.dtype
    passes = _passes(node)
    mean = node.attrs.reduction == "ReduceMean" and not _is_whole(node)
    value = "acc[{place}] / (double)count" if mean else "acc[{place}]"
    if len(passes) > 1:
        value = "log(acc[{place}]) + top[{place}]"
    if y.is_float:
        kind = "double" if y is DType.FP64 else "float"
        value = stored(y, f"({kind})({value})")
    elif mean:
        whole = "tx_u64_of" if y is DType.UINT64 else "tx_i64_of"
        value = f"({c_text.ctype(y)}){whole}({value})"
    else:
        value = f"({c_text.ctype(y)})({value})"
    number = element(x, "{at}")
    return [
        choice("rows", _rows(args, passes, value, number), _columns(args, passes, value, number)),
    ]


def _is_whole(node: Node) -> bool:
    """Whether nothing is reduced: a mean of integers would pass through float64."""
    return node.attrs.noop_with_empty_axes and node.given[1].spec.numel == 0


def _offset(name: str, flat: str, often: str, by: str, count: str, first: str = "1") -> list[str]:
    """Declare ``name``: how far the loops from ``first`` on have come at the flat index."""
    return [
        f"int64_t {name} = 0, {name}_rest = {flat};",
        loop(
            "k",
            first,
            count,
            f"{name} += {name}_rest % {often}[k] * {by}[k];",
            f"{name}_rest /= {often}[k];",
        ),
    ]


def _rows(args: Args, passes: list[_Pass], value: str, number: str) -> list[str]:
    x, unit = args.input(0), list[str]()
    for p in passes:
        several = loop("w", "0", str(LANES), *p.joined("w", number.format(at="row[i + w]")))
        one = p.joined("0", number.format(at="row[i]"))
        unit += [
            f"{p.kind} {p.kept}[{LANES}];",
            loop("w", "0", str(LANES), f"{p.kept}[w] = {p.start};"),
            loop(
                "r",
                "0",
                "turns",
                *_offset("turn", "r", "go", "deep", "going"),
                f"const {_const(args)}* const row = {x} + at + turn;",
                "int64_t i = 0;",
                block(f"for (; i + {LANES} <= go[0]; i += {LANES})", several),
                block("for (; i < go[0]; i++)", *one),
            ),
            *_folded(p),
        ]
    return [
        comment("Results [lo, hi) are this thread's: rows of neighbours, in sums side by side."),
        c_text.split("results"),
        loop(
            "u",
            "lo",
            "hi",
            *_offset("at", "u", "stay", "far", "staying", "0"),
            *unit,
            f"{args.output()}[u] = {value.format(place='0')};",
        ),
    ]


def _folded(p: _Pass) -> list[str]:
    """The sums of a row as one; the largest element in all places, where the next walk looks."""
    other = p.join.format(a=f"{p.kept}[0]", b=f"{p.kept}[w]")
    lines = [loop("w", "1", str(LANES), f"{p.kept}[0] = {other};")]
    if p.kept == "top":
        lines.append("if (!isfinite(top[0])) top[0] = 0;")
        lines.append(loop("w", "1", str(LANES), "top[w] = top[0];"))
    return lines


def _columns(args: Args, passes: list[_Pass], value: str, number: str) -> list[str]:
    x, unit = args.input(0), list[str]()
    for p in passes:
        finite = loop("c", "0", "wide", "if (!isfinite(top[c])) top[c] = 0;")
        unit += [
            f"{p.kind} {p.kept}[{TILE}];",
            loop("c", "0", "wide", f"{p.kept}[c] = {p.start};"),
            loop(
                "r",
                "0",
                "turns",
                *_offset("turn", "r", "go", "deep", "going"),
                f"const {_const(args)}* row = {x} + at + begin + turn;",
                *_column(args, p, number.format(at="row[c]")),
            ),
            *([finite] if p.kept == "top" else []),
        ]
    return [
        comment("Tiles [lo, hi) of neighbouring results are this thread's."),
        f"const int64_t tiles = (stay[0] + {TILE} - 1) / {TILE};",
        c_text.split("results ? results / stay[0] * tiles : 0"),
        loop(
            "u",
            "lo",
            "hi",
            f"const int64_t begin = u % tiles * {TILE}, outer = u / tiles;",
            f"const int64_t wide = stay[0] - begin < {TILE} ? stay[0] - begin : {TILE};",
            *_offset("at", "outer", "stay", "far", "staying"),
            *unit,
            loop(
                "c",
                "0",
                "wide",
                f"{args.output()}[outer * stay[0] + begin + c] = {value.format(place='c')};",
            ),
        ),
    ]


def _column(args: Args, p: _Pass, number: str) -> list[str]:
    """The elements from ``row`` on. Floats up to 32 bits are summed in float32 first, some at a
    time: twice as many are in a vector.
    """
    dtype = args.node.given[0].spec.dtype
    sums = p.kept == "acc" and p.kind == "double" and p.value == "v"
    if not (sums and dtype.is_float and dtype.bits <= 32):
        step = loop("c", "0", "wide", *p.joined("c", number))
        return [block("for (int64_t i = 0; i < go[0]; i++, row += deep[0])", step)]
    part = replace(p, kept="part", kind="float")
    several = [
        f"const int64_t end = i + {SOME} < go[0] ? i + {SOME} : go[0];",
        f"float part[{TILE}];",
        loop("c", "0", "wide", "part[c] = 0;"),
        block(
            "for (; i < end; i++, row += deep[0])",
            loop("c", "0", "wide", *part.joined("c", number)),
        ),
        loop("c", "0", "wide", "acc[c] += part[c];"),
    ]
    return [block("for (int64_t i = 0; i < go[0];)", *several)]


def _const(args: Args) -> str:
    return c_text.ctype(args.node.given[0].spec.dtype)
