"""Whole plans beside each other: kernels timed one by one do not tell how long a network takes.

Between kernels there are gaps, each finds the caches as the one before left them, and under long
load the device slows down to keep to its power, for some kernels more than for others. So the
choice is made in several ways: with other charges for a launch where launches weigh, else with a
taste for vendors' kernels, or against them. Whole plans of what then differs are timed on the
device, and the fastest one is it. What was timed goes into the timing cache as well, so that a
frozen build elsewhere comes to the same plan.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tactix.base.dims import Env, evaluate_shape
from tactix.base.errors import AllocationError, TimingCacheError
from tactix.contracts.allocator import Allocator
from tactix.pipeline.mixtures import Attempt
from tactix.plan.schema import Plan
from tactix.run.engine import Engine
from tactix.run.memory import Memory
from tactix.select.choose import Choice, Chooser
from tactix.select.enumerate import Candidate
from tactix.select.timing_cache import Timing


@dataclass(frozen=True)
class Way:
    """How to choose. ``charge``: times the device's own for a launch; ``vendors``: times what their
    kernels take.
    """

    charge: float = 1.0
    vendors: float = 1.0


PLAIN = Way()
LAUNCHES = (Way(charge=0.0), Way(charge=4.0))
"""The kernels that are fastest alone, and the fewest launches: end to end a node costs 0.6 to 1.0
us beyond its kernel's own time (composed ResNet-50 at batch 1, H200), the device's charge is 0.7.
"""
TASTES = (Way(vendors=0.93), Way(vendors=1.07))
"""For and against vendors' kernels: times of kernels alone and in a hot network were seen to part
by so much (docs/cuda.md, "Choosing"; docs/benchmarks.md, "Single layers", has products of BERT-base
alone and in a row under load).
"""
NOTABLE = 0.02
"""Share of the predicted time from which on the charges for launches are worth a second look."""
MOST = 3
"""Plans that are timed, each of which is compiled and loaded as a whole."""
REPEATS, ROUNDS = 20, 5
"""Runs of a plan in a measurement, and how often each is measured, in turns: so a device that slows
down meanwhile does so for all of them. The least of each counts.
"""


@dataclass
class WholePlan:
    """One choice for a whole network: an attempt of the builder with it, and what came of it."""

    attempt: Attempt
    way: Way
    key: str
    plan: Plan | None = None

    @property
    def choice(self) -> Choice:
        return self.attempt.choice

    def row(self, timed: Mapping[str, float]) -> dict[str, Any]:
        """For the ledger."""
        return {
            **vars(self.way),
            "predicted_seconds": self.choice.seconds,
            "seconds": timed.get(self.key),
        }


class WholePlanTuning:
    """``tried``: attempts of the builder; ``complete``: an attempt's plan."""

    def __init__(
        self,
        tried: Sequence[Attempt],
        complete: Callable[[Attempt], Plan],
        load: Callable[[Plan], Engine],
    ) -> None:
        self.tried = sorted(tried, key=lambda attempt: attempt.choice.seconds)
        self.complete, self.load, self.state = complete, load, self.tried[0].state

    def plan(self) -> Plan:
        """The fastest; the first by prediction where none is timed. Raises TimingCacheError in a
        frozen build.
        """
        whole_plans = self._whole_plans()
        if len(whole_plans) == 1:
            return self.complete(whole_plans[0].attempt)
        if timed := self._time(whole_plans):
            best = min(whole_plans, key=lambda f: (timed[f.key], f.choice.seconds))
        else:
            best = whole_plans[0]
        plan = best.plan or self.complete(best.attempt)
        rows = [f.row(timed) | {"chosen": f is best} for f in whole_plans]
        return replace(plan, ledger={**plan.ledger, "whole_plans": rows})

    def _whole_plans(self) -> list[WholePlan]:
        """Different choices, by prediction; only one for a body inside a network, and without
        measuring.
        """
        state = self.state
        first = WholePlan(self.tried[0], PLAIN, _key(self.tried[0]))
        alone = state.profiles[0].name == "body" or not state.config.builder_optimization_level
        if alone or not any(
            c.status in ("measured", "cached") for c in first.choice.candidates.values()
        ):
            return [first]
        launches = sum(len(c.artifact.launches) for c in first.choice.candidates.values())
        notable = launches * state.device.costs.launch > NOTABLE * first.choice.seconds
        again = [self._again(way) for way in (LAUNCHES if notable else TASTES)]
        others = [WholePlan(a, PLAIN, _key(a)) for a in self.tried[1:]]
        different = {f.key: f for f in reversed([first, *again, *others])}
        return [f for f in (first, *again, *others) if different[f.key] is f][:MOST]

    def _again(self, way: Way) -> WholePlan:
        """The first attempt, chosen in another way."""
        first = self.tried[0]
        fused, bids = first.network, first.bids
        costs = replace(
            first.state.device.costs, launch=way.charge * first.state.device.costs.launch
        )
        pairs = {n: [(_seen(c, way), c) for c in bids[n].candidates] for n in fused.nodes}
        options = {n: [seen for seen, _ in both] for n, both in pairs.items()}
        choice = Chooser(fused.nodes, options, fused.outputs, first.state.context.opt, costs).run()
        for n, seen in choice.candidates.items():
            choice.candidates[n] = next(c for s, c in pairs[n] if s is seen)
            choice.seconds += choice.candidates[n].seconds - seen.seconds
        attempt = replace(first, choice=choice)
        return WholePlan(attempt, way, _key(attempt))

    def _time(self, whole_plans: Sequence[WholePlan]) -> dict[str, float]:
        """Seconds by key, from the cache or by running; empty where they are not to be had."""
        cache, config = self.state.cache, self.state.config
        found = {f.key: cache.get(f.key) for f in whole_plans}
        if missing := [f for f in whole_plans if found[f.key] is None]:
            if config.frozen:
                why = f"{len(missing)} of {len(whole_plans)} whole plans were not timed"
                raise TimingCacheError(
                    "a frozen build needs every timing", why=why, do="Build once without frozen"
                )
            if not self.state.here or self.state.is_over:
                return {}
            for key, seconds in self._run(whole_plans).items():
                found[key] = Timing(seconds, 0.0, 0.0)
                cache.put(key, Timing(seconds, 0.0, 0.0))
        known = {key: timing.seconds for key, timing in found.items() if timing}
        return known if len(known) == len(whole_plans) else {}

    def _run(self, whole_plans: Sequence[WholePlan]) -> dict[str, float]:
        """Empty for plans that need the host between their kernels, or memory for more than one of
        them.
        """
        plans = [self.complete(f.attempt) for f in whole_plans]
        for f, plan in zip(whole_plans, plans, strict=True):
            f.plan = plan
        if any(p.produced or any(io.dtype.on_host for io in p.inputs) for p in plans):
            return {}
        allocator = self.state.bench.allocator
        assert allocator is not None, "the device is here"
        try:
            seconds = whole([self.load(p) for p in plans], self.state.context.opt, allocator)
        except AllocationError:
            return {}
        return {f.key: s for f, s in zip(whole_plans, seconds, strict=True)}


