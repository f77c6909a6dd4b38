"""The fewest layers that must stay float32 for outputs to be good enough in fewer bits, found by
replays of a float32 plan, without building.

Roundings of different layers add up like independent errors, in squares, as far as a search needs
that: so the error of a group of layers tells whether to look for a culprit inside.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count
from typing import Any

import numpy as np

from tactix.base.arrays import Array
from tactix.base.errors import InvalidArgument, PlanCompatibilityError
from tactix.plan.schema import Plan
from tactix.run.context import ExecutionContext
from tactix.run.observed import RunningStep
from tactix_inspect.emulation import Emulation
from tactix_inspect.layers import json_number

Told = Callable[[str], None]
Chosen = frozenset[int]

SHARE = 0.5
"""Of the tolerance, what groups that are not looked into may make together."""
LEFT_FOR_SETS = 0.4
"""Of the time, what the search for culprits leaves for the choice of a set."""


@dataclass(frozen=True)
class WideLayer:
    """A step that stays wide. ``layers``: of the model. ``error``: of the outputs with this step
    alone lowered, or an estimate where it was not replayed alone; infinite where outputs become
    infinite or NaN.
    """

    step: str
    layers: tuple[str, ...]
    error: float
    replayed: bool


@dataclass(frozen=True)
class PrecisionReport:
    """``error``: of the outputs with all steps lowered; ``reached``: with those of ``wide`` in
    float32. ``settled``: whether the time sufficed to show that none of these can be left out.
    ``idle``: steps of which nothing is known, as they did not run on the inputs.
    """

    precision: str
    max_error: float
    error: float
    reached: float
    wide: tuple[WideLayer, ...]
    steps: int
    replays: int
    seconds: float
    settled: bool
    idle: int = 0

    @property
    def is_reached(self) -> bool:
        return self.reached <= self.max_error

    @property
    def options(self) -> tuple[str, ...]:
        """What ``tactix build`` takes: ``--layer-precision`` for each layer."""
        names = dict.fromkeys(name for w in self.wide for name in w.layers)
        return tuple(f"{escaped(name)}:fp32" for name in names)

    def to_json(self) -> dict[str, Any]:
        wide = [{**asdict(w), "error": json_number(w.error)} for w in self.wide]
        errors = {name: json_number(getattr(self, name)) for name in ("error", "reached")}
        told = {"wide": wide, "is_reached": self.is_reached, "options": list(self.options)}
        return {**asdict(self), **errors, **told}


def escaped(name: str) -> str:
    """A pattern that a name alone fits."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


class LoweredRuns:
    """Replays of a float32 plan with some of its steps lowered. ``feeds``: batches of inputs by
    name. ``idle``: steps that could be lowered, and do not run on these. Raises
    PlanCompatibilityError for a plan that tells too little, or is for another device;
    InvalidArgument where none of its steps runs that could be lowered.
    """

    def __init__(
        self,
        plan: Plan,
        context: ExecutionContext,
        feeds: Sequence[Mapping[str, Array]],
        emulation: Emulation,
    ) -> None:
        _check(plan)
        self._context, self._emulation = context, emulation
        self._feeds = [{k: _copied(x) for k, x in feed.items()} for feed in feeds]
        self.steps = list(emulation.lowerable(plan))
        if not self.steps:
            raise PlanCompatibilityError(
                "no step of the plan could be lowered",
                who=plan.name,
                reasons=("it has no float32 products, or does not say what its steps compute",),
                do="Build a float32 plan for the CPU: tactix build MODEL",
            )
        if not any(lower.layers for lower in self.steps):
            raise PlanCompatibilityError(
                "it does not name its layers",
                who=plan.name,
                reasons=("it was built with profiling verbosity none",),
                do="Build it with detailed, or layer_names_only",
            )
        self._lowered: Chosen = frozenset()
        self.replays = 0
        context.observer = seen = _Seen()
        self._wanted = [context.run(feed) for feed in self._feeds]
        self.idle = sum(id(lower.step) not in seen.ran for lower in self.steps)
        self.steps = [lower for lower in self.steps if id(lower.step) in seen.ran]
        if not self.steps:
            raise InvalidArgument(
                "no step that could be lowered runs on these inputs",
                who=plan.name,
                why=f"{self.idle} such steps lie in branches or loops that are not entered",
                do="Give inputs that enter them: --inputs, --data",
            )
        self._places = {id(lower.step): i for i, lower in enumerate(self.steps)}
        context.observer = self

    def step(self, running: RunningStep, /) -> None:
        i = self._places.get(id(running.step), -1)
        if i in self._lowered:
            self._emulation.run(running, self.steps[i])
        else:
            running.run()

    def error(self, lowered: Chosen) -> float:
        """Of the outputs with these steps lowered: the largest, over outputs and batches, of the
        difference over the float32 output, by their Euclidean norms; infinite where something is
        not finite that should be.
        """
        self._lowered = lowered
        self.replays += 1
        return max(
            (
                departed(got[name], want[name])
                for feed, want in zip(self._feeds, self._wanted, strict=True)
                for got in (self._context.run(feed),)
                for name in want
            ),
            default=0.0,
        )


class _Seen:
    """Steps that ran."""

    def __init__(self) -> None:
        self.ran: set[int] = set()

    def step(self, running: RunningStep, /) -> None:
        running.run()
        self.ran.add(id(running.step))


def departed(got: Any, want: Any) -> float:
    """The relative error of one output; of one that is no float whether it differs."""
    if not isinstance(want, np.ndarray) or want.dtype.kind not in "fV":
        return 0.0
    a, b = (np.asarray(x, np.float64) for x in (got, want))
    finite = np.isfinite(b)
    if not np.isfinite(a[finite]).all():
        return math.inf
    norm = float(np.linalg.norm(b[finite]))
    return float(np.linalg.norm(a[finite] - b[finite])) / (norm or 1.0)


