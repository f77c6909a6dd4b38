"""Fuzzing of plans: ``python tests/attacks/plan/fuzz.py --cases 200000 --seed 1 --jobs 2``.

Cases are numbered; ``--first N --cases 1`` tries one again in this process. Each runs in a process
with little memory, under an alarm, in memory full of canaries, of which no output may hold any; one
that ends its process is told, and the next one goes on. ``--flips 100000`` instead cuts a plan off
everywhere and changes so many bytes of it, with no digest made right. Exit code 1 if anything was
found.
"""

from __future__ import annotations

import argparse
import collections
import json
import multiprocessing
import random
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from plan_mutations import Mutator
from plan_samples import files, plans
from plan_trial import ROOM, Trial, held_back, no_endless_loops, peak, poisoned

from tactix.base.errors import PlanFormatError
from tactix.plan import container

ORDER = (0, 0, 1, 1, 1, 2, 3, 4, 5, 5, 6, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10)
"""Samples by number; those with short headers, which take little time, come more often."""

SECONDS = 10
"""Most that a case may take."""


class Hang(BaseException):
    """The alarm went off."""


def _alarm(*_: Any) -> None:
    raise Hang


class Fuzzer:
    """All cases of a seed: number to outcome."""

    def __init__(self, seed: int) -> None:
        self.seed, self.trial = seed, Trial(plans())
        self.mutators = [(name, Mutator(data)) for name, data in files().items()]

    def data(self, case: int) -> tuple[str, bytes]:
        name, mutator = self.mutators[ORDER[case % len(ORDER)]]
        return name, mutator.make((self.seed << 40) + case)

    def run(self, case: int) -> tuple[str, str]:
        """The outcome, and a traceback if it is a fault."""
        _, data = self.data(case)
        try:
            signal.setitimer(signal.ITIMER_REAL, SECONDS)
            if case % 512 == 0 and (most := peak(self.trial, data)) > len(data) + ROOM:
                return "FAULT memory", f"{most} bytes for a file of {len(data)}"
            verify, more, references = case % 3 == 0, case % 50 == 0, case % 2 == 0
            return self.trial(data, verify=verify, more=more, references=references), ""
        except (Exception, Hang) as e:
            return f"FAULT {type(e).__name__}", traceback.format_exc()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)


def work(job: int, seed: int, first: int, last: int, step: int, at: Any, out: Any) -> None:
    """Try every ``step``-th case; ``at[job]`` tells the parent which one is tried."""
    signal.signal(signal.SIGALRM, _alarm)
    fuzzer = Fuzzer(seed)
    for case in range(4):
        fuzzer.run(case)
    held_back(4 * ROOM)
    no_endless_loops()
    poisoned()
    counts: collections.Counter[str] = collections.Counter()
    for n, case in enumerate(range(first, last, step), 1):
        at[job] = case
        outcome, trace = fuzzer.run(case)
        counts[outcome] += 1
        if trace or n % 500 == 0:
            out.put((job, dict(counts), (case, outcome, trace) if trace else None))
            counts.clear()
    out.put((job, dict(counts), None))


class Campaign:
    """Processes, their counts, and what was found."""

    def __init__(self, seed: int, first: int, cases: int, jobs: int) -> None:
        self.seed, self.last, self.jobs = seed, first + cases, jobs
        self.spawn = multiprocessing.get_context("spawn")
        self.at, self.out = self.spawn.Array("q", [-1] * jobs), self.spawn.Queue()
        self.counts: collections.Counter[str] = collections.Counter()
        self.found: dict[str, list[tuple[int, str]]] = {}
        self.running = {job: self._start(job, first + job) for job in range(jobs)}

    def _start(self, job: int, first: int) -> Any:
        more = (job, self.seed, first, self.last, self.jobs, self.at, self.out)
        process = self.spawn.Process(target=work, args=more, daemon=True)
        process.start()
        return process

    def run(self) -> None:
        began = told = time.monotonic()
        while self.running:
            time.sleep(0.2)
            self._drain()
            for job, process in list(self.running.items()):
                self._look_after(job, process)
            if time.monotonic() - told > 5:
                told, done = time.monotonic(), self.counts.total()
                print(
                    f"{done} cases, {done / (told - began):.0f} a second, {len(self.found)} kinds found",
                    flush=True,
                )
        self._drain()

    def _look_after(self, job: int, process: Any) -> None:
        if process.is_alive():
            return
        del self.running[job]
        self._drain()
        if process.exitcode:
            case = self.at[job]
            self._note(case, f"FAULT exit {process.exitcode}", "")
            if case + self.jobs < self.last:
                self.running[job] = self._start(job, case + self.jobs)

    def _drain(self) -> None:
        while not self.out.empty():
            _, counts, fault = self.out.get()
            self.counts.update(counts)
            if fault:
                self._note(*fault)

    def _note(self, case: int, outcome: str, trace: str) -> None:
        places = [x.strip() for x in trace.splitlines() if x.startswith("  File")]
        kind = f"{outcome} {places[-1] if places else trace}"
        if kind not in self.found:
            print(f"case {case}: {kind}\n{trace}", flush=True)
        self.found.setdefault(kind, []).append((case, trace))


def damage(flips: int, seed: int) -> int:
    """Every truncation of a plan with machine code, and so many changed bytes of it; how many
    passed unnoticed.
    """
    data, rng = files()["blocked"], random.Random(seed)
    passed = sum(_loads(data[:n]) for n in range(len(data)))
    print(f"{len(data)} truncations, {passed} of them load", flush=True)
    changed = bytearray(data)
    for n in range(flips):
        at = rng.randrange(len(data))
        changed[at] ^= rng.randrange(1, 256)
        passed += _loads(changed)
        changed[at] = data[at]
        if n % 20_000 == 19_999:
            print(f"{n + 1} changed bytes, {passed} pass", flush=True)
    return passed


def _loads(data: bytes | bytearray) -> bool:
    try:
        container.load(data, verify=True)
    except PlanFormatError:
        return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("cases", 200_000), ("seed", 1), ("first", 0), ("jobs", 2), ("flips", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    if args.flips:
        return min(1, damage(args.flips, args.seed))
    if args.cases == 1:
        signal.signal(signal.SIGALRM, _alarm)
        print(*Fuzzer(args.seed).run(args.first), sep="\n")
        return 0
    began = time.monotonic()
    campaign = Campaign(args.seed, args.first, args.cases, args.jobs)
    campaign.run()
    for outcome, n in campaign.counts.most_common():
        print(f"{n:8d} {outcome}")
    for kind, cases in campaign.found.items():
        print(f"{len(cases):8d} times {kind}: cases {[c for c, _ in cases[:5]]}")
    seconds = round(time.monotonic() - began)
    print(
        json.dumps(
            {"cases": campaign.counts.total(), "found": len(campaign.found), "seconds": seconds}
        )
    )
    return 1 if campaign.found else 0


if __name__ == "__main__":
    sys.exit(main())
