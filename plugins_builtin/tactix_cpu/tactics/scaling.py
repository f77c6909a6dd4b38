"""QuantizeLinear, DequantizeLinear and Cast between dtypes of any width in C, element by element.

Scales are for a tensor, for each index of an axis, or for blocks along it; loops run where the
scale stays or goes on by one, so that compilers use vectors.
"""

from __future__ import annotations

from dataclasses import dataclass

from tactix.base import dims
from tactix.base.dims import Dim
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import narrow
from tactix_codegen.c import text as c_text
from tactix_codegen.c.scalar import float_literal
from tactix_codegen.c.text import Args, comment, loop
from tactix_ops.layers.quantize import limits

FLOATS = (DType.FP32, DType.FP16, DType.BF16)
WHOLE = (*narrow.SMALL_INTS, DType.INT8, DType.UINT8, DType.INT16, DType.UINT16)
SECONDS_AN_ELEMENT = 1e-9
"""Of a conversion, which compilers may leave to single elements: more than where vectors are
written (quantize.py). No measurement of it is on record.
"""
DIRECTIONS = {"up": 1, "down": -1, "nearest": 0}


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [ScalingTactic(), SmallCastTactic()]


def _seconds(node: Node, ctx: CompileContext) -> float | None:
    return c_text.seconds(ctx, (node.outputs[0].spec.numel, SECONDS_AN_ELEMENT))


# -- scales ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Runs:
    """``count`` runs of ``size`` elements; ``scale``: C text of the place of a run's first scale,
    which goes on by ``step`` with each element. ``cut``: elements of an axis, where blocks of it
    are runs, of which the last may be shorter.
    """

    count: Dim
    size: Dim
    scale: str
    step: int
    cut: Dim | None = None


class ScalingTactic(Tactic[Node]):
    """Numbers of 16 to 64 bits on one side, integers and small floats on the other; linear."""

    key = "tactix.c_scaling@1"
    implements = ("tactix.QuantizeLinear@1", "tactix.DequantizeLinear@1")
    source = "c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> Node | Reject:
        x, scale, y = node.given[0].spec, node.given[1].spec, node.outputs[0].spec
        numbers, codes = (x, y) if node.layer.name == "QuantizeLinear" else (y, x)
        if node.is_fused:
            return Reject("it takes no epilogue")
        single = {numbers.dtype, scale.dtype} <= set(FLOATS)
        if not single and (numbers.dtype, scale.dtype) != (DType.FP64, DType.FP64):
            return Reject(f"no scaling of {numbers.dtype.value} by {scale.dtype.value} in C")
        if codes.dtype in narrow.SMALL_FLOATS:
            return node if single else Reject("small floats are not made of float64")
        wide = (DType.INT32,) if node.layer.name == "DequantizeLinear" else ()
        known = (*WHOLE, *wide)
        return node if codes.dtype in known else Reject(f"no {codes.dtype.value} in C")

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        return _seconds(node, ctx)

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args = Args(node)
        return c_text.kernel(args, _scaled(args, node), ctx, preludes=narrow.preludes())


def _real(node: Node) -> DType:
    """The dtype that is computed in."""
    return DType.FP64 if node.given[1].spec.dtype is DType.FP64 else DType.FP32


def _scaled(args: Args, node: Node) -> list[str]:
    x, y = narrow.pointer_in(args, 0), narrow.pointer_out(args)
    value = _quantized if node.layer.name == "QuantizeLinear" else _dequantized
    if _is_one(node.given[1].spec):
        total = args.size("ELEMENTS", node.given[0].spec.numel)
        walk = loop("i", "lo", "hi", *value(args, node, "0", f"{x}[i]", f"{y}[i]"))
        return [c_text.split(total, 64), walk]
    runs = _runs(args, node)
    count, size = args.size("RUNS", runs.count), args.size("SIZE", runs.size)
    begin, n = f"run * {size}", size
    head = []
    if runs.cut is not None:
        blocks, whole = args.dim(dims.ceildiv(runs.cut, runs.size)), args.dim(runs.cut)
        begin = f"run / {blocks} * {whole} + run % {blocks} * {size}"
        left = f"{whole} - run % {blocks} * {size}"
        head = [f"const int64_t left = {left}, n = left < {size} ? left : {size};"]
        n = "n"
    place = "s" if runs.step == 0 else "s + i"
    body = value(args, node, place, f"{x}[begin + i]", f"{y}[begin + i]")
    return [
        comment("Runs [lo, hi) are this thread's."),
        c_text.split(count),
        loop(
            "run",
            "lo",
            "hi",
            f"const int64_t begin = {begin}, s = {runs.scale};",
            *head,
            loop("i", "0", n, *body),
        ),
    ]


def _is_one(spec: TensorSpec) -> bool:
    return spec.rank == 0 or all(d == 1 for d in spec.shape)


