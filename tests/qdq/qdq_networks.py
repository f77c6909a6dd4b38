"""Random small ONNX networks with QuantizeLinear and DequantizeLinear at random places, by seed, and
each of them without, as the same float32 network.

Values are about 1 everywhere, and scales are drawn for that, so that integers use their range.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper

Array = Any
OPSETS = (10, 11, 13, 15, 17, 19, 20, 21, 21, 21)
NARROW_OPSET = 21
"""From here on there are 16-bit and 4-bit integers and scales per block."""
BYTES = (np.uint8, np.int8)
LATER = {
    "int16": np.dtype(np.int16), "uint16": np.dtype(np.uint16),
    "int4": np.dtype(ml_dtypes.int4), "uint4": np.dtype(ml_dtypes.uint4),
}  # fmt: skip


@dataclass(frozen=True)
class Sizes:
    """``channels``, ``side``: of images; ``batch``."""

    channels: int = 8
    side: int = 9
    batch: int = 2


DEEP = 1024
SMALL = Sizes()
TIMED = Sizes(32, 32, 1)
"""Large enough for kernels, not launches, to be what a run takes."""


@dataclass(frozen=True)
class Point:
    """Names of a scale and a zero point, and the range of numbers that they stand for."""

    scale: str
    zero: str
    dtype: Any
    low: float
    high: float
    axis: int | None = None


@dataclass(frozen=True)
class Tensor:
    """``name`` in the network; ``shape`` with the batch first; ``positive``: no number is below 0."""

    name: str
    shape: tuple[int, ...]
    positive: bool = False

    @property
    def rank(self) -> int:
        return len(self.shape)


@dataclass(frozen=True)
class Network:
    """``feeds(seed)`` gives inputs."""

    model: onnx.ModelProto
    inputs: Mapping[str, tuple[tuple[int, ...], Any]]
    operators: tuple[str, ...]

    def feeds(self, seed: int) -> dict[str, Array]:
        rng = np.random.default_rng(seed)
        return {
            name: rng.standard_normal(shape).astype(np.float32)
            if dtype == np.float32
            else rng.integers(0, 256, shape).astype(dtype)
            for name, (shape, dtype) in self.inputs.items()
        }


@dataclass(frozen=True)
class Operator:
    """``grow`` gives None where its layer does not fit the tensor."""

    grow: Callable[[Grower, Tensor], Tensor | None]
    opset: int
    ranks: tuple[int, ...]
    weight: int


OPERATORS: dict[str, Operator] = {}
IMAGES = (3, 4, 5)
ALL = (2, 3, 4, 5)


def operator(
    *ranks: int, opset: int = 10, weight: int = 1
) -> Callable[[Callable[[Grower, Tensor], Tensor | None]], Any]:
    def register(grow: Callable[[Grower, Tensor], Tensor | None]) -> Any:
        OPERATORS[grow.__name__.strip("_")] = Operator(grow, opset, ranks or ALL, weight)
        return grow

    return register


def grown(seed: int, quantized: bool = True, sizes: Sizes = SMALL) -> Network:
    """The network of a seed; with ``quantized=False`` without Q/DQ."""
    return Grower(seed, quantized, sizes).network()


class Grower:
    """A graph that grows. Whatever is drawn is drawn for both forms of the network."""

    def __init__(self, seed: int, quantized: bool, sizes: Sizes) -> None:
        self.rng, self.quantized, self.sizes = np.random.default_rng(seed), quantized, sizes
        self.opset = int(self.rng.choice(OPSETS))
        self.any_batch = self.chance(0.3)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs: dict[str, tuple[tuple[int, ...], Any]] = {}
        self.tensors: list[Tensor] = []
        self.points: list[Point] = []
        self.integers: list[str] = []
        self.operators: list[str] = []
        self._count = 0

    # -- what models are made of -------------------------------------------------------------------

    def name(self, stem: str) -> str:
        self._count += 1
        return f"{stem}{self._count}"

    def draw(self, *choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def constant(self, array: Array) -> str:
        name = self.name("c")
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(self, op: str, inputs: list[str], outputs: int = 1, **attrs: Any) -> list[str]:
        names = [self.name("t") for _ in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, **attrs))
        return names

    def add(
        self, op: str, inputs: list[str], like: Tensor, shape: Any = None, **attrs: Any
    ) -> Tensor:
        """A node of one result, of numbers like those of ``like``."""
        (name,) = self.node(op, inputs, **attrs)
        return replace(like, name=name, shape=tuple(shape or like.shape))

    # -- quantisation ------------------------------------------------------------------------------

    def dtype(self) -> Any:
        if self.opset >= NARROW_OPSET and self.chance(0.15):
            return LATER[self.draw("int16", "int16", "uint16", "int4", "uint4")]
        return np.dtype(self.draw(np.uint8, np.uint8, np.int8))

    def _point(self, x: Tensor) -> Point:
        """A point for a tensor: an old one that fits, or a new one."""
        reach = 3 * self.rng.uniform(0.7, 1.3)
        dtype, centre, reuse = self.dtype(), self.chance(0.5), self.chance(0.3)
        old = [p for p in self.points if p.axis is None and p.low <= (0 if x.positive else -2)]
        along = self.opset >= 13 and x.rank > 1 and self.chance(0.06)
        low = 0.0 if x.positive and not centre else -reach
        if reuse and old:
            return old[-1]
        info = ml_dtypes.iinfo(dtype)
        scale = np.float32((reach - low) / (int(info.max) - int(info.min)))
        zero = int(np.clip(int(info.min) - round(low / float(scale)), info.min, info.max))
        zero = 0 if low < 0 and centre and info.min < 0 else zero
        axis = 1 if along else None
        size = (x.shape[1],) if along else ()
        scales = (scale * self.rng.uniform(0.8, 1.2, size)).astype(np.float32)
        point = Point(
            self.constant(scales), self.constant(np.full(size, zero).astype(dtype)), dtype,
            low, reach, axis,
        )  # fmt: skip
        self.points.append(point)
        return point

    def quantize(self, x: str, p: Point) -> str:
        attrs = {} if p.axis is None else {"axis": p.axis}
        name = self.node("QuantizeLinear", [x, p.scale, p.zero], **attrs)[0]
        self.integers.append(name)
        return name

    def dequantize(self, q: str, p: Point) -> str:
        attrs = {} if p.axis is None else {"axis": p.axis}
        return self.node("DequantizeLinear", [q, p.scale, p.zero], **attrs)[0]

    def there_and_back(self, x: Tensor, point: Point | None = None) -> Tensor:
        """A tensor behind a Q/DQ in one of the ways that models have them."""
        way = self.draw("once", "once", "once", "once", "twice", "rescaled", "dead", "fan")
        p, other = point or self._point(x), self._point(x)
        if way == "fan":
            self.tensors.append(x)
        if not self.quantized:
            return x
        q = self.quantize(x.name, p)
        y = self.dequantize(q, p)
        if way == "twice":
            y = self.dequantize(self.quantize(y, p), p)
        elif way == "rescaled":
            y, p = self.dequantize(self.quantize(y, other), other), other
        elif way == "dead":
            self.dequantize(self.quantize(x.name, other), other)
        elif way == "fan":
            self.tensors[-1] = replace(x, name=self.dequantize(q, p))
        return replace(x, name=y)

    def columns(self, depth: int) -> int:
        """Of a matrix of weights: few where it is deep, which keeps it to megabytes."""
        return int(self.draw(depth, 2 * depth, 5)) if depth <= DEEP else 5

    def weights(self, shape: tuple[int, ...], fan_in: int, axis: int) -> str:
        """A constant of numbers about ``1 / sqrt(fan_in)``, as it is or dequantised."""
        w = self.rng.standard_normal(shape) / np.sqrt(max(fan_in, 1))
        return self.stored(w, axis, float(np.abs(w).max()))

    def stored(self, w: Array, axis: int, reach: float) -> str:
        """Numbers up to ``reach`` as a constant, most often dequantised."""
        kinds = ["int8"] * 6 + ["uint8"] * 2 + ["float"] * 2
        if self.opset >= NARROW_OPSET:
            kinds += ["int4", "uint4", "int16"]
        kind, per_axis = self.draw(*kinds), self.opset >= 13 and self.chance(0.6) and w.ndim > 0
        block = int(self.draw(2, 4)) if self.opset >= NARROW_OPSET and self.chance(0.15) else 0
        shift = int(self.draw(0, 0, 1, 3)) if kind != "int16" else 0
        if kind == "float":
            return self.constant(w.astype(np.float32))
        dtype = LATER.get(kind, np.dtype(kind) if kind in ("int8", "uint8") else None)
        info = ml_dtypes.iinfo(dtype)
        attrs: dict[str, int] = {}
        size: tuple[int, ...] = ()
        if block and w.ndim > 1:
            attrs = {"axis": 0, "block_size": block}
            size = (-(-w.shape[0] // block), *w.shape[1:])
        elif per_axis:
            attrs, size = {"axis": axis}, (w.shape[axis],)
        scales = (
            2 * reach / (int(info.max) - int(info.min)) * self.rng.uniform(1, 1.2, size)
        ).astype(np.float32)
        centre = (int(info.max) + int(info.min) + 1) // 2 + shift
        spread = _spread(scales, w.shape, attrs)
        q = np.clip(np.rint(w / spread) + centre, int(info.min), int(info.max))
        if not self.quantized:
            return self.constant(((q - centre) * spread).astype(np.float32))
        zeros = self.constant(np.full(size, centre).astype(dtype))
        return self.node(
            "DequantizeLinear",
            [self.constant(q.astype(dtype)), self.constant(scales), zeros],
            **attrs,
        )[0]

    def bias(self, count: int) -> str:
        """Float32, or dequantised int32."""
        b, scales = self.rng.standard_normal(count) / 3, self.rng.uniform(1e-4, 2e-4, count)
        if self.chance(0.4) or self.opset < 13:
            return self.constant(b.astype(np.float32))
        scale = (
            scales.astype(np.float32)
            if self.chance(0.5)
            else scales[:1].reshape(()).astype(np.float32)
        )
        q, zero = np.rint(b / scale).astype(np.int32), self.chance(0.5)
        if not self.quantized:
            return self.constant((q * scale).astype(np.float32))
        given = [self.constant(q), self.constant(scale)]
        given += [self.constant(np.zeros_like(scale, np.int32))] if zero else []
        return self.node("DequantizeLinear", given, axis=0)[0]

    # -- the network -------------------------------------------------------------------------------

    def start(self) -> Tensor:
        s, rank = self.sizes, int(self.draw(2, 3, 4, 4, 4, 5))
        side = max(4, s.side // 4) if rank == 5 else s.side
        channels = int(self.draw(s.channels, s.channels * 2, s.channels // 2 + 1))
        shape = (s.batch, channels, *(side for _ in range(rank - 2)))
        name, whole = self.name("x"), self.chance(0.15)
        x = Tensor(name, shape)
        p = self._point(replace(x, positive=False))
        if not whole or p.dtype not in BYTES or p.axis is not None:
            self.inputs[name] = (shape, np.float32)
            return self.there_and_back(x) if self.chance(0.7) else x
        self.inputs[name] = (shape, p.dtype if self.quantized else np.float32)
        return replace(x, name=self.dequantize(name, p)) if self.quantized else x

    def grow(self) -> None:
        self.tensors = [self.start()]
        for _ in range(int(self.rng.integers(1, 7))):
            recent = min(int(self.rng.geometric(0.7)), len(self.tensors))
            x = self.tensors[-recent]
            fitting = [
                (k, o)
                for k, o in OPERATORS.items()
                for _ in range(o.weight)
                if x.rank in o.ranks and o.opset <= self.opset
            ]
            key, op = fitting[int(self.rng.integers(len(fitting)))]
            y = op.grow(self, x)
            if y is None:
                continue
            self.operators.append(key)
            self.tensors.append(self.there_and_back(y) if self.chance(0.6) else y)

    def network(self) -> Network:
        self.grow()
        if not self.operators:
            self.tensors.append(self.add("Relu", [self.tensors[-1].name], self.tensors[-1]))
        whole = self.chance(0.3)
        read = {name for n in self.nodes for name in n.input}
        leaves = [t.name for t in self.tensors if t.name not in read and t.name not in self.inputs]
        if whole and self.integers:
            leaves = [*leaves, self.integers[-1]]
        graph = helper.make_graph(
            self.nodes, "qdq",
            [_declared(k, *known, self.any_batch) for k, known in self.inputs.items()],
            [helper.make_empty_tensor_value_info(name) for name in dict.fromkeys(leaves)],
            self.constants,
        )  # fmt: skip
        made = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10
        )
        return Network(made, self.inputs, tuple(self.operators))


def _declared(
    name: str, shape: tuple[int, ...], dtype: Any, any_batch: bool
) -> onnx.ValueInfoProto:
    code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return helper.make_tensor_value_info(name, code, ["n", *shape[1:]] if any_batch else shape)


def _spread(scales: Array, shape: tuple[int, ...], attrs: dict[str, int]) -> Array:
    if scales.ndim == 0:
        return scales
    if attrs.get("block_size"):
        return np.repeat(scales, attrs["block_size"], axis=0)[: shape[0]]
    return scales.reshape([-1 if i == attrs["axis"] else 1 for i in range(len(shape))])


# -- products --------------------------------------------------------------------------------------


@operator(*IMAGES, weight=6)
def conv(g: Grower, x: Tensor) -> Tensor | None:
    c, n = x.shape[1], x.rank - 2
    group = int(g.draw(1, 1, 1, 2, c, c))
    m = int(g.draw(c, c * 2, 4 * group))
    kernel = [int(g.draw(1, 2, 3)) for _ in range(n)]
    strides, dilations = (
        [int(g.draw(1, 1, 2)) for _ in range(n)],
        [int(g.draw(1, 1, 2)) for _ in range(n)],
    )
    pads = [int(g.draw(0, 1)) for _ in range(2 * n)]
    if c % group or m % group:
        return None
    sides = [
        (d + pads[i] + pads[i + n] - (kernel[i] - 1) * dilations[i] - 1) // strides[i] + 1
        for i, d in enumerate(x.shape[2:])
    ]
    if min(sides) < 1:
        return None
    fan_in = c // group * int(np.prod(kernel))
    inputs = [x.name, g.weights((m, c // group, *kernel), fan_in, 0)]
    inputs += [g.bias(m)] if g.chance(0.6) else []
    fields = {"group": group, "strides": strides, "dilations": dilations, "pads": pads}
    return replace(g.add("Conv", inputs, x, (x.shape[0], m, *sides), **fields), positive=False)


@operator(*IMAGES, weight=2)
def conv_transpose(g: Grower, x: Tensor) -> Tensor | None:
    c, n = x.shape[1], x.rank - 2
    group, kernel = int(g.draw(1, 1, 2)), [int(g.draw(2, 3)) for _ in range(n)]
    stride, each = int(g.draw(1, 2)), int(g.draw(2, 4))
    pads, extra = [int(g.draw(0, 0, 1)) for _ in range(2 * n)], int(g.draw(0, 0, stride - 1))
    if c % group:
        return None
    w = g.weights((c, each, *kernel), c // group * int(np.prod(kernel)), 1 if group == 1 else 0)
    inputs = [x.name, w, *([g.bias(each * group)] if g.chance(0.6) else [])]
    cut = [before + after for before, after in zip(pads[:n], pads[n:], strict=True)]
    sizes = zip(x.shape[2:], kernel, cut, strict=True)
    sides = [(d - 1) * stride + k + extra - less for d, k, less in sizes]
    if min(sides) < 1:
        return None
    fields = {"strides": [stride] * n, "pads": pads, "output_padding": [extra] * n}
    shape = (x.shape[0], each * group, *sides)
    return replace(g.add("ConvTranspose", inputs, x, shape, group=group, **fields), positive=False)


@operator(2, weight=6)
def gemm(g: Grower, x: Tensor) -> Tensor | None:
    k, turned = x.shape[1], g.chance(0.5)
    n = g.columns(k)
    alpha, beta = float(g.draw(1.0, 1.0, 0.5)), float(g.draw(1.0, 1.0, 2.0))
    w = g.weights((n, k) if turned else (k, n), k, 0 if turned else 1)
    inputs = [x.name, w, *([g.bias(n)] if g.chance(0.7) else [])]
    fields = {"alpha": alpha, "beta": beta, "transB": int(turned)}
    if g.chance(0.15):
        turn = g.add("Transpose", [x.name], x, x.shape[::-1], perm=[1, 0])
        turn = g.there_and_back(turn) if g.chance(0.5) else turn
        return replace(
            g.add("Gemm", [turn.name, *inputs[1:]], x, (x.shape[0], n), transA=1, **fields),
            positive=False,
        )
    return replace(g.add("Gemm", inputs, x, (x.shape[0], n), **fields), positive=False)


@operator(weight=3)
def matmul(g: Grower, x: Tensor) -> Tensor:
    k = x.shape[-1]
    n = g.columns(k)
    made = g.add("MatMul", [x.name, g.weights((k, n), k, 1)], x, (*x.shape[:-1], n))
    return replace(made, positive=False)


@operator(3, 4, weight=2)
def matmul_of_two(g: Grower, x: Tensor) -> Tensor:
    """x by itself, or what it was once quantised to, turned."""
    perm = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    turn = g.add("Transpose", [x.name], x, [x.shape[i] for i in perm], perm=perm)
    turn = g.there_and_back(turn) if g.chance(0.5) else turn
    shape = (*x.shape[:-1], x.shape[-2])
    y = g.add("MatMul", [x.name, turn.name], x, shape)
    factor = g.constant(np.float32(1 / x.shape[-1]))
    return replace(g.add("Mul", [y.name, factor], y), positive=False)


@operator(3, weight=2)
def attention(g: Grower, x: Tensor) -> Tensor:
    """Of one head; what is multiplied is quantised, or not."""
    k = x.shape[-1]

    def often(y: Tensor) -> Tensor:
        return g.there_and_back(y) if g.chance(0.8) else y

    q, keys, v = (
        often(g.add("MatMul", [x.name, g.weights((k, k), k, 1)], replace(x, positive=False)))
        for _ in range(3)
    )
    turned = g.add("Transpose", [keys.name], keys, (x.shape[0], k, x.shape[1]), perm=[0, 2, 1])
    scores = g.add("MatMul", [q.name, turned.name], q, (*x.shape[:2], x.shape[1]))
    factor = g.constant(np.float32(1 / np.sqrt(k)))
    scores = often(g.add("Mul", [scores.name, factor], scores))
    shares = often(replace(g.add("Softmax", [scores.name], scores, axis=2), positive=True))
    return replace(g.add("MatMul", [shares.name, v.name], v), positive=False)


# -- normalisations --------------------------------------------------------------------------------


@operator(*ALL, weight=2)
def batch_normalization(g: Grower, x: Tensor) -> Tensor:
    c = x.shape[1]
    parameters = [
        g.stored(g.rng.uniform(0.5, 1.5, c), 0, 1.5), g.stored(g.rng.uniform(-1, 1, c), 0, 1.0),
        g.stored(g.rng.uniform(-0.5, 0.5, c), 0, 0.5), g.stored(g.rng.uniform(0.5, 1.5, c), 0, 1.5),
    ]  # fmt: skip
    return replace(g.add("BatchNormalization", [x.name, *parameters], x), positive=False)


@operator(opset=17)
def layer_normalization(g: Grower, x: Tensor) -> Tensor:
    c = x.shape[-1]
    parameters = [
        g.stored(g.rng.uniform(0.5, 1.5, c), 0, 1.5),
        g.stored(g.rng.uniform(-1, 1, c), 0, 1.0),
    ]
    return replace(
        g.add("LayerNormalization", [x.name, *parameters[: g.draw(1, 2)]], x), positive=False
    )


@operator()
def softmax(g: Grower, x: Tensor) -> Tensor:
    y = g.add("Softmax", [x.name], x, axis=int(g.draw(1, x.rank - 1)))
    scaled = g.add("Mul", [y.name, g.constant(np.float32(4))], x)
    return replace(scaled, positive=True)


# -- pointwise -------------------------------------------------------------------------------------


@operator(weight=3)
def relu(g: Grower, x: Tensor) -> Tensor:
    return replace(g.add("Relu", [x.name], x), positive=True)


@operator()
def clip(g: Grower, x: Tensor) -> Tensor:
    if g.opset < 11:
        return replace(g.add("Clip", [x.name], x, min=0.0, max=6.0), positive=True)
    limits = [g.constant(np.float32(v)) for v in (0, 6)]
    return replace(g.add("Clip", [x.name, *limits], x), positive=True)


@operator(weight=2)
def function(g: Grower, x: Tensor) -> Tensor:
    names = ["Sigmoid", "Tanh", "LeakyRelu", "Elu", "HardSigmoid"]
    names += ["HardSwish"] * 2 * (g.opset >= 14) + ["Gelu"] * 2 * (g.opset >= 20)
    return replace(g.add(g.draw(*names), [x.name], x), positive=False)


@operator()
def swish(g: Grower, x: Tensor) -> Tensor:
    s = g.add("Sigmoid", [x.name], x)
    s = g.there_and_back(s) if g.chance(0.5) else s
    return replace(g.add("Mul", [x.name, s.name], x), positive=False)


def _other(g: Grower, x: Tensor) -> str:
    """An operand that broadcasts to x: another tensor of its shape, or a constant."""
    same = [t for t in g.tensors if t.shape == x.shape]
    kind = g.draw("tensor", "tensor", "channels", "scalar")
    if kind == "tensor" and same:
        return same[int(g.rng.integers(len(same)))].name
    shape = () if kind == "scalar" else (x.shape[1], *(1,) * (x.rank - 2))
    return g.stored(g.rng.uniform(-1, 1, shape), 0, 1.0)


@operator(weight=4)
def addition(g: Grower, x: Tensor) -> Tensor:
    y = g.add("Add", [x.name, _other(g, x)][:: int(g.draw(1, -1))], x)
    return replace(y, positive=False)


@operator(weight=2)
def product(g: Grower, x: Tensor) -> Tensor:
    return replace(g.add("Mul", [x.name, _other(g, x)], x), positive=False)


# -- windows ---------------------------------------------------------------------------------------


@operator(*IMAGES, weight=2)
def max_pool(g: Grower, x: Tensor) -> Tensor | None:
    n, k, stride, pad = x.rank - 2, int(g.draw(2, 3)), int(g.draw(1, 2)), int(g.draw(0, 1))
    sides = [(d + 2 * pad - k) // stride + 1 for d in x.shape[2:]]
    if min(sides) < 1:
        return None
    fields = {"kernel_shape": [k] * n, "strides": [stride] * n, "pads": [pad] * 2 * n}
    return g.add("MaxPool", [x.name], x, (*x.shape[:2], *sides), **fields)


@operator(*IMAGES, weight=2)
def average_pool(g: Grower, x: Tensor) -> Tensor | None:
    """Of an odd number of integers: means of two or four lie halfway between integers too often."""
    n, k, stride, pad = x.rank - 2, 3, int(g.draw(1, 2)), int(g.draw(0, 1))
    sides = [(d + 2 * pad - k) // stride + 1 for d in x.shape[2:]]
    if min(sides) < 1:
        return None
    fields = {"kernel_shape": [k] * n, "strides": [stride] * n, "pads": [pad] * 2 * n}
    fields["count_include_pad"] = 1 if pad else int(g.draw(0, 1))
    return g.add("AveragePool", [x.name], x, (*x.shape[:2], *sides), **fields)


@operator(*IMAGES)
def global_average_pool(g: Grower, x: Tensor) -> Tensor:
    return g.add("GlobalAveragePool", [x.name], x, (*x.shape[:2], *(1,) * (x.rank - 2)))


@operator(*IMAGES)
def squeeze_and_excite(g: Grower, x: Tensor) -> Tensor:
    c, ones = x.shape[1], (1,) * (x.rank - 2)
    y = g.add("GlobalAveragePool", [x.name], x, (*x.shape[:2], *ones))
    y = g.there_and_back(y) if g.chance(0.5) else y
    y = g.add("Conv", [y.name, g.weights((c, c, *ones), c, 0), g.bias(c)], y)
    y = g.there_and_back(y) if g.chance(0.5) else y
    y = g.add("Sigmoid", [y.name], y)
    y = g.there_and_back(replace(y, positive=True)) if g.chance(0.5) else y
    return g.add("Mul", [x.name, y.name], x)


@operator(4, opset=11)
def resize(g: Grower, x: Tensor) -> Tensor:
    """Not linear by 2: sums of quarters of integers often lie between two of them, and which of
    these they become is any rounding's choice.
    """
    mode = g.draw("nearest", "nearest", "linear")
    scale = 2 if mode == "nearest" else 1.7
    scales = g.constant(np.array([1, 1, scale, scale], np.float32))
    shape = (*x.shape[:2], *(int(scale * d) for d in x.shape[2:]))
    where = "asymmetric" if mode == "nearest" else "half_pixel"
    fields = {"mode": mode, "coordinate_transformation_mode": where}
    if mode == "nearest":
        fields["nearest_mode"] = "floor"
    return g.add(
        "Resize",
        [x.name, "" if g.opset >= 13 else g.constant(np.zeros(0, np.float32)), scales],
        x,
        shape,
        **fields,
    )


# -- movement --------------------------------------------------------------------------------------


@operator(weight=2)
def transpose(g: Grower, x: Tensor) -> Tensor:
    perm = [0, *(1 + int(i) for i in g.rng.permutation(x.rank - 1))]
    return g.add("Transpose", [x.name], x, [x.shape[i] for i in perm], perm=perm)


@operator(*IMAGES, weight=2)
def reshape(g: Grower, x: Tensor) -> Tensor:
    flat = (x.shape[0], int(np.prod(x.shape[1:])))
    rows = (*x.shape[:2], int(np.prod(x.shape[2:])))
    shape = g.draw(flat, rows)
    return g.add("Reshape", [x.name, g.constant(np.array([0, *shape[1:]]))], x, shape)


@operator(2, 3, 4)
def unsqueeze_and_back(g: Grower, x: Tensor) -> Tensor:
    axes = {"axes": [1]} if g.opset < 13 else {}
    more = [g.constant(np.array([1]))] if g.opset >= 13 else []
    y = g.add("Unsqueeze", [x.name, *more], x, (x.shape[0], 1, *x.shape[1:]), **axes)
    y = g.there_and_back(y) if g.chance(0.5) else y
    return g.add("Squeeze", [y.name, *more], x, x.shape, **axes)


@operator(weight=2)
def slice_(g: Grower, x: Tensor) -> Tensor | None:
    axis = int(g.rng.integers(1, x.rank))
    if x.shape[axis] < 4:
        return None
    begin, step = int(g.draw(0, 1)), int(g.draw(1, 1, 2))
    count = -(-(x.shape[axis] - 1 - begin) // step)
    where = [g.constant(np.array([v])) for v in (begin, x.shape[axis] - 1, axis, step)]
    shape = [count if i == axis else d for i, d in enumerate(x.shape)]
    return g.add("Slice", [x.name, *where], x, shape)


@operator(opset=13, weight=2)
def split_and_join(g: Grower, x: Tensor) -> Tensor | None:
    axis = int(g.rng.integers(1, x.rank))
    first, size = int(g.draw(1, 2)), x.shape[axis]
    if size < 3:
        return None
    names = g.node("Split", [x.name, g.constant(np.array([first, size - first]))], 2, axis=axis)
    parts = [
        replace(x, name=k, shape=tuple(s if i == axis else d for i, d in enumerate(x.shape)))
        for k, s in zip(names, (first, size - first), strict=True)
    ]
    parts = [g.there_and_back(p) if g.chance(0.4) else p for p in parts][::-1]
    return g.add("Concat", [p.name for p in parts], x, axis=axis)


@operator(weight=2)
def concat(g: Grower, x: Tensor) -> Tensor:
    same = [t for t in g.tensors if t.shape == x.shape]
    other = same[int(g.rng.integers(len(same)))]
    if g.chance(0.5):
        shared = g._point(replace(x, positive=False))
        pair = [g.there_and_back(t, shared if shared.axis is None else None) for t in (x, other)]
        x, other = pair
    shape = (x.shape[0], 2 * x.shape[1], *x.shape[2:])
    return replace(g.add("Concat", [x.name, other.name], x, shape, axis=1), positive=False)


@operator(*IMAGES, opset=11)
def pad(g: Grower, x: Tensor) -> Tensor:
    n = x.rank - 2
    pads = [
        0,
        0,
        *(int(g.draw(0, 1, 2)) for _ in range(n)),
        0,
        0,
        *(int(g.draw(0, 1)) for _ in range(n)),
    ]
    mode = g.draw("constant", "constant", "reflect", "edge")
    shape = [d + pads[i] + pads[i + x.rank] for i, d in enumerate(x.shape)]
    more = (
        [g.constant(np.float32(g.draw(0.0, 0.0, 0.5)))]
        if mode == "constant" and g.chance(0.7)
        else []
    )
    return replace(
        g.add("Pad", [x.name, g.constant(np.array(pads)), *more], x, shape, mode=mode),
        positive=False,
    )


@operator()
def gather(g: Grower, x: Tensor) -> Tensor | None:
    axis = int(g.rng.integers(1, x.rank))
    where = g.rng.integers(0, x.shape[axis], max(2, x.shape[axis] // 2))
    shape = [len(where) if i == axis else d for i, d in enumerate(x.shape)]
    return g.add("Gather", [x.name, g.constant(where)], x, shape, axis=axis)


@operator(*IMAGES)
def reduce_and_expand(g: Grower, x: Tensor) -> Tensor:
    axes = {"axes": [x.rank - 1]} if g.opset < 18 else {}
    more = [g.constant(np.array([x.rank - 1]))] if g.opset >= 18 else []
    y = g.add("ReduceMean", [x.name, *more], x, (*x.shape[:-1], 1), keepdims=1, **axes)
    y = g.there_and_back(y) if g.chance(0.6) else y
    return g.add("Expand", [y.name, g.constant(np.array([1, *x.shape[1:]]))], x)
