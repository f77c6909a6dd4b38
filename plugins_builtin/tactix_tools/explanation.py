"""Why a plan is as it is: what bid for each step, how fast each was, which rules made it, what
others would cost.

Read from the ledger that a plan keeps; nothing of the plan is run. ``SCHEMA`` describes the result
as JSON schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tactix.base.errors import InvalidArgument, PlanFormatError
from tactix.base.spelling import near
from tactix.plan.schema import Plan

if TYPE_CHECKING:
    from tactix.plugins.session import Session

Row = Mapping[str, Any]

_TEXT, _NUMBER = {"type": "string"}, {"type": "number"}
_TEXTS = {"type": "array", "items": _TEXT}


def _object(
    required: Mapping[str, Any], optional: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    known = {**required, **(optional or {})}
    return {
        "type": "object",
        "required": list(required),
        "properties": known,
        "additionalProperties": False,
    }


_CANDIDATE = _object(
    {"tactic": _TEXT, "variant": _TEXT, "status": _TEXT, "chosen": {"type": "boolean"}},
    {
        "seconds": _NUMBER,
        "spread": _NUMBER,
        "error": _NUMBER,
        "costs_more": _NUMBER,
        "reason": _TEXT,
        "near_tie": {"type": "boolean"},
    },
)
_FIRING = _object({"rule": _TEXT, "removed": _TEXTS, "added": _TEXTS})
_NODE = _object(
    {
        "name": _TEXT,
        "kind": _TEXT,
        "origin": _TEXTS,
        "candidates": {"type": "array", "items": _CANDIDATE},
        "rejections": {"type": "array", "items": _object({"tactic": _TEXT, "reason": _TEXT})},
        "fired": {"type": "array", "items": _FIRING},
        "nearly": {
            "type": "array",
            "items": _object({"rule": _TEXT, "node": _TEXT, "reason": _TEXT}),
        },
        "split": {
            "type": "array",
            "items": _object({"node": _TEXT, "parts": _TEXTS, "reason": _TEXT}),
        },
    }
)
_COUNT = {"type": "integer"}
_COUNTS = {"type": "object", "additionalProperties": _COUNT}
_SHORT = _object(
    {},
    {
        "layers": _COUNT,
        "references": {"type": "object", "additionalProperties": _COUNTS},
        "wide": _COUNT,
        "split": _COUNT,
        "untried": _COUNT,
        "estimated": _COUNT,
    },
)
SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "tactix explain",
    **_object(
        {
            "version": {"const": 1},
            "plan": _TEXT,
            "predicted_seconds": _NUMBER,
            "nodes": {"type": "array", "items": _NODE},
            "rules": _COUNTS,
            "fell_short": _SHORT,
            "precision": _object(
                {
                    "lowered": _TEXTS,
                    "wide": {"type": "object", "additionalProperties": _TEXT},
                    "times": {
                        "type": "object",
                        "additionalProperties": _object(
                            {"lowered": _NUMBER, "wide": _NUMBER, "source": _TEXT}
                        ),
                    },
                }
            ),
        }
    ),
}
"""Times are in seconds at the shapes tuned for. ``spread``: the noise of a time, as a share of it:
how far the median of the samples, or what other processes may have delayed it by, lies above.
``error``: in budgets of the dtype. ``costs_more``: seconds that the node would take longer by that
candidate, changes of format around it left out. ``near_tie``: behind the fastest by no more than
that one's noise, 3% at least, or used by a whole choice that is as fast. ``precision``: nodes that
a flag let be lowered, why others, which a rule might have lowered, stayed as they were, and the
seconds that this was decided by: ``measured`` or ``cached`` in turns, or ``apart``, each by itself.
"""


def explain(source: Any, node: str = "", session: Session | None = None) -> dict[str, Any]:
    """The JSON document of SCHEMA for a plan, an engine, or a plan file. ``node``: a step, or a
    node of the model.

    ``session``: its tactics that wait to be enabled are among the rejections of the nodes that they
    are for. Raises InvalidArgument for a node that is not there; PlanFormatError; OSError.
    """
    plan = _plan(source)
    try:
        rows = list(_rows(plan))
        if session is not None:
            for row in rows:
                row["rejections"] += _not_enabled(session, plan, row)
    except (LookupError, TypeError, AttributeError) as e:
        raise PlanFormatError(
            "the plan's ledger cannot be read", who=plan.name, why=repr(e)[:200]
        ) from e
    return {
        "version": 1,
        "plan": plan.name,
        "predicted_seconds": plan.ledger.get("predicted_seconds", 0.0),
        "nodes": wanted(rows, node) if node else rows,
        "rules": dict(plan.ledger.get("rules", {})),
        "fell_short": dict(plan.ledger.get("fell_short", {})),
        "precision": {"lowered": [], "wide": {}, "times": {}} | plan.ledger.get("precision", {}),
    }


def _rows(plan: Plan, path: str = "") -> Iterator[dict[str, Any]]:
    """Those of each set of kernels, if there are several, with its number before the names."""
    for name, facts in plan.ledger["nodes"].items():
        yield _row(path + name, facts, plan.ledger["fusion"])
    for i, p in enumerate(plan.steps[0].plans if plan.kernel_sets else ()):
        yield from _rows(p, f"{i}/")


def _plan(source: Any) -> Plan:
    from tactix.plan import container

    found = getattr(source, "plan", source)
    return found if isinstance(found, Plan) else container.load(found)


def _row(name: str, facts: Mapping[str, Any], fusion: Mapping[str, Any]) -> dict[str, Any]:
    best = next((c.get("seconds") for c in facts["candidates"] if c["chosen"]), None)
    split = _parts_of(name, fusion.get("split", ()))
    fired, names = _made_of({name, *(s["node"] for s in split)}, fusion["fired"])
    nearly = [m for m in fusion["nearly"] if m["node"] in names]
    return {
        "name": name,
        "kind": facts["kind"],
        "origin": list(facts["origin"]),
        "candidates": [_candidate(c, best) for c in facts["candidates"]],
        "rejections": list(facts["rejections"]),
        "fired": fired,
        "nearly": nearly,
        "split": split,
    }


def _candidate(c: Mapping[str, Any], best: float | None) -> dict[str, Any]:
    out = {k: v for k, v in c.items() if k in _CANDIDATE["properties"]}
    if best is not None and "seconds" in c and not c["chosen"] and c["status"] != "rejected":
        out["costs_more"] = c["seconds"] - best
    return out


def _not_enabled(session: Session, plan: Plan, row: Mapping[str, Any]) -> list[dict[str, str]]:
    """Tactics that could bid for a node if their pack were enabled, and did not when the plan was
    built.
    """
    device = session.devices.get(plan.device.get("key", ""))
    known = {c["tactic"] for c in (*row["candidates"], *row["rejections"])}
    return [
        {
            "tactic": e.key,
            "reason": f"of {e.provider}, disabled until enabled: --enable {e.namespace}",
        }
        for e in session.tactics.entries()
        if session.needs_enabling("tactics", e)
        and e.key not in known
        and device is not None
        and e.object.device == device.kind
        and {row["kind"], "*"} & {*e.object.implements}
    ]


def _parts_of(name: str, splits: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Splits that a node came from, the first first."""
    out: list[dict[str, Any]] = []
    for s in reversed(list(splits)):
        if name in s["parts"]:
            out.append(dict(s))
            name = s["node"]
    return out[::-1]


def _made_of(names: set[str], firings: Iterable[Mapping[str, Any]]) -> tuple[list[Any], set[str]]:
    """Rewrites that led to nodes, the first first, and the names of all nodes on the way."""
    out = []
    for f in reversed(list(firings)):
        if names & set(f["added"]):
            out.append(dict(f))
            names |= set(f["removed"])
    return out[::-1], names


def wanted(rows: Sequence[Row], node: str) -> list[Row]:
    """Rows with ``name`` and ``origin`` that a node names: a step, or a node of the model; else by
    a part of a name.

    Raises InvalidArgument if there is none.
    """
    exact = [r for r in rows if node == r["name"] or node in r["origin"]]
    found = exact or [r for r in rows if node in r["name"]]
    if not found:
        known = dict.fromkeys(x for r in rows for x in (*r["origin"], r["name"]))
        some = near(node, known, most=3, least=0.3) or list(known)[:3]
        raise InvalidArgument(
            f"no node {node!r} in the plan",
            do=f"There are {', '.join(some)}, and {len(known)} in all",
        )
    return found
