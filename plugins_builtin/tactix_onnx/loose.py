"""Ranks that hang on which branch of an If runs.

A branch's output of lower rank than the other's gets axes of size 1 in front, so that a plan has
one rank for both, and is called loose. What broadcasts gives the same numbers either way, and a
result whose rank another input decides is loose no more. What would show the difference is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from tactix.base.errors import UnsupportedOperator
from tactix.contracts.graph import Value
from tactix_onnx.catalog import MAIN

if TYPE_CHECKING:
    from tactix_onnx.convert import Context

Loose = dict[Value, int]
"""Values that may have a lower rank than their own, with the lowest."""

CURE = "Export the model so that both branches have one rank"


def _needs_no_rank(ctx: Context) -> bool:
    """Whether a Reshape copies no dim of what it reads: the order of the elements is the same under
    any rank.
    """
    target = ctx.attr("shape") if ctx.has_attr("shape") else ctx.known(1)
    return bool(ctx.attr("allowzero", 0)) or (target is not None and 0 not in target)


BLIND: Mapping[str, Callable[[Context, Loose], bool]] = {
    "If": lambda ctx, loose: True,
    "CastLike": lambda ctx, loose: ctx.tensor() not in loose,
    "Reshape": lambda ctx, loose: ctx.input(1) not in loose and _needs_no_rank(ctx),
    "Size": lambda ctx, loose: True,
}
"""Operators that give the same for all ranks of a loose input, and when; an If tells of its results
itself.
"""


def follow(ctx: Context, results: Sequence[Value | None], loose: Loose) -> None:
    """Note which results of a node are loose. Raises UnsupportedOperator where it would show the
    rank of an input.
    """
    taken = [i for i, v in enumerate(ctx.inputs) if v in loose]
    if not taken or _is_blind(ctx, loose):
        return
    for v in (v for v in results if v is not None and v not in loose):
        if not _broadcasts(v, ctx.inputs):
            firm(ctx.tensor(taken[0]), f"input {taken[0]} of {ctx.who}", loose)
        ranks = [loose.get(x, x.spec.rank) for x in ctx.inputs if x is not None]
        if max(ranks) < v.spec.rank:
            loose[v] = max(ranks)


def firm(v: Value, who: str, loose: Loose) -> None:
    """Raises UnsupportedOperator for a loose value."""
    if v in loose:
        why = f"it has rank {loose[v]} or {v.spec.rank}, by which branch of an If runs"
        raise UnsupportedOperator("the rank of a tensor must be known", who=who, why=why, do=CURE)


def _is_blind(ctx: Context, loose: Loose) -> bool:
    return ctx.domain == MAIN and ctx.op in BLIND and BLIND[ctx.op](ctx, loose)


def _broadcasts(v: Value, inputs: Sequence[Value | None]) -> bool:
    """Whether all layers between inputs of a node and a result of it are pointwise."""
    if v in inputs or v.const is not None:
        return True
    if v.producer is None or not v.producer.layer.is_pointwise:
        return False
    return all(_broadcasts(x, inputs) for x in v.producer.given)
