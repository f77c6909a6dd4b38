"""Scaled dot-product attention as models spell it out, and what its inputs are spared."""

from __future__ import annotations

from typing import Any

import numpy as np

from tactix.base.dims import Shape, prod, sym
from tactix.base.dtypes import DType
from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import ANY, Op, P, Rule, any_of, const, literal, var
from tactix_ops.rules.facts import again, scalar_const, uniform

T = P.tactix
NEVER = -1e30
"""A score at or below which a key has no weight, whatever is added."""
WIDEST = 256
"""Columns of a head up to which batches of products are taken for attention: at 512, with 1,024
rows, a processor's products by themselves took 0.89 of its time (two cores of Zen 4).
"""

# -- the products ---------------------------------------------------------------------------------

_RAW = T.MatMul(var("q"), var("kt")) >> "scores"
_SCALED = any_of(
    T.Mul(_RAW, const("scale")) >> "scaling", T.Div(_RAW, const("scale")) >> "scaling", _RAW
)
_MASKED = any_of(
    T.Add(T.Add(_SCALED, var("mask")), var("bias")),
    T.Add(_SCALED, var("mask")),
    T.Where(var("mask"), _SCALED, const("never")),
    _SCALED,
)
_WEIGHTS = T.Softmax(_MASKED) >> "softmax"
_GUARDED = T.Where(T.IsNaN(_WEIGHTS), const("zero"), _WEIGHTS)


def _shapes_fit(q: Value, kt: Value, v: Value) -> bool:
    ranks = q.spec.rank == kt.spec.rank == v.spec.rank >= 3
    return ranks and q.spec.shape[:-2] == kt.spec.shape[:-2] == v.spec.shape[:-2]


def _as_images(x: Any, shape: Shape) -> Any:
    """Template: q, k or v of that shape as (batch, heads, sequence, dim): of rank 3 as heads of one
    batch, of more than 4 with all axes before the heads' as one.
    """
    *outer, heads, rows, columns = shape
    return x if len(outer) == 1 else T.Reshape(x, shape=(prod(outer), heads, rows, columns))


def _keys(kt: Value) -> Any:
    """Template: what is transposed in the scores' product, as images."""
    *outer, columns, rows = kt.spec.shape
    rank = kt.spec.rank
    k = T.Transpose(kt, perm=(*range(rank - 2), rank - 1, rank - 2))
    return _as_images(k, (*outer, rows, columns))


def _outer_axes(mask: Value) -> Shape:
    """Those before its heads'."""
    return mask.spec.shape[:-3]


def _repeats_partly(mask: Value | None, q: Value) -> bool:
    """Whether it repeats along some of several axes before the heads': then they are not one."""
    if mask is None or q.spec.rank <= 4 or all(d == 1 for d in _outer_axes(mask)):
        return False
    return _outer_axes(mask) != q.spec.shape[:-3]


def _mask_of_images(mask: Value, q: Value) -> Any:
    """Template: a mask beside ``_as_images``."""
    if q.spec.rank == 4 or mask.spec.rank < 3:
        return mask
    return T.Reshape(mask, shape=(prod(_outer_axes(mask)), *mask.spec.shape[-3:]))


def _when(
    q: Value,
    kt: Value,
    v: Value,
    softmax: Node,
    scores: Node,
    scale: Value | None = None,
    mask: Value | None = None,
    bias: Value | None = None,
    never: Value | None = None,
    zero: Value | None = None,
) -> bool | str:
    if not _shapes_fit(q, kt, v):
        return "it is not (batch, heads, sequence, dim) times the same"
    if q.spec.dtype is DType.FP64:
        return "no kernel knows attention of float64, but its products and softmax are known"
    columns = q.spec.shape[-1]
    if q.spec.rank == 3 and not (isinstance(columns, int) and columns <= WIDEST):
        return "products of so many columns are quicker by themselves"
    if softmax.attrs.axis not in (-1, q.spec.rank - 1):
        return "the softmax is along another axis"
    if any(_repeats_partly(m, q) for m in (mask, bias)):
        return "a mask repeats along some of the axes before the heads"
    fill = uniform(never)
    if (never is not None and (fill is None or fill > NEVER)) or (
        zero is not None and uniform(zero) != 0
    ):
        return "what replaces scores or weights is not what attention replaces them with"
    added = (mask, bias) if never is None else ()
    if any(m is not None and m.spec.dtype is not q.spec.dtype for m in added):
        return "the mask has another dtype"
    whole = softmax.inputs[0].spec.shape == scores.outputs[0].spec.shape  # type: ignore[union-attr]
    return (
        True
        if whole and (scale is None or scalar_const(scale) is not None)
        else "the scores are broadcast"
    )


