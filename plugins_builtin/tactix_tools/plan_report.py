"""What is in a plan file, told from its data alone: nothing in it is run or even looked for among
the plugins.
"""

from __future__ import annotations

import os
from typing import Any

from tactix.base import dims
from tactix.plan.container import load
from tactix.plan.memory import lower_bound, plan_memory
from tactix.plan.schema import Plan
from tactix.run.inspector import notes
from tactix_tools.arrays import sizes
from tactix_tools.crossing import copies
from tactix_tools.options import Shapes


def report(path: str, shapes: Shapes) -> dict[str, Any]:
    """JSON: io, profiles, steps, rules, memory, requirements, device. Raises PlanFormatError,
    ShapeError.
    """
    plan = load(path)
    return {
        "kind": "plan",
        "file": path,
        "bytes": os.path.getsize(path),
        "name": plan.name,
        "inputs": [tensor(io) for io in plan.inputs],
        "outputs": [tensor(io) for io in plan.outputs],
        "profiles": [
            {"name": p.name, "dims": {s: list(r) for s, r in sorted(p.dims.items())}}
            for p in plan.profiles
        ],
        "steps": _steps(plan, sizes(plan, shapes)),
        "rules": plan.ledger.get("rules", {}),
        "fell_short": plan.ledger.get("fell_short", {}),
        "memory": memory(plan, sizes(plan, shapes)),
        "requirements": [
            {"key": r.key, "dist": r.dist, "version": r.version, "embedded": r.embedded}
            for r in plan.requirements
        ],
        "device": dict(plan.device),
        "meta": dict(plan.meta),
    }


def _steps(plan: Plan, symbols: dict[str, int]) -> list[dict[str, Any]]:
    rows, copied = [], copies(plan, symbols)
    for i, s in enumerate(plan.steps):
        row = {"name": s.name, **notes(s), "launcher": s.artifact.launcher, "format": _formats(s)}
        row |= {"copies": copied[i]} if i in copied else {}
        row |= {"in_place": placed} if (placed := _in_place(plan, s)) else {}
        rows.append(row | ({"bodies": [_steps(p, symbols) for p in s.plans]} if s.plans else {}))
    return rows


def _in_place(plan: Plan, step: Any) -> list[str]:
    """The tensors in which a step's results lie as parts, which so need no copy."""
    parts = [plan.buffers[o.buffer] for o in step.outputs]
    return [plan.buffers[b.inside].name for b in parts if b.inside >= 0]


def tensor(io: Any) -> dict[str, Any]:
    """Name, dtype and shape of an input or output."""
    dtype = io.dtype.value if io.element is None else f"{io.dtype.value}<{io.element}>"
    return {
        "name": io.name,
        "dtype": dtype,
        "shape": [d if isinstance(d, int) else str(d) for d in io.shape],
    }


def _formats(step: Any) -> str:
    names = [o.format.name for o in (*step.inputs, *step.outputs)]
    return "linear" if set(names) <= {"linear"} else "/".join(names)


def memory(plan: Plan, symbols: dict[str, int]) -> dict[str, Any]:
    """Bytes of weights, of the arena, and the least that any arena could have, for these sizes.

    The arena of a plan with produced steps is known by running only; of several sets of kernels
    it is that of the first.
    """
    held = (b for p in plan.nested() for b in p.buffers if b.kind == "weight")
    weights = {b.blob: dims.evaluate(b.nbytes, symbols) for b in held}
    if plan.produced:
        return {"symbols": symbols, "weights": sum(weights.values())}
    if plan.kernel_sets:
        plan = plan.steps[0].plans[plan.kernel_sets[0]]
    live = [b for b in plan.buffers if b.kind in ("arena", "workspace")]
    bytes_of = [dims.evaluate(b.nbytes, symbols) for b in live]
    lifetimes = [(b.first, b.last) for b in live]
    arena = plan_memory(bytes_of, lifetimes)[1]
    least = lower_bound(bytes_of, lifetimes)
    return {
        "symbols": symbols,
        "weights": sum(weights.values()),
        "arena": arena,
        "lower_bound": least,
        "ratio": arena / least if least else 1.0,
    }
