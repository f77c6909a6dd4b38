"""Which tactics bid for a node, and why the others do not."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

from tactix.contracts import region
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node, Value
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix.words.dims import evaluate, evaluate_shape
from tactix.words.errors import InternalError, InvalidArgument, NoTacticError, TactixError
from tactix.words.tensor import Format

LEVEL_VARIANTS = {0: 1, 1: 1, 2: 2, 3: 4, 4: 8, 5: 10**6}
"""Variants of one tactic that are measured, by builder optimization level."""


@dataclass
class Candidate:
    """One bid: a tactic with a variant, its artifact, and what is known about it.

    ``seconds``: measured or estimated; ``spread``: relative distance of the median from the least; ``error``: largest
    departure from the reference in units of its budget; ``status``: ``open``, ``measured``, ``cached``, ``estimated``,
    ``rejected``.
    """

    tactic: Tactic
    variant: Variant
    artifact: KernelArtifact
    estimate: float | None
    seconds: float = float("inf")
    spread: float = 0.0
    error: float = 0.0
    status: str = "open"
    reason: str = ""

    @property
    def title(self) -> str:
        return f"{self.tactic.key} [{self.variant}]"

    @property
    def order(self) -> tuple[float, str, str]:
        """Sort key: seconds, then names, so that equal times always give the same choice."""
        return (self.seconds, self.tactic.key, str(self.variant))


@dataclass
class Bids:
    """All candidates for nodes of one signature, and the rejections: (tactic, reason)."""

    signature: str
    node: Node
    candidates: list[Candidate] = field(default_factory=list)
    rejections: list[tuple[str, str]] = field(default_factory=list)


def signature(node: Node, opt: Mapping[str, int]) -> str:
    """Digest of what decides how fast a node runs: layers, attributes, dtypes, shapes, which inputs are constant."""
    specs = [None if v is None else _describe(v, opt) for v in node.inputs]
    text = json.dumps([_nameless(region.encode(node.layer, node.attrs)), specs], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def likeness(node: Node, tactics: Sequence[Tactic], ctx: CompileContext) -> Any:
    """What nodes have in common that share their bids; the node itself where a tactic looks at more."""
    import numpy as np

    if not all(t.by_signature or t.fallback for t in _asked(tactics, node.kind, ctx.device)):
        return node
    consts = [v.const for v in node.given]
    with np.errstate(all="ignore"):  # a sum is quick, but may overflow
        finite = [c is None or bool(np.isfinite(c.sum()) or np.isfinite(c).all()) for c in consts]
    return signature(node, ctx.opt), *finite, *((node.given.index(v), v.spec.value) for v in node.given)


def _describe(v: Value, opt: Mapping[str, int]) -> Any:
    shape = v.spec.shape
    return (v.spec.dtype.value, [str(d) for d in shape], evaluate_shape(shape, opt), v.const is not None)


def _nameless(j: Any) -> Any:
    if isinstance(j, dict):
        return {k: _nameless(v) for k, v in j.items() if k != "name"}
    return [_nameless(x) for x in j] if isinstance(j, list) else j


@dataclass(frozen=True)
class Terms:
    """What a bid must keep to: optimization level, workspace bytes; ``lacks`` says why code cannot be compiled.

    ``strangers``: who provides the tactics whose failures stop no build, by key.
    """

    level: int = 3
    workspace: int | None = None
    lacks: Callable[[KernelArtifact], str] = lambda artifact: ""
    strangers: Mapping[str, Any] = field(default_factory=dict)


def bid(node: Node, tactics: Sequence[Tactic], ctx: CompileContext, terms: Terms) -> Bids:
    """Collect the bids for a node. Raises NoTacticError listing every reason if there is none."""
    bids = Bids(signature(node, ctx.opt), node)
    for tactic in _asked(tactics, node.kind, ctx.device):
        if tactic.fallback and bids.candidates:
            continue
        _ask(bids, tactic, ctx, terms)
    if not bids.candidates:
        what, who = f"no tactic can run it on {ctx.device.kind}", f"{node.name} ({node.kind})"
        do = "Allow more tactic sources, or install a pack that implements it"
        raise NoTacticError(what, who=who, why="; ".join(reasons(bids)) or "none implements this layer", do=do)
    return bids


def reasons(bids: Bids) -> list[str]:
    """Why tactics do not run the node, each reason of a tactic once."""
    lost = [(c.title, c.reason) for c in bids.candidates if c.status == "rejected"]
    return list(dict.fromkeys(f"{who.partition(' [')[0]}: {why}" for who, why in (*lost, *bids.rejections)))


def _asked(tactics: Sequence[Tactic], kind: str, device: DeviceProperties) -> list[Tactic]:
    fit = [t for t in tactics if t.device == device.kind and (kind in t.implements or "*" in t.implements)]
    return sorted(fit, key=lambda t: (t.fallback, t.key))


def _ask(bids: Bids, tactic: Tactic, ctx: CompileContext, terms: Terms) -> None:
    node, limit = bids.node, LEVEL_VARIANTS[terms.level] * tactic.breadth
    try:
        offered = tactic.offers(node, ctx.device)
        if isinstance(offered, Reject):
            bids.rejections.append((tactic.key, offered.reason))
            return
        ranked = _rank(node, tactic, offered, ctx)
        asked = [(cost, variant) for cost, variant in ranked[:limit] if cost != inf]
        for cost, variant in asked:
            candidate = Candidate(tactic, variant, tactic.compile(node, variant, ctx), cost)
            if why := terms.lacks(candidate.artifact) or _too_large(candidate.artifact, ctx, terms.workspace):
                bids.rejections.append((candidate.title, why))
            else:
                bids.candidates.append(candidate)
        for cost, variant in (r for r in ranked if r not in asked):
            why = "not worth it at the sizes tuned for" if cost == inf else "not asked at this optimization level"
            bids.rejections.append((f"{tactic.key} [{variant}]", why))
    except (Exception, SystemExit) as e:
        pack = terms.strangers.get(tactic.key)
        if not (pack or isinstance(e, TactixError)):
            who = f"{tactic.key} for {node.name}"
            raise InternalError("a tactic failed while bidding", who=who, why=repr(e)) from e
        bids.rejections.append((tactic.key, f"its pack ({pack}) failed: {type(e).__name__}: {e}" if pack else str(e)))


def _too_large(artifact: KernelArtifact, ctx: CompileContext, limit: int | None) -> str:
    size = evaluate(artifact.workspace, ctx.opt)
    fits = 0 <= size <= (inf if limit is None else limit)
    return "" if fits else f"needs {size} bytes of workspace, the limit is {'none' if limit is None else limit}"


def _estimate(node: Node, tactic: Tactic, v: Variant, ctx: CompileContext) -> float | None:
    """Raises InvalidArgument for what is no variant, and for a time that is none."""
    if not (isinstance(v, Variant) and all(isinstance(f, Format) for f in (*v.inputs, *v.outputs))):
        raise InvalidArgument(f"{v!r} is no Variant of Formats")
    said = tactic.cost(node, v, ctx)
    if said is not None and not said >= 0:
        raise InvalidArgument(f"its cost of [{v}] is {said}", do="Give seconds, infinity to withdraw, or None")
    return None if said is None else float(said)


Ranked = list[tuple[float | None, Variant]]


def _rank(node: Node, tactic: Tactic, offered: Sequence[Variant], ctx: CompileContext) -> Ranked:
    """By estimate if the tactic gives one, else in its own order; first the best of each combination of formats."""
    costed: Ranked = [(_estimate(node, tactic, v, ctx), v) for v in offered]
    if all(c is not None for c, _ in costed):
        costed.sort(key=lambda cv: (cv[0], str(cv[1])))
    seen: set[Any] = set()
    first: Ranked = []
    rest: Ranked = []
    for c, v in costed:
        formats = (v.inputs, v.outputs)
        (rest if formats in seen else first).append((c, v))
        seen.add(formats)
    return first + rest
