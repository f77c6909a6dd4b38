"""A run as a trace in Chrome's format, which Perfetto (https://ui.perfetto.dev) shows, too: the
"Trace Event Format" of the Catapult project.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tactix.base.dims import Env
from tactix.plan.schema import Plan
from tactix_inspect.profiling import ProfiledRuns, SpanOfRun, names_of, size_at, symbols_of

Event = dict[str, Any]
STEPS, MEMORY, COPIES = "steps", "memory", "copies"


def trace(plan: Plan, shapes: Mapping[str, tuple[int, ...]], found: ProfiledRuns) -> dict[str, Any]:
    """JSON of the run that took the median time: steps on the threads that worked on them, and the
    bytes of the arena and of outputs that are in use. Copies to and from a device, which are timed
    by themselves, stand in front of the run and behind it.
    """
    env = symbols_of(plan, shapes)
    begin = found.begin - sum(c.seconds for c in found.copies if c.into)
    events = [*_titles(plan, found), *_outputs(plan, env), *_copies(found, begin)]
    for s in found.typical:
        events += _step(s, begin)
        if s.plan.steps is plan.steps:
            live = _live(plan, s.index, env)
            events.append(_event("C", "arena", s.span.begin - begin, {"bytes": live}))
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def _event(kind: str, name: str, seconds: float, args: Event, thread: int = 0) -> Event:
    """Times are in microseconds."""
    return {"ph": kind, "name": name, "ts": seconds * 1e6, "pid": 1, "tid": thread, "args": args}


def _titles(plan: Plan, found: ProfiledRuns) -> Iterator[Event]:
    yield _event("M", "process_name", 0.0, {"name": plan.name or "plan"})
    count = _threads(found)
    for thread in range(count):
        yield _event("M", "thread_name", 0.0, {"name": f"thread {thread}"}, thread)
    if found.copies:
        yield _event("M", "thread_name", 0.0, {"name": COPIES}, count)


def _threads(found: ProfiledRuns) -> int:
    return max([1, *(len(s.span.threads) for s in found.typical)])


def _copies(found: ProfiledRuns, begin: float) -> Iterator[Event]:
    """One after the other, on a row of their own."""
    thread, now = _threads(found), 0.0
    end = max((s.span.end for s in found.typical), default=begin) - begin
    for c in sorted(found.copies, key=lambda c: not c.into):
        now = now if c.into else max(now, end)
        name = f"copy {c.name} to the device" if c.into else f"copy {c.name} to the host"
        copied = _event("X", name, now, {"bytes": c.nbytes}, thread)
        yield {**copied, "dur": c.seconds * 1e6, "cat": COPIES}
        now += c.seconds


def _outputs(plan: Plan, env: Env) -> Iterator[Event]:
    for io in plan.outputs:
        args = {"bytes": size_at(plan.buffers[io.buffer].nbytes, env)}
        yield {**_event("i", f"output {io.name}", 0.0, args), "s": "p", "cat": MEMORY}


def _step(s: SpanOfRun, begin: float) -> Iterator[Event]:
    step, span = s.plan.steps[s.index], s.span
    told = {key: list(names_of(step, key)) for key in ("makes", "consumes", "origin")}
    args = {"tactic": step.info.get("tactic", ""), **told}
    if not any(span.threads):
        whole = _event("X", step.name, span.begin - begin, args)
        yield {**whole, "dur": span.seconds * 1e6, "cat": STEPS}
        return
    for thread, (worked, begun) in enumerate(zip(span.threads, span.begun, strict=True)):
        if worked:
            own = _event("X", step.name, begun - begin, args, thread)
            yield {**own, "dur": min(worked, span.end - begun) * 1e6, "cat": STEPS}


def _live(plan: Plan, index: int, env: Env) -> int:
    """Bytes of the arena that hold something while a step runs."""
    placed = (b for b in plan.buffers if b.kind in ("arena", "workspace"))
    return sum(size_at(b.nbytes, env) for b in placed if b.first <= index <= b.last)
