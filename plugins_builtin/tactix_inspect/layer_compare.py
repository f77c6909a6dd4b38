"""Tensors that a plan makes on the way beside those of another plan, or of the model in ONNX
Runtime, by the model's names of them, in pieces of bounded memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tactix.base.dims import Dim, evaluate, learn, symbols
from tactix.contracts.launcher import Step
from tactix.plan.schema import Plan
from tactix.run.observed import MAKES, DebugListener
from tactix_inspect.agreement import Agreement, agree
from tactix_inspect.model_tensors import ModelTensors, pieces


class NamedTensors(Protocol):
    """What gives tensors of a run by name."""

    @property
    def names(self) -> Sequence[str]:
        """Those that it can give, in the order in which they are made."""

    def values(
        self, feed: Mapping[str, Any], names: Sequence[str], sizes: Mapping[str, int] = ...
    ) -> Iterator[tuple[str, Any]]:
        """Name and array of these."""


class ListenedContext(Protocol):
    """What of an execution context is asked for."""

    def run(self, feed: Mapping[str, Any], /) -> object: ...

    def set_debug_listener(
        self, listener: DebugListener | None, names: Sequence[str] = ...
    ) -> None: ...


class PlanTensors:
    """Tensors of a plan in a context of it, by the model's names. Steps of branches and loops,
    which run any number of times, are left out.
    """

    def __init__(self, plan: Plan, context: ListenedContext) -> None:
        self._context = context
        self._made = dict(_made(plan))
        self._inputs = plan.inputs

    @property
    def names(self) -> list[str]:
        return list(self._made)

    @staticmethod
    def on_the_way(plan: Plan) -> bool:
        """Whether steps make more than the plan's outputs."""
        outputs = {io.buffer for io in plan.outputs}
        made = (o.buffer for p in _plans(plan) for s in p.steps for o in s.outputs)
        return bool(plan.kernel_sets) or not outputs.issuperset(made)

    def sizes(self, feed: Mapping[str, Any]) -> dict[str, int]:
        """Bytes of each tensor whose shape follows from those of the inputs."""
        env: dict[str, int] = {}
        for io in self._inputs:
            learn(io.shape, getattr(feed[io.name], "shape", ()), env)
        known = {name: d for name, d in self._made.items() if symbols(d) <= env.keys()}
        return {name: evaluate(d, env) for name, d in known.items()}

    def listen(self, feed: Mapping[str, Any], names: Sequence[str], to: DebugListener) -> None:
        """One run, of which a listener sees these tensors."""
        self._context.set_debug_listener(to, names)
        try:
            self._context.run(feed)
        finally:
            self._context.set_debug_listener(None)

    def values(
        self, feed: Mapping[str, Any], names: Sequence[str], sizes: Mapping[str, int] = {}
    ) -> Iterator[tuple[str, Any]]:
        for part in pieces(names, sizes):
            found: dict[str, Any] = {}
            self.listen(feed, part, found.__setitem__)
            yield from found.items()


def _plans(plan: Plan) -> Sequence[Plan]:
    """The one of each profile where profiles have kernels of their own."""
    return plan.steps[0].plans if plan.kernel_sets else (plan,)


def _made(plan: Plan) -> Iterator[tuple[str, Dim]]:
    """Tensors of steps by the model's names, and their bytes."""
    for p in _plans(plan):
        for s in p.steps:
            for name, o in zip(_names(s), s.outputs, strict=False):
                if name and not o.spec.dtype.on_host:
                    yield name, o.spec.nbytes()


def _names(step: Step[Plan]) -> list[str]:
    told = step.info.get(MAKES)
    return [str(name) for name in told] if isinstance(told, list) else []


@dataclass(frozen=True)
class Tolerance:
    """As ``agree`` takes it."""

    rtol: float
    atol: float | None = None


def compare_tensors(
    ours: PlanTensors,
    name: str,
    theirs: PlanTensors | ModelTensors,
    feed: Mapping[str, Any],
    tolerance: Tolerance,
) -> Iterator[Agreement]:
    """A row for each tensor that both know, in the order in which the plan makes them. ``name``: of
    the other.

    At most ``model_tensors.BUDGET`` bytes of tensors are held at a time, of the other alone: as
    often as that takes, both run again. Tensors of other floats than the other's count as its.
    """
    known = set(theirs.names)
    common = [n for n in ours.names if n in known]
    sizes = ours.sizes(feed)
    for part in pieces(common, sizes):
        yield from _piece(ours, name, dict(theirs.values(feed, part, sizes)), feed, tolerance)


def _piece(
    ours: PlanTensors,
    name: str,
    want: dict[str, Any],
    feed: Mapping[str, Any],
    tolerance: Tolerance,
) -> list[Agreement]:
    found: dict[str, Agreement] = {}

    def compared(tensor: str, got: Any) -> None:
        if tensor in want:
            beside = want.pop(tensor)
            got = _as(got, beside)
            found[tensor] = agree(tensor, name, got, beside, tolerance.rtol, tolerance.atol)

    ours.listen(feed, list(want), compared)
    return list(found.values())


def _as(got: Any, want: Any) -> Any:
    """A float in the other's type; all else as it is."""
    from tactix.base.dtypes import DType

    floats = all(DType.of(x.dtype).is_float for x in (got, want))
    return got.astype(want.dtype) if floats else got


def departures_first(rows: Sequence[Agreement]) -> list[Agreement]:
    """Those that do not pass before the others, each in their order."""
    return sorted(rows, key=lambda r: r.passed)
