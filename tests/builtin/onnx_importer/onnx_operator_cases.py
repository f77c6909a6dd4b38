"""One node per case: operator, random inputs of odd shapes, attributes, operator set.

Weights of int8 have seven bits: on x86 without VNNI, ONNX Runtime sums two products of eight bits in
sixteen and cuts off what is more.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx


@dataclass(frozen=True)
class F:
    """A float32 input of normal values, moved into [low, high] if given."""

    shape: tuple[int, ...]
    low: float | None = None
    high: float | None = None

    def array(self, rng: np.random.Generator) -> Any:
        if self.low is not None:
            return rng.uniform(self.low, self.high, self.shape).astype(np.float32)
        return rng.standard_normal(self.shape, np.float32)


@dataclass(frozen=True)
class Z:
    """An integer input from low up to high - 1."""

    shape: tuple[int, ...]
    low: int = -5
    high: int = 6
    dtype: str = "int64"

    def array(self, rng: np.random.Generator) -> Any:
        return rng.integers(self.low, self.high, self.shape).astype(self.dtype)


@dataclass(frozen=True)
class B:
    """A boolean input."""

    shape: tuple[int, ...]

    def array(self, rng: np.random.Generator) -> Any:
        return rng.random(self.shape) < 0.5


@dataclass(frozen=True)
class Given:
    """An input that is this array."""

    value: Any

    def array(self, rng: np.random.Generator) -> Any:
        return np.asarray(self.value)


@dataclass(frozen=True)
class K:
    """A constant of the model: an initializer."""

    value: Any
    dtype: str = "int64"

    def array(self, rng: np.random.Generator) -> Any:
        if isinstance(self.value, (F, Z, B)):
            return self.value.array(rng)
        return np.asarray(self.value, self.dtype)


@dataclass(frozen=True)
class Case:
    """One node. ``fixed``: its dims cannot be symbols. ``oracle``: ``ort``, or ``onnx`` where ONNX
    Runtime has none.
    """

    op: str
    inputs: tuple[Any, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    opset: int = 21
    outputs: int = 1
    fixed: bool = False
    oracle: str = "ort"
    tolerance: float = 1e-5

    @property
    def id(self) -> str:
        told = "-".join(f"{k}={v}" for k, v in self.attrs.items())
        return f"{self.op}-{self.opset}-{told}"[:90]


def case(op: str, *inputs: Any, opset: int = 21, outputs: int = 1, **more: Any) -> Case:
    own = {k: more.pop(k) for k in ("fixed", "oracle", "tolerance") if k in more}
    return Case(op, inputs, more, opset, outputs, **own)


def arrays_of(c: Case) -> list[Any]:
    """Its inputs, always the same; None for one that is absent."""
    rng = np.random.default_rng(zlib.crc32(c.id.encode()))
    return [None if s is None else s.array(rng) for s in c.inputs]


def one_node(c: Case, arrays: Sequence[Any], symbolic: bool) -> onnx.ModelProto:
    """The model of a case; constants are initializers, other inputs have fixed dims or a symbol
    each.
    """
    names = [f"i{i}" if a is not None else "" for i, a in enumerate(arrays)]
    outputs = [f"o{i}" for i in range(c.outputs)]
    node = onnx.helper.make_node(c.op, names, outputs, name="it", **c.attrs)
    inputs, constants = [], []
    for name, spec, a in zip(names, c.inputs, arrays, strict=True):
        if isinstance(spec, K):
            constants.append(onnx.numpy_helper.from_array(a, name))
        elif spec is not None:
            shape = [f"{name}_{k}" if symbolic else n for k, n in enumerate(a.shape)]
            code = onnx.helper.np_dtype_to_tensor_dtype(a.dtype)
            inputs.append(onnx.helper.make_tensor_value_info(name, code, shape))
    results = [onnx.helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = onnx.helper.make_graph([node], "one", inputs, results, constants)
    opsets = [onnx.helper.make_opsetid("", c.opset)]
    return onnx.helper.make_model(
        graph, opset_imports=opsets, ir_version=10 if c.opset < 24 else 12
    )


def unary(low: float | None, high: float | None, *ops: str) -> list[Case]:
    return [case(op, F((3, 1, 7), low, high)) for op in ops]


X4 = F((2, 6, 7, 9))
POINTWISE = [
    *unary(-3, 3, "Abs", "Neg", "Exp", "Erf", "Floor", "Ceil", "Round", "Sign", "Sin", "Cos", "Tan", "Atan", "Sinh"),
    *unary(-3, 3, "Cosh", "Asinh", "Relu", "Sigmoid", "Tanh", "Softplus", "Softsign", "HardSwish", "Reciprocal"),
    *unary(0.01, 5, "Log", "Sqrt"),
    *unary(-0.99, 0.99, "Asin", "Acos", "Atanh"),
    *unary(1.01, 5, "Acosh"),
    case("Mish", F((3, 5))), case("LeakyRelu", F((3, 5)), alpha=0.3), case("Elu", F((3, 5)), alpha=1.7),
    case("Selu", F((3, 5))), case("Selu", F((3, 5)), alpha=1.1, gamma=2.0),
    case("Celu", F((3, 5)), alpha=0.7), case("HardSigmoid", F((3, 5)), alpha=0.4, beta=0.6),
    case("ThresholdedRelu", F((3, 5)), alpha=0.4),
    case("Shrink", F((3, 5)), lambd=0.4, bias=0.2),
    case("Gelu", F((3, 5))), case("Gelu", F((3, 5)), approximate="tanh"),
    case("Swish", F((3, 5)), alpha=1.5, opset=24, oracle="onnx"),
    case("PRelu", F((3, 5, 2)), F((5, 1))),
    *[case(op, F((3, 1, 5)), F((4, 1), 0.5, 2.0)) for op in ("Add", "Sub", "Mul", "Div", "Pow")],
    *[case(op, Z((3, 1, 5)), Z((4, 1), 1, 5)) for op in ("Add", "Sub", "Mul", "Div", "Mod")],
    case("Pow", F((4,), 0.1, 3.0), Z((3, 1), 0, 4)),
    case("Pow", Z((3, 5), 1, 5, "int32"), Z((5,), 0, 4, "int32")),
    case("Mod", F((3, 5), 1, 9), F((5,), 1, 4), fmod=1),
    case("Mod", Z((3, 5), -9, 9, "int32"), Z((5,), 1, 4, "int32"), fmod=1),
    case("Mod", Z((3, 5), -9, 9), Z((5,), -4, 0)),
    case("Div", Z((50,), -9, 9), Z((50,), 1, 4)),
    case("Max", F((3, 5)), F((5,)), F((3, 1))),
    case("Min", F((3, 5)), F((5,)), F((3, 1))),
    case("Min", Z((3, 5)), Z((5,))),
    case("Max", F((3, 5))),
    case("Sum", F((3, 5)), F((5,)), F((3, 1))),
    case("Mean", F((3, 5)), F((5,)), F((3, 1))),
    case("Clip", F((3, 5)), K(-0.5, "float32"), K(0.7, "float32")),
    case("Clip", F((3, 5)), None, K(0.7, "float32")),
    case("Clip", F((3, 5)), F((), -0.5, -0.4), F((), 0.1, 0.2)),
    case("Clip", Z((3, 5)), K(-2), K(3)),
    case("Clip", F((3, 5)), opset=6, min=-0.3, max=0.4),
    case("Clip", F((3, 5)), opset=6),
    case("Where", B((3, 1)), F((3, 5)), F((1, 5))),
    case("Where", B((3, 1)), Z((5,)), Z((1, 5))),
    *[case(op, B((3, 1)), B((4,))) for op in ("And", "Or", "Xor")],
    case("Not", B((3, 5))),
    *[case(op, F((3, 5)), F((5,))) for op in ("Less", "LessOrEqual", "Greater", "GreaterOrEqual")],
    *[case(op, Z((3, 5)), Z((5,))) for op in ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")],
    case("Equal", B((3, 5)), B((5,))),
    case("IsNaN", Given(np.array([1, np.nan, -np.inf, 0], np.float32))),
    *[
        case("IsInf", Given(np.array([1, np.nan, -np.inf, np.inf], np.float32)), detect_negative=n, detect_positive=p)
        for n in (0, 1)
        for p in (0, 1)
    ],
    case("BitShift", Z((3, 5), 0, 99, "uint8"), Z((5,), 0, 7, "uint8"), direction="LEFT"),
    case("BitShift", Z((3, 5), 0, 99, "uint8"), Z((5,), 0, 7, "uint8"), direction="RIGHT"),
    *[case(op, Z((3, 5)), Z((5,))) for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")],
    case("BitwiseNot", Z((3, 5))),
    *[case("Cast", F((3, 5), -9, 9), to=t) for t in (1, 6, 7, 9, 10, 11)],
    case("Cast", Z((3, 5)), to=1), case("Cast", B((3, 5)), to=6),
    case("CastLike", F((3, 5), -9, 9), Z((2,))),
    case("Identity", F((3, 5))), case("Dropout", F((3, 5))),
    case("Dropout", F((3, 5)), opset=7, ratio=0.4),
]  # fmt: skip
CONVOLUTIONS = [
    case("Conv", X4, F((5, 6, 3, 3))),
    case("Conv", X4, F((5, 6, 3, 3)), F((5,)), pads=[1, 2, 0, 1], strides=[2, 3], dilations=[2, 1]),
    case("Conv", X4, F((6, 3, 1, 3)), F((6,)), group=2, strides=[2, 1]),
    case("Conv", X4, F((12, 1, 3, 3)), group=6, pads=[1, 1, 1, 1]),
    case("Conv", X4, F((4, 6, 1, 1)), F((4,)), strides=[2, 2]),
    case("Conv", F((2, 3, 11)), F((4, 3, 4)), F((4,)), pads=[2, 1], strides=[2]),
    case("Conv", F((1, 3, 5, 6, 7)), F((4, 3, 2, 3, 3)), F((4,)), pads=[1, 0, 1, 0, 1, 1]),
    case("Conv", X4, F((5, 6, 3, 4)), auto_pad="SAME_UPPER", strides=[2, 3]),
    case("Conv", X4, F((5, 6, 2, 4)), auto_pad="SAME_LOWER", strides=[1, 2]),
    case("Conv", X4, F((5, 6, 3, 3)), auto_pad="VALID", strides=[2, 2]),
    case("ConvTranspose", X4, F((6, 4, 3, 3))),
    case("ConvTranspose", X4, F((6, 4, 2, 2)), F((4,)), strides=[2, 2]),
    case("ConvTranspose", X4, F((6, 2, 3, 3)), F((6,)), group=3, strides=[2, 3], pads=[1, 0, 1, 2]),
    case("ConvTranspose", X4, F((6, 4, 3, 3)), strides=[3, 2], output_padding=[2, 1], dilations=[2, 1]),
    case("ConvTranspose", X4, F((6, 4, 3, 3)), strides=[2, 2], output_shape=[14, 18], fixed=True),
    case("ConvTranspose", X4, F((6, 4, 3, 3)), strides=[2, 2], auto_pad="SAME_UPPER", fixed=True),
    case("ConvTranspose", F((2, 3, 5)), F((3, 4, 4)), strides=[3], pads=[1, 1]),
    case("DeformConv", F((2, 4, 6, 7)), F((6, 2, 3, 2)), F((2, 24, 4, 6)), F((6,)), F((2, 12, 4, 6)), group=2,
         offset_group=2, opset=22),
    case("MaxPool", X4, kernel_shape=[3, 2]),
    case("MaxPool", X4, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    case("MaxPool", X4, kernel_shape=[2, 3], strides=[2, 2], dilations=[2, 3], pads=[0, 1, 1, 0]),
    case("MaxPool", X4, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
    case("MaxPool", X4, kernel_shape=[2, 2], strides=[3, 3], pads=[1, 1, 1, 1], ceil_mode=1),
    case("MaxPool", X4, kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER"),
    case("MaxPool", F((2, 3, 11)), kernel_shape=[4], strides=[3]),
    case("MaxPool", Z((2, 3, 7, 7), -9, 9, "int8"), kernel_shape=[3, 3], pads=[1, 1, 1, 1], opset=12),
    *[
        case("AveragePool", X4, kernel_shape=[3, 2], strides=[2, 2], pads=[1, 1, 1, 0], ceil_mode=c,
             count_include_pad=i)
        for c in (0, 1) for i in (0, 1)
    ],
    case("AveragePool", F((2, 3, 9, 9)), kernel_shape=[3, 3], dilations=[2, 2]),
    case("AveragePool", X4, kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_LOWER"),
    case("AveragePool", F((1, 2, 5, 6, 7)), kernel_shape=[2, 3, 2]),
    case("LpPool", X4, kernel_shape=[3, 2], p=3, strides=[2, 1]),
    *[case(op, X4) for op in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")],
]  # fmt: skip
MATRICES = [
    case("MatMul", F((3, 1, 4, 5)), F((2, 5, 6))),
    case("MatMul", F((5,)), F((2, 5, 6))),
    case("MatMul", F((2, 4, 5)), F((5,))),
    case("MatMul", F((5,)), F((5,))),
    case("MatMul", Z((3, 4), dtype="int32"), Z((4, 5), dtype="int32")),
    *[
        case("Gemm", F((5, 3) if a else (3, 5)), F((4, 5) if b else (5, 4)), F((4,)), transA=a, transB=b, alpha=0.7,
             beta=1.3)
        for a in (0, 1) for b in (0, 1)
    ],
    case("Gemm", F((3, 5)), F((5, 4))),
    case("Gemm", F((3, 5)), F((5, 4)), F((3, 1)), opset=7),
    case("Einsum", F((2, 3, 4)), F((2, 4, 5)), equation="bij,bjk->bik"),
    case("Einsum", F((2, 3, 4)), equation="...ij->...ji"),
    case("Einsum", F((3, 4)), F((4,)), equation="ij,j"),
    case("Einsum", F((2, 3, 7, 4)), F((2, 3, 5, 4)), equation="bhid, bhjd -> bhij"),
    case("MatMulInteger", Z((3, 4), 0, 9, "uint8"), Z((4, 5), 0, 9, "uint8"), K(3, "uint8"),
         K([1, 2, 3, 4, 5], "uint8")),
    case("ConvInteger", Z((1, 2, 5, 6), 0, 9, "uint8"), Z((3, 2, 3, 3), 0, 9, "uint8"), K(3, "uint8"),
         pads=[1, 1, 1, 1]),
    case("QLinearMatMul", Z((3, 4), 0, 255, "uint8"), K(0.02, "float32"), K(113, "uint8"), Z((4, 5), 0, 255, "uint8"),
         K(0.03, "float32"), K(120, "uint8"), K(0.1, "float32"), K(118, "uint8")),
    case("QLinearConv", Z((1, 2, 5, 6), 0, 255, "uint8"), K(0.02, "float32"), K(113, "uint8"),
         K(Z((3, 2, 3, 3), -64, 64, "int8")), K([0.02, 0.03, 0.01], "float32"), K([0, 0, 0], "int8"),
         K(0.1, "float32"), K(118, "uint8"), K([100, -50, 7], "int32"), pads=[1, 1, 1, 1]),
]  # fmt: skip
NORMALIZATIONS = [
    case("BatchNormalization", X4, F((6,)), F((6,)), F((6,)), F((6,), 0.3, 2), epsilon=1e-3),
    case("BatchNormalization", F((4, 3)), F((3,)), F((3,)), F((3,)), F((3,), 0.3, 2), opset=9),
    case("InstanceNormalization", X4, F((6,)), F((6,)), epsilon=1e-3),
    case("GroupNormalization", X4, F((6,)), F((6,)), num_groups=3),
    case("GroupNormalization", X4, F((3,)), F((3,)), num_groups=3, opset=18),
    case("GroupNormalization", X4, K(F((3,))), K(F((3,))), num_groups=3, opset=18),
    case("LayerNormalization", F((2, 5, 7)), F((7,)), F((7,))),
    case("LayerNormalization", F((2, 5, 7)), F((5, 7)), axis=1, epsilon=1e-3),
    case("LayerNormalization", F((2, 5, 7)), F((7,)), F((7,)), outputs=3),
    case("RMSNormalization", F((2, 5, 7)), F((7,)), opset=23, oracle="onnx"),
    case(
        "RMSNormalization", F((2, 5, 7)), F((5, 7)), axis=-2, epsilon=1e-3, opset=23, oracle="onnx"
    ),
    case("LpNormalization", F((2, 5, 7)), axis=1, p=1),
    case("LpNormalization", F((2, 5, 7)), p=2),
    case("LRN", X4, size=3, alpha=0.01, beta=0.6, bias=2.0),
    case("MeanVarianceNormalization", X4),
    *[
        case(op, F((2, 5, 7)), axis=a)
        for op in ("Softmax", "LogSoftmax", "Hardmax")
        for a in (0, 1, -1)
    ],
    *[
        case(op, F((2, 5, 7)), opset=11, axis=a)
        for op in ("Softmax", "LogSoftmax", "Hardmax")
        for a in (0, 1, 2)
    ],
    case("Softmax", F((2, 5, 7)), opset=7),
    case("Softmax", F((2, 5))),
]
_REDUCTIONS = ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")
REDUCTIONS = [
    *[case(f"Reduce{r}", F((2, 5, 3, 7), 0.1, 2), K([1, -1]), keepdims=0) for r in _REDUCTIONS],
    *[case(f"Reduce{r}", F((2, 5, 3), 0.1, 2), opset=11, axes=[-2, 0]) for r in _REDUCTIONS],
    *[case(f"Reduce{r}", F((2, 5, 3), 0.1, 2)) for r in _REDUCTIONS],
    case("ReduceSum", F((2, 5)), K([], "int64"), noop_with_empty_axes=1),
    case("ReduceSum", Z((2, 5), dtype="int32"), K([1])),
    case("ReduceMax", Z((2, 5), dtype="int8"), K([1])),
    case("ReduceMean", F((4,))),
    *[
        case(op, F((3, 5, 4)), axis=a, keepdims=k)
        for op in ("ArgMax", "ArgMin")
        for a, k in ((1, 0), (-1, 1))
    ],
    *[
        case(op, Z((9, 9), 0, 3, "int32"), axis=1, select_last_index=s)
        for op in ("ArgMax", "ArgMin")
        for s in (0, 1)
    ],
    *[case("CumSum", F((3, 5, 4)), K(1), exclusive=e, reverse=r) for e in (0, 1) for r in (0, 1)],
    case("TopK", F((3, 9, 4)), K([3]), axis=1, outputs=2),
    case("TopK", F((3, 9)), K([4]), largest=0, outputs=2),
    case("TopK", Z((3, 9), 0, 3), K([5]), outputs=2),
    case("TopK", F((3, 9)), opset=7, k=3, outputs=2),
]
SHAPES = [
    case("Reshape", F((2, 6, 5)), K([0, -1, 10])),
    case("Reshape", F((2, 6, 5)), K([3, 4, 5])),
    case("Reshape", F((0, 3, 4)), K([3, 4, 0]), allowzero=1, fixed=True),
    case("Reshape", F((1,)), K([], "int64")),
    *[case("Flatten", F((2, 3, 4)), axis=a) for a in (0, 1, 3, -1)],
    case("Squeeze", F((1, 3, 1, 4)), K([0, -2]), fixed=True),
    case("Squeeze", F((1, 3, 1)), fixed=True),
    case("Squeeze", F((1, 3, 1)), opset=11, axes=[2]),
    case("Unsqueeze", F((3, 4)), K([0, -1])),
    case("Unsqueeze", F((3, 4)), opset=11, axes=[1, 3]),
    case("Transpose", F((2, 3, 4)), perm=[2, 0, 1]),
    case("Transpose", F((2, 3, 4))),
    case("Concat", F((2, 3)), F((2, 5)), F((2, 1)), axis=-1, fixed=True),
    case("Split", F((2, 9)), K([2, 3, 4]), axis=1, outputs=3),
    case("Split", F((7, 3)), outputs=3, num_outputs=3, opset=18),
    case("Split", F((6, 3)), outputs=3, opset=11),
    case("Split", F((6, 3)), outputs=2, opset=11, split=[2, 4]),
    case("Slice", F((5, 7, 9)), K([1, -3]), K([4, 2**63 - 1]), K([0, 2])),
    case("Slice", F((5, 7)), K([-1, 5]), K([-(2**63), 0]), K([0, 1]), K([-1, -2])),
    case("Slice", F((5, 7)), K([0, 1]), K([99, -1]), K([0, 1]), K([2, 3])),
    case("Slice", F((5, 7)), opset=7, starts=[1, 0], ends=[-1, 3]),
    case("Slice", F((5, 7)), opset=9, starts=[2], ends=[100], axes=[1]),
    case("Slice", F((5, 7)), K([4]), K([2])),
    case("Expand", F((3, 1)), K([2, 1, 4])),
    case("Expand", F((3, 4)), K([1, 1])),
    case("Tile", F((2, 3)), K([2, 3])),
    case("Pad", F((3, 4)), K([1, 0, 2, 3]), K(1.5, "float32")),
    case("Pad", F((3, 4)), K([1, 2]), None, K([-1]), opset=19),
    *[case("Pad", F((4, 5)), K([1, 2, 2, 1]), mode=m) for m in ("edge", "reflect")],
    case("Pad", F((4, 5)), K([1, 2, 2, 1]), mode="wrap", opset=19),
    case("Pad", F((4, 5)), K([-1, 0, 1, -2])),
    case("Pad", F((4, 5)), opset=7, pads=[0, 1, 2, 0], value=0.5),
    case("Shape", F((2, 3, 4))),
    case("Shape", F((2, 3, 4)), start=-2, end=3),
    case("Size", F((2, 3, 4))),
    *[case("DepthToSpace", F((2, 12, 3, 5)), blocksize=2, mode=m) for m in ("DCR", "CRD")],
    case("SpaceToDepth", F((2, 3, 4, 6)), blocksize=2),
]
INDICES = [
    case("Gather", F((5, 4, 3)), Z((2, 3), -4, 4), axis=1),
    case("Gather", F((5, 4)), Z((), -5, 5)),
    case("Gather", Z((5, 4)), K([0, -1]), axis=-1),
    case("GatherElements", F((5, 4)), Z((2, 4), -5, 5), axis=0, fixed=True),
    case("GatherElements", F((3, 6, 4)), Z((3, 2, 4), -6, 6), axis=1, fixed=True),
    case("GatherND", F((5, 4, 3)), Z((2, 6, 2), -3, 3), fixed=True),
    case("GatherND", F((2, 5, 4, 3)), Z((2, 6, 1), -5, 5), batch_dims=1, fixed=True),
    case("ScatterND", F((5, 4)), K([[0], [3]]), F((2, 4))),
    *[
        case("ScatterND", F((5, 4)), K([[0], [3], [0]]), F((3, 4)), reduction=r)
        for r in ("add", "mul", "min", "max")
    ],
    case("ScatterElements", F((5, 4)), K([[0, 3, 1, 2], [1, 2, 0, 4]]), F((2, 4)), axis=0),
    case(
        "ScatterElements",
        F((3, 6)),
        K([[0, -1], [1, 2], [5, 3]]),
        F((3, 2)),
        axis=1,
        reduction="add",
    ),
    case("Scatter", F((3, 6)), K([[0, 1], [1, 2], [5, 3]]), F((3, 2)), axis=1, opset=10),
    case("Trilu", F((2, 4, 5))),
    case("Trilu", F((4, 5)), K(-1), upper=0),
    case("Trilu", Z((5, 4)), K(2)),
    case("Trilu", F((4, 5)), Z((), 1, 2)),
    case("OneHot", Z((2, 3), -4, 4), K(4), K([0.5, 2.0], "float32")),
    case("OneHot", Z((2, 3), 0, 4), K(4), K([1, 7]), axis=1),
    case("EyeLike", F((4, 6)), k=1),
    case("EyeLike", F((4, 6)), k=-2, dtype=7),
    case("ReverseSequence", F((5, 3, 2)), Z((3,), 1, 6), batch_axis=1, time_axis=0),
    case("ConstantOfShape", K([2, 3]), value=onnx.helper.make_tensor("v", 7, [1], [5])),
    case("Range", K(2), K(20), K(3)),
    case("Range", K(2.5, "float32"), K(-3.0, "float32"), K(-0.5, "float32")),
]
_R = F((1, 2, 5, 7))
SAMPLING = [
    *[
        case("Resize", _R, None, K([1, 1, 1.6, 0.6], "float32"), mode=m, coordinate_transformation_mode=c)
        for m in ("nearest", "linear", "cubic")
        for c in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
        if not (m == "cubic" and c == "align_corners")
    ],
    *[case("Resize", _R, None, None, K([1, 2, 8, 3]), nearest_mode=f"round_prefer_{n}") for n in ("floor", "ceil")],
    *[case("Resize", _R, None, None, K([1, 2, 8, 3]), nearest_mode=n) for n in ("floor", "ceil")],
    case("Resize", _R, None, None, K([9, 4]), axes=[3, 2], mode="linear", opset=18),
    case("Resize", _R, None, None, K([1, 2, 3, 4]), mode="linear", antialias=1, opset=18),
    case("Resize", _R, None, None, K([1, 2, 3, 4]), mode="cubic", antialias=1, opset=18),
    case("Resize", _R, None, K([1, 1, 2, 2], "float32"), mode="cubic", cubic_coeff_a=-0.5, exclude_outside=1),
    case("Resize", _R, K([0, 0, 0.1, 0.2, 1, 1, 0.9, 1.2], "float32"), None, K([1, 2, 4, 4]), mode="linear",
         coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=7.0),
    case("Resize", _R, K([1, 1, 2, 3], "float32"), opset=10, mode="linear"),
    case("Upsample", _R, K([1, 1, 2, 3], "float32"), opset=9),
    case("Upsample", _R, opset=7, scales=[1.0, 1.0, 2.0, 1.5], mode="nearest"),
    *[
        case("GridSample", F((2, 3, 5, 6)), F((2, 4, 7, 2), -1.3, 1.3), mode=m, padding_mode=p, align_corners=a,
             opset=16)
        for m in ("bilinear", "nearest", "bicubic")
        for p in ("zeros", "border", "reflection")
        for a in (0, 1)
    ],
    *[
        case("RoiAlign", F((2, 3, 9, 8)), Given(np.array([[0, 0, 6, 7], [1, 2, 5, 8], [3.2, 1, 3.9, 4]], np.float32)),
             Given(np.array([0, 1, 1])), output_height=3, output_width=2, sampling_ratio=r, spatial_scale=0.8, opset=16,
             coordinate_transformation_mode=c)
        for r in (0, 2)
        for c in ("half_pixel", "output_half_pixel")
    ],
    # ONNX Runtime refuses regions that are turned around along one axis
    *[
        case("RoiAlign", F((1, 3, 9, 8)), Given(np.array([[4, 5, 1, 2], [1, 7, 6, 3], [6, 1, 2, 5]], np.float32)),
             Given(np.array([0, 0, 0])), output_height=3, output_width=2, mode=m, opset=16, oracle="onnx")
        for m in ("avg", "max")
    ],
]  # fmt: skip
QUANTIZATION = [
    case("QuantizeLinear", F((3, 5), -9, 9), K(0.07, "float32"), K(100, "uint8")),
    case(
        "QuantizeLinear",
        F((3, 5), -9, 9),
        K([0.1, 0.05, 0.2], "float32"),
        K([1, -2, 3], "int8"),
        axis=0,
    ),
    case("QuantizeLinear", F((3, 5), -9, 9), K(0.07, "float32")),
    case("DequantizeLinear", Z((3, 5), -100, 100, "int8"), K(0.07, "float32"), K(3, "int8")),
    case("DequantizeLinear", Z((3, 5), -100, 100, "int8"), K([1, 2, 3, 4, 5], "float32"), axis=1),
    case(
        "DequantizeLinear", Z((3, 6), -100, 100, "int8"), K(F((3, 2), 1, 2)), axis=1, block_size=3
    ),
    case("DynamicQuantizeLinear", F((3, 5)), outputs=3),
]


def _rnn(
    op: str,
    gates: int,
    directions: int = 1,
    layout: int = 0,
    extra: Sequence[Any] = (),
    **attrs: Any,
) -> Case:
    steps, batch, size, hidden = 5, 3, 4, 6
    x = F((batch, steps, size) if layout else (steps, batch, size))
    w, r = F((directions, gates * hidden, size)), F((directions, gates * hidden, hidden))
    if layout:
        attrs["layout"] = 1
    return case(
        op,
        x,
        w,
        r,
        *extra,
        hidden_size=hidden,
        outputs=3 if op == "LSTM" else 2,
        fixed=True,
        **attrs,
    )


RECURRENT = [
    _rnn("LSTM", 4),
    _rnn("LSTM", 4, 2, extra=[F((2, 48)), Z((3,), 1, 6, "int32")], direction="bidirectional"),
    _rnn("LSTM", 4, extra=[F((1, 48)), None, F((1, 3, 6)), F((1, 3, 6)), F((1, 18))], direction="reverse"),
    _rnn("LSTM", 4, extra=[F((1, 48))], clip=0.4, input_forget=1),
    _rnn("LSTM", 4, extra=[F((1, 48))], activations=["HardSigmoid", "Tanh", "Relu"], activation_alpha=[0.3],
         activation_beta=[0.4]),
    _rnn("GRU", 3),
    _rnn("GRU", 3, 2, extra=[F((2, 36)), Z((3,), 1, 6, "int32"), F((2, 3, 6))], direction="bidirectional"),
    _rnn("GRU", 3, extra=[F((1, 36))], linear_before_reset=1, direction="reverse"),
    _rnn("RNN", 1, extra=[F((1, 12))]),
    _rnn("RNN", 1, 2, extra=[F((2, 12)), Z((3,), 1, 6, "int32")], direction="bidirectional",
         activations=["Relu", "Tanh"]),
]  # fmt: skip

CASES = [
    *POINTWISE, *CONVOLUTIONS, *MATRICES, *NORMALIZATIONS, *REDUCTIONS, *SHAPES, *INDICES, *SAMPLING, *QUANTIZATION,
    *RECURRENT,
]  # fmt: skip
