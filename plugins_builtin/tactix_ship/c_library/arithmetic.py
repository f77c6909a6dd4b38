"""From the symbols of a plan to all sizes that a run needs, as one straight line of integer
operations for the executor (``tx_evaluate``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from tactix.base.arithmetic import (
    COMPARISONS,
    ArithmeticWriter,
    IntegerArithmetic,
    IntegerOperation,
)
from tactix.base.dims import OPS, Dim, Env, related
from tactix.base.errors import PlanCompatibilityError, ShapeError
from tactix.plan.extents import Extent
from tactix.plan.schema import Plan
from tactix.run.layout import LayoutPlaces, Layouts

TYPICAL = 64
"""The size at which tensors are placed of a symbol that no profile says anything of."""


@dataclass(frozen=True)
class SizeCheck:
    """What an operation without a value means. ``operation``: its index."""

    operation: int
    text: str


@dataclass(frozen=True)
class PlanArithmetic:
    """``line``: results are the sizes of all axes of inputs and outputs, bytes of the arena, the
    offset of each buffer in it, and the values of the launches' arguments. ``checks``: in the order
    of their operations.
    """

    line: IntegerArithmetic
    checks: Sequence[SizeCheck]


def arithmetic_of(plan: Plan, launches: Sequence[Dim]) -> PlanArithmetic:
    """``launches``: numbers that these take. Raises PlanCompatibilityError for a plan that can run
    at no shape that was looked at.
    """
    writer, places = _layout(plan)
    values = [writer.dim(d) for d in launches]
    line = writer.arithmetic([*places.dims, places.arena, *places.offsets, *values])
    index = {o.to: i for i, o in enumerate(line.operations)}
    return folded(line, {index[place]: text for place, text in _texts(plan, writer)})


def _layout(plan: Plan) -> tuple[ArithmeticWriter, LayoutPlaces]:
    """At the sizes that the plan is tuned for, else at the largest or least that make sense."""
    layouts = Layouts(plan, spread=0)
    for env in _typical(plan):
        writer = ArithmeticWriter(sorted(plan.symbols))
        try:
            return writer, layouts.write(writer, env)
        except ShapeError as e:
            last = e
    raise PlanCompatibilityError("no sizes are known that it runs at", who=plan.name, why=str(last))


def _typical(plan: Plan) -> Iterator[Env]:
    usual = dict.fromkeys(sorted(plan.symbols), TYPICAL)
    for p in plan.profiles:
        yield {**usual, **{s: opt for s, (_, opt, _) in p.dims.items()}}
    for p in plan.profiles:
        highest = {s: high for s, (_, _, high) in p.dims.items() if high is not None}
        yield {**usual, **highest}
        yield {**usual, **{s: low for s, (low, _, _) in p.dims.items()}}
    yield usual
    yield dict.fromkeys(usual, 1)


def _texts(plan: Plan, writer: ArithmeticWriter) -> Iterator[tuple[int, str]]:
    """Places of comparisons, which the writer has already, and what they stand for."""
    for extent in chain(*plan.extents.values()):
        yield _extent_place(writer, extent), _extent_text(extent)
    for d in chain(*plan.demands.values()):
        a = d.assumption
        place = writer.operation(a.relation, writer.dim(a.left), writer.dim(a.right))
        yield place, f"{d.node}: {a.broken or a}"


def _extent_place(writer: ArithmeticWriter, e: Extent) -> int:
    return writer.operation(">=", writer.dim(e.capacity), writer.dim(e.nbytes))


def _extent_text(e: Extent) -> str:
    return f"{e.step}: a tensor of {e.nbytes} bytes is larger than its buffer {e.buffer!r}"


# -- constants -----------------------------------------------------------------------------------

_WORD = 1 << 63


def folded(line: IntegerArithmetic, texts: Mapping[int, str]) -> PlanArithmetic:
    """The same without operations of constants, and without values that nothing reads. ``texts``:
    of operations, by index.
    """
    symbols = len(line.symbols)
    written = {o.to for o in line.operations}
    known = {i: v for i, v in enumerate(line.values) if i >= symbols and i not in written}
    kept: list[tuple[IntegerOperation, str]] = []
    for i, o in enumerate(line.operations):
        value = _value(o, known)
        if value is None:
            kept.append((o, texts.get(i, "")))
        elif o.kind not in COMPARISONS:
            known[o.to] = value
    return _compact(line, kept, known)


def _value(o: IntegerOperation, known: Mapping[int, int]) -> int | None:
    """What an operation of constants gives; None where it has to be run."""
    if o.left not in known or o.right not in known:
        return None
    left, right = known[o.left], known[o.right]
    if o.kind in COMPARISONS:
        return 0 if related(left, o.kind, right) else None
    if (o.kind in ("//", "%") and right == 0) or (o.kind == "bcast" and 1 not in (left, right)):
        return None if left != right or right == 0 else left
    value = {"+": left + right, "*": left * right}.get(o.kind)
    value = OPS[o.kind](left, right) if value is None else value
    return value if -_WORD <= value < _WORD else None


def _compact(
    line: IntegerArithmetic,
    kept: Sequence[tuple[IntegerOperation, str]],
    known: Mapping[int, int],
) -> PlanArithmetic:
    places = {i: i for i in range(len(line.symbols))}
    values = [0] * len(places)
    constants: dict[int, int] = {}

    def place(old: int) -> int:
        if old in known:
            if known[old] not in constants:
                constants[known[old]] = len(values)
                values.append(known[old])
            return constants[known[old]]
        if old not in places:
            places[old] = len(values)
            values.append(0)
        return places[old]

    operations = tuple(
        replace(o, left=place(o.left), right=place(o.right), to=place(o.to)) for o, _ in kept
    )
    results = tuple(map(place, line.results))
    checks = [SizeCheck(i, text) for i, (_, text) in enumerate(kept) if text]
    return PlanArithmetic(
        IntegerArithmetic(line.symbols, tuple(values), operations, results), checks
    )
