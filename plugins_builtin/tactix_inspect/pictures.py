"""Small pictures of plans, networks and profiles: HTML and SVG without scripts, for notebooks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape

from tactix.base.dims import show
from tactix.contracts.presenter import Presenter
from tactix.network.definition import NetworkDefinition
from tactix.plan.schema import Plan
from tactix.run.engine import Engine
from tactix_inspect.profile import PlanProfile, StepTime
from tactix_inspect.report.document import tuned_sizes
from tactix_inspect.report.flow import flow
from tactix_inspect.report.layered import layered
from tactix_inspect.report.memory import ArenaMap, arena_map
from tactix_inspect.report.steps import number, short, text

WIDTH = 720
COLOURS = (
    "#2a6bd4", "#c25a0b", "#22804c", "#7d4fc4", "#0c7f8f", "#c23a4f", "#8a6a00", "#a83f86",
)  # fmt: skip
"""Of groups, the largest first: seen on white and on black. What is left is OTHER."""
OTHER = "#7c8592"
MOST_NODES = 4000
"""A graph with more is not drawn: laying it out takes seconds."""

Edges = Iterable[tuple[int, int]]


class Pictures(Presenter):
    """Of engines, by their plan, and of networks."""

    key = "tactix.pictures"

    def html(self, subject: object) -> str | None:
        if isinstance(subject, Engine):
            return plan_picture(subject.plan)
        return network_picture(subject) if isinstance(subject, NetworkDefinition) else None


def plan_picture(plan: Plan) -> str:
    """The graph from left to right, shares of the build's times by tactic, and the memory."""
    tactics = [short(text(s.info.get("tactic"))) or s.artifact.launcher for s in plan.steps]
    seconds = [number(s.info.get("seconds")) or 0.0 for s in plan.steps]
    sizes = tuned_sizes(plan)
    memory = arena_map(plan, sizes)
    colours = _colours(_summed(tactics, seconds))
    weights = {b.blob: b.nbytes for b in plan.buffers if b.kind == "weight"}
    facts = [
        f"{len(plan.steps)} steps",
        f"{_time(sum(seconds))} predicted by the build",
        f"weights {_bytes(sum(n for n in weights.values() if isinstance(n, int)))}",
        *([f"activations {_bytes(memory.arena)}"] if memory else []),
    ]
    found = flow(plan)
    nodes = [colours[t] for t in tactics] + [OTHER] * (found.inputs + found.outputs)
    parts = [
        _graph(found.count, found.edges, found.in_order, nodes),
        _shares("time by tactic", _summed(tactics, seconds), colours, _time),
        _memory(memory) if memory and memory.arena else "",
    ]
    return _framed(plan.name or "plan", facts, parts)


def network_picture(network: NetworkDefinition) -> str:
    """The graph from left to right, how many layers there are of each kind, inputs and outputs."""
    nodes = network.nodes
    kinds = [short(n.layer.key) for n in nodes]
    counts = Counter(kinds)
    colours = _colours(counts)
    facts = [
        f"{len(nodes)} layers",
        *(f"{v.name}: {v.spec.dtype.value}{show(v.spec.shape)}" for v in network.inputs),
        "gives " + ", ".join(network.output_names),
    ]
    at = {n: i for i, n in enumerate(nodes)}
    edges = dict.fromkeys(
        (at[v.producer], at[n])
        for n in nodes
        for v in n.inputs
        if v is not None and v.producer in at
    )
    parts = [
        _graph(len(nodes), edges, range(len(nodes)), [colours[k] for k in kinds]),
        _shares("layers by kind", counts, colours, lambda n: f"{n:.0f}"),
    ]
    return _framed(network.name or "network", facts, parts)


def profile_picture(profile: PlanProfile) -> str:
    """Steps over time by thread, and shares of the time by tactic."""
    tactics = [short(s.tactic) for s in profile.steps]
    totals = _summed(tactics, [s.seconds for s in profile.steps])
    colours = _colours(totals)
    facts = [
        f"{_time(profile.seconds)} a run, median of {profile.runs}",
        f"{profile.threads} threads",
        *(f"{name}: {show(shape)}" for name, shape in profile.shapes.items()),
    ]
    parts = [
        _timeline(profile.steps, [colours[t] for t in tactics]),
        _shares("time by tactic", totals, colours, _time),
    ]
    return _framed(profile.name or "profile", facts, parts)


def _framed(name: str, facts: Sequence[str], parts: Sequence[str]) -> str:
    told = escape(" · ".join(facts))
    head = f'<div><b style="font-size:15px">{escape(name)}</b><br/>{told}</div>'
    style = (
        f"max-width:{WIDTH}px;font:13px/1.5 system-ui,sans-serif;font-variant-numeric:tabular-nums"
    )
    return f'<div style="{style}">{head}{"".join(parts)}</div>'


def _svg(height: float, label: str, *content: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="100%" '
        f'role="img" aria-label="{escape(label)}" style="display:block;margin-top:8px">'
        f"{''.join(content)}</svg>"
    )


