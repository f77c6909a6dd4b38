"""What the host steps of a plan for a GPU copy, and how long that may take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from tactix.base import dims
from tactix.contracts.launcher import Operand, Step
from tactix.plan.schema import Plan
from tactix_cuda.host_launcher import CROSSING_BANDWIDTH, CROSSING_SECONDS, HostLauncher, crossings

Rows = dict[int, dict[str, Any]]


def copies(plan: Plan, symbols: dict[str, int]) -> Rows:
    """By step: ``to_host`` before it and ``to_device`` behind it, each with names, bytes and
    estimated seconds.

    Bytes are None where they depend on data.
    """
    out: Rows = {}
    for first, last, read, written in _runs(plan):
        for step, way, operands in ((first, "to_host", read), (last, "to_device", written)):
            if operands:
                out.setdefault(step, {})[way] = _copy(plan, operands, symbols)
    return out


def _runs(plan: Plan) -> Iterator[tuple[int, int, list[Operand], list[Operand]]]:
    """First and last step of each run of host steps, what it reads from the device and what it
    writes there.
    """
    for kind, group in groupby(enumerate(plan.steps), key=lambda item: _kind(plan, *item)):
        steps = list(group)
        if kind == "host":
            yield steps[0][0], steps[-1][0], *crossings([s for _, s in steps])
        elif kind:
            i, step = steps[0]
            yield i, i, *_produced(plan, step)


def _kind(plan: Plan, i: int, step: Step) -> str:
    """``host``, a name of its own for a produced step, or "" on the device."""
    if step.artifact.launcher != HostLauncher.key:
        return ""
    return f"produced {i}" if i in plan.produced else "host"


def _produced(plan: Plan, step: Step) -> tuple[list[Operand], list[Operand]]:
    """Its values stay on the host unless a step on the device made or reads them."""
    ours = [s for i, s in enumerate(plan.steps) if i not in plan.produced]
    made, read = (
        {o.buffer for s in ours for o in getattr(s, side)} for side in ("outputs", "inputs")
    )
    before = {o.buffer: o for o in step.inputs if o.buffer in made}
    behind = {o.buffer: o for o in step.outputs if o.buffer in read}
    return list(before.values()), list(behind.values())


def _copy(plan: Plan, operands: Iterable[Operand], symbols: dict[str, int]) -> dict[str, Any]:
    every = list(operands)
    names = [plan.buffers[o.buffer].name for o in every]
    sizes = [o.spec.nbytes(o.format) for o in every]
    if not all(dims.symbols(n) <= symbols.keys() for n in sizes):
        return {"names": names, "bytes": None, "seconds": None}
    total = sum(dims.evaluate(n, symbols) for n in sizes)
    return {
        "names": names,
        "bytes": total,
        "seconds": len(every) * CROSSING_SECONDS + total / CROSSING_BANDWIDTH,
    }