def _seen(c: Candidate, way: Way) -> Candidate:
    """A candidate with the seconds that it is chosen by."""
    return (
        replace(c, seconds=c.seconds * way.vendors) if c.tactic.vendor and way.vendors != 1 else c
    )


class Inferences:
    """An engine's runs on device memory: random numbers, and zeros where they count something."""

    def __init__(self, engine: Engine, env: Env, allocator: Allocator) -> None:
        self._context, self._memory = engine.create_execution_context(), dict[str, Memory]()
        for io in engine.inputs:
            content = _anything(io, env)
            self._context.set_input_shape(io.name, content.shape)
            engine.device.copy_in(self._place(io.name, content.nbytes, allocator), content)
        for io in engine.outputs:
            shape = evaluate_shape(self._context.get_tensor_shape(io.name), env)
            self._place(io.name, math.prod(shape) * io.dtype.itemsize, allocator)

    def _place(self, name: str, size: int, allocator: Allocator) -> int:
        self._memory[name] = Memory.allocate(allocator, max(1, size))
        self._context.set_tensor_address(name, self._memory[name].address)
        return self._memory[name].address

    def repeat(self, times: int) -> None:
        """What a device measures."""
        for _ in range(times):
            self._context.execute_async_v3(0)


def whole(engines: Sequence[Engine], env: Env, allocator: Allocator) -> list[float]:
    """Seconds of one inference of each."""
    runs: list[Any] = [Inferences(e, env, allocator) for e in engines]
    pairs = list(zip(engines, runs, strict=True))
    turns = [[e.device.measure(r, REPEATS) / REPEATS for e, r in pairs] for _ in range(ROUNDS)]
    return [min(times) for times in zip(*turns, strict=True)]


def _anything(io: Any, env: Env) -> Any:
    import numpy as np

    shape = evaluate_shape(io.shape, env)
    if not io.dtype.is_float:
        return np.zeros(shape, io.dtype.numpy)
    return np.random.default_rng(0).standard_normal(shape, np.float32).astype(io.dtype.numpy)


def _key(attempt: Attempt) -> str:
    """The timing cache's key of a whole: the device, and what was chosen for every node."""
    bids, choice = attempt.bids, attempt.choice
    p = attempt.state.context.device
    rows = [
        [
            bids[n].signature,
            c.tactic.key,
            c.variant.id,
            c.artifact.digest,
            attempt.state.toolchain.identity(c.artifact),
        ]
        for n, c in ((n, choice.candidates[n]) for n in attempt.network.nodes)
    ]
    parts = ["whole", p.kind, p.name, sorted(p.features), dict(p.facts), rows]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:40]
