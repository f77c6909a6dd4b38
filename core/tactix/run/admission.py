"""Which steps of a plan would run code of the plan, and what to say where it is not trusted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tactix.base.errors import UntrustedPlan, punctuated
from tactix.contracts.artifact import Binary, KernelArtifact
from tactix.contracts.launcher import Launcher, Step
from tactix.contracts.session import SessionView
from tactix.contracts.trust import Seal
from tactix.plan.schema import Plan
from tactix.plugins.names import OWN


@dataclass(frozen=True)
class Verdict:
    """What a runtime would do with the code of a plan.

    ``trusted_by``: why the plan is trusted, in words; empty if it is not trusted. ``code``: whether
    it brings code. ``outcome``: ``runs`` (all that it brings), ``references`` in place of its code,
    or ``refused``.
    """

    trusted_by: str
    code: bool
    outcome: str


SHOWN = 4
"""Steps that a refusal names."""


def runs_host_code(artifact: KernelArtifact, launchers: Mapping[str, Launcher]) -> bool:
    """A launcher that is not there may run anything."""
    launcher = launchers.get(artifact.launcher)
    return artifact.host_code or launcher is None or launcher.host_code


def brings_code(artifact: KernelArtifact, launchers: Mapping[str, Launcher]) -> bool:
    """Machine code for a GPU counts, too: it reads and writes all that the process keeps there."""
    return isinstance(artifact.code, Binary) or runs_host_code(artifact, launchers)


def code_steps(plan: Plan, launchers: Mapping[str, Launcher]) -> list[Step]:
    """Steps that run code of the plan, those of bodies among them."""
    found: list[Step] = []
    for s in plan.steps:
        found += [s] if brings_code(s.artifact, launchers) else []
        found += [inner for p in s.plans for inner in code_steps(p, launchers)]
    return found


def embedded(plan: Plan) -> dict[str, str]:
    """What a plan brings as Python: digest and title of each pack."""
    return {r.digest: f"{r.dist} {r.version}" for r in plan.requirements if r.embedded}


def without_packs(plan: Plan) -> Plan:
    """The plan, for which what it brings must be installed here."""
    return replace(plan, requirements=tuple(replace(r, embedded=False) for r in plan.requirements))


def why_unsigned(session: SessionView) -> tuple[str, str]:
    """Why no local key signs plans and knows signatures, and the cure; empty texts where one
    does.
    """
    return ("", "") if session.signer else session.why_missing(OWN, "tactix_trust_stores")


def signer_of(session: SessionView) -> Callable[[bytes], bytes] | None:
    """What signs plans; where nothing does, a warning says so with the reason."""
    why, cure = why_unsigned(session)
    if why:
        session.logger.warning(punctuated((f"the plan is not signed: {why}", cure)))
    return session.signer


@dataclass(frozen=True)
class Origin:
    """``why`` nobody here vouches for a seal; the cures by ``keys``, which need tactix's own trust
    store; how to ``restore`` that where it is not in use. The last two begin a sentence.
    """

    why: str
    keys: str
    restore: str


def origin(seal: Seal, unsigned: tuple[str, str]) -> Origin:
    """``unsigned``: as ``why_unsigned`` gives it."""
    no_store, restore = unsigned
    known = "no key here knows its signature" if seal.signature else "it is not signed"
    store = f"tactix's trust store is not in use: {no_store}" if no_store else ""
    keys = (
        "have it signed by a key that `tactix keys trust` was given; "
        f"or `tactix trust {seal.digest.hex()}`; or "
    )
    return Origin(
        punctuated((known, store), ", and "),
        "" if no_store else keys,
        f"{restore}. " if restore else "",
    )


def refusal(
    plan: Plan, seal: Seal, steps: list[Step], unsigned: tuple[str, str] = ("", "")
) -> UntrustedPlan:
    """Names what would have run, and the cures. ``unsigned``: as ``why_unsigned`` gives it."""
    codes = {c.digest: len(c.blob) for s in steps if isinstance(c := s.artifact.code, Binary)}
    launchers = ", ".join(sorted({s.artifact.launcher for s in steps})) or "no launcher"
    code = "; ".join(
        f"{size} bytes of machine code, sha256 {digest}" for digest, size in sorted(codes.items())
    )
    told = origin(seal, unsigned)
    names = ", ".join([*(f"{s.name[:60]!r}" for s in steps[:SHOWN]), "..."][: len(steps)])
    why = f"{told.why}; it would run {len(steps)} steps ({names or 'none'}) of {launchers}: "
    why += code or "no machine code"
    why += "".join(
        f"; and Python of {title}, sha256 {digest}" for digest, title in embedded(plan).items()
    )
    do = (
        f"{told.restore}If you trust its origin: {told.keys}let its code run with "
        "on_untrusted='allow' (--untrusted allow, TACTIX_UNTRUSTED=allow). "
        "Without its code, but slowly, it runs with on_untrusted='references'"
    )
    return UntrustedPlan(
        "the plan is not trusted",
        who=f"plan {plan.name or 'without name'}",
        why=why,
        do=do,
    )
