"""An engine of which a share of the requests is looked at."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from tactix.base.errors import InvalidArgument
from tactix.contracts.engine import EngineView
from tactix.contracts.session import SessionView
from tactix.contracts.shadow import ShadowOptions, ShadowStats
from tactix.plan.schema import Plan
from tactix.run.arrays import in_order
from tactix.run.engine import Engine
from tactix_inspect.agreement import tolerance
from tactix_inspect.shadowing import ring
from tactix_inspect.shadowing.references import ReferenceProcess, reference_plan
from tactix_inspect.shadowing.sampling import sample_ends
from tactix_inspect.shadowing.worker import Judged, ShadowWorker


class SampledCalls:
    """Calls of an engine, of which some are offered to a worker. A class of its own, as Python is
    slow at attributes of one that has ``__getattr__``.
    """

    def __init__(self, engine: Engine, worker: ShadowWorker, ends: Iterator[int]) -> None:
        self._engine, self._worker, self._next_end = engine, worker, ends.__next__
        self._own = threading.local()
        self._ndarray, self._taken = np.ndarray, len(engine.inputs)
        self._names, self._numbers = [io.name for io in engine.outputs], worker.numbers
        self._lock = threading.Lock()
        self._end = self._left = self._next_end()
        self.sampled = 0

    def answer(self, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """The engine's own call and a count, as a call of that would cost more than both.

        What is done for one call in a thousand is in no cache, and takes several times what it
        would in a row. It counts in tails, so most samples, for which there is no room, are dropped
        here and by few lines.
        """
        try:
            infer = self._own.infer
        except AttributeError:
            infer = self._own.infer = self._engine.create_execution_context().infer
        if named or len(args) != self._taken or (args and args[0].__class__ is not self._ndarray):
            args = tuple(in_order(self._engine.inputs, args, named))
        outputs = infer(args)
        self._left -= 1
        if self._left <= 0 and self._lock.acquire(False):  # else another thread is here
            end = self._end
            self._end = self._next_end()
            self._left += self._end - end
            self.sampled += 1
            self._lock.release()
            if self._numbers[ring.DONE] != self._worker.full:
                self._worker.offer(end, args, outputs)
        return outputs[0] if len(outputs) == 1 else dict(zip(self._names, outputs, strict=True))

    @property
    def requests(self) -> int:
        """How many there were."""
        with self._lock:
            return self._end - self._left

    def after_fork(self) -> None:
        """In the new process: the lock may be locked by a thread that is not there."""
        self._lock = threading.Lock()


class ShadowedEngine:
    """Called as the engine, and all else of the engine's. Requests are sampled of its calls, and
    not of contexts. ``close`` ends that, and so does leaving ``with``; the engine goes on.

    May be used from any thread; each has a context of its own here, beside that which the engine
    has for it. In a process that is forked nothing is looked at.
    """

    def __init__(self, engine: Engine, worker: ShadowWorker, ends: Iterator[int]) -> None:
        self.engine, self._worker = engine, worker
        self._calls = SampledCalls(engine, worker, ends)
        self._closing = weakref.finalize(self, worker.close)
        _there.add(self)

    def __call__(self, /, *args: Any, **named: Any) -> Any:
        """As the engine. Raises what that raises, and nothing else."""
        return self._calls.answer(args, named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def __repr__(self) -> str:
        return f"<shadowed {self.engine!r}>"

    def after_fork(self) -> None:
        """In the new process."""
        self._closing.detach()
        self._calls.after_fork()
        self._worker.abandon()

    def stats(self) -> ShadowStats:
        """As of now."""
        found, sampled = self._worker.stats(), self._calls.sampled
        dropped = sampled - found.sampled
        return replace(found, requests=self._calls.requests, sampled=sampled, dropped=dropped)

    def drain(self, seconds: float = 60.0) -> bool:
        """Wait until every sample that was taken is checked; whether it came to that in time."""
        return self._worker.drain(seconds)

    def close(self) -> None:
        """No more requests are looked at; samples that wait are given up."""
        self._closing()

    def __enter__(self) -> ShadowedEngine:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


_there: weakref.WeakSet[ShadowedEngine] = weakref.WeakSet()


def _after_fork() -> None:
    for shadowed in list(_there):
        shadowed.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def shadow(
    engine: EngineView,
    session: SessionView,
    options: ShadowOptions,
    references: ReferenceProcess | None = None,
) -> ShadowedEngine:
    """As ``ShadowFlavour.shadow`` has it. ``references``: what runs them, by default a process of
    its own. Raises AllocationError, too.
    """
    if not isinstance(engine, Engine):
        do = "Shadow an engine of this version, by the flavour 'default'"
        raise InvalidArgument(f"a {type(engine).__name__} cannot be shadowed", do=do)
    if engine.plan.states is not None:
        why = "what a request gives depends on those before it"
        raise InvalidArgument("a plan that keeps states cannot be shadowed", why=why)

    def judge(plan: Plan) -> Judged:
        return Judged(plan, reference_plan(plan, session), tolerance(plan, {}))

    found = references or ReferenceProcess()
    worker = ShadowWorker(engine, found, judge(engine.plan), judge, options)
    return ShadowedEngine(engine, worker, sample_ends(options.rate, options.seed))
