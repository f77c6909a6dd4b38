#!/usr/bin/env python3
"""Shadow mode: what it costs the served path, how soon a wrong kernel is told, whether memory grows.

    python tests/benchmarks/shadow.py latency MODEL.onnx [...] [--rounds 10] [--seconds 4] [--realtime]
    python tests/benchmarks/shadow.py call MODEL.onnx [...] [--rounds 200]
    python tests/benchmarks/shadow.py soak MODEL.onnx [--minutes 2] [--rate 0.01]

``latency``: one thread calls an engine, and the same engine shadowed at 0.1 %, in turns of so many
seconds; between turns what waits is checked, so that the turns without it are undisturbed. Turns of
less than a second follow each other at once, so that work of others meets both alike; a check,
which takes a millisecond every five seconds, may then fall into either. Printed are percentiles of
all calls of each kind, and medians of the ratios of turns that follow each other. ``--realtime``,
for root on a machine that others use: calls and references have real-time priority, as if each had
a core of its own. ``call``: what a call costs that is not sampled, beside the engine's own, in
turns of 2000 calls of which none is. ``soak``: a shadowed engine runs for so many minutes; then a
kernel of it is replaced in memory by one that does nothing, and it runs on until that is told.
Resident memory of both processes is looked at meanwhile. The exit code is 1 if nothing is told
within 1,000 sampled requests, if a wrong step is named or a right one was before, or if memory
grows by more than 8 MiB and 2 %.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import mmap
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from peer_inputs import make_inputs
from rounds import in_turn

import tactix
from tactix.contracts.artifact import Binary
from tactix.contracts.shadow import DriftReport, ShadowOptions, ShadowStats
from tactix.plan.schema import Plan
from tactix.plugins.session import Session
from tactix.run.engine import Engine
from tactix.run.runtime import Runtime
from tactix_cpu.launcher import library
from tactix_inspect.shadowing.references import ReferenceProcess
from tactix_inspect.shadowing.served import shadow
from tactix_sdk.testing.memory import resident

RATE = 0.001
MOST_SAMPLED = 1000
DIFFERENT = 16
"""Inputs, so that what a kernel left of the last run is not what the next one should give."""
RETURN_ZERO = b"\x31\xc0\xc3"
"""xor eax, eax; ret."""
SLACK_BYTES, SLACK_SHARE = 8 << 20, 0.02
PATIENCE = 120.0
DRAINED = 1.0
"""Seconds of a turn behind which what waits is checked."""
WORK, REST = 0.1, 0.01
"""Seconds between rests, as Linux takes the processor from who has real-time priority and never
rests.
"""


@dataclass(frozen=True)
class Served:
    engine: Engine
    session: Session
    feeds: list[list[Any]]

    @classmethod
    def of(cls, model: Path) -> Served:
        session = Session(group="build")
        builder = tactix.Builder(session=session)
        config = tactix.BuilderConfig(threads=1, builder_optimization_level=1)
        plan = builder.build_plan(builder.import_model(model), config)
        engine = Runtime(session=session, max_threads=1).load(plan)
        sets = (make_inputs(model, 1, seed) for seed in range(DIFFERENT))
        return cls(engine, session, [[feed[io.name] for io in engine.inputs] for feed in sets])

    def forever(self) -> Iterator[list[Any]]:
        return itertools.cycle(self.feeds)


# -- latency --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Turn:
    """Seconds of each call."""

    times: list[float]

    def at(self, percent: float) -> float:
        return float(np.percentile(self.times, percent))

    @classmethod
    def of(cls, call: Callable[..., object], served: Served, seconds: float) -> Turn:
        times, feeds, clock = [], served.forever(), time.perf_counter
        end = clock() + seconds
        rest = clock() + WORK
        while (start := clock()) < end:
            call(*next(feeds))
            times.append(clock() - start)
            if start > rest:
                time.sleep(REST)
                rest = clock() + WORK
        if seconds < WORK:
            time.sleep(REST)
        return cls(times)


def latency(model: Path, rounds: int, seconds: float, realtime: bool) -> str:
    served, references = Served.of(model), ReferenceProcess()
    turns: list[tuple[Turn, Turn]] = []
    if realtime:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(2))
    with shadow(served.engine, served.session, ShadowOptions(RATE), references) as shadowed:
        for call in (served.engine, shadowed):
            Turn.of(call, served, 1.0)
        shadowed.drain(PATIENCE)
        if realtime:
            os.sched_setscheduler(references.pid, os.SCHED_FIFO, os.sched_param(1))
        for k in range(rounds):
            found = {}
            for call in in_turn((served.engine, shadowed), k):
                found[call is shadowed] = Turn.of(call, served, seconds)
                if seconds >= DRAINED:
                    shadowed.drain(PATIENCE)
            turns.append((found[False], found[True]))
        stats = shadowed.stats()
    if realtime:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    every = [Turn([t for turn in side for t in turn.times]) for side in zip(*turns, strict=True)]
    cells = [model.stem, f"{len(every[1].times)}"]
    for percent in (50, 99):
        ratio = statistics.median(b.at(percent) / a.at(percent) for a, b in turns)
        whole = every[1].at(percent) / every[0].at(percent)
        cells += [f"{x.at(percent) * 1e6:.4g}" for x in every]
        cells += [f"{(whole - 1) * 100:+.2f} %", f"{(ratio - 1) * 100:+.2f} %"]
    cells += [f"{stats.checked} of {stats.sampled}", f"{stats.seconds / max(1, stats.checked):.4g}"]
    return f"| {' | '.join(cells)} |"


HEAD = """\
| model | calls | p50 us | shadowed | all | by turns | p99 us | shadowed | all | by turns | checked | seconds each |
|---|---|---|---|---|---|---|---|---|---|---|---|"""

# -- one call -------------------------------------------------------------------------------------

CALLS = 2000


def one_call(model: Path, rounds: int) -> str:
    """Calls that are not sampled, beside the engine's own."""
    served = Served.of(model)
    with shadow(served.engine, served.session, ShadowOptions(1e-9)) as shadowed:
        shadowed.drain(PATIENCE)
        for call in (served.engine, shadowed):
            seconds_of(call, served.feeds[0])
        found: dict[bool, list[float]] = {False: [], True: []}
        for k in range(rounds):
            for call in in_turn((served.engine, shadowed), k):
                found[call is shadowed].append(seconds_of(call, served.feeds[0]))
    alone, beside = (statistics.median(found[side]) * 1e9 for side in (False, True))
    apart = statistics.median((b - a) * 1e9 for a, b in zip(found[False], found[True]))
    return f"| {model.stem} | {alone:.0f} | {beside:.0f} | {apart:+.0f} |"


