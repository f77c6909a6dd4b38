"""Which tactics bid for a node, and why the others do not."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from tactix.base.dims import evaluate, evaluate_shape
from tactix.base.errors import (
    InternalError,
    InvalidArgument,
    NoTacticError,
    TactixError,
    punctuated,
)
from tactix.base.places import place_of_failure
from tactix.base.tensor import Format
from tactix.contracts import region
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node, Value
from tactix.contracts.tactic import CompileContext, Offer, Reject, Tactic, Variant

DEFAULT = 1e-3
"""Seconds of a tactic that gives no estimate."""
FORBIDDEN = "NO_FALLBACK forbids the reference"
WORKSPACE = "bytes of workspace, the limit is"
LEVEL_VARIANTS = {0: 1, 1: 1, 2: 2, 3: 4, 4: 8, 5: 512}
"""Variants of one tactic that are measured, by builder optimization level; more where it offers
more combinations of formats, of each of which the best is measured at every level: which of them is
fast depends on the neighbours.
"""

LISTED = 512
"""Variants of one tactic of which it is kept why they did not bid."""


@dataclass
class Candidate:
    """One bid: a tactic with a variant, its artifact, and what is known about it.

    ``seconds``: measured or estimated; ``spread``: its noise, how far the median of its samples, or
    what other processes may have delayed it by, lies above the least, as a share of that;
    ``error``: largest departure from the reference in units of its budget; ``status``: ``open``,
    ``measured``, ``cached``, ``estimated``, ``rejected``. ``untried``: it is a stranger's, and was
    rejected for no more than that nobody has tried it.
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
    untried: bool = False

    @property
    def title(self) -> str:
        return f"{self.tactic.key} [{self.variant}]"

    @property
    def order(self) -> tuple[float, str, str]:
        """Sort key: seconds, then names, so that equal times always give the same choice."""
        return (self.seconds, self.tactic.key, str(self.variant))

    @property
    def is_reference(self) -> bool:
        """Whether it brings no code: it runs the layers' own meaning, with which others are
        compared.
        """
        return self.tactic.fallback and self.artifact.code is None and not self.artifact.launches


def estimate(c: Candidate) -> None:
    """Take the tactic's own estimate for the time."""
    c.seconds, c.status = DEFAULT if c.estimate is None else c.estimate, "estimated"


def reject(c: Candidate, reason: str) -> None:
    """Take a candidate out of the race."""
    c.seconds, c.status, c.reason = float("inf"), "rejected", reason


@dataclass
class Bids:
    """All candidates for nodes of one signature, and the rejections: (tactic, reason).

    ``produced``: nothing can be tried, as only running tells the outputs' shapes, or they are no
    numbers, or there are bodies. ``count``: of nodes that share them.
    """

    signature: str
    node: Node
    candidates: list[Candidate] = field(default_factory=list)
    rejections: list[tuple[str, str]] = field(default_factory=list)
    produced: bool = False
    count: int = 1

    @property
    def races(self) -> bool:
        """Whether candidates are tried and timed."""
        return not self.produced and self.node.layer.races(self.node.attrs)

    @property
    def standing(self) -> list[Candidate]:
        """Those that are not rejected."""
        return [c for c in self.candidates if c.status != "rejected"]

    @property
    def failures(self) -> str:
        """Why those that are rejected are, in words, each reason once."""
        lost = (f"{c.title}: {c.reason}" for c in self.candidates if c.status == "rejected")
        return punctuated(dict.fromkeys(lost), "; ")


def signature(node: Node, opt: Mapping[str, int]) -> str:
    """Digest of what decides how fast a node runs: layers, attributes, dtypes, shapes, which inputs
    are constant.
    """
    specs = [None if v is None else _describe(v, opt) for v in node.inputs]
    text = json.dumps(
        [_nameless(region.encode(node.layer, node.attrs)), specs], sort_keys=True, default=str
    )
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def likeness(node: Node, tactics: Sequence[Tactic], ctx: CompileContext) -> Any:
    """What nodes have in common that share their bids; the node itself where a tactic looks at
    more.
    """
    import numpy as np

    if not all(t.by_signature or t.fallback for t in _asked(tactics, node.kind, ctx.device)):
        return node
    consts = [v.const for v in node.given]
    with np.errstate(all="ignore"):  # a sum is quick, but may overflow
        finite = [c is None or bool(np.isfinite(c.sum()) or np.isfinite(c).all()) for c in consts]
    return (
        signature(node, ctx.opt),
        *finite,
        *((node.given.index(v), v.spec.value) for v in node.given),
    )


