"""A stranger's candidate, tried and timed in a worker process.

It runs between fences first (``fence.py``), on one thread and on all, at either end; its outputs
must pass the same gate as anybody's, also at sizes of 0 that the plan may meet. Then it is timed by
the same timer, over memory like that of its rivals, in turns with them. What fails goes to the
quarantine.
"""

from __future__ import annotations

import math
import os
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from math import inf
from pathlib import Path
from typing import Any

from tactix.base.dims import Env, symbols
from tactix.base.errors import ExecutionError, punctuated
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.graph import Node
from tactix.contracts.launcher import Runnable
from tactix.contracts.tactic import Variant
from tactix.run.link import layer_keys
from tactix.select.accuracy import GRANTED
from tactix.select.bench import Bench, Expected, Untriable, sample
from tactix.select.enumerate import Candidate, reject
from tactix_isolate import quarantine, record
from tactix_isolate.allowance import patience
from tactix_isolate.bench import CpuBench
from tactix_isolate.job import Draft, Job
from tactix_isolate.process import Died, TrialResult, spoken

FATAL = frozenset({"crash", "exit", "outside", "hang"})
"""Verdicts on what ended or blocked its process, or would have without fences."""
FLOAT_MODE = "left the floating-point mode changed (its rounding, or denormals that count as zero)"
WAYS = tuple(product((False, True), (True, False)))
"""The runs of a trial: whether they are shared between threads, and at which end of its buffers the
fence is.
"""


class Remote:
    """A candidate in the worker. It is loaded again into one that was started since."""

    def __init__(self, bench: TrialBench, job: Job, seconds: float) -> None:
        self.bench, self.job, self.seconds = bench, job, seconds
        self._worker = bench.market.worker
        self._loaded = 0
        weakref.finalize(self, Path(job.content).unlink, missing_ok=True)

    def _ask(self, name: str, *arguments: Any) -> dict[str, Any]:
        """Raises ExecutionError; what the process died of is in the quarantine then.

        Where others ran in the process before, the fault may be theirs: it is asked again in a new
        one.
        """
        alone, stopped = self._worker.loaded <= {self.job.number}, self.bench.market.stopped
        try:
            if not self._worker.pid or self._loaded != self._worker.starts:
                self._worker.ask(self.seconds, "load", self.job, stopped=stopped)
                self._worker.loaded.add(self.job.number)
                self._loaded = self._worker.starts
            return self._worker.ask(
                self.seconds, name, self.job.number, *arguments, stopped=stopped
            )
        except Died as e:
            if alone or e.verdict.kind == "stopped":
                raise self.bench.fail(e.verdict) from None
        return self._ask(name, *arguments)

    def tried(self, shared: bool, at_end: bool) -> list[Any]:
        """The outputs of a run between fences. Raises ExecutionError."""
        import numpy as np

        answer = self._ask("trial", shared, at_end)
        if rows := answer.get("outside"):
            raise self.bench.fail(spoken(rows))
        if "float_mode" in answer:
            self._worker.stop()  # others would compute in that mode
            raise self.bench.fail(TrialResult("float mode", FLOAT_MODE))
        content = Path(self.job.content).read_bytes()
        stored = [(self.job.buffers[i], dtype.numpy, shape) for i, dtype, shape in self.job.outputs]
        return [
            np.frombuffer(content[b.at : b.at + b.nbytes], dtype).reshape(shape)
            for b, dtype, shape in stored
        ]

    def measure(self, times: int) -> float:
        """Seconds. Raises ExecutionError."""
        if self.bench.candidate.status == "rejected":
            return inf
        with self.bench.charged():
            return float(self._ask("measure", times)["seconds"])

    def seconds_of(self, times: int) -> float:
        """Seconds; infinite if it fails, and then the candidate is rejected."""
        try:
            return self.measure(times)
        except ExecutionError as e:
            reject(self.bench.candidate, str(e))
            return inf

    def bind(self, env: Env, addresses: Sequence[int]) -> None:
        raise ExecutionError(
            "a candidate in another process has its own memory", who=self.job.step.name
        )

    def rebind(self, buffer: int, address: int) -> None:
        self.bind({}, ())

    def __call__(self) -> None:
        self.repeat(1)

    def repeat(self, times: int) -> None:
        self.measure(times)


