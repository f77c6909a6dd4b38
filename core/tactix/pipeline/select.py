"""The third step of a build: which tactics run the network, in which precision."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from tactix.config import Locked
from tactix.network.definition import NetworkDefinition
from tactix.pipeline.fuse import fuse
from tactix.pipeline.mixtures import Attempt, Mixtures, NotLowered
from tactix.pipeline.settle import Settler
from tactix.pipeline.state import BuildState
from tactix.select.contests import Sides
from tactix.select.precision import (
    LOCKED,
    NOT_FASTER,
    Keeps,
    Lowering,
    Pair,
    Stays,
    Times,
    without_kernel,
)


def select(network: NetworkDefinition, state: BuildState) -> list[Attempt]:
    """Where lower precision is allowed: with all nodes in it, none, or without those that it makes
    slower. What stages lower is tried beside the fastest that rules make of the same.

    Raises NoTacticError, LockError, ToolchainError, TimingCacheError.
    """
    attempt = partial(_attempt, network, state)
    if isinstance(locked := state.config.frozen, Locked):
        keeps = locked.enter()
        locked_wide = Keeps.both(lambda name: LOCKED if keeps(name) else "")
        return [attempt(locked_wide)]
    mixtures = partial(
        Mixtures,
        warn=state.logger.warning,
        duel=_duel,
        stopped=state.config.progress_monitor.cancelled,
        is_over=lambda: state.is_over,
    )
    kept: dict[str, str] = {}
    by_rules = mixtures(
        lambda stays: attempt(Keeps(stays, lambda name: kept.get(name, NOT_FASTER))), state.lowering
    )
    if not state.parts.lowering:
        return by_rules.tried()

    def by_stages(stays: Stays) -> Attempt:
        """With all in the precision of the stages but what stays, of which rules lower what they
        lower beside it.
        """
        return replace(by_rules, attempt=lambda rules: attempt(Keeps(rules, stays))).lowered()

    lowering = state.parts.lowering
    return mixtures(by_stages, lowering, wider=by_rules.settled, kept=kept).tried()


def _attempt(network: NetworkDefinition, state: BuildState, keeps: Keeps) -> Attempt:
    """Raises NotLowered, and what ``select`` raises."""
    start = time.monotonic()
    fused = fuse(network, state, keeps)
    state.pace.fuse = time.monotonic() - start
    sizes = (v.spec.nbytes() for v in fused.network.constants)
    state.pace.weights = sum(n for n in sizes if isinstance(n, int))
    settler = Settler(fused.network, fused.trace, fused.state, rules=fused.rules)
    with state.parts.racing():
        settler.race()
        _leave(settler)
        settler.fall_back()
    monitor = state.config.progress_monitor
    monitor.phase("choose", 0)
    choice = settler.choice()
    monitor.finish("choose")
    return Attempt(fused.state, fused.source, fused.network, fused.trace, settler.bids, choice)


def _leave(settler: Settler) -> None:
    """Raises NotLowered if nodes without a kernel were lowered and can be left as they were."""
    state = settler.state
    if isinstance(state.config.frozen, Locked) or state.config.progress_monitor.cancelled():
        return
    whys = {n: why for n, b in settler.bids.items() if (why := without_kernel(b))}
    if not whys:
        return
    fixed = state.precisions.obeyed
    for keys in (state.lowering, state.parts.lowering):
        lowering = Lowering(settler.trace, keys)
        if lost := [x for n, why in whys.items() if (x := lowering.lost(n, why, fixed))]:
            raise NotLowered(lost, keys)


def _duel(lowered: Attempt, wide: Attempt, found: Mapping[str, Pair]) -> dict[str, Times]:
    """Seconds of pairs of nodes, taken in turns; of those that are alike once."""
    measurer = Settler(wide.network, wide.trace, wide.state, wide.bids).measurer

    def sides(pair: Pair) -> Sides:
        return (
            tuple((lowered.bids[n], c) for n, c in pair.lowered),
            tuple((wide.bids[n], c) for n, c in pair.wide),
        )

    alike = {id(pair): pair for pair in found.values()}
    measurer.delegate([sides(pair) for pair in alike.values()])
    times = {i: measurer.duel(*sides(pair)) or Times.apart(pair) for i, pair in alike.items()}
    return {name: times[id(pair)] for name, pair in found.items()}
