"""Tensors of numbers in C: dims as data, ranges, one value everywhere."""

from __future__ import annotations

from collections.abc import Sequence

from tactix.base.dims import Dim
from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import text as c_text
from tactix_codegen.c.text import Args, loop, split
from tactix_codegen.operations import generate

GRAIN = 64
"""Elements that a thread has a multiple of, so that threads do not write the same line of the
cache.
"""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CpuGenerateTactic()]


class CpuGenerateTactic(Tactic[Node]):
    """Dims and Shape: one store a number. Range and Fill: one pass."""

    key = "tactix.c_generate@1"
    implements = (*generate.KINDS, "tactix.Shape@1")
    source = "c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> Node | Reject:
        dtype = node.outputs[0].spec.dtype
        if node.is_fused:
            return Reject("no epilogues")
        if dtype not in generate.DTYPES:
            return Reject(f"no {dtype.value} in C")
        if node.kind == "tactix.Fill@1" and dtype.is_int and abs(node.attrs.value) > 2**53:
            return Reject("the value is not exact as a double")
        return node

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        return c_text.traffic(node, variant, ctx)

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args = Args(node)
        body = {"Shape": _shape, "Dims": _dims, "Range": _range, "Fill": _fill}[node.layer.name](
            args, node
        )
        return c_text.kernel(args, body, ctx)


def _dims(args: Args, node: Node) -> list[str]:
    return _stores(args, node.attrs.values)


def _shape(args: Args, node: Node) -> list[str]:
    return _stores(args, node.given[0].spec.shape[node.attrs.start : node.attrs.end])


def _stores(args: Args, values: Sequence[Dim]) -> list[str]:
    y = args.output()
    return ["if (tid) return;", *(f"{y}[{i}] = {args.dim(d)};" for i, d in enumerate(values))]


def _range(args: Args, node: Node) -> list[str]:
    start, step, y = args.input(0), args.input(2), args.output()
    n = args.dim(node.outputs[0].spec.numel)
    kind = c_text.ctype(node.outputs[0].spec.dtype)
    return [
        split(n, GRAIN),
        loop("i", "lo", "hi", f"{y}[i] = ({kind})({start}[0] + ({kind})i * {step}[0]);"),
    ]


def _fill(args: Args, node: Node) -> list[str]:
    spec, y = node.outputs[0].spec, args.output()
    value = _literal(node.attrs.value, spec.dtype)
    return [split(args.dim(spec.numel), GRAIN), loop("i", "lo", "hi", f"{y}[i] = {value};")]


def _literal(value: float, dtype: DType) -> str:
    """The number as a C expression of that dtype."""
    if dtype is DType.BOOL:
        return str(int(bool(value)))
    if not dtype.is_float:
        return f"({c_text.ctype(dtype)}){int(value)}LL"
    if value != value:
        return '__builtin_nanf("")'
    if value in (float("inf"), float("-inf")):
        return f"{'-' if value < 0 else ''}__builtin_inff()"
    return f"({c_text.ctype(dtype)}){value!r}"
