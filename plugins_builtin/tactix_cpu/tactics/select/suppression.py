"""NonMaxSuppression in C: classes of samples are shared between threads, each of which sorts the
scores and compares every box with those that it has kept.

Corners and areas are float64 and no products are fused with sums, so that what overlaps just so is
decided as by the reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tactix.base.dims import Dim
from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import order
from tactix_codegen.c import text as c_text
from tactix_codegen.c.order import Ranks
from tactix_codegen.c.scalar import element
from tactix_codegen.c.text import Args, block, choice, comment, loop
from tactix_cpu.tactics.dot_tile import without_fma

SECONDS_A_SCORE = 2e-8
"""To sort a score and to compare its box with some that were kept."""
DOUBLES = 5
"""Of a box that was kept: both corners and the area."""
FIRST = 8
"""Scores that are put in order at first for each box that is asked for: as many boxes as that may
overlap others before the rest is needed. A guess.
"""
FLOATS = (DType.FP32, DType.FP16)


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [SuppressionTactic()]


@dataclass(frozen=True)
class SuppressionWork:
    """``given``: which of the given inputs an input is, by its place in the layer's list."""

    node: Node
    given: Mapping[int, int]

    @property
    def boxes(self) -> Dim:
        """Of a sample."""
        return self.node.given[0].spec.shape[1]

    @property
    def classes(self) -> Dim:
        """Of all samples."""
        samples, classes, _ = self.node.given[1].spec.shape
        return samples * classes


class SuppressionTactic(Tactic[SuppressionWork]):
    """Boxes and scores of f32 or f16, by corners or by centres."""

    key = "tactix.c_suppression@1"
    implements = ("tactix.NonMaxSuppression@1",)
    source = "c"
    tells = True

    def match(self, node: Node, device: DeviceProperties) -> SuppressionWork | Reject:
        given = {i: k for i, k in enumerate(node.places) if k >= 0}
        types = {i: node.given[k].spec.dtype for i, k in given.items()}
        if types[0] not in FLOATS or types[1] not in FLOATS:
            return Reject(f"no boxes of {types[0].value} and scores of {types[1].value} in C")
        if 2 in types and not (types[2].is_int and c_text.has_ctype(types[2])):
            return Reject(f"no number of boxes of {types[2].value} in C")
        if types.get(3, DType.FP32) not in FLOATS or types.get(4, types[1]) is not types[1]:
            return Reject("thresholds of other floats than the scores")
        return SuppressionWork(node, given)

    def cost(self, work: SuppressionWork, variant: Variant, ctx: CompileContext) -> float | None:
        return c_text.seconds(ctx, (work.classes * work.boxes, SECONDS_A_SCORE))

    def compile(
        self, work: SuppressionWork, variant: Variant, ctx: CompileContext
    ) -> KernelArtifact:
        args, threads = Args(work.node), max(1, ctx.threads)
        args.size("BOXES", work.boxes)
        classes = args.size("ALL", work.classes)
        lists = 8 * classes_and_boxes(work)
        counts = args.workspace(0, "int64_t")
        (name,) = c_text.fresh_symbols(work.node)
        phase = args.phase()
        total = [
            "if (tid) return;",
            "int64_t sum = 0;",
            loop("c", "0", classes, f"sum += {counts}[c];"),
            *args.tell({name: "sum"}),
            "return;",
        ]
        body = [
            f"int64_t* const kept = {counts} + {classes};",
            block(f"if ({phase} == 0)", *_chosen(args, work, lists, threads), "return;"),
            block(f"if ({phase} == 1)", *total),
            c_text.split(classes),
            "int64_t to = 0;",
            loop("c", "0", "lo", f"to += {counts}[c];"),
            *_written(args, work),
        ]
        room = lists + threads * 8 * (2 + DOUBLES) * work.boxes
        made = c_text.kernel(
            args, body, ctx, preludes=order.preludes(), workspace=room, phases=3, telling=2
        )
        # a multiplication and an addition that became one would round otherwise
        return without_fma(made)


def classes_and_boxes(work: SuppressionWork) -> Dim:
    """Integers of the workspace: of each class how many boxes it kept, and which."""
    return work.classes * (work.boxes + 1)


def _setting(args: Args, work: SuppressionWork, index: int, absent: str) -> str:
    """A scalar input as a number."""
    if index not in work.given:
        return absent
    k = work.given[index]
    return element(work.node.given[k].spec.dtype, f"{args.input(k)}[0]")


