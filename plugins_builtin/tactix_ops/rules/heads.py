"""Attention over heads that lie side by side in the rows of tokens: no transposes, one product for
q, k and v, or for k and v of other tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tactix.base.dims import mod, prod
from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import ANY, Op, P, Rule, any_of, const, literal, var
from tactix_ops.rules.facts import again

T = P.tactix
TURN = (0, 2, 1, 3)
"""(batch, sequence, heads, dim) to (batch, heads, sequence, dim), and back."""

# -- transposes -----------------------------------------------------------------------------------

_Q, _K, _V = (T.Transpose(var(x)) >> f"turned_{x}" for x in "qkv")


def _turned_when(root: Node, turned_q: Node, turned_k: Node, turned_v: Node) -> bool | str:
    if root.attrs.keys is not None:
        return "some of the keys count"
    if any(n.attrs.perm[-1:] != (3,) for n in (turned_q, turned_k, turned_v)):
        return "the heads' elements do not lie side by side"
    q, k, v = (n.outputs[0].spec.shape for n in (turned_q, turned_k, turned_v))
    known = all(isinstance(d, int) and d for shape in (q, k, v) for d in shape[1::2])
    if not known or not q[0] == k[0] == v[0]:
        return "the heads are not known, or the batch differs"
    return True if k[1] == v[1] and mod(q[1], k[1]) == 0 else "queries are repeated"


def _flat(turned: Node) -> Op:
    """Rows of tokens; where the Transpose is TURN, what it reads as it lies."""
    b, heads, s, dim = turned.outputs[0].spec.shape
    x = T.Transpose(turned.given[0], perm=tuple(turned.attrs.perm[i] for i in TURN))
    return T.Reshape(x, shape=(b, s, heads * dim))


def _tokens(root: Node, turned_q: Node, turned_k: Node, turned_v: Node) -> Op:
    a, (b, heads, s, dim) = root.attrs, turned_q.outputs[0].spec.shape
    _, own, _, value_dim = turned_v.outputs[0].spec.shape
    y = T.TokenAttention(
        *map(_flat, (turned_q, turned_k, turned_v)),
        *root.inputs[3:],
        heads=heads,
        dim=dim,
        value_dim=value_dim,
        scale=a.scale,
        nan_to_zero=a.nan_to_zero,
        key_heads=None if own == heads else own,
    )
    rows = T.Reshape(y, shape=(b, s, heads, value_dim))
    return T.Transpose(rows, perm=TURN)


def _tokens_example(net: Any) -> None:
    q = net.add_input("q", "f32", [3, "n", 6, 4])
    k, v = (net.add_input(name, "f32", ["n", 5, 2, dim]) for name, dim in (("k", 4), ("v", 6)))
    turns = ((q, (1, 2, 0, 3)), (k, TURN), (v, TURN))
    turned = [net.add_layer("tactix.Transpose", [x], perm=perm)[0] for x, perm in turns]
    mask = net.add_input("mask", "f32", ["n", 1, 3, 5])
    (y,) = net.add_layer("tactix.Attention", [*turned, mask], scale=0.5)
    net.mark_output(net.add_layer("tactix.Transpose", [y], perm=TURN)[0], "y")


# -- products ------------------------------------------------------------------------------------


def product(letter: str, x: str = "x") -> Any:
    """Of x, with constant weights and perhaps a bias."""
    made = T.MatMul(var(x), const(f"w{letter}"))
    return any_of(T.Add(made, const(f"b{letter}")), made)


def _product_of_rows(letter: str, x: str = "x") -> Any:
    """The same, its rows perhaps seen in another shape, as of windows of an image."""
    return any_of(product(letter, x), T.Reshape(product(letter, x), shape=ANY))


def why_not_joined(root: Node, weights: Sequence[Value], biases: Sequence[Value | None]) -> str:
    """Why products with those weights and biases that attention reads cannot be one; or nothing."""
    if any(w.spec.rank != 2 for w in weights) or any(root.attrs.columns):
        return "the weights are no matrices"
    fit = all(
        b is None or b.spec.shape[-1:] == w.spec.shape[1:]
        for w, b in zip(weights, biases, strict=True)
    )
    rows = {b.spec.shape[:-1] for b in biases if b is not None if prod(b.spec.shape[:-1]) != 1}
    return "" if fit and len(rows) < 2 else "a bias does not fit the columns of its weights"


def joined_product(x: Value, weights: Sequence[Value], biases: Sequence[Value | None]) -> Op:
    """Template: one product with all columns of the weights; where there is no bias it is 0."""
    y = T.MatMul(x, literal(np.concatenate([w.array for w in weights], axis=1)))
    return with_biases(y, weights, biases)


def with_biases(y: Op, weights: Sequence[Value], biases: Sequence[Value | None]) -> Op:
    """Template: the joined product and the bias of each of its parts."""
    if all(b is None for b in biases):
        return y
    parts = [
        np.zeros(w.array.shape[1], w.array.dtype) if b is None else b.array
        for w, b in zip(weights, biases, strict=True)
    ]
    rows = np.broadcast_shapes(*(p.shape[:-1] for p in parts))
    wide = [np.broadcast_to(p, (*rows, p.shape[-1])) for p in parts]
    return T.Add(y, literal(np.concatenate(wide, axis=-1)))


def first_columns(weights: Sequence[Value]) -> tuple[int, ...]:
    """Where the columns of each of them begin in the joined product."""
    k, v = (int(n) for n in np.cumsum([w.array.shape[1] for w in weights[:2]]))
    return 0, k, v


def _joined_when(
    root: Node,
    wq: Value,
    wk: Value,
    wv: Value,
    bq: Value | None = None,
    bk: Value | None = None,
    bv: Value | None = None,
) -> bool | str:
    weights = (wq, wk, wv)
    if not are_columns(root.given[:3], weights):
        return "columns are seen as rows"
    return why_not_joined(root, weights, (bq, bk, bv)) or True


def are_columns(parts: Sequence[Value], weights: Sequence[Value]) -> bool:
    """Whether rows of products are read whole, and as many of each."""
    widths = [x.spec.shape[2] for x in parts]
    rows = {x.spec.shape[:2] for x in parts}
    return len(rows) == 1 and widths == [w.spec.shape[-1] for w in weights]


def in_rows(y: Op, like: Value, weights: Sequence[Value]) -> Op:
    """Template: the joined product in the rows of what was read."""
    return T.Reshape(y, shape=(*like.spec.shape[:2], sum(w.array.shape[1] for w in weights)))


def _joined(
    root: Node,
    x: Value,
    wq: Value,
    wk: Value,
    wv: Value,
    bq: Value | None = None,
    bk: Value | None = None,
    bv: Value | None = None,
) -> Op:
    weights = (wq, wk, wv)
    y = in_rows(joined_product(x, weights, (bq, bk, bv)), root.given[0], weights)
    return again(root, [y, y, y, *root.inputs[3:]], columns=first_columns(weights))


def _joined_keys_when(
    root: Node,
    x: Value,
    other: Value,
    wk: Value,
    wv: Value,
    bk: Value | None = None,
    bv: Value | None = None,
) -> bool | str:
    if other is x:
        return "queries are of the same product"
    if not are_columns(root.given[1:3], (wk, wv)):
        return "columns are seen as rows"
    return why_not_joined(root, (wk, wv), (bk, bv)) or True


def _joined_keys(
    root: Node,
    x: Value,
    wk: Value,
    wv: Value,
    bk: Value | None = None,
    bv: Value | None = None,
) -> Op:
    y = in_rows(joined_product(x, (wk, wv), (bk, bv)), root.given[1], (wk, wv))
    columns = (0, 0, int(wk.array.shape[1]))
    return again(root, [root.inputs[0], y, y, *root.inputs[3:]], columns=columns)


def _joined_example(net: Any, tokens: str = "x") -> None:
    """``tokens``: those that k and v are of."""
    rng = np.random.default_rng(9)
    own = {name: net.add_input(name, "f32", ["n", 3, 5]) for name in dict.fromkeys(("x", tokens))}
    parts = []
    for x, width in ((own["x"], 8), (own[tokens], 8), (own[tokens], 12)):
        w, b = (
            net.add_constant(rng.standard_normal(s, dtype=np.float32))
            for s in ((5, width), (width,))
        )
        parts.append(net.add_layer("tactix.Add", [net.add_layer("tactix.MatMul", [x, w])[0], b])[0])
    net.mark_output(
        net.add_layer("tactix.TokenAttention", parts, heads=2, dim=4, value_dim=6, scale=0.5)[0],
        "y",
    )


# -- columns -------------------------------------------------------------------------------------


def _source(x: Value) -> tuple[Value, int] | None:
    """The tensor of which ``x``, or what a Reshape with the same columns makes it of, is some
    columns; and the first of them.
    """
    if x.spec.rank != 3:
        return None
    p = x.producer
    flattened = p is not None and p.layer.name == "Reshape"
    if p is not None and flattened and p.given[0].spec.shape[-1:] == x.spec.shape[-1:]:
        return _columns_of(p.given[0])
    return _columns_of(x)


def _columns_of(x: Value) -> tuple[Value, int] | None:
    """The tensor of whose last axis a Slice or a Split took this part, and where it begins."""
    p, last = x.producer, x.spec.rank - 1
    if p is None or p.layer.name not in ("Slice", "Split"):
        return None
    (whole,), a = p.given[:1], p.attrs
    if p.layer.name == "Split":
        begins = a.sizes[: x.index]
        known = a.axis in (-1, last) and all(isinstance(n, int) for n in begins)
        return (whole, sum(begins)) if known else None
    axes = (i % x.spec.rank for i in a.axes)
    ranges = dict(zip(axes, zip(a.begins, a.steps, strict=True), strict=True))
    begin, step = ranges.pop(last, (0, 1))
    plain = step == 1 and isinstance(begin, int) and whole.spec.shape[:-1] == x.spec.shape[:-1]
    return (whole, begin) if plain and all(r == (0, 1) for r in ranges.values()) else None


def _columns(root: Node) -> Op:
    found = [_source(x) or (x, 0) for x in root.given[:3]]
    columns = tuple(old + new for old, (_, new) in zip(root.attrs.columns, found, strict=True))
    rows = [_as_rows(whole, x) for x, (whole, _) in zip(root.given[:3], found, strict=True)]
    return again(root, [*rows, *root.inputs[3:]], columns=columns)


def _as_rows(whole: Value, part: Value) -> Any:
    """Template: the tensor in the rows of its part."""
    shape = (*part.spec.shape[:2], whole.spec.shape[-1])
    return whole if whole.spec.shape == shape else T.Reshape(whole, shape=shape)


def _columns_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 3, 21])
    q, rest = net.add_layer("tactix.Split", [x], axis=-1, sizes=(8, 13))
    (v,) = net.add_layer("tactix.Slice", [rest], begins=(1,), sizes=(12,), axes=(2,), steps=(1,))
    net.mark_output(
        net.add_layer("tactix.TokenAttention", [q, q, v], heads=2, dim=4, value_dim=6)[0], "y"
    )


RULES = (
    Rule(
        "tactix.attention_of_tokens",
        T.Attention(_Q, _K, _V),
        _tokens,
        _turned_when,
        benefit=30,
        example=_tokens_example,
    ),
    Rule(
        "tactix.attention_products",
        T.TokenAttention(*map(_product_of_rows, "qkv")),
        _joined,
        _joined_when,
        benefit=30,
        example=_joined_example,
    ),
    Rule(
        "tactix.attention_key_products",
        T.TokenAttention(
            _product_of_rows("q", "other"), _product_of_rows("k"), _product_of_rows("v")
        ),
        _joined_keys,
        _joined_keys_when,
        benefit=30,
        example=lambda net: _joined_example(net, "other"),
    ),
    Rule(
        "tactix.attention_columns",
        T.TokenAttention(var("q"), var("k"), var("v")),
        _columns,
        lambda root: any(_source(x) for x in root.given[:3]),
        benefit=30,
        example=_columns_example,
    ),
)
