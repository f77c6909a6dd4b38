"""What must hold between the symbols of a plan: compared at each shape, before any kernel may read
past a tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tactix.base.dims import RELATIONS, Assumption, Env, to_json
from tactix.base.errors import PlanFormatError
from tactix.plan.reader import Reader

if TYPE_CHECKING:
    from tactix.plan.schema import Plan

KEY = "demands"
"""In ``Plan.meta``."""


@dataclass(frozen=True)
class Demand:
    """What a node of the network asks of the symbols."""

    node: str
    assumption: Assumption

    def conditions(self) -> tuple[Assumption, ...]:
        """What it comes to."""
        return (self.assumption,)

    def check(self, env: Env) -> None:
        """Raises ShapeError if it does not hold at those symbols."""
        if not self.assumption.holds(env):
            raise self.assumption.error(env, self.node)


def encoded(found: Mapping[Assumption, str], known: frozenset[str]) -> dict[str, Any]:
    """The entry of ``Plan.meta``; empty where nothing is asked of its known symbols."""
    rows = [
        [who, to_json(a.left), a.relation, to_json(a.right), *([a.broken] if a.broken else [])]
        for a, who in found.items()
        if a.symbols <= known
    ]
    return {KEY: rows} if rows else {}


def demands(plan: Plan) -> Mapping[int, tuple[Demand, ...]]:
    """By the step before which all of its symbols have a value. Raises PlanFormatError."""
    out: dict[int, tuple[Demand, ...]] = {}
    for d in map(_demand, _rows(plan)):
        if not d.assumption.symbols <= plan.known:
            raise PlanFormatError(
                "a demand names a dimension that follows from no input", who=d.node
            )
        first = _first(plan, d.assumption.symbols)
        out[first] = (*out.get(first, ()), d)
    return out


def _rows(plan: Plan) -> Iterable[Reader]:
    return Reader(plan.meta.get(KEY, []), f"meta.{KEY}").items()


def _demand(r: Reader) -> Demand:
    items = r.items()
    broken = items[4].text() if len(items) == 5 else ""
    node, left, relation, right = items[:4] if broken else r.row(4)
    if relation.text() not in RELATIONS:
        relation.fail(f"one of {', '.join(RELATIONS)}")
    return Demand(node.text(), Assumption(left.dim(), relation.text(), right.dim(), broken))


def _first(plan: Plan, wanted: frozenset[str]) -> int:
    """The step behind the last one that tells one of the symbols; 0 if inputs tell them all."""
    return max((i + 1 for i, told in plan.produced.items() if told & wanted), default=0)