def _graph(count: int, edges: Edges, in_order: Sequence[int], colours: Sequence[str]) -> str:
    """Rows from left to right; nodes of a colour are one path."""
    if not 0 < count <= MOST_NODES:
        return ""
    pairs = tuple(edges)
    laid = layered(count, pairs, in_order)
    across = WIDTH / (max(laid.rows) + 1)
    down = min(24.0, 200 / (max(laid.places) + 0.5))
    wide, high = min(across * 0.7, 40.0), down * 0.7
    corners = [
        (row * across + (across - wide) / 2, place * down - high / 2)
        for row, place in zip(laid.rows, laid.places, strict=True)
    ]
    lines = "".join(
        f"M{corners[a][0] + wide:.1f} {corners[a][1] + high / 2:.1f}"
        f"L{corners[b][0]:.1f} {corners[b][1] + high / 2:.1f}"
        for a, b in pairs
    )
    boxes: dict[str, list[str]] = {}
    for (x, y), colour in zip(corners, colours, strict=True):
        boxes.setdefault(colour, []).append(f"M{x:.1f} {y:.1f}h{wide:.1f}v{high:.1f}h{-wide:.1f}z")
    height = down * (max(laid.places) + 0.5)
    return _svg(
        height,
        f"graph of {count} nodes",
        f'<path d="{lines}" fill="none" stroke="{OTHER}" stroke-width=".7" stroke-opacity=".6"/>',
        *(f'<path d="{"".join(d)}" fill="{colour}"/>' for colour, d in boxes.items()),
    )


def _shares(
    title: str, totals: Mapping[str, float], colours: Mapping[str, str], say: Callable[[float], str]
) -> str:
    """One bar, and a legend of what has a colour of its own."""
    whole = sum(totals.values())
    if not whole:
        return ""
    ranked = sorted(totals.items(), key=lambda row: -row[1])
    bars, at = [], 0.0
    for name, amount in ranked:
        width = amount / whole * WIDTH
        bars.append(
            f'<rect x="{at:.1f}" width="{max(width - 0.6, 0.2):.1f}" height="18" '
            f'fill="{colours[name]}"><title>{escape(name)} {amount / whole:.1%}</title></rect>'
        )
        at += width
    legend = "".join(
        f'<span style="white-space:nowrap;margin-right:14px"><span style="display:inline-block;'
        f'width:10px;height:10px;border-radius:3px;margin-right:5px;background:{colours[name]}">'
        f"</span>{escape(name)} {escape(say(amount))}</span> "
        for name, amount in ranked[: len(COLOURS)]
    )
    return _svg(18, title, *bars) + f'<div style="margin-top:4px">{legend}</div>'


def _memory(memory: ArenaMap) -> str:
    """What lives at each step, under the arena's size and the lower bound."""
    high, across = 56, WIDTH / max(1, len(memory.live))

    def y(nbytes: int) -> float:
        return high - nbytes / memory.arena * (high - 4)

    live = "".join(f"L{i * across:.1f} {y(n):.1f}h{across:.1f}" for i, n in enumerate(memory.live))
    line = '<line x1="0" x2="{w}" y1="{y:.1f}" y2="{y:.1f}" stroke="{c}" stroke-dasharray="{d}"/>'
    told = f"memory over steps: arena {_bytes(memory.arena)}, lower bound {_bytes(memory.least)}"
    return (
        _svg(
            high,
            told,
            f'<path d="M0 {high}{live}V{high}z" fill="{COLOURS[0]}" fill-opacity=".35"/>',
            line.format(w=WIDTH, y=y(memory.arena), c=OTHER, d="none"),
            line.format(w=WIDTH, y=y(memory.least), c=COLOURS[5], d="6 4"),
        )
        + f"<div>{escape(told)}</div>"
    )


def _timeline(steps: Sequence[StepTime], colours: Sequence[str]) -> str:
    """A lane for each thread; bars of a colour are one path."""
    end = max((s.start + s.seconds for s in steps), default=0.0)
    if not end:
        return ""
    lanes = max(max(len(s.threads), 1) for s in steps)
    bars: dict[str, list[str]] = {}
    for s, colour in zip(steps, colours, strict=True):
        for lane, seconds in enumerate(s.threads or (s.seconds,)):
            width = max(0.4, seconds / end * WIDTH - 0.3)
            bars.setdefault(colour, []).append(
                f"M{s.start / end * WIDTH:.1f} {lane * 24}h{width:.1f}v20h{-width:.1f}z"
            )
    return _svg(
        lanes * 24,
        f"timeline of {len(steps)} steps",
        *(f'<path d="{"".join(d)}" fill="{colour}"/>' for colour, d in bars.items()),
    )


def _summed(names: Sequence[str], amounts: Sequence[float]) -> dict[str, float]:
    out: dict[str, float] = {}
    for name, amount in zip(names, amounts, strict=True):
        out[name] = out.get(name, 0.0) + amount
    return out


def _colours(totals: Mapping[str, float]) -> dict[str, str]:
    ranked = sorted(totals, key=lambda name: -totals[name])
    return {n: COLOURS[i] if i < len(COLOURS) else OTHER for i, n in enumerate(ranked)}


def _time(seconds: float) -> str:
    units = (("µs", 1e6), ("ms", 1e3), ("s", 1.0))
    unit, factor = next((u for u in units if seconds * u[1] < 1000), units[-1])
    return f"{seconds * factor:.3g} {unit}"


def _bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            break
        count /= 1024
    return f"{count:.3g} {unit}"
