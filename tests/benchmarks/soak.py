#!/usr/bin/env python3
"""One engine under threads that infer, make contexts and refit it: no wrong answer, and memory that
does not grow.

    python tests/benchmarks/soak.py [MODEL.onnx] [--minutes 10] [--threads 8] [--no-refit]

Every thread runs, at random: its own context at shapes that change, the engine's call, a new
context that is thrown away, and several runs into bound addresses. One thread more refits the
engine to and fro between two sets of weights; each answer must be one of the two that were seen
with them before (a run sees old weights or new ones, never both). Resident memory is looked at
every second; growth is what the lowest values of the second and of the last fifth of the time
differ by, as what is in cycles waits for the garbage collector. Prints Markdown; the exit code is 1
after a wrong answer, an error, or growth of more than 8 MiB and 2 %.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from peer_inputs import make_inputs

import tactix
from tactix_sdk.testing.memory import resident

MODEL = Path(__file__).parents[1] / "models" / "lenet.onnx"
BATCHES = (1, 2, 3, 5)
TOLERANCE = 1e-5
SLACK_BYTES, SLACK_SHARE = 8 << 20, 0.02


class Soak:
    """One engine, its right answers by batch and set of weights, and what the threads have done."""

    def __init__(self, model: Path, refit: bool) -> None:
        self.feeds = {b: make_inputs(model, b) for b in BATCHES}
        flags = {tactix.BuilderFlag.REFIT} if refit else set()
        self.engine = tactix.build(model, threads=1, level=1, flags=flags)
        self.sets = self._sets() if refit else []
        self.right = [self._answers()]
        for weights in self.sets[::-1]:  # the first set is in the engine at the end
            self._refit(weights)
            self.right.insert(0, self._answers())
        self.done: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.stop = threading.Event()
        self._count = threading.Lock()

    def _answers(self) -> dict[int, list[Any]]:
        context = self.engine.create_execution_context()
        return {b: [a.copy() for a in context.infer(self._given(b))] for b in BATCHES}

    def _given(self, batch: int) -> list[Any]:
        return [self.feeds[batch][io.name] for io in self.engine.inputs]

    def _sets(self) -> list[dict[str, Any]]:
        """The engine's weights, and others: every number a third larger."""
        from tactix_refit.refitter import Refitter

        self.refitter = Refitter(self.engine, threads=1)
        rng = np.random.default_rng(5)
        names = self.refitter.get_all_weights()
        specs = {n: self.refitter.get_weights_prototype(n) for n in names}
        first = {
            n: (rng.standard_normal(s.shape) / 8).astype(s.dtype.numpy) for n, s in specs.items()
        }
        return [first, {n: (w * 4 / 3).astype(w.dtype) for n, w in first.items()}]

    def _refit(self, weights: dict[str, Any]) -> None:
        for name, array in weights.items():
            self.refitter.set_named_weights(name, array)
        self.refitter.refit()

    # -- what threads do --------------------------------------------------------------------------

    def work(self, seed: int) -> None:
        """Until it is over, or something is wrong."""
        chance, context = random.Random(seed), self.engine.create_execution_context()
        own: Counter[str] = Counter()
        while not self.stop.is_set():
            batch = chance.choice(BATCHES)
            kind = chance.choice(("context", "engine", "new context", "addresses"))
            try:
                self._check(kind, batch, self._run(kind, batch, context))
            except Exception as e:
                self._tell(f"{kind}, batch {batch}: {e!r}")
            own[kind] += 1
        with self._count:
            self.done += own

    def _run(self, kind: str, batch: int, context: Any) -> list[Any]:
        given = self._given(batch)
        if kind == "engine":
            found = self.engine(*given)
            return list(found.values()) if isinstance(found, dict) else [found]
        if kind == "new context":
            return list(self.engine.create_execution_context().infer(given))
        if kind == "addresses":
            return self._bound(given, self.right[0][batch])
        return list(context.infer(given))

    def _bound(self, given: list[Any], like: list[Any]) -> list[Any]:
        context, outputs = (
            self.engine.create_execution_context(),
            [np.full_like(a, np.nan) for a in like],
        )
        for io, array in zip(
            (*self.engine.inputs, *self.engine.outputs), (*given, *outputs), strict=True
        ):
            context.set_tensor_address(io.name, array)
        for _ in range(3):
            context.execute_async_v3(0)
        return outputs

    def _check(self, kind: str, batch: int, got: list[Any]) -> None:
        for want in self.right:
            if all(
                np.allclose(g, w, TOLERANCE, TOLERANCE)
                for g, w in zip(got, want[batch], strict=True)
            ):
                return
        self._tell(f"{kind}, batch {batch}: no answer of any weights")

    def _tell(self, what: str) -> None:
        self.wrong.append(what)
        self.stop.set()

    def refit(self) -> None:
        """To and fro, a little apart."""
        while self.sets and not self.stop.wait(0.01):
            try:
                self._refit(self.sets[(self.done["refit"] + 1) % 2])
            except Exception as e:
                self._tell(f"refit: {e!r}")
            self.done["refit"] += 1


def soak(task: Soak, threads: int, seconds: float) -> list[int]:
    """Run the threads; resident bytes, second by second."""
    running = [threading.Thread(target=task.work, args=(seed,)) for seed in range(threads)]
    running.append(threading.Thread(target=task.refit))
    end, sizes = time.monotonic() + seconds, []
    for t in running:
        t.start()
    while time.monotonic() < end and not task.stop.wait(1):
        sizes.append(resident())
    task.stop.set()
    for t in running:
        t.join()
    return sizes


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path, nargs="?", default=MODEL)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--no-refit", action="store_true")
    args = parser.parse_args()
    task = Soak(args.model, not args.no_refit)
    sizes = soak(task, args.threads, args.minutes * 60)
    fifth = max(1, len(sizes) // 5)
    first, last = (min(part) for part in (sizes[fifth : 2 * fifth] or sizes, sizes[-fifth:]))
    grown = last - first > SLACK_BYTES and last > first * (1 + SLACK_SHARE)
    columns = (
        "model",
        "threads",
        "minutes",
        "done",
        "wrong",
        "least resident MiB, second fifth",
        "last fifth",
        "peak",
    )
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    done = ", ".join(f"{n} {kind}" for kind, n in sorted(task.done.items()))
    print(
        f"| {args.model.stem} | {args.threads} | {args.minutes:g} | {done} | {len(task.wrong)} "
        f"| {first / 2**20:.1f} | {last / 2**20:.1f} | {max(sizes) / 2**20:.1f} |"
    )
    for what in task.wrong:
        print(what, file=sys.stderr)
    return 1 if task.wrong or grown else 0


if __name__ == "__main__":
    sys.exit(main())
