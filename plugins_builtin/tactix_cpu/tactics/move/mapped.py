"""Elements that are moved by a table for each axis, in C: Pad that repeats elements, and slices,
pads, tiles and expansions whose numbers are tensors.

A table says where along the input an index of the output reads, or that it reads nowhere. The last
axis is cut into pieces: neighbours are copied as bytes, and what repeats is filled in. Rows that
lie one behind the other in the input, too, are copied in one go. Numbers in tensors are read by the
first launch, which tells the output's shape.
"""

from __future__ import annotations

from dataclasses import dataclass

from tactix.base import dims
from tactix.base.dims import Dim, Shape
from tactix.base.tensor import TensorSpec
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import copy as c_copy
from tactix_codegen.c import text as c_text
from tactix_codegen.c.text import Args, block, comment, loop

BANDWIDTH = 4e9
"""Bytes/s: what is not in a run goes element by element."""
LONGEST = "((int64_t)1 << 61)"
"""Elements of an axis, or of a pad, beyond which no sum is made: it could leave the integers."""
SHORT = 8
"""Elements of a piece that is not worth a copy or a fill of its own: half a cache line of float32.
No measurement of it is on record.
"""
KINDS = {"REPEATED": 0, "NEIGHBOURS": 1, "LOOKED_UP": 2}
"""What a piece of a row is: by the step in the input from an element to the next, or else."""
_PLACES = {
    "edge": "p < 0 ? 0 : p < left ? p : left - 1",
    "wrap": "(p % left + left) % left",
    "reflect": "tx_mirrored(p, left)",
}
"""By the mode: which of ``left`` elements stands at place ``p``."""
_MIRRORED = """
#define tx_mirrored(p, left) TX_NAME(mirrored)(p, left)
TX_INLINE int64_t TX_NAME(mirrored)(int64_t p, int64_t left) {
    const int64_t period = left > 1 ? 2 * (left - 1) : 1, at = (p % period + period) % period;
    return at < left ? at : period - at;
}
"""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [PadByTablesTactic(), ToldMoveTactic()]


@dataclass(frozen=True)
class MappedWork:
    """A node; its inputs are named by their index in the layer's list."""

    node: Node

    @property
    def shape(self) -> Shape:
        """Of the input, with leading axes of size 1 as the output has more."""
        own, out = self.node.given[0].spec.shape, self.node.outputs[0].spec.shape
        return (*(1,) * (len(out) - len(own)), *own)

    @property
    def out(self) -> Shape:
        return self.node.outputs[0].spec.shape

    @property
    def element(self) -> str:
        return f"uint{8 * self.node.given[0].spec.dtype.itemsize}_t"

    @property
    def mode(self) -> str:
        """Of a pad."""
        return str(getattr(self.node.attrs, "mode", "constant"))

    def spec(self, index: int) -> TensorSpec:
        return self.node.given[self.node.place(index)].spec


def _work(node: Node) -> MappedWork | Reject:
    work = MappedWork(node)
    if node.is_fused:
        return Reject("elements are moved, not computed: no epilogue")
    if not c_copy.movable(node.given[0].spec.dtype):
        return Reject(f"no elements of {node.given[0].spec.dtype.value} in C")
    if not work.out:
        return Reject("a scalar has no axes")
    return work


