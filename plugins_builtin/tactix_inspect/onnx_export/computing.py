"""Layers that compute: products, pools, norms, reductions, recurrences, numbers of few bits."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from tactix.base.dims import Dim, Expr, Shape
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix_inspect.onnx_export.call import LayerCall, NoWayBack, Writer, same, writes
from tactix_inspect.onnx_export.graph import CONTRIBUTED, FURTHEST
from tactix_inspect.onnx_export.moving import sliced

POOL = ("kernel_shape", "strides", "pads", "dilations", "ceil_mode")
"""Attributes of pools that ONNX has by these names."""

writes("Min")(same("Min"))
writes("Max")(same("Max"))
writes("AveragePool")(same("AveragePool", *POOL, "count_include_pad"))
writes("LpPool")(same("LpPool", *POOL, "p"))
writes("MaxPoolIndices")(same("MaxPool", *POOL, "storage_order"))
writes("MaxUnpool")(same("MaxUnpool", "kernel_shape", "strides", "pads"))
writes("BatchNormalization")(same("BatchNormalization", "epsilon"))
writes("GroupNormalization")(same("GroupNormalization", "epsilon", "num_groups"))
writes("Softmax")(same("Softmax", "axis"))
writes("LogSoftmax")(same("LogSoftmax", "axis"))
writes("Hardmax")(same("Hardmax", "axis"))
writes("Inverse")(lambda c: c.emit("Inverse", c.inputs[0], domain=CONTRIBUTED))
writes("DynamicDFT")(same("DFT", "inverse", "onesided"))
writes("DynamicSTFT")(same("STFT", "onesided"))
writes("MelWeightMatrix")(same("MelWeightMatrix", dtype="output_datatype"))
writes("DeformableConvolution")(
    same("DeformConv", "strides", "pads", "dilations", "group", "offset_group")
)
writes("RoiAlign")(
    same(
        "RoiAlign",
        "output_height",
        "output_width",
        "sampling_ratio",
        "spatial_scale",
        "mode",
        "coordinate_transformation_mode",
    )
)
writes("AffineGrid")(same("AffineGrid", "align_corners"))


SAMPLING = {"bilinear": "linear", "bicubic": "cubic"}
"""Modes of GridSample before operator set 20, which tactix knows, too."""


@writes("GridSample")
def grid_sample(c: LayerCall) -> None:
    """By ONNX's later names of modes."""
    a = c.attrs
    c.emit(
        "GridSample",
        *c.inputs,
        mode=SAMPLING.get(a.mode, a.mode),
        padding_mode=a.padding_mode,
        align_corners=a.align_corners,
    )


@writes("Cast")
def cast(c: LayerCall) -> None:
    """Saturation counts for 8-bit floats alone."""
    a = c.attrs
    eight = a.to.is_float and a.to.bits == 8
    c.emit("Cast", c.inputs[0], to=a.to, saturate=a.saturate if eight else None)


@writes("Clip")
def clip(c: LayerCall) -> None:
    """Bounds are tensors; one that is infinite is none."""
    dtype = c.spec().dtype
    low, high = ("" if math.isinf(v) else c.scalar(v, dtype) for v in (c.attrs.min, c.attrs.max))
    c.emit("Clip", c.inputs[0], low, high)


@writes("BitShift")
def shift(c: LayerCall) -> None:
    """ONNX shifts unsigned integers alone."""
    if c.spec().dtype.is_signed_int:
        raise NoWayBack("a shift of signed integers")
    c.emit("BitShift", *c.inputs, direction=c.attrs.direction)


# -- products ------------------------------------------------------------------------------------


def _padded(c: LayerCall, value: float) -> tuple[str, list[int] | None]:
    """The input and the pads of a window: pads that hang on shapes are added before."""
    pads: Shape = c.attrs.pads
    if not any(isinstance(d, Expr) for d in pads):
        return c.inputs[0], c.fixed(pads) or None
    n = len(pads) // 2
    around = c.graph.vector([0, 0, *pads[:n], 0, 0, *pads[n:]])
    return c.graph.one("Pad", c.inputs[0], around, c.scalar(value, c.spec().dtype)), None


