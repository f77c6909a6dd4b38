"""Unique in C, of elements: they are sorted by ranks, and what is equal lies together.

One thread does it: the order of all elements is what takes time.
"""

from __future__ import annotations

from tactix.base import dims
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import order
from tactix_codegen.c import text as c_text
from tactix_codegen.c.order import PLACES, Ranks
from tactix_codegen.c.text import Args, block, comment, loop

SECONDS_AN_ELEMENT = 2e-8
"""Four passes to sort by bytes of keys, and one that numbers, all of scattered stores."""


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
        return c_text.seconds(ctx, (node.given[0].spec.numel, SECONDS_AN_ELEMENT))

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args, spec = Args(node), node.given[0].spec
        ranks = Ranks(spec.dtype, largest=False)
        name = dims.symbol_name(node.outputs[1].spec.shape[0])
        assert name is not None
        args.size("COUNT", spec.numel)
        body = [
            "if (tid) return;",
            f"{ranks.type}* const v = {args.workspace(0, ranks.type)};",
            f"const {ranks.element}* const x = (const {ranks.element}*){args.bytes_in(0)};",
            block(f"if ({args.phase()} == 0)", *_sorted(args, ranks, name), "return;"),
            *(_groups(args, ranks) if node.attrs.sorted else _in_order(args, ranks)),
        ]
        room = 2 * spec.numel * ranks.nbytes
        return c_text.kernel(
            args, body, ctx, preludes=order.preludes(), workspace=room, phases=2, telling=1
        )


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


def _in_order(args: Args, ranks: Ranks) -> list[str]:
    """Groups get their numbers where they occur first."""
    y, first, inverse, counts = _outputs(args, ranks)
    begin = [
        "number[group] = next;",
        f"{y}[next] = x[i];",
        f"{first}[next] = i;",
        f"{counts}[next++] = 0;",
    ]
    return [
        comment("Groups by their order first; what was sorted by way of has room for more."),
        "int64_t* const number = (int64_t*)(v + COUNT);",
        "int64_t group = -1, next = 0;",
        loop(
            "i",
            "0",
            "COUNT",
            f"if ({_differs(ranks)}) number[++group] = -1;",
            f"{inverse}[{ranks.place('v[i]')}] = group;",
        ),
        loop(
            "i",
            "0",
            "COUNT",
            f"const int64_t group = {inverse}[i];",
            block("if (number[group] < 0)", *begin),
            f"{inverse}[i] = number[group];",
            f"{counts}[number[group]]++;",
        ),
    ]


def _outputs(args: Args, ranks: Ranks) -> list[str]:
    y = f"(({ranks.element}*){args.bytes_out(0)})"
    return [y, *(args.output(j) for j in (1, 2, 3))]