def seconds_of(call: Callable[..., object], feed: list[Any]) -> float:
    """Of one call, on average."""
    start = time.perf_counter()
    for _ in range(CALLS):
        call(*feed)
    return (time.perf_counter() - start) / CALLS


CALL_HEAD = """\
| model | engine ns | not sampled ns | by turns |
|---|---|---|---|"""

# -- soak -----------------------------------------------------------------------------------------


def swap_kernel(plan: Plan) -> list[str]:
    """Let the kernel of a step in the middle do nothing, in the memory of this process; the names
    of all steps that it runs.
    """
    own = [s for s in plan.steps if isinstance(s.artifact.code, Binary)]
    step = own[len(own) // 2]
    code = step.artifact.code
    assert isinstance(code, Binary)
    address = library(bytes(code.blob)).address(code.symbol)
    page = address - address % mmap.PAGESIZE
    libc = ctypes.CDLL(None, use_errno=True)
    everything = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
    if libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(2 * mmap.PAGESIZE), everything):
        raise OSError(ctypes.get_errno(), "mprotect")
    ctypes.memmove(address, RETURN_ZERO, len(RETURN_ZERO))
    return [s.name for s in own if s.artifact.code == code]


def resident_of(pid: int) -> int:
    """Bytes of a process in memory."""
    with open(f"/proc/{pid}/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Growth:
    """Lowest resident bytes in the second and in the last fifth of the time."""

    before: int
    after: int

    @classmethod
    def of(cls, values: list[int]) -> Growth:
        fifth = max(1, len(values) // 5)
        return cls(min(values[fifth : 2 * fifth]), min(values[-fifth:]))

    @property
    def is_much(self) -> bool:
        return self.after - self.before > max(SLACK_BYTES, SLACK_SHARE * self.before)

    def __str__(self) -> str:
        return f"{self.before / 2**20:.1f} to {self.after / 2**20:.1f} MiB"


def soak(model: Path, minutes: float, rate: float) -> bool:
    served, got = Served.of(model), list[DriftReport]()
    references = ReferenceProcess()
    options = ShadowOptions(rate, got.append, load=0.05, pause=0.01)
    with shadow(served.engine, served.session, options, references) as shadowed:
        feeds, sizes = served.forever(), list[tuple[int, int]]()
        end, look = time.monotonic() + minutes * 60, 0.0
        while (now := time.monotonic()) < end:
            shadowed(*next(feeds))
            if now > look and references.pid and shadowed.stats().checked:
                sizes.append((resident(), resident_of(references.pid)))
                look = now + 0.5
        before = shadowed.stats()
        swapped = swap_kernel(served.engine.plan)
        while not got and shadowed.stats().sampled - before.sampled <= MOST_SAMPLED:
            shadowed(*next(feeds))
        shadowed.drain(PATIENCE)
        after = shadowed.stats()
    return told(model, before, after, swapped, got, [Growth.of(list(x)) for x in zip(*sizes)])


def told(
    model: Path,
    before: ShadowStats,
    after: ShadowStats,
    swapped: list[str],
    got: list[DriftReport],
    growth: list[Growth],
) -> bool:
    """Prints what came of it; whether it is as it should be."""
    print(
        f"- {model.stem}: {before.requests} requests, {before.sampled} sampled, {before.checked} "
    )
    print(
        f"  checked, {before.departed} departed; memory {growth[0]}, of the references {growth[1]}"
    )
    if not got:
        print(f"- {swapped} was replaced and that was never told")
        return False
    first = got[0]
    named = [s.step for s in first.steps]
    print(
        f"- {swapped} was replaced: told after {first.stats.sampled - before.sampled} sampled and"
    )
    print(f"  {first.stats.checked - before.checked} checked requests; steps named: {named}")
    sound = not before.departed and named == swapped and not any(g.is_much for g in growth)
    return sound and first.stats.sampled - before.sampled <= MOST_SAMPLED


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("latency", "call", "soak"))
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=None)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--rate", type=float, default=0.01)
    parser.add_argument("--realtime", action="store_true")
    args = parser.parse_args()
    if args.what == "soak":
        return int(not all(soak(m, args.minutes, args.rate) for m in args.models))
    if args.what == "call":
        print(CALL_HEAD)
        for model in args.models:
            print(one_call(model, args.rounds or 200), flush=True)
        return 0
    print(HEAD)
    for model in args.models:
        print(latency(model, args.rounds or 10, args.seconds, args.realtime), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
