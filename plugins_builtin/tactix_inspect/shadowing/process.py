"""The process that runs references; ``references`` starts it.

It has the lowest priority that the system has, one thread, and no way to the outside but memory and
pipes of the process that started it; when that is gone, it ends. It looks at sample after sample
(see ``ring``), and rests in between, without being told; what it says, ``Departed`` and
``PlanWanted``, is rare. Requests are tuples of a name and arguments (see ``messages``): ``plan``
and ``look`` have an answer, ``("done", ...)`` or ``("failed", text)``, and ``go_on`` has none.
Behind ``look`` come steps, as the engine runs them, and ``END``.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from io import RawIOBase
from typing import Any, Protocol, cast

from tactix.base.errors import ExecutionError
from tactix.contracts.shadow import StepDrift
from tactix.plan import container
from tactix.run.engine import Engine
from tactix.run.observed import RunningStep
from tactix.run.runtime import Runtime
from tactix_inspect.agreement import agree
from tactix_inspect.shadowing import ring
from tactix_inspect.shadowing.facts import (
    CheckedRequest,
    Departed,
    LookedAt,
    PlanWanted,
    ReferencePace,
    Sample,
    StepResult,
)
from tactix_inspect.shadowing.messages import receive, send
from tactix_inspect.shadowing.ring import RENEWAL, SampleRing

NICEST = 19
END = None
"""Comes behind the last step."""
PARENT_SECONDS = 10.0
"""How often it looks whether the process that started it is still there, beside the end of its
pipes, which others may have inherited.
"""

Steps = Callable[[], StepResult | None]
"""The next step that the engine has run; None behind the last."""


class Beside:
    """Observes a run of the references: each step has the inputs that the engine's had, as the
    engine's results take the place of its own.
    """

    def __init__(self, tolerance: float, following: Steps) -> None:
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


class References(Protocol):
    """What computes the right answers."""

    def plan(self, content: bytes, tolerance: float) -> None: ...

    def check(self, inputs: Mapping[str, Any], got: Mapping[str, Any]) -> CheckedRequest: ...

    def look(self, inputs: Mapping[str, Any], following: Steps) -> LookedAt: ...


class ComputedReferences:
    """The references of one plan."""

    def __init__(self) -> None:
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

    def look(self, inputs: Mapping[str, Any], following: Steps) -> LookedAt:
        """The steps that depart by themselves, of a run that the engine tells of meanwhile."""
        assert self._engine is not None
        start = time.process_time()
        beside = Beside(self._tolerance, following)
        try:
            with self._engine.create_execution_context() as context:
                context.observer = beside
                context.run(inputs)
        finally:
            while beside.next() is not None:
                pass
        return LookedAt(tuple(beside.departed), time.process_time() - start)


class ReferenceServer:
    """Looks at samples until nobody is there any more. ``offered``: the pipe that says what the
    places hold; ``requests`` and ``answers``: those of the thread that is told.
    """

    def __init__(
        self,
        references: References,
        samples: SampleRing,
        offered: RawIOBase,
        requests: RawIOBase,
        answers: RawIOBase,
    ) -> None:
        self._references, self._samples, self._offered = references, samples, offered
        self._requests, self._answers = requests, answers
        self._parent = os.getppid()

    def serve(self) -> None:
        """Raises nothing: what fails is told, and ends it."""
        with contextlib.suppress(EOFError, OSError):
            pace = cast(ReferencePace, receive(self._requests))
            try:
                self._follow(pace)
            except ExecutionError as e:
                self._say(("failed", str(e)))

    def _follow(self, pace: ReferencePace) -> None:
        """Raises EOFError at the end, ExecutionError."""
        self._request()
        while self._waited_for(self._offered, None):
            start, seconds = time.monotonic(), 0.0
            if (told := self._offered.read(1)) == RENEWAL:
                self._say(PlanWanted())
                self._request()
            elif told:
                seconds = self._check(self._samples[ring.DONE])
            else:
                return
            self._samples.add(ring.DONE, 1)
            if seconds:
                whole = max(pace.pause, seconds / pace.load)
                self._waited_for(None, whole - (time.monotonic() - start))

    def _check(self, place: int) -> float:
        """The seconds that it took, of a core."""
        sample = cast(Sample, self._samples.sample(place))
        try:
            checked = self._references.check(sample.inputs, sample.outputs)
        except Exception as e:
            raise ExecutionError(_told(e)) from e
        self._spent(checked.seconds)
        self._samples.add(ring.DEPARTED, int(checked.departs))
        self._samples.add(ring.CHECKED, 1)
        if not checked.departs:
            return checked.seconds
        self._say(Departed(place, checked))
        looked = self._request(sample)
        if looked is None:
            return checked.seconds
        self._request()
        return checked.seconds + looked.seconds

    def _request(self, sample: Sample | None = None) -> LookedAt | None:
        """Do what is asked next; what a look found, even if it failed. Raises EOFError."""
        name, *arguments = cast("tuple[Any, ...]", receive(self._requests))
        looked = None
        try:
            if name == "plan":
                self._references.plan(*arguments)
            elif name == "look":
                assert sample is not None
                looked = LookedAt((), 0.0)
                looked = self._references.look(sample.inputs, self._step)
                self._spent(looked.seconds)
        except EOFError:
            raise
        except Exception as e:
            self._say(("failed", _told(e)))
        else:
            if name != "go_on":
                self._say(("done", looked))
        return looked

    def _step(self) -> StepResult | None:
        told = receive(self._requests)
        assert told is END or isinstance(told, StepResult)
        return told

    def _say(self, message: object) -> None:
        send(self._answers, message)

    def _spent(self, seconds: float) -> None:
        self._samples.add(ring.MICROSECONDS, round(seconds * 1e6))

    def _waited_for(self, stream: RawIOBase | None, seconds: float | None) -> bool:
        """Wait until there is something to read, or the time is over; whether it was the first.
        Raises EOFError when nobody is there any more.
        """
        end = None if seconds is None else time.monotonic() + seconds
        with selectors.DefaultSelector() as watched:
            for s in filter(None, (self._requests, stream)):
                watched.register(s, selectors.EVENT_READ)
            while end is None or time.monotonic() < end:
                left = PARENT_SECONDS if end is None else end - time.monotonic()
                ready = [k.fileobj for k, _ in watched.select(min(left, PARENT_SECONDS))]
                if stream in ready:
                    return True
                if ready or os.getppid() != self._parent:  # nobody asks anything now
                    raise EOFError
        return False


def _told(e: Exception) -> str:
    return f"{type(e).__name__}: {e}"


def step_aside() -> None:
    """Run when nobody else wants to, as far as the system can do that."""
    with contextlib.suppress(AttributeError, OSError):
        os.nice(NICEST)
    with contextlib.suppress(AttributeError, OSError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def main() -> None:
    """Arguments: descriptors of the memory and of the pipe of samples, and places and their size.
    What is printed here goes to stderr: stdout has the answers.
    """
    step_aside()
    memory, offered, places, size = map(int, sys.argv[1:])
    requests, answers = os.fdopen(os.dup(0), "rb", 0), os.fdopen(os.dup(1), "wb", 0)
    os.dup2(2, 1)
    samples = SampleRing(memory, places, size)
    pipe = os.fdopen(offered, "rb", 0)
    ReferenceServer(ComputedReferences(), samples, pipe, requests, answers).serve()
