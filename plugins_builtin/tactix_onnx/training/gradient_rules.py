"""Derivatives of layers: for each one, the gradients of its inputs from those of its outputs.

``RULES`` has functions of a Tape, the node and the gradients of its outputs. They give a gradient
for each input that has one; where inputs are broadcast, the Tape sums it up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tactix.base.dims import Dim, prod
from tactix.base.dtypes import DType
from tactix.contracts.graph import Node, Value
from tactix_onnx.training.optimizers import Arithmetic

Gradients = Sequence[Value | None]


class Tape(Arithmetic):
    """How rules make layers. ``wanted``: the values whose gradients are asked for."""

    def __init__(self, ctx: Any, wanted: Callable[[Value | None], bool]) -> None:
        super().__init__(ctx)
        self.wanted = wanted

    def one(self, layer: str, *inputs: Value, **attrs: Any) -> Value:
        """A layer's first output."""
        found: Value = self.ctx.layer(f"tactix.{layer}", inputs, **attrs)
        return found

    def full(self, value: float, like: Value) -> Value:
        """A number everywhere, in the shape and dtype of another tensor."""
        return self.one("Fill", shape=like.spec.shape, value=value, dtype=like.spec.dtype)

    def where(self, condition: Value, a: Value | float, b: Value | float, like: Value) -> Value:
        """``a`` where the condition holds, else ``b``; numbers are of the dtype of ``like``."""
        return self.one(
            "Where",
            condition,
            *(v if isinstance(v, Value) else self.ctx.scalar(v, like) for v in (a, b)),
        )

    def total(self, x: Value, axes: Sequence[int], keepdims: bool = True) -> Value:
        """The sum over axes."""
        return self.one("ReduceSum", x, axes=tuple(axes), keepdims=keepdims) if axes else x

    def swapped(self, x: Value) -> Value:
        """The last two axes exchanged."""
        rank = x.spec.rank
        return self.one("Transpose", x, perm=(*range(rank - 2), rank - 1, rank - 2))

    def number(self, d: Dim, like: Value) -> Value:
        """A dim as a number of another tensor's dtype."""
        if isinstance(d, int):
            return self.ctx.scalar(d, like)
        return self.ctx.cast(
            self.one("Dims", values=(d,), shape=(), dtype=DType.INT64), like.spec.dtype
        )

    def sum_to(self, g: Value, like: Value) -> Value:
        """A gradient summed over the axes along which its tensor was broadcast. Raises
        UnsupportedOperator.
        """
        want = like.spec.shape
        lead = g.spec.rank - len(want)
        spread = [i for i, d in enumerate(want, lead) if d == 1 and g.spec.shape[i] != 1]
        if any(d not in (1, g.spec.shape[i]) for i, d in enumerate(want, lead)):
            self.ctx.fail(
                f"whether {like.name!r} is broadcast to {g.spec} is only known by running"
            )
        return self.ctx.reshape(self.total(g, (*range(lead), *spread)), want)


class GradientRule(Protocol):
    """The gradients of a node's inputs."""

    def __call__(self, m: Tape, node: Node, *gs: Value) -> Gradients: ...


RULES: dict[str, GradientRule] = {}


def rule(*layers: str) -> Callable[[Any], Any]:
    """Enter a function for layers of these names."""

    def add(function: Any) -> Any:
        RULES.update(dict.fromkeys(layers, function))
        return function

    return add


def _unary(layer: str, slope: Callable[[Tape, Value, Value], Value]) -> None:
    """A layer of one input: its slope from the input and the output."""

    def gradient(m: Tape, node: Node, *gs: Value) -> Gradients:
        (x,) = node.given
        return [m.mul(gs[0], slope(m, x, node.outputs[0]))]

    RULES[layer] = gradient


_unary("Exp", lambda m, x, y: y)
_unary("Log", lambda m, x, y: m.one("Reciprocal", x))
_unary("Sqrt", lambda m, x, y: m.div(0.5, y))
_unary("Tanh", lambda m, x, y: m.sub(1.0, m.mul(y, y)))
_unary("Sigmoid", lambda m, x, y: m.mul(y, m.sub(1.0, y)))
_unary("Softplus", lambda m, x, y: m.one("Sigmoid", x))
_unary(
    "Erf", lambda m, x, y: m.mul(m.one("Exp", m.one("Neg", m.mul(x, x))), 2 / math.sqrt(math.pi))
)
_unary("Abs", lambda m, x, y: m.one("Sign", x))
_unary("Reciprocal", lambda m, x, y: m.one("Neg", m.mul(y, y)))
_unary("Sin", lambda m, x, y: m.one("Cos", x))
_unary("Cos", lambda m, x, y: m.one("Neg", m.one("Sin", x)))


