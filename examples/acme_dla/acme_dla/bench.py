"""How a plan is chosen: as others are, but that it has no more subgraphs than there may be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from acme_dla import limits
from acme_dla.tactics import SUBGRAPH, HostTactic
from tactix.pipeline.mixtures import Attempt
from tactix.plan.schema import Plan
from tactix.run.engine import Engine
from tactix.select.bench import Bench
from tactix.select.enumerate import Candidate
from tactix_sdk import Node, Variant


class AcceleratorBench(Bench):
    """``fastest`` keeps the largest subgraphs and gives the others to the host."""

    def fastest(
        self,
        tried: Sequence[Attempt],
        complete: Callable[[Attempt], Plan],
        load: Callable[[Plan], Engine],
    ) -> Plan:
        best = min(tried, key=lambda attempt: attempt.choice.seconds)
        chosen = best.choice.candidates
        left_over = _left_over(best.network.nodes, chosen)
        moved = {n: self._on_host(n, best.state.context) for n in left_over}
        for node, candidate in moved.items():
            bids = best.bids[node]
            best.bids[node] = replace(bids, candidates=[*bids.candidates, candidate])
        choice = replace(best.choice, candidates={**chosen, **moved})
        return complete(replace(best, choice=choice))

    @staticmethod
    def _on_host(node: Node, context: Any) -> Candidate:
        host = HostTactic()
        why = f"in a subgraph beyond the {limits.SUBGRAPHS} largest"
        seconds = host.cost(node, Variant(), context)
        artifact = host.compile(node, Variant(), context)
        return Candidate(
            host, Variant(), artifact, seconds, seconds or 0.0, status="estimated", reason=why
        )


def _left_over(nodes: Sequence[Node], chosen: Mapping[Node, Candidate]) -> list[Node]:
    """The nodes of those subgraphs that are too many: the smallest, later ones first."""
    runs = [
        list(run)
        for key, run in groupby(nodes, lambda n: chosen[n].artifact.launcher)
        if key == SUBGRAPH
    ]
    kept = sorted(runs, key=len, reverse=True)[: limits.SUBGRAPHS]
    return [n for run in runs if run not in kept for n in run]
