"""What of a plan no C library can run: steps that need Python, or a library of a vendor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tactix.base.errors import PlanCompatibilityError
from tactix.contracts.artifact import Binary
from tactix.contracts.launcher import Step
from tactix.plan.schema import Plan
from tactix_cpu.launcher import ElfLauncher
from tactix_cuda.host_launcher import HostLauncher
from tactix_cuda.launcher import CubinLauncher
from tactix_ship.c_library.cuda_tables import capabilities

SHOWN = 12
"""Steps that an error names of each kind."""

REFERENCE, CONTROL = "tactix.numpy@1", "tactix.control@1"
CPU, CUDA = "cpu", "cuda"


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
    if kind not in (CPU, CUDA):
        yield plan.name, f"it is for the device {kind!r}", "Build it for the CPU or for CUDA"
        return
    if plan.stripped:
        yield plan.name, "its weights were left out", "Refit the plan first"
    for io in (*plan.inputs, *plan.outputs):
        if io.dtype.on_host:
            yield io.name, "text, sequences, optionals and maps have no address", _WITHOUT
    own = _on_cpu if kind == CPU else _on_cuda
    for p in programs(plan):
        for i, s in enumerate(p.steps):
            why = _of_any_device(s) or own(s)
            if why is None and i in p.produced:
                why = "only running tells the shapes of their outputs", _SIZES
            if why is not None:
                yield s.name, *why


_WITHOUT = "Give the model tensors of numbers alone, and make these before and after it"
_KERNELS = (
    "`tactix explain` tells why no kernel was chosen; `tactix build --no-fallback` fails there"
)
_SIZES = "End the model before them, or let an input say the size"
_CUBINS = "Build it of cubins alone: --version-compatible, or --tactics cuda_c,view"
_AGAIN = "Build the plan again"


def _of_any_device(s: Step) -> tuple[str, str] | None:
    """Reason and cure; None for a step that may run."""
    if any(o.spec.dtype.on_host for o in (*s.inputs, *s.outputs)):
        return "text, sequences, optionals and maps run in Python", _WITHOUT
    if s.artifact.launcher == CONTROL or s.plans:
        return "branches and loops run in Python", "Export the parts before, in and after them"
    return None


def _on_cpu(s: Step) -> tuple[str, str] | None:
    launcher, code = s.artifact.launcher, s.artifact.code
    if launcher == REFERENCE:
        return "numpy runs them", _KERNELS
    if launcher != ElfLauncher.key:
        return f"the launcher {launcher} runs them", "Build it for the CPU, with kernels in C"
    if not isinstance(code, Binary) or not code.source:
        return "their machine code came without a text", _AGAIN
    return None


def _on_cuda(s: Step) -> tuple[str, str] | None:
    launcher = s.artifact.launcher
    if launcher == HostLauncher.key:
        return "numpy runs them on the host", _KERNELS
    if launcher != CubinLauncher.key:
        return f"the launcher {launcher} runs them", _CUBINS
    if not isinstance(s.artifact.code, Binary):
        return "they have no machine code", _AGAIN
    try:
        capabilities(s.artifact.requires)
    except ValueError as e:
        return f"they need {e} of a device, which no C library looks for", _AGAIN
    kinds = {a.kind for x in s.artifact.launches for a in x.args}
    if strange := sorted(kinds - _ARGUMENTS):
        return f"their kernels take {strange[0]!r}, which no kernel of a GPU is given", _AGAIN
    return None


_ARGUMENTS = frozenset({"input", "output", "constant", "workspace", "scalar"})
