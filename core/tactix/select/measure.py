"""Give every candidate a time: from the cache, by running it, or by estimate. Wrong ones are rejected, however fast."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from tactix.contracts.device import DeviceProperties
from tactix.contracts.launcher import Runnable
from tactix.select.accuracy import GATE, GRANTED
from tactix.select.bench import Bench
from tactix.select.compile import Toolchain, with_binary
from tactix.select.enumerate import Bids, Candidate
from tactix.select.timing_cache import Timing, TimingCache
from tactix.words.dims import Env, symbols
from tactix.words.errors import ExecutionError, NoTacticError, TactixError, TimingCacheError
from tactix.words.progress import ProgressMonitor, SilentProgress

ROUND_SECONDS = 0.001
LEAST_ROUNDS, ROUNDS, MOST_ROUNDS = 3, 5, 16
HOPELESS, DOUBTFUL = 1.3, 4.0
SEPARATED, CONFIRMED = 1.05, 1.02


@dataclass
class Measurer:
    """Settings of one build's measuring; ``monitor`` is asked between nodes whether to stop."""

    bench: Bench
    toolchain: Toolchain
    cache: TimingCache
    properties: DeviceProperties
    env: Env
    threads: int
    frozen: bool = False
    level: int = 3
    deadline: float = float("inf")
    monitor: ProgressMonitor = field(default_factory=SilentProgress)
    log: Callable[[str], None] = lambda message: None
    guessed: frozenset[str] = frozenset()

    def run(self, all_bids: Sequence[Bids]) -> None:
        """Settle every candidate of every node. Raises CompilerError, NoTacticError, TimingCacheError."""
        again = not self.frozen and time.monotonic() < self.deadline and not self.bench.delay()
        todo = [(b, cs) for b in all_bids if (cs := [c for c in b.candidates if not self._settle(b, c, again)])]
        if self.frozen and todo:
            b, cs = todo[0]
            why = f"{sum(len(c) for _, c in todo)} are missing for {self.properties.name}, the first is {cs[0].title}"
            raise TimingCacheError("a frozen build needs every timing", who=b.node.name, why=why, do="Measure it there")
        over = self.monitor.cancelled() or time.monotonic() > self.deadline
        self.monitor.phase("compile", len(ready := [c for _, cs in todo for c in cs if not over]))
        binaries = self.bench.compile(self.toolchain, ready, self.properties)
        self.monitor.finish("compile")
        self.monitor.phase("measure", 0 if over else len(todo))
        for i, (b, cs) in enumerate(todo):
            if over or self.monitor.cancelled() or time.monotonic() > self.deadline:
                why = "measuring stopped" if self.deadline else f"{self.properties.name} is not here"
                self.log(f"{why}; different layers chosen by estimate: {len(todo) - i}")
                for c in (c for _, rest in todo[i:] for c in rest if c.status == "open"):
                    estimate(c)
                break
            self._race(b, cs, binaries)
            self.monitor.step("measure", i + 1, b.node.name)
        self.monitor.finish("measure")
        self.bench.review(all_bids)
        delay = self.bench.delay()
        for b, c in ((b, c) for b, cs in todo for c in cs if c.status == "measured"):
            self.cache.put(self.key(b, c), Timing(c.seconds, c.spread, c.error, delay))
        for b in all_bids:
            _require_one(b)

    def key(self, b: Bids, c: Candidate) -> str:
        """The timing cache's key of a candidate."""
        p = self.properties
        device = [p.kind, p.name, sorted(p.features), dict(p.facts)]
        own = [b.signature, c.tactic.key, c.variant.id, c.artifact.digest]
        parts = [GATE, *own, device, self.threads, self.toolchain.identity(c.artifact)]
        return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:40]

    def _settle(self, b: Bids, c: Candidate, again: bool) -> bool:
        """True if nothing needs to run for this candidate. ``again``: what was delayed by others is timed again."""
        if why := self.bench.barred(c):
            reject(c, why)
        elif c.artifact.alias and self.bench.of(c) is self.bench:
            c.seconds, c.status = 0.0, "cached"
        elif c.tactic.fallback or c.tactic.produces or self.level == 0:
            estimate(c)
        elif found := self.cache.get(self.key(b, c)):
            _record(c, found, "cached")
            return not (again and found.delay)
        else:
            return False
        return True

    def _race(self, b: Bids, candidates: Sequence[Candidate], binaries: Any) -> None:
        try:
            arrays, want = self.bench.trial(b.node, self.env)
        except ExecutionError as e:
            if not self._is_guessed(b):
                raise
            self.log(f"{b.node.name} is chosen by estimate: {e}")
            for c in candidates:
                estimate(c)
            return
        runners: list[tuple[Candidate, Runnable, Any]] = []
        for c in (c for c in candidates if c.status != "rejected"):
            bench = self.bench.of(c)
            try:
                artifact = with_binary(c.artifact, binaries)
                runnable, got = bench.prepare(b.node, artifact, c.variant, arrays, self.env)
                runnable.repeat(1)
                c.error = bench.check(b.node, c.variant, got, want, GRANTED.get(c.tactic.numerics, 1.0))
            except Exception as e:
                if not (isinstance(e, TactixError) or c.tactic.key in bench.strangers):
                    raise
                reject(c, str(e) if isinstance(e, TactixError) else f"{type(e).__name__}: {e}")
                continue
            if c.error > 1:
                reject(c, f"departs from the reference by {c.error:.3g} times its budget")
                self.cache.put(self.key(b, c), Timing(float("inf"), 0.0, c.error))
                continue
            runners.append((c, runnable, bench.keep()))
        self._time(b, runners)

    def _is_guessed(self, b: Bids) -> bool:
        """Whether the node's shapes hold symbols that only running tells, so that the sizes may not fit each other."""
        return any(symbols(d) & self.guessed for v in (*b.node.given, *b.node.outputs) for d in v.spec.shape)

    def _time(self, b: Bids, runners: Sequence[tuple[Candidate, Runnable, Any]]) -> None:
        for (c, _, _), times in zip(runners, interleave(self.bench.measure, [r for _, r, _ in runners]), strict=True):
            best = min(times)
            if c.status != "rejected":
                _record(c, Timing(best, median(times) / best - 1 if best else 0.0, c.error), "measured")


