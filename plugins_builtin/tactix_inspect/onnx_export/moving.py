"""Layers that move elements, and those that make shapes and numbers, as ONNX operators."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tactix.base.dims import Dim, Expr
from tactix.base.dtypes import DType
from tactix_inspect.onnx_export.call import LayerCall, NoWayBack, reshaped, same, writes
from tactix_inspect.onnx_export.graph import FURTHEST, Graph, tensor

BEFORE_FIRST = np.iinfo(np.int64).min
"""An end of a Slice backwards that takes the first element, too."""

writes("Transpose")(same("Transpose", "perm"))
writes("Concat")(same("Concat", "axis"))
writes("Gather")(same("Gather", "axis"))
writes("Shape")(same("Shape", "start", "end"))
writes("Compress")(same("Compress", "axis"))
writes("NonZero")(same("NonZero"))
writes("Unique")(same("Unique", "axis", "sorted"))
writes("NonMaxSuppression")(same("NonMaxSuppression", "center_point_box"))
writes("Range")(same("Range"))
writes("DynamicReshape")(same("Reshape", "allowzero"))
writes("DynamicSqueeze")(same("Squeeze"))
writes("DynamicUnsqueeze")(same("Unsqueeze"))
writes("DynamicSlice")(same("Slice"))
writes("DynamicPad")(same("Pad", "mode"))
writes("DynamicExpand")(same("Expand"))
writes("DynamicTile")(same("Tile"))
writes("DynamicSplit")(same("Split", "axis"))
writes("DynamicOneHot")(same("OneHot", "axis"))
writes("Col2Im")(same("Col2Im", "strides", "pads", "dilations"))


@writes("Reshape")
def reshape(c: LayerCall) -> None:
    """By constants where at most one dim follows from the others."""
    reshaped(c.graph, c.inputs[0], c.spec().shape, c.made[0].shape, c.outputs[0])


@writes("Reformat")
def reformat(c: LayerCall) -> None:
    """How elements lie in memory is nothing that ONNX says."""
    c.emit("Identity", c.inputs[0])


@writes("Split")
def split(c: LayerCall) -> None:
    """By the sizes of the parts."""
    c.emit("Split", c.inputs[0], c.graph.vector(c.attrs.sizes), axis=c.attrs.axis)


def sliced(
    g: Graph,
    x: str,
    starts: list[Dim],
    ends: list[Dim],
    axes: list[int],
    steps: list[int],
    output: str = "",
) -> str:
    """A Slice."""
    name = output or g.fresh()
    bounds = [g.vector(starts), g.vector(ends), g.ints(axes)]
    given = [] if all(s == 1 for s in steps) else [g.ints(steps)]
    g.put("Slice", [x, *bounds, *given], [name])
    return name


@writes("Slice")
def slice_(c: LayerCall) -> None:
    """Ends follow from begins, sizes and steps."""
    a, shape = c.attrs, c.spec().shape
    ends = [
        _end(begin, size, step, shape[axis])
        for begin, size, axis, step in zip(a.begins, a.sizes, a.axes, a.steps, strict=True)
    ]
    if not a.axes:
        c.emit("Identity", c.inputs[0])
        return
    sliced(c.graph, c.inputs[0], [*a.begins], ends, [*a.axes], [*a.steps], c.outputs[0])


def _end(begin: Dim, size: Dim, step: int, whole: Dim) -> Dim:
    if size == 0:
        return begin
    end = begin + (size - 1) * step + (1 if step > 0 else -1)
    if step > 0:
        return FURTHEST if end == whole else end
    return BEFORE_FIRST if end == -1 else end


@writes("Roll")
def roll(c: LayerCall) -> None:
    """The elements from a place on, joined with those before it, axis by axis."""
    g, x = c.graph, c.inputs[0]
    for begin, axis in zip(c.attrs.begins, c.attrs.axes, strict=True):
        tail = sliced(g, x, [begin], [FURTHEST], [axis], [1])
        x = g.one("Concat", tail, sliced(g, x, [0], [begin], [axis], [1]), axis=axis)
    c.emit("Identity", x)


@writes("DepthToSpace")
def depth_to_space(c: LayerCall) -> None:
    """Blocks of both axes alike are ONNX's own; others are its parts, moved."""
    blocks, x, y = c.attrs.blocks, c.spec().shape, c.made[0].shape
    if len(blocks) == 2 and blocks[0] == blocks[1]:
        c.emit("DepthToSpace", c.inputs[0], blocksize=blocks[0], mode="DCR")
        return
    g, rank = c.graph, len(blocks)
    split = (x[0], *blocks, y[1], *x[2:])
    parts = g.one("Reshape", c.inputs[0], g.vector(split))
    inside = [axis for k in range(rank) for axis in (rank + 2 + k, 1 + k)]
    moved = g.one("Transpose", parts, perm=[0, rank + 1, *inside])
    c.emit("Reshape", moved, g.vector(y))


@writes("Expand")
def expand(c: LayerCall) -> None:
    """A dim that the input has may be 1 in the shape."""
    have, want = c.spec().shape, c.made[0].shape
    ahead = len(want) - len(have)
    short = [1 if i >= ahead and d == have[i - ahead] else d for i, d in enumerate(want)]
    c.emit("Expand", c.inputs[0], c.graph.vector(short))


