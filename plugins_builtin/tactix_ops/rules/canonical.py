"""Pointwise layers that do nothing, or that a cheaper one says; equal nodes merged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from tactix.base.dtypes import DType
from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import Op, P, Rule, anything, const, var
from tactix_ops.rules.facts import uniform

INF = float("inf")

NEUTRAL: tuple[tuple[str, float], ...] = (
    ("Add", 0.0), ("Sub", 0.0), ("Mul", 1.0), ("Div", 1.0), ("Pow", 1.0), ("And", 1.0), ("Or", 0.0),
    ("Xor", 0.0), ("Max", -INF), ("Min", INF),
)  # fmt: skip
"""Layer, and the second operand with which it gives the first one."""


def as_tensor(x: Value, like: Value) -> Value | Op:
    """Template: ``x`` in the shape of ``like``, to which it broadcasts."""
    return x if x.spec.shape == like.spec.shape else P.tactix.Expand(x, shape=like.spec.shape)


def _neutral_rule(name: str, number: float) -> Rule:
    def when(root: Node, x: Value, c: Value) -> bool:
        return uniform(c) == number and x.spec.dtype is root.outputs[0].spec.dtype

    def replace(root: Node, x: Value) -> Any:
        return as_tensor(x, root.outputs[0])

    def example(net: Any) -> None:
        logical = name in ("And", "Or", "Xor")
        x = net.add_input("x", "bool" if logical else "f32", ["n", 3])
        neutral = np.full((2, 1, 1), bool(number) if logical else np.float32(number))
        (y,) = net.add_layer(f"tactix.{name}", [x, net.add_constant(neutral)])
        net.mark_output(net.add_layer("tactix.Cast", [y], to=DType.INT32)[0], "y")

    pattern = getattr(P.tactix, name)(var("x"), const("c"))
    return Rule(
        f"tactix.neutral_{name.lower()}", pattern, replace, when, benefit=60, example=example
    )


# -- powers --------------------------------------------------------------------------------------


WHOLE_POWERS = (1.0, 2.0, 3.0, 4.0)
POWERS_OF_FLOATS = (0.5, -0.5, -1.0, -2.0)


def _power_when(root: Node, x: Value, c: Value) -> bool:
    number = uniform(c)
    plain = x.spec.shape == root.outputs[0].spec.shape
    floats = POWERS_OF_FLOATS if x.spec.dtype.is_float else ()
    return plain and number in (*WHOLE_POWERS, *floats)


def _power(x: Value, c: Value) -> Any:
    number = uniform(c)
    assert number is not None
    if number == 1.0:
        return x
    size = P.tactix.Sqrt(x) if abs(number) == 0.5 else _product(x, int(abs(number)))
    return P.tactix.Reciprocal(size) if number < 0 else size


def _product(x: Value, count: int) -> Any:
    """``count`` factors, up to 4."""
    if count == 1:
        return x
    square = P.tactix.Mul(x, x)
    return square if count == 2 else P.tactix.Mul(square, x if count == 3 else square)


def _power_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 3])
    for i, power in enumerate((2.0, 3.0, 4.0, 0.5, -0.5, -1.0, -2.0)):
        (y,) = net.add_layer("tactix.Abs", [x])
        (y,) = net.add_layer("tactix.Pow", [y, net.add_constant(np.float32(power))])
        net.mark_output(net.add_layer("tactix.Neg", [y])[0], f"y{i}")


# -- choices and casts ---------------------------------------------------------------------------


def _constant_choice(root: Node, c: Value, a: Value, b: Value) -> Any:
    return as_tensor(a if uniform(c) else b, root.outputs[0])


def _choice_example(net: Any) -> None:
    a, b = net.add_input("a", "f32", ["n", 1]), net.add_input("b", "f32", ["n", 4])
    yes = net.add_constant(np.ones((1, 4), np.bool_))
    (y,) = net.add_layer("tactix.Where", [yes, a, b])
    net.mark_output(net.add_layer("tactix.Neg", [y])[0], "y")


def _same_cast(root: Node, x: Value) -> bool:
    return x.spec.dtype is root.outputs[0].spec.dtype


def _cast_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n"])
    (y,) = net.add_layer("tactix.Cast", [x], to=DType.FP32)
    net.mark_output(net.add_layer("tactix.Abs", [y])[0], "y")


# -- equal nodes ---------------------------------------------------------------------------------

SMALL = 64
"""Most elements of constants that are compared by content."""


Work = tuple[Any, ...]
"""What a node computes of what: equal for two nodes that compute the same. Holds what it compares
by identity.
"""


def _work(n: Node) -> Work:
    inputs = [_content(v) for v in n.inputs]
    if n.layer.commutative and len(inputs) > 1:
        inputs[:2] = [frozenset(inputs[:2])]
    return (n.layer, n.attrs, len(n.inputs), *inputs)


def _content(v: Value | None) -> Any:
    if v is None or v.const is None:
        return v
    small = (
        isinstance(v.const, np.ndarray) and v.const.size <= SMALL
    )  # content of others may be another tomorrow
    return (str(v.const.dtype), v.const.shape, v.const.tobytes()) if small else _Same(v.const)


@dataclass(frozen=True)
class _Same:
    """An array that is equal to itself alone."""

    array: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.array is other.array

    def __hash__(self) -> int:
        return id(self.array)


_first: WeakKeyDictionary[Any, dict[Work, Node]] = WeakKeyDictionary()
"""By network, the first node that was seen to do a work."""


def _twin(root: Node, graph: Any) -> Node | None:
    """Another node that computes the same of the same: the first that was seen."""
    if root.is_fused or root.layer.name.startswith("Random"):
        return None
    first, work = _first.setdefault(graph, {}), _work(root)
    try:
        twin = first.get(work)
    except TypeError:  # attributes that a user or a pack made of lists
        return None
    if twin is not None and twin is not root and graph.holds(twin) and _work(twin) == work:
        return twin
    first[work] = root
    return None


def _twin_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 4])
    halves = [
        net.add_layer("tactix.Mul", [x, net.add_constant(np.float32(0.5))])[0] for _ in range(2)
    ]
    exps = [net.add_layer("tactix.Exp", [h])[0] for h in halves]
    net.mark_output(
        net.add_layer("tactix.Sub", [exps[0], net.add_layer("tactix.Neg", [exps[1]])[0]])[0], "y"
    )


RULES = (
    *(_neutral_rule(name, number) for name, number in NEUTRAL),
    Rule(
        "tactix.power",
        P.tactix.Pow(var("x"), const("c")),
        _power,
        _power_when,
        benefit=50,
        numerics="reassociates",
        example=_power_example,
    ),
    Rule(
        "tactix.constant_choice",
        P.tactix.Where(const("c"), var("a"), var("b")),
        _constant_choice,
        lambda c: uniform(c) is not None,
        benefit=50,
        example=_choice_example,
    ),
    Rule(
        "tactix.same_cast",
        P.tactix.Cast(var("x")),
        lambda x: x,
        _same_cast,
        benefit=60,
        example=_cast_example,
    ),
    Rule(
        "tactix.merge_equal",
        anything(),
        lambda root, graph: tuple(_twin(root, graph).outputs),  # type: ignore[union-attr]
        lambda root, graph: _twin(root, graph) is not None,
        benefit=40,
        example=_twin_example,
    ),
)
