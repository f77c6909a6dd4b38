"""NonZero and Compress in C: what is there is counted first, which tells the size of the output.

Elements are counted in parts whose number is fixed, as another launch may run on more threads.
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
from tactix_codegen.c import copy as c_copy
from tactix_codegen.c import text as c_text
from tactix_codegen.c.order import Lines
from tactix_codegen.c.text import Args, block, comment, loop

PARTS = 64
"""Of the elements, each counted by one thread: enough for threads to share."""
SECONDS_AN_ELEMENT = 1.5e-9
"""To count it and to look at it again."""
_MAGNITUDE = {DType.FP16: "0x7fffu", DType.BF16: "0x7fffu", DType.FP32: "0x7fffffffu",
              DType.FP64: "0x7fffffffffffffffu"}  # fmt: skip
"""The bits of a float but for its sign."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [NonZeroTactic(), CompressTactic()]


class NonZeroTactic(Tactic[Node]):
    """Any dtype with a C type; NaN is not 0."""

    key = "tactix.c_nonzero@1"
    implements = ("tactix.NonZero@1",)
    source = "c"
    tells = True

    def match(self, node: Node, device: DeviceProperties) -> Node | Reject:
        dtype = node.given[0].spec.dtype
        return node if c_text.has_ctype(dtype) else Reject(f"no elements of {dtype.value} in C")

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        return c_text.seconds(ctx, (node.given[0].spec.numel, SECONDS_AN_ELEMENT))

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args, spec = Args(node), node.given[0].spec
        phase, counts = args.phase(), args.workspace(0, "int64_t")
        args.size("COUNT", spec.numel)
        (told,) = (d for d in node.outputs[0].spec.shape[1:])
        body = [
            _bits(args, 0, "x"),
            *_counting(args, f"({_nonzero('x[i]', spec.dtype)})", told),
            *_parts_after(phase, counts, _places(args, node)),
        ]
        return c_text.kernel(
            args, body, ctx, preludes=c_copy.preludes(), workspace=8 * PARTS, phases=3, telling=2
        )


def _bits(args: Args, index: int, name: str) -> str:
    """Declare an input as the bits of its elements."""
    kind = f"uint{8 * args.node.given[index].spec.dtype.itemsize}_t"
    return f"const {kind}* const {name} = (const {kind}*){args.bytes_in(index)};"


def _nonzero(element: str, dtype: DType) -> str:
    return f"({element} & {_MAGNITUDE[dtype]}) != 0" if dtype in _MAGNITUDE else f"{element} != 0"


def _counting(args: Args, holds: str, told: Dim) -> list[str]:
    """The first two launches: what holds among COUNT is counted by parts, and told."""
    phase, counts = args.phase(), args.workspace(0, "int64_t")
    name = dims.symbol_name(told)
    assert name is not None
    part = [
        "int64_t begin, end, count = 0;",
        f"tx_split(COUNT, 1, (int)part, {PARTS}, &begin, &end);",
        loop("i", "begin", "end", f"count += {holds};"),
        f"{counts}[part] = count;",
    ]
    whole = ["int64_t sum = 0;", loop("part", "0", str(PARTS), f"sum += {counts}[part];")]
    return [
        block(
            f"if ({phase} == 0)",
            comment("Count by parts."),
            c_text.split(str(PARTS)),
            loop("part", "lo", "hi", *part),
            "return;",
        ),
        block(
            f"if ({phase} == 1)",
            "if (tid) return;",
            *whole,
            *args.tell({name: "sum"}),
            "return;",
        ),
    ]


def _parts_after(phase: str, counts: str, body: list[str]) -> list[str]:
    """The third launch: every part knows how many elements those before it have found."""
    part = [
        "int64_t begin, end, to = 0;",
        f"tx_split(COUNT, 1, (int)part, {PARTS}, &begin, &end);",
        loop("before", "0", "part", f"to += {counts}[before];"),
        *body,
    ]
    return [c_text.split(str(PARTS)), loop("part", "lo", "hi", *part)]