def interleave(measure: Callable[[Runnable, int], float], runnables: Sequence[Runnable]) -> list[list[float]]:
    """Seconds of one run, several samples for each, taken in turns until a winner stands out or the rounds are over.

    While others use the machine there are more rounds: a shortest time counts once it was met twice.
    """
    least = [measure(r, 1) for r in runnables]
    samples: list[list[float]] = [[] for _ in runnables]
    racing = list(range(len(runnables)))
    for turn in range(1, MOST_ROUNDS + 1):
        for i in racing:
            times = max(1, min(10000, int(ROUND_SECONDS / max(least[i], 1e-7))))
            samples[i].append(measure(runnables[i], times) / times)
            least[i] = min(samples[i])
        best = min((least[i] for i in racing), default=0.0)
        sure = {i for i in racing if turn >= LEAST_ROUNDS and sorted(samples[i])[1] <= least[i] * CONFIRMED}
        limit = DOUBTFUL if turn >= LEAST_ROUNDS else DOUBTFUL**2
        racing = [i for i in racing if turn == 1 or least[i] <= best * (HOPELESS if i in sure else limit)]
        ranked = sorted(least[i] for i in racing)
        enough = LEAST_ROUNDS if len(ranked) < 2 or ranked[1] > ranked[0] * SEPARATED else ROUNDS
        if turn >= enough and sure.issuperset(racing):
            break
    return samples


def _record(c: Candidate, t: Timing, status: str) -> None:
    c.seconds, c.spread, c.error, c.status = t.seconds, t.spread, t.error, status
    if t.error > 1:
        reject(c, f"departs from the reference by {t.error:.3g} times its budget")


def estimate(c: Candidate) -> None:
    """Take the tactic's own estimate for the time."""
    c.seconds, c.status = 1e-3 if c.estimate is None else c.estimate, "estimated"


def reject(c: Candidate, reason: str) -> None:
    """Take a candidate out of the race."""
    c.seconds, c.status, c.reason = float("inf"), "rejected", reason


def _require_one(b: Bids) -> None:
    if all(c.status == "rejected" for c in b.candidates):
        why = "; ".join(f"{c.title}: {c.reason}" for c in b.candidates)
        who, do = f"{b.node.name} ({b.node.kind})", "Allow more tactic sources, or mend those"
        raise NoTacticError("every tactic was rejected", who=who, why=why, do=do)
