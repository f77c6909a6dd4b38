"""Gather, GatherElements and GatherND in C: any movable dtype, any integer indices, linear format.

Negative indices count from the end. What an index beyond the axis asks for is left out and reported: the run fails.
"""

from __future__ import annotations

from collections.abc import Sequence

from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix.words import dims
from tactix.words.dims import Dim
from tactix_codegen.c import copy as c_copy
from tactix_codegen.c import text as c_text
from tactix_codegen.c.text import Args, loop


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [GatherTactic()]


class GatherTactic(Tactic):
    """Rows of bytes where whole slices are taken, single elements otherwise."""

    key = "tactix.c_gather@1"
    implements = ("tactix.Gather@1", "tactix.GatherElements@1", "tactix.GatherND@1")
    source = "c"
    by_signature = True

    def variants(self, node: Node, device: DeviceProperties) -> Sequence[Variant] | Reject:
        data, indices = (v.spec for v in node.given[:2])
        if node.is_fused:
            return Reject("elements are moved, not computed: no epilogue")
        if not c_copy.movable(data.dtype):
            return Reject(f"no elements of {data.dtype.value} in C")
        if not indices.dtype.is_int or not c_text.has_ctype(indices.dtype):
            return Reject(f"no indices of {indices.dtype.value} in C")
        return [Variant()]

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        out = node.outputs[0].spec.nbytes()
        return 1e-6 + dims.evaluate(out, ctx.opt) / 4e9 if dims.symbols(out) <= set(ctx.opt) else None

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args = c_text.Args(node)
        write = {"Gather": _gather, "GatherElements": _elements, "GatherND": _nd}[node.layer.name]
        return c_text.kernel(args, write(args, node, ctx), ctx, preludes=c_copy.preludes())


def _take(args: Args, source: str, row: str, inner: Dim, width: int) -> str:
    """Copy the slice at element ``source`` of the data to slice ``row`` of the output."""
    y, x, n = args.bytes_out(0), args.bytes_in(0), args.dim(inner)
    if inner == 1:
        t = f"uint{8 * width}_t"
        return f"(({t}*){y})[{row}] = ((const {t}*){x})[{source}];"
    return f"tx_copy({y} + {row} * {n} * {width}, {x} + ({source}) * {width}, {n} * {width});"


def _gather(args: Args, node: Node, ctx: CompileContext) -> list[str]:
    data, indices = (v.spec for v in node.given[:2])
    axis = node.attrs.axis % data.rank
    outer, inner = dims.prod(data.shape[:axis]), dims.prod(data.shape[axis + 1 :])
    size, count = args.dim(data.shape[axis]), args.dim(indices.numel)
    body = [
        f"const int64_t k = o % {count}, b = o / {count};",
        f"const int64_t j = tx_index((int64_t){args.input(1)}[k], {size}, {args.fault()});",
        "if (j < 0) continue;",
        _take(args, f"(b * {size} + j) * {args.dim(inner)}", "o", inner, data.dtype.itemsize),
    ]
    return [c_text.split(args.dim(outer * indices.numel)), loop("o", "lo", "hi", *body)]


def _nd(args: Args, node: Node, ctx: CompileContext) -> list[str]:
    data, indices = (v.spec for v in node.given[:2])
    batch, depth = node.attrs.batch_dims, int(indices.shape[-1])  # type: ignore[arg-type]
    strides = c_text.contiguous_strides(data.shape)
    inner = dims.prod(data.shape[batch + depth :])
    per_batch = args.dim(dims.prod(indices.shape[batch:-1]))
    terms = [f"o / {per_batch} * {args.dim(dims.prod(data.shape[batch:]))}"] if batch else []
    places = []
    for d in range(depth):
        place, size = f"(int64_t){args.input(1)}[o * {depth} + {d}]", args.dim(data.shape[batch + d])
        places.append(f"const int64_t j{d} = tx_index({place}, {size}, {args.fault()});")
        terms.append(f"j{d} * {args.dim(strides[batch + d])}")
    body = [
        *places,
        f"if (({' | '.join(f'j{d}' for d in range(depth))}) < 0) continue;",
        f"const int64_t from = {' + '.join(terms)};",
        _take(args, "from", "o", inner, data.dtype.itemsize),
    ]
    return [c_text.split(args.dim(dims.prod(indices.shape[:-1]))), loop("o", "lo", "hi", *body)]


def _elements(args: Args, node: Node, ctx: CompileContext) -> list[str]:
    data, indices = (v.spec for v in node.given[:2])
    axis, rank = node.attrs.axis % data.rank, data.rank
    strides = c_text.contiguous_strides(data.shape)
    names = [f"i{i}" for i in range(rank)]
    size, last = args.dim(data.shape[axis]), args.dim(indices.shape[-1])
    elsewhere = [i for i in range(rank - 1) if i != axis]
    base = args.offset([strides[i] for i in elsewhere], [names[i] for i in elsewhere])
    j = f"tx_index((int64_t){args.input(1)}[o * {last} + i], {size}, {args.fault()})"
    source = f"base + j * {args.dim(strides[axis])}" + (" + i" if axis != rank - 1 else "")
    take = _take(args, source, f"o * {last} + i", 1, data.dtype.itemsize)
    body = [
        c_text.decode("o", names[:-1], [args.dim(d) for d in indices.shape[:-1]]),
        f"const int64_t base = {base};",
        loop("i", "0", last, f"const int64_t j = {j};", "if (j < 0) continue;", take),
    ]
    return [c_text.split(args.dim(dims.prod(indices.shape[:-1]))), loop("o", "lo", "hi", *body)]
