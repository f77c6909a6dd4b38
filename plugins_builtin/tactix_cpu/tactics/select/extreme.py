"""ArgMax, ArgMin and Hardmax in C: where the extreme element of each line is.

Along the last axis the keys of a line are compared a group at a time, and the place is looked for
in the best group alone, in all of it at once, without a branch; along others vectors hold
neighbouring lines. NaN is above all numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

from tactix.base import dims
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import copy as c_copy
from tactix_codegen.c import order
from tactix_codegen.c import text as c_text
from tactix_codegen.c.order import Lines, Ranks
from tactix_codegen.c.text import Args, comment, loop

SECONDS_A_BYTE = 2.5e-10
"""Of a line: its keys take longer than to load it from the last cache."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [ExtremeTactic()]


@dataclass(frozen=True)
class ExtremeWork:
    """Which element of each line is meant: the ``largest`` or smallest, of equals the ``last`` or
    the first; ``marks``: a line is written with 1 there and 0 elsewhere, not the place alone.
    """

    node: Node
    lines: Lines
    ranks: Ranks
    largest: bool
    last: bool
    marks: bool

    def key(self, element: str) -> str:
        """The key of an element: the extreme one has the largest, and NaN one that is larger."""
        if self.largest:
            return self.ranks.key(element)
        nan_above = " - 1" if self.ranks.dtype.is_float else ""
        return f"({self.ranks.half})(~{self.ranks.key(element)}{nan_above})"

    @property
    def better(self) -> str:
        """The operator between the key of a later element and the best so far."""
        return ">=" if self.last else ">"