@writes("Convolution")
def convolution(c: LayerCall) -> None:
    """Empty attributes are ONNX's defaults. Raises NoWayBack for integers, of which ONNX has bytes
    alone.
    """
    if not c.spec().dtype.is_float:
        raise NoWayBack("a convolution of integers")
    a = c.attrs
    x, pads = _padded(c, 0.0)
    strides, dilations = a.strides or None, a.dilations or None
    c.emit("Conv", x, *c.inputs[1:], strides=strides, dilations=dilations, pads=pads, group=a.group)


@writes("ConvTranspose")
def transposed(c: LayerCall) -> None:
    """Empty attributes are ONNX's defaults."""
    a = c.attrs
    c.emit(
        "ConvTranspose",
        *c.inputs,
        strides=a.strides or None,
        dilations=a.dilations or None,
        pads=c.fixed(a.pads) or None,
        output_padding=a.output_padding or None,
        group=a.group,
    )


def _product(c: LayerCall) -> None:
    """A matrix product, and what is added."""
    if not c.input(2):
        c.emit("MatMul", *c.inputs[:2])
        return
    c.emit("Add", c.graph.one("MatMul", *c.inputs[:2]), c.inputs[2])


def _mean(c: LayerCall) -> None:
    c.emit("GlobalAveragePool", c.inputs[0])


def _summed_wide(write: Writer) -> Writer:
    """Of 16-bit floats in float32, which is the result, too."""

    def widened(c: LayerCall) -> None:
        names, specs = list(c.inputs), list(c.specs)
        for i, s in enumerate(c.specs):
            if s is not None and s.dtype is not DType.FP32:
                names[i], specs[i] = c.graph.cast(c.inputs[i], DType.FP32), _like(s, DType.FP32)
        write(replace(c, inputs=tuple(names), specs=tuple(specs)))

    return widened


def _like(spec: TensorSpec, dtype: DType) -> TensorSpec:
    return TensorSpec(dtype, spec.shape)


writes("WideConvolution")(_summed_wide(convolution))
writes("WideConvTranspose")(_summed_wide(transposed))
writes("WideMatMul")(_summed_wide(_product))
writes("Float8MatMul")(_summed_wide(_product))
writes("WideGlobalAveragePool")(_summed_wide(_mean))


@writes("IntegerMatMul")
def integer_product(c: LayerCall) -> None:
    """Bytes summed in int32."""
    if not c.input(2):
        c.emit("MatMulInteger", *c.inputs[:2])
        return
    c.emit("Add", c.graph.one("MatMulInteger", *c.inputs[:2]), c.inputs[2])


@writes("ByteMatMul")
def byte_product(c: LayerCall) -> None:
    """Zero points have the dtypes of what they belong to."""
    zeros = [_zero_point(c, i) for i in (0, 1)]
    c.emit("MatMulInteger", *c.inputs[:2], *zeros)


def _zero_point(c: LayerCall, index: int) -> str:
    given = c.input(2 + index)
    if not given:
        return ""
    flat = c.graph.one("Reshape", given, c.graph.constant(np.zeros(0, np.int64)))
    return c.graph.cast(flat, c.spec(index).dtype)