def _runs(args: Args, node: Node) -> Runs:
    shape, a = node.given[0].spec.shape, node.attrs
    axis = a.axis % len(shape)
    outer, size, inner = dims.prod(shape[:axis]), shape[axis], dims.prod(shape[axis + 1 :])
    groups = dims.ceildiv(size, a.block_size) if a.block_size else size
    if inner == 1 and not a.block_size:
        return Runs(outer, size, "0", 1)
    if inner == 1:
        return Runs(outer * groups, a.block_size, "run", 0, size)
    if not a.block_size:
        return Runs(outer * size, inner, f"run % {args.dim(size)}", 0)
    group = f"run / {args.dim(size)} * {args.dim(groups)} + run % {args.dim(size)} / {a.block_size}"
    return Runs(outer * size, inner, f"({group}) * {args.dim(inner)}", 1)


def _scale(args: Args, node: Node, place: str) -> str:
    dtype = node.given[1].spec.dtype
    return narrow.number(args, dtype, f"{args.input(1)}[{place}]")


def _zero(args: Args, node: Node, place: str) -> str:
    """The zero point, if there is one."""
    if len(node.given) < 3:
        return ""
    spec = node.given[2].spec
    at = "0" if _is_one(spec) else place
    return narrow.number(args, spec.dtype, f"{narrow.pointer_in(args, 2)}[{at}]")


def _quantized(args: Args, node: Node, place: str, x: str, y: str) -> list[str]:
    """Text that quantises element ``x`` to ``y``."""
    real, to = c_text.ctype(_real(node)), node.attrs.dtype
    given = narrow.number(args, node.given[0].spec.dtype, x)
    quotient = f"const {real} q = {given} / {_scale(args, node, place)};"
    zero = _zero(args, node, place)
    offset = f" + (float){zero}" if zero else ""
    if to.is_float:
        return [quotient, f"{y} = {narrow.stored(to, f'q{offset}', node.attrs.saturate)};"]
    low, high = limits(to)
    rint, within = ("rint", "tx_within_f64") if real == "double" else ("rintf", "tx_within")
    bounds = f"{float_literal(low, real == 'double')}, {float_literal(high, real == 'double')}"
    inside = f"{within}({rint}(q){offset}, {bounds})"
    return [quotient, f"{y} = {narrow.stored(to, f'(int32_t){inside}')};"]


def _dequantized(args: Args, node: Node, place: str, x: str, y: str) -> list[str]:
    """Text that makes number ``y`` of element ``x``."""
    dtype = node.given[0].spec.dtype
    whole = "float" if dtype.is_float else "int32_t"
    zero = _zero(args, node, place)
    less = f" - ({whole}){zero}" if zero else ""
    code = f"const {whole} code = ({whole}){narrow.number(args, dtype, x)}{less};"
    value = f"(float)code * {_scale(args, node, place)}"
    return [code, f"{y} = {narrow.stored(node.outputs[0].spec.dtype, value)};"]


# -- casts -----------------------------------------------------------------------------------------


class SmallCastTactic(Tactic[Node]):
    """Casts to and from dtypes of 8 bits and less that have no C type."""

    key = "tactix.c_small_cast@1"
    implements = ("pointwise", "tactix.CastToExponent@1")
    source = "c"
    spreads = True  # what no number becomes differs between formats
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> Node | Reject:
        if node.is_fused or node.layer.name not in ("Cast", "CastToExponent"):
            return Reject("this kernel casts, and does nothing else")
        source, to = node.given[0].spec.dtype, node.outputs[0].spec.dtype
        common = (*FLOATS, *WHOLE, *narrow.SMALL_FLOATS, DType.INT32, DType.BOOL)
        if source not in (*common, narrow.POWERS):
            return Reject(f"no cast of {source.value} in this kernel")
        if node.layer.name == "CastToExponent":
            return node if source in FLOATS else Reject(f"no exponents of {source.value} in C")
        if to not in common:
            return Reject(f"no cast to {to.value} in this kernel")
        if not narrow.is_small(source) and not narrow.is_small(to):
            return Reject("other kernels cast between these")
        return node

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        return _seconds(node, ctx)

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args = Args(node)
        x, y = narrow.pointer_in(args, 0), narrow.pointer_out(args)
        number = narrow.number(args, node.given[0].spec.dtype, f"{x}[i]")
        made = _exponent(node, number) if "Exponent" in node.layer.name else _cast(node, number)
        total = args.size("ELEMENTS", node.given[0].spec.numel)
        body = [c_text.split(total, 64), loop("i", "lo", "hi", f"{y}[i] = {made};")]
        return c_text.kernel(args, body, ctx, preludes=narrow.preludes())


def _cast(node: Node, number: str) -> str:
    to = node.attrs.to
    if to is DType.BOOL:
        return f"{number} != 0"
    if to.is_float:
        return narrow.stored(to, f"(float){number}", node.attrs.saturate)
    return narrow.stored(to, f"(int32_t){number}")


def _exponent(node: Node, number: str) -> str:
    last = 0xFE if node.attrs.saturate else 0xFF
    return f"tx_exponent({number}, {DIRECTIONS[node.attrs.rounding]}, {last})"