class ExtremeTactic(Tactic[ExtremeWork]):
    """Any dtype with a C type, along any axis; linear format."""

    key = "tactix.c_extreme@1"
    implements = ("tactix.ArgMax@1", "tactix.ArgMin@1", "tactix.Hardmax@1")
    source = "c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> ExtremeWork | Reject:
        spec, attrs = node.given[0].spec, node.attrs
        if (why := order.why_not(node, attrs.axis)) is not None:
            return why
        lines, marks = Lines.along(spec.shape, attrs.axis), node.layer.name == "Hardmax"
        if lines.size == 0 and not marks:
            return Reject("an empty axis has no elements to choose from")
        last = not marks and attrs.select_last_index
        largest = node.layer.name != "ArgMin"
        return ExtremeWork(node, lines, Ranks(spec.dtype), largest, last, marks)

    def cost(self, work: ExtremeWork, variant: Variant, ctx: CompileContext) -> float | None:
        moved = work.node.given[0].spec.nbytes() + work.node.outputs[0].spec.nbytes()
        return c_text.seconds(ctx, (moved, SECONDS_A_BYTE))

    def compile(self, work: ExtremeWork, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args = Args(work.node)
        args.size("SIZE", work.lines.size)
        body = _rows(args, work) if work.lines.inner == 1 else _columns(args, work)
        return c_text.kernel(args, body, ctx, preludes=order.preludes())


def _refused(args: Args, work: ExtremeWork, results: str) -> list[str]:
    """Of an empty line there is no extreme: that is reported, as only running tells it."""
    if work.marks or isinstance(work.lines.size, int):
        return []
    axis, rank = work.node.attrs.axis, work.node.given[0].spec.rank
    what = f"axis {axis} of a tensor with {rank} axes has no elements to choose from"
    return [f"if (SIZE == 0 && {results} > 0) {args.refuse(what, '0')}"]


def _rows(args: Args, work: ExtremeWork) -> list[str]:
    kind, key = work.ranks.element, work.key
    results = args.size("LINES", work.lines.count)
    extreme = [
        "const int64_t end = SIZE - first < GROUP ? SIZE : first + GROUP;",
        f"{work.ranks.half} found = 0;",
        loop(
            "i",
            "first",
            "end",
            f"const {work.ranks.half} key = {key('x[i]')};",
            "found = key > found ? key : found;",
        ),
        f"group = found {work.better} best ? first : group;",
        "best = found > best ? found : best;",
    ]
    half = work.ranks.half
    none, nearer = ("0", ">") if work.last else ("GROUP", "<")
    search = loop(
        "i",
        "0",
        "count",
        f"const {half} here = {key('x[group + i]')} == best ? ({half})i : ({half}){none};",
        f"at = here {nearer} at ? here : at;",
    )
    line = [
        f"const {kind}* const x = (const {kind}*){args.bytes_in(0)} + line * SIZE;",
        f"{work.ranks.half} best = 0;",
        "int64_t group = 0;",
        loop("first", "0", "SIZE", *extreme, step="GROUP"),
        "const int64_t count = SIZE - group < GROUP ? SIZE - group : GROUP;",
        f"{half} at = {none};",
        search,
        "const int64_t place = group + (int64_t)at;",
        *_row_result(args, work),
    ]
    return [
        "enum { GROUP = 128 };",
        *_refused(args, work, results),
        c_text.split(results),
        "if (SIZE == 0) return;",
        loop("line", "lo", "hi", *line),
    ]


def _row_result(args: Args, work: ExtremeWork) -> list[str]:
    if not work.marks:
        return [f"{args.output(0)}[line] = place;"]
    kind, one = work.ranks.element, c_copy.bits(1.0, work.ranks.dtype)
    return [
        f"{kind}* const y = ({kind}*){args.bytes_out(0)} + line * SIZE;",
        f"memset(y, 0, SIZE * sizeof({kind}));",
        f"y[place] = ({kind})0x{one:x}ULL;",
    ]


def _columns(args: Args, work: ExtremeWork) -> list[str]:
    kind, half = work.ranks.element, work.ranks.half
    args.size("INNER", work.lines.inner)
    tiles = args.size("TILES", dims.ceildiv(work.lines.inner, 64))
    results = args.size("UNITS", work.lines.outer * dims.ceildiv(work.lines.inner, 64))
    follow = [
        f"const {half} key = {work.key('x[i * INNER + j]')};",
        f"const int better = key {work.better} best[j];",
        f"place[j] = better ? ({half})i : place[j];",
        "best[j] = better ? key : best[j];",
    ]
    tile = [
        f"const int64_t outer = unit / {tiles}, begin = unit % {tiles} * TILE;",
        "const int64_t n = INNER - begin < TILE ? INNER - begin : TILE;",
        f"const {kind}* const whole = (const {kind}*){args.bytes_in(0)};",
        f"const {kind}* const x = whole + outer * SIZE * INNER + begin;",
        f"{half} best[TILE], place[TILE];",
        loop("j", "0", "n", f"best[j] = {work.key('x[j]')};", "place[j] = 0;"),
        comment("Along the lines; vectors hold neighbours."),
        loop("i", "1", "SIZE", loop("j", "0", "n", *follow)),
        *_column_results(args, work),
    ]
    return [
        "enum { TILE = 64 };",
        *_refused(args, work, results),
        c_text.split(results),
        "if (SIZE == 0) return;",
        loop("unit", "lo", "hi", *tile),
    ]


def _column_results(args: Args, work: ExtremeWork) -> list[str]:
    if not work.marks:
        y = f"{args.output(0)} + outer * INNER + begin"
        return [f"int64_t* const y = {y};", loop("j", "0", "n", "y[j] = place[j];")]
    kind, one = work.ranks.element, c_copy.bits(1.0, work.ranks.dtype)
    return [
        f"{kind}* const y = ({kind}*){args.bytes_out(0)} + outer * SIZE * INNER + begin;",
        loop("i", "0", "SIZE", f"memset(y + i * INNER, 0, n * sizeof({kind}));"),
        loop("j", "0", "n", f"y[place[j] * INNER + j] = ({kind})0x{one:x}ULL;"),
    ]
