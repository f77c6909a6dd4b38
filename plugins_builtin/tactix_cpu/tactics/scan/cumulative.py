"""CumSum and CumProd in C, in the order of their reference, along an axis that is known or that a
scalar tells.

Along the last axis four lines go side by side, as each sum waits for the one before; along others
vectors hold neighbouring lines. 16-bit floats are folded in float32, and become that a part of a
line at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import copy as c_copy
from tactix_codegen.c import text as c_text
from tactix_codegen.c.order import Lines
from tactix_codegen.c.scalar import WIDE
from tactix_codegen.c.text import Args, block, choice, comment, load, loop, store

SECONDS_AN_ELEMENT = 1e-9
"""An addition takes four cycles, and four lines go side by side; the rest is loads and stores."""
TILE = 1024
"""Neighbouring lines whose sums are kept at a time: 4 KiB of float32, and as long a stretch of
memory. 64 took 1.5 times as long where 768 lines are neighbours.
"""
PART = 256
"""Elements of a line that are float32 at a time: 4 KiB for four lines."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CumulativeTactic()]


@dataclass(frozen=True)
class FoldWork:
    """``join``: an operator between what was folded and the next; ``neutral``: where it begins."""

    node: Node
    join: str
    neutral: str
    dynamic: bool

    @property
    def dtype(self) -> DType:
        return self.node.given[0].spec.dtype

    @property
    def kind(self) -> str:
        """The C type that is folded."""
        return "float" if self.dtype in WIDE else c_text.ctype(self.dtype)

    @property
    def is_wide(self) -> bool:
        """Whether elements are folded in another dtype than theirs."""
        return self.dtype in WIDE

    def step(self, source: str, target: str, fold: str) -> list[str]:
        """Statements for one element, in the dtype that is folded."""
        joined = f"{fold} = ({self.kind})({fold} {self.join} {source});"
        kept = f"const {self.kind} before = {fold};"
        if self.node.attrs.exclusive:
            return [kept, joined, f"{target} = before;"]
        return [joined, f"{target} = {fold};"]


