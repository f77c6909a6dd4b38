"""Operators on shapes and the movement of elements. What newer operator sets give as inputs becomes
attributes.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tactix.base.dims import (
    Assumption,
    Dim,
    Shape,
    broadcast_shapes,
    compare,
    floordiv,
    prod,
    symbol_name,
)
from tactix.base.dtypes import DType
from tactix.base.errors import ModelImportError
from tactix.contracts.graph import Value
from tactix_onnx.convert import Context, Table
from tactix_onnx.dims_of import even_parts, resolved, slice_bounds
from tactix_ops.layers.common import axes_of, axis_of

CONVERTERS = Table()


# -- another shape, same elements ----------------------------------------------------------------


@CONVERTERS("Reshape")
def reshape(ctx: Context, node: Any) -> Value:
    x, target = ctx.tensor(), ctx.attr("shape") if ctx.has_attr("shape") else ctx.known(1)
    allow_zero = bool(ctx.attr("allowzero", 0))
    if target is None:
        fields = {"symbol": ctx.symbol(), "allowzero": allow_zero}
        return ctx.layer("tactix.DynamicReshape", [x, ctx.tensor(1)], **fields)
    return ctx.reshape(x, resolved(x.spec.shape, target, allow_zero))


@CONVERTERS("Flatten")
def flatten(ctx: Context, node: Any) -> Value:
    x = ctx.tensor()
    axis, rank = ctx.attr("axis", 1), x.spec.rank
    if not -rank <= axis <= rank:
        raise ModelImportError(f"axis {axis} of a tensor of rank {rank}")
    axis = axis + rank if axis < 0 else axis
    return ctx.reshape(x, (prod(x.spec.shape[:axis]), prod(x.spec.shape[axis:])))


@CONVERTERS("Squeeze")
def squeeze(ctx: Context, node: Any) -> Value:
    x = ctx.tensor()
    if not ctx.has_attr("axes") and ctx.late(1):
        return ctx.layer("tactix.DynamicSqueeze", [x, ctx.tensor(1)], symbol=ctx.symbol())
    shape, axes = x.spec.shape, ctx.axes(1)
    if axes is None:
        # an axis of at most one element, as slices of one have, can only be meant to go
        gone = {i for i, d in enumerate(shape) if compare(d, 1) in ("==", "<=")}
    else:
        gone = set(axes_of(axes, len(shape), ctx.op))
        for a in sorted(gone):
            if compare(shape[a], 1) in ("<", ">"):
                raise ModelImportError(f"axis {a} has size {shape[a]}, not 1")
    _demand_ones(ctx, shape, gone, stay=axes is None)
    return ctx.reshape(x, tuple(d for i, d in enumerate(shape) if i not in gone))


def _demand_ones(ctx: Context, shape: Shape, gone: Collection[int], stay: bool) -> None:
    """Axes that go have size 1, and where none are named (``stay``) no other has: each run is held
    to that.
    """
    for i, d in enumerate(shape):
        if isinstance(d, int) or (i not in gone and not stay):
            continue
        ctx.network.demand(Assumption(d, "==" if i in gone else "!=", 1), ctx.name)


@CONVERTERS("Unsqueeze")
def unsqueeze(ctx: Context, node: Any) -> Value:
    x = ctx.tensor()
    if not ctx.has_attr("axes") and ctx.late(1):
        return ctx.layer("tactix.DynamicUnsqueeze", [x, ctx.tensor(1)], symbol=ctx.symbol())
    axes = ctx.axes(1) or ()
    rank = x.spec.rank + len(axes)
    new = axes_of(axes, rank, ctx.op)
    rest = iter(x.spec.shape)
    return ctx.reshape(x, tuple(1 if i in new else next(rest) for i in range(rank)))


@CONVERTERS("Transpose")
def transpose(ctx: Context, node: Any) -> Value:
    x = ctx.tensor()
    perm = ctx.attr("perm", tuple(reversed(range(x.spec.rank))))
    return x if perm == tuple(range(x.spec.rank)) else ctx.layer("tactix.Transpose", [x], perm=perm)


@CONVERTERS("DepthToSpace")
def depth_to_space(ctx: Context, node: Any) -> Value:
    """(N, C b b, H, W) to (N, C, H b, W b): the block's axes split off and moved inside."""
    x, b = ctx.tensor(), ctx.attr("blocksize")
    n, c, *spatial = x.spec.shape
    k = len(spatial)
    depth = floordiv(c, b**k)
    inside = [axis for i in range(k) for axis in (k + 2 + i, 2 + i)]
    if ctx.attr("mode", "DCR") == "CRD":
        y, perm = ctx.reshape(x, (n, depth, *(b,) * k, *spatial)), (0, 1, *inside)
    else:
        y = ctx.reshape(x, (n, *(b,) * k, depth, *spatial))
        perm = (0, k + 1, *(axis - 1 if axis < k + 2 else axis for axis in inside))
    y = ctx.layer("tactix.Transpose", [y], perm=perm)
    return ctx.reshape(y, (n, depth, *(d * b for d in spatial)))


