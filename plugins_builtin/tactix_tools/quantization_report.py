"""What became of every QuantizeLinear and DequantizeLinear, of a plan or of a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from rich.console import Console

from tactix.base.errors import InternalError, InvalidArgument
from tactix.builder import Builder
from tactix.config import BuilderConfig
from tactix.pipeline.fuse import fuse
from tactix.pipeline.prepare import prepare
from tactix.plan.container import load
from tactix.plan.schema import Plan
from tactix.plugins.session import Session
from tactix.run.engine import Engine
from tactix.select.precision import Keeps
from tactix_quantize import fates
from tactix_quantize.fates import Fate
from tactix_tools import show

COLUMNS = ["layer", "tensor", "type", "scales", "became", "step", "tactic"]


def of_plan(path: str) -> list[Fate]:
    """Raises PlanFormatError; InvalidArgument for a plan that does not tell its layers."""
    plan = load(path)
    if plan.steps and "source" not in plan.ledger:
        why = "its ledger does not name the layers that it was made of"
        do = "Build it again, with profiling verbosity detailed"
        raise InvalidArgument("nothing is known of its quantisation", who=path, why=why, do=do)
    return fates.of_plan(plan)


def of_model(path: str, session: Session) -> list[Fate]:
    """As the rules for this processor make it, without bids: no tactic is named, and what is in
    branches and loops is left out. Raises ModelImportError, UnsupportedOperator.
    """
    builder = Builder(session=session)
    network = builder.import_model(path)
    config = BuilderConfig(timing_cache=False)
    prepared = prepare(session, network, config, builder.logger, _not_loaded)
    with closing(prepared.state.bench):
        fused = fuse(prepared.network, prepared.state, Keeps.both(lambda name: ""))
    return fates.of_network(fused.source, fused.network, fused.trace)


def _not_loaded(plan: Plan) -> Engine:
    raise InternalError("a plan is loaded where nothing is built", who=plan.name)


def document(path: str, found: Sequence[Fate]) -> dict[str, Any]:
    """The same as JSON."""
    return {"file": path, "counts": counts(found), "quantization": [f.to_json() for f in found]}


def counts(found: Sequence[Fate]) -> dict[str, int]:
    """How many became what; one in several steps counts by the first way of ``fates.WAYS``."""
    counted = Counter(f.became for f in found)
    return {way: counted[way] for way in fates.WAYS if counted[way]}


def tell(console: Console, path: str, found: Sequence[Fate]) -> None:
    """As a table, and each reason once with the layers that it is of."""
    if not found:
        show.line(console, f"{path}: it has no QuantizeLinear or DequantizeLinear")
        return
    rows = [row for f in found for row in _rows(f)]
    console.print(show.table(path, COLUMNS, rows))
    told = ", ".join(f"{n} {way}" for way, n in counts(found).items())
    show.line(console, f"{len(found)} layers: {told}")
    reasons: dict[str, list[str]] = {}
    for f in found:
        for why in f.why:
            reasons.setdefault(why, []).append(f.node)
    for why, names in reasons.items():
        show.line(console, f"- {why} ({', '.join(names)})")


def _rows(f: Fate) -> list[list[object]]:
    first = [f.node, f.tensor, f"{f.dtype}{f.shape}", f.scales]
    if f.gone:
        return [[*first, f.gone, f"by {f.rules[-1]}" if f.rules else "", ""]]
    lead = [first, *[[""] * len(first)] * (len(f.parts) - 1)]
    return [[*x, p.how, _short(p.step), p.tactic] for x, p in zip(lead, f.parts, strict=True)]


def _short(step: str) -> str:
    """A step by the first of its layers; with --json it has its whole name."""
    first, *rest = step.split(" + ")
    return f"{first} + {len(rest)}" if rest else first