@writes("IntegerConvolution")
def integer_convolution(c: LayerCall) -> None:
    """ConvInteger takes unsigned bytes, subtracts their zero point and pads with it. Signed bytes
    are moved by 128; other pads than 0 are added before.
    """
    a, g, x = c.attrs, c.graph, c.inputs[0]
    signed = c.spec().dtype is DType.INT8
    pads = c.fixed(a.pads)
    if any(pads) and a.pad_value:
        n = len(pads) // 2
        around = g.ints([0, 0, *pads[:n], 0, 0, *pads[n:]])
        x, pads = g.one("Pad", x, around, c.scalar(a.pad_value, c.spec().dtype)), []
    zero = ""
    if signed:
        wide = g.one("Add", g.cast(x, DType.INT32), c.scalar(128, DType.INT32))
        x, zero = g.cast(wide, DType.UINT8), c.scalar(128, DType.UINT8)
    attrs: dict[str, Any] = {
        "strides": a.strides or None,
        "dilations": a.dilations or None,
        "pads": pads or None,
        "group": a.group,
    }
    if not c.input(2):
        c.emit("ConvInteger", x, c.inputs[1], zero, **attrs)
        return
    y = g.one("ConvInteger", x, c.inputs[1], zero, **attrs)
    c.emit("Add", y, g.one("Reshape", c.inputs[2], g.ints([-1, *(1,) * (c.spec().rank - 2)])))


@writes("FewBitsMatMul")
def few_bits(c: LayerCall) -> None:
    """Numbers are taken out of their bytes, the lowest bits first, and scaled."""
    a, g = c.attrs, c.graph
    rows, blocks, _ = c.fixed(c.spec(1).shape)
    k = c.fixed(c.spec().shape[-1:])[0]
    numbers = g.one("Reshape", _fields(c, c.inputs[1]), g.ints([rows, blocks, a.block_size]))
    middle = c.scalar(float(1 << a.bits - 1), DType.FP32)
    if c.input(3):
        middle = g.one("Unsqueeze", g.cast(c.inputs[3], DType.FP32), g.ints([2]))
    scale = g.one("Unsqueeze", g.cast(c.inputs[2], DType.FP32), g.ints([2]))
    weights = g.one("Mul", g.one("Sub", g.cast(numbers, DType.FP32), middle), scale)
    flat = g.one("Reshape", weights, g.ints([rows, blocks * a.block_size]))
    whole = flat if blocks * a.block_size == k else sliced(g, flat, [0], [k], [1], [1])
    c.emit("MatMul", c.inputs[0], g.one("Transpose", whole, perm=[1, 0]))


def _fields(c: LayerCall, raw: str) -> str:
    """The numbers of bytes, along a new axis at the end."""
    a, g, parts = c.attrs, c.graph, []
    mask = c.scalar((1 << a.bits) - 1, DType.UINT8)
    for shift in range(0, 8, a.bits):
        moved = g.one("BitShift", raw, c.scalar(shift, DType.UINT8), direction="RIGHT")
        parts.append(g.one("Unsqueeze", g.one("BitwiseAnd", moved, mask), g.ints([-1])))
    return g.one("Concat", *parts, axis=-1) if len(parts) > 1 else parts[0]


@writes("FewBitsGather")
def few_bits_rows(c: LayerCall) -> None:
    """Rows of bytes, scales and zero points are gathered, and taken apart as weights are."""
    a, g = c.attrs, c.graph
    blocks, width = c.fixed(c.spec(2).shape)[1], c.fixed(c.spec().shape)[1] * 8 // a.bits
    at = g.one("Reshape", c.inputs[1], g.ints([-1]))

    def columns(name: str, size: int) -> str:
        return sliced(g, name, [0], [a.columns], [1], [1]) if size != a.columns else name

    def spread(i: int) -> str:
        rows = g.cast(g.one("Gather", c.inputs[i], at, axis=0), DType.FP32)
        wide = g.one("Expand", g.one("Unsqueeze", rows, g.ints([2])), g.ints([1, 1, a.block_size]))
        size = blocks * a.block_size
        return columns(g.one("Reshape", wide, g.ints([-1, size])), size)

    raw = g.one("Gather", c.inputs[0], at, axis=0)
    numbers = columns(g.one("Reshape", _fields(c, raw), g.ints([-1, width])), width)
    middle = spread(3) if c.input(3) else c.scalar(float(1 << a.bits - 1), DType.FP32)
    y = g.one("Mul", g.one("Sub", g.cast(numbers, DType.FP32), middle), spread(2))
    c.emit("Reshape", y, g.one("Concat", g.one("Shape", c.inputs[1]), g.ints([a.columns]), axis=0))


