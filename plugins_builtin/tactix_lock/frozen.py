"""Writing a lock, and building by one: all that differs is told before anything is built."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import tactix
from tactix.base.errors import BuildCancelled, LockError, TactixError, punctuated
from tactix.base.progress import Quiet
from tactix.config import BuilderConfig
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.network.definition import NetworkDefinition
from tactix.plan import container
from tactix.plan.precision import precision
from tactix.plan.schema import Plan
from tactix.plugins.session import Session
from tactix.select.enumerate import Bids, Candidate
from tactix_lock import facts, options
from tactix_lock.document import Choices, Lock, LockedChoice

if TYPE_CHECKING:
    from tactix.builder import Builder

SHOWN = 5
"""So many names of weights or nodes are told."""
CURE = "Bring that back, or write a new lock: tactix lock MODEL"


class Frozen:
    """Choices for one build, as its ``Locked``. ``who``: the lock, for messages."""

    def __init__(self, device: DeviceProperties, choices: Choices, who: str = "") -> None:
        self.device, self._who = device, who
        self._networks = choices.networks()
        self._now, self._sets = choices, choices.sets

    def kernel_sets(self) -> tuple[int, ...]:
        if self._sets:
            self._now = next(self._networks)
        return self._sets

    def enter(self) -> Callable[[str], bool]:
        self._now = next(self._networks)
        return frozenset(self._now.wide).__contains__

    def splits(self, name: str) -> bool:
        return name in self._now.split

    def outruns(self, name: str) -> bool:
        return name in self._now.outrun

    def has(self, name: str, bids: Bids) -> bool:
        wanted = self._now.nodes.get(name)
        return wanted is None or any(c.tactic.key == wanted.tactic for c in bids.candidates)

    def settle(self, bids: dict[Node, Bids]) -> None:
        wrong: list[str] = []
        for node, b in list(bids.items()):
            found = self._find(b, self._now.nodes.get(node.name))
            if isinstance(found, str):
                wrong.append(f"{node.name}: {found}")
            else:
                bids[node] = Bids(b.signature, b.node, [found])
        if wrong:
            raise different(_few(wrong), self._who)

    @staticmethod
    def _find(b: Bids, wanted: LockedChoice | None) -> Candidate | str:
        """The candidate that is wanted, or why there is none."""
        if wanted is None:
            return "the lock has no choice for it"
        found = [
            c for c in b.candidates if (c.tactic.key, c.variant.id) == (wanted.tactic, wanted.id)
        ]
        if not found:
            why = next((r for key, r in b.rejections if key.split(" [")[0] == wanted.tactic), "")
            return f"{wanted.tactic} [{wanted.variant}] does not bid{f', {why}' if why else ''}"
        if found[0].artifact.digest != wanted.digest:
            return f"{wanted.tactic} [{wanted.variant}] gives another kernel"
        return replace(found[0], seconds=wanted.seconds, status="locked")


def different(reasons: list[str], who: str = "") -> LockError:
    """The error of a build that would not give the locked plan."""
    return LockError("the lock does not fit", who=who, why=punctuated(reasons, "; "), do=CURE)


def make(builder: Builder, network: NetworkDefinition, config: BuilderConfig) -> Lock:
    """Build, measuring as usual, and once more by what came out. Raises BuildCancelled if that was
    stopped, LockError, and as ``Builder.build_plan``.
    """
    if config.calibration is not None:
        do = "Write the model with its scales by `tactix quantize`, and lock that one"
        raise LockError("a build that calibrates cannot be locked", do=do)
    plan = builder.build_plan(network, config)
    if config.progress_monitor.cancelled():
        raise BuildCancelled(
            "stopped, no lock is written", why="choices by estimate are not worth one"
        )
    lock = _of(plan, network, config, builder.session)
    quiet = replace(config, progress_monitor=Quiet(config.progress_monitor))
    again = settings(builder.session, lock, network, quiet)
    return replace(lock, plan=_digest(builder.build_plan(network, again)))


def compare(plan: Plan, lock: Lock, who: str = "") -> None:
    """Raises LockError for another plan than the locked one."""
    if (digest := _digest(plan)) != lock.plan:
        here = facts.versions()
        other = [
            f"{k} is {here.get(k)}, was {v}"
            for k, v in sorted(lock.made_with.items())
            if here.get(k) != v
        ]
        why = (
            f"its sha256 is {digest}, that of the lock {lock.plan}, "
            "although all that is locked fits"
        )
        why += f"; {', '.join(other)}" if other else "; the linker is not locked"
        raise LockError(
            "the build gave another plan",
            who=who,
            why=why,
            do="Compare the plans with `tactix diff`",
        )


def settings(
    session: Session, lock: Lock, network: NetworkDefinition, config: BuilderConfig, who: str = ""
) -> BuilderConfig:
    """The configuration that builds the locked plan of a network. Enables the packs that the lock
    enables.

    ``who``: the lock, for messages. Raises LockError that names what differs.
    """
    restored, differ = options.restored(config, lock.options)
    for pack in sorted(restored.enabled & {p.namespace for p in session.found()}):
        session.enable(pack)
    if reasons := [*differ, *_differences(lock, network, session)]:
        raise different(reasons, who)
    restored.frozen = Frozen(facts.properties(lock.device), lock.choices, who)
    return restored


def _digest(plan: Plan) -> str:
    return container.digest(plan).hex()


# -- writing -------------------------------------------------------------------------------------


def _of(plan: Plan, network: NetworkDefinition, config: BuilderConfig, session: Session) -> Lock:
    weights, calibration = facts.constants(network)
    decided = options.locked(replace(config, threads=plan.meta["threads"]))
    choices, key = _choices(plan), plan.device["key"]
    properties = facts.targeted(session, key, config.target)
    launchers = {s.artifact.launcher for p in plan.nested() for s in p.steps}
    known = facts.providers(session)
    dists = {
        d: (known[d].version, known[d].digest)
        for d in sorted(_dists(plan, choices, network, session))
    }
    return Lock(
        tactix.__version__,
        facts.model(network),
        weights,
        calibration,
        decided,
        facts.device(key, properties),
        facts.toolchain(session, properties.kind, launchers),
        dists,
        facts.versions(),
        choices,
    )


def _choices(plan: Plan) -> Choices:
    steps = {s.name: s for s in plan.steps}
    nodes: dict[str, LockedChoice] = {}
    for name, row in plan.ledger["nodes"].items():
        c = next(c for c in row["candidates"] if c["chosen"])
        computed = precision(steps[name]) if name in steps else ""
        nodes[name] = LockedChoice(
            c["tactic"], c["variant"], c["id"], c["digest"], c["seconds"], computed
        )
    wide = plan.ledger.get("precision", {}).get("wide", {})
    fusion = plan.ledger["fusion"]
    split = tuple(sorted({s["node"] for s in fusion["split"]}))
    outrun = tuple(sorted({o["node"] for o in fusion.get("outrun", ())}))
    bodies = tuple(_choices(p) for s in plan.steps for p in s.plans)
    return Choices(nodes, tuple(sorted(wide)), bodies, split, plan.kernel_sets, outrun)


def _dists(plan: Plan, choices: Choices, network: NetworkDefinition, session: Session) -> set[str]:
    """Distributions whose plugins had a part in the plan."""
    own = [
        session.tactics.provider(c.tactic) for net in choices.networks() for c in net.nodes.values()
    ]
    own += [session.rules.provider(rule) for p in plan.nested() for rule in p.ledger["rules"]]
    own += [session.layers.provider(layer) for layer in facts.layers(network)]
    own.append(session.devices.provider(plan.device["key"]))
    return {p.dist for p in own if p.dist} | {r.dist for r in plan.requirements if r.dist}


# -- comparing -----------------------------------------------------------------------------------


def _differences(lock: Lock, network: NetworkDefinition, session: Session) -> list[str]:
    """Everything that is not as it was, in words."""
    here = facts.model(network)
    out = []
    if here["digest"] != lock.model["digest"]:
        out.append(f"the model is another one: {_model(here)}, the lock has {_model(lock.model)}")
    else:
        weights, calibration = facts.constants(network)
        out += _contents("weights", weights, lock.weights)
        out += _contents("scales and zero points of the calibration", calibration, lock.calibration)
    out += _distributions(lock, session)
    tactics = {c.tactic for net in lock.choices.networks() for c in net.nodes.values()}
    out += [
        f"there is no tactic {t} (or its pack is not in use)"
        for t in sorted(tactics - session.tactics.keys())
    ]
    return out + _device(lock, session) + _toolchain(lock, session)


def _model(m: Mapping[str, Any]) -> str:
    return f"{m['layers']} layers, sha256 {m['digest'][:16]}"


def _contents(what: str, here: Mapping[str, str], there: Mapping[str, str]) -> list[str]:
    names = sorted(k for k in here.keys() | there.keys() if here.get(k) != there.get(k))
    return (
        [f"{len(names)} of {len(there)} {what} differ ({', '.join(_few(names))})"] if names else []
    )


def _few(names: list[str]) -> list[str]:
    return names if len(names) <= SHOWN else [*names[:SHOWN], f"and {len(names) - SHOWN} more"]


def _distributions(lock: Lock, session: Session) -> list[str]:
    out, here = [], facts.providers(session)
    for dist, (version, digest) in sorted(lock.distributions.items()):
        if dist not in here:
            out.append(
                f"{dist} {version} is not installed or not in use (pip install {dist}=={version})"
            )
        elif here[dist].version != version:
            out.append(
                f"{dist} is {here[dist].version}, the lock has {version} "
                f"(pip install {dist}=={version})"
            )
        elif here[dist].digest != digest:
            out.append(f"{dist} {version} has other files than it had")
    return out


def _device(lock: Lock, session: Session) -> list[str]:
    there, key = lock.device, lock.device["key"]
    try:
        here = facts.targeted(session, key, lock.options.get("target", ""))
    except TactixError as e:
        return [str(e)]
    lacks, more = set(there["features"]) - here.features, here.features - set(there["features"])
    out = (
        [f"device {here.name} lacks {', '.join(sorted(lacks))}, which the lock is for"]
        if lacks
        else []
    )
    out += (
        [f"device {here.name} has {', '.join(sorted(more))} beside what the lock is for"]
        if more
        else []
    )
    if here.vector_bits != there["vector_bits"]:
        out.append(
            f"device {here.name} has vectors of {here.vector_bits} bits, "
            f"the lock {there['vector_bits']}"
        )
    return out


def _toolchain(lock: Lock, session: Session) -> list[str]:
    launchers = [c.launcher for key, c in session.compilers.items() if key in lock.toolchain]
    here = facts.toolchain(session, lock.device["kind"], launchers)
    out = []
    for key, identity in sorted(lock.toolchain.items()):
        if key not in here:
            out.append(f"compiler {key} is not here or not used, the lock has {identity}")
        elif here[key] != identity:
            own, other = here[key].split(), identity.split()
            mine, theirs = ([w for w in a if w not in b] for a, b in ((own, other), (other, own)))
            out.append(
                f"compiler {key} is {' '.join(mine) or 'another one'}, "
                f"the lock has {' '.join(theirs)}"
            )
    return out