@CONVERTERS("SpaceToDepth")
def space_to_depth(ctx: Context, node: Any) -> Value:
    """(N, C, H b, W b) to (N, b b C, H, W); in mode CRD the block's axes follow the channels."""
    x, b = ctx.tensor(), ctx.attr("blocksize")
    n, c, *spatial = x.spec.shape
    k = len(spatial)
    small = [floordiv(d, b) for d in spatial]
    y = ctx.reshape(x, (n, c, *(size for d in small for size in (d, b))))
    blocks, places = [3 + 2 * i for i in range(k)], [2 + 2 * i for i in range(k)]
    channels = (1, *blocks) if ctx.attr("mode", "DCR") == "CRD" else (*blocks, 1)
    y = ctx.layer("tactix.Transpose", [y], perm=(0, *channels, *places))
    return ctx.reshape(y, (n, c * b**k, *small))


# -- joining, cutting, repeating -----------------------------------------------------------------


@CONVERTERS("Concat")
def concat(ctx: Context, node: Any) -> Value:
    values = [ctx.tensor(i) for i in range(max(1, len(ctx.inputs)))]
    axis = axis_of(ctx.attr("axis", 1), max(1, values[0].spec.rank), ctx.op)
    filled = [v for v in values if v.spec.shape[axis] != 0] or values[:1]
    return filled[0] if len(filled) == 1 else ctx.layer("tactix.Concat", filled, axis=axis)


@CONVERTERS("Split")
def split(ctx: Context, node: Any) -> Any:
    x = ctx.tensor()
    axis = axis_of(ctx.attr("axis", 0), x.spec.rank, ctx.op)
    given = ctx.attr("split") if ctx.has_attr("split") else None
    if ctx.late(1):
        fields = {"symbol": ctx.symbol(), "axis": axis, "parts": len(node.output)}
        return ctx.layers("tactix.DynamicSplit", [x, ctx.tensor(1)], **fields)
    if ctx.input(1) is not None:
        given = ctx.need_known(1, "sizes")
    if ctx.attr("num_outputs", len(node.output)) != len(node.output):
        raise ModelImportError(
            f"num_outputs is {ctx.attr('num_outputs')}, but it has {len(node.output)} outputs"
        )
    sizes = given or even_parts(x.spec.shape[axis], len(node.output))
    if len(sizes) != len(node.output):
        why, do = f"it has {len(node.output)} outputs", "Give a size for each output"
        raise ModelImportError(f"its sizes are {len(sizes)}", why=why, do=do)
    if sum(size != 0 for size in sizes) == 1:
        return [x if size != 0 else _empty(ctx, x, axis) for size in sizes]
    return ctx.layers("tactix.Split", [x], axis=axis, sizes=tuple(sizes))


def _empty(ctx: Context, x: Value, axis: int) -> Value:
    shape = (*x.spec.shape[:axis], 0, *x.spec.shape[axis + 1 :])
    return ctx.layer("tactix.Fill", [], shape=shape, value=0, dtype=x.spec.dtype)


@CONVERTERS("Slice")
def slice_attributes(ctx: Context, node: Any) -> Value:
    starts, ends = ctx.attr("starts"), ctx.attr("ends")
    axes = ctx.attr("axes", tuple(range(len(starts))))
    return _sliced(ctx, starts, ends, axes, (1,) * len(starts))


@CONVERTERS("Slice", since=10)
def slice_inputs(ctx: Context, node: Any) -> Value:
    if any(map(ctx.late, range(1, 5))):
        inputs = [ctx.tensor(), ctx.tensor(1), ctx.tensor(2), ctx.input(3), ctx.input(4)]
        return ctx.layer("tactix.DynamicSlice", inputs, symbol=ctx.symbol())
    starts, ends = ctx.need_known(1, "starts"), ctx.need_known(2, "ends")
    axes = ctx.need_ints(3, "axes") if ctx.input(3) is not None else tuple(range(len(starts)))
    steps = ctx.need_ints(4, "steps") if ctx.input(4) is not None else (1,) * len(starts)
    return _sliced(ctx, starts, ends, axes, steps)


def _sliced(
    ctx: Context, starts: Any, ends: Any, axes: tuple[int, ...], steps: tuple[int, ...]
) -> Value:
    x = ctx.tensor()
    begins, sizes, cut, strides = [], [], [], []
    axes = axes_of(axes, x.spec.rank, ctx.op)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        counts = f"{len(starts)} starts, {len(ends)} ends, {len(axes)} axes, {len(steps)} steps"
        raise ModelImportError(counts, do="Give as many of each")
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step == 0:
            raise ModelImportError("a step is 0", do="Give steps that are less or more than 0")
        full = x.spec.shape[axis]
        begin, size = slice_bounds(full, start, end, step, fits=_limited(ctx, x, full, end))
        if (begin, size, step) != (0, full, 1):
            begins.append(begin)
            sizes.append(size)
            cut.append(axis)
            strides.append(step)
    if not cut:
        return x
    fields = {
        "begins": tuple(begins),
        "sizes": tuple(sizes),
        "axes": tuple(cut),
        "steps": tuple(strides),
    }
    return ctx.layer("tactix.Slice", [x], **fields)