# -- attention -----------------------------------------------------------------------------------


@writes("Attention")
def attention(c: LayerCall) -> None:
    """Products, and a softmax between them."""
    k, v = c.inputs[1:3]
    if c.attrs.keys is not None:
        k, v = (sliced(c.graph, x, [0], [c.attrs.keys], [2], [1]) for x in (k, v))
    heads, *own = (c.spec(i).shape[1] for i in range(3))
    k, v = (_for_each(c, x, n, heads) for x, n in zip((k, v), own, strict=True))
    _attention(c, c.inputs[0], k, v, c.outputs[0])


def _for_each(c: LayerCall, x: str, own: Dim, heads: Dim) -> str:
    """Heads of keys or values as often as heads of queries share them; one broadcasts."""
    if own in (1, heads) or heads == 1:
        return x
    assert isinstance(heads, int)
    assert isinstance(own, int)
    places = [i * own // heads for i in range(heads)]
    return c.graph.one("Gather", x, c.graph.ints(places), axis=1)


def _attention(c: LayerCall, q: str, k: str, v: str, output: str) -> None:
    """Of (batch, heads, rows, dim) each."""
    g, dtype = c.graph, c.spec().dtype
    scaled = g.one("Mul", q, c.scalar(c.attrs.scale, dtype))
    scores = g.one("MatMul", scaled, g.one("Transpose", k, perm=[0, 1, 3, 2]))
    if c.input(3):
        scores = g.one("Add", scores, c.inputs[3])
    p = g.one("Softmax", scores, axis=-1)
    if c.attrs.nan_to_zero:
        p = g.one("Where", g.one("IsNaN", p), c.scalar(0.0, dtype), p)
    g.put("MatMul", [p, v], [output])


@writes("TokenAttention")
def token_attention(c: LayerCall) -> None:
    """Columns become heads, and heads columns again."""
    a, g = c.attrs, c.graph
    parts = []
    for i, (count, width) in enumerate(a.parts):
        begin, end = a.columns[i], a.columns[i] + count * width
        whole = (begin, end) == (0, c.spec(i).shape[2])
        x = c.inputs[i] if whole else sliced(g, c.inputs[i], [begin], [end], [2], [1])
        split = g.one("Reshape", x, g.ints([0, 0, count, width]))
        part = g.one("Transpose", split, perm=[0, 2, 1, 3])
        parts.append(_for_each(c, part, count, a.heads))
    q, k, v = parts
    made = g.fresh()
    _attention(c, q, k, v, made)
    rows = g.one("Transpose", made, perm=[0, 2, 1, 3])
    c.emit("Reshape", rows, g.ints([0, 0, a.heads * a.value_dim]))


@writes("RotaryEmbedding")
def rotary(c: LayerCall) -> None:
    """Halves of the last axis change places, one of them with its sign; what lies behind them, and
    other heads, are joined to that.
    """
    g, (x, cosines, sines) = c.graph, c.inputs
    heads, width = c.attrs.heads, c.spec(1).shape[-1]
    half = width // 2
    first = sliced(g, x, [0], [half], [-1], [1])
    second = sliced(g, x, [half], [width], [-1], [1])
    turned = g.one("Concat", g.one("Neg", second), first, axis=-1)
    whole = g.one("Concat", first, second, axis=-1)
    y = g.one("Add", g.one("Mul", whole, cosines), g.one("Mul", turned, sines))
    rest = sliced(g, x, [width], [FURTHEST], [-1], [1])
    y = g.one("Concat", y, rest, axis=-1)
    if heads is not None:
        others = sliced(g, x, [heads], [FURTHEST], [-2], [1])
        y = g.one("Concat", sliced(g, y, [0], [heads], [-2], [1]), others, axis=-2)
    c.emit("Identity", y)


# -- norms and reductions ------------------------------------------------------------------------


def _tail(c: LayerCall) -> str:
    """The normalised axes."""
    rank = c.spec().rank
    return c.graph.ints(range(c.attrs.axis % rank, rank))


@writes("LayerNormalization")
def layer_norm(c: LayerCall) -> None:
    """ONNX's own where the parameters have the shape of the axes; else by its formula."""
    tail = c.spec().shape[c.attrs.axis % c.spec().rank :]
    if all(s is None or s.shape == tail for s in c.specs[1:]):
        c.emit("LayerNormalization", *c.inputs, axis=c.attrs.axis, epsilon=c.attrs.epsilon)
        return
    g, axes, dtype = c.graph, _tail(c), c.spec().dtype
    centred = g.one("Sub", c.inputs[0], g.one("ReduceMean", c.inputs[0], axes))
    variance = g.one("ReduceMean", g.one("Mul", centred, centred), axes)
    root = g.one("Sqrt", g.one("Add", variance, c.scalar(c.attrs.epsilon, dtype)))
    scaled = ("Mul", g.one("Div", centred, root), c.inputs[1])
    if not c.input(2):
        c.emit(*scaled)
        return
    c.emit("Add", g.one(*scaled), c.inputs[2])


@writes("RMSNormalization")
def rms_norm(c: LayerCall) -> None:
    """By its formula."""
    g, x = c.graph, c.inputs[0]
    mean = g.one("ReduceMean", g.one("Mul", x, x), _tail(c))
    root = g.one("Sqrt", g.one("Add", mean, c.scalar(c.attrs.epsilon, c.spec().dtype)))
    c.emit("Mul", g.one("Div", x, root), c.inputs[1])


@writes("ReduceSum", "ReduceMean", "ReduceProd", "ReduceMax", "ReduceMin", "ReduceLogSumExp")
def reduce(c: LayerCall) -> None:
    """Axes are a tensor; none means none."""
    if not c.attrs.axes:
        c.emit("Identity", c.inputs[0])
        return
    c.emit(c.layer.name, c.inputs[0], c.graph.ints(c.attrs.axes), keepdims=c.attrs.keepdims)


@writes("DynamicReduce")
def dynamic_reduce(c: LayerCall) -> None:
    """The reduction is an attribute, the axes a tensor."""
    a = c.attrs
    c.emit(a.reduction, *c.inputs, keepdims=a.keepdims, noop_with_empty_axes=a.noop_with_empty_axes)


@writes("CumSum", "CumProd")
def cumulative(c: LayerCall) -> None:
    """The axis is a tensor."""
    _fold(c, c.layer.name, c.scalar(c.attrs.axis, DType.INT64))


@writes("DynamicCumulative")
def dynamic_cumulative(c: LayerCall) -> None:
    """The fold is an attribute."""
    flat = c.graph.one("Reshape", c.inputs[1], c.graph.constant(np.zeros(0, np.int64)))
    _fold(c, c.attrs.fold, flat)


def _fold(c: LayerCall, op: str, axis: str) -> None:
    if op == "CumProd":
        c.graph.shared.needs(26)
    c.emit(op, c.inputs[0], axis, exclusive=c.attrs.exclusive, reverse=c.attrs.reverse)


@writes("MaxPool")
def max_pool(c: LayerCall) -> None:
    """Pads that hang on shapes are the lowest number."""
    a, dtype = c.attrs, c.spec().dtype
    lowest = -math.inf if dtype.is_float else float(np.iinfo(dtype.numpy).min)
    x, pads = _padded(c, lowest)
    c.emit(
        "MaxPool",
        x,
        kernel_shape=a.kernel_shape,
        strides=a.strides or None,
        pads=pads,
        dilations=a.dilations or None,
        ceil_mode=a.ceil_mode,
    )


@writes("DFT")
def dft(c: LayerCall) -> None:
    """Length and axis are tensors."""
    a, g = c.attrs, c.graph
    length: Dim = a.length
    given = "" if length == 0 else g.one("Squeeze", g.dim(length))
    axis = c.scalar(a.axis, DType.INT64)
    c.emit("DFT", c.inputs[0], given, axis, inverse=a.inverse, onesided=a.onesided)


@writes("STFT")
def stft(c: LayerCall) -> None:
    """Step and length are tensors."""
    step, length = (c.scalar(v, DType.INT64) for v in (c.attrs.frame_step, c.attrs.frame_length))
    c.emit("STFT", c.inputs[0], step, c.input(1), length, onesided=c.attrs.onesided)


# -- recurrences ---------------------------------------------------------------------------------

FEATURES = {"LSTM": "input_forget", "GRU": "linear_before_reset", "RNN": ""}
"""The attribute that each has beside those of all."""


@writes("LSTM", "GRU", "RNN")
def recurrent(c: LayerCall) -> None:
    """ONNX's own. A batch in front is moved behind the steps, which more runtimes know."""
    a, own = c.attrs, FEATURES[c.layer.name]
    attrs = {own: getattr(a, own)} if own else {}
    attrs |= {
        "hidden_size": a.hidden_size or c.fixed(c.spec(2).shape[-1:])[0],
        "direction": a.direction,
        "activations": a.activations or None,
        "activation_alpha": a.activation_alpha or None,
        "activation_beta": a.activation_beta or None,
        "clip": a.clip or None,
    }
    if not a.layout:
        c.emit(c.layer.name, *c.inputs, **attrs)
        return
    g, inputs = c.graph, list(c.inputs)
    for i in (0, 5, 6):
        if c.input(i):
            inputs[i] = g.one("Transpose", c.inputs[i], perm=[1, 0, 2])
    made = [g.fresh() for _ in c.outputs]
    g.put(c.layer.name, inputs, made, **attrs)
    for i, (x, y) in enumerate(zip(made, c.outputs, strict=True)):
        g.put("Transpose", [x], [y], perm=[1, 0, 2] if i else [2, 0, 1, 3])


# -- quantised numbers ---------------------------------------------------------------------------


@writes("QuantizeLinear")
def quantize(c: LayerCall) -> None:
    """The dtype is that of the zero point, or said."""
    a = c.attrs
    c.emit(
        "QuantizeLinear",
        *c.inputs,
        axis=a.axis,
        block_size=a.block_size or None,
        output_dtype=None if c.input(2) else a.dtype,
        saturate=None if a.saturate else False,
    )


@writes("DequantizeLinear")
def dequantize(c: LayerCall) -> None:
    """The result has the dtype of the scale; another is a cast."""
    a, scale = c.attrs, c.spec(1).dtype
    attrs = {"axis": a.axis, "block_size": a.block_size or None}
    if scale is c.made[0].dtype:
        c.emit("DequantizeLinear", *c.inputs, **attrs)
        return
    c.emit("Cast", c.graph.one("DequantizeLinear", *c.inputs, **attrs), to=c.made[0].dtype)


# -- random numbers ------------------------------------------------------------------------------


@writes("RandomNormal", "RandomUniform")
def random(c: LayerCall) -> None:
    """Other numbers of the same distribution: what a seed gives is each runtime's."""
    a, normal = c.attrs, c.layer.name == "RandomNormal"
    own = {"mean": a.mean, "scale": a.scale} if normal else {"low": a.low, "high": a.high}
    c.emit(c.layer.name, shape=c.fixed(a.shape), dtype=a.dtype, seed=a.seed, **own)


writes("RandomBernoulli")(same("Bernoulli", "dtype", "seed"))
writes("RandomMultinomial")(same("Multinomial", "sample_size", "dtype", "seed"))
writes("TrainingDropout")(same("Dropout", "seed"))
