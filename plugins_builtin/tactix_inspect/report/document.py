"""The document that the page shows: JSON of a plan, and of what is known beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tactix.base.errors import InvalidArgument
from tactix.pipeline.shortfall import Shortfall
from tactix.plan.schema import Plan, TensorIO
from tactix_inspect.profile import PlanProfile, StepTime
from tactix_inspect.report.flow import StepFlow, flow
from tactix_inspect.report.layered import layered
from tactix_inspect.report.memory import ArenaMap, arena_map
from tactix_inspect.report.steps import Row, number, shape, short, step_row, text, texts

VERSION = 1


@dataclass(frozen=True)
class ReportSubject:
    """What a report is of. ``file``, ``nbytes``: the plan's file. ``sizes``: values of its symbols
    for which memory is told. ``explanation``: what ``tactix explain --json`` prints;
    ``differences``: what ``tactix diff --json`` prints; empty for none.
    """

    plan: Plan
    file: str = ""
    nbytes: int = 0
    sizes: Mapping[str, int] = field(default_factory=dict)
    explanation: Mapping[str, Any] = field(default_factory=dict)
    differences: Mapping[str, Any] = field(default_factory=dict)
    profile: PlanProfile | None = None


def document(subject: ReportSubject) -> Row:
    """JSON. Raises InvalidArgument for a profile of another plan."""
    plan, graphs = subject.plan, _Graphs(subject.sizes)
    main = graphs.add(plan.name or "plan", plan)
    prefix = ""
    if plan.kernel_sets:  # its one step stands for plans that run in its place
        main = graphs.bodies[main][0][plan.kernel_sets[0]]
        prefix = f"{plan.kernel_sets[0]}/"
    explanation = subject.explanation
    return {
        "version": VERSION,
        "plan": _facts(subject),
        "main": main,
        "graphs": graphs.rows,
        "nodes": [
            _node(n, prefix) for n in explanation.get("nodes", ()) if n["name"].startswith(prefix)
        ],
        "rules": dict(explanation.get("rules", {})),
        "precision": dict(explanation.get("precision", {})),
        "shortfall": _shortfall(plan),
        "profile": _profile(subject.profile, graphs.plans[main]) if subject.profile else None,
        "differences": dict(subject.differences) or None,
    }


def tuned_sizes(plan: Plan) -> dict[str, int]:
    """Values of the plan's symbols that its first profile is tuned for."""
    return {s: opt for p in plan.profiles[:1] for s, (_, opt, _) in p.dims.items()}


