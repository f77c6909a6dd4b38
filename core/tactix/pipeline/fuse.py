"""The second step of a build: a network in larger pieces, by the rules that take part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tactix.config import BuilderFlag
from tactix.contracts.build_stage import Lowered
from tactix.contracts.rule import Rule
from tactix.fuse import rewrite
from tactix.fuse.trace import Firing, NearMiss, Trace
from tactix.network.definition import NetworkDefinition
from tactix.network.verify import verify
from tactix.pipeline.profiles import with_room, with_unknown
from tactix.pipeline.state import BuildState
from tactix.select.precision import Keeps


@dataclass(frozen=True)
class Fused:
    """A fused network, which rules made it, and the state with sizes for all of its symbols.
    ``source``: the network that the rules were given. ``rules``: with what keeps nodes as they
    are.
    """

    state: BuildState
    source: NetworkDefinition
    network: NetworkDefinition
    trace: Trace
    rules: Sequence[Rule]


def fuse(network: NetworkDefinition, state: BuildState, keeps: Keeps) -> Fused:
    """``keeps``: why nodes keep their precision where it could be lowered.

    Raises NetworkError, and InternalError for a rule that is wrong.
    """
    monitor = state.config.progress_monitor
    monitor.phase("fuse", 0)
    rules = [state.precisions.gated(r, keeps.rules) for r in state.rules]
    lowered = state.parts.lower(network, keeps.stages)
    for made in lowered.values():
        network = made.network
        state.precisions.obeyed |= made.fixed
    fused, trace = rewrite.fuse(network, rules)
    trace = _begun(trace, lowered)
    verify(fused, deep=BuilderFlag.DEBUG in state.config.flags)
    monitor.finish("fuse")
    context = replace(state.context, opt=with_unknown(fused, state.context.opt))
    profiles = [with_room(fused, p) for p in state.profiles]
    return Fused(replace(state, context=context, profiles=profiles), network, fused, trace, rules)


def _begun(trace: Trace, lowered: Mapping[str, Lowered[NetworkDefinition]]) -> Trace:
    """The trace of a rewriting, with what stages had lowered before."""
    firings = [
        Firing(key, name, (name,), tuple(new), 0.0)
        for key, made in lowered.items()
        for name, new in made.made.items()
    ]
    misses = {
        NearMiss(key, name, why): None
        for key, made in lowered.items()
        for name, why in made.stays.items()
    }
    return Trace([*firings, *trace.firings], misses | trace.near_misses, trace.splits, trace.outrun)