def _attention(
    q: Value,
    kt: Value,
    v: Value,
    scale: Value | None = None,
    scaling: Node | None = None,
    mask: Value | None = None,
    bias: Value | None = None,
    never: Value | None = None,
    zero: Value | None = None,
) -> Op:
    """``mask`` is what is added to the scores, or beside ``never`` which of them stay."""
    number = 1.0
    if scale is not None and scaling is not None:
        c = scalar_const(scale)
        assert c is not None
        number = c if scaling.layer.name == "Mul" else 1 / c
    terms = [_mask_of_images(m, q) for m in (mask, bias) if m is not None]
    more: list[Any] = terms if len(terms) < 2 else [T.Add(*terms)]
    if never is not None:
        more = [T.Where(*terms, literal(np.zeros((), q.spec.dtype.numpy)), never)]
    given = (_as_images(q, q.spec.shape), _keys(kt), _as_images(v, v.spec.shape))
    y = T.Attention(*given, *more, scale=number, nan_to_zero=zero is not None)
    return y if q.spec.rank == 4 else T.Reshape(y, shape=(*q.spec.shape[:-1], v.spec.shape[-1]))


def _inputs(net: Any) -> tuple[Value, Value, Value]:
    """An example's q, transposed k, and v: 2 heads, 3 and 5 positions, dims 4 and 6."""
    q, k = net.add_input("q", "f32", ["n", 2, 3, 4]), net.add_input("k", "f32", ["n", 2, 5, 4])
    return (
        q,
        net.add_layer("tactix.Transpose", [k], perm=(0, 1, 3, 2))[0],
        net.add_input("v", "f32", ["n", 2, 5, 6]),
    )


def _number(net: Any, value: float) -> Value:
    return net.add_constant(np.float32(value))  # type: ignore[no-any-return]


def _guarded_example(net: Any) -> None:
    q, kt, v = _inputs(net)
    keep = net.add_input("keep", "bool", ["n", 1, 1, 5])
    (mask,) = net.add_layer("tactix.Where", [keep, _number(net, 0), _number(net, -np.inf)])
    (s,) = net.add_layer("tactix.Add", [net.add_layer("tactix.MatMul", [q, kt])[0], mask])
    (p,) = net.add_layer("tactix.Softmax", [s], axis=-1)
    (p,) = net.add_layer(
        "tactix.Where", [net.add_layer("tactix.IsNaN", [p])[0], _number(net, 0), p]
    )
    net.mark_output(net.add_layer("tactix.MatMul", [p, v])[0], "y")


# -- what the inputs are spared ------------------------------------------------------------------


def _factors(x: Any) -> Any:
    return any_of(T.Mul(x, const("c")) >> "factor", T.Div(x, const("c")) >> "factor")


def _factor_when(x: Value, c: Value) -> bool:
    number = scalar_const(c)
    return number not in (None, 0.0) and c.spec.rank <= x.spec.rank


def _scale(root: Node, c: Value, factor: Node) -> float:
    number = scalar_const(c)
    assert number is not None
    return float(
        root.attrs.scale * number if factor.layer.name == "Mul" else root.attrs.scale / number
    )


def _query_factor(root: Node, x: Value, c: Value, factor: Node, parted: Node | None = None) -> Op:
    q = x if parted is None else T.Reshape(x, shape=parted.attrs.shape)
    return again(root, [q, *root.inputs[1:]], scale=_scale(root, c, factor))


