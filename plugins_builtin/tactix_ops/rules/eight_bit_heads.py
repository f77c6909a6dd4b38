"""Products of 8 bits that attention reads are one, as those of floats are (``heads``, ``rotary``):
their columns lie side by side, with the factors and terms of each.

For GPUs: no measurement of it on processors is on record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tactix.base.dtypes import DType
from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import ANY, Literal, Op, P, Rule, any_of, const, literal, var
from tactix_ops.rules.facts import Array, again
from tactix_ops.rules.heads import (
    are_columns,
    first_columns,
    in_rows,
    why_not_joined,
    with_biases,
)
from tactix_ops.rules.rotary import turned_heads, turned_product, unlike_turned

T = P.tactix


@dataclass(frozen=True)
class EightBitProduct:
    """A product of 8 bits with what makes numbers of its sums: a factor, and perhaps a bias."""

    product: Node
    factor: Value
    bias: Value | None

    @classmethod
    def of(cls, part: Value) -> EightBitProduct:
        """What ``_product`` has matched there."""
        n, bias = part.producer, None
        assert n is not None
        if n.layer.name == "Reshape":
            n = _other(n)
        if n.layer.name == "Add":
            bias, n = _constant(n), _other(n)
        factor, n = _constant(n), _other(n)
        return cls(_other(n) if n.layer.name == "Cast" else n, factor, bias)

    @property
    def weights(self) -> Value:
        """A constant matrix."""
        return self.product.given[1]

    @property
    def term(self) -> Array:
        """What the product itself adds: a number, or one for each column."""
        return self.product.given[2].array if len(self.product.given) > 2 else np.int32(0)


def _constant(node: Node) -> Value:
    return next(v for v in node.given if v.const is not None)


def _other(node: Node) -> Node:
    """What makes the operand that is no constant."""
    made = next(v.producer for v in node.given if v.const is None)
    assert made is not None
    return made


def _product(letter: str, x: str = "x") -> Any:
    """Of x, with constant weights, times a constant, and perhaps a bias."""
    operands = (var(x), const(f"w{letter}"))
    sums = any_of(T.Float8MatMul(*operands), T.Cast(T.IntegerMatMul(*operands), to=DType.FP32))
    scaled = T.Mul(sums, const(f"f{letter}"))
    return any_of(T.Add(scaled, const(f"b{letter}")), scaled)


def _product_of_rows(letter: str, x: str = "x") -> Any:
    """The same, its rows perhaps seen in another shape, as of windows of an image."""
    return any_of(_product(letter, x), T.Reshape(_product(letter, x), shape=ANY))


def _when(root: Node, parts: Sequence[Value]) -> bool | str:
    """Whether products that attention reads can be one."""
    made = [EightBitProduct.of(part) for part in parts]
    if not are_columns(parts, [m.weights for m in made]):
        return "columns are seen as rows"
    return _why_apart(root, made) or True


def _why_apart(root: Node, made: Sequence[EightBitProduct]) -> str:
    """Why the products cannot be one, wherever their columns are read; empty if they can."""
    if len({(m.product.layer.key, m.weights.spec.dtype) for m in made}) > 1:
        return "the products are of several kinds"
    if any(v.const is None for m in made for v in m.product.given[1:]):
        return "a term is no constant"
    if not all(_is_of_columns(m.factor, m.weights) for m in made):
        return "a factor is no number, and none for each column"
    return why_not_joined(root, [m.weights for m in made], [m.bias for m in made])


def _is_of_columns(factor: Value, w: Value) -> bool:
    return factor.array.size in (1, w.array.shape[1]) and factor.spec.rank < 2


def _all_columns(parts: Sequence[Array], made: Sequence[EightBitProduct]) -> Literal:
    """Template: the numbers of each product, for each of its columns."""
    widths = [m.weights.array.shape[1] for m in made]
    return literal(
        np.concatenate([np.broadcast_to(a, n) for a, n in zip(parts, widths, strict=True)])
    )


def _joined(x: Value, made: Sequence[EightBitProduct]) -> Op:
    """Template: one product with all columns."""
    weights = [m.weights for m in made]
    matrix = literal(np.concatenate([w.array for w in weights], axis=1))
    if made[0].product.layer.name == "Float8MatMul":
        sums = T.Float8MatMul(x, matrix)
    else:
        terms = [m.term for m in made]
        own = [_all_columns(terms, made)] if any(np.any(t) for t in terms) else []
        sums = T.Cast(T.IntegerMatMul(x, matrix, *own), to=DType.FP32)
    scaled = T.Mul(sums, _all_columns([m.factor.array for m in made], made))
    return with_biases(scaled, weights, [m.bias for m in made])


def _three(root: Node, x: Value) -> Op:
    made = [EightBitProduct.of(part) for part in root.given[:3]]
    weights = [m.weights for m in made]
    y = in_rows(_joined(x, made), root.given[0], weights)
    return again(root, [y, y, y, *root.inputs[3:]], columns=first_columns(weights))


def _keys_when(root: Node, x: Value, other: Value) -> bool | str:
    return "queries are of the same product" if other is x else _when(root, root.given[1:3])


def _keys(root: Node, x: Value) -> Op:
    made = [EightBitProduct.of(part) for part in root.given[1:3]]
    weights = [m.weights for m in made]
    y = in_rows(_joined(x, made), root.given[1], weights)
    columns = (0, 0, int(weights[0].array.shape[1]))
    return again(root, [root.inputs[0], y, y, *root.inputs[3:]], columns=columns)


# -- of which q and k are turned by rotary embeddings ----------------------------------------------


def _with_turned(root: Node, turned_q: Node, turned_k: Node) -> list[EightBitProduct]:
    """The products of q, k and v."""
    parts = (turned_q.given[0], turned_k.given[0], root.given[2])
    return [EightBitProduct.of(part) for part in parts]


def _turned_when(root: Node, turned_q: Node, turned_k: Node) -> bool | str:
    why = unlike_turned(root, turned_q, turned_k)
    return why or _why_apart(root, _with_turned(root, turned_q, turned_k)) or True


def _turned(root: Node, x: Value, turned_q: Node, turned_k: Node) -> Op:
    made = _with_turned(root, turned_q, turned_k)
    y = turned_heads(_joined(x, made), root, turned_q)
    columns = first_columns([m.weights for m in made])
    return again(root, [y, y, y, *root.inputs[3:]], columns=columns)


def _turned_example(net: Any) -> None:
    rng = np.random.default_rng(9)
    x = net.add_input("x", "i8", ["n", 3, 5])
    n = x.spec.shape[0]
    tables = [net.add_input(name, "f32", [3, 1, 8]) for name in ("cos", "sin")]
    parts = []
    for heads, turns in ((4, True), (2, True), (2, False)):
        w = net.add_constant(rng.integers(-127, 128, (5, heads * 8)).astype(np.int8))
        (y,) = net.add_layer("tactix.IntegerMatMul", [x, w])
        (y,) = net.add_layer("tactix.Cast", [y], to=DType.FP32)
        (y,) = net.add_layer("tactix.Mul", [y, net.add_constant(np.float32(2**-9))])
        if turns:
            (y,) = net.add_layer("tactix.Reshape", [y], shape=(n, 3, heads, 8))
            (y,) = net.add_layer("tactix.RotaryEmbedding", [y, *tables])
            (y,) = net.add_layer("tactix.Reshape", [y], shape=(n, 3, heads * 8))
        parts.append(y)
    attrs = {"heads": 4, "key_heads": 2, "dim": 8, "value_dim": 8, "scale": 0.5}
    net.mark_output(net.add_layer("tactix.TokenAttention", parts, **attrs)[0], "y")


def _example(net: Any, tokens: str = "x") -> None:
    """``tokens``: those that k and v are of."""
    rng = np.random.default_rng(9)
    own = {name: net.add_input(name, "i8", ["n", 3, 5]) for name in dict.fromkeys(("x", tokens))}
    parts = []
    for x, width in ((own["x"], 8), (own[tokens], 8), (own[tokens], 12)):
        w = net.add_constant(rng.integers(-127, 128, (5, width)).astype(np.int8))
        factor = net.add_constant(np.full(1 if width == 8 else width, 2**-9, np.float32))
        (y,) = net.add_layer("tactix.IntegerMatMul", [x, w])
        (y,) = net.add_layer("tactix.Cast", [y], to=DType.FP32)
        parts.append(net.add_layer("tactix.Mul", [y, factor])[0])
    attrs = {"heads": 2, "dim": 4, "value_dim": 6, "scale": 0.5}
    net.mark_output(net.add_layer("tactix.TokenAttention", parts, **attrs)[0], "y")


RULES = (
    Rule(
        "tactix.attention_products_of_eight_bits",
        T.TokenAttention(*map(_product_of_rows, "qkv")),
        _three,
        lambda root: _when(root, root.given[:3]),
        benefit=30,
        example=_example,
        device="cuda",
    ),
    Rule(
        "tactix.attention_key_products_of_eight_bits",
        T.TokenAttention(
            _product_of_rows("q", "other"), _product_of_rows("k"), _product_of_rows("v")
        ),
        _keys,
        _keys_when,
        benefit=30,
        example=lambda net: _example(net, "other"),
        device="cuda",
    ),
    Rule(
        "tactix.rotary_of_one_product_of_eight_bits",
        T.TokenAttention(
            *(turned_product(letter, _product(letter)) for letter in "qk"), _product("v")
        ),
        _turned,
        _turned_when,
        benefit=30,
        example=_turned_example,
        device="cuda",
    ),
)
