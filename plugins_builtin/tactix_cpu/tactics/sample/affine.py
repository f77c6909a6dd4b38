"""AffineGrid in C, where only running tells the size of the image: places for GridSample, along its
rows; linear format.

Of a known size it is pointwise layers (``tactix_ops/rules/affine_grid.py``).
"""

from __future__ import annotations

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import copy as c_copy
from tactix_codegen.c import text as c_text
from tactix_codegen.c.scalar import element, stored
from tactix_codegen.c.text import Args, block, comment, loop

PLACED = 0.5e-9
"""Seconds for a number of a place, which is a product and a sum; Sapphire Rapids, one thread."""
GUESS = 1 << 14
"""Numbers: only running tells how many there are."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [ToldAffineGridTactic()]


class ToldAffineGridTactic(Tactic[Node]):
    """All floats, two or three axes; sums in float32, of float64 in float64."""

    key = "tactix.c_told_affine_grid@1"
    implements = ("tactix.AffineGrid@1",)
    source = "c"
    by_signature = True
    tells = True

    def match(self, node: Node, device: DeviceProperties) -> Node | Reject:
        theta, size = (v.spec for v in node.given)
        if node.is_fused:
            return Reject("no layers around it are fused by this tactic")
        if not theta.dtype.is_float or not c_text.has_ctype(theta.dtype):
            return Reject(f"no places of {theta.dtype.value} in C")
        if not size.dtype.is_int or not c_text.has_ctype(size.dtype):
            return Reject(f"no sizes of {size.dtype.value} in C")
        return node if c_text.fresh_symbols(node) else Reject("the size of the image is known")

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        return c_text.seconds(ctx, (GUESS, PLACED / max(1, ctx.threads)))

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args = Args(node)
        threads, preludes = max(1, ctx.threads), c_copy.preludes()
        room = node.outputs[0].spec.shape[-2] * 8 * threads
        body = [_told(args, node), *c_text.at_most(threads), *_rows(args, node)]
        return c_text.kernel(
            args, body, ctx, preludes=preludes, workspace=room, phases=2, telling=1
        )


def _told(args: Args, node: Node) -> str:
    shape, fresh, lines = node.outputs[0].spec.shape, c_text.fresh_symbols(node), list[str]()
    sizes = {}
    for i, d in enumerate(shape[1:-1]):
        name = dims.symbol_name(d)
        if name in fresh:
            negative = args.refuse("axis {0} of the image has {1} elements", str(i), f"n{i}")
            lines.append(f"const int64_t n{i} = (int64_t){args.input(1)}[{2 + i}];")
            lines.append(block(f"if (n{i} < 0)", negative, "return;"))
            sizes[name] = f"n{i}"
    body = ["if (tid) return;", *lines, *args.tell(sizes), "return;"]
    return block(f"if ({args.phase()} == 0)", *body)


def _rows(args: Args, node: Node) -> list[str]:
    """Along a row of the image one coordinate changes; what the others give is one number."""
    theta, y = node.given[0].spec, node.outputs[0].spec
    axes = y.rank - 2
    number = "double" if theta.dtype is DType.FP64 else "float"
    names = [f"SIZE{i}" for i in range(axes)]
    sizes = [args.size(name, d) for name, d in zip(names, y.shape[1:-1], strict=True)]
    outer = ["image", *(f"i{i}" for i in range(axes - 1))]
    batch, columns = args.size("IMAGES", y.shape[0]), axes + 1
    lines = [c_text.decode("u", outer, [batch, *sizes[:-1]])]
    lines += [
        f"const {number} p{i} = {_coordinate(node, number, f'i{i}', sizes[i])};"
        for i in range(axes - 1)
    ]
    for i in range(axes):
        at = f"{args.input(0)}[(image * {axes} + {i}) * {columns} + {{}}]"
        terms = [element(theta.dtype, at.format(j)) for j in range(columns)]
        # columns of theta go with the axes from the last to the first
        others = [f"{terms[axes - 1 - k]} * p{k}" for k in range(axes - 1)]
        lines.append(f"const {number} by{i} = {terms[0]};")
        lines.append(f"const {number} rest{i} = {' + '.join([*others, terms[-1]])};")
    place = f"(u * {sizes[-1]} + x) * {axes}"
    sums = [stored(theta.dtype, f"by{i} * p[x] + rest{i}") for i in range(axes)]
    targets = [args.sum(place, str(i)) for i in range(axes)]
    results = [f"{args.output()}[{at}] = {s};" for at, s in zip(targets, sums, strict=True)]
    along = f"p[x] = {_coordinate(node, number, 'x', sizes[-1])};"
    return [
        c_text.split(" * ".join([batch, *sizes[:-1]])),
        "if (lo == hi) return;",
        comment("The coordinates along a row are the same in all of them."),
        f"{number}* const p = ({number}*)({args.workspace(0, 'double')} + tid * {sizes[-1]});",
        loop("x", "0", sizes[-1], along),
        loop("u", "lo", "hi", *lines, loop("x", "0", sizes[-1], *results)),
    ]


def _coordinate(node: Node, number: str, index: str, size: str) -> str:
    """Of an element along an axis, from -1 to 1."""
    whole = f"(double){size}"
    if not node.attrs.align_corners:
        return f"({number})((2 * (double){index} + 1) / {whole} - 1)"
    return f"({number})({size} > 1 ? 2 * (double){index} / ({whole} - 1) - 1 : -1)"