def _chosen(args: Args, work: SuppressionWork, lists: Dim, threads: int) -> list[str]:
    scores = work.node.given[1].spec
    ranks = Ranks(scores.dtype)
    classes = args.size("CLASSES", scores.shape[1])
    score = element(scores.dtype, "score[i]")
    above = f"if (!({score} > lowest)) continue;" if 4 in work.given else ""
    key = "key == 0xffffffffu ? 0 : key"
    collect = [
        above,
        f"const uint32_t key = {ranks.key('((const ' + ranks.element + '*)score)[i]')};",
        f"v[n++] = {ranks.rank(f'({key})', 'i')};",
    ]
    unit = [
        f"const int64_t sample = c / {classes};",
        f"const {c_text.ctype(scores.dtype)}* const score = {args.input(1)} + c * BOXES;",
        "int64_t n = 0, m = 0;",
        comment("The scores that count, the highest first; NaN is below all."),
        loop("i", "0", "BOXES", *collect),
        *first_ordered("most", "BOXES"),
        loop("k", "0", "n", "if (m == most) break;", order_on(), *_box(args, work), *_compared()),
        f"{args.workspace(0, 'int64_t')}[c] = m;",
    ]
    area = "low0 + 4 * BOXES"
    return [
        f"const int64_t most = (int64_t){_setting(args, work, 2, '0')};",
        f"const double overlap = {_setting(args, work, 3, '0.0')};",
        *([f"const float lowest = {_setting(args, work, 4, '')};"] if 4 in work.given else []),
        *c_text.at_most(threads),
        c_text.split("ALL"),
        f"uint64_t* const v = (uint64_t*){args.workspace(lists)} + tid * {2 + DOUBLES} * BOXES;",
        "double* const low0 = (double*)(v + 2 * BOXES);",
        "double *const low1 = low0 + BOXES, *const high0 = low1 + BOXES;",
        f"double *const high1 = high0 + BOXES, *const area = {area};",
        loop("c", "lo", "hi", *unit),
    ]


def first_ordered(most: str, room: str) -> list[str]:
    """Put in order what will do of the ``n`` ranks at ``v`` where few boxes are asked for; else all
    of them. ``most``: those asked for. ``room``: ranks between ``v`` and as much workspace.
    """
    return [
        f"int64_t ready = {most} < n / {2 * FIRST} ? {FIRST} * {most} + {FIRST} : n;",
        "ready = ready < n ? ready : n;",
        choice(
            "ready < n",
            ["tx_best_64(v, n, ready);", "tx_sort_64(v, ready);"],
            [f"if (n > 0) tx_sort_rising_64(v, v + {room}, n);"],
        ),
    ]


def order_on() -> str:
    """Put the rest in order once it is reached."""
    return block("if (k == ready)", "tx_sort_64(v + ready, n - ready);", "ready = n;")


def _box(args: Args, work: SuppressionWork) -> list[str]:
    """Corners of box ``i``, which comes next."""
    dtype = work.node.given[0].spec.dtype
    b = [f"(double){element(dtype, f'box[{k}]')}" for k in range(4)]
    if work.node.attrs.center_point_box:
        corners = [
            f"const double half0 = {b[2]} / 2, half1 = {b[3]} / 2;",
            f"const double a0 = {b[0]} - half0, a1 = {b[1]} - half1;",
            f"const double b0 = {b[0]} + half0, b1 = {b[1]} + half1;",
        ]
    else:
        corners = [
            f"const double p0 = {b[0]}, p1 = {b[1]}, q0 = {b[2]}, q1 = {b[3]};",
            "const double a0 = p0 < q0 ? p0 : q0, a1 = p1 < q1 ? p1 : q1;",
            "const double b0 = p0 < q0 ? q0 : p0, b1 = p1 < q1 ? q1 : p1;",
        ]
    return [
        f"const int64_t i = {Ranks(DType.FP32).place('v[k]')};",
        f"const {c_text.ctype(dtype)}* const box = {args.input(0)} + (sample * BOXES + i) * 4;",
        *corners,
        "const double own = (b0 - a0) * (b1 - a1);",
    ]


def _compared() -> list[str]:
    """With all that were kept, some at a time; box ``i`` is kept if it overlaps none."""
    each = [
        "const double l0 = low0[j] > a0 ? low0[j] : a0, l1 = low1[j] > a1 ? low1[j] : a1;",
        "const double h0 = high0[j] < b0 ? high0[j] : b0, h1 = high1[j] < b1 ? high1[j] : b1;",
        "const double s0 = h0 - l0 > 0 ? h0 - l0 : 0, s1 = h1 - l1 > 0 ? h1 - l1 : 0;",
        "const double shared = s0 * s1, together = area[j] + own - shared;",
        comment("What shares nothing may have a union below 0: sizes by centre have any sign."),
        "hit |= (shared > 0) & (shared > overlap * together);",
    ]
    return [
        "int hit = 0;",
        loop(
            "first",
            "0",
            "m",
            "if (hit) break;",
            "const int64_t last = m - first < 32 ? m : first + 32;",
            loop("j", "first", "last", *each),
            step="32",
        ),
        "if (hit) continue;",
        "low0[m] = a0, low1[m] = a1, high0[m] = b0, high1[m] = b1, area[m] = own;",
        "kept[c * BOXES + m++] = i;",
    ]


def _written(args: Args, work: SuppressionWork) -> list[str]:
    classes, y = args.size("CLASSES", work.node.given[1].spec.shape[1]), args.output(0)
    row = [
        f"int64_t* const y = {y} + (to + k) * 3;",
        f"y[0] = c / {classes}, y[1] = c % {classes}, y[2] = kept[c * BOXES + k];",
    ]
    counts = args.workspace(0, "int64_t")
    return [loop("c", "lo", "hi", loop("k", "0", f"{counts}[c]", *row), f"to += {counts}[c];")]
