"""CombinedSuppression in C: samples are shared between threads, each of which sorts the scores that
count and compares every box with those that it has kept.

Overlaps are float32, every operation rounded, so that what overlaps just so is decided as by the
reference.
"""

from __future__ import annotations

from dataclasses import dataclass

from tactix.base.dims import Dim
from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import order
from tactix_codegen.c import text as c_text
from tactix_codegen.c.order import PLACES, Ranks
from tactix_codegen.c.scalar import element
from tactix_codegen.c.text import Args, block, comment, loop
from tactix_cpu.tactics.dot_tile import without_fma
from tactix_cpu.tactics.select.suppression import first_ordered, order_on
from tactix_ops.layers.detection import NOTHING, CombinedSuppressionAttrs

SECONDS_A_SCORE = 2e-9
"""To compare a score with the threshold; few pass it."""
SECONDS_A_ROW = 1e-7
"""To sort its score and those of boxes that it overlaps, and to compare it with some rows."""
KEPT = 6
"""Numbers of a box that was kept: both corners, the area and the class."""
FLOATS = (DType.FP32, DType.FP16)


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CombinedSuppressionTactic()]


@dataclass(frozen=True)
class CombinedWork:
    """What one sample has, and the bytes that a thread needs for it."""

    node: Node
    attrs: CombinedSuppressionAttrs

    @property
    def boxes(self) -> Dim:
        return self.node.given[1].spec.shape[1]

    @property
    def classes(self) -> Dim:
        return self.node.given[1].spec.shape[2]

    @property
    def kept(self) -> Dim:
        """Boxes that later ones are compared with: the rows, or more where those that are too much
        of their class count for others.
        """
        a = self.attrs
        return self.boxes * self.classes if a.class_agnostic and a.class_rows else a.rows

    @property
    def room(self) -> Dim:
        """Ranks and a copy of them, two counts for each class, and the boxes that were kept."""
        return 16 * self.boxes * self.classes + 16 * self.classes + 8 * KEPT * self.kept


