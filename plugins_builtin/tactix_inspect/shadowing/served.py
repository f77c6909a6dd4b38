"""An engine of which a share of the requests is looked at."""

from __future__ import annotations

import threading
import weakref
from dataclasses import replace
from typing import Any

from tactix.base.errors import InvalidArgument
from tactix.contracts.engine import EngineView
from tactix.contracts.session import SessionView
from tactix.contracts.shadow import ShadowOptions, ShadowStats
from tactix.plan.schema import Plan
from tactix.run.engine import Engine
from tactix_inspect.agreement import tolerance
from tactix_inspect.shadowing.references import ReferenceProcess, reference_plan
from tactix_inspect.shadowing.sampling import Gaps
from tactix_inspect.shadowing.worker import Judged, References, ShadowWorker


class ShadowedEngine:
    """Called as the engine, and all else of the engine's. Requests are sampled of its calls, and
    not of contexts. ``close`` ends that, and so does leaving ``with``; the engine goes on.

    May be used from any thread.
    """

    def __init__(self, engine: Engine, worker: ShadowWorker, gaps: Gaps) -> None:
        self.engine, self._serve = engine, engine.__call__
        self._worker, self._gaps = worker, gaps
        self._lock = threading.Lock()
        self._before = 0
        self._gap = self._left = gaps.next()
        self._closing = weakref.finalize(self, worker.close)

    def __call__(self, /, *args: Any, **named: Any) -> Any:
        """As the engine. Raises what that raises, and nothing else."""
        answer = self._serve(*args, **named)
        self._left -= 1
        if self._left <= 0:
            self._sample(args, named, answer)
        return answer

    def _sample(self, args: tuple[Any, ...], named: dict[str, Any], answer: object) -> None:
        with self._lock:
            if self._left > 0:  # another thread was here before
                return
            self._before += self._gap
            self._gap = self._left = self._gaps.next()
            number = self._before
        self._worker.offer(number, args, named, answer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def __repr__(self) -> str:
        return f"<shadowed {self.engine!r}>"

    def stats(self) -> ShadowStats:
        """As of now."""
        with self._lock:
            requests = self._before + self._gap - self._left
        return replace(self._worker.stats(), requests=requests)

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


def shadow(
    engine: EngineView,
    session: SessionView,
    options: ShadowOptions,
    references: References | None = None,
) -> ShadowedEngine:
    """As ``ShadowFlavour.shadow`` has it. ``references``: what runs them, by default a process of
    its own.
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
    return ShadowedEngine(engine, worker, Gaps(options.rate, options.seed))
