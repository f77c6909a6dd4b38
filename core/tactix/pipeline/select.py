"""The third step of a build: which tactics run the network, in which precision."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial

from tactix.config import Locked
from tactix.network.definition import NetworkDefinition
from tactix.pipeline.fuse import fuse
from tactix.pipeline.mixtures import Attempt, Mixtures, NotLowered
from tactix.pipeline.settle import Settler
from tactix.pipeline.state import BuildState
from tactix.select.enumerate import Bids, Candidate
from tactix.select.precision import LOCKED, Lowering, Pair, Stays, Times, without_kernel


def select(network: NetworkDefinition, state: BuildState) -> list[Attempt]:
    """Where lower precision is allowed: with all nodes in it, none, or without those that it makes
    slower.

    Raises NoTacticError, LockError, ToolchainError, TimingCacheError.
    """
    attempt = partial(_attempt, network, state)
    if isinstance(locked := state.config.frozen, Locked):
        keeps = locked.enter()
        return [attempt(lambda name: LOCKED if keeps(name) else "")]
    return Mixtures(
        attempt,
        state.lowering,
        state.logger.warning,
        _duel,
        stopped=state.config.progress_monitor.cancelled,
        is_over=lambda: state.is_over,
    ).tried()


def _attempt(network: NetworkDefinition, state: BuildState, stays: Stays) -> Attempt:
    """Raises NotLowered, and what ``select`` raises."""
    start = time.monotonic()
    fused = fuse(network, state, stays)
    state.pace.fuse = time.monotonic() - start
    sizes = (v.spec.nbytes() for v in fused.network.constants)
    state.pace.weights = sum(n for n in sizes if isinstance(n, int))
    settler = Settler(fused.network, fused.trace, fused.state)
    with state.parts.racing():
        settler.race()
        _leave(settler)
        settler.fall_back()
    monitor = state.config.progress_monitor
    monitor.phase("choose", 0)
    choice = settler.choice()
    monitor.finish("choose")
    return Attempt(fused.state, fused.network, fused.trace, settler.bids, choice)


def _leave(settler: Settler) -> None:
    """Raises NotLowered if nodes without a kernel were lowered and can be left as they were."""
    state = settler.state
    if isinstance(state.config.frozen, Locked) or state.config.progress_monitor.cancelled():
        return
    whys = {n: without_kernel(b) for n, b in settler.bids.items()}
    lowering, fixed = Lowering(settler.trace, state.lowering), state.precisions.obeyed
    if lost := [x for n, why in whys.items() if why and (x := lowering.lost(n, why, fixed))]:
        raise NotLowered(lost)


def _duel(lowered: Attempt, wide: Attempt, found: Mapping[str, Pair]) -> dict[str, Times]:
    """Seconds of pairs of nodes, taken in turns; of those that are alike once."""
    measurer = Settler(wide.network, wide.trace, wide.state, wide.bids).measurer

    def sides(pair: Pair) -> list[list[tuple[Bids, Candidate]]]:
        return [
            [(lowered.bids[n], c) for n, c in pair.lowered],
            [(wide.bids[n], c) for n, c in [pair.wide]],
        ]

    return {name: measurer.duel(*sides(pair)) or Times.apart(pair) for name, pair in found.items()}
