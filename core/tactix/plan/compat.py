"""Whether a plan may run here: hard reasons against it, and softer differences to warn about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tactix.contracts.device import DeviceProperties
from tactix.plan.schema import Plan


def check(plan: Plan, properties: DeviceProperties, version: str) -> list[str]:
    """Reasons why the plan must not run on such a device; empty if there are none.

    ``version``: of the tactix that would run it; another major version may give the same keys
    another meaning.
    """
    reasons = []
    kind = plan.device.get("kind", properties.kind)
    if kind != properties.kind:
        reasons.append(f"it was built for a {kind} device, this is a {properties.kind} device")
    for feature, steps in sorted(_required(plan).items()):
        if not properties.has(feature):
            reasons.append(
                f"{len(steps)} steps (first {steps[0]!r}) need {feature}, "
                f"which {properties.name} lacks"
            )
    built = str(plan.meta.get("tactix", version))
    if not same_major(built, version):
        reasons.append(f"it was built by tactix {built}, this is tactix {version}")
    return reasons


def same_major(built: str, version: str) -> bool:
    """Whether keys mean the same to both versions."""
    return built.split(".")[0] == version.split(".")[0]


def warnings(plan: Plan, properties: DeviceProperties, version: str) -> list[str]:
    """Differences that cost speed, or that are worth knowing when something looks odd."""
    differences = [] if plan.device.get("family") else _differences(plan, properties)
    found = [f"tuned for another device: {', '.join(differences)}"] if differences else []
    if isinstance(threads := plan.meta.get("threads"), int) and threads > properties.cores:
        found.append(f"tuned for {threads} threads, this device has {properties.cores} cores")
    built = str(plan.meta.get("tactix", version))
    if built != version:
        found.append(f"built by tactix {built}, run by {version}")
    return found


def _differences(plan: Plan, properties: DeviceProperties) -> list[str]:
    """What the plan was tuned to and what is here, fact by fact; those that either does not tell
    are left out.
    """
    there = plan.device.get("tuned_to")
    built: dict[str, Any] = dict(there) if isinstance(there, Mapping) else {}
    built |= {fact: plan.device[fact] for fact in ("name", "vector_bits") if fact in plan.device}
    here = {"name": properties.name, "vector_bits": properties.vector_bits, **properties.tuned_to}
    return [
        f"{fact.replace('_', ' ')} {built[fact]} (here {value})"
        for fact, value in here.items()
        if built.get(fact, value) != value
    ]


def device_facts(properties: DeviceProperties) -> dict[str, Any]:
    """What a plan keeps of its target device."""
    own = {
        fact: getattr(properties, fact)
        for fact in ("kind", "name", "vector_bits", "cores", "memory")
    }
    own |= {"features": sorted(properties.features), "tuned_to": dict(properties.tuned_to)}
    return own | {"family": True} if properties.family else own


def _required(plan: Plan) -> dict[str, list[str]]:
    """Names of the steps that need each feature, those of bodies among them."""
    out: dict[str, list[str]] = {}
    for s in (s for p in plan.nested() for s in p.steps):
        for feature in s.artifact.requires:
            out.setdefault(feature, []).append(s.name)
    return out
