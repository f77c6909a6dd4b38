"""Which steps of a plan would run code of the plan in this process, and what to say where nobody vouches for it."""

from __future__ import annotations

from collections.abc import Mapping

from tactix.contracts.artifact import Binary
from tactix.contracts.launcher import Launcher, Step
from tactix.contracts.trust import Seal
from tactix.plan.schema import Plan
from tactix.words.errors import UntrustedPlan


def host_steps(plan: Plan, launchers: Mapping[str, Launcher]) -> list[Step]:
    """Steps with host code, those of bodies among them; a launcher that is not there may run anything."""
    found: list[Step] = []
    for s in plan.steps:
        launcher = launchers.get(s.artifact.launcher)
        found += [s] if s.artifact.host_code or launcher is None or launcher.host_code else []
        found += [inner for p in s.plans for inner in host_steps(p, launchers)]
    return found


def refusal(plan: Plan, seal: Seal, steps: list[Step]) -> UntrustedPlan:
    """Names what would have run, and the cures."""
    codes = {c.digest: len(c.blob) for s in steps if isinstance(c := s.artifact.code, Binary)}
    launchers = ", ".join(sorted({s.artifact.launcher for s in steps})) or "no launcher"
    code = "; ".join(f"{size} bytes of machine code, sha256 {digest}" for digest, size in sorted(codes.items()))
    why = "no key here knows its signature" if seal.signature else "it is not signed"
    why += f"; it would run {len(steps)} steps of {launchers} in this process: {code or 'no machine code'}"
    do = "If you trust its origin: have it signed by a key that `tactix keys trust` was given; or `tactix trust "
    do += f"{seal.digest.hex()}`; or load it with engine_host_code_allowed=True (--allow-host-code)"
    return UntrustedPlan("nobody vouches for the plan", who=f"plan {plan.name or 'without name'}", why=why, do=do)
