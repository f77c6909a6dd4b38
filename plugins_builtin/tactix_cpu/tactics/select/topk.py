"""TopK in C: a pass over each line that keeps what ranks above the worst of the best so far.

Where most of a line is asked for, all of it is sorted by the bytes of its keys. The few best of
lines that are not long are told eight lines at a time, a line in each lane of a vector: every
element is compared with each of the best of its line, and the lower of the two goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tactix.base.dims import Dim
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import order
from tactix_codegen.c import text as c_text
from tactix_codegen.c.order import Lines, Ranks
from tactix_codegen.c.text import Args, block, choice, comment, loop

SPARE = 12
"""Ranks that wait, beside twice those asked for, until the best are told from the rest: a few, so
that the worst of the best is known early. With 64 the best 5 of 1000 took 1.15 times as long on a
Xeon with AMX.
"""
MOST_INSERTED = 16
"""Of so few best each is put in its place when it is found: the worst of them is known at any time
then. The best 10 of 1000 integers of 64 bits took 0.7 times as long on a Xeon with AMX.
"""
LANES = 8
"""Lines at a time; as ``TX_RANKS`` in ``order.h``."""
FEW = 8
"""Most that are kept of a line in lanes: that many vectors stay in registers."""
SHORT = 2048
"""Elements of a line in lanes, at most: of longer lines groups are left out as a whole, so that an
element takes less than it does in lanes. On a Zen 4 the best 5 of 64 lines of 2000 take 71 us in
lanes, and 104 us one by one.
"""
SECONDS_A_STEP = 2.3e-9
"""To load and to rank an element of each lane, on a Zen 4; and as much for five of the best."""
SECONDS_AN_ELEMENT = 1e-9
SECONDS_A_RESULT = 3e-8
"""To keep and sort one: some ten passes over ranks, half of whose branches are guessed wrong."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [TopKTactic(), DynamicTopKTactic()]


@dataclass(frozen=True)
class TopKWork:
    """``top`` of each line, and how its elements rank."""

    node: Node
    lines: Lines
    ranks: Ranks
    top: Dim

    @property
    def room(self) -> Dim:
        """Ranks of a thread's workspace: those that wait, or a line and its copy where it is no
        longer than twice ``top``.
        """
        return 4 * self.top + SPARE

    @property
    def inserts(self) -> bool:
        """Whether the best of a line are few enough to be in order at any time."""
        return isinstance(self.top, int) and self.top <= MOST_INSERTED

    @property
    def in_lanes(self) -> bool:
        """Whether lines may lie beside each other in lanes."""
        few = isinstance(self.top, int) and 0 < self.top <= FEW
        short = isinstance(self.lines.size, int) and self.lines.size <= SHORT
        many = not isinstance(self.lines.count, int) or self.lines.count >= LANES
        return few and short and many and not self.ranks.is_wide


