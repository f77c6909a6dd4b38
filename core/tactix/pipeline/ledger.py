"""What a build decided, for the plan that it makes."""

from __future__ import annotations

from typing import Any

from tactix.base.dims import show
from tactix.base.dtypes import DType
from tactix.contracts.graph import Node, Value
from tactix.network.definition import NetworkDefinition
from tactix.pipeline import shortfall
from tactix.pipeline.mixtures import Attempt
from tactix.pipeline.shortfall import Shortfall
from tactix.select.choose import Choice
from tactix.select.enumerate import Bids, Candidate
from tactix.select.precision import Lowering

FEW_BITS = 16
"""Of a quantized number, at most; floats of as many stand for themselves."""


def ledger_of(attempt: Attempt) -> dict[str, Any]:
    """Every decision of the build, as JSON."""
    state, trace, bids, choice = attempt.state, attempt.trace, attempt.bids, attempt.choice
    keys = state.lowering | state.parts.lowering
    lowering = Lowering(trace, keys)
    times = {name: vars(t) for name, t in sorted(choice.duels.items())}
    precision = {"lowered": sorted(lowering.lowered), "wide": lowering.wide, "times": times}
    measured = state.here and state.config.builder_optimization_level > 0
    short = Shortfall.of(bids, choice, trace, len(lowering.wide), measured)
    return {
        **({"precision": precision} if keys else {}),
        shortfall.KEY: short.to_json(),
        "source": source_rows(attempt.source) if _is_quantized(attempt.source) else {},
        "nodes": {n.name: _node_row(n, bids[n], choice) for n in choice.candidates},
        "fusion": trace.to_json(),
        "rules": trace.counts,
        "predicted_seconds": choice.seconds,
        "timing_cache": {"hits": state.cache.hits, "misses": state.cache.misses},
        "opt": dict(state.context.opt),
    }


def _is_quantized(network: NetworkDefinition) -> bool:
    """Whether there are bytes, or other numbers of few bits, that may stand for floats.

    What became of the nodes around these is told by all nodes. Of a network without them nobody
    asks, and its nodes would take more of a plan than its steps.
    """
    tensors = (v for n in network.nodes for v in (*n.given, *n.outputs))
    return any(
        t.bits <= FEW_BITS and (t.is_int or t.bits < FEW_BITS) and t is not DType.BOOL
        for t in {v.spec.dtype for v in tensors}
    )


def source_rows(network: NetworkDefinition) -> dict[str, Any]:
    """The nodes of a network that no rule has seen, by name: what each is, reads and makes."""
    return {
        n.name: {
            "layer": n.layer.key,
            "reads": [_value_row(v) for v in n.given],
            "makes": [_value_row(v) for v in n.outputs],
        }
        for n in network.nodes
    }


def _value_row(v: Value) -> dict[str, Any]:
    row = {"name": v.name, "dtype": v.spec.dtype.value, "shape": show(v.spec.shape)}
    return row if v.const is None else {**row, "constant": True}


def _node_row(n: Node, b: Bids, choice: Choice) -> dict[str, Any]:
    chosen, ties = choice.candidates[n], choice.ties.get(n, ())
    ranked = sorted(b.candidates, key=lambda c: c.order)
    rows = [
        _candidate_row(c, c is chosen) | ({"near_tie": True} if c.title in ties else {})
        for c in ranked
    ]
    rejections = [{"tactic": k, "reason": why} for k, why in b.rejections]
    return {"kind": n.kind, "origin": list(n.origin), "candidates": rows, "rejections": rejections}


def _candidate_row(c: Candidate, chosen: bool) -> dict[str, Any]:
    row = {"tactic": c.tactic.key, "variant": str(c.variant), "status": c.status, "chosen": chosen}
    if c.seconds != float("inf"):
        row |= {"seconds": c.seconds, "spread": round(c.spread, 4)}
    if c.error and c.error != float("inf"):
        row["error"] = c.error
    row |= {"id": c.variant.id, "digest": c.artifact.digest} if chosen else {}
    row |= {"crosses": True} if c.tactic.crosses else {}
    return row | ({"reason": c.reason} if c.reason else {})
