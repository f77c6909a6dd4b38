"""Whether rows along the first axis of all inputs and outputs of a plan may be parted or joined."""

from __future__ import annotations

from dataclasses import dataclass

from tactix.base.dims import symbol_name, symbols
from tactix.plan.schema import Plan


@dataclass(frozen=True)
class BatchAxis:
    """``symbol``: of the first axis of all inputs and outputs. ``reasons``: what stands against
    parting and joining rows along it; empty where nothing does.
    """

    symbol: str
    reasons: tuple[str, ...] = ()

    def cuts(self, plan: Plan, rows: int, parts: int) -> list[int]:
        """Where ``parts`` begin and the last ends, which differ by a row at most: fewer parts where
        no profile takes so few rows, more where none takes so many.
        """
        ranges = [p.dims[self.symbol] for p in plan.profiles if self.symbol in p.dims]
        low = max(1, min((low for low, _, _ in ranges), default=1))
        highs = [high for _, _, high in ranges]
        high = rows if not highs or None in highs else max(h for h in highs if h is not None)
        count = max(1, min(parts, rows // low), -(-rows // max(1, high)))
        return [rows * i // count for i in range(count + 1)]


def batch_axis(plan: Plan) -> BatchAxis:
    """What can be told of shapes and dtypes. That rows do not depend on each other is the model's
    affair, which no shape tells.
    """
    ios = (*plan.inputs, *plan.outputs)
    first = {io.name: symbol_name(io.shape[0]) if io.shape else None for io in ios}
    reasons = [
        f"{name!r} has no open first axis" for name, symbol in first.items() if symbol is None
    ]
    found = {s for s in first.values() if s is not None}
    if not reasons and len(found) > 1:
        reasons = [f"first axes are {', '.join(sorted(found))}, which may differ"]
    reasons += [f"{io.name!r} is {io.dtype.value}" for io in ios if io.dtype.has_element]
    if plan.states is not None:
        reasons.append("the plan keeps states, which are one request's")
    batch = next(iter(found), "")
    if not reasons and any(batch in symbols(d) for io in ios for d in io.shape[1:]):
        reasons.append(f"another axis than the first hangs on {batch!r}, too")
    return BatchAxis(batch, tuple(reasons))