class TrialBench(Bench):
    """The bench of one stranger's candidate. ``market``: that of the build."""

    def __init__(self, market: CpuBench, c: Candidate) -> None:
        super().__init__(market.context, market.launchers, market.allocator, market.strangers)
        self.market, self.candidate = market, c
        self._where = ""

    def prepare(
        self,
        node: Node,
        artifact: KernelArtifact,
        variant: Variant,
        arrays: Sequence[Any],
        env: Env,
    ) -> tuple[Runnable, list[Any]]:
        """The outputs are those of several runs.

        Raises Untriable for what no process can be given; ExecutionError, and puts what broke into
        the quarantine, or for what is not tried any more.
        """
        self._node, self._env = node, env
        if why := self.market.refusal(self.candidate):
            raise ExecutionError(why)
        if artifact.alias:
            return self._seen(node, variant, arrays, env)
        launcher = (
            self.launchers[artifact.launcher] if artifact.launcher in self.strangers else None
        )

        def remote(arrays: Sequence[Any], env: Env) -> Remote:
            draft = Draft(next(self.market.numbers), self._file(), self.market.keep_code)
            job = draft.job(node, artifact, variant, arrays, env, launcher, layers)
            evict = self.market.eviction(job.step, node, lambda buffer: job.buffers[buffer].nbytes)
            job = replace(job, eviction=evict)
            return Remote(self, job, patience(self.candidate.estimate))

        try:
            layers = {
                k: self.context.layer(k)
                for k in layer_keys(artifact.params)
                if not k.startswith("tactix.")
            }
            made = remote(arrays, env)
            with self.charged():
                outputs = [made.tried(shared, at_end) for shared, at_end in WAYS]
                self._try_sizes_of_0(node, variant, env, remote)
            return made, outputs
        except ExecutionError as e:
            raise self._named(e) from e
        except Exception as e:
            raise Untriable(f"{self._who} cannot be tried", why=f"{type(e).__name__}: {e}") from e

    def _try_sizes_of_0(
        self,
        node: Node,
        variant: Variant,
        env: Env,
        remote: Callable[[Sequence[Any], Env], Remote],
    ) -> None:
        """One run for each open size that may be 0: a division by it would end the caller's
        process.

        Where the reference has no answer there is nothing to compare with. Raises ExecutionError.
        """
        names = {name for v in node.given for d in v.spec.shape for name in symbols(d)}
        for name in sorted(n for n in names if self.market.least.get(n, 1) == 0):
            at = {**env, name: 0}
            try:
                arrays = sample(node, at)
                want = Expected(node, arrays, at)
            except Exception:
                continue
            self._env, self._where = at, f" at {name} = 0"
            outputs = remote(arrays, at).tried(False, True)
            granted = GRANTED.get(self.candidate.tactic.numerics, 1.0)
            self.check(node, variant, [outputs], want, granted)
        self._env, self._where = env, ""

    def _seen(
        self, node: Node, variant: Variant, arrays: Sequence[Any], env: Env
    ) -> tuple[Runnable, list[Any]]:
        """An alias: its input, seen as its output. Raises ExecutionError."""
        out = node.outputs[0].spec
        x = variant.input_format(0).pack(arrays[0])
        shape = variant.output_format(0).storage_shape(out.at(dict(env)))
        if len(node.outputs) > 1 or x.dtype != out.dtype.numpy or x.size != math.prod(shape):
            raise ExecutionError(
                f"{self._who} says that its output is its input, which it does not fit"
            )
        return Nothing(), [[x.reshape(shape)]]

    @property
    def _who(self) -> str:
        return self.market.title(self.candidate)

    def _named(self, e: ExecutionError) -> ExecutionError:
        return e if self._who in e.what else ExecutionError(f"{self._who} failed", why=str(e))

    def _file(self) -> Path:
        fd, path = tempfile.mkstemp(dir=self.market.folder)
        os.close(fd)
        return Path(path)

    def keep(self) -> list[Any]:
        """Nothing: the memory is in the worker. A cycle with what runs there would keep that after
        the build.
        """
        return []

    def check(
        self, node: Node, variant: Variant, got: Sequence[Any], want: Expected, granted: float = 1.0
    ) -> float:
        off = max(
            super(TrialBench, self).check(node, variant, outputs, want, granted) for outputs in got
        )
        if off > 1:
            text = f"departs from the reference by {off:.3g} times its budget"
            raise self.fail(TrialResult("wrong", text))
        return off

    @contextmanager
    def charged(self) -> Iterator[None]:
        """What fails meanwhile is charged to the pack."""
        start = time.monotonic()
        try:
            yield
        except ExecutionError:
            pack = str(self.strangers[self.candidate.tactic.key])
            self.market.allowance.charge(pack, time.monotonic() - start)
            raise

    def fail(self, verdict: TrialResult) -> ExecutionError:
        """The error to raise; what the kernel itself did is in the quarantine then."""
        text = f"{self._who} {verdict.text}{self._where}"
        if verdict.kind in ("killed", "stopped"):
            return ExecutionError(text)
        if verdict.kind in FATAL:
            self.market.allowance.count(self.candidate.tactic.key)
        key = self.market.key(self.candidate)
        reason = f"quarantined as {key[: quarantine.ID]}: {text}"
        made = record.of(
            self.candidate,
            self._node,
            self._env,
            self.context.threads,
            self.strangers,
            verdict,
            reason,
        )
        do = f"`tactix plugins quarantine clear {key[: quarantine.ID]}` has it tried again"
        self.context.warn(punctuated((f"{self._node.name}: {reason}", do)))
        try:
            self.market.quarantine.add(key, made)
        except OSError as e:
            self.context.warn(
                f"the quarantine cannot be written, so later builds try it again: {e}. "
                "Name another folder with TACTIX_CACHE_DIR"
            )
        return ExecutionError(reason)


class Nothing:
    """What there is to run of an alias."""

    def bind(self, env: Env, addresses: Sequence[int]) -> None: ...

    def rebind(self, buffer: int, address: int) -> None: ...

    def __call__(self) -> None: ...

    def repeat(self, times: int) -> None: ...