def _key_factor(
    root: Node,
    x: Value,
    c: Value,
    factor: Node,
    turn: Node | None = None,
    parted: Node | None = None,
) -> Op:
    k = x if turn is None else T.Transpose(x, perm=turn.attrs.perm)
    k = k if parted is None else T.Reshape(k, shape=parted.attrs.shape)
    return again(root, [root.inputs[0], k, *root.inputs[2:]], scale=_scale(root, c, factor))


def _attend(net: Any, q: Value, k: Value, v: Value, *mask: Value) -> None:
    net.mark_output(net.add_layer("tactix.Attention", [q, k, v, *mask], scale=0.5)[0], "y")


def _query_factor_example(net: Any) -> None:
    q, kt, v = _inputs(net)
    (q,) = net.add_layer("tactix.Div", [q, _number(net, 3)])
    _attend(net, q, net.add_layer("tactix.Transpose", [kt], perm=(0, 1, 3, 2))[0], v)


def _key_factor_example(net: Any) -> None:
    q, kt, v = _inputs(net)
    (kt,) = net.add_layer("tactix.Mul", [kt, _number(net, 0.25)])
    _attend(net, q, net.add_layer("tactix.Transpose", [kt], perm=(0, 1, 3, 2))[0], v)


def _without_mask(root: Node) -> Op:
    return again(root, root.inputs[:3])


def _zero_mask_example(net: Any) -> None:
    q, kt, v = _inputs(net)
    k = net.add_layer("tactix.Transpose", [kt], perm=(0, 1, 3, 2))[0]
    _attend(net, q, k, v, net.add_constant(np.zeros((1, 1, 3, 5), np.float32)))


def _narrow_mask(root: Node, mask: Value) -> Op:
    return again(root, [*root.inputs[:3], mask])


def _expanded_mask_example(net: Any) -> None:
    q, kt, v = _inputs(net)
    k = net.add_layer("tactix.Transpose", [kt], perm=(0, 1, 3, 2))[0]
    mask = net.add_input("mask", "f32", ["n", 1, 1, 5])
    _attend(net, q, k, v, net.add_layer("tactix.Expand", [mask], shape=(1, 2, 3, 5))[0])


def _first_keys_when(root: Node, cut_k: Node, cut_v: Node) -> bool | str:
    if root.attrs.keys is not None:
        return "it knows how many keys count"
    begins = all(
        (n.attrs.begins, n.attrs.steps) == ((0,), (1,)) and n.attrs.axes[0] in (2, -2)
        for n in (cut_k, cut_v)
    )
    if not begins or cut_k.attrs.sizes != cut_v.attrs.sizes:
        return "they are not the first rows of keys and values"
    return True


def _first_keys(root: Node, k: Value, v: Value, cut_k: Node) -> Op:
    return again(root, [root.inputs[0], k, v, *root.inputs[3:]], keys=cut_k.attrs.sizes[0])


def _repeated(letter: str) -> Any:
    """Heads of an operand, each several times, or a single one."""
    times = T.Expand(var(letter)) >> f"times_{letter}"
    return any_of(T.Reshape(times, shape=ANY), times)


def _own_heads(x: Value, times: Node) -> Shape | None:
    """Shape (batch, own heads, rows, dim) of what is repeated as (batch, own heads, times, rows,
    dim); or what a single head, read so often, has already.
    """
    shape, repeated = x.spec.shape, times.outputs[0].spec.shape
    at = len(shape) - 3
    if len(shape) not in (4, 5) or len(repeated) != len(shape) or shape[at] != 1:
        return None
    same = all(a == b for i, (a, b) in enumerate(zip(shape, repeated, strict=True)) if i != at)
    return (*shape[:2], *shape[-2:]) if same else None


def _shared_when(root: Node, k: Value, v: Value, times_k: Node, times_v: Node) -> bool | str:
    q = root.given[0].spec.shape
    for x, times, given in ((k, times_k, root.given[1]), (v, times_v, root.given[2])):
        own, repeated = _own_heads(x, times), times.outputs[0].spec.shape
        seen = (repeated[0], prod(repeated[1:-2]), *repeated[-2:])
        if own is None or seen != given.spec.shape or seen[:2] != q[:2]:
            return "the heads are not what is repeated"
        if not isinstance(own[1], int) or not isinstance(q[1], int):
            return "the heads are not known"
    return True