def _limited(ctx: Context, x: Value, full: Dim, end: Dim) -> bool:
    """A symbol that says how much of a constant table is used cannot exceed the table: the network
    notes that.
    """
    symbol = symbol_name(end)
    if x.const is None or symbol is None or not isinstance(full, int):
        return False
    ctx.network.limit(symbol, full)
    return True


@CONVERTERS("Expand")
def expand(ctx: Context, node: Any) -> Value:
    if ctx.late(1):
        return ctx.layer("tactix.DynamicExpand", [ctx.tensor(), _whole(ctx)], symbol=ctx.symbol())
    x, target = ctx.tensor(), ctx.need_known(1, "dims")
    shape = broadcast_shapes(x.spec.shape, target)
    return x if shape == x.spec.shape else ctx.layer("tactix.Expand", [x], shape=shape)


def _whole(ctx: Context) -> Value:
    """The shape to expand to, with ones in front where it is of open length: as many dims as the
    result is declared to have.
    """
    shape, declared = ctx.tensor(1), ctx.declared(0)
    if shape.spec.rank != 1 or isinstance(shape.spec.shape[0], int) or declared is None:
        return shape
    rank, (length,) = max(len(declared), ctx.spec(0).rank), shape.spec.shape
    ctx.network.demand(Assumption(rank - length, ">=", 0), ctx.name)
    ones = ctx.layer("tactix.Fill", [], shape=(rank - length,), value=1, dtype=shape.spec.dtype)
    return ctx.layer("tactix.Concat", [ones, shape], axis=0)


@CONVERTERS("Tile", since=6)
def tile(ctx: Context, node: Any) -> Value:
    if ctx.late(1):
        return ctx.layer("tactix.DynamicTile", [ctx.tensor(), ctx.tensor(1)], symbol=ctx.symbol())
    x, repeats = ctx.tensor(), ctx.need_known(1, "repeats")
    return x if all(r == 1 for r in repeats) else ctx.layer("tactix.Tile", [x], repeats=repeats)


@CONVERTERS("Pad")
def pad_attributes(ctx: Context, node: Any) -> Value:
    """They were called ``paddings`` in the first operator set."""
    pads = ctx.attr("paddings" if ctx.has_attr("paddings") else "pads")
    return _padded(ctx, pads, ctx.attr("value", 0.0))


@CONVERTERS("Pad", since=11)
def pad(ctx: Context, node: Any) -> Value:
    late_value = ctx.input(2) is not None and ctx.const(2) is None
    if late_value or any(map(ctx.late, (1, 3))):
        inputs = [ctx.tensor(), ctx.tensor(1), ctx.input(2), ctx.input(3)]
        return ctx.layer(
            "tactix.DynamicPad", inputs, symbol=ctx.symbol(), mode=ctx.attr("mode", "constant")
        )
    pads, rank = ctx.need_known(1, "pads"), ctx.spec().rank
    if ctx.input(3) is not None:
        named = axes_of(ctx.need_ints(3, "axes"), rank, ctx.op)
        full: list[Dim] = [0 for _ in range(2 * rank)]
        for i, a in enumerate(named):
            full[a], full[rank + a] = pads[i], pads[len(named) + i]
        pads = tuple(full)
    value = 0.0
    if ctx.input(2) is not None:
        array = ctx.const(2)
        value = 0.0 if array is None else array.item()
    return _padded(ctx, pads, value)


def _padded(ctx: Context, pads: tuple[Dim, ...], value: float) -> Value:
    x, mode = ctx.tensor(), ctx.attr("mode", "constant")
    if all(p == 0 for p in pads):
        return x
    return ctx.layer("tactix.Pad", [x], pads=tuple(pads), mode=mode, value=float(value))


# -- shapes as tensors ---------------------------------------------------------------------------


@CONVERTERS("Shape")
def shape(ctx: Context, node: Any) -> Value:
    rank = ctx.spec().rank
    start, end, _ = slice(ctx.attr("start", 0), ctx.attr("end", rank)).indices(rank)
    return ctx.layer("tactix.Shape", [ctx.tensor()], start=start, end=max(start, end))


@CONVERTERS("Size")
def size(ctx: Context, node: Any) -> Value:
    fields = {"values": (ctx.spec().numel,), "shape": (), "dtype": DType.INT64}
    return ctx.layer("tactix.Dims", [], **fields)