def _check(plan: Plan) -> None:
    kind = plan.device.get("kind", "cpu")
    if kind != "cpu":
        raise PlanCompatibilityError(
            "precision is looked for on the CPU",
            who=plan.name,
            reasons=(f"the plan is for {kind}",),
            do="Build a float32 plan for the CPU: tactix build MODEL",
        )


def _copied(x: Any) -> Any:
    return np.array(x) if isinstance(x, np.ndarray) else x


@dataclass(order=True)
class _Group:
    """Steps that were lowered alone, together. The largest error comes first; of equal ones the
    smallest group.
    """

    key: tuple[float, int, int]
    members: tuple[int, ...] = field(compare=False)

    @property
    def error(self) -> float:
        return -self.key[0]


class PrecisionSearch:
    """Finds a set of steps. ``error``: of the outputs with a set lowered. ``budget``: seconds."""

    def __init__(
        self,
        steps: int,
        error: Callable[[Chosen], float],
        max_error: float,
        budget: float,
        told: Told = lambda text: None,
    ) -> None:
        self._all = frozenset(range(steps))
        self._measure, self._max_error, self._told = error, max_error, told
        self._start, self._budget = time.monotonic(), budget
        self._known: dict[Chosen, float] = {}
        self.alone: dict[int, float] = {}
        self.estimated: dict[int, float] = {}
        self.settled = True

    def run(self) -> Chosen:
        """The steps that stay wide."""
        if self.error(self._all) <= self._max_error:
            return frozenset()
        ranked = self._ranked()
        return self._without_needless(self._shortest(ranked), ranked)

    def error(self, lowered: Chosen) -> float:
        """Of a set, replayed once."""
        if lowered not in self._known:
            self._known[lowered] = self._measure(lowered) if lowered else 0.0
            known = self._known[lowered]
            self._told(f"{len(lowered)} of {len(self._all)} steps lowered: error {known:.3g}")
        return self._known[lowered]

    def _left(self) -> float:
        """Share of the time that is left."""
        return 1 - (time.monotonic() - self._start) / self._budget

    def _ranked(self) -> list[int]:
        """All steps, what harms the outputs most first."""
        number = count()
        groups: list[_Group] = []

        def add(members: Sequence[int]) -> None:
            e = self.error(frozenset(members))
            heapq.heappush(groups, _Group((-e, len(members), next(number)), tuple(members)))

        add(sorted(self._all))
        done: list[_Group] = []
        while groups and not self._small(groups) and self._left() > LEFT_FOR_SETS:
            group = heapq.heappop(groups)
            if len(group.members) == 1:
                done.append(group)
                continue
            middle = len(group.members) // 2
            add(group.members[:middle])
            add(group.members[middle:])
        for group in (*done, *groups):
            share = group.error / math.sqrt(len(group.members))
            found = self.alone if len(group.members) == 1 else self.estimated
            found.update(dict.fromkeys(group.members, share))
        errors = self.alone | self.estimated
        return sorted(self._all, key=lambda i: (-errors[i], i))

    def _small(self, groups: Sequence[_Group]) -> bool:
        """Whether what was not looked into makes little of the tolerance."""
        total = sum(g.error**2 for g in groups)
        return total <= (SHARE * self._max_error) ** 2

    def _shortest(self, ranked: Sequence[int]) -> int:
        """How many of the ranked steps must at least stay wide, from the first on."""
        low, high = 1, len(ranked)
        guess = self._guess(ranked)
        while low < high:
            if self._left() <= 0:
                self.settled = False
                break
            middle = guess if low <= guess < high else (low + high) // 2
            guess = -1 if guess != middle or middle - 1 < low else middle - 1
            if self.error(self._all.difference(ranked[:middle])) <= self._max_error:
                high = middle
            else:
                low = middle + 1
        return high

    def _guess(self, ranked: Sequence[int]) -> int:
        """How many would do if errors added up in squares."""
        errors = self.alone | self.estimated
        rest = sum(errors[i] ** 2 for i in ranked if math.isfinite(errors[i]))
        for k, i in enumerate(ranked):
            if math.isfinite(errors[i]):
                if rest <= self._max_error**2:
                    return k
                rest -= errors[i] ** 2
        return len(ranked)

    def _without_needless(self, most: int, ranked: Sequence[int]) -> Chosen:
        """Those of the first steps without which the tolerance is not kept."""
        wide = frozenset(ranked[:most])
        for i in reversed(ranked[: most - 1]):
            if self._left() <= 0:
                self.settled = False
                break
            if self.error(self._all - (wide - {i})) <= self._max_error:
                wide -= {i}
        return wide


def find_wide(
    runs: LoweredRuns,
    precision: str,
    max_error: float,
    budget: float,
    told: Told = lambda text: None,
) -> PrecisionReport:
    """Search for at most about ``budget`` seconds."""
    start = time.monotonic()
    search = PrecisionSearch(len(runs.steps), runs.error, max_error, budget, told)
    wide = search.run()
    everything = frozenset(range(len(runs.steps)))
    errors = search.estimated | search.alone
    ordered = sorted(wide, key=lambda i: (-errors[i], i))
    return PrecisionReport(
        precision,
        max_error,
        search.error(everything),
        search.error(everything - wide),
        tuple(
            WideLayer(lower.step.name, lower.layers, errors[i], i in search.alone)
            for i, lower in ((i, runs.steps[i]) for i in ordered)
        ),
        len(runs.steps),
        runs.replays,
        time.monotonic() - start,
        search.settled,
        runs.idle,
    )