def _describe(v: Value, opt: Mapping[str, int]) -> Any:
    shape = v.spec.shape
    return (
        v.spec.dtype.value,
        [str(d) for d in shape],
        evaluate_shape(shape, opt),
        v.const is not None,
    )


def _nameless(j: Any) -> Any:
    if isinstance(j, dict):
        return {k: _nameless(v) for k, v in j.items() if k != "name"}
    return [_nameless(x) for x in j] if isinstance(j, list) else j


@dataclass(frozen=True)
class Terms:
    """What a bid must keep to: optimization level, workspace bytes; ``lacks`` says why code cannot
    be compiled.

    ``strangers``: who provides the tactics that are not tactix's own, by key. ``references``:
    whether they may bid. ``strict``: a tactic of tactix's own that fails while it bids is an
    InternalError, else it is told to ``warn`` and loses.
    """

    level: int = 3
    workspace: int | None = None
    lacks: Callable[[KernelArtifact], str] = lambda artifact: ""
    strangers: Mapping[str, Any] = field(default_factory=dict)
    references: bool = True
    strict: bool = False
    warn: Callable[[str], None] = lambda message: None


def bid(node: Node, tactics: Sequence[Tactic], ctx: CompileContext, terms: Terms) -> Bids:
    """Collect the bids for a node; there may be none."""
    bids = Bids(signature(node, ctx.opt), node)
    for tactic in _asked(tactics, node.kind, ctx.device):
        if not tactic.fallback or _is_wanted(tactic, bids, terms):
            _ask(bids, tactic, ctx, terms)
    return bids


def no_tactic(bids: Bids, node: Node, device: DeviceProperties) -> NoTacticError:
    """The error of a node that nothing is left for, listing every reason."""
    who = f"{node.name} ({node.kind})"
    if any(why == FORBIDDEN for _, why in bids.rejections):
        what, do = (
            "only the reference could run it",
            "Build without NO_FALLBACK, or install a pack that implements it",
        )
    elif bids.candidates:
        what, do = "every tactic was rejected", "Allow more tactic sources, or mend those"
    else:
        what = f"no tactic can run it on {device.kind}"
        do = "Allow more tactic sources, or install a pack that implements it"
    why = punctuated(reasons(bids), "; ") or "no other tactic implements it"
    return NoTacticError(what, who=who, why=why, do=do)


def reasons(bids: Bids) -> list[str]:
    """Why tactics other than a forbidden reference do not run the node, each reason of a tactic
    once.
    """
    lost = [(c.title, c.reason) for c in bids.candidates if c.status == "rejected"]
    told = [(who, why) for who, why in (*lost, *bids.rejections) if why != FORBIDDEN]
    return list(dict.fromkeys(f"{who.partition(' [')[0]}: {why}" for who, why in told))


def _is_wanted(fallback: Tactic, bids: Bids, terms: Terms) -> bool:
    """Whether a fallback bids: where nobody has so far, or strangers alone have and it runs where
    they do.
    """
    if fallback.crosses:
        return not bids.candidates
    return all(c.tactic.key in terms.strangers for c in bids.candidates)


def fall_back(
    bids: Bids, node: Node, tactics: Sequence[Tactic], ctx: CompileContext, terms: Terms
) -> Bids:
    """A node's bids with those of the next fallback that can run it; no more if none is left."""
    asked = {c.tactic.key for c in bids.candidates} | {key for key, _ in bids.rejections}
    out = replace(
        bids, node=node, candidates=list(bids.candidates), rejections=list(bids.rejections)
    )
    for tactic in _asked(tactics, node.kind, ctx.device):
        if (
            tactic.fallback
            and tactic.key not in asked
            and len(out.candidates) == len(bids.candidates)
        ):
            _ask(out, tactic, ctx, terms)
    return out


def _asked(tactics: Sequence[Tactic], kind: str, device: DeviceProperties) -> list[Tactic]:
    fit = [
        t
        for t in tactics
        if t.device == device.kind and (kind in t.implements or "*" in t.implements)
    ]
    return sorted(fit, key=lambda t: (t.fallback, t.key))