def _positive(m: Tape, x: Value) -> Value:
    return m.one("Greater", x, m.ctx.scalar(0, x))


@rule("Relu")
def relu(m: Tape, node: Node, g: Value) -> Gradients:
    return [m.where(_positive(m, node.given[0]), g, 0.0, g)]


@rule("LeakyRelu")
def leaky_relu(m: Tape, node: Node, g: Value) -> Gradients:
    return [m.where(_positive(m, node.given[0]), g, m.mul(g, node.attrs.alpha), g)]


@rule("Clip")
def clip(m: Tape, node: Node, g: Value) -> Gradients:
    """Where the bounds cut nothing."""
    return [m.where(m.one("Equal", node.given[0], node.outputs[0]), g, 0.0, g)]


@rule("Add")
def add(m: Tape, node: Node, g: Value) -> Gradients:
    return [g, g]


@rule("Sub")
def sub(m: Tape, node: Node, g: Value) -> Gradients:
    return [g, m.one("Neg", g)]


@rule("Neg")
def neg(m: Tape, node: Node, g: Value) -> Gradients:
    return [m.one("Neg", g)]


@rule("Mul")
def mul(m: Tape, node: Node, g: Value) -> Gradients:
    a, b = node.given
    return [m.mul(g, b) if m.wanted(a) else None, m.mul(g, a) if m.wanted(b) else None]


@rule("Div")
def div(m: Tape, node: Node, g: Value) -> Gradients:
    b = node.given[1]
    first = m.div(g, b)
    return [first, m.one("Neg", m.mul(first, node.outputs[0])) if m.wanted(b) else None]


@rule("Pow")
def power(m: Tape, node: Node, g: Value) -> Gradients:
    """0 for the base where the exponent is 0, and for the exponent where the base is <= 0."""
    a, b = node.given
    e, y = m.ctx.cast(b, a.spec.dtype), node.outputs[0]
    out: list[Value | None] = [None, None]
    if m.wanted(a):
        flat = m.one("Equal", e, m.ctx.scalar(0, e))
        out[0] = m.mul(g, m.where(flat, 0.0, m.mul(e, m.power(a, m.sub(e, 1.0))), e))
    if m.wanted(b):
        above = _positive(m, a)
        out[1] = m.ctx.cast(
            m.mul(g, m.mul(y, m.one("Log", m.where(above, a, 1.0, a)))), b.spec.dtype
        )
    return out


@rule("Max", "Min")
def extreme(m: Tape, node: Node, g: Value) -> Gradients:
    """Of equal ones the first is taken."""
    first = m.one("GreaterOrEqual" if node.layer.name == "Max" else "LessOrEqual", *node.given)
    return [m.where(first, g, 0.0, g), m.where(first, 0.0, g, g)]


@rule("Where")
def where(m: Tape, node: Node, g: Value) -> Gradients:
    condition = node.given[0]
    return [None, m.where(condition, g, 0.0, g), m.where(condition, 0.0, g, g)]


@rule("Cast")
def cast(m: Tape, node: Node, g: Value) -> Gradients:
    """Integers on the way let nothing through."""
    x, y = node.given[0], node.outputs[0]
    return [
        m.ctx.cast(g, x.spec.dtype) if x.spec.dtype.is_float and y.spec.dtype.is_float else None
    ]


@rule("MatMul")
def matmul(m: Tape, node: Node, g: Value) -> Gradients:
    """Vectors are taken as a row or a column."""
    a, b = node.given
    rows, columns = a.spec.rank > 1, b.spec.rank > 1
    row = m.ctx.reshape(a, (1, *a.spec.shape)) if not rows else a
    column = m.ctx.reshape(b, (*b.spec.shape, 1)) if not columns else b
    batch = g.spec.shape[: g.spec.rank - rows - columns]
    g = m.ctx.reshape(g, (*batch, row.spec.shape[-2], column.spec.shape[-1]))
    out: list[Value | None] = [None, None]
    if m.wanted(a):
        out[0] = m.ctx.reshape(m.sum_to(m.one("MatMul", g, m.swapped(column)), row), a.spec.shape)
    if m.wanted(b):
        out[1] = m.ctx.reshape(m.sum_to(m.one("MatMul", m.swapped(row), g), column), b.spec.shape)
    return out


