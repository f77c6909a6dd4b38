"""ScatterElements, ScatterND and TensorScatter in CUDA: a copy of the data, then the updates in any
order.

Updates that are joined to what is there (add, mul, min, max) need elements of 16 bits or more.
Indices may count from the end; those beyond an axis meet the nearest element: kernels cannot raise.
"""

from __future__ import annotations

from tactix.base import dims
from tactix.base.dims import Dim
from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import copy as c_copy
from tactix_codegen.c import text as c_text
from tactix_codegen.c.scalar import element, stored
from tactix_codegen.cuda import copies, text
from tactix_codegen.cuda.entry import KernelEntry, artifact
from tactix_codegen.cuda.text import BLOCK

WORDS = {2: "unsigned short", 4: "unsigned int", 8: "unsigned long long"}
"""By bytes of an element the type that ``atomicCAS`` takes: updates that join what is there compare
and swap until none came between (CUDA C++ Programming Guide, "Atomic Functions"), so sums of floats
depend on the order in which threads come.
"""
JOINED = {
    "add": "{a} + {b}",
    "mul": "{a} * {b}",
    "min": "{b} < {a} || {b} != {b} ? {b} : {a}",
    "max": "{b} > {a} || {b} != {b} ? {b} : {a}",
}


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [ScatterTactic()]


class ScatterTactic(Tactic[Node]):
    """Any movable dtype where updates replace, any integer indices; linear format."""

    key = "tactix.cuda_scatter@1"
    implements = ("tactix.ScatterElements@1", "tactix.ScatterND@1", "tactix.TensorScatter@1")
    device = "cuda"
    source = "cuda_c"

    def match(self, node: Node, device: DeviceProperties) -> Node | Reject:
        data, reduction = node.given[0].spec, getattr(node.attrs, "reduction", "none")
        if node.is_fused or not c_copy.movable(data.dtype) or data.rank == 0:
            return Reject(f"no updates of {data} in CUDA")
        if any(v.spec.dtype.is_int and not c_text.has_ctype(v.spec.dtype) for v in node.given[1:]):
            return Reject("indices of a dtype without a C type")
        if reduction != "none" and (
            data.dtype.itemsize not in WORDS or not c_text.has_ctype(data.dtype)
        ):
            return Reject(f"no atomic updates of {data.dtype.value}")
        return node

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        # seconds: two launches, one that copies the data and one that updates it; a second start is
        # the same for every variant, and left out
        return text.traffic(node, variant, ctx)

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        first, second = KernelEntry(node, BLOCK), KernelEntry(node, BLOCK, "update")
        size = node.given[0].spec.numel
        e = copies.element_type(node.given[0].spec.dtype.itemsize)
        move = f"(({e}*){first.bytes_out(0)})[t] = ((const {e}*){first.bytes_in(0)})[t];"
        copied = first.kernel(*text.flat(first, "int64_t", size), move)
        write = {"ScatterElements": _elements, "ScatterND": _slices}.get(node.layer.name, _rows)
        body, count = write(second, node)
        launches = [first.launch(text.blocks(size)), second.launch(text.blocks(count))]
        return artifact(
            [copied, second.kernel(*body)], launches, [first, second], ctx, more=("scatter.cuh",)
        )


def _index(e: KernelEntry, place: str, size: Dim) -> str:
    return f"tx_index((int64_t){e.input(1)}[{place}], {e.dim(size)})"


def _elements(e: KernelEntry, node: Node) -> tuple[list[str], Dim]:
    data, indices = (v.spec for v in node.given[:2])
    axis, names = node.attrs.axis % data.rank, [f"i{i}" for i in range(data.rank)]
    position = [f"({n})" for n in names]
    position[axis] = "at"
    place = e.offset(c_text.contiguous_strides(data.shape), position)
    body = [
        *text.flat(e, "int64_t", indices.numel),
        c_text.decode("t", names, [e.dim(d) for d in indices.shape]),
        f"const int64_t at = {_index(e, 't', data.shape[axis])}, to = {place};",
        _put(e, node, 2, "t", node.attrs.reduction),
    ]
    return body, indices.numel


def _slices(e: KernelEntry, node: Node) -> tuple[list[str], Dim]:
    data, indices, updates = (v.spec for v in node.given[:3])
    depth = int(indices.shape[-1])  # type: ignore[arg-type]
    inner = e.dim(dims.prod(data.shape[depth:]))
    position = "0"
    for d in range(depth):
        size = e.dim(data.shape[d])
        index = _index(e, f"t / {inner} * {depth} + {d}", data.shape[d])
        position = f"({position}) * {size} + {index}"
    body = [
        *text.flat(e, "int64_t", updates.numel),
        f"const int64_t to = ({position}) * {inner} + t % {inner};",
        _put(e, node, 2, "t", node.attrs.reduction),
    ]
    return body, updates.numel


def _rows(e: KernelEntry, node: Node) -> tuple[list[str], Dim]:
    """TensorScatter: each sample's update has a place of its own along the axis."""
    cache, update = (v.spec for v in node.given[:2])
    axis, names = node.attrs.axis % cache.rank, [f"i{i}" for i in range(cache.rank)]
    place = f"(int64_t){e.input(2)}[i0]" if len(node.given) > 2 else e.dim(node.attrs.begin)
    position = [f"({n})" for n in names]
    position[axis] = "at"
    size = e.dim(cache.shape[axis])
    wrapped = f"at %= {size};" if node.attrs.mode == "circular" else f"if (at >= {size}) return;"
    body = [
        *text.flat(e, "int64_t", update.numel),
        c_text.decode("t", names, [e.dim(d) for d in update.shape]),
        f"int64_t at = i{axis} + {place};",
        wrapped,
        f"const int64_t to = {e.offset(c_text.contiguous_strides(cache.shape), position)};",
        _put(e, node, 1, "t", "none"),
    ]
    return body, update.numel


def _put(e: KernelEntry, node: Node, source: int, place: str, reduction: str) -> str:
    """Statements that write update ``place`` to element ``to``."""
    dtype = node.given[0].spec.dtype
    if reduction == "none":
        t = copies.element_type(dtype.itemsize)
        return f"(({t}*){e.bytes_out(0)})[to] = ((const {t}*){e.bytes_in(source)})[{place}];"
    word, b = WORDS[dtype.itemsize], element(dtype, f"{e.input(source)}[{place}]")
    number = text.number_type(dtype)
    joined = JOINED[reduction].format(a="a", b="b")
    was, now = _bits(dtype)
    change = f"{{ const {number} a = {was}, b = {b}; const {number} y = {joined}; return {now}; }}"
    return f"tx_change(({word}*){e.output(0)} + to, [&]({word} bits) {change});"


def _bits(dtype: DType) -> tuple[str, str]:
    """Bits as a number, and the number ``y`` as bits."""
    if dtype is DType.FP32:
        return "__uint_as_float(bits)", "__float_as_uint(y)"
    if dtype is DType.FP64:
        return (
            "__longlong_as_double((long long)bits)",
            "(unsigned long long)__double_as_longlong(y)",
        )
    if dtype.is_float:
        return element(dtype, "bits"), stored(dtype, "y")
    return f"({text.number_type(dtype)})bits", "y"