class CumulativeTactic(Tactic[FoldWork]):
    """Numbers of any dtype with a C type; linear format."""

    key = "tactix.c_cumulative@1"
    implements = ("tactix.CumSum@1", "tactix.CumProd@1", "tactix.DynamicCumulative@1")
    source = "c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> FoldWork | Reject:
        dtype, dynamic = node.given[0].spec.dtype, node.layer.name == "DynamicCumulative"
        if node.is_fused or not c_text.has_ctype(dtype) or dtype is DType.BOOL:
            return Reject(f"no running fold of {dtype.value} in C")
        if node.given[0].spec.rank == 0:
            return Reject("a scalar has no axis")
        if dynamic and not (
            node.given[1].spec.dtype.is_int and c_text.has_ctype(node.given[1].spec.dtype)
        ):
            return Reject(f"no axis of {node.given[1].spec.dtype.value} in C")
        fold = node.attrs.fold if dynamic else node.layer.name
        join, neutral = ("*", "1") if fold == "CumProd" else ("+", "0")
        return FoldWork(node, join, neutral, dynamic)

    def cost(self, work: FoldWork, variant: Variant, ctx: CompileContext) -> float | None:
        return c_text.seconds(ctx, (work.node.given[0].spec.numel, SECONDS_AN_ELEMENT))

    def compile(self, work: FoldWork, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args = Args(work.node)
        body = [
            *(_told_axis(args) if work.dynamic else _known_axis(args)),
            f"const {c_text.ctype(work.dtype)}* const x = {args.input(0)};",
            f"{c_text.ctype(work.dtype)}* const y = {args.output(0)};",
            choice("INNER == 1", _wide_rows(work) if work.is_wide else _rows(work), _columns(work)),
        ]
        return c_text.kernel(args, body, ctx, preludes=c_copy.preludes())


def _known_axis(args: Args) -> list[str]:
    lines = Lines.along(args.node.given[0].spec.shape, args.node.attrs.axis)
    for name, d in (("OUTER", lines.outer), ("SIZE", lines.size), ("INNER", lines.inner)):
        args.size(name, d)
    return []


def _told_axis(args: Args) -> list[str]:
    shape, axis = args.node.given[0].spec.shape, args.input(1)
    rank = len(shape)
    refusal = args.refuse("axis {0} of a tensor with {1} axes", f"{axis}[0]", str(rank))
    return [
        f"const int64_t axis = (int64_t){axis}[0] + ({axis}[0] < 0 ? {rank} : 0);",
        f"const int64_t shape[] = {{{', '.join(args.dim(d) for d in shape)}}};",
        block(f"if ((uint64_t)axis >= {rank})", refusal, "return;"),
        "int64_t OUTER = 1, INNER = 1;",
        loop("i", "0", "axis", "OUTER *= shape[i];"),
        loop("i", "axis + 1", str(rank), "INNER *= shape[i];"),
        "const int64_t SIZE = shape[axis];",
    ]


def _index(work: FoldWork) -> str:
    return f"const int64_t i = {'SIZE - 1 - t' if work.node.attrs.reverse else 't'};"


def _rows(work: FoldWork) -> list[str]:
    place = "[(line + k) * SIZE + i]"
    steps = work.step(f"x{place}", f"y{place}", "fold[k]")
    both = [
        loop("t", "0", "SIZE", _index(work), loop("k", "0", count, *steps))
        for count in ("SIDE", "n")
    ]
    return [
        "enum { SIDE = 4 };",
        c_text.split("OUTER"),
        loop(
            "line",
            "lo",
            "hi",
            "const int64_t n = hi - line < SIDE ? hi - line : SIDE;",
            f"{work.kind} fold[SIDE];",
            loop("k", "0", "SIDE", f"fold[k] = {work.neutral};"),
            choice("n == SIDE", both[:1], both[1:]),
            step="SIDE",
        ),
    ]


def _wide_rows(work: FoldWork) -> list[str]:
    """Parts of four lines: widened by vectors, folded, narrowed by vectors."""
    last = "SIZE - begin - m" if work.node.attrs.reverse else "begin"
    place = f"(line + k) * SIZE + {last}"
    steps = work.step("part[k * PART + i]", "part[k * PART + i]", "fold[k]")
    index = f"const int64_t i = {'m - 1 - t' if work.node.attrs.reverse else 't'};"
    return [
        f"enum {{ SIDE = 4, PART = {PART} }};",
        "float part[SIDE * PART + TX_LANES];",
        c_text.split("OUTER"),
        loop(
            "line",
            "lo",
            "hi",
            "const int64_t n = hi - line < SIDE ? hi - line : SIDE;",
            "float fold[SIDE];",
            loop("k", "0", "SIDE", f"fold[k] = {work.neutral};"),
            loop(
                "begin",
                "0",
                "SIZE",
                "const int64_t m = SIZE - begin < PART ? SIZE - begin : PART;",
                loop("k", "0", "n", *_widened(work, f"x + {place}", "part + k * PART", "m")),
                loop("t", "0", "m", index, loop("k", "0", "SIDE", *steps)),
                loop("k", "0", "n", *_narrowed(work, "part + k * PART", f"y + {place}", "m")),
                step="PART",
            ),
            step="SIDE",
        ),
    ]


def _widened(work: FoldWork, source: str, target: str, count: str) -> list[str]:
    """A stretch as float32, up to a vector's length more than that."""
    whole, rest = (load(work.dtype, f"{source} + v", n) for n in ("", f"{count} - v"))
    put = store(DType.FP32, f"{target} + v", f"v + TX_LANES <= {count} ? {whole} : {rest}")
    return [loop("v", "0", count, put, step="TX_LANES")]


def _narrowed(work: FoldWork, source: str, target: str, count: str) -> list[str]:
    vector = load(DType.FP32, f"{source} + v")
    whole = store(work.dtype, f"{target} + v", vector)
    rest = store(work.dtype, f"{target} + v", vector, f"{count} - v")
    return [
        loop("v", "0", count, f"if (v + TX_LANES <= {count}) {whole} else {rest}", step="TX_LANES")
    ]


def _columns(work: FoldWork) -> list[str]:
    source, target = ("wide", "wide") if work.is_wide else ("x + at", "y + at")
    steps = work.step(f"({source})[j]", f"({target})[j]", "fold[j]")
    line = [
        _index(work),
        "const int64_t at = (outer * SIZE + i) * INNER + begin;",
        *(_widened(work, "x + at", "wide", "n") if work.is_wide else []),
        loop("j", "0", "n", *steps),
        *(_narrowed(work, "wide", "y + at", "n") if work.is_wide else []),
    ]
    return [
        f"enum {{ TILE = {TILE} }};",
        "float wide[TILE + TX_LANES];" if work.is_wide else "",
        "const int64_t tiles = (INNER + TILE - 1) / TILE;",
        c_text.split("OUTER * tiles"),
        loop(
            "unit",
            "lo",
            "hi",
            "const int64_t outer = unit / tiles, begin = unit % tiles * TILE;",
            "const int64_t n = INNER - begin < TILE ? INNER - begin : TILE;",
            f"{work.kind} fold[TILE];",
            loop("j", "0", "n", f"fold[j] = {work.neutral};"),
            comment("Along the axis; vectors hold neighbours."),
            loop("t", "0", "SIZE", *line),
        ),
    ]