class _Graphs:
    """A plan and those of its bodies, each with its place in a list."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self._sizes = sizes
        self.rows: list[Row] = []
        self.plans: list[Plan] = []
        self.bodies: dict[int, dict[int, list[int]]] = {}

    def add(self, name: str, plan: Plan) -> int:
        index = len(self.rows)
        self.rows.append({})
        self.plans.append(plan)
        self.bodies[index] = {
            i: [self.add(f"{s.name} / {k}", p) for k, p in enumerate(s.plans)]
            for i, s in enumerate(plan.steps)
            if s.plans
        }
        self.rows[index] = self._row(name, plan, self.bodies[index])
        return index

    def _row(self, name: str, plan: Plan, bodies: Mapping[int, Sequence[int]]) -> Row:
        found = flow(plan)
        steps = [
            step_row(plan, s, makers, self._sizes)
            for s, makers in zip(plan.steps, found.makers, strict=True)
        ]
        for i, inside in bodies.items():
            steps[i]["bodies"] = list(inside)
        return {
            "name": name,
            "inputs": [tensor(io) for io in plan.inputs],
            "outputs": [tensor(io) for io in plan.outputs],
            "steps": steps,
            "edges": [list(e) for e in found.edges],
            "layout": _layout(found),
            "memory": _memory(arena_map(plan, self._sizes)),
        }


def tensor(io: TensorIO) -> Row:
    """An input or output."""
    return {"name": io.name, "dtype": io.dtype.value, "shape": shape(io.shape)}


def _layout(found: StepFlow) -> Row:
    laid = layered(found.count, found.edges, found.in_order)
    trunks = {str(a): list(x) for a, x in laid.trunks.items()}
    return {"rows": list(laid.rows), "places": list(laid.places), "trunks": trunks}


def _memory(found: ArenaMap | None) -> Row | None:
    if found is None:
        return None
    blocks = [[b.name, b.kind, b.first, b.last, b.offset, b.nbytes] for b in found.blocks]
    return {
        "arena": found.arena,
        "least": found.least,
        "live": list(found.live),
        "blocks": blocks,
    }


def _facts(subject: ReportSubject) -> Row:
    plan = subject.plan
    held = {
        b.blob: b.nbytes
        for p in plan.nested()
        for b in p.buffers
        if b.kind == "weight" and isinstance(b.nbytes, int)
    }
    return {
        "name": plan.name,
        "file": subject.file,
        "bytes": subject.nbytes,
        "device": {k: v for k, v in plan.device.items() if isinstance(v, (str, int, float))},
        "features": plan.device.get("features"),
        "made_by": plan.meta.get("tactix"),
        "threads": plan.meta.get("threads"),
        "predicted": number(plan.ledger.get("predicted_seconds")),
        "weights": sum(held.values()),
        "sizes": dict(subject.sizes),
        "profiles": [
            {"name": p.name, "dims": {s: list(r) for s, r in p.dims.items()}} for p in plan.profiles
        ],
        "requirements": [f"{r.key} ({r.dist} {r.version})".strip() for r in plan.requirements],
    }


def _node(told: Mapping[str, Any], prefix: str) -> Row:
    """A row of the explanation; of the rewrites that led to it how often each rule fired.
    ``prefix``: what stands before the names of the steps of a set of kernels.
    """
    return {
        "name": text(told["name"]).removeprefix(prefix),
        "kind": short(text(told["kind"])),
        "origin": texts(told["origin"]),
        "candidates": [_candidate(c) for c in told["candidates"]],
        "rejections": [_texts_of(r, "tactic", "reason") for r in told["rejections"]],
        "fired": Counter(text(f["rule"]) for f in told["fired"]),
        "nearly": [_texts_of(m, "rule", "node", "reason") for m in told["nearly"]],
        "split": [
            {**_texts_of(s, "node", "reason"), "parts": texts(s["parts"])} for s in told["split"]
        ],
    }


def _candidate(c: Mapping[str, Any]) -> Row:
    told = _texts_of(c, "tactic", "variant", "status", "reason")
    numbers = {k: number(c.get(k)) for k in ("seconds", "spread", "error", "costs_more")}
    flags = {k: True for k in ("chosen", "near_tie") if c.get(k)}
    return {**told, **{k: v for k, v in numbers.items() if v is not None}, **flags}


def _texts_of(told: Mapping[str, Any], *keys: str) -> Row:
    return {k: text(told.get(k)) for k in keys}


def _shortfall(plan: Plan) -> Row:
    told = Shortfall.total(Shortfall.read(p.ledger) for p in plan.nested())
    return {**told.to_json(), "text": told.text}


def _profile(profile: PlanProfile, plan: Plan) -> Row:
    """Steps of bodies belong to those that hold them, and are left out. Raises InvalidArgument
    where the others are not those of the plan.
    """
    known, own = [s.name for s in plan.steps], [s for s in profile.steps if not s.inside]
    for s in own:
        if not 0 <= s.index < len(known) or known[s.index] != s.name:
            raise InvalidArgument(
                "the profile is of another plan",
                who=profile.name,
                why=f"its step {s.index} is {s.name!r:.80}, which is not that of the plan",
                do="Write one of this plan: tactix profile PLAN --json",
            )
    told = profile.to_json()
    return {
        **{k: told[k] for k in ("name", "threads", "runs", "method", "seconds", "profiled")},
        "device": {k: v for k, v in profile.device.items() if isinstance(v, (str, int, float))},
        "shapes": {k: list(s) for k, s in profile.shapes.items()},
        "roofline": told["roofline"],
        "steps": [_time(s) for s in own],
    }


TIMES = ("index", "seconds", "low", "high", "start", "threads", "nbytes", "flops", "of_roofline")


def _time(step: StepTime) -> Row:
    told = asdict(step)
    return {k: told[k] for k in TIMES if told[k] not in (None, ())}
