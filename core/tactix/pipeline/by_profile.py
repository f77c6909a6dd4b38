"""Kernels for each profile: the network is planned at the sizes of every profile, and the plans
whose kernels are worth it become one.
"""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tactix.base.errors import ConfigError
from tactix.base.tensor import LINEAR
from tactix.config import BuilderFlag, Locked
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.launcher import Launcher, Operand, Step
from tactix.contracts.tactic import Variant
from tactix.network.definition import NetworkDefinition
from tactix.pipeline.profiles import with_room
from tactix.pipeline.stages import in_one_piece
from tactix.pipeline.state import BuildState
from tactix.plan.kernel_sets import KEY
from tactix.plan.schema import Plan, Requirement, TensorIO

WORTH = 0.03
"""Share of its time that a run at a profile's sizes must gain by kernels of its own: less than that
is within the noise of most times (``select/measure.py``), and a set of kernels may hold weights in
another form once more.
"""
WHO = "BuilderFlag.PROFILE_KERNELS"


Planner = Callable[[BuildState], Plan]
"""The plan of a network at a state's sizes."""


def by_profile(network: NetworkDefinition, state: BuildState, planned: Planner) -> Plan:
    """One plan for all profiles of a network.

    Raises ConfigError for what cannot be with sets of kernels, and as ``planned``.
    """
    launcher = _launcher(state)
    if isinstance(locked := state.config.frozen, Locked):
        found = _locked(state, planned, locked.kernel_sets())
    else:
        found = _measured(state, planned)
    profiles = tuple(with_room(network, p) for p in state.profiles)
    plan = found.plans[0]
    if len(found.plans) > 1:
        plan = _joined(found, launcher, state)
    return replace(plan, profiles=profiles)


@dataclass(frozen=True)
class Sets:
    """``plans``: one for each set of kernels. ``of``: the index of that of each profile."""

    plans: tuple[Plan, ...]
    of: tuple[int, ...]


def _measured(state: BuildState, planned: Planner) -> Sets:
    """The sets that are worth it, by plans for each profile."""
    kept: list[Plan] = []
    sets: list[int] = []
    for i in range(len(state.profiles)):
        plan = in_one_piece(planned(_at(state, i)), WHO)
        own = next((k for k, other in enumerate(kept) if not _pays(plan, other)), len(kept))
        kept += [plan] if own == len(kept) else []
        sets.append(own)
        state.logger.info(f"profile {i} runs on the kernels of set {own}")
    return Sets(tuple(kept), tuple(sets))


def _locked(state: BuildState, planned: Planner, sets: Sequence[int]) -> Sets:
    """The sets of a lock: each is planned for the first profile that has it."""
    firsts = [sets.index(k) for k in sorted(set(sets))] or [0]
    return Sets(tuple(in_one_piece(planned(_at(state, i)), WHO) for i in firsts), tuple(sets))


def _launcher(state: BuildState) -> Launcher:
    """What stands for a step of sets. Raises ConfigError."""
    other = BuilderFlag.WEIGHT_STREAMING
    if other in state.config.flags:
        why = "weights stream in the order of one set of kernels"
        raise ConfigError(f"{WHO} and BuilderFlag.{other.name}", why=why, do="Leave one out")
    found = next((x for x in state.session.launchers.values() if x.switches), None)
    if found is None:
        why = "no plugin in use has a launcher for sets of kernels"
        raise ConfigError(f"{WHO} cannot be served", why=why, do="Build without it")
    return found


def _at(state: BuildState, index: int) -> BuildState:
    """The state of a build for one of the profiles alone."""
    profile = state.profiles[index]
    opt = {s: sizes[1] for s, sizes in profile.dims.items()}
    return replace(state, profiles=[profile], context=replace(state.context, opt=opt))


def _pays(own: Plan, other: Plan) -> bool:
    """Whether a plan's kernels gain enough over those of another set, by the times that its build
    knows at its sizes; also where that does not know them all.
    """
    fast = slow = 0.0
    for name, row in own.ledger["nodes"].items():
        theirs = other.ledger["nodes"].get(name)
        if theirs is None:
            return True
        mine, wanted = _chosen(row), _chosen(theirs)
        same = (c for c in row["candidates"] if _title(c) == _title(wanted))
        found = next((c.get("seconds") for c in same), None)
        if found is None:
            return True
        fast, slow = fast + mine.get("seconds", 0.0), slow + found
    return slow > fast * (1 + WORTH)


def _chosen(row: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = next(c for c in row["candidates"] if c["chosen"])
    return found


def _title(candidate: Mapping[str, Any]) -> tuple[object, object]:
    return candidate["tactic"], candidate["variant"]


def _joined(sets: Sets, launcher: Launcher, state: BuildState) -> Plan:
    """The plan whose one step holds these; what they have in common is in the file once."""
    plans, first = sets.plans, sets.plans[0]
    ios = (*first.inputs, *first.outputs)
    buffers = tuple(first.buffers[io.buffer] for io in ios)
    inputs = tuple(replace(io, buffer=i) for i, io in enumerate(first.inputs))
    outputs = tuple(replace(io, buffer=len(inputs) + i) for i, io in enumerate(first.outputs))
    step = Step(
        "kernel sets",
        KernelArtifact(launcher.key, params={KEY: list(sets.of)}),
        tuple(_operand(first, buffer, io) for buffer, io in enumerate(first.inputs)),
        tuple(_operand(first, len(inputs) + i, io) for i, io in enumerate(first.outputs)),
        info=_info(launcher, first),
        plans=plans,
    )
    p = state.session.launchers.provider(launcher.key)
    own = Requirement(launcher.key, p.dist, p.version, p.digest)
    return replace(
        first,
        inputs=inputs,
        outputs=outputs,
        buffers=buffers,
        steps=(step,),
        blobs=dict(ChainMap(*(dict(p.blobs) for p in plans))),
        requirements=tuple(dict.fromkeys((own, *(r for p in plans for r in p.requirements)))),
        ledger=_ledger(plans),
    )


def _operand(plan: Plan, buffer: int, io: TensorIO) -> Operand:
    spec = next(
        o.spec for s in plan.steps for o in (*s.inputs, *s.outputs) if o.buffer == io.buffer
    )
    return Operand(buffer, spec, LINEAR)


def _info(launcher: Launcher, first: Plan) -> dict[str, object]:
    """Of the step, as of other steps; its seconds are those of the first profile."""
    made, read = ([io.name for io in ios] for ios in (first.outputs, first.inputs))
    told = {"tactic": launcher.key, "source": "", "variant": str(Variant()), "kind": "kernel sets"}
    names = {"layers": [], "origin": [], "makes": made, "consumes": read}
    return {**told, **names, "seconds": first.ledger["predicted_seconds"], "status": "by profile"}


def _ledger(plans: Sequence[Plan]) -> dict[str, Any]:
    """Of the whole; every set has its own."""
    rules: Counter[str] = Counter()
    for p in plans:
        rules.update(p.ledger["rules"])
    first, last = plans[0].ledger, plans[-1].ledger
    return {
        "nodes": {},
        "fusion": {"fired": [], "nearly": [], "split": [], "outrun": []},
        "rules": dict(rules),
        "predicted_seconds": first["predicted_seconds"],
        "timing_cache": last["timing_cache"],
        "opt": first["opt"],
    }
