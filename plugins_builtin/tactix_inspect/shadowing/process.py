"""The process that runs references; ``references`` starts it.

It has the lowest priority that the system has, one thread, and no way to the outside but the two
pipes of the process that started it; when that is gone, it ends. Requests are tuples of a name and
arguments (see ``messages``): ``plan``, ``check`` and ``look``; each has one answer, ``("done",
...)`` or ``("failed", text)``. Behind ``look`` come steps, as the engine runs them, and ``END``.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, BinaryIO

from tactix.base.errors import ExecutionError
from tactix.contracts.shadow import StepDrift
from tactix.plan import container
from tactix.run.engine import Engine
from tactix.run.observed import RunningStep
from tactix.run.runtime import Runtime
from tactix_inspect.agreement import agree
from tactix_inspect.shadowing.facts import CheckedRequest, LookedAt, StepResult
from tactix_inspect.shadowing.messages import receive, send

NICEST = 19


END = None
"""Comes behind the last step."""


class Beside:
    """Observes a run of the references: each step has the inputs that the engine's had, as the
    engine's results take the place of its own.
    """

    def __init__(self, tolerance: float, following: Callable[[], StepResult | None]) -> None:
        self._tolerance, self._following = tolerance, following
        self.ended = False
        self.departed: list[StepDrift] = []

    def step(self, running: RunningStep, /) -> None:
        """Raises ExecutionError where the engine has run another step."""
        running.run()
        told = self.next()
        if told is None or told.step != running.step.name:
            raise ExecutionError(
                f"the engine went on with {told.step if told else 'nothing'}", who=running.step.name
            )
        rows = []
        for o, got in zip(running.step.outputs, told.outputs, strict=True):
            rows.append(agree("", "", got, running.read(o), self._tolerance, None))
            running.write(o, got)
        if not all(r.passed for r in rows):
            worst, outside = max(r.max_rel for r in rows), sum(r.outside for r in rows)
            self.departed.append(StepDrift(told.step, told.tactic, worst, outside))

    def next(self) -> StepResult | None:
        """What comes next; None at the end."""
        told = None if self.ended else self._following()
        self.ended = told is None
        return told


class ComputedReferences:
    """The references of one plan. ``requests``: where steps come from."""

    def __init__(self, requests: BinaryIO) -> None:
        self._requests = requests
        self._engine: Engine | None = None
        self._tolerance = 0.0

    def plan(self, content: bytes, tolerance: float) -> None:
        """Another plan from now on: a file's bytes, without code."""
        plan = container.load(content)
        self._engine = Runtime(max_threads=1, on_untrusted="allow", device="cpu").load(plan)
        self._tolerance = tolerance

    def check(self, inputs: Mapping[str, Any], got: Mapping[str, Any]) -> CheckedRequest:
        """Each output beside that of the references."""
        assert self._engine is not None
        start = time.process_time()
        with self._engine.create_execution_context() as context:
            want = context.run(inputs)
        compared = partial(agree, peer="references", rtol=self._tolerance, atol=None)
        rows = tuple(compared(name, got=got[name], want=want[name]) for name in want)
        return CheckedRequest(rows, time.process_time() - start)

    def look(self, inputs: Mapping[str, Any]) -> LookedAt:
        """The steps that depart by themselves, of a run that the engine tells of meanwhile."""
        assert self._engine is not None
        start = time.process_time()
        beside = Beside(self._tolerance, self._told)
        try:
            with self._engine.create_execution_context() as context:
                context.observer = beside
                context.run(inputs)
        finally:
            while beside.next() is not None:
                pass
        return LookedAt(tuple(beside.departed), time.process_time() - start)

    def _told(self) -> StepResult | None:
        told = receive(self._requests)
        assert told is END or isinstance(told, StepResult)
        return told


def step_aside() -> None:
    """Run when nobody else wants to, as far as the system can do that."""
    with contextlib.suppress(AttributeError, OSError):
        os.nice(NICEST)
    with contextlib.suppress(AttributeError, OSError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer until nobody asks any more."""
    references = ComputedReferences(requests)
    known = {f.__name__: f for f in (references.plan, references.check, references.look)}
    while True:
        try:
            asked: Any = receive(requests)
        except EOFError:
            return
        try:
            answer: tuple[str, object] = "done", known[asked[0]](*asked[1:])
        except EOFError:
            return
        except Exception as e:
            answer = "failed", f"{type(e).__name__}: {e}"
        try:
            send(answers, answer)
        except OSError:
            return


def main() -> None:
    """What is printed here goes to stderr: stdout has the answers."""
    step_aside()
    requests, answers = os.fdopen(os.dup(0), "rb", 0), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(requests, answers)
