"""What two plan files do not have in common, told from their data alone: nothing of them is run."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from tactix.contracts.artifact import Binary
from tactix.contracts.launcher import Step
from tactix.plan.container import load
from tactix.plan.precision import precision
from tactix.plan.schema import Plan
from tactix_tools import plan_report
from tactix_tools.arrays import sizes
from tactix_tools.options import Shapes

Pair = list[Any]
"""Of the first plan and of the second; None where one has none."""


def report(a: str, b: str, shapes: Shapes) -> dict[str, Any]:
    """JSON; ``same``: whether the headers are, and by their sha256 all content.

    Raises PlanFormatError, also where content is damaged, and ShapeError.
    """
    plans = [load(path, verify=True) for path in (a, b)]
    first, second = (dict(_steps(p)) for p in plans)
    both = [name for name in first if name in second]
    rows = [{"name": n, **_step(first[n], second[n])} for n in both]
    return {
        "files": [a, b],
        "same": plans[0].seal.digest == plans[1].seal.digest,  # type: ignore[union-attr]
        "choices": [r for r in rows if _differ(r, "tactic", "variant")],
        "precision": [
            {k: r[k] for k in ("name", "precision")} for r in rows if _differ(r, "precision")
        ],
        "steps": {
            "count": [len(first), len(second)],
            "only": [_only(first, second), _only(second, first)],
        },
        "bytes": _pairs(*(_bytes(p, path, shapes) for p, path in zip(plans, (a, b), strict=True))),
        "times": _times(plans, rows),
        "inputs": _changed(*({io.name: plan_report.tensor(io) for io in p.inputs} for p in plans)),
        "outputs": _changed(
            *({io.name: plan_report.tensor(io) for io in p.outputs} for p in plans)
        ),
        "profiles": _changed(
            *({q.name: {s: list(r) for s, r in q.dims.items()} for q in p.profiles} for p in plans)
        ),
        "requirements": _changed(
            *({r.key: f"{r.dist} {r.version}".strip() for r in p.requirements} for p in plans)
        ),
        "device": _changed(*(dict(p.device) for p in plans)),
        "meta": _changed(*(dict(p.meta) for p in plans)),
    }


def _steps(plan: Plan, path: str = "") -> Iterator[tuple[str, Step]]:
    """Steps by name, those of bodies after the one that they are in; a name that comes again is
    counted.
    """
    seen: Counter[str] = Counter()
    for s in plan.steps:
        seen[s.name] += 1
        name = path + s.name + (f" #{seen[s.name]}" if seen[s.name] > 1 else "")
        yield name, s
        for i, body in enumerate(s.plans):
            yield from _steps(body, f"{name}/{i}/")


def _step(a: Step, b: Step) -> dict[str, Pair]:
    told = {k: [a.info.get(k), b.info.get(k)] for k in ("tactic", "variant", "seconds")}
    return {**told, "precision": [precision(a), precision(b)]}


def _differ(row: Mapping[str, Any], *fields: str) -> bool:
    return any(row[f][0] != row[f][1] for f in fields)


def _only(own: Mapping[str, Step], other: Mapping[str, Step]) -> list[dict[str, Any]]:
    """Steps that the other one lacks."""
    return [
        {
            "name": n,
            "tactic": s.info.get("tactic"),
            "precision": precision(s),
            "seconds": s.info.get("seconds"),
        }
        for n, s in own.items()
        if n not in other
    ]


def _bytes(plan: Plan, path: str, shapes: Shapes) -> dict[str, int | None]:
    """Sizes; ``activations`` at the shapes given, else those tuned for: None where they depend on
    data.
    """
    known = plan_report.memory(plan, sizes(plan, shapes))
    codes = {
        c.digest: len(c.blob) for _, s in _steps(plan) if isinstance(c := s.artifact.code, Binary)
    }
    return {
        "file": os.path.getsize(path),
        "weights": known["weights"],
        "code": sum(codes.values()),
        "activations": known.get("arena"),
    }


def _times(plans: list[Plan], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Seconds as they were measured or estimated in each build: a plan holds no others."""
    steps = [{"name": r["name"], "seconds": r["seconds"]} for r in rows if _differ(r, "seconds")]
    return {"predicted": [p.ledger.get("predicted_seconds") for p in plans], "steps": steps}


def _pairs(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Pair]:
    return {k: [a.get(k), b.get(k)] for k in dict.fromkeys((*a, *b))}


def _changed(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Pair]:
    """What only one has, or what differs, by name; all of it if the order does."""
    return {k: pair for k, pair in _pairs(a, b).items() if pair[0] != pair[1] or list(a) != list(b)}
