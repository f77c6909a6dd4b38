"""Give every candidate a time: from the cache, by running it, or by estimate. Wrong ones are
rejected, however fast.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from statistics import median
from typing import Any

from tactix.base.dims import Env
from tactix.base.errors import (
    AllocationError,
    BuildCancelled,
    CompilerError,
    DeviceLost,
    ExecutionError,
    TactixError,
    TimingCacheError,
    punctuated,
)
from tactix.base.progress import ProgressMonitor, SilentProgress
from tactix.contracts.artifact import KernelArtifact, Source
from tactix.contracts.device import DeviceProperties
from tactix.contracts.launcher import Runnable
from tactix.select.accuracy import GATE, GRANTED
from tactix.select.bench import Bench, Expected, FatalTrial, Untriable, sample
from tactix.select.compile import Toolchain, with_binary
from tactix.select.contests import ContestOutcome, Delegation, Duel, Race, Sides, Stand
from tactix.select.enumerate import DEFAULT, Bids, Candidate, estimate, reject
from tactix.select.interleave import interleave, repeats
from tactix.select.precision import Times
from tactix.select.timing_cache import Timing, TimingCache

BY_ESTIMATE = "A build with a timing cache of the device, or with more time there, measures them"
SMALLER = "Tune for smaller sizes, or build where there is more memory"

DUEL_ROUNDS = 7
FIRST, BATCH_SECONDS, BATCH_SHARE = 64, 10.0, 0.125
"""Kernels that are compiled at first, seconds that a later batch may take, and share of what is
left of a budget.
"""

Todo = tuple[Bids, list[Candidate]]
"""What is open of a node's candidates."""


