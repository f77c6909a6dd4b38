"""What a build tells the log of its plan: which rules fused what, which tactics run it and why not
others, what it takes of memory. It is read from the ledger, and only as far as somebody hears.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tactix.base.dims import evaluate
from tactix.base.logger import LogEvent, Logger, Severity
from tactix.config import MemoryPoolType
from tactix.plan.schema import Plan
from tactix.select.enumerate import WORKSPACE

NAMED = 3
"""Nodes that the line of a rule names."""
LONGEST = 60
"""Characters of a node's name in such a line."""
OTHERS = 6
"""Reasons why other tactics do not run a node that its line gives."""


def tell_plan(plan: Plan, limits: Mapping[MemoryPoolType, int], logger: Logger) -> None:
    """Rules and memory at INFO, each fusion and each node's tactic at VERBOSE, bodies included.

    ``limits``: of the build's memory pools, in bytes.
    """
    if not logger.hears(Severity.INFO):
        return
    plans = list(plan.nested())
    _tell(logger, Severity.INFO, _rules(plans))
    if logger.hears(Severity.VERBOSE):
        _tell(logger, Severity.VERBOSE, (e for p in plans for e in _details(p)))
    _tell(logger, Severity.INFO, _memory(plans, limits))


def _tell(logger: Logger, severity: Severity, events: Iterable[LogEvent]) -> None:
    for event in events:
        logger.tell(severity, event)


# -- fusions --------------------------------------------------------------------------------------


def _rules(plans: Sequence[Plan]) -> Iterator[LogEvent]:
    """A line for each rule that fired, with names of some nodes that came of it."""
    found: dict[str, list[str]] = {}
    for row in (row for p in plans for row in p.ledger.get("fusion", {}).get("fired", ())):
        found.setdefault(row["rule"], []).append((row["added"] or row["removed"])[0])
    for rule, nodes in sorted(found.items()):
        named = [_cut(n) for n in nodes[:NAMED]]
        more = f" and {len(nodes) - NAMED} more" if len(nodes) > NAMED else ""
        often = "once" if len(nodes) == 1 else f"{len(nodes)} times"
        text = f"fused by {rule}, {often}: {', '.join(named)}{more}"
        fields = {"rule": rule, "count": len(nodes), "nodes": tuple(nodes[:NAMED])}
        yield LogEvent("rule", text, fields)


def _cut(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 3]}..."


def _details(plan: Plan) -> Iterator[LogEvent]:
    """Each fusion, what nearly was one, and the tactic of each node."""
    fusion = plan.ledger.get("fusion", {})
    for row in fusion.get("fired", ()):
        removed, added = tuple(row["removed"]), tuple(row["added"])
        text = f"{row['rule']}: {', '.join(removed)} becomes {', '.join(added) or 'nothing'}"
        yield LogEvent("fusion", text, {"rule": row["rule"], "removed": removed, "added": added})
    for row in fusion.get("nearly", ()):
        text = f"{row['rule']} nearly fired at {row['node']}: {row['reason']}"
        yield LogEvent("near_miss", text, dict(row))
    for node, row in plan.ledger.get("nodes", {}).items():
        yield _tactic(node, row)


# -- tactics --------------------------------------------------------------------------------------


def _tactic(node: str, row: Mapping[str, Any]) -> LogEvent:
    """Of one node, as the ledger has it: what runs it, what is next, why the others do not."""
    ranked = row["candidates"]
    chosen = next(c for c in ranked if c["chosen"])
    rest = [c for c in ranked if c is not chosen and "seconds" in c]
    told = [f"{node} ({row['kind']}): {_title(chosen)}, {_time(chosen)}"]
    told += [f"next {_title(rest[0])}, {_time(rest[0])}{_beside(chosen, rest[0])}"] if rest else []
    lost = _reasons(row)
    told += lost[:OTHERS]
    told += [f"{len(lost) - OTHERS} reasons more"] if len(lost) > OTHERS else []
    fields = {
        "node": node,
        "kind": row["kind"],
        "tactic": chosen["tactic"],
        "variant": chosen["variant"],
        "status": chosen["status"],
        "seconds": chosen.get("seconds"),
        "next_tactic": rest[0]["tactic"] if rest else None,
        "next_seconds": rest[0]["seconds"] if rest else None,
        "others": tuple(lost),
    }
    return LogEvent("tactic", "; ".join(told), fields)


def _title(c: Mapping[str, Any]) -> str:
    return f"{c['tactic']} [{c['variant']}]"


def _time(c: Mapping[str, Any]) -> str:
    return f"{c['seconds'] * 1e6:.4g} us {c['status']}" if "seconds" in c else str(c["status"])


def _beside(chosen: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Why a node has not what is fastest for it alone."""
    if "seconds" not in chosen or other["seconds"] >= chosen["seconds"]:
        return ""
    if other.get("near_tie"):
        return " (noise does not tell them apart)"
    return " (with its neighbours, changes of format included, it is no faster)"


def _reasons(row: Mapping[str, Any]) -> list[str]:
    """Why tactics do not run a node, each reason of one once."""
    lost = [(c["tactic"], c["reason"]) for c in row["candidates"] if c["status"] == "rejected"]
    lost += [(r["tactic"].partition(" [")[0], r["reason"]) for r in row["rejections"]]
    return list(dict.fromkeys(f"{tactic}: {why}" for tactic, why in lost))


# -- memory ---------------------------------------------------------------------------------------


def _memory(plans: Sequence[Plan], limits: Mapping[MemoryPoolType, int]) -> Iterator[LogEvent]:
    """The plan's weights, and what its steps take of the pool of scratch memory."""
    blobs = {name: memoryview(content).nbytes for p in plans for name, content in p.blobs.items()}
    weights = {b.blob for p in plans for b in p.buffers if b.kind == "weight"} & blobs.keys()
    size = sum(blobs[name] for name in weights)
    fields: dict[str, object] = {"bytes": size, "count": len(weights)}
    yield LogEvent("weights", f"weights: {size} bytes in {len(weights)} pieces", fields)
    step, most = max(_scratch(plans), key=lambda found: found[1], default=("", 0))
    limit, refused = limits.get(MemoryPoolType.WORKSPACE), _refused(plans)
    told = f"workspace: at most {most} bytes for a step" + (f" ({step})" if step else "")
    told += f", the limit is {limit}" if limit is not None else ", no limit"
    told += f"; {refused} bids needed more" if refused else ""
    pool = {"pool": "workspace", "bytes": most, "step": step, "limit": limit, "refused": refused}
    yield LogEvent("pool", told, pool)


def _scratch(plans: Iterable[Plan]) -> Iterator[tuple[str, int]]:
    """Steps with scratch memory, and its bytes at the sizes that were tuned for."""
    for p in plans:
        for s in p.steps:
            if s.workspace >= 0:
                yield s.name, evaluate(s.artifact.workspace, p.ledger.get("opt", {}))


def _refused(plans: Iterable[Plan]) -> int:
    nodes = (row for p in plans for row in p.ledger.get("nodes", {}).values())
    return sum(WORKSPACE in r["reason"] for row in nodes for r in row["rejections"])