class CombinedSuppressionTactic(Tactic[CombinedWork]):
    """Boxes and scores of f32 or f16."""

    key = "tactix.c_combined_suppression@1"
    implements = ("tactix.CombinedSuppression@1",)
    source = "c"

    def match(self, node: Node, device: DeviceProperties) -> CombinedWork | Reject:
        boxes, scores = (node.given[i].spec for i in (0, 1))
        if boxes.dtype not in FLOATS or scores.dtype not in FLOATS:
            return Reject(
                f"no boxes of {boxes.dtype.value} and scores of {scores.dtype.value} in C"
            )
        work = CombinedWork(node, node.attrs)
        if isinstance(count := work.boxes * work.classes, int) and count > PLACES:
            return Reject(f"places of {count} scores need more than 32 bits")
        return work

    def cost(self, work: CombinedWork, variant: Variant, ctx: CompileContext) -> float | None:
        samples = work.node.given[0].spec.shape[0]
        scores = (samples * work.boxes * work.classes, SECONDS_A_SCORE)
        return c_text.seconds(ctx, scores, (samples * work.attrs.rows, SECONDS_A_ROW))

    def compile(self, work: CombinedWork, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args, threads = Args(work.node), max(1, ctx.threads)
        args.size("BOXES", work.boxes)
        args.size("CLASSES", work.classes)
        args.size("ROWS", work.attrs.rows)
        room = args.dim(work.room)
        body = [
            *c_text.at_most(threads),
            c_text.split(args.dim(work.node.given[0].spec.shape[0])),
            f"uint64_t* const v = (uint64_t*)({args.workspace(0, 'char')} + tid * {room});",
            "int64_t* const seen = (int64_t*)(v + 2 * BOXES * CLASSES);",
            "int64_t* const filled = seen + CLASSES;",
            *_kept_arrays(args, work),
            loop("b", "lo", "hi", *_sample(args, work)),
        ]
        made = c_text.kernel(
            args, body, ctx, preludes=order.preludes(), workspace=threads * work.room
        )
        # a multiplication and an addition that became one would round otherwise
        return without_fma(made)


def _kept_arrays(args: Args, work: CombinedWork) -> list[str]:
    kept = args.dim(work.kept)
    return [
        "int64_t* const class = filled + CLASSES;",
        f"float *const low0 = (float*)(class + {kept}), *const low1 = low0 + {kept};",
        f"float *const high0 = low1 + {kept}, *const high1 = high0 + {kept};",
        f"float* const area = high1 + {kept};",
    ]


def _sample(args: Args, work: CombinedWork) -> list[str]:
    attrs, scores = work.attrs, args.input(1)
    stop = ["if (rows == ROWS) break;"]
    if attrs.candidates:
        stop.append(f"if (k == {attrs.candidates}) break;")
    return [
        f"const {c_text.ctype(work.node.given[1].spec.dtype)}* const score = "
        f"{scores} + b * BOXES * CLASSES;",
        "int64_t n = 0, m = 0, rows = 0;",
        loop("c", "0", "CLASSES", "seen[c] = filled[c] = 0;"),
        *_collected(work),
        *first_ordered("ROWS", "BOXES * CLASSES"),
        loop(
            "k",
            "0",
            "n",
            *stop,
            order_on(),
            *_candidate(work),
            *_box(args, work),
            *_compared(work),
            *_row(args, work),
        ),
        *_rest(args),
    ]


def _collected(work: CombinedWork) -> list[str]:
    attrs, dtype = work.attrs, work.node.given[1].spec.dtype
    ranks = Ranks(dtype)
    value = element(dtype, "score[i * CLASSES + c]")
    compared = ">=" if attrs.inclusive else ">"
    key = ranks.key(f"((const {ranks.element}*)score)[i * CLASSES + c]")
    one = [
        f"if (!({value} {compared} {_float(attrs.score_threshold)})) continue;",
        f"if (c == {attrs.background}) continue;" if attrs.background >= 0 else "",
        f"v[n++] = {ranks.rank(key, _place(work))};",
    ]
    return [
        comment("The scores that count, the highest first."),
        loop("i", "0", "BOXES", loop("c", "0", "CLASSES", *one)),
    ]


def _place(work: CombinedWork) -> str:
    return "c * BOXES + i" if work.attrs.classes_first else "i * CLASSES + c"


def _float(value: float) -> str:
    """A float32 with all its bits."""
    return f"(float){value!r}"


def _candidate(work: CombinedWork) -> list[str]:
    """Box ``i`` and class ``c``, unless there were enough of the class."""
    first, second = ("c", "i") if work.attrs.classes_first else ("i", "c")
    size = "BOXES" if work.attrs.classes_first else "CLASSES"
    most = work.attrs.class_candidates
    return [
        f"const int64_t place = {Ranks(DType.FP32).place('v[k]')};",
        f"const int64_t {first} = place / {size}, {second} = place % {size};",
        f"if (seen[c]++ >= {most}) continue;" if most else "",
    ]


def _box(args: Args, work: CombinedWork) -> list[str]:
    spec = work.node.given[0].spec
    boxes = "BOXES" if spec.shape[2] == 1 else "BOXES * CLASSES"
    at = "i" if spec.shape[2] == 1 else "i * CLASSES + c"
    p0, p1, q0, q1 = (element(spec.dtype, f"box[{k}]") for k in range(4))
    unit = f" + {_float(work.attrs.unit)}" if work.attrs.unit else ""
    return [
        f"const {c_text.ctype(spec.dtype)}* const box = "
        f"{args.input(0)} + (b * {boxes} + {at}) * 4;",
        f"const float p0 = {p0}, p1 = {p1}, q0 = {q0}, q1 = {q1};",
        "const float a0 = p0 < q0 ? p0 : q0, a1 = p1 < q1 ? p1 : q1;",
        "const float b0 = p0 < q0 ? q0 : p0, b1 = p1 < q1 ? q1 : p1;",
        f"const float own = (b0 - a0{unit}) * (b1 - a1{unit});",
    ]


def _compared(work: CombinedWork) -> list[str]:
    """With what was kept, some at a time; box ``i`` is kept if it overlaps none."""
    attrs = work.attrs
    unit = f" + {_float(attrs.unit)}" if attrs.unit else ""
    over = f"overlap {'>=' if attrs.inclusive else '>'} {_float(attrs.overlap_threshold)}"
    each = [
        "const float l0 = low0[j] > a0 ? low0[j] : a0, l1 = low1[j] > a1 ? low1[j] : a1;",
        "const float h0 = high0[j] < b0 ? high0[j] : b0, h1 = high1[j] < b1 ? high1[j] : b1;",
        f"const float s0 = h0 - l0{unit}, s1 = h1 - l1{unit};",
        "const int meet = (h0 >= l0) & (h1 >= l1) & (s0 > 0) & (s1 > 0);",
        "const float shared = meet ? s0 * s1 : 0, together = area[j] + own - shared;",
        "const float overlap = together > 0 ? shared / together : 0;",
        f"hit |= {over};" if attrs.class_agnostic else f"hit |= (class[j] == c) & ({over});",
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
        "low0[m] = a0, low1[m] = a1, high0[m] = b0, high1[m] = b1, area[m] = own, class[m++] = c;",
    ]


def _row(args: Args, work: CombinedWork) -> list[str]:
    boxes, scores, classes, places = (args.output(j) for j in (1, 2, 3, 4))
    most = work.attrs.class_rows
    if most and not work.attrs.class_agnostic:
        full = [f"if (filled[c]++ >= {most}) {{", "    m--;", "    continue;", "}"]
    else:
        full = [f"if (filled[c]++ >= {most}) continue;"] if most else []
    return [
        *full,
        "const int64_t to = b * ROWS + rows++;",
        loop("z", "0", "4", f"{boxes}[to * 4 + z] = box[z];"),
        f"{scores}[to] = score[i * CLASSES + c];",
        f"{classes}[to] = (int32_t)c;",
        f"{places}[to] = (int32_t)i;",
    ]


def _rest(args: Args) -> list[str]:
    """The rows that are not filled."""
    count, boxes, scores, classes, places = (args.output(j) for j in range(5))
    empty = [
        loop("z", "0", "4", f"{boxes}[to * 4 + z] = 0;"),
        f"{scores}[to] = 0;",
        f"{classes}[to] = {places}[to] = {NOTHING};",
    ]
    return [
        f"{count}[b] = (int32_t)rows;",
        block("for (int64_t to = b * ROWS + rows; to < (b + 1) * ROWS; to++)", *empty),
    ]