def _shared(root: Node, k: Value, v: Value, times_k: Node, times_v: Node) -> Op:
    few = [T.Reshape(x, shape=_own_heads(x, n)) for x, n in ((k, times_k), (v, times_v))]
    return again(root, [root.inputs[0], *few, *root.inputs[3:]])


def _shared_example(net: Any) -> None:
    q, k = net.add_input("q", "f32", ["n", 6, 3, 4]), net.add_input("k", "f32", ["n", 2, 5, 4])
    (apart,) = net.add_layer("tactix.Reshape", [k], shape=(sym("n"), 2, 1, 5, 4))
    (times,) = net.add_layer("tactix.Expand", [apart], shape=(1, 2, 3, 1, 1))
    (many,) = net.add_layer("tactix.Reshape", [times], shape=(sym("n"), 6, 5, 4))
    _attend(net, q, many, many, net.add_input("mask", "f32", [3, 5]))


def _first_keys_example(net: Any) -> None:
    q, kt, v = _inputs(net)
    k = net.add_layer("tactix.Transpose", [kt], perm=(0, 1, 3, 2))[0]
    first = {"begins": (0,), "sizes": (3,), "axes": (2,), "steps": (1,)}
    k, v = (net.add_layer("tactix.Slice", [x], **first)[0] for x in (k, v))
    _attend(net, q, k, v, net.add_input("mask", "f32", ["n", 1, 3, 3]))


def _zero_mask_when(root: Node) -> bool:
    return len(root.inputs) > 3 and uniform(root.inputs[3]) == 0.0


_Q, _K, _V, _X = var("q"), var("k"), var("v"), var("x")

_TURNED_FACTORS = T.Transpose(_factors(_X)) >> "turn"

RULES = (
    Rule(
        "tactix.attention",
        any_of(T.MatMul(_GUARDED, _V), T.MatMul(_WEIGHTS, _V)),
        _attention,
        _when,
        benefit=80,
        numerics="reassociates",
        example=_guarded_example,
    ),
    Rule(
        "tactix.attention_query_factor",
        any_of(T.Attention(_factors(_X)), T.Attention(T.Reshape(_factors(_X)) >> "parted")),
        _query_factor,
        _factor_when,
        benefit=40,
        numerics="reassociates",
        example=_query_factor_example,
    ),
    Rule(
        "tactix.attention_key_factor",
        any_of(
            T.Attention(_Q, _factors(_X)),
            T.Attention(_Q, _TURNED_FACTORS),
            T.Attention(_Q, T.Reshape(_factors(_X)) >> "parted"),
            T.Attention(_Q, T.Reshape(_TURNED_FACTORS) >> "parted"),
        ),
        _key_factor,
        _factor_when,
        benefit=40,
        numerics="reassociates",
        example=_key_factor_example,
    ),
    Rule(
        "tactix.attention_shared_heads",
        T.Attention(_Q, _repeated("k"), _repeated("v")),
        _shared,
        _shared_when,
        benefit=40,
        exclusive=False,
        example=_shared_example,
    ),
    Rule(
        "tactix.attention_first_keys",
        T.Attention(_Q, T.Slice(_K) >> "cut_k", T.Slice(_V) >> "cut_v"),
        _first_keys,
        _first_keys_when,
        benefit=40,
        exclusive=False,
        device="cpu",
        example=_first_keys_example,
    ),
    Rule(
        "tactix.attention_zero_mask",
        T.Attention(_Q, _K, _V),
        _without_mask,
        _zero_mask_when,
        benefit=40,
        example=_zero_mask_example,
    ),
    Rule(
        "tactix.attention_expanded_mask",
        T.Attention(_Q, _K, _V, T.Expand(var("mask"), shape=ANY)),
        _narrow_mask,
        benefit=40,
        exclusive=False,
        example=_expanded_mask_example,
    ),
)
