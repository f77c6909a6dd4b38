"""Which steps of a plan would run code of the plan, and what to say where it is not trusted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tactix.base.errors import UntrustedPlan
from tactix.contracts.artifact import Binary, KernelArtifact
from tactix.contracts.launcher import Launcher, Step
from tactix.contracts.trust import Seal
from tactix.plan.schema import Plan


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


def refusal(plan: Plan, seal: Seal, steps: list[Step]) -> UntrustedPlan:
    """Names what would have run, and the cures."""
    codes = {c.digest: len(c.blob) for s in steps if isinstance(c := s.artifact.code, Binary)}
    launchers = ", ".join(sorted({s.artifact.launcher for s in steps})) or "no launcher"
    code = "; ".join(
        f"{size} bytes of machine code, sha256 {digest}" for digest, size in sorted(codes.items())
    )
    why = "no key here knows its signature" if seal.signature else "it is not signed"
    names = ", ".join([*(f"{s.name[:60]!r}" for s in steps[:SHOWN]), "..."][: len(steps)])
    why += f"; it would run {len(steps)} steps ({names or 'none'}) of {launchers}: "
    why += code or "no machine code"
    why += "".join(
        f"; and Python of {title}, sha256 {digest}" for digest, title in embedded(plan).items()
    )
    do = (
        "If you trust its origin: have it signed by a key that `tactix keys trust` was given; "
        f"or `tactix trust {seal.digest.hex()}`; "
        "or let its code run with on_untrusted='allow' "
        "(--untrusted allow, TACTIX_UNTRUSTED=allow). "
        "Without its code, but slowly, it runs with on_untrusted='references'"
    )
    return UntrustedPlan(
        "the plan is not trusted", who=f"plan {plan.name or 'without name'}", why=why, do=do
    )
