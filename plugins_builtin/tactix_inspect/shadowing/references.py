"""This process's end of the one that runs references."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from io import RawIOBase
from typing import cast

from tactix.base.errors import ExecutionError
from tactix.contracts.session import SessionView
from tactix.plan import container
from tactix.plan.schema import Plan
from tactix.run.admission import code_steps
from tactix.run.observed import RunningStep, StepObserver
from tactix_inspect.shadowing.facts import Departed, LookedAt, PlanWanted, ReferencePace, StepResult
from tactix_inspect.shadowing.messages import receive, send
from tactix_inspect.shadowing.process import END, main
from tactix_inspect.shadowing.ring import SampleRing
from tactix_runtime.references import on_references

ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""What numpy's libraries of products take their number of threads from."""
END_SECONDS = 5.0
"""How long the process may take to end once nobody asks any more."""


class ReferencesLost(ExecutionError):
    """The process that runs references is gone, or could not be started."""


def reference_plan(plan: Plan, session: SessionView) -> Plan:
    """The plan without code, and without what it was built by.

    Raises PlanCompatibilityError where a step has no reference, AllocationError.
    """
    found = on_references(plan, code_steps(plan, session.launchers))
    return replace(found, ledger={}, seal=None)


@dataclass(frozen=True)
class Started:
    """A process that serves (see ``process.ReferenceServer``), and this end of its pipes. ``code``:
    what it ended with, None while it runs; ``end``: ends it, and waits for that.
    """

    requests: RawIOBase
    answers: RawIOBase
    pid: int
    code: Callable[[], int | None]
    end: Callable[[], None]


Start = Callable[[SampleRing, int], Started]
"""Starts one with the memory of samples and the reading end of the pipe that tells of them. Raises
ReferencesLost.
"""


class ReferenceProcess:
    """One thread asks it, and hears what it says; any other may ``offer`` samples, one at a time,
    from the beginning on. ``close`` and ``abandon`` end that, from any thread; what is asked
    meanwhile raises ReferencesLost. ``release`` comes last.
    """

    def __init__(self, start: Start | None = None) -> None:
        self._start: Start = start or start_process
        self._process: Started | None = None
        self._starting = threading.Lock()
        self._ended = False
        self._heard, self._offered = os.pipe()
        os.set_blocking(self._offered, False)

    @property
    def pid(self) -> int:
        """Of the process; 0 while there is none."""
        return self._process.pid if self._process else 0

    def offer(self, what: bytes) -> bool:
        """A byte of ``ring``; whether there was room for it. Never waits."""
        try:
            return os.write(self._offered, what) == 1
        except (BlockingIOError, BrokenPipeError):
            return False

    def start(self, samples: SampleRing, pace: ReferencePace) -> None:
        """Raises ReferencesLost."""
        with self._starting:
            if self._ended:
                raise ReferencesLost("the references were closed")
            self._process = self._start(samples, self._heard)
        self._write(pace)

    def take(self, plan: Plan, tolerance: float) -> None:
        """References of another plan (see ``reference_plan``) from now on.

        Raises ReferencesLost; ExecutionError if they cannot run there.
        """
        self._write(("plan", container.dump(plan), tolerance))
        self._answer()

    def told(self) -> Departed | PlanWanted:
        """The next that it says; waits for it. Raises as ``take``."""
        return cast("Departed | PlanWanted", self._read())

    def look(self, run: Callable[[StepObserver], None]) -> LookedAt:
        """Steps of the sample that departs which depart from their references. ``run``: runs the
        engine on the inputs, observed so. Raises as ``take``, and what running raises.
        """
        self._write(("look",))
        try:
            run(_Telling(self._process_there.requests))
        finally:
            self._write(END)
            answer = self._answer()
        return cast(LookedAt, answer)

    def go_on(self) -> None:
        """With the next sample. Raises ReferencesLost."""
        self._write(("go_on",))

    def close(self) -> None:
        """End it."""
        with self._starting:
            self._ended, process = True, self._process
        if process is not None:
            process.end()

    def abandon(self) -> None:
        """In a process that was forked: this end closes, and the references go on for the other
        one.
        """
        self._ended = True
        self.release()

    def release(self) -> None:
        """Close the pipes, when nobody asks or offers any more."""
        for end in (self._heard, self._offered):
            with contextlib.suppress(OSError):
                os.close(end)
        if self._process is not None:
            for stream in (self._process.requests, self._process.answers):
                with contextlib.suppress(OSError, ValueError):
                    stream.close()

    # -- asking -----------------------------------------------------------------------------------

    @property
    def _process_there(self) -> Started:
        assert self._process is not None
        return self._process

    def _write(self, message: object) -> None:
        try:
            send(self._process_there.requests, message)
        except (OSError, ValueError) as e:
            raise self._lost() from e

    def _answer(self) -> object:
        _, what = cast("tuple[str, object]", self._read())
        return what

    def _read(self) -> object:
        try:
            said = receive(self._process_there.answers)
        except (EOFError, OSError, ValueError) as e:
            raise self._lost() from e
        if isinstance(said, tuple) and said[0] == "failed":
            raise ExecutionError("the references failed", why=str(said[1]))
        return said

    def _lost(self) -> ReferencesLost:
        code = self._process_there.code()
        why = f"it ended with {code}" if code is not None else ""
        return ReferencesLost("the process that runs references is gone", why=why)


def start_process(samples: SampleRing, heard: int) -> Started:
    """It finds what this process would import."""
    path = os.pathsep.join(p or os.getcwd() for p in sys.path)
    single = dict.fromkeys(ONE_THREAD, "1")
    told = map(str, (samples.descriptor, heard, samples.places, samples.size))
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", f"from {main.__module__} import main; main()", *told],
            env={**os.environ, **single, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            pass_fds=(samples.descriptor, heard),
            start_new_session=True,  # a Ctrl-C is for whoever started it
        )
    except OSError as e:
        raise ReferencesLost("no process to run references in", why=str(e)) from e

    def end() -> None:
        process.kill()  # it keeps nothing
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_SECONDS)

    requests, answers = (cast(RawIOBase, s) for s in (process.stdin, process.stdout))
    return Started(requests, answers, process.pid, process.poll, end)


class _Telling:
    """Sends what each step of a run made."""

    def __init__(self, stream: RawIOBase) -> None:
        self._stream = stream

    def step(self, running: RunningStep, /) -> None:
        running.run()
        s = running.step
        made = [running.read(o) for o in s.outputs]
        send(self._stream, StepResult(s.name, str(s.info.get("tactic", "")), made))
