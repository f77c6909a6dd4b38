"""IntegerMatMul, IntegerConvolution and Convolution of float64 and int32 in plain C: any operands,
groups and sizes, constant or not.

What tiles and windows of bytes cannot take (matmul/int8.py, conv/int8.py): weights that only
running tells, groups of several channels, volumes; and numbers that no tile is made for. A thread
sums a row of results at a time in int32 or float64; padding counts as the zero point, which is
taken from every element and added at the end.
"""

from __future__ import annotations

from dataclasses import dataclass

from tactix.base import dims
from tactix.base.dims import Dim, Shape
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.region import BodyNode
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import text as c_text
from tactix_codegen.c.epilogue import Epilogue, EpilogueOperand, epilogue, stored_element
from tactix_codegen.c.text import Args, comment, loop

SECONDS_A_PRODUCT = 2.5e-10
"""Of bytes that become int32 before they are multiplied: eight lanes take two cycles and more. No
measurement of it is on record.
"""
SECONDS_A_DOUBLE = 2.5e-10
"""Likewise."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [PlainSumsTactic()]


@dataclass(frozen=True)
class PlainSums:
    """``inputs``: given ones for both operands and the bias, -1 for none; ``products``: of them
    for each result; ``kind``: of the sums.
    """

    node: Node
    anchor: BodyNode
    inputs: tuple[int, int, int]
    epi: Epilogue
    products: Dim
    kind: DType = DType.INT32

    @property
    def shape(self) -> Shape:
        """Of the results."""
        return self.epi.shape

    @property
    def has_zero(self) -> bool:
        """Whether there is a zero point, which padding counts as."""
        return self.anchor.layer.name != "Convolution"

    @property
    def rows(self) -> Dim:
        return dims.prod(self.shape[:-1])


class PlainSumsTactic(Tactic[PlainSums]):
    """Linear, with any pointwise epilogue."""

    key = "tactix.c_plain_sums@1"
    implements = (
        "tactix.IntegerMatMul@1",
        "tactix.IntegerConvolution@1",
        "tactix.Convolution@1",
    )
    source = "c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> PlainSums | Reject:
        epi, anchor = epilogue(node, vector=False), node.anchor
        if isinstance(epi, Reject):
            return epi
        assert anchor is not None
        a, b, bias = (*anchor.inputs, -1)[:3]
        left, right = node.given[a].spec, node.given[b].spec
        plain = anchor.layer.name == "Convolution"
        if plain and left.dtype not in (DType.FP64, DType.INT32):
            return Reject("this kernel takes float64 and int32, others narrower floats")
        if not plain and node.is_fused and right.is_const and _has_tiles(anchor, right):
            return Reject("tiles take the product alone, and other kernels what is behind it")
        if anchor.layer.name == "IntegerMatMul":
            if left.rank < 2 or right.rank != 2:
                return Reject("this kernel takes rows by one matrix")
            return PlainSums(node, anchor, (a, b, bias), epi, left.shape[-1])
        if left.rank < 3 or not all(isinstance(p, int) for p in anchor.attrs.pads):
            return Reject("this kernel takes windows whose pads are known")
        kind = left.dtype if plain else DType.INT32
        return PlainSums(node, anchor, (a, b, bias), epi, dims.prod(right.shape[1:]), kind)

    def cost(self, work: PlainSums, variant: Variant, ctx: CompileContext) -> float | None:
        products = dims.prod(work.shape) * work.products
        each = SECONDS_A_DOUBLE if work.kind is DType.FP64 else SECONDS_A_PRODUCT
        return c_text.seconds(ctx, (products, each))

    def compile(self, work: PlainSums, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args, threads = Args(work.node), max(1, ctx.threads)
        room = work.shape[-1] * (work.kind.bits // 8) * threads
        return c_text.kernel(args, _rows(args, work, threads), ctx, workspace=room)


def _has_tiles(anchor: BodyNode, weights: TensorSpec) -> bool:
    """Whether other kernels take such products with constant weights, if perhaps not all that is
    fused to them: then it is better parted.
    """
    if anchor.layer.name == "IntegerMatMul":
        return True
    single = weights.shape[0] == anchor.attrs.group and weights.shape[1] == 1
    return weights.rank == 4 and (anchor.attrs.group == 1 or single)


def _rows(args: Args, work: PlainSums, threads: int) -> list[str]:
    """Every thread has rows of results, and room for the sums of one."""
    names = [f"i{d}" for d in range(len(work.shape) - 1)]
    args.size("WIDTH", work.shape[-1])
    sums = _product if work.anchor.layer.name == "IntegerMatMul" else _window
    kind = c_text.ctype(work.kind)
    return [
        *c_text.at_most(threads),
        comment("Rows [lo, hi) of results are this thread's."),
        c_text.split(args.size("ROWS", work.rows)),
        f"{kind}* restrict const sum = {args.workspace(0, kind)} + tid * WIDTH;",
        loop(
            "row",
            "lo",
            "hi",
            c_text.decode("row", names, [args.dim(d) for d in work.shape[:-1]]),
            *sums(args, work),
            *_finish(args, work, names),
        ),
    ]


def _finish(args: Args, work: PlainSums, names: list[str]) -> list[str]:
    """The results of a row through the epilogue."""
    acc = f"const {c_text.ctype(work.kind)} acc = sum[j];"

    def where(o: EpilogueOperand) -> str:
        return args.offset(o.strides, [*names, "j"])

    finished = stored_element(args, work.epi, "acc", where, "row * WIDTH + j")
    return [loop("j", "0", "WIDTH", acc, *finished)]


def _product(args: Args, work: PlainSums) -> list[str]:
    a, b, bias = work.inputs
    args.size("DEPTH", work.products)
    start = f"{args.input(bias)}[j]" if bias >= 0 else "0"
    step = [
        f"const int32_t a = {args.input(a)}[row * DEPTH + k];",
        loop("j", "0", "WIDTH", f"sum[j] += a * {args.input(b)}[k * WIDTH + j];"),
    ]
    return [loop("j", "0", "WIDTH", f"sum[j] = {start};"), loop("k", "0", "DEPTH", *step)]


def _window(args: Args, work: PlainSums) -> list[str]:
    """``i0``: the image, ``i1``: the channel of the result; others are places."""
    x, w = (work.node.given[i].spec for i in work.inputs[:2])
    attrs, spatial, bias = work.anchor.attrs, x.rank - 2, work.inputs[2]
    args.size("CHANNELS", w.shape[1])
    args.size("OUTPUTS", dims.floordiv(w.shape[0], attrs.group))
    args.size("TAPS", dims.prod(w.shape[2:]))
    args.size("LINES", dims.prod(x.shape[2:-1]))
    args.size("LINE", x.shape[-1])
    start = f"{args.input(bias)}[i1]" if bias >= 0 else "0"
    kernel = [args.dim(d) for d in w.shape[2:]]
    taps = [f"t{d}" for d in range(spatial)]
    weight = f"{args.input(work.inputs[1])}[(i1 * CHANNELS + c) * TAPS + {_flat(taps, kernel)}]"
    kind = c_text.ctype(work.kind)
    nest = "\n".join(
        [f"const {kind} w = {weight};", *["weights += w;"] * work.has_zero, *_tap(args, work)]
    )
    for name, size in zip(reversed(taps), reversed(kernel), strict=True):
        nest = loop(name, "0", size, nest)
    sums = [loop("c", "0", "CHANNELS", nest)]
    cleared = "memset(sum, 0, WIDTH * sizeof *sum);"
    if not work.has_zero:
        return [cleared, *sums, loop("j", "0", "WIDTH", f"sum[j] += {start};")]
    return [
        f"const int32_t ZERO = {attrs.pad_value};",
        "int32_t weights = 0;",
        cleared,
        *sums,
        loop("j", "0", "WIDTH", f"sum[j] += weights * ZERO + {start};"),
    ]


def _tap(args: Args, work: PlainSums) -> list[str]:
    """What one tap adds to a row of results: a line of the image, as far as it is there."""
    x, a = work.node.given[work.inputs[0]].spec, work.anchor.attrs
    n = x.rank - 2
    pads, strides = a.pads or (0,) * 2 * n, a.strides or (1,) * n
    dilations = a.dilations or (1,) * n
    sizes = [args.dim(d) for d in x.shape[2:-1]]
    places = [
        f"const int64_t p{d} = i{d + 2} * {strides[d]} + t{d} * {dilations[d]} - {pads[d]};"
        for d in range(n - 1)
    ]
    outside = [f"p{d} < 0 || p{d} >= {size}" for d, size in enumerate(sizes)]
    plane = f"(i0 * {a.group} + i1 / OUTPUTS) * CHANNELS + c"
    line = f"({plane}) * LINES + {_flat([f'p{d}' for d in range(n - 1)], sizes)}"
    stride, kind = strides[-1], c_text.ctype(x.dtype)
    value = f"line[j * {stride}]"
    value = f"({value} - ZERO)" if work.has_zero else value
    return [
        *places,
        *(f"if ({' || '.join(outside)}) continue;" for _ in outside[:1]),
        f"const int64_t off = t{n - 1} * {dilations[-1]} - {pads[n - 1]};",
        f"const int64_t begin = off < 0 ? (-off + {stride - 1}) / {stride} : 0;",
        f"const int64_t most = LINE > off ? (LINE - off + {stride - 1}) / {stride} : 0;",
        "const int64_t end = most < WIDTH ? most : WIDTH;",
        f"const int64_t at = ({line}) * LINE + off;",
        f"const {kind}* const line = {args.input(work.inputs[0])} + at;",
        loop("j", "begin", "end", f"sum[j] += {value} * w;"),
    ]


def _flat(names: list[str], sizes: list[str]) -> str:
    """The place of an element among ``sizes``, row by row."""
    flat = names[0] if names else "0"
    for name, size in zip(names[1:], sizes[1:], strict=True):
        flat = f"({flat}) * {size} + {name}"
    return flat
