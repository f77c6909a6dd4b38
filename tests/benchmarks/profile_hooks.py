#!/usr/bin/env python3
"""What a run that nobody looks at costs more because others can be: profiles, observers, listeners.

    python tests/benchmarks/profile_hooks.py [MODEL.onnx] [--rounds 400] [--threads 1,2]

The model is built twice without measuring (level 0), once with an executor out of whose text all
that profiles need is taken, and each of the two plans runs by its own. In turns, rows of native
runs with nothing of Python between are timed by both; then calls on addresses (`execute_v2`) of a
context that nobody ever looked at, and of one that had a profiler, an observer and a listener, which
are gone. Printed are the medians, and the median of the differences of turns that follow each other
with the range that nine of ten resampled medians are in. Prints Markdown.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from peer_inputs import make_inputs
from rounds import in_turn, words

import tactix
from tactix.run.observed import RunningStep
from tactix_cpu import compiler, launcher
from tactix_inspect.profiling import SpanCollector

MODEL = Path(__file__).parents[1] / "models" / "mlp.onnx"
ROW_SECONDS, CALLS, WARM, RESAMPLED = 1e-3, 64, 200, 500
HOOKS = {
    "stamps ? stamps->spans : 0": "0",
    "txe_pool.stamps ? txe_pool.stamps->spans + tid * t->launches : 0": "0",
    "    txe_pool.stamps = stamps;\n": "",
    "txe_run(s->table, s)": "txe_run(s->table, 0)",
}
"""What of the executor's text is there for profiles, and what is there without them."""


def without_hooks(text: str) -> str:
    for hook, none in HOOKS.items():
        if hook not in text:
            raise SystemExit(f"the executor has no {hook!r} any more: mend HOOKS")
        text = text.replace(hook, none)
    return text


@dataclass(frozen=True)
class Subject:
    """A context of an engine of its own, at addresses that stay."""

    context: Any
    addresses: list[int]
    kept: list[Any]

    @classmethod
    def of(cls, engine: tactix.Engine, feed: dict[str, Any]) -> Subject:
        context = engine.create_execution_context()
        given = [np.require(feed[io.name], requirements="C") for io in engine.plan.inputs]
        kept = [*given, *context.infer(given)]
        return cls(context, [x.ctypes.data for x in kept], kept)

    def calls(self) -> float:
        """Seconds of one call."""
        begin = time.perf_counter()
        for _ in range(CALLS):
            self.context.execute_v2(self.addresses)
        return (time.perf_counter() - begin) / CALLS

    def row(self, count: int) -> float:
        """Seconds of one of so many native runs."""
        active = self.context._active
        begin = time.perf_counter()
        active[0].runnable.repeat(count)
        return (time.perf_counter() - begin) / count

    def looked_at(self, engine: tactix.Engine) -> Subject:
        """After all that looks at runs was there, and is gone."""
        self.context.profiler = SpanCollector()
        self.context.execute_v2(self.addresses)
        self.context.profiler = None
        self.context.observer = Looking()
        self.context.execute_v2(self.addresses)
        self.context.observer = None
        names = [n for s in engine.plan.steps for n in s.info.get("makes", ()) if n][:1]
        self.context.set_debug_listener(lambda name, array: None, names)
        self.context.execute_v2(self.addresses)
        self.context.set_debug_listener(None)
        return self


class Looking:
    def step(self, running: RunningStep, /) -> None:
        running.run()


def first_of(model: Path, text: Callable[[], str], threads: int) -> tuple[tactix.Engine, Subject]:
    """An engine, and its first context, run by the executor of that text; so are its others, while
    this one is there.
    """
    kept = compiler.executor_text
    compiler.executor_text = text  # type: ignore[assignment]
    compiler.executor_digest.cache_clear()
    launcher._executors.clear()
    try:
        engine = tactix.build(model, level=0, threads=threads, timing_cache=False)
        return engine, Subject.of(engine, make_inputs(model, 1))
    finally:
        compiler.executor_text = kept
        compiler.executor_digest.cache_clear()


def line(name: str, first: Sequence[float], second: Sequence[float]) -> str:
    """Nanoseconds."""
    apart = np.subtract(first, second) * 1e9
    chance = np.random.default_rng(0)
    medians = np.median(chance.choice(apart, (RESAMPLED, len(apart))), axis=1)
    low, high = np.quantile(medians, (0.05, 0.95))
    times = " | ".join(f"{1e9 * statistics.median(x):.0f}" for x in (first, second))
    return f"| {name} | {times} | {np.median(apart):+.1f} | {low:+.1f} to {high:+.1f} |"


def measure(model: Path, threads: int, rounds: int) -> None:
    feed, text = make_inputs(model, 1), compiler.executor_text()
    engine, able = first_of(model, lambda: text, threads)
    _, bare = first_of(model, lambda: without_hooks(text), threads)
    quiet, former = (Subject.of(engine, feed) for _ in range(2))
    former.looked_at(engine)
    executors = [s.context._active[0].runnable.executor for s in (able, bare)]
    assert executors[0] is not executors[1], "one executor runs both plans"
    for s in (able, bare, quiet, former):
        for _ in range(WARM):
            s.calls()
    count = max(1, int(ROW_SECONDS / able.row(WARM)))
    rows: dict[bool, list[float]] = {True: [], False: []}
    calls: dict[bool, list[float]] = {True: [], False: []}
    for k in range(rounds):
        for s in in_turn((able, bare), k):
            rows[s is able].append(s.row(count))
        for s in in_turn((former, quiet), k):
            calls[s is former].append(s.calls())
    name = f"{model.stem}, {threads} thread" + "s" * (threads > 1)
    print(line(f"{name}: runs, with hooks and without", rows[True], rows[False]))
    print(line(f"{name}: calls, looked at before and never", calls[True], calls[False]), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path, nargs="?", default=MODEL)
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--threads", type=words, default=["1", "2"])
    args = parser.parse_args()
    print("| what | first ns | second ns | apart ns | nine of ten |\n|---|---|---|---|---|")
    for threads in args.threads:
        measure(args.model, int(threads), args.rounds)


if __name__ == "__main__":
    main()
