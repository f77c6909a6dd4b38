"""The fourth step of a build: a plan of what was selected."""

from __future__ import annotations

import time
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import tactix
from tactix.base.dims import symbol_name
from tactix.base.errors import CompilerError, ToolchainError
from tactix.base.progress import Quiet
from tactix.base.tensor import TensorSpec
from tactix.contracts.artifact import Binary, Source
from tactix.contracts.graph import Node
from tactix.contracts.launcher import Step
from tactix.contracts.tactic import Tactic
from tactix.network.definition import NetworkDefinition
from tactix.pipeline.assembler import Assembler, output_names, stored
from tactix.pipeline.ledger import ledger_of
from tactix.pipeline.mixtures import Attempt
from tactix.pipeline.settle import Settler, holds_objects
from tactix.pipeline.state import BuildState
from tactix.plan.compat import device_facts
from tactix.plan.schema import Plan, Profile, Requirement
from tactix.plugins.session import Session
from tactix.run.link import layer_keys
from tactix.select.compile import COMPILED, compiled, with_binary
from tactix.select.enumerate import Candidate, Terms, bid, estimate, likeness, no_tactic

BodyPlanner = Callable[[NetworkDefinition, BuildState, frozenset[str]], Plan]
"""The plan of a network inside a network; with the symbols of those around it."""


def assemble(attempt: Attempt, planner: BodyPlanner, given: frozenset[str] = frozenset()) -> Plan:
    """The plan of an attempt; where a chosen kernel does not compile, of what is next best.

    ``given``: symbols of the networks around this one. Raises CompilerError, NoTacticError.
    """
    settler = Settler(attempt.network, attempt.trace, attempt.state, attempt.bids)
    while True:
        try:
            return _assembled(attempt, planner, given)
        except CompilerError as e:
            if isinstance(e, ToolchainError) or not settler.drop_uncompilable(attempt.choice):
                raise
            settler.fall_back()
            attempt = replace(attempt, choice=settler.choice())


def _assembled(attempt: Attempt, planner: BodyPlanner, given: frozenset[str]) -> Plan:
    state, fused = attempt.state, attempt.network
    monitor = state.config.progress_monitor
    monitor.phase("assemble", 0)
    launchers = state.session.launchers.items()
    draft, binaries = Assembler(
        fused,
        attempt.choice.candidates,
        Reformats(state),
        _body_planner(attempt, planner, given),
        {key: found for key, found in launchers if key not in state.bench.strangers},
        state.parts.constants(stored),
    ).run(lambda steps: _compiled(steps, state))
    made_from = compiled((s.artifact for s in draft.steps), binaries, state.toolchain)
    found = {id(s.artifact): s.artifact for s in draft.steps}
    done = {key: with_binary(artifact, binaries) for key, artifact in found.items()}
    steps = [replace(s, artifact=done[id(s.artifact)]) for s in draft.steps]
    plan = Plan(
        fused.name,
        tuple(draft.inputs),
        tuple(draft.outputs),
        tuple(state.profiles),
        tuple(draft.buffers),
        tuple(steps),
        given=given,
        ledger={**ledger_of(attempt), COMPILED: made_from},
        requirements=_requirements(steps, state.session),
        blobs=dict(ChainMap(draft.blobs, *(p.blobs for s in steps for p in s.plans))),
        device={"key": state.device.key, **device_facts(state.context.device)},
        meta={
            "tactix": tactix.__version__,
            "threads": state.context.threads,
            "max_aux_streams": state.config.max_aux_streams,
            "references": _referred(steps, state.session),
            **_renamed(fused),
        },
    )
    monitor.finish("assemble")
    return plan


def _renamed(net: NetworkDefinition) -> dict[str, dict[str, str]]:
    """What the model calls outputs whose names are inputs', too; empty where there are none."""
    pairs = zip(output_names(net), net.output_names, strict=True)
    found = {own: name for own, name in pairs if own != name}
    return {"renamed": found} if found else {}


def _body_planner(
    attempt: Attempt, planner: BodyPlanner, given: frozenset[str]
) -> Callable[[NetworkDefinition], Plan]:
    """What plans the bodies of a network's layers: quietly, and with its symbols given."""
    state, fused = attempt.state, attempt.network
    values = [*fused.inputs, *(v for n in fused.nodes for v in n.outputs)]
    known = {name for v in values for d in v.spec.shape if (name := symbol_name(d))}
    quiet = replace(state.config, progress_monitor=Quiet(state.config.progress_monitor))
    body = replace(state, profiles=[Profile("body", {})], config=quiet, parts=state.parts.of_bodies)
    return lambda network: planner(network, body, given | known)


def _compiled(steps: Sequence[Step], state: BuildState) -> Mapping[str, Binary]:
    """Machine code of a plan's steps. Raises CompilerError."""
    texts = {s.artifact.code.digest for s in steps if isinstance(s.artifact.code, Source)}
    monitor = state.config.progress_monitor
    monitor.phase("kernels", len(texts))
    start = time.monotonic()
    told = partial(monitor.step, "kernels")
    binaries = state.toolchain.compile((s.artifact for s in steps), state.context.device, told)
    state.compiling.append(time.monotonic() - start)
    monitor.step("kernels", len(texts))
    monitor.finish("kernels")
    return binaries


def _referred(steps: Sequence[Step], session: Session) -> dict[str, list[str]]:
    """Layers that references in place of host code would need, and the distribution of each
    with its version.
    """
    keys = sorted({k for s in steps for k in layer_keys(s.info.get("reference"))})
    return {k: [(p := session.layers.provider(k)).dist, p.version] for k in keys}


def _requirements(steps: Sequence[Step], session: Session) -> tuple[Requirement, ...]:
    """Launchers and reference layers that the plan needs at run time, and who provides them."""
    artifacts = [s.artifact for s in steps]
    launchers = {a.launcher for a in artifacts}
    layers = {k for a in artifacts for k in layer_keys(a.params)}
    host = {a.launcher for a in artifacts if a.host_code}
    found = [(k, session.launchers.provider(k), k in host) for k in sorted(launchers)]
    found += [(k, session.layers.provider(k), True) for k in sorted(layers)]
    own = [
        Requirement(k, p.dist, p.version, p.digest, False, host_code) for k, p, host_code in found
    ]
    return tuple(
        dict.fromkeys((*own, *(r for s in steps for p in s.plans for r in p.requirements)))
    )


class Reformats:
    """The candidates for changes of format and copies; those that are alike share one."""

    def __init__(self, state: BuildState) -> None:
        self._state = state
        self._tactics = [t for t in state.tactics if t.key not in state.bench.strangers]
        self._shared: dict[tuple[TensorSpec, object], Candidate] = {}

    def __call__(self, node: Node) -> Candidate:
        """The first by estimate: none of a stranger's. Raises NoTacticError."""
        key = node.given[0].spec.plain(), node.attrs
        if (known := self._shared.get(key)) is not None:
            return known
        objects = holds_objects(node)
        able = [t for t in self._tactics if t.produces or not objects]
        found = _first(node, able, self._state)
        if not found.tactic.fallback and likeness(node, able, self._state.context) is not node:
            self._shared[key] = found  # but not the reference's, which names its node
        return found


def _first(node: Node, tactics: Sequence[Tactic], state: BuildState) -> Candidate:
    offered = bid(node, tactics, state.context, Terms(level=1, lacks=state.toolchain.lacks))
    for c in offered.candidates:
        estimate(c)
    if not offered.candidates:
        raise no_tactic(offered, node, state.context.device)
    return min(offered.candidates, key=lambda c: (c.tactic.fallback, *c.order))
