"""Rotary embeddings as models spell them: halves of each head are turned into each other, where
they lie.

The products of cosines and sines, of whole rows or of halves, slices and a Concat become one layer,
above the Transpose of heads, so that attention reads rows of tokens; and one for q and k of a
product that is joined.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tactix.base.dims import Dim
from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import ANY, Op, P, Rule, any_of, var
from tactix_ops.rules.facts import again
from tactix_ops.rules.heads import TURN, first_columns, joined_product, product, why_not_joined

T = P.tactix
_X = var("x")
_SLICES = T.Concat(T.Neg(T.Slice(_X) >> "second"), T.Slice(_X) >> "first") >> "joined"
_SPLIT = T.Concat(T.Neg((T.Split(_X) >> "halves").out(1)), (T.Split(_X) >> "halves").out(0))
_TURNED = any_of(_SLICES, _SPLIT >> "joined")


def _turned_parts(first: Op, second: Op) -> Op:
    """Both halves of the result, each of both halves of x."""
    cosines, sines = var("cosines"), var("sines")
    real = T.Sub(T.Mul(first, cosines), T.Mul(second, sines))
    imaginary = T.Add(T.Mul(first, sines), T.Mul(second, cosines))
    return T.Concat(real, imaginary)


_BY_PARTS = any_of(
    _turned_parts((T.Split(_X) >> "halves").out(0), (T.Split(_X) >> "halves").out(1)),
    _turned_parts(T.Slice(_X) >> "first", T.Slice(_X) >> "second"),
)


def _range(node: Node, rank: int) -> tuple[Dim, Dim] | None:
    """Begin and size along the last axis of a Slice that leaves all others whole."""
    a = node.attrs
    if tuple(axis % rank for axis in a.axes) != (rank - 1,) or a.steps != (1,):
        return None
    return a.begins[0], a.sizes[0]


def _halves(
    x: Value, first: Node | None, second: Node | None, halves: Node | None
) -> tuple[object, object] | None:
    """Begin and size of the first part and of the second."""
    rank = x.spec.rank
    if first is not None and second is not None:
        return _range(first, rank), _range(second, rank)
    assert halves is not None
    sizes = halves.attrs.sizes
    if halves.attrs.axis % rank != rank - 1 or len(sizes) != 2:
        return None
    return (0, sizes[0]), (sizes[0], sizes[1])


def _when(
    root: Node,
    x: Value,
    cosines: Value,
    sines: Value,
    joined: Node,
    first: Node | None = None,
    second: Node | None = None,
    halves: Node | None = None,
) -> bool | str:
    return _turns(root, x, cosines, sines, joined, (first, second, halves))


def _when_parts(
    root: Node,
    x: Value,
    cosines: Value,
    sines: Value,
    first: Node | None = None,
    second: Node | None = None,
    halves: Node | None = None,
) -> bool | str:
    return _turns(root, x, cosines, sines, root, (first, second, halves), tables_of=2)


def _turns(
    root: Node,
    x: Value,
    cosines: Value,
    sines: Value,
    joined: Node,
    parts: tuple[Node | None, Node | None, Node | None],
    tables_of: int = 1,
) -> bool | str:
    """Whether halves are joined, and tables have rows of the last axis, or of that part of it."""
    size, rank = x.spec.shape[-1], x.spec.rank
    if not isinstance(size, int) or size % 2 or joined.attrs.axis % rank != rank - 1:
        return "the last axis has no two halves"
    half = size // 2
    if _halves(x, *parts) != ((0, half), (half, half)):
        return "what is joined are no halves"
    row, tables = size // tables_of, (cosines.spec, sines.spec)
    whole = all(t.rank and t.shape[-1] == row and t.dtype is x.spec.dtype for t in tables)
    same = root.outputs[0].spec.shape == x.spec.shape
    return True if whole and same else "cosines and sines are no rows"


def _example(net: Any, split: bool) -> None:
    x = net.add_input("x", "f32", ["n", 2, 3, 8])
    if split:
        first, second = net.add_layer("tactix.Split", [x], axis=-1, sizes=(4, 4))
    else:
        first, second = (
            net.add_layer("tactix.Slice", [x], begins=(b,), sizes=(4,), axes=(3,), steps=(1,))[0]
            for b in (0, 4)
        )
    (low,) = net.add_layer("tactix.Neg", [second])
    (turned,) = net.add_layer("tactix.Concat", [low, first], axis=-1)
    cosines, sines = (net.add_input(name, "f32", [3, 8]) for name in ("cos", "sin"))
    (a,) = net.add_layer("tactix.Mul", [x, cosines])
    (b,) = net.add_layer("tactix.Mul", [turned, sines])
    net.mark_output(net.add_layer("tactix.Add", [a, b])[0], "y")


def _both_halves(x: Value, cosines: Value, sines: Value) -> Op:
    tables = (T.Concat(t, t, axis=-1) for t in (cosines, sines))
    return T.RotaryEmbedding(x, *tables)


def _parts_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 2, 3, 8])
    first, second = net.add_layer("tactix.Split", [x], axis=-1, sizes=(4, 4))
    cosines, sines = (net.add_input(name, "f32", [3, 4]) for name in ("cos", "sin"))

    def times(a: Any, b: Any) -> Any:
        return net.add_layer("tactix.Mul", [a, b])[0]

    (real,) = net.add_layer("tactix.Sub", [times(first, cosines), times(second, sines)])
    (imaginary,) = net.add_layer("tactix.Add", [times(first, sines), times(second, cosines)])
    net.mark_output(net.add_layer("tactix.Concat", [real, imaginary], axis=-1)[0], "y")


# -- above the Transpose ---------------------------------------------------------------------------


def _rows_of(table: Value) -> Op:
    """Template: a table of (batch, heads, sequence, dim) beside rows of tokens."""
    shape = (*(1,) * (4 - table.spec.rank), *table.spec.shape)
    return T.Transpose(T.Reshape(table, shape=shape), perm=TURN)


def _below(x: Value, cosines: Value, sines: Value) -> Op:
    return T.Transpose(T.RotaryEmbedding(x, _rows_of(cosines), _rows_of(sines)), perm=TURN)


def _below_example(net: Any) -> None:
    (x,) = net.add_layer("tactix.Transpose", [net.add_input("x", "f32", ["n", 3, 2, 8])], perm=TURN)
    cosines, sines = (net.add_input(name, "f32", [3, 8]) for name in ("cos", "sin"))
    net.mark_output(net.add_layer("tactix.RotaryEmbedding", [x, cosines, sines])[0], "y")


# -- of one product --------------------------------------------------------------------------------


def turned_product(letter: str, made: Any) -> Any:
    """The columns of what makes q or k, turned as heads."""
    x = T.Reshape(made, shape=ANY)
    turned = T.RotaryEmbedding(x, var(f"cosines_{letter}"), var(f"sines_{letter}"))
    return T.Reshape(turned >> f"turned_{letter}", shape=ANY)


def _same(a: Value, b: Value) -> bool:
    """Whether two tables are one, perhaps seen twice in the same way."""
    if a is b or a.spec.shape != b.spec.shape:
        return a is b
    if a.const is not None and b.const is not None:
        return bool(np.array_equal(a.array, b.array))
    p, q = a.producer, b.producer
    if p is None or q is None or p.layer.name != "Reshape" or q.layer.name != "Reshape":
        return False
    return _same(p.given[0], q.given[0])


def unlike_turned(root: Node, turned_q: Node, turned_k: Node) -> str:
    """Why the heads of q and k that attention reads cannot be turned side by side, before those of
    v; empty if they can.
    """
    (heads, dim), (own, _), (_, value_dim) = root.attrs.parts
    if value_dim != dim:
        return "values have other columns"
    for turned, count in ((turned_q, heads), (turned_k, own)):
        if turned.outputs[0].spec.shape[2:] != (count, dim):
            return "other heads are turned"
        if any(t.spec.rank > 1 and t.spec.shape[-2] != 1 for t in turned.given[1:]):
            return "each head is turned by angles of its own"
    alike = all(map(_same, turned_q.given[1:], turned_k.given[1:]))
    return "" if alike else "q and k are turned by other angles"


def _joined_when(
    root: Node,
    turned_q: Node,
    turned_k: Node,
    wq: Value,
    wk: Value,
    wv: Value,
    bq: Value | None = None,
    bk: Value | None = None,
    bv: Value | None = None,
) -> bool | str:
    why = unlike_turned(root, turned_q, turned_k)
    return why or why_not_joined(root, (wq, wk, wv), (bq, bk, bv)) or True


def turned_heads(y: Op, root: Node, turned_q: Node) -> Op:
    """Template: the columns of a product of all heads side by side, of which those of q and k are
    turned.
    """
    batch, s, _ = root.given[0].spec.shape
    (heads, dim), (own, _), _ = root.attrs.parts
    rows = T.Reshape(y, shape=(batch, s, heads + 2 * own, dim))
    turned = T.RotaryEmbedding(rows, *turned_q.given[1:], heads=heads + own)
    return T.Reshape(turned, shape=(batch, s, (heads + 2 * own) * dim))


def _joined(
    root: Node,
    x: Value,
    turned_q: Node,
    wq: Value,
    wk: Value,
    wv: Value,
    bq: Value | None = None,
    bk: Value | None = None,
    bv: Value | None = None,
) -> Op:
    weights = (wq, wk, wv)
    parts = turned_heads(joined_product(x, weights, (bq, bk, bv)), root, turned_q)
    return again(root, [parts, parts, parts, *root.inputs[3:]], columns=first_columns(weights))


def _joined_example(net: Any) -> None:
    rng = np.random.default_rng(9)
    x = net.add_input("x", "f32", ["n", 3, 5])
    n = x.spec.shape[0]
    cosines, sines = (net.add_input(name, "f32", [3, 1, 8]) for name in ("cos", "sin"))
    parts = []
    for heads, turns in ((4, True), (2, True), (2, False)):
        w = net.add_constant(rng.standard_normal((5, heads * 8), dtype=np.float32))
        (y,) = net.add_layer("tactix.MatMul", [x, w])
        if turns:
            (y,) = net.add_layer("tactix.Reshape", [y], shape=(n, 3, heads, 8))
            (y,) = net.add_layer("tactix.RotaryEmbedding", [y, cosines, sines])
            (y,) = net.add_layer("tactix.Reshape", [y], shape=(n, 3, heads * 8))
        parts.append(y)
    attrs = {"heads": 4, "key_heads": 2, "dim": 8, "value_dim": 8, "scale": 0.5}
    net.mark_output(net.add_layer("tactix.TokenAttention", parts, **attrs)[0], "y")


RULES = (
    Rule(
        "tactix.rotary",
        T.Add(T.Mul(_X, var("cosines")), T.Mul(_TURNED, var("sines"))),
        lambda x, cosines, sines: T.RotaryEmbedding(x, cosines, sines),
        _when,
        benefit=60,
        example=lambda net: _example(net, split=False),
    ),
    Rule(
        "tactix.rotary_by_parts",
        _BY_PARTS,
        _both_halves,
        _when_parts,
        benefit=60,
        example=_parts_example,
    ),
    Rule(
        "tactix.rotary_of_tokens",
        T.RotaryEmbedding(T.Transpose(_X, perm=TURN), var("cosines"), var("sines")),
        _below,
        benefit=30,
        example=_below_example,
    ),
    Rule(
        "tactix.rotary_of_one_product",
        T.TokenAttention(
            *(turned_product(letter, product(letter)) for letter in "qk"), product("v")
        ),
        _joined,
        _joined_when,
        benefit=30,
        example=_joined_example,
    ),
)
