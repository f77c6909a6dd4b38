"""Reductions: how elements are joined, which axes go, loops over what is kept and reduced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tactix.base.dims import Dim, Shape
from tactix.base.tensor import LINEAR, Format
from tactix.contracts.region import BodyNode
from tactix_codegen.c.space import Space, collapse
from tactix_codegen.c.text import contiguous_strides

KEPT, REDUCED = "kept", "reduced"
"""Tags of loops."""


@dataclass(frozen=True)
class ReductionOperator:
    """``name``: sum, prod, max or min; ``join``: the C expression of two numbers ``a`` and ``b``.

    ``start``: the accumulator's first value (``lowest`` and ``highest`` of the dtype for integers).
    ``mean``: divide by the number of elements at the end.
    """

    name: str
    join: str
    start: float
    mean: bool = False


_SUM = ReductionOperator("sum", "{a} + {b}", 0.0)
_MEAN = ReductionOperator("sum", "{a} + {b}", 0.0, mean=True)
_MAX = ReductionOperator("max", "TX_MAX({a}, {b})", -float("inf"))
_BY_LAYER = {
    "ReduceSum": _SUM,
    "ReduceMean": _MEAN,
    "ReduceMax": _MAX,
    "ReduceMin": ReductionOperator("min", "TX_MIN({a}, {b})", float("inf")),
    "ReduceProd": ReductionOperator("prod", "{a} * {b}", 1.0),
    "GlobalAveragePool": _MEAN,
    "WideGlobalAveragePool": _MEAN,
    "GlobalMaxPool": _MAX,
}

KINDS = tuple(f"tactix.{name}@1" for name in _BY_LAYER)
"""Kinds of nodes whose anchor reduces."""


def operation_of(anchor: BodyNode) -> ReductionOperator:
    """What an anchor of one of ``KINDS`` does to elements."""
    return operation_named(anchor.layer.name)


def operation_named(layer: str) -> ReductionOperator:
    """What a layer of that name does to elements."""
    return _BY_LAYER[layer]


def axes_of(anchor: BodyNode, rank: int) -> tuple[int, ...]:
    """Those that it reduces, in order; ``rank``: of its input."""
    if "Global" in anchor.layer.name:
        return tuple(range(2, rank))
    return tuple(sorted(a % rank for a in anchor.attrs.axes))


def kept_shape(shape: Shape, axes: Sequence[int]) -> Shape:
    """The shape of the results where reduced axes are kept, of size 1."""
    return tuple(1 if i in axes else d for i, d in enumerate(shape))


def input_strides(shape: Shape, fmt: Format) -> tuple[Dim, ...]:
    """Strides along the dims of a tensor that is stored linear or channels last."""
    if fmt == LINEAR:
        return contiguous_strides(shape)
    batch, *spatial, channel = contiguous_strides((shape[0], *shape[2:], shape[1]))
    return (batch, channel, *spatial)


@dataclass(frozen=True)
class Operands:
    """Strides of operands along the input's dims, of others along the output's ``rank`` dims."""

    before: Sequence[Sequence[Dim]]
    behind: Sequence[Sequence[Dim]]
    rank: int


def space(shape: Shape, axes: Sequence[int], fmt: Format, operands: Operands) -> Space:
    """Tagged loops over an input in linear or nhwc; strides of operands before, then behind."""
    rank = len(shape)
    kept = [i for i in range(rank) if i not in axes]
    spread = [_over_input(s, rank, kept, operands.rank) for s in operands.behind]
    order = list(range(rank)) if fmt == LINEAR else [0, *axes, 1]
    tags = [REDUCED if i in axes else KEPT for i in order]
    strides = [[s[i] for i in order] for s in (*operands.before, *spread)]
    return collapse([shape[i] for i in order], strides, tags)


def _over_input(strides: Sequence[Dim], rank: int, kept: Sequence[int], out_rank: int) -> list[Dim]:
    """Strides along the output's dims as strides along the input's: 0 where it is reduced."""
    out: list[Dim] = [0] * rank
    for position, axis in enumerate(kept):
        out[axis] = strides[axis if out_rank == rank else position]
    return out