@rule("Gemm")
def gemm(m: Tape, node: Node, g: Value) -> Gradients:
    a, b = node.given[:2]
    s = node.attrs
    out: list[Value | None] = [None] * len(node.inputs)
    if m.wanted(a):
        pair, turned = ((b, g), (s.transB, True)) if s.transA else ((g, b), (False, not s.transB))
        out[0] = m.one("Gemm", *pair, alpha=s.alpha, transA=turned[0], transB=turned[1])
    if m.wanted(b):
        pair, turned = ((g, a), (True, s.transA)) if s.transB else ((a, g), (not s.transA, False))
        out[1] = m.one("Gemm", *pair, alpha=s.alpha, transA=turned[0], transB=turned[1])
    if len(out) > 2:
        out[2] = m.mul(g, s.beta)
    return out


@rule("Transpose")
def transpose(m: Tape, node: Node, g: Value) -> Gradients:
    perm = node.attrs.perm
    return [m.one("Transpose", g, perm=tuple(perm.index(i) for i in range(len(perm))))]


@rule("Reshape", "DynamicReshape")
def reshape(m: Tape, node: Node, g: Value) -> Gradients:
    return [m.ctx.reshape(g, node.given[0].spec.shape)]


@rule("Expand")
def expand(m: Tape, node: Node, g: Value) -> Gradients:
    return [g]


def _kept(m: Tape, node: Node, g: Value) -> Value:
    """A reduction's result, or its gradient, with the axes it lost."""
    shape = node.given[0].spec.shape
    return m.ctx.reshape(g, tuple(1 if i in node.attrs.axes else d for i, d in enumerate(shape)))


@rule("ReduceSum", "ReduceMean")
def reduce(m: Tape, node: Node, g: Value) -> Gradients:
    (x,) = node.given
    spread = m.one("Expand", _kept(m, node, g), shape=x.spec.shape)
    if node.layer.name == "ReduceSum":
        return [spread]
    return [m.div(spread, m.number(prod(x.spec.shape[a] for a in node.attrs.axes), x))]


@rule("ReduceMax", "ReduceMin")
def reduce_extreme(m: Tape, node: Node, g: Value) -> Gradients:
    """Equal ones share."""
    (x,) = node.given
    here = m.ctx.cast(m.one("Equal", x, _kept(m, node, node.outputs[0])), x.spec.dtype)
    return [m.mul(here, m.div(_kept(m, node, g), m.total(here, node.attrs.axes)))]


@rule("Softmax")
def softmax(m: Tape, node: Node, g: Value) -> Gradients:
    y = node.outputs[0]
    axis = node.attrs.axis % y.spec.rank
    return [m.mul(y, m.sub(g, m.total(m.mul(g, y), [axis])))]


@rule("LogSoftmax")
def log_softmax(m: Tape, node: Node, g: Value) -> Gradients:
    y = node.outputs[0]
    axis = node.attrs.axis % y.spec.rank
    return [m.sub(g, m.mul(m.one("Exp", y), m.total(g, [axis])))]


@rule("Concat")
def concat(m: Tape, node: Node, g: Value) -> Gradients:
    axis = node.attrs.axis % g.spec.rank
    out, begin = [], 0  # type: tuple[list[Value | None], Dim]
    for x in node.given:
        size = x.spec.shape[axis]
        out.append(m.one("Slice", g, begins=(begin,), sizes=(size,), axes=(axis,), steps=(1,)))
        begin = begin + size
    return out


@rule("Split")
def split(m: Tape, node: Node, *gs: Value) -> Gradients:
    return [m.one("Concat", *gs, axis=node.attrs.axis)]


@rule("Slice")
def take(m: Tape, node: Node, g: Value) -> Gradients:
    """Zeros around; only for neighbouring elements in their order."""
    (x,) = node.given
    s = node.attrs
    if any(step != 1 for step in s.steps):
        m.ctx.fail(
            f"the gradient of tactix.Slice (layer {node.name!r}) "
            f"with steps {s.steps} is not supported"
        )
    before: list[Dim] = [0] * x.spec.rank
    after: list[Dim] = [0] * x.spec.rank
    for axis, begin, size in zip(s.axes, s.begins, s.sizes, strict=True):
        before[axis], after[axis] = begin, x.spec.shape[axis] - begin - size
    return [m.one("Pad", g, pads=(*before, *after), mode="constant", value=0.0)]
