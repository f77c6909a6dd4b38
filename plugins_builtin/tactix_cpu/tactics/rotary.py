"""RotaryEmbedding in C: both halves of a row are read where they lie, and written beside each
other.
"""

from __future__ import annotations

from collections.abc import Sequence

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import text as c_text
from tactix_codegen.c.space import collapse
from tactix_codegen.c.text import Args, block, comment, loop

FLOATS = (DType.FP32, DType.FP16, DType.BF16)
_NAMES = ("x", "c", "s", "y")
"""C names of the rows of the input, of cosines, of sines, and of the output."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [RotaryTactic()]


class RotaryTactic(Tactic[Node]):
    """f32, f16 and bf16, linear; computed in float32."""

    key = "tactix.c_rotary@1"
    implements = ("tactix.RotaryEmbedding@1",)
    source = "c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> Node | Reject:
        if node.is_fused:
            return Reject("it takes no epilogue")
        if any(v.spec.dtype not in FLOATS for v in node.given):
            return Reject("no rotation of these dtypes in C")
        return node

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        return c_text.traffic(node, variant, ctx)

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args = Args(node)
        return c_text.kernel(args, _rows(args, node), ctx)


def _rows(args: Args, node: Node) -> list[str]:
    """All rows; positions are worked out once per run of the last loop of them."""
    shape, tables = node.outputs[0].spec.shape, [v.spec.shape for v in node.given[1:]]
    own, width = c_text.contiguous_strides(shape)[:-1], tables[0][-1]
    turned = (*shape[:-1], width)
    behind = [c_text.broadcast_strides(table, turned)[:-1] for table in tables]
    space = collapse(shape[:-1], (own, *behind, own))
    outer = [f"i{k}" for k in range(len(space.sizes))]
    sizes = [args.dim(d) for d in space.sizes]
    args.size("HALF", dims.floordiv(width, 2))
    bases = [*(args.input(i) for i in range(3)), args.output()]
    dtypes = [v.spec.dtype for v in (*node.given, *node.outputs)]
    rows = [
        f"{'' if k == 3 else 'const '}{c_text.ctype(t)}* {name} = {base} + "
        f"{args.offset(space.strides[k], outer)};"
        for k, (name, base, t) in enumerate(zip(_NAMES, bases, dtypes, strict=True))
    ]
    steps = " ".join(
        f"{name} += {args.dim(space.strides[k][-1])};" for k, name in enumerate(_NAMES)
    )
    run = f"{sizes[-1]} - {outer[-1]}"
    body = [
        c_text.decode("o", outer, sizes),
        f"const int64_t run = {run} < hi - o ? {run} : hi - o;",
        *rows,
        loop("r", "0", "run", *_row(args, node, dtypes), steps),
        "o += run;",
    ]
    total = args.size("ROWS", dims.prod(shape[:-1]))
    return [
        comment("Rows [lo, hi) are this thread's."),
        c_text.split(total),
        block("for (int64_t o = lo; o < hi;)", *body),
    ]


def _row(args: Args, node: Node, dtypes: Sequence[DType]) -> list[str]:
    """One row: what is turned, and a copy of the rest."""
    shape, width, heads = node.outputs[0].spec.shape, node.given[1].spec.shape[-1], _heads(node)
    turned = [
        "int64_t i = 0;",
        block("for (; i + TX_LANES <= HALF; i += TX_LANES)", *_vectors(dtypes, "")),
        block("if (i < HALF)", *_vectors(dtypes, "HALF - i")),
    ]
    size = dtypes[0].itemsize
    if width != shape[-1]:
        rest = args.dim((shape[-1] - width) * size)
        turned.append(f"memcpy(y + 2 * HALF, x + 2 * HALF, {rest});")
    if heads is None:
        return turned
    copy = block("else", f"memcpy(y, x, {args.dim(shape[-1] * size)});")
    return [block(f"if ((o + r) % {args.dim(shape[-2])} < {heads})", *turned), copy]


def _heads(node: Node) -> int | None:
    """How many of a row's heads are turned; None: all."""
    assert node.anchor is not None
    heads = node.anchor.attrs.heads
    return None if heads is None or heads == node.outputs[0].spec.shape[-2] else int(heads)


def _vectors(dtypes: Sequence[DType], count: str) -> list[str]:
    """One vector of each half."""
    loads = [
        f"const vf {name}{half} = {c_text.load(t, f'{name} + i{place}', count)};"
        for name, t in zip(_NAMES[:3], dtypes, strict=False)
        for half, place in enumerate(("", " + HALF"))
    ]
    return [
        *loads,
        c_text.store(dtypes[3], "y + i", "x0 * c0 - x1 * s0", count),
        c_text.store(dtypes[3], "y + i + HALF", "x1 * c1 + x0 * s1", count),
    ]
