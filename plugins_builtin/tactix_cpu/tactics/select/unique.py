"""Unique in C, of elements. In their order they are sorted by ranks, and what is equal lies
together; as they occur they are looked for in a table of places that their keys lead to.

One thread does it: the order of all elements is what takes time.
"""

from __future__ import annotations

from tactix.base import dims
from tactix.base.dims import Dim
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import order
from tactix_codegen.c import text as c_text
from tactix_codegen.c.order import PLACES, Ranks
from tactix_codegen.c.text import Args, block, loop

SECONDS_AN_ELEMENT = 2e-8
"""Four passes to sort by bytes of keys, and one that numbers, all of scattered stores."""
SECONDS_A_SEARCH = 6e-9
"""To look for an element in a table that the second cache holds."""
SPARE = 2
"""Places of the table for each element, so that a walk to a free one is short."""
FREE = "0xffffffffu"
"""The number of no group."""

_HELPERS = """/* The finalizer of MurmurHash3 (Austin Appleby, public domain) of key and address:
   who does not know where memory lies cannot choose keys whose places are one. */
static inline int64_t TX_NAME(place)(uint64_t key, const void* salt, int64_t places) {
    uint64_t u = key ^ (uint64_t)(uintptr_t)salt << 16;
    u = (u ^ u >> 33) * 0xff51afd7ed558ccdULL;
    u = (u ^ u >> 33) * 0xc4ceb9fe1a85ec53ULL;
    return (int64_t)((unsigned __int128)u * (uint64_t)places >> 64);
}"""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [UniqueTactic()]


class UniqueTactic(Tactic[Node]):
    """Elements of any dtype with a C type; -0 is 0, and all NaN are one."""

    key = "tactix.c_unique@1"
    implements = ("tactix.Unique@1",)
    source = "c"
    tells = True

    def match(self, node: Node, device: DeviceProperties) -> Node | Reject:
        spec = node.given[0].spec
        if not c_text.has_ctype(spec.dtype):
            return Reject(f"no elements of {spec.dtype.value} in C")
        if node.attrs.axis is not None and spec.rank > 1:
            return Reject("this kernel compares elements, no slices")
        if isinstance(spec.numel, int) and spec.numel > PLACES:
            return Reject(f"places of {spec.numel} elements need more than 32 bits")
        return node

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        each = SECONDS_AN_ELEMENT if node.attrs.sorted else SECONDS_A_SEARCH
        return c_text.seconds(ctx, (node.given[0].spec.numel, each))

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args, spec = Args(node), node.given[0].spec
        ranks = Ranks(spec.dtype, largest=False)
        name = dims.symbol_name(node.outputs[1].spec.shape[0])
        assert name is not None
        args.size("COUNT", spec.numel)
        if node.attrs.sorted:
            body, room, helpers = *_by_rank(args, ranks, name), ""
        else:
            body, room, helpers = *_by_table(args, ranks, name), _HELPERS
        return c_text.kernel(
            args, body, ctx, helpers=helpers, preludes=order.preludes(), workspace=room, phases=2,
            telling=1,
        )  # fmt: skip


def _by_rank(args: Args, ranks: Ranks, name: str) -> tuple[list[str], Dim]:
    """Code, and bytes of its workspace."""
    body = [
        "if (tid) return;",
        f"{ranks.type}* const v = {args.workspace(0, ranks.type)};",
        f"const {ranks.element}* const x = (const {ranks.element}*){args.bytes_in(0)};",
        block(f"if ({args.phase()} == 0)", *_sorted(args, ranks, name), "return;"),
        *_groups(args, ranks),
    ]
    return body, 2 * args.node.given[0].spec.numel * ranks.nbytes


def _by_table(args: Args, ranks: Ranks, name: str) -> tuple[list[str], Dim]:
    """Code, and bytes of its workspace: keys and numbers by place, then numbers by element, and the
    first element of each number.
    """
    count = args.node.given[0].spec.numel
    places: Dim = SPARE * count + 1
    args.size("PLACES", places)
    y, first, inverse, counts = _outputs(args, ranks)
    fresh = ["at_key[at] = key;", "number[at] = found;", "seen[groups++] = (uint32_t)i;"]
    search = [
        f"const {ranks.half} key = {ranks.key('x[i]')};",
        "int64_t at = TX_NAME(place)(key, number, PLACES);",
        f"while (number[at] != {FREE} && at_key[at] != key) at = at + 1 == PLACES ? 0 : at + 1;",
        "uint32_t found = number[at];",
        block(f"if (found == {FREE})", "found = (uint32_t)groups;", *fresh),
        "group[i] = found;",
    ]
    told = [
        "memset(number, 0xff, PLACES * sizeof(uint32_t));",
        "int64_t groups = 0;",
        loop("i", "0", "COUNT", *search),
        "*known = groups;",
        *args.tell({name: "groups"}),
        "return;",
    ]
    begin = [f"{y}[g] = x[seen[g]];", f"{first}[g] = seen[g];", f"{counts}[g] = 0;"]
    body = [
        "if (tid) return;",
        f"int64_t* const known = {args.workspace(0, 'int64_t')};",
        f"{ranks.half}* const at_key = ({ranks.half}*)(known + 1);",
        "uint32_t* const number = (uint32_t*)(at_key + PLACES);",
        "uint32_t* const group = number + PLACES;",
        "uint32_t* const seen = group + COUNT;",
        f"const {ranks.element}* const x = (const {ranks.element}*){args.bytes_in(0)};",
        block(f"if ({args.phase()} == 0)", *told),
        "const int64_t groups = *known;",
        loop("g", "0", "groups", *begin),
        loop("i", "0", "COUNT", f"{inverse}[i] = group[i];", f"{counts}[group[i]]++;"),
    ]
    return body, 8 + places * (ranks.nbytes // 2 + 4) + 8 * count


def _differs(ranks: Ranks) -> str:
    """Whether the element of rank ``i`` is another than the one before it."""
    half = ranks.bits // 2
    return f"(i == 0 || ({ranks.half})(v[i] >> {half}) != ({ranks.half})(v[i - 1] >> {half}))"


def _sorted(args: Args, ranks: Ranks, name: str) -> list[str]:
    return [
        loop("i", "0", "COUNT", f"v[i] = {ranks.rank(ranks.key('x[i]'), 'i')};"),
        f"if (COUNT > 0) tx_sort_rising_{ranks.bits}(v, v + COUNT, COUNT);",
        "int64_t groups = 0;",
        loop("i", "0", "COUNT", f"groups += {_differs(ranks)};"),
        *args.tell({name: "groups"}),
    ]


def _groups(args: Args, ranks: Ranks) -> list[str]:
    """Equal elements in the order of their numbers; the first of a group is the first in x."""
    y, first, inverse, counts = _outputs(args, ranks)
    begin = [
        "group++;",
        f"{y}[group] = x[place];",
        f"{first}[group] = place;",
        f"{counts}[group] = 0;",
    ]
    return [
        "int64_t group = -1;",
        loop(
            "i",
            "0",
            "COUNT",
            f"const int64_t place = {ranks.place('v[i]')};",
            block(f"if ({_differs(ranks)})", *begin),
            f"{inverse}[place] = group;",
            f"{counts}[group]++;",
        ),
    ]


def _outputs(args: Args, ranks: Ranks) -> list[str]:
    y = f"(({ranks.element}*){args.bytes_out(0)})"
    return [y, *(args.output(j) for j in (1, 2, 3))]