def _ask(bids: Bids, tactic: Tactic, ctx: CompileContext, terms: Terms) -> None:
    node = bids.node
    try:
        offered = tactic.offers(node, ctx.device)
        if isinstance(offered, Reject):
            bids.rejections.append((tactic.key, offered.reason))
            return
        ranked = _rank(offered, ctx)
        limit = max(LEVEL_VARIANTS[terms.level] * tactic.breadth, _combinations(ranked))
        if len(ranked) > limit >= LEVEL_VARIANTS[5]:
            terms.warn(
                f"{tactic.key} offers {len(ranked)} variants for {node.name}: "
                f"the first {limit} are asked. Its author should offer fewer"
            )
        asked = [(cost, variant) for cost, variant in ranked[:limit] if cost != inf]
        for cost, variant in asked:
            candidate = Candidate(tactic, variant, offered.compile(variant, ctx), cost)
            forbidden = FORBIDDEN if candidate.is_reference and not terms.references else ""
            lacks = terms.lacks(candidate.artifact) or _too_large(
                candidate.artifact, ctx, terms.workspace
            )
            if why := forbidden or lacks:
                bids.rejections.append((candidate.title, why))
            else:
                bids.candidates.append(candidate)
        others = [r for r in ranked[:limit] if r[0] == inf] + ranked[limit:]
        for cost, variant in others[:LISTED]:
            why = (
                "not worth it at the sizes tuned for"
                if cost == inf
                else "not asked at this optimization level"
            )
            bids.rejections.append((f"{tactic.key} [{variant}]", why))
    except (Exception, SystemExit) as e:
        bids.rejections.append((tactic.key, _why(e, tactic, node, terms)))


def _why(e: BaseException, tactic: Tactic, node: Node, terms: Terms) -> str:
    """What is said of a tactic that failed while bidding; the log tells where, too. Raises
    InternalError for tactix's own, if that is strict.
    """
    if pack := terms.strangers.get(tactic.key):
        reason = f"its pack ({pack}) failed: {type(e).__name__}: {e}"
        place = place_of_failure(e, tactic.written)
        namespace = tactic.key.partition(".")[0]
        do = f"Report it to its author, or leave it out: TACTIX_DISABLE={namespace}"
        told = f"{tactic.key} for {node.name}: {punctuated((place, reason), ': ')}"
        terms.warn(punctuated((told, do)))
        return reason
    if isinstance(e, TactixError):
        return str(e)
    who, do = f"{tactic.key} for {node.name}", "Please report it"
    failed = InternalError("a tactic failed while bidding", who=who, why=repr(e), do=do)
    if terms.strict:
        raise failed from e
    terms.warn(str(failed))
    return str(failed)


def _too_large(artifact: KernelArtifact, ctx: CompileContext, limit: int | None) -> str:
    size = evaluate(artifact.workspace, ctx.opt)
    fits = 0 <= size <= (inf if limit is None else limit)
    return "" if fits else f"needs {size} {WORKSPACE} {'none' if limit is None else limit}"


def _estimate(offer: Offer[Any], v: Variant, ctx: CompileContext) -> float | None:
    """Raises InvalidArgument for what is no variant, and for a time that is none."""
    if not (isinstance(v, Variant) and all(isinstance(f, Format) for f in (*v.inputs, *v.outputs))):
        raise InvalidArgument(f"{v!r} is no Variant of Formats")
    said = offer.cost(v, ctx)
    if said is not None and not said >= 0:
        raise InvalidArgument(
            f"its cost of [{v}] is {said}", do="Give seconds, infinity to withdraw, or None"
        )
    return None if said is None else float(said)


Ranked = list[tuple[float | None, Variant]]


def _combinations(ranked: Ranked) -> int:
    """How many combinations of formats there are."""
    return len({(v.inputs, v.outputs) for _, v in ranked})


def _rank(offer: Offer[Any], ctx: CompileContext) -> Ranked:
    """By estimate if the tactic gives one, else in its own order; first the best of each
    combination of formats.
    """
    costed: Ranked = [(_estimate(offer, v, ctx), v) for v in offer.variants]
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