def _places(args: Args, node: Node) -> list[str]:
    """The coordinates of what is not 0, a run of a row at a time."""
    spec, y = node.given[0].spec, args.output(0)
    row = args.size("ROW", spec.shape[-1] if spec.rank else 1)
    found = args.size("FOUND", node.outputs[0].spec.shape[1])
    outer = [f"i{k}" for k in range(max(0, spec.rank - 1))]
    writes = [
        loop("k", "0", "n", f"{y}[{k} * {found} + to + k] = {name};")
        for k, name in enumerate(outer)
    ]
    if spec.rank:
        writes.append(loop("k", "0", "n", f"{y}[{len(outer)} * {found} + to + k] = at[k];"))
    run = [
        f"const int64_t line = begin / {row}, first = begin % {row};",
        f"int64_t last = {row} - first < end - begin ? {row} - first : end - begin;",
        "last = last < RUN ? last : RUN;",
        "int64_t at[RUN], n = 0;",
        comment("Every element's place is written; the next one takes its place if it is 0."),
        loop(
            "k",
            "0",
            "last",
            "at[n] = first + k;",
            f"n += {_nonzero('x[begin + k]', spec.dtype)};",
        ),
        c_text.decode("line", outer, [args.dim(d) for d in spec.shape[:-1]]),
        *writes,
        "to += n;",
        "begin += last;",
    ]
    return ["enum { RUN = 256 };", block("while (begin < end)", *run)]


@dataclass(frozen=True)
class CompressWork:
    """Slices of x along an axis, those of which a condition holds."""

    node: Node
    lines: Lines


class CompressTactic(Tactic[CompressWork]):
    """Any movable dtype, along an axis or through all elements."""

    key = "tactix.c_compress@1"
    implements = ("tactix.Compress@1",)
    source = "c"
    tells = True

    def match(self, node: Node, device: DeviceProperties) -> CompressWork | Reject:
        x, condition = (v.spec for v in node.given[:2])
        if not c_copy.movable(x.dtype) or condition.dtype is not DType.BOOL:
            return Reject(f"no choice from {x} by {condition} in C")
        if node.attrs.axis is None:
            return CompressWork(node, Lines(1, x.numel, 1))
        return CompressWork(node, Lines.along(x.shape, node.attrs.axis))

    def cost(self, work: CompressWork, variant: Variant, ctx: CompileContext) -> float | None:
        return c_text.seconds(ctx, (work.node.given[0].spec.numel, SECONDS_AN_ELEMENT))

    def compile(self, work: CompressWork, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args, node = Args(work.node), work.node
        phase, counts = args.phase(), args.workspace(0, "int64_t")
        axis = 0 if node.attrs.axis is None else node.attrs.axis
        told = node.outputs[0].spec.shape[axis]
        condition = node.given[1].spec.numel
        args.size("COUNT", condition)
        args.size("SIZE", work.lines.size)
        args.size("FOUND", told)
        body = [
            _bits(args, 1, "keep"),
            block(f"if ({phase} == 0 && tid == 0)", *_no_more(args)),
            *_counting(args, "(keep[i] != 0)", told),
            *_parts_after(phase, counts, _slices(args, work)),
        ]
        return c_text.kernel(
            args, body, ctx, preludes=c_copy.preludes(), workspace=8 * PARTS, phases=3, telling=2
        )


def _no_more(args: Args) -> list[str]:
    """Nothing may be asked for behind the last slice."""
    text = "the condition of {0} asks for slices behind the last of {1}"
    refusal = args.refuse(text, "COUNT", "SIZE", do="Give one condition a slice, or fewer")
    return [loop("i", "SIZE", "COUNT", f"if (keep[i]) {refusal}")]


def _slices(args: Args, work: CompressWork) -> list[str]:
    width, kind = (f(work) for f in (_width, _kind))
    y, x = args.bytes_out(0), args.bytes_in(0)
    if work.lines.outer == 1 and work.lines.inner == 1:
        return [
            f"const {kind}* const x = (const {kind}*){x};",
            f"{kind}* const y = ({kind}*){y};",
            loop("i", "begin", "end", "if (keep[i]) y[to++] = x[i];"),
        ]
    inner = args.size("INNER", work.lines.inner)
    outer = args.size("OUTER", work.lines.outer)
    size = f"{inner} * {width}"
    copy = f"tx_copy({y} + (o * FOUND + to) * {size}, {x} + (o * SIZE + i) * {size}, {size});"
    return [
        loop("i", "begin", "end", "if (!keep[i]) continue;", loop("o", "0", outer, copy), "to++;")
    ]


def _width(work: CompressWork) -> int:
    return work.node.given[0].spec.dtype.itemsize


def _kind(work: CompressWork) -> str:
    return f"uint{8 * _width(work)}_t"