class TopKTactic(Tactic[TopKWork]):
    """Any dtype with a C type, along any axis; linear format."""

    key = "tactix.c_topk@1"
    implements = ("tactix.TopK@1",)
    source = "c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> TopKWork | Reject:
        spec = node.given[0].spec
        if (why := order.why_not(node, node.attrs.axis)) is not None:
            return why
        lines, ranks = (
            Lines.along(spec.shape, node.attrs.axis),
            Ranks(spec.dtype, node.attrs.largest),
        )
        return TopKWork(node, lines, ranks, node.attrs.k)

    def variants(self, work: TopKWork, device: DeviceProperties) -> Sequence[Variant]:
        return [Variant.of(lanes=n) for n in ((LANES, 1) if work.in_lanes else (1,))]

    def cost(self, work: TopKWork, variant: Variant, ctx: CompileContext) -> float | None:
        if variant.number("lanes") > 1:
            steps = work.lines.count * work.lines.size * (5 + work.top)
            return c_text.seconds(ctx, (steps, SECONDS_A_STEP / (5 * LANES)))
        elements = (work.lines.count * work.lines.size, SECONDS_AN_ELEMENT)
        return c_text.seconds(ctx, elements, (work.lines.count * work.top, SECONDS_A_RESULT))

    def compile(self, work: TopKWork, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args, threads = Args(work.node), max(1, ctx.threads)
        if variant.number("lanes") > 1:
            return c_text.kernel(args, best_in_lanes(args, work), ctx, preludes=order.preludes())
        room = work.room * work.ranks.nbytes * threads
        body = best_of_lines(args, work, threads)
        return c_text.kernel(args, body, ctx, preludes=order.preludes(), workspace=room)


class DynamicTopKTactic(TopKTactic):
    """With k in a tensor: the first launch tells it."""

    key = "tactix.c_dynamic_topk@1"
    implements = ("tactix.DynamicTopK@1",)
    tells = True

    def match(self, node: Node, device: DeviceProperties) -> TopKWork | Reject:
        spec, k = node.given[0].spec, node.given[1].spec
        if (why := order.why_not(node, node.attrs.axis)) is not None:
            return why
        if not k.dtype.is_int or not c_text.has_ctype(k.dtype):
            return Reject(f"no k of {k.dtype.value} in C")
        lines = Lines.along(spec.shape, node.attrs.axis)
        top = node.outputs[0].spec.shape[node.attrs.axis]
        return TopKWork(node, lines, Ranks(spec.dtype, node.attrs.largest), top)

    def variants(self, work: TopKWork, device: DeviceProperties) -> Sequence[Variant]:
        return [Variant()]

    def cost(self, work: TopKWork, variant: Variant, ctx: CompileContext) -> float | None:
        """As if k was small: only running tells it."""
        return c_text.seconds(ctx, (work.lines.count * work.lines.size, SECONDS_AN_ELEMENT))

    def compile(self, work: TopKWork, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args, threads = Args(work.node), max(1, ctx.threads)
        (name,) = c_text.fresh_symbols(work.node)
        size = args.size("SIZE", work.lines.size)
        what = f"k asks for {{0}} elements of axis {work.node.attrs.axis}, which has {{1}}"
        cure = "Give a k from 0 to the size of the axis"
        refusal = args.refuse(what, "k", size, cure)
        told = [
            "if (tid) return;",
            f"const int64_t k = (int64_t){args.input(1)}[0];",
            block(f"if (k < 0 || k > {size})", refusal, "return;"),
            *args.tell({name: "k"}),
            "return;",
        ]
        body = [
            block(f"if ({args.phase()} == 0)", *told),
            *best_of_lines(args, work, threads),
        ]
        room = work.room * work.ranks.nbytes * threads
        return c_text.kernel(
            args, body, ctx, preludes=order.preludes(), workspace=room, phases=2, telling=1
        )


def best_in_lanes(args: Args, work: TopKWork) -> list[str]:
    """Every thread has groups of lines; the last line stands for those that a group lacks."""
    lines, ranks = work.lines, work.ranks
    for name, size in (("SIZE", lines.size), ("INNER", lines.inner), ("TOP", work.top)):
        args.size(name, size)
    at = "at / INNER * SIZE * INNER + at % INNER"
    step = [
        f"uint32_t key[{LANES}];",
        loop("l", "0", str(LANES), f"key[l] = {ranks.key('x[l][i * INNER]')};"),
        "tx_ranks rank = tx_ranked(key, (uint32_t)~i);",
        "#pragma GCC unroll 8",
        loop(
            "k",
            "0",
            "TOP",
            "const tx_ranks lower = tx_ranks_min(best[k], rank);",
            "best[k] = tx_ranks_max(best[k], rank);",
            "rank = lower;",
        ),
    ]
    group = [
        f"const int64_t n = hi - first < {LANES} ? hi - first : {LANES};",
        f"const {ranks.element}* x[{LANES}];",
        loop(
            "l",
            "0",
            str(LANES),
            "const int64_t at = first + (l < n ? l : n - 1);",
            f"x[l] = (const {ranks.element}*){args.bytes_in(0)} + {at};",
        ),
        "tx_ranks best[TOP];",
        "#pragma GCC unroll 8",
        loop("k", "0", "TOP", "best[k] = (tx_ranks){0};"),
        loop("i", "0", "SIZE", *step),
        loop(
            "l",
            "0",
            "n",
            "const int64_t at = first + l, outer = at / INNER, inner = at % INNER;",
            *_results(args, ranks, "best[k][l]", "x[l]"),
        ),
    ]
    return [
        c_text.split(args.size("LINES", lines.count), LANES),
        loop("first", "lo", "hi", *group, step=LANES),
    ]


def best_of_lines(args: Args, work: TopKWork, threads: int) -> list[str]:
    """Every thread has lines, and room for the ranks of one."""
    lines, ranks = work.lines, work.ranks
    args.size("SIZE", lines.size)
    args.size("INNER", lines.inner)
    args.size("TOP", work.top)
    args.size("ROOM", 2 * work.top + SPARE)
    workspace = args.workspace(0, ranks.type)
    x = f"(const {ranks.element}*){args.bytes_in(0)} + outer * SIZE * INNER + inner"
    body = [
        "const int64_t outer = line / INNER, inner = line % INNER;",
        f"const {ranks.element}* const x = {x};",
        choice("2 * TOP >= SIZE", _sorted(ranks), _kept(ranks, work.inserts)),
        *_results(args, ranks, "v[k]", "x"),
    ]
    return [
        *c_text.at_most(threads),
        c_text.split(args.size("LINES", lines.count)),
        "if (TOP == 0) return;",
        f"{ranks.type}* const v = {workspace} + tid * (4 * TOP + {SPARE});",
        loop("line", "lo", "hi", *body),
    ]


def _sorted(ranks: Ranks) -> list[str]:
    """All of the line in order."""
    rank = ranks.rank(ranks.key("x[i * INNER]"), "i")
    return [
        loop("i", "0", "SIZE", f"v[i] = {rank};"),
        f"tx_sort_rising_{ranks.bits}(v, v + SIZE, SIZE);",
    ]


def _kept(ranks: Ranks, inserts: bool) -> list[str]:
    """The best of the line in order, by groups of elements: most of these have none to keep. Ranks
    of 128 bits are compared only where keys of 64 do not tell. ``inserts``: each is put in its
    place at once, else a few wait.
    """
    push = [
        f"v[count] = {ranks.rank('key[i]', 'first + i')};",
        "count += v[count] > least;",
        "if (count < ROOM) continue;",
        f"least = tx_best_{ranks.bits}(v, count, TOP);",
        "count = TOP;",
    ]
    ending = [
        f"if (count > TOP) tx_best_{ranks.bits}(v, count, TOP);",
        f"tx_sort_{ranks.bits}(v, TOP);",
    ]
    if inserts:
        push = [
            f"const {ranks.type} rank = {ranks.rank('key[i]', 'first + i')};",
            "if (rank <= least) continue;",
            "int64_t at = count < TOP ? count++ : TOP - 1;",
            "for (; at > 0 && v[at - 1] < rank; at--) v[at] = v[at - 1];",
            "v[at] = rank;",
            "if (count == TOP) least = v[TOP - 1];",
        ]
        ending = []
    pushed = [loop("i", "0", "n", *push)]
    if ranks.is_wide:
        some = ["near[some] = (int32_t)i;", "some += key[i] >= lowest;"]
        pushed = [
            f"const {ranks.half} lowest = ({ranks.half})(least >> {ranks.bits // 2});",
            "int32_t near[GROUP];",
            "int64_t some = 0;",
            loop("i", "0", "n", *some),
            loop("k", "0", "some", "const int64_t i = near[k];", *push),
        ]
    group = [
        "const int64_t n = SIZE - first < GROUP ? SIZE - first : GROUP;",
        f"{ranks.half} key[GROUP], highest = 0;",
        loop("i", "0", "n", f"key[i] = {ranks.key('x[(first + i) * INNER]')};"),
        loop("i", "0", "n", "highest = key[i] > highest ? key[i] : highest;"),
        f"if ({ranks.rank('highest', 'first')} <= least) continue;",
        *pushed,
    ]
    return [
        "enum { GROUP = 64 };",
        comment("The worst of the best so far; what ranks above it waits behind them."),
        f"{ranks.type} least = 0;",
        "int64_t count = 0;",
        loop("first", "0", "SIZE", *group, step="GROUP"),
        *ending,
    ]


def _results(args: Args, ranks: Ranks, rank: str, x: str) -> list[str]:
    """The elements themselves, whose bits keys do not tell, and their places. ``rank``: the one in
    place ``k`` of the best; ``x``: the line.
    """
    y, at = f"(({ranks.element}*){args.bytes_out(0)})", args.output(1)
    return [
        "const int64_t to = outer * TOP * INNER + inner;",
        loop(
            "k",
            "0",
            "TOP",
            f"const int64_t place = {ranks.place(rank)};",
            f"{y}[to + k * INNER] = {x}[place * INNER];",
            f"{at}[to + k * INNER] = place;",
        ),
    ]
