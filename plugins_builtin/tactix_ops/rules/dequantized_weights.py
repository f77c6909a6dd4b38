"""What stands between constants under DequantizeLinear and what reads them, as exports of networks
that were trained with fake quantisation have it: moved weights become constants that were moved
before, and factors of channels go into the scales.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tactix.base.dims import evaluate, prod
from tactix.base.dtypes import DType
from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import Op, P, Rule, any_of, const, literal
from tactix_ops.rules.facts import Array, again, contiguous
from tactix_ops.rules.fold import MAX_BYTES

T = P.tactix


# -- moved ---------------------------------------------------------------------------------------


def _axis_behind(root: Node, table: Node) -> int | None:
    """The axis of the scales behind a Transpose or Reshape; None if they lie along none of it."""
    w, scale, axis = (
        table.given[0].spec,
        table.given[1].spec,
        table.attrs.axis % table.given[0].spec.rank,
    )
    if scale.numel == 1:
        return 0
    if root.layer.name == "Transpose":
        return int(tuple(root.attrs.perm).index(axis))
    before, after = w.shape, root.outputs[0].spec.shape
    ahead = prod(before[:axis])
    counts = [prod(after[:i]) for i in range(len(after))]
    same = [i for i, n in enumerate(counts) if n == ahead and after[i] == before[axis]]
    return same[0] if same else None


def _moved_when(root: Node, table: Node) -> bool:
    known = all(v.const is not None for v in table.given) and not table.attrs.block_size
    shape = root.outputs[0].spec.shape
    fixed = known and table.given[0].spec.rank > 0 and all(isinstance(d, int) for d in shape)
    small = fixed and evaluate(root.outputs[0].spec.nbytes(), {}) <= MAX_BYTES
    return bool(small and _axis_behind(root, table) is not None)


def _moved(root: Node, table: Node) -> Op:
    whole = contiguous(root.layer.reference(root.attrs, table.given[0].array)[0])
    return again(table, [literal(whole), *table.inputs[1:]], axis=_axis_behind(root, table))


def _moved_example(net: Any) -> None:
    w = net.add_constant(np.arange(-12, 12, dtype=np.int8).reshape(2, 3, 4))
    scale = net.add_constant(np.array([0.5, 0.25, 0.125], np.float32))
    (y,) = net.add_layer("tactix.DequantizeLinear", [w, scale], axis=1)
    (y,) = net.add_layer("tactix.Transpose", [y], perm=(2, 0, 1))
    net.mark_output(
        net.add_layer("tactix.Mul", [y, net.add_input("x", "f32", ["n", 1, 1, 3])])[0], "y"
    )


# -- scaled --------------------------------------------------------------------------------------


def _channels(table: Node, f: Value) -> Array | None:
    """Factors as a vector along the axis of the scales, or one; None if they lie otherwise."""
    w, axis = table.given[0].spec, table.attrs.axis
    if f.spec.rank > w.rank or f.spec.dtype is not DType.FP32:
        return None
    if f.array.size == 1:
        return f.array.reshape(1)
    shape = (1,) * (w.rank - f.spec.rank) + f.array.shape
    wide = [i for i, n in enumerate(shape) if n != 1]
    fits = len(wide) == 1 and (table.given[1].spec.numel == 1 or wide[0] == axis % w.rank)
    return f.array.reshape(-1) if fits else None


def _scaled_when(table: Node, f: Value) -> bool:
    plain = all(v.const is not None for v in table.given) and not table.attrs.block_size
    return plain and table.attrs.dtype is DType.FP32 and _channels(table, f) is not None


def _is_positive(root: Node, f: Value) -> bool:
    return bool((f.array > 0).all() and np.isfinite(f.array).all())


def _scaled(root: Node, table: Node, f: Value) -> Op:
    factors, w = _channels(table, f), table.given[0].spec
    assert factors is not None
    scale = np.atleast_1d(table.given[1].array)
    changed = scale / factors if root.layer.name == "Div" else scale * factors
    more = [
        literal(np.broadcast_to(v.array.reshape(-1), changed.shape).copy()) for v in table.given[2:]
    ]
    axis = table.attrs.axis
    if scale.size == 1 and factors.size > 1:
        shape = (1,) * (w.rank - f.spec.rank) + f.array.shape
        axis = next(i for i, n in enumerate(shape) if n != 1)
    return again(table, [table.given[0], literal(changed.astype(np.float32)), *more], axis=axis)


def _scaled_example(net: Any) -> None:
    w = net.add_constant(np.arange(-12, 12, dtype=np.int8).reshape(4, 6))
    inputs = [w, net.add_constant(np.float32(0.5)), net.add_constant(np.int8(1))]
    (y,) = net.add_layer("tactix.DequantizeLinear", inputs)
    factors = net.add_constant(np.array([[0.5], [1], [2], [3]], np.float32))
    (y,) = net.add_layer("tactix.Mul", [y, factors])
    net.mark_output(
        net.add_layer("tactix.MatMul", [net.add_input("x", "f32", ["n", 4]), y])[0], "y"
    )


_TABLE = T.DequantizeLinear(const("w"), const("s")) >> "table"

RULES = (
    Rule(
        "tactix.dequantized_moved",
        any_of(T.Transpose(_TABLE), T.Reshape(_TABLE)),
        _moved,
        _moved_when,
        benefit=70,
        example=_moved_example,
    ),
    Rule(
        "tactix.dequantized_scaled",
        any_of(T.Mul(_TABLE, const("f")), T.Div(_TABLE, const("f"))),
        _scaled,
        _scaled_when,
        fits=_is_positive,
        benefit=70,
        numerics="reassociates",
        example=_scaled_example,
    ),
)
