"""Layers that compute element by element, products, and reductions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tactix.base.dims import exact_div
from tactix_tensorrt.api.enums import (
    ActivationType,
    CumulativeOperation,
    DataType,
    ElementWiseOperation,
    LayerType,
    MatrixOperation,
    ReduceOperation,
    ScaleMode,
    TopKOperation,
    UnaryOperation,
    WeightsRole,
)
from tactix_tensorrt.api.layer import Attribute, ILayer
from tactix_tensorrt.api.lowering import Lowering, axes_of
from tactix_tensorrt.api.values import NATIVE, Weights, checked_numbers, weights_array

if TYPE_CHECKING:
    from tactix.contracts.graph import Value
    from tactix_tensorrt.api.values import Array

PLAIN_ACTIVATIONS = {
    ActivationType.RELU: "Relu",
    ActivationType.SIGMOID: "Sigmoid",
    ActivationType.TANH: "Tanh",
    ActivationType.SOFTSIGN: "Softsign",
}
ALPHA_ACTIVATIONS = {
    ActivationType.LEAKY_RELU: "LeakyRelu",
    ActivationType.ELU: "Elu",
    ActivationType.THRESHOLDED_RELU: "ThresholdedRelu",
}


class IActivationLayer(ILayer):
    """``type``, and what it needs of ``alpha`` and ``beta``."""

    TYPE = LayerType.ACTIVATION
    kind = Attribute(ActivationType.RELU)
    alpha = Attribute(0.0)
    beta = Attribute(0.0)

    def lower(self, emit: Lowering) -> Sequence[Value]:
        return [self._activated(emit, emit.input(0))]

    def _activated(self, emit: Lowering, x: Value) -> Value:
        kind, alpha, beta = self.kind, self.alpha, self.beta
        if kind in PLAIN_ACTIVATIONS:
            return emit.one(PLAIN_ACTIVATIONS[kind], x)
        if kind in ALPHA_ACTIVATIONS:
            return emit.one(ALPHA_ACTIVATIONS[kind], x, alpha=alpha)
        if kind is ActivationType.SELU:
            return emit.one("Selu", x, alpha=alpha, gamma=beta)
        if kind is ActivationType.CLIP:
            return emit.one("Clip", x, min=alpha, max=beta)
        if kind is ActivationType.HARD_SIGMOID:
            return emit.one("HardSigmoid", x, alpha=alpha, beta=beta)
        if kind in (ActivationType.GELU_ERF, ActivationType.GELU_TANH):
            tanh = kind is ActivationType.GELU_TANH
            return emit.one("Gelu", x, approximate="tanh" if tanh else "none")
        inner = "Softplus" if kind is ActivationType.SOFTPLUS else "Tanh"
        return _times(emit, emit.one(inner, _times(emit, x, beta)), alpha)


def _times(emit: Lowering, x: Value, factor: float) -> Value:
    return emit.one("Mul", x, emit.number(factor, x)) if factor != 1 else x


BINARY = {
    ElementWiseOperation.SUM: "Add",
    ElementWiseOperation.PROD: "Mul",
    ElementWiseOperation.MAX: "Max",
    ElementWiseOperation.MIN: "Min",
    ElementWiseOperation.SUB: "Sub",
    ElementWiseOperation.DIV: "Div",
    ElementWiseOperation.POW: "Pow",
    ElementWiseOperation.AND: "And",
    ElementWiseOperation.OR: "Or",
    ElementWiseOperation.XOR: "Xor",
    ElementWiseOperation.EQUAL: "Equal",
    ElementWiseOperation.GREATER: "Greater",
    ElementWiseOperation.LESS: "Less",
}


class IElementWiseLayer(ILayer):
    """Two tensors of one rank, broadcast."""

    TYPE = LayerType.ELEMENTWISE
    op = Attribute(ElementWiseOperation.SUM)

    def lower(self, emit: Lowering) -> Sequence[Value]:
        a, b = emit.alike(emit.input(0), emit.input(1))
        if self.op in BINARY:
            return [emit.one(BINARY[self.op], a, b)]
        if a.spec.dtype.is_float:
            return [emit.one("Floor", emit.one("Div", a, b))]
        return [emit.one("Div", emit.one("Sub", a, emit.one("Mod", a, b)), b)]


UNARY = {
    UnaryOperation.EXP: "Exp", UnaryOperation.LOG: "Log", UnaryOperation.SQRT: "Sqrt",
    UnaryOperation.RECIP: "Reciprocal", UnaryOperation.ABS: "Abs", UnaryOperation.NEG: "Neg",
    UnaryOperation.SIN: "Sin", UnaryOperation.COS: "Cos", UnaryOperation.TAN: "Tan",
    UnaryOperation.SINH: "Sinh", UnaryOperation.COSH: "Cosh", UnaryOperation.ASIN: "Asin",
    UnaryOperation.ACOS: "Acos", UnaryOperation.ATAN: "Atan", UnaryOperation.ASINH: "Asinh",
    UnaryOperation.ACOSH: "Acosh", UnaryOperation.ATANH: "Atanh", UnaryOperation.CEIL: "Ceil",
    UnaryOperation.FLOOR: "Floor", UnaryOperation.ERF: "Erf", UnaryOperation.NOT: "Not",
    UnaryOperation.SIGN: "Sign", UnaryOperation.ROUND: "Round", UnaryOperation.ISINF: "IsInf",
    UnaryOperation.ISNAN: "IsNaN",
}  # fmt: skip


class IUnaryLayer(ILayer):
    TYPE = LayerType.UNARY
    op = Attribute(UnaryOperation.EXP)

    def lower(self, emit: Lowering) -> Sequence[Value]:
        return [emit.one(UNARY[self.op], emit.input(0))]


class IScaleLayer(ILayer):
    """``(x * scale + shift) ** power``; numbers for all, for channels, or for each element."""

    TYPE = LayerType.SCALE
    mode = Attribute(ScaleMode.UNIFORM)
    shift: Attribute[Weights | Array | None] = Attribute(None, checked_numbers)
    scale: Attribute[Weights | Array | None] = Attribute(None, checked_numbers)
    power: Attribute[Weights | Array | None] = Attribute(None, checked_numbers)
    channel_axis = Attribute(1)

    def lower(self, emit: Lowering) -> Sequence[Value]:
        y = emit.input(0)
        for kind, given, role in (
            ("Mul", self.scale, WeightsRole.SCALE),
            ("Add", self.shift, WeightsRole.SHIFT),
        ):
            made = emit.weights(given, role, self._shape(emit, y))
            if made is not None:
                y = emit.one(kind, y, made)
        power = weights_array(self.power)
        return (
            [y]
            if power is None
            else [emit.one("Pow", y, emit.constant(power, self._shape(emit, y)))]
        )

    def _shape(self, emit: Lowering, x: Value) -> tuple[int, ...]:
        """Of the numbers beside a tensor."""
        rank, axis = x.spec.rank, self.channel_axis
        if self.mode is ScaleMode.UNIFORM:
            return (1,) * rank
        if self.mode is ScaleMode.CHANNEL:
            return tuple(-1 if i == axis else 1 for i in range(rank))
        inner = x.spec.shape[axis:]
        if not all(isinstance(d, int) for d in inner):
            raise emit.refuse("ELEMENTWISE needs fixed sizes after the batch")
        return (*(1,) * axis, *(d for d in inner if isinstance(d, int)))


class ICastLayer(ILayer):
    TYPE = LayerType.CAST
    to_type = Attribute(DataType.FLOAT)

    def lower(self, emit: Lowering) -> Sequence[Value]:
        return [emit.cast(emit.input(0), NATIVE[self.to_type])]


class IIdentityLayer(ILayer):
    """Its input; with an output type, a cast."""

    TYPE = LayerType.IDENTITY

    def lower(self, emit: Lowering) -> Sequence[Value]:
        return [emit.input(0)]


class ISelectLayer(ILayer):
    """Of two tensors the one that a condition names."""

    TYPE = LayerType.SELECT

    def lower(self, emit: Lowering) -> Sequence[Value]:
        return [emit.one("Where", emit.input(0), emit.input(1), emit.input(2))]


class IParametricReLULayer(ILayer):
    TYPE = LayerType.PARAMETRIC_RELU

    def lower(self, emit: Lowering) -> Sequence[Value]:
        return [emit.one("PRelu", emit.input(0), emit.input(1))]


REDUCTIONS = {
    ReduceOperation.SUM: "ReduceSum",
    ReduceOperation.PROD: "ReduceProd",
    ReduceOperation.MAX: "ReduceMax",
    ReduceOperation.MIN: "ReduceMin",
    ReduceOperation.AVG: "ReduceMean",
}


class IReduceLayer(ILayer):
    """``axes``: a mask."""

    TYPE = LayerType.REDUCE
    op = Attribute(ReduceOperation.SUM)
    axes = Attribute(0)
    keep_dims = Attribute(False)

    def lower(self, emit: Lowering) -> Sequence[Value]:
        if self.op not in REDUCTIONS:
            raise emit.refuse("ReduceOperation.NONE is for collectives")
        fields = {"axes": axes_of(self.axes), "keepdims": bool(self.keep_dims)}
        return [emit.one(REDUCTIONS[self.op], emit.input(0), **fields)]


def _one_axis(emit: Lowering, mask: int, default: int) -> int:
    """The axis that a mask names. Raises NetworkError for several."""
    found = axes_of(mask) or (default,)
    if len(found) > 1:
        what = f"axes={mask:#b} names {len(found)} axes, and it works along one"
        raise emit.refuse(what, "Reshape them into one axis before it, or add a layer for each")
    return found[0]


class ITopKLayer(ILayer):
    """Values, and where they are."""

    TYPE = LayerType.TOPK
    OUTPUTS = 2
    op = Attribute(TopKOperation.MAX)
    k = Attribute(1)
    axes = Attribute(0)
    indices_type = Attribute(DataType.INT32)

    def lower(self, emit: Lowering) -> Sequence[Value]:
        axis = _one_axis(emit, self.axes, default=0)
        count = emit.optional(1)
        known = (self.k,) if count is None else count.spec.known()
        fields = {"axis": axis, "largest": self.op is TopKOperation.MAX, "sorted": True}
        if known is None:
            told = {"symbol": emit.symbol("k"), **fields}
            values, where = emit.all("DynamicTopK", [emit.input(0), count], **told)
        else:
            values, where = emit.all("TopK", [emit.input(0)], k=known[0], **fields)
        return [values, emit.cast(where, NATIVE[self.indices_type])]


class ISoftMaxLayer(ILayer):
    """``axes``: a mask of one axis."""

    TYPE = LayerType.SOFTMAX
    axes: Attribute[int] = Attribute(0)

    def lower(self, emit: Lowering) -> Sequence[Value]:
        x = emit.input(0)
        axis = _one_axis(emit, self.axes, default=max(0, x.spec.rank - 3))
        return [emit.one("Softmax", x, axis=axis)]


class ICumulativeLayer(ILayer):
    TYPE = LayerType.CUMULATIVE
    op = Attribute(CumulativeOperation.SUM)
    exclusive = Attribute(False)
    reverse = Attribute(False)

    def lower(self, emit: Lowering) -> Sequence[Value]:
        (axis,) = emit.content(emit.input(1), "the axis")
        fields = {"exclusive": bool(self.exclusive), "reverse": bool(self.reverse)}
        return [emit.one("CumSum", emit.input(0), axis=axis, **fields)]


class IMatrixMultiplyLayer(ILayer):
    """``op0``, ``op1``: what is done to the operands before."""

    TYPE = LayerType.MATRIX_MULTIPLY
    op0 = Attribute(MatrixOperation.NONE)
    op1 = Attribute(MatrixOperation.NONE)

    def lower(self, emit: Lowering) -> Sequence[Value]:
        a, b = emit.alike(emit.input(0), emit.input(1))
        left, right = self.op0 is MatrixOperation.VECTOR, self.op1 is MatrixOperation.VECTOR
        if left:
            a = emit.one("Reshape", a, shape=(*a.spec.shape[:-1], 1, a.spec.shape[-1]))
        if right:
            b = emit.one("Reshape", b, shape=(*b.spec.shape, 1))
        y = emit.one("MatMul", _turned(emit, a, self.op0), _turned(emit, b, self.op1))
        shape = list(y.spec.shape)
        if right:
            del shape[-1]
        if left:
            del shape[-1 if right else -2]
        return [emit.one("Reshape", y, shape=tuple(shape)) if left or right else y]


def _turned(emit: Lowering, x: Value, op: MatrixOperation) -> Value:
    if op is not MatrixOperation.TRANSPOSE:
        return x
    *outer, i, j = range(x.spec.rank)
    return emit.one("Transpose", x, perm=(*outer, j, i))


class IEinsumLayer(ILayer):
    TYPE = LayerType.EINSUM
    equation = Attribute("")

    def lower(self, emit: Lowering) -> Sequence[Value]:
        return [emit.one("Einsum", *emit.inputs, equation=self.equation)]


class INormalizationLayer(ILayer):
    """``(x - mean) / deviation * scale + bias`` over ``axes``, a mask, or groups of channels."""

    TYPE = LayerType.NORMALIZATION
    epsilon = Attribute(1e-5)
    axes = Attribute(0)
    num_groups = Attribute(1)
    compute_precision = Attribute(DataType.FLOAT)

    def lower(self, emit: Lowering) -> Sequence[Value]:
        x, scale, bias = emit.input(0), emit.input(1), emit.input(2)
        if self.num_groups != 1:
            flat = [self._of_channels(emit, v) for v in (scale, bias)]
            groups = {"num_groups": self.num_groups, "epsilon": self.epsilon}
            return [emit.one("GroupNormalization", x, *flat, **groups)]
        axes = axes_of(self.axes)
        mean = emit.one("ReduceMean", x, axes=axes, keepdims=True)
        d = emit.one("Sub", x, mean)
        variance = emit.one("ReduceMean", emit.one("Mul", d, d), axes=axes, keepdims=True)
        deviation = emit.one("Sqrt", emit.one("Add", variance, emit.number(self.epsilon, x)))
        scaled = emit.one("Mul", emit.one("Div", d, deviation), scale)
        return [emit.one("Add", scaled, bias)]

    def _of_channels(self, emit: Lowering, given: Value) -> Value:
        """A number for each channel, of as many or of one for each group."""
        channels, groups = emit.input(0).spec.shape[1], self.num_groups
        if given.spec.numel == groups:
            each = exact_div(channels, groups)
            if each is None:
                raise emit.refuse(f"{channels} channels are no {groups} groups")
            given = emit.one("Expand", emit.reshape(given, (groups, 1)), shape=(groups, each))
        return emit.reshape(given, (channels,))