class PadByTablesTactic(Tactic[MappedWork]):
    """Modes that repeat elements, and constants where only running tells whether a pad cuts."""

    key = "tactix.c_pad_tables@1"
    implements = ("tactix.Pad@1",)
    source = "c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> MappedWork | Reject:
        return _work(node)

    def cost(self, work: MappedWork, variant: Variant, ctx: CompileContext) -> float | None:
        return c_text.traffic(work.node, variant, ctx, BANDWIDTH)

    def compile(self, work: MappedWork, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args, pads = Args(work.node), work.node.attrs.pads
        rank = len(work.out)
        numbers = [
            f"const int64_t before[] = {{{', '.join(args.dim(p) for p in pads[:rank])}}};",
            f"const int64_t after[] = {{{', '.join(args.dim(p) for p in pads[rank:])}}};",
        ]
        value = c_copy.bits(work.node.attrs.value, work.node.outputs[0].spec.dtype)
        fill = f"({work.element})0x{value:x}ULL"
        first = [*_sizes(args, work), *numbers, *_tables(args, work, _pad_place(args, work))]
        body = [
            block(f"if ({args.phase()} == 0)", "if (tid) return;", *first, "return;"),
            *_walk(args, work, fill),
        ]
        return c_text.kernel(
            args, body, ctx, preludes=c_copy.preludes(), helpers=_MIRRORED,
            workspace=_room(work), phases=2,
        )  # fmt: skip


class ToldMoveTactic(Tactic[MappedWork]):
    """The first launch reads the numbers and tells the shape, the second makes the tables."""

    key = "tactix.c_told_move@1"
    implements = (
        "tactix.DynamicSlice@1", "tactix.DynamicPad@1",
        "tactix.DynamicExpand@1", "tactix.DynamicTile@1",
    )  # fmt: skip
    source = "c"
    tells = True

    def match(self, node: Node, device: DeviceProperties) -> MappedWork | Reject:
        work = _work(node)
        if isinstance(work, Reject):
            return work
        fill = 2 if node.layer.name == "DynamicPad" else -1
        for i, k in enumerate(node.places[1:], 1):
            if k < 0:
                continue
            spec = work.spec(i)
            if i == fill:
                if spec.dtype is not node.given[0].spec.dtype:
                    return Reject("the value has another dtype than the elements")
            elif not (spec.dtype.is_int and c_text.has_ctype(spec.dtype)):
                return Reject(f"no numbers of {spec.dtype.value} in C")
            elif not isinstance(spec.numel, int):
                return Reject("how many numbers there are is not known")
        if node.layer.name == "DynamicTile" and work.spec(1).numel != len(work.shape):
            return Reject("there is no repeat for each axis")
        return work

    def cost(self, work: MappedWork, variant: Variant, ctx: CompileContext) -> float | None:
        return c_text.seconds(ctx, (work.node.given[0].spec.nbytes(), 1 / BANDWIDTH))

    def compile(self, work: MappedWork, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args, name = Args(work.node), work.node.layer.name
        numbers, place = {
            "DynamicSlice": (_slice, "begin[axis] + o * step[axis]"),
            "DynamicPad": (_pad, _pad_place(args, work)),
            "DynamicExpand": (_expand, "size[axis] == 1 ? 0 : o"),
            "DynamicTile": (_tile, "o % size[axis]"),
        }[name]
        fill = "0"
        if name == "DynamicPad" and (place_of_fill := work.node.place(2)) >= 0:
            fill = f"((const {work.element}*){args.bytes_in(place_of_fill)})[0]"
        fresh = c_text.fresh_symbols(work.node)
        told = {
            n: f"out[{i}]" for i, d in enumerate(work.out) if (n := dims.symbol_name(d)) in fresh
        }
        first = [
            "if (tid) return;",
            *_sizes(args, work),
            f"int64_t out[{len(work.out)}];",
            *numbers(args, work),
            block(f"if ({args.phase()} == 0)", *args.tell(told), "return;"),
            *_tables(args, work, place),
            "return;",
        ]
        body = [block(f"if ({args.phase()} < 2)", *first), *_walk(args, work, fill)]
        return c_text.kernel(
            args, body, ctx, preludes=c_copy.preludes(), helpers=_MIRRORED,
            workspace=_room(work), phases=3, telling=1,
        )  # fmt: skip


def _room(work: MappedWork) -> Dim:
    """Bytes of the tables, of the number of pieces, and of the end and the kind of each: there are
    no more of them than elements along the last axis.
    """
    return 8 * (1 + sum(work.out, 0) + 2 * work.out[-1])


def _sizes(args: Args, work: MappedWork) -> list[str]:
    return [f"const int64_t size[] = {{{', '.join(args.dim(d) for d in work.shape)}}};"]


# -- numbers that are tensors ---------------------------------------------------------------------


def _number(args: Args, work: MappedWork, index: int, place: str) -> str:
    return f"(int64_t){args.input(work.node.place(index))}[{place}]"


def _axis(args: Args, work: MappedWork, index: int) -> list[str]:
    """Declare ``axis``, which number ``k`` of the others is for."""
    rank = len(work.out)
    if work.node.place(index) < 0:
        return ["const int64_t axis = k;"]
    named = _number(args, work, index, "k")
    text = f"axis {{0}} of a tensor with {rank} axes, or twice"
    return [
        f"const int64_t named = {named}, axis = named < 0 ? named + {rank} : named;",
        block(
            f"if ((uint64_t)axis >= {rank} || seen >> axis & 1)",
            args.refuse(text, "named"),
            "return;",
        ),
        "seen |= (uint64_t)1 << axis;",
    ]


def _slice(args: Args, work: MappedWork) -> list[str]:
    """As Python's ``slice.indices``."""
    rank = len(work.out)
    step = _number(args, work, 4, "k") if work.node.place(4) >= 0 else "1"
    zero = args.refuse("the step along axis {0} is 0", "axis", do="Give less or more than 0")
    clamp = "{0} += {0} < 0 ? n : 0; {0} = {0} < low ? low : {0} > high ? high : {0};"
    each = [
        *_axis(args, work, 3),
        f"const int64_t n = size[axis], by = {step};",
        block("if (by == 0)", zero, "return;"),
        comment("Backwards, what is before the first element stands at -1."),
        "const int64_t low = by < 0 ? -1 : 0, high = by < 0 ? n - 1 : n;",
        f"int64_t from = {_number(args, work, 1, 'k')}, to = {_number(args, work, 2, 'k')};",
        clamp.format("from"),
        clamp.format("to"),
        "const uint64_t pace = by < 0 ? -(uint64_t)by : (uint64_t)by;",
        "const int64_t way = by < 0 ? from - to : to - from;",
        "begin[axis] = from;",
        "step[axis] = by;",
        "out[axis] = way > 0 ? 1 + (int64_t)((uint64_t)(way - 1) / pace) : 0;",
    ]
    return [
        f"int64_t begin[{rank}], step[{rank}];",
        "uint64_t seen = 0;",
        loop("k", "0", str(rank), "begin[k] = 0;", "step[k] = 1;", "out[k] = size[k];"),
        loop("k", "0", str(work.spec(1).numel), *each),
    ]


def _pad(args: Args, work: MappedWork) -> list[str]:
    rank, count = len(work.out), int(str(work.spec(1).numel)) // 2
    text, leave = "pads take more than axis {0} of {1} has", "Give pads that leave 0 or more"
    far, cure = "axis {0} cannot have a pad of {1}", "Give pads that memory holds"
    each = [
        *_axis(args, work, 3),
        f"before[axis] = {_number(args, work, 1, 'k')};",
        f"after[axis] = {_number(args, work, 1, f'{count} + k')};",
        *(
            block(
                f"if ((uint64_t){pads} + {LONGEST} > 2 * {LONGEST})",
                args.refuse(far, "axis", pads, do=cure),
                "return;",
            )
            for pads in ("before[axis]", "after[axis]")
        ),
    ]
    whole = [
        "out[k] = size[k] + before[k] + after[k];",
        block("if (out[k] < 0)", args.refuse(text, "k", "size[k]", do=leave), "return;"),
    ]
    return [
        f"int64_t before[{rank}], after[{rank}];",
        "uint64_t seen = 0;",
        loop("k", "0", str(rank), "before[k] = after[k] = 0;"),
        loop("k", "0", str(count), *each),
        loop("k", "0", str(rank), *whole),
    ]


def _expand(args: Args, work: MappedWork) -> list[str]:
    rank, count = len(work.out), int(str(work.spec(1).numel))
    text = "a dim of {0} cannot be expanded to {1}"
    named = _number(args, work, 1, f"k - {rank - count}")
    each = [
        f"const int64_t to = k < {rank - count} ? 1 : {named};",
        "const int64_t n = size[k];",
        block(
            "if (to < 0 || (to != n && to != 1 && n != 1))",
            args.refuse(text, "n", "to", do="Give a shape that the dims are broadcast to"),
            "return;",
        ),
        "out[k] = n == 1 ? to : n;",
    ]
    return [loop("k", "0", str(rank), *each)]


def _tile(args: Args, work: MappedWork) -> list[str]:
    text = "axis {0} cannot be repeated {1} times"
    refusal = args.refuse(text, "k", "times", do="Give repeats that memory holds, 0 or more")
    each = [
        f"const int64_t times = {_number(args, work, 1, 'k')};",
        block(f"if (times < 0 || (size[k] && times > {LONGEST} / size[k]))", refusal, "return;"),
        "out[k] = size[k] * times;",
    ]
    return [loop("k", "0", str(len(work.out)), *each)]


# -- tables and the walk --------------------------------------------------------------------------


def _pad_place(args: Args, work: MappedWork) -> str:
    """Where an element of a padded axis comes from, with ``before`` and ``after`` by axis."""
    if work.mode == "constant":
        return "o - before[axis] < size[axis] ? o - before[axis] : -1"
    return f"cut + ({_PLACES[work.mode]})"


def _tables(args: Args, work: MappedWork, place: str) -> list[str]:
    """One after the other, then the pieces of the last one."""
    strides = [args.dim(s) for s in c_text.contiguous_strides(work.shape)]
    outs = [args.dim(d) for d in work.out]
    head: list[str] = []
    at = [f"const int64_t from = {place};"]
    if work.mode != "constant":
        text = "axis {0}, of which {1} elements are left, has nothing to repeat"
        head = [
            "const int64_t cut = before[axis] < 0 ? -before[axis] : 0;",
            "const int64_t left = size[axis] - cut - (after[axis] < 0 ? -after[axis] : 0);",
            block(
                "if (left <= 0 && length[axis] > 0)", args.refuse(text, "axis", "left"), "return;"
            ),
        ]
        at = [
            "const int64_t p = o - (before[axis] > 0 ? before[axis] : 0);",
            f"const int64_t from = {place};",
        ]
    table = args.workspace(0, "int64_t")
    pieces = [
        "const int next = n == 1 || (o + 1 < n && last[o + 1] == last[o] + 1);",
        "const int step = last[o] >= 0 && next;",
        "end = o + 1;",
        "while (end < n && last[end] == last[end - 1] + step) end++;",
        f"const int whole = end - o == n, kind = whole || end - o >= {SHORT} ? step : LOOKED_UP;",
        "if (kind == LOOKED_UP && count && piece[2 * count - 1] == LOOKED_UP) count--;",
        "piece[2 * count] = end;",
        "piece[2 * count++ + 1] = kind;",
    ]
    for name, value in KINDS.items():
        args.size(name, value)
    return [
        f"const int64_t stride[] = {{{', '.join(strides)}}};",
        f"const int64_t length[] = {{{', '.join(outs)}}};",
        f"int64_t* table = {table} + 1;",
        loop(
            "axis",
            "0",
            str(len(outs)),
            *head,
            loop("o", "0", "length[axis]", *at, "table[o] = from < 0 ? -1 : from * stride[axis];"),
            "table += length[axis];",
        ),
        comment(
            "Pieces of a row: neighbours of the input, one element of it or of the fill again and "
            "again, or shorter ones together, which are looked up."
        ),
        f"const int64_t n = length[{len(outs) - 1}];",
        "const int64_t* const last = table - n;",
        "int64_t* const piece = table;",
        "int64_t count = 0;",
        block("for (int64_t o = 0, end; o < n; o = end)", *pieces),
        f"{table}[0] = count;",
    ]


def _walk(args: Args, work: MappedWork, fill: str) -> list[str]:
    """Rows of the output; all but the last table tell where a row of the input begins."""
    outs, kind = [args.dim(d) for d in work.out], work.element
    table, width = args.workspace(0, "int64_t"), work.node.given[0].spec.dtype.itemsize
    names = [f"i{k}" for k in range(len(outs) - 1)]
    read = [f"t{k}[{n}]" for k, n in enumerate(names)] or ["0"]
    tables, offset = [], "1"
    for k, n in enumerate(outs):
        tables.append(f"const int64_t* const t{k} = {table} + {offset};")
        offset = f"{offset} + {n}"
    last, count, fill_row = f"t{len(outs) - 1}", outs[-1], f"tx_fill_{8 * width}"
    copy = f"tx_copy((char*)(q + j), (const char*)(p + {last}[j]), (end - j) * {width});"
    value = f"{last}[j] < 0 ? fill : p[{last}[j]]"
    piece = [
        "const int64_t end = piece[2 * k], kind = piece[2 * k + 1];",
        block("if (kind == NEIGHBOURS)", copy),
        block("else if (kind == REPEATED)", f"{fill_row}(q + j, {value}, end - j);"),
        block("else", f"for (; j < end; j++) q[j] = {value};"),
        "j = end;",
    ]
    by_pieces = block("for (int64_t k = 0, j = 0; k < pieces; k++)", *piece)
    row = [
        c_text.decode("row", names, outs[:-1]),
        f"{kind}* const q = ({kind}*){args.bytes_out(0)} + row * {count};",
        f"const {kind}* const p = (const {kind}*){args.bytes_in(0)} + ({' + '.join(read)});",
    ]
    if not names:
        walk = block("for (int64_t row = lo; row < hi; row++)", *row, by_pieces)
    else:
        at, places = names[-1], f"t{len(names) - 1}"
        follows = f"{places}[{at} + rows] == {places}[{at}] + rows * {count}"
        in_go = [
            f"while (rows < hi - row && rows < {outs[-2]} - {at} && {follows}) rows++;",
            f"tx_copy((char*)q, (const char*)(p + {last}[0]), rows * {count} * {width});",
        ]
        walk = block(
            "for (int64_t row = lo; row < hi;)",
            *row,
            "int64_t rows = 1;",
            block(f"if (({' | '.join(read)}) < 0)", f"{fill_row}(q, fill, {count});"),
            block("else if (together)", *in_go),
            block("else", by_pieces),
            "row += rows;",
        )
    together = "const int together = pieces == 1 && piece[1] == NEIGHBOURS;"
    return [
        *tables,
        f"const int64_t pieces = {table}[0];",
        f"const int64_t* const piece = {table} + {offset};",
        together if names else "",
        f"const {kind} fill = {fill};",
        c_text.split(args.size("ROWS", dims.prod(work.out[:-1]))),
        f"if ({count} == 0) return;",
        walk,
    ]
