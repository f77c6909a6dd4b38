"""Kernels for each profile: the network is planned at the sizes of every profile, and the plans
whose kernels are worth it become one.
"""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tactix.base.errors import ConfigError
from tactix.base.tensor import LINEAR
from tactix.config import BuilderFlag, Locked
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.launcher import Launcher, Operand, Step
from tactix.contracts.tactic import Variant
from tactix.pipeline.state import BuildState
from tactix.plan.kernel_sets import KEY
from tactix.plan.schema import Plan, Requirement, TensorIO

WORTH = 0.03
"""Share of its time that a run at a profile's sizes must gain by kernels of its own: less than that
is within the noise of most times (``select/measure.py``), and a set of kernels may hold weights in
another form once more.
"""
WHO = "BuilderFlag.PROFILE_KERNELS"


def by_profile(state: BuildState, planned: Callable[[BuildState], Plan]) -> Plan:
    """One plan for all profiles. ``planned``: the plan of the network at a state's sizes.

    Raises ConfigError for what cannot be with sets of kernels, and as ``planned``.
    """
    launcher = _launcher(state)
    plans = [planned(_at(state, i)) for i in range(len(state.profiles))]
    if told := next((p.steps[min(p.produced)].name for p in plans if p.produced), ""):
        why = f"only running tells the shapes of {told!r}, or it holds other networks"
        raise ConfigError(f"{WHO} for this network", why=why, do="Build without it")
    kept: list[Plan] = []
    sets: list[int] = []
    for p in plans:
        own = next((k for k, other in enumerate(kept) if not _pays(p, other)), len(kept))
        kept += [p] if own == len(kept) else []
        sets.append(own)
        state.logger.info(f"profile {len(sets) - 1} runs on the kernels of set {own}")
    profiles = tuple(p.profiles[0] for p in plans)
    if len(kept) == 1:
        return replace(kept[0], profiles=profiles)
    return replace(_joined(kept, sets, launcher, state), profiles=profiles)


def _launcher(state: BuildState) -> Launcher:
    """What stands for a step of sets. Raises ConfigError."""
    other = BuilderFlag.WEIGHT_STREAMING
    if other in state.config.flags:
        why = "weights stream in the order of one set of kernels"
        raise ConfigError(f"{WHO} and BuilderFlag.{other.name}", why=why, do="Leave one out")
    if isinstance(state.config.frozen, Locked):
        why = "a lock has the choices of one set of kernels"
        raise ConfigError(f"{WHO} in a build by a lock", why=why, do="Build without one of them")
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


def _joined(
    plans: Sequence[Plan], sets: Sequence[int], launcher: Launcher, state: BuildState
) -> Plan:
    """The plan whose one step holds these; what they have in common is in the file once."""
    first = plans[0]
    ios = (*first.inputs, *first.outputs)
    buffers = tuple(first.buffers[io.buffer] for io in ios)
    inputs = tuple(replace(io, buffer=i) for i, io in enumerate(first.inputs))
    outputs = tuple(replace(io, buffer=len(inputs) + i) for i, io in enumerate(first.outputs))
    step = Step(
        "kernel sets",
        KernelArtifact(launcher.key, params={KEY: list(sets)}),
        tuple(_operand(first, buffer, io) for buffer, io in enumerate(first.inputs)),
        tuple(_operand(first, len(inputs) + i, io) for i, io in enumerate(first.outputs)),
        info=_info(launcher, first),
        plans=tuple(plans),
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
    told = {"tactic": launcher.key, "source": "", "variant": str(Variant()), "kind": "kernel sets"}
    seconds = first.ledger["predicted_seconds"]
    return {**told, "layers": [], "origin": [], "seconds": seconds, "status": "by profile"}


def _ledger(plans: Sequence[Plan]) -> dict[str, Any]:
    """Of the whole; every set has its own."""
    rules: Counter[str] = Counter()
    for p in plans:
        rules.update(p.ledger["rules"])
    first, last = plans[0].ledger, plans[-1].ledger
    return {
        "nodes": {},
        "fusion": {"fired": [], "nearly": [], "split": []},
        "rules": dict(rules),
        "predicted_seconds": first["predicted_seconds"],
        "timing_cache": last["timing_cache"],
        "opt": first["opt"],
    }