@dataclass
class Measurer:
    """Settings of one build's measuring; ``monitor`` is asked between trials whether to stop.

    ``strict``: what tactix's own code raises while it is tried, and is no TactixError, is raised
    again. ``foreseen``: what would be chosen if nothing more were measured. ``late``: seconds
    beyond the deadline that compiling that took; each time adds its own. ``delegation``: who times
    candidates elsewhere; what that leaves is timed here.
    """

    bench: Bench
    toolchain: Toolchain
    cache: TimingCache
    properties: DeviceProperties
    env: Env
    threads: int
    frozen: bool = False
    level: int = 3
    deadline: float = inf
    monitor: ProgressMonitor = field(default_factory=SilentProgress)
    log: Callable[[str], None] = lambda message: None
    strict: bool = False
    foreseen: Callable[[], Sequence[Candidate]] = lambda: ()
    late: list[float] = field(default_factory=list)
    delegation: Delegation | None = None
    _delays: dict[int, float] = field(default_factory=dict, init=False)

    def run(self, all_bids: Sequence[Bids]) -> None:
        """Settle every candidate of every node, and reject those that must not be chosen: perhaps
        all of a node's.

        Raises ToolchainError, TimingCacheError.
        """
        self.race(all_bids)
        for b in all_bids:
            self._rule_out(b)

    def race(self, all_bids: Sequence[Bids]) -> None:
        """Time all candidates, from the cache, by running, or by estimate. Raises as ``run``."""
        with self._limited():
            self._run(all_bids)

    def by_now(self, b: Bids) -> Bids:
        """A copy of a node's bids, as they will be if nothing more is measured."""
        out = replace(b, candidates=[replace(c) for c in b.candidates])
        for c in out.candidates:
            if c.status == "open":
                estimate(c)
        self._rule_out(out)
        return out

    @contextmanager
    def _limited(self) -> Iterator[None]:
        """Compilers and trials are ended meanwhile when the time is."""
        self.bench.stopped = self.toolchain.stopped = self._is_over
        try:
            yield
        finally:
            del self.bench.stopped, self.toolchain.stopped

    def _run(self, all_bids: Sequence[Bids]) -> None:
        again = self._is_quiet()
        todo = [
            (b, cs)
            for b in all_bids
            if (cs := [c for c in b.candidates if not self._settle(b, c, again)])
        ]
        if self._can_time:
            todo = [(b, [c for c in b.candidates if c in cs or self._rivals(c)]) for b, cs in todo]
        if self.frozen and todo:
            b, cs = todo[0]
            why = (
                f"{sum(len(c) for _, c in todo)} are missing for {self.properties.name}, "
                f"the first is {cs[0].title}"
            )
            raise TimingCacheError(
                "a frozen build needs every timing", who=b.node.name, why=why, do="Measure it there"
            )
        if self.delegation is not None:
            todo = self._delegated(self.delegation, todo)
        self._work_off(todo)
        self.bench.review(all_bids)
        whole = self.bench.delay()
        for b, c in ((b, c) for b, cs in todo for c in cs if c.status == "measured"):
            delay = max(whole, self._delays.get(id(c), 0.0))
            self.cache.put(self.key(b, c), Timing(c.seconds, c.spread, c.error, delay))

    def _is_quiet(self) -> bool:
        """Whether what others delayed is timed again: there is time, and they are gone."""
        return not self.frozen and time.monotonic() < self.deadline and not self.bench.delay()

    @property
    def _can_time(self) -> bool:
        """Whether there is time, and a device, here or elsewhere."""
        return not self._is_over() or not (self.delegation is None or self.delegation.stopped())

    def _delegated(self, delegation: Delegation, todo: Sequence[Todo]) -> list[Todo]:
        """Have races held elsewhere; what is left then. Their times are taken from the cache, as
        those of any other build would be.
        """
        waiting = sorted(todo, key=_worth, reverse=True)
        races = [
            Race(replace(b, candidates=[replace(c, status="open") for c in cs]))
            for b, cs in waiting
        ]
        self.monitor.phase("measure", len(races))
        for done, (i, outcome) in enumerate(delegation.hold(races), 1):
            self._take(*waiting[i], outcome)
            self.monitor.step("measure", done, waiting[i][0].node.name)
        self.monitor.finish("measure")
        left = [(b, [c for c in cs if not self._settle(b, c, again=False)]) for b, cs in waiting]
        return [(b, cs) for b, cs in left if cs]

    def _take(self, b: Bids, candidates: Sequence[Candidate], outcome: ContestOutcome) -> None:
        for i, (c, timing) in enumerate(zip(candidates, outcome.timings, strict=True)):
            c.status = "open"
            if timing is not None:
                self.cache.put(self.key(b, c), timing)
            elif i in outcome.rejected:
                reject(c, outcome.rejected[i])

    def _work_off(self, todo: Sequence[Todo]) -> None:
        """Compile and race node by node, those first that take longest; what time is too short for
        is estimated.
        """
        waiting = sorted(todo, key=_worth, reverse=True)
        if waiting and not self._is_over():
            self.bench.begin()
        if waiting and 0 < self.deadline < inf and not self.monitor.cancelled():
            self._compile_ahead()
        total = 0 if self._is_over() else sum(len(cs) for _, cs in todo)
        self.monitor.phase("compile", total)
        self.monitor.phase("measure", len(todo) if total else 0)
        compiled, raced, per_kernel = 0, 0, None
        while waiting and not self._is_over():
            batch = self._batch(waiting, per_kernel)
            candidates = [c for _, cs in batch for c in cs]
            begin = time.monotonic()
            try:
                with self._telling(compiled, len(candidates)):
                    binaries = self.bench.compile(self.toolchain, candidates, self.properties)
            except BuildCancelled:
                break
            per_kernel, compiled = (
                (time.monotonic() - begin) / len(candidates),
                compiled + len(candidates),
            )
            self.monitor.step("compile", compiled)
            delay = self.bench.watch()
            for b, cs in batch:
                if self._is_over():
                    break
                self._race(b, cs, binaries)
                waiting.pop(0)
                raced += 1
                self.monitor.step("measure", raced, b.node.name)
            self._doubt(candidates, delay())
        self.monitor.finish("compile")
        self.monitor.finish("measure")
        if left := [c for _, cs in waiting for c in cs if c.status == "open"]:
            told = f"{self._why_over}; different layers chosen by estimate: {len(waiting)}"
            self.log(punctuated((told, BY_ESTIMATE)))
            for c in left:
                estimate(c)

    @contextmanager
    def _telling(self, before: int, most: int) -> Iterator[None]:
        """Each kernel that is compiled meanwhile is told, beside those before; some are compiled
        again where others fail.
        """
        done = 0

        def told(now: int) -> None:
            nonlocal done
            done = min(max(done, now), most)
            self.monitor.step("compile", before + done)

        self.toolchain.told = told
        try:
            yield
        finally:
            del self.toolchain.told

    def _doubt(self, candidates: Sequence[Candidate], delay: float) -> None:
        """Others were busy while these were raced: of a whole build that may be a small part."""
        for c in (c for c in candidates if c.status == "measured"):
            c.spread = max(c.spread, delay)
            self._delays[id(c)] = delay

    def _compile_ahead(self) -> None:
        """Compile what the plan will need if nothing is measured any more: what a budget is too
        short for has to be compiled after its end. If even that takes longer than there is time,
        nothing is measured, and quick compilers do it when the plan is put together.

        Compilers keep objects, so races and the plan take these from there. It goes on beyond the
        deadline: what was stopped would be compiled again at once.
        """
        wanted = {
            a.code.digest: a for c in self.foreseen() if isinstance((a := c.artifact).code, Source)
        }
        if not self.toolchain.hurries:
            self.toolchain.hurry(wanted.values(), self.deadline - time.monotonic())
        if self.toolchain.hurries:
            return
        self.monitor.phase("ahead", len(wanted))
        told = partial(self.monitor.step, "ahead")
        self.toolchain.stopped = self.monitor.cancelled
        with suppress(BuildCancelled, CompilerError):  # who does not compile loses in its turn
            self.toolchain.compile(wanted.values(), self.properties, told)
            told(len(wanted))
        self.toolchain.stopped = self._is_over
        self.late.append(max(0.0, time.monotonic() - self.deadline))
        self.monitor.finish("ahead")

    def _batch(self, waiting: Sequence[Todo], per_kernel: float | None) -> list[Todo]:
        """The next nodes: as many as compile in a small part of the time that is left, one at
        least.

        ``per_kernel``: seconds that each took so far; with time without end the first batch is
        FIRST kernels.
        """
        if per_kernel is None:
            most = float(FIRST if self.deadline == inf else 1)
        else:
            left = self.deadline - time.monotonic()
            most = min(BATCH_SECONDS, left * BATCH_SHARE) / max(per_kernel, 1e-6)
        out: list[Todo] = []
        for b, cs in waiting:
            most -= len(cs)
            if out and most < 0:
                break
            out.append((b, cs))
        return out

    def _is_over(self) -> bool:
        late = self.toolchain.hurries or time.monotonic() > self.deadline
        return late or self.monitor.cancelled()

    @property
    def _why_over(self) -> str:
        if self.monitor.cancelled():
            return "measuring was stopped"
        return "the budget is spent" if self.deadline else f"{self.properties.name} is not here"

    def duel(
        self, lowered: Sequence[Stand], wide: Sequence[Stand], *, linked: bool = False
    ) -> Times | None:
        """Seconds of a lowered side and of a wide one, of all their nodes, measured in turns or as
        cached from that. ``linked``: each node of a side reads what those before it made, so that
        what threads fetch from each other counts.

        A time from the cache was taken under another load than a fresh one: only what was timed in
        one session tells which is shorter. None where times are estimates or cannot be taken.
        """
        sides = (tuple(lowered), tuple(wide))
        every = [*lowered, *wide]
        if not self._can_be_fought(sides):
            return None
        self.delegate([sides], linked=linked)
        keys = self._duel_keys(sides, linked)
        low, plain = map(self.cache.get, keys)
        cached = Times(low.seconds, plain.seconds, "cached") if low and plain else None
        if not self._is_fought(cached, is_doubted=bool(low and low.delay)):
            return cached
        others = self.bench.watch()
        try:
            seconds = self._fight(sides, linked)
        except Exception as e:
            if not self._is_forgiven(e, every):
                raise
            how = "delayed times" if cached else "times of different sessions"
            self.log(f"{every[0][0].node.name} is decided by {how}: {e}")
            return cached
        delay = max(others(), self.bench.delay())
        for key, s in zip(keys, seconds, strict=True):
            self.cache.put(key, Timing(s, 0.0, 0.0, delay))
        return Times(seconds[0], seconds[1], "measured")

    def delegate(self, duels: Sequence[Sides], *, linked: bool = False) -> None:
        """Have those duels fought elsewhere that the cache knows nothing of, side by side; it knows
        their times then. What is left is fought when ``duel`` is asked for it.
        """
        if self.delegation is None or self.frozen:
            return
        keys = [self._duel_keys(s, linked) if self._can_be_fought(s) else [] for s in duels]
        new = [(s, k) for s, k in zip(duels, keys) if k and k[0] not in self.cache.entries]
        for i, outcome in self.delegation.hold([Duel(s, linked) for s, _ in new]):
            for key, timing in zip(new[i][1], outcome.timings, strict=True):
                if timing is not None:
                    self.cache.put(key, timing)

    def fought(self, sides: Sides, *, linked: bool) -> tuple[Timing | None, Timing | None]:
        """The timing of each side of a duel, just taken; None where that cannot be."""
        self.duel(*sides, linked=linked)
        low, plain = (self.cache.entries.get(key) for key in self._duel_keys(sides, linked))
        return low, plain

    def _can_be_fought(self, sides: Sides) -> bool:
        """Whether all its candidates have times that were taken, and the device tells which of two
        sides is faster.
        """
        timed = all(c.status in ("measured", "cached") for side in sides for _, c in side)
        return self.bench.duels and timed

    def _duel_keys(self, sides: Sequence[Sequence[Stand]], linked: bool) -> list[str]:
        """The timing cache's key of each side, beside the other."""
        text = json.dumps([[self.key(b, c) for b, c in side] for side in sides])
        text += " linked" * linked
        return [
            hashlib.sha256(f"{i} of {text}".encode()).hexdigest()[:40] for i in range(len(sides))
        ]

    def _is_fought(self, cached: Times | None, is_doubted: bool) -> bool:
        """Whether sides are timed: they never were, or others delayed that and are gone now."""
        if self.frozen or self._is_over():
            return False
        return cached is None or (is_doubted and self.delegation is None and self._is_quiet())

    def _fight(self, sides: Sequence[Sequence[Stand]], linked: bool) -> list[float]:
        """Seconds of each side. Raises whatever candidates raise, and BuildCancelled."""
        with self._limited():
            if linked:
                return self._in_turns([self._row(side) for side in sides])
            every = [x for side in sides for x in side if not x[1].artifact.alias]
            alone = self._in_turns([self._row([x]) for x in every])
        times = {id(c): t for (_, c), t in zip(every, alone, strict=True)}
        return [sum(times.get(id(c), 0.0) for _, c in side) for side in sides]

    def _is_forgiven(self, error: Exception, stands: Sequence[Stand]) -> bool:
        """Whether an error is a duel's loss alone: tactix's own, or one that a stranger may have
        made.
        """
        strange = any(c.tactic.key in self.bench.strangers for _, c in stands)
        return isinstance(error, TactixError) or strange

    def _row(self, stands: Sequence[Stand]) -> tuple[Runnable, Any]:
        """What runs candidates one after the other, and what must be held for it."""
        binaries = self.bench.compile(self.toolchain, [c for _, c in stands], self.properties)
        made = [(b.node, with_binary(c.artifact, binaries), c.variant) for b, c in stands]
        if len(made) > 1:
            return self.bench.prepare_row(made, self.env), self.bench.keep()
        ((node, artifact, variant),), bench = made, self.bench.of(stands[0][1])
        arrays = sample(node, self.env)
        runnable, _ = bench.prepare(node, artifact, variant, arrays, self.env)
        return runnable, bench.keep()

    def _in_turns(self, rows: Sequence[tuple[Runnable, Any]]) -> list[float]:
        """The shortest time of each. Raises BuildCancelled when the time is over."""
        least = [self.bench.measure(r, 1) for r, _ in rows]
        for _ in range(DUEL_ROUNDS):
            if self._is_over():
                raise BuildCancelled(self._why_over)
            for i, (r, _) in enumerate(rows):
                times = repeats(least[i])
                least[i] = min(least[i], self.bench.measure(r, times) / times)
        return least

    def key(self, b: Bids, c: Candidate) -> str:
        """The timing cache's key of a candidate."""
        p = self.properties
        device = [p.kind, p.name, sorted(p.features), dict(p.facts)]
        own = [b.signature, c.tactic.key, c.variant.id, c.artifact.digest]
        parts = [GATE, *own, device, self.threads, self.toolchain.identity(c.artifact)]
        parts += self.bench.conditions
        return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[
            :40
        ]

    def _settle(self, b: Bids, c: Candidate, again: bool) -> bool:
        """True if nothing needs to run for this candidate. ``again``: what was delayed by others is
        timed again.
        """
        if c.status != "open":
            return True
        if why := self.bench.barred(c):
            reject(c, why)
        elif c.artifact.alias and self.bench.of(c) is self.bench:
            c.seconds, c.status = 0.0, "cached"
        elif not self._is_raced(b, c):
            estimate(c)
        elif found := self.cache.get(self.key(b, c)):
            _record(c, found, "cached")
            return not (again and found.delay)
        elif self.frozen and c.is_reference:
            estimate(c)
        else:
            return False
        return True

    def _is_raced(self, b: Bids, c: Candidate) -> bool:
        """Whether it is to be tried and timed. At level 0 strangers are where tactix has no more
        than a fallback.
        """
        if not b.races or crosses(c):
            return False
        strange = [
            x.tactic.key in self.bench.strangers for x in b.candidates if not x.tactic.fallback
        ]
        return self.level > 0 or (any(strange) and all(strange))

    def _cannot_be_tried(self, b: Bids, c: Candidate) -> bool:
        """Whether more time would not help either: the device is not here, or it is never raced."""
        return not self.deadline or not b.races or crosses(c)

    def _rule_out(self, b: Bids) -> None:
        """What was not tried does not beat what was; a stranger's does not even beat the reference.

        But what nobody can try stays where no more than such bid: a device of a pack's own has
        nobody else.
        """
        standing = b.standing
        tried = any(c.status in ("measured", "cached") and not c.artifact.alias for c in standing)
        strangers = self.bench.strangers
        known = any(c.tactic.key not in strangers and not c.tactic.fallback for c in standing)
        alone = all(c.tactic.key in strangers and self._cannot_be_tried(b, c) for c in standing)
        for c in (c for c in standing if c.status == "estimated" and not c.untried):
            if c.tactic.key in strangers and not alone:
                reject(c, f"{self.bench.title(c)} was not tried")
                c.untried = True
            elif tried:
                reject(c, "it was not tried, and others were")
            elif known and c.tactic.fallback:
                reject(c, "it is a fallback, and others can do it")

    @staticmethod
    def _rivals(c: Candidate) -> bool:
        """Whether a candidate with a time from the cache runs again beside others of its node that
        have none.
        """
        return c.status == "cached" and not c.artifact.alias

    def _race(self, b: Bids, candidates: Sequence[Candidate], binaries: Any) -> None:
        try:
            arrays, want = self.bench.trial(b.node, self.env)
        except (ExecutionError, MemoryError) as e:
            why = str(e) or "no memory for its samples"
            short = isinstance(e, MemoryError) or isinstance(e.__cause__, MemoryError)
            told = (f"{b.node.name} is chosen by estimate: {why}", SMALLER if short else "")
            self.log(punctuated(told))
            for c in candidates:
                estimate(c)
            return
        runners: list[tuple[Candidate, Runnable, Any]] = []
        for c in (c for c in candidates if c.status != "rejected"):
            if self._is_over():
                break
            if why := self.bench.barred(c):  # since it failed for another node
                reject(c, why)
                continue
            bench = self.bench.of(c)
            artifact = with_binary(c.artifact, binaries)
            runnable = self._admitted(b, c, bench, artifact, arrays, want)
            if runnable is not None:
                runners.append((c, runnable, bench.keep()))
        self._time(b, runners)
        for c in (c for c in candidates if c.status == "open"):
            estimate(c)

    def _admitted(
        self,
        b: Bids,
        c: Candidate,
        bench: Bench,
        artifact: KernelArtifact,
        arrays: Sequence[Any],
        want: Expected,
    ) -> Runnable | None:
        """What is timed of a candidate; None for one that fails, departs from the reference or has
        no memory to be tried in, which is then marked so.
        """
        try:
            with self._blaming(b, c):
                runnable = self._tried(b, c, bench, artifact, arrays, want)
        except DeviceLost:
            raise
        except FatalTrial as e:
            self._leave_out(b, c, e)
            return None
        except AllocationError as e:  # says nothing of the kernel at sizes there is memory for
            what = f"{c.title} for {b.node.name} is chosen by estimate"
            self.log(punctuated((f"{what}: no memory to try it: {e}", SMALLER)))
            estimate(c)
            return None
        except Untriable as e:
            reject(c, str(e))
            c.untried = True
            return None
        except Exception as e:
            if self.strict and not (isinstance(e, TactixError) or c.tactic.key in bench.strangers):
                raise
            _lost(c, str(e) if isinstance(e, TactixError) else f"{type(e).__name__}: {e}")
            return None
        if c.error > 1 and not c.is_reference:
            reject(c, f"departs from the reference by {c.error:.3g} times its budget")
            self.cache.put(self.key(b, c), Timing(inf, 0.0, c.error))
            return None
        return runnable

    def _tried(
        self,
        b: Bids,
        c: Candidate,
        bench: Bench,
        artifact: KernelArtifact,
        arrays: Sequence[Any],
        want: Expected,
    ) -> Runnable:
        """What there is to time of a candidate that ran; ``c.error`` is set. Raises whatever it
        raises.
        """
        runnable, got = bench.prepare(b.node, artifact, c.variant, arrays, self.env)
        runnable.repeat(1)
        c.error = bench.check(b.node, c.variant, got, want, GRANTED.get(c.tactic.numerics, 1.0))
        return runnable

    @contextmanager
    def _blaming(self, b: Bids, c: Candidate) -> Iterator[None]:
        """Name a candidate that loses the device, and leave it out of later builds: this process
        can use the device no more. Raises DeviceLost.
        """
        try:
            yield
        except DeviceLost as e:
            self._keep_out(b, c)
            do = "Build again with a timing cache, which leaves out what lost the device"
            if self.cache.path is not None:
                do = "Build again, in a new process: it is left out from now on"
            what = f"{self.bench.title(c)} lost the device when it was tried"
            raise DeviceLost(what, who=b.node.name, why=e.why or e.what, do=do) from e

    def _leave_out(self, b: Bids, c: Candidate, fatal: FatalTrial) -> None:
        """A candidate that was fatal to the process of its trial costs itself the race."""
        self._keep_out(b, c)
        do = "It is left out from now on: report it to whoever made the kernel"
        self.log(punctuated((f"{b.node.name}: {fatal}", do)))
        _lost(c, str(fatal))

    def _keep_out(self, b: Bids, c: Candidate) -> None:
        """Later builds with this timing cache do not try it, whatever becomes of this one."""
        self.cache.put(self.key(b, c), Timing(inf, 0.0, inf))
        with suppress(TimingCacheError):
            self.cache.save()

    def _time(self, b: Bids, runners: Sequence[tuple[Candidate, Runnable, Any]]) -> None:
        raced = {id(r): c for c, r, _ in runners}

        def measure(runnable: Runnable, times: int) -> float:
            c = raced[id(runnable)]
            try:
                with self._blaming(b, c):
                    return inf if c.status == "rejected" else self.bench.measure(runnable, times)
            except FatalTrial as e:
                self._leave_out(b, c, e)
                return inf

        samples = interleave(measure, [r for _, r, _ in runners], self._is_over)
        for (c, _, _), times in zip(runners, samples, strict=True):
            best = min(times, default=inf)
            if c.status != "rejected" and best == inf:
                estimate(c)
            elif c.status != "rejected":
                _record(
                    c, Timing(best, median(times) / best - 1 if best else 0.0, c.error), "measured"
                )


def crosses(c: Candidate) -> bool:
    """Whether it is the host's fallback beside a device, which is never raced."""
    return c.tactic.fallback and c.tactic.crosses


def _worth(todo: Todo) -> float:
    """Seconds that all nodes of these bids are thought to take: what measuring may save is a part
    of them.
    """
    b, _ = todo
    return b.count * min(DEFAULT if c.estimate is None else c.estimate for c in b.candidates)


def _record(c: Candidate, t: Timing, status: str) -> None:
    c.seconds, c.spread, c.error, c.status = t.seconds, t.spread, t.error, status
    if t.error <= 1 or c.is_reference:
        return
    if t.error == inf:
        reject(c, "lost the device, blocked it, or gave no numbers, when it was tried")
    else:
        reject(c, f"departs from the reference by {t.error:.3g} times its budget")


def _lost(c: Candidate, reason: str) -> None:
    """A candidate that could not be tried: only the reference, which stands for what is right, is
    taken untimed.
    """
    if c.is_reference:
        estimate(c)
    else:
        reject(c, reason)