@writes("Pad")
def pad(c: LayerCall) -> None:
    """With the value in the input's dtype."""
    a, dtype = c.attrs, c.spec().dtype
    given = [c.scalar(a.value, dtype)] if a.mode == "constant" and a.value else []
    c.emit("Pad", c.inputs[0], c.graph.vector(a.pads), *given, mode=a.mode)


@writes("Tile")
def tile(c: LayerCall) -> None:
    """As often as the attributes say."""
    c.emit("Tile", c.inputs[0], c.graph.vector(c.attrs.repeats))


@writes("Fill")
def fill(c: LayerCall) -> None:
    """One number everywhere."""
    shape = c.graph.vector(c.attrs.shape)
    value = np.array([c.attrs.value]).astype(c.attrs.dtype.numpy)
    c.emit("ConstantOfShape", shape, value=tensor(value))


@writes("DynamicFill")
def dynamic_fill(c: LayerCall) -> None:
    """One number everywhere, in a shape that is a tensor."""
    value = np.array([c.attrs.value]).astype(c.attrs.dtype.numpy)
    c.emit("ConstantOfShape", _int64(c, 0), value=tensor(value))


def _int64(c: LayerCall, index: int) -> str:
    """An input as ONNX wants its shapes."""
    if c.spec(index).dtype is DType.INT64:
        return c.inputs[index]
    return c.graph.cast(c.inputs[index], DType.INT64)


@writes("Dims")
def numbers(c: LayerCall) -> None:
    """Numbers that follow from shapes."""
    a = c.attrs
    if not any(isinstance(d, Expr) for d in a.values):
        c.emit("Constant", value=tensor(np.array(a.values, a.dtype.numpy).reshape(a.shape)))
        return
    x = c.graph.vector(a.values)
    x = x if len(a.shape) == 1 else c.graph.one("Reshape", x, c.graph.ints(a.shape))
    c.emit("Cast", x, to=a.dtype)


@writes("TopK")
def top_k(c: LayerCall) -> None:
    """With k as a vector of one."""
    a = c.attrs
    c.emit("TopK", c.inputs[0], c.graph.dim(a.k), axis=a.axis, largest=a.largest, sorted=a.sorted)


@writes("DynamicTopK")
def dynamic_top_k(c: LayerCall) -> None:
    """With k as a vector of one."""
    a = c.attrs
    k = c.graph.one("Reshape", _int64(c, 1), c.graph.ints([1]))
    c.emit("TopK", c.inputs[0], k, axis=a.axis, largest=a.largest, sorted=a.sorted)


@writes("GatherND")
def gather_nd(c: LayerCall) -> None:
    """ONNX has indices of int64 alone."""
    c.emit("GatherND", c.inputs[0], _int64(c, 1), batch_dims=c.attrs.batch_dims)


@writes("ScatterND")
def scatter_nd(c: LayerCall) -> None:
    """ONNX has indices of int64 alone."""
    c.emit("ScatterND", c.inputs[0], _int64(c, 1), c.inputs[2], reduction=c.attrs.reduction)


@writes("TensorScatter")
def tensor_scatter(c: LayerCall) -> None:
    """Places that all samples share become a vector of them."""
    a, g = c.attrs, c.graph
    places = c.input(2)
    if not places and a.begin != 0:
        places = g.one("Expand", g.dim(a.begin), g.dim(c.spec().shape[0]))
    g.shared.needs(24)
    c.emit("TensorScatter", *c.inputs[:2], places, axis=a.axis, mode=a.mode)


MODES = (
    "mode",
    "coordinate_transformation_mode",
    "nearest_mode",
    "cubic_coeff_a",
    "exclude_outside",
    "extrapolation_value",
    "antialias",
)
"""Attributes of both Resize layers that ONNX has by these names."""


SIMPLE = "simple"
"""How tactix calls the rounding of operator set 10."""


@writes("Resize")
def resize(c: LayerCall) -> None:
    """By scales where these are given, else by sizes."""
    a, g = c.attrs, c.graph
    modes = {k: getattr(a, k) for k in MODES}
    if a.nearest_mode == SIMPLE:
        modes["nearest_mode"] = _simple(a.scales)
    roi = g.constant(np.array(a.roi, np.float32)) if a.roi else ""
    scales = g.constant(np.array(a.scales, np.float32)) if a.scales else ""
    sizes = "" if scales else g.vector(a.sizes)
    c.emit("Resize", c.inputs[0], roi, scales, sizes, **modes)


def _simple(scales: Sequence[float]) -> str:
    """The rounding of operator set 10: up along axes that shrink, else down. Raises NoWayBack where
    some shrink and some grow.
    """
    shrinks = {s < 1 for s in scales if s != 1}
    if not scales or len(shrinks) > 1:
        raise NoWayBack("a rounding of operator set 10")
    return "ceil" if True in shrinks else "floor"


@writes("DynamicResize")
def dynamic_resize(c: LayerCall) -> None:
    """ONNX's own, with tensors for sizes or scales."""
    a = c.attrs
    if a.nearest_mode == SIMPLE:
        raise NoWayBack("a rounding of operator set 10")
    own = {"axes": a.axes or None, "keep_aspect_ratio_policy": a.keep_aspect_ratio_policy}
    c.emit("Resize", *c.inputs, **own, **{k: getattr(a, k) for k in MODES})
