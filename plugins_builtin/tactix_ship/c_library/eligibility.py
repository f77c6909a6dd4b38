"""What of a plan no C library can run: steps that need Python or another device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tactix.base.errors import PlanCompatibilityError
from tactix.contracts.artifact import Binary
from tactix.contracts.launcher import Step
from tactix.plan.schema import Plan
from tactix_cpu.launcher import ElfLauncher

SHOWN = 12
"""Steps that an error names of each kind."""

REFERENCE, CONTROL = "tactix.numpy@1", "tactix.control@1"


def programs(plan: Plan) -> Sequence[Plan]:
    """The plans that run in its place: those of its sets of kernels, else itself."""
    return plan.steps[0].plans if plan.kernel_sets else (plan,)


def check(plan: Plan) -> None:
    """Raises PlanCompatibilityError that lists what cannot be exported, and tells the cures."""
    found: dict[tuple[str, str], list[str]] = {}
    for name, reason, cure in _obstacles(plan):
        found.setdefault((reason, cure), []).append(name)
    if not found:
        return
    reasons = tuple(f"{reason}: {_listed(names)}" for (reason, _), names in found.items())
    cures = dict.fromkeys(cure for _, cure in found)
    what = "the plan cannot be a C library"
    raise PlanCompatibilityError(what, who=plan.name, reasons=reasons, do="; ".join(cures))


def _listed(names: Sequence[str]) -> str:
    unique = list(dict.fromkeys(names))
    more = f" and {len(unique) - SHOWN} more" if len(unique) > SHOWN else ""
    return ", ".join(map(repr, unique[:SHOWN])) + more


def _obstacles(plan: Plan) -> Iterator[tuple[str, str, str]]:
    """Name, reason and cure of each."""
    kind = plan.device.get("kind")
    if kind != "cpu":
        yield plan.name, f"it is for the device {kind!r}", "Build it for the CPU"
        return
    if plan.stripped:
        yield plan.name, "its weights were left out", "Refit the plan first"
    for io in (*plan.inputs, *plan.outputs):
        if io.dtype.on_host:
            yield io.name, "text, sequences, optionals and maps have no address", _WITHOUT
    for p in programs(plan):
        for i, s in enumerate(p.steps):
            if (why := _obstacle(p, i, s)) is not None:
                yield s.name, *why


_WITHOUT = "Give the model tensors of numbers alone, and make these before and after it"
_KERNELS = (
    "`tactix explain` tells why no kernel was chosen; `tactix build --no-fallback` fails there"
)


def _obstacle(plan: Plan, index: int, s: Step) -> tuple[str, str] | None:
    """Reason and cure; None for a step that can run."""
    launcher = s.artifact.launcher
    if any(o.spec.dtype.on_host for o in (*s.inputs, *s.outputs)):
        return "text, sequences, optionals and maps run in Python", _WITHOUT
    if launcher == REFERENCE:
        return "numpy runs them", _KERNELS
    if launcher == CONTROL or s.plans:
        return "branches and loops run in Python", "Export the parts before, in and after them"
    if launcher != ElfLauncher.key:
        return f"the launcher {launcher} runs them", "Build it for the CPU, with kernels in C"
    if index in plan.produced:
        return "only running tells the shapes of their outputs", _SIZES
    if not isinstance(s.artifact.code, Binary) or not s.artifact.code.source:
        return "their machine code came without a text", "Build the plan again"
    return None


_SIZES = "End the model before them, or let an input say the size"
