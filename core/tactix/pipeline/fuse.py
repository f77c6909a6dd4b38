"""The second step of a build: a network in larger pieces, by the rules that take part."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tactix.config import BuilderFlag
from tactix.fuse import rewrite
from tactix.fuse.trace import Trace
from tactix.network.definition import NetworkDefinition
from tactix.network.verify import verify
from tactix.pipeline.profiles import with_room, with_unknown
from tactix.pipeline.state import BuildState
from tactix.select.precision import Stays


@dataclass(frozen=True)
class Fused:
    """A fused network, which rules made it, and the state with sizes for all of its symbols."""

    state: BuildState
    network: NetworkDefinition
    trace: Trace


def fuse(network: NetworkDefinition, state: BuildState, stays: Stays) -> Fused:
    """``stays``: why a node keeps its precision where rules could lower it, or nothing.

    Raises NetworkError, and InternalError for a rule that is wrong.
    """
    monitor = state.config.progress_monitor
    monitor.phase("fuse", 0)
    rules = [state.precisions.gated(r, stays) for r in state.rules]
    fused, trace = rewrite.fuse(network, rules)
    verify(fused, deep=BuilderFlag.DEBUG in state.config.flags)
    monitor.finish("fuse")
    context = replace(state.context, opt=with_unknown(fused, state.context.opt))
    profiles = [with_room(fused, p) for p in state.profiles]
    return Fused(replace(state, context=context, profiles=profiles), fused, trace)
