"""MelWeightMatrix in C: the first launch tells the sizes, the second where filters begin."""

from __future__ import annotations

from tactix.base import dims
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import copy as c_copy
from tactix_codegen.c import text as c_text
from tactix_codegen.c.scalar import element, stored
from tactix_codegen.c.text import Args, block, comment, loop
from tactix_cpu.tactics.dot_tile import without_fma

GUESS = 1 << 14
"""Weights: only running tells how many there are."""
WEIGHT = 2e-9
"""Seconds for one of them. No measurement of it is on record."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [MelTactic()]


class MelTactic(Tactic[Node]):
    """All numbers; computed in float64, as the reference."""

    key = "tactix.c_mel@1"
    implements = ("tactix.MelWeightMatrix@1",)
    source = "c"
    tells = True

    def match(self, node: Node, device: DeviceProperties) -> Node | Reject:
        numbers = [v.spec.dtype for v in (*node.given, *node.outputs)]
        if not c_text.has_ctype(*numbers):
            return Reject("no filters of these numbers in C")
        if not all(t.is_int for t in numbers[:2]):
            return Reject("the number of filters or of samples is no integer")
        return node

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        return c_text.seconds(ctx, (GUESS, WEIGHT))

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args, y = Args(node), node.outputs[0].spec
        body = [_told(args, node), _places(args, node), *_weights(args, node)]
        preludes, room = c_copy.preludes(), (y.shape[1] + 2) * 8
        made = c_text.kernel(
            args, body, ctx, preludes=preludes, workspace=room, phases=3, telling=1
        )
        return without_fma(made)


def _number(args: Args, node: Node, index: int) -> str:
    return f"(double){element(node.given[index].spec.dtype, f'{args.input(index)}[0]')}"


def _told(args: Args, node: Node) -> str:
    rows, filters = (dims.symbol_name(d) for d in node.outputs[0].spec.shape)
    refused = args.refuse("{0} filters for {1} samples", "filters", "samples")
    assert rows is not None
    assert filters is not None
    return block(
        f"if ({args.phase()} == 0)",
        "if (tid) return;",
        f"const int64_t filters = (int64_t){args.input(0)}[0];",
        f"const int64_t samples = (int64_t){args.input(1)}[0];",
        block("if (filters < 0 || samples < 0)", refused, "return;"),
        *args.tell({rows: "samples / 2 + 1", filters: "filters"}),
        "return;",
    )


def _places(args: Args, node: Node) -> str:
    """Each filter begins at a place, is highest at the next one, and ends at the one behind it."""
    filters = args.size("FILTERS", node.outputs[0].spec.shape[1])
    mel = "2595 * log10(1 + {} / 700)".format
    places = args.workspace(0, "int64_t")
    hertz = "700 * (pow(10, (low + k * (high - low) / count) / 2595) - 1)"
    return block(
        f"if ({args.phase()} == 1)",
        "if (tid) return;",
        f"const double low = {mel(_number(args, node, 3))}, high = {mel(_number(args, node, 4))};",
        f"const double count = (double)({filters} + 2);",
        f"const double size = {_number(args, node, 1)} + 1, rate = {_number(args, node, 2)};",
        loop("k", "0", "FILTERS + 2", f"{places}[k] = tx_i64_of(floor(size * ({hertz}) / rate));"),
        "return;",
    )


def _weights(args: Args, node: Node) -> list[str]:
    y = node.outputs[0].spec
    places = args.workspace(0, "int64_t")
    made = "(float)weight" if y.dtype.is_float and y.dtype.bits < 32 else "weight"
    return [
        comment("A weight rises to its filter's middle, and falls behind it."),
        c_text.split(args.size("ROWS", y.shape[0])),
        loop(
            "row",
            "lo",
            "hi",
            loop(
                "k",
                "0",
                args.size("FILTERS", y.shape[1]),
                f"const int64_t first = {places}[k], middle = {places}[k + 1];",
                f"const int64_t last = {places}[k + 2];",
                "const int64_t up = middle - first > 1 ? middle - first : 1;",
                "const int64_t down = last - middle > 1 ? last - middle : 1;",
                "const double rise = (double)(row - first) / (double)up;",
                "const double fall = (double)(last - row) / (double)down;",
                "const double side = row < middle ? rise : fall;",
                "const double weight = row == middle ? 1 : side > 0 ? side : 0;",
                f"{args.output()}[row * FILTERS + k] = {stored(y.dtype, made)};",
            ),
        ),
    ]
