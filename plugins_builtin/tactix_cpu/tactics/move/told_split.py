"""DynamicSplit in C: the first launch reads the sizes of the parts."""

from __future__ import annotations

from tactix.base import dims
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import copy as c_copy
from tactix_codegen.c import text as c_text
from tactix_codegen.c.text import Args, block, loop
from tactix_cpu.tactics.move.told_shapes import BANDWIDTH


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [ToldSplitTactic()]


class ToldSplitTactic(Tactic[Node]):
    """Elements of 1, 2, 4 or 8 bytes; parts are runs of bytes."""

    key = "tactix.c_told_split@1"
    implements = ("tactix.DynamicSplit@1",)
    source = "c"
    tells = True

    def match(self, node: Node, device: DeviceProperties) -> Node | Reject:
        x, sizes = (v.spec for v in node.given)
        if not c_copy.movable(x.dtype):
            return Reject(f"no elements of {x.dtype.value} in C")
        if not sizes.dtype.is_int or not c_text.has_ctype(sizes.dtype):
            return Reject(f"no sizes of {sizes.dtype.value} in C")
        if sizes.numel != node.attrs.parts:
            return Reject(f"{sizes.numel} sizes for {node.attrs.parts} parts")
        return node

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        return c_text.seconds(ctx, (node.given[0].spec.nbytes(), 2 / BANDWIDTH))

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args = Args(node)
        body = [_told(args, node), *_copied(args, node)]
        preludes = c_copy.preludes()
        return c_text.kernel(args, body, ctx, preludes=preludes, phases=2, telling=1)


def _axis(node: Node) -> int:
    return int(node.attrs.axis) % node.given[0].spec.rank


def _told(args: Args, node: Node) -> str:
    """Sizes that are no numbers of elements, or do not make the axis, are refused."""
    axis, parts = _axis(node), node.attrs.parts
    whole = args.dim(node.given[0].spec.shape[axis])
    unfit = args.refuse("parts of {0} elements together do not make an axis of {1}", "total", whole)
    names = [dims.symbol_name(v.spec.shape[axis]) for v in node.outputs]
    return block(
        f"if ({args.phase()} == 0)",
        "if (tid) return;",
        "int64_t total = 0, fits = 1;",
        loop(
            "k",
            "0",
            str(parts),
            f"const int64_t size = (int64_t){args.input(1)}[k];",
            f"fits &= size >= 0 && size <= {whole};",
            "total += size;",
        ),
        block(f"if (!fits || total != {whole})", unfit, "return;"),
        *args.tell(
            {name: f"(int64_t){args.input(1)}[{k}]" for k, name in enumerate(names) if name}
        ),
        "return;",
    )


def _copied(args: Args, node: Node) -> list[str]:
    x, axis = node.given[0].spec, _axis(node)
    inner = dims.prod(x.shape[axis + 1 :]) * x.dtype.itemsize
    row = args.size("ROW", x.shape[axis] * inner)
    lines = [f"const char* from = {args.bytes_in(0)} + o * {row};"]
    for k, v in enumerate(node.outputs):
        part = args.size(f"PART{k}", v.spec.shape[axis] * inner)
        lines.append(f"tx_copy({args.bytes_out(k)} + o * {part}, from, {part});")
        lines.append(f"from += {part};")
    outer = args.size("OUTER", dims.prod(x.shape[:axis]))
    return [c_text.split(outer), loop("o", "lo", "hi", *lines)]
