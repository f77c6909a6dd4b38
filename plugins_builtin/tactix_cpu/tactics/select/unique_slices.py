"""Unique in C, of slices along an axis: their places are sorted, and what is equal lies together.

One thread does it: the order of all slices is what takes time.
"""

from __future__ import annotations

import math

from tactix.base import dims
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import order
from tactix_codegen.c import scalar as c_scalar
from tactix_codegen.c import text as c_text
from tactix_codegen.c.order import Lines, Ranks
from tactix_codegen.c.text import Args, block, comment, loop

SECONDS_A_COMPARISON = 1e-8
"""Of two slices, which differ early. No measurement of it is on record."""
SECONDS_A_BYTE = 1e-10
"""Of a slice that is copied. No measurement of it is on record."""
USUAL_SLICES = 1024
"""What an unknown number of slices counts as in the estimate: a guess."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [UniqueSlicesTactic()]


class UniqueSlicesTactic(Tactic[Node]):
    """Elements of any dtype with a C type but 16-bit floats; -0 is 0, and NaN is like nothing,
    itself included.
    """

    key = "tactix.c_unique_slices@1"
    implements = ("tactix.Unique@1",)
    source = "c"
    tells = True

    def match(self, node: Node, device: DeviceProperties) -> Node | Reject:
        spec = node.given[0].spec
        if not c_text.has_ctype(spec.dtype):
            return Reject(f"no elements of {spec.dtype.value} in C")
        if node.attrs.axis is None or spec.rank < 2:
            return Reject("this kernel compares slices, no elements")
        if spec.dtype in c_scalar.WIDE:
            return Reject("the reference has NaN of 16 bits in slices before other numbers")
        return node

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        spec = node.given[0].spec
        size = spec.shape[node.attrs.axis]
        rounds = math.log2(max(2, size if isinstance(size, int) else USUAL_SLICES))
        compared = (size, rounds * SECONDS_A_COMPARISON)
        return c_text.seconds(ctx, compared, (spec.nbytes(), 2 * SECONDS_A_BYTE))

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args, spec = Args(node), node.given[0].spec
        lines = Lines.along(spec.shape, node.attrs.axis)
        name = dims.symbol_name(node.outputs[1].spec.shape[0])
        assert name is not None
        args.size("COUNT", lines.size)
        args.size("OUTER", lines.outer)
        args.size("INNER", lines.inner)
        places = args.workspace(0, "int64_t")
        body = [
            "if (tid) return;",
            f"int64_t* const v = {places};",
            f"int64_t* const w = {places} + COUNT;",
            block(f"if ({args.phase()} == 0)", *_sorted(args, name), "return;"),
            *_groups(args, node),
        ]
        return c_text.kernel(
            args,
            body,
            ctx,
            helpers=_comparisons(args, Ranks(spec.dtype)),
            preludes=order.preludes(),
            workspace=2 * lines.size * 8,
            phases=2,
            telling=1,
        )


def _comparisons(args: Args, ranks: Ranks) -> str:
    """Whether a slice comes after another, and whether they differ."""
    at = "[(o * COUNT + {}) * INNER + i]"
    keys = [
        f"const {ranks.half} {name} = {ranks.key('x' + at.format(place))};"
        for name, place in (("left", "p"), ("right", "q"))
    ]
    nan = " || left == NONE" if ranks.dtype.is_float else ""
    none = [f"const {ranks.half} NONE = ({ranks.half})-1;"] if nan else []
    functions = []
    for name, found in (
        ("after", "if (left != right) return left > right;"),
        ("differ", f"if (left != right{nan}) return 1;"),
    ):
        walk = loop("o", "0", "OUTER", loop("i", "0", "INNER", *keys, found))
        x = f"const {ranks.element}* const x = (const {ranks.element}*){args.bytes_in(0)};"
        lines = [x, *(none if name == "differ" else []), walk, "return 0;"]
        names = args.declarations("\n".join(lines))
        head = f"TX_INLINE int TX_NAME({name})(const int64_t* a, int64_t p, int64_t q)"
        functions.append(block(head, *names, *lines))
    return "\n".join(functions) + "\n"


def _sorted(args: Args, name: str) -> list[str]:
    """Places by runs that double in length; of equal slices the first comes first."""
    merge = [
        "const int64_t mid = lo + run < COUNT ? lo + run : COUNT;",
        "const int64_t hi = mid + run < COUNT ? mid + run : COUNT;",
        "int64_t i = lo, j = mid;",
        loop(
            "k",
            "lo",
            "hi",
            "const int second = j < hi && (i == mid || TX_NAME(after)(a, from[i], from[j]));",
            "to[k] = from[second ? j++ : i++];",
        ),
    ]
    rounds = [
        loop("lo", "0", "COUNT", *merge, step="2 * run"),
        "int64_t* const swap = from;",
        "from = to;",
        "to = swap;",
    ]
    return [
        "int64_t *from = v, *to = w;",
        loop("k", "0", "COUNT", "v[k] = k;"),
        comment("Runs of sorted places are merged in pairs."),
        block("for (int64_t run = 1; run < COUNT; run *= 2)", *rounds),
        "if (from != v) memcpy(v, from, COUNT * sizeof *v);",
        "int64_t groups = 0;",
        loop("k", "0", "COUNT", f"groups += {_begins('k')};"),
        *args.tell({name: "groups"}),
    ]


def _begins(k: str) -> str:
    """Whether the slice at a place in the order is another than the one before it."""
    return f"({k} == 0 || TX_NAME(differ)(a, v[{k} - 1], v[{k}]))"


def _groups(args: Args, node: Node) -> list[str]:
    """Number the groups, by their order or where they occur first; copy one slice of each."""
    first, inverse, counts = (args.output(j) for j in (1, 2, 3))
    groups = args.dim(node.outputs[1].spec.shape[0])
    width = node.given[0].spec.dtype.itemsize
    number = "group" if node.attrs.sorted else "next++"
    begin = [
        f"w[group] = {number};",
        f"{first}[w[group]] = k;",
        f"{counts}[w[group]] = 0;",
    ]
    source = f"(o * COUNT + {first}[g]) * INNER * {width}"
    copied = [
        f"const char* const from = {args.bytes_in(0)} + {source};",
        f"char* const to = {args.bytes_out(0)} + (o * {groups} + g) * INNER * {width};",
        f"memcpy(to, from, INNER * {width});",
    ]
    return [
        "int64_t group = -1, next = 0;",
        comment("w: the numbers of groups in order, -1 until the first of a group is met."),
        loop(
            "k",
            "0",
            "COUNT",
            f"if ({_begins('k')}) w[++group] = -1;",
            f"{inverse}[v[k]] = group;",
        ),
        loop(
            "k",
            "0",
            "COUNT",
            f"const int64_t group = {inverse}[k];",
            block("if (w[group] < 0)", *begin),
            f"{inverse}[k] = w[group];",
            f"{counts}[w[group]]++;",
        ),
        comment("A slice of each group."),
        loop("o", "0", "OUTER", loop("g", "0", groups, *copied)),
    ]
