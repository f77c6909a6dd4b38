"""Largest elements with their places in CUDA, and elements and columns put back where windows took
them: MaxPoolIndices, MaxUnpool and Col2Im; linear format.

A thread makes one window, puts back one element, or adds up one element of an image. Of elements
with one place any may stay; a place beyond the result is taken for the nearest in it: kernels
cannot raise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tactix.base import dims
from tactix.base.dims import Dim
from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import text as c_text
from tactix_codegen.c.scalar import int_literal, int_range
from tactix_codegen.c.text import block
from tactix_codegen.c.unpool import target
from tactix_codegen.cuda import copies, text
from tactix_codegen.cuda.entry import KernelEntry, artifact
from tactix_codegen.cuda.text import BLOCK, CudaArgs
from tactix_codegen.operations.pool import PoolWindow, window_of
from tactix_codegen.operations.unpool import ColumnsWork, UnpoolWork, columns_of, unpool_of


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CudaPlacesTactic(), CudaUnpoolTactic(), CudaColumnsTactic()]


@dataclass(frozen=True)
class CudaPlacesWork:
    """Over which windows the largest elements are found."""

    node: Node
    window: PoolWindow


class CudaPlacesTactic(Tactic[CudaPlacesWork]):
    """All numbers of up to 64 bits, any number of axes."""

    key = "tactix.cuda_places@1"
    implements = ("tactix.MaxPoolIndices@1",)
    device = "cuda"
    source = "cuda_c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> CudaPlacesWork | Reject:
        x = node.given[0].spec
        if node.is_fused:
            return Reject("no layers around it are fused by this tactic")
        if not c_text.has_ctype(x.dtype) or x.dtype is DType.BOOL:
            return Reject(f"no windows of {x.dtype.value} in CUDA")
        return CudaPlacesWork(node, window_of(node))

    def cost(self, work: CudaPlacesWork, variant: Variant, ctx: CompileContext) -> float | None:
        # seconds: each tensor moved once; windows that overlap read again what a cache has
        return text.traffic(work.node, variant, ctx)

    def compile(
        self, work: CudaPlacesWork, variant: Variant, ctx: CompileContext
    ) -> KernelArtifact:
        args, results = CudaArgs(work.node), work.node.outputs[0].spec.numel
        body = [] if results == 0 else _largest(args, work)
        return text.kernel(args, body, ctx, text.blocks(results))


def _largest(args: CudaArgs, work: CudaPlacesWork) -> list[str]:
    """Axis ``i`` has the names ``o<i>`` (window), ``k<i>`` (tap) and ``h<i>`` (element)."""
    x, w = work.node.given[0].spec, work.window
    results = work.node.outputs[0].spec.numel
    axes = range(w.rank)
    kind, elements = text.index_type(x.numel, results), [f"h{i}" for i in axes]
    number, plane = text.number_type(x.dtype), args.dim(dims.prod(w.size))
    at = args.offset(c_text.contiguous_strides(w.size), elements)
    value = text.element(x.dtype, f"{args.input(0)}[image * {plane} + {at}]")
    place = args.offset(_strides_of_places(work), elements)
    inside = " && ".join(f"h{i} >= 0 && h{i} < {args.dim(w.size[i])}" for i in axes)
    taps = block(
        f"if ({inside})",
        f"const {number} v = {value};",
        f"if (where < 0 || v > best) best = v, where = {place};",
    )
    for i in reversed(axes):
        first = f"o{i} * {w.strides[i]} - {args.dim(w.before[i])}"
        element = f"const {kind} h{i} = {first} + k{i} * {w.dilations[i]};"
        taps = block(f"for (int k{i} = 0; k{i} < {w.kernel[i]}; k{i}++)", element, taps)
    lowest = "-TX_INF" if x.dtype.is_float else int_literal(int_range(x.dtype)[0], x.dtype)
    names, sizes = ["image", *(f"o{i}" for i in axes)], ["", *map(args.dim, w.out)]
    return [
        *text.flat(args, kind, results),
        text.decode(kind, "t", names, sizes),
        f"{number} best = {lowest};",
        f"{kind} where = -1;",
        taps,
        f"{args.output(0)}[t] = {text.stored(x.dtype, 'best')};",
        f"{args.output(1)}[t] = where < 0 ? -1 : (int64_t)image * {plane} + where;",
    ]


def _strides_of_places(work: CudaPlacesWork) -> list[Dim]:
    """How far places of neighbours along each spatial axis lie apart."""
    sizes, axes = work.window.size, range(work.window.rank)
    if work.node.attrs.storage_order:
        return [dims.prod(sizes[:i]) for i in axes]
    return [dims.prod(sizes[i + 1 :]) for i in axes]


class CudaUnpoolTactic(Tactic[UnpoolWork]):
    """Any movable dtype, any integer places: zeros, then each element at its place."""

    key = "tactix.cuda_unpool@1"
    implements = ("tactix.MaxUnpool@1",)
    device = "cuda"
    source = "cuda_c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> UnpoolWork | Reject:
        work, places = unpool_of(node), node.given[1].spec.dtype
        if isinstance(work, Reject):
            return work
        if not c_text.has_ctype(places):
            return Reject(f"no places of {places.value} in CUDA")
        if len(node.given) > 2 and node.given[2].spec.known() is None:
            return Reject("only running tells the shape of the result")
        if not _have_places(node):
            return Reject("windows and pads may leave elements without a place")
        return work

    def cost(self, work: UnpoolWork, variant: Variant, ctx: CompileContext) -> float | None:
        # seconds: two launches; a second start is the same for every variant, and left out
        return text.traffic(work.node, variant, ctx)

    def compile(self, work: UnpoolWork, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        zeros, put = KernelEntry(work.node, BLOCK), KernelEntry(work.node, BLOCK, "put")
        x, y = work.node.given[0].spec, work.node.outputs[0].spec
        element = copies.element_type(x.dtype.itemsize)
        clear = f"(({element}*){zeros.bytes_out(0)})[t] = 0;"
        texts = [
            zeros.kernel(*text.flat(zeros, "int64_t", y.numel), clear),
            put.kernel(*text.flat(put, "int64_t", x.numel), *_put(put, work, element)),
        ]
        launches = [zeros.launch(text.blocks(y.numel)), put.launch(text.blocks(x.numel))]
        return artifact(texts, launches, [zeros, put], ctx)


def _have_places(node: Node) -> bool:
    """Whether there are places wherever there are elements: each axis of one element has some."""
    kernel = node.attrs.kernel_shape
    n, pads = len(kernel), node.attrs.pads or (0,) * 2 * len(kernel)
    return all(kernel[i] > pads[i] + pads[n + i] for i in range(n))


def _put(e: KernelEntry, work: UnpoolWork, element: str) -> list[str]:
    """Element ``t`` to its place, unless the result ends before it."""
    small, shape = work.small, work.node.outputs[0].spec.shape
    place = f"tx_index((int64_t){e.input(1)}[t], {e.dim(dims.prod(small))})"
    return [
        f"const int64_t place = {place};",
        *target(e, small, shape, "return;"),
        f"(({element}*){e.bytes_out(0)})[at] = ((const {element}*){e.bytes_in(0)})[t];",
    ]


class CudaColumnsTactic(Tactic[ColumnsWork]):
    """All numbers; blocks must be known. Sums of 16-bit floats are kept in float32."""

    key = "tactix.cuda_columns@1"
    implements = ("tactix.Col2Im@1",)
    device = "cuda"
    source = "cuda_c"

    def match(self, node: Node, device: DeviceProperties) -> ColumnsWork | Reject:
        if node.given[1].spec.known() is None:
            return Reject("only running tells the size of the image")
        return columns_of(node)

    def cost(self, work: ColumnsWork, variant: Variant, ctx: CompileContext) -> float | None:
        return text.traffic(work.node, variant, ctx)

    def compile(self, work: ColumnsWork, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args, results = CudaArgs(work.node), work.node.outputs[0].spec.numel
        body = [] if results == 0 else _added(args, work)
        return text.kernel(args, body, ctx, text.blocks(results))


def _added(args: CudaArgs, work: ColumnsWork) -> list[str]:
    """Axis ``i`` has the names ``h<i>`` (element), ``k<i>`` (tap) and ``o<i>`` (window)."""
    x, y, axes = work.node.given[0].spec, work.node.outputs[0].spec, list(enumerate(work.axes))
    kind, number = text.index_type(x.numel, y.numel), text.number_type(x.dtype)
    block_size = [a.taps for a in work.axes]
    tap = args.offset(c_text.contiguous_strides(block_size), [f"k{i}" for i, _ in axes])
    strides = c_text.contiguous_strides([a.out for a in work.axes])
    window = args.offset(strides, [f"o{i}" for i, _ in axes])
    column = f"(image * {math.prod(block_size)} + {tap}) * {args.dim(x.shape[2])} + {window}"
    taps = f"sum += {text.element(x.dtype, f'{args.input(0)}[{column}]')};"
    for i, a in reversed(axes):
        first = f"h{i} + {args.dim(a.before)} - k{i} * {a.dilation}"
        taps = block(
            f"for (int k{i} = 0; k{i} < {a.taps}; k{i}++)",
            f"const {kind} s{i} = {first}, o{i} = s{i} / {a.stride};",
            f"if (s{i} < 0 || s{i} % {a.stride} != 0 || o{i} >= {args.dim(a.out)}) continue;",
            taps,
        )
    names, sizes = ["image", *(f"h{i}" for i, _ in axes)], ["", *map(args.dim, y.shape[2:])]
    return [
        *text.flat(args, kind, y.numel),
        text.decode(kind, "t", names, sizes),
        f"{number} sum = 0;",
        taps,
        f"{args.output(0)}[t] = {text.stored(y.dtype, 'sum')};",
    ]
