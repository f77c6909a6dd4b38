"""This process's end of the one that runs references."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, BinaryIO, cast

from tactix.base.errors import ExecutionError
from tactix.contracts.session import SessionView
from tactix.plan import container
from tactix.plan.schema import Plan
from tactix.run.admission import code_steps
from tactix.run.observed import RunningStep, StepObserver
from tactix_inspect.shadowing.facts import CheckedRequest, LookedAt, StepResult
from tactix_inspect.shadowing.messages import receive, send
from tactix_inspect.shadowing.process import END, main
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


class ReferenceProcess:
    """Started with the first plan; one thread asks it at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._starting = threading.Lock()
        self._ended = False

    @property
    def pid(self) -> int:
        """Of the process; 0 while there is none."""
        return self._process.pid if self._process else 0

    def take(self, plan: Plan, tolerance: float) -> None:
        """References of another plan (see ``reference_plan``) from now on.

        Raises ReferencesLost; ExecutionError if they cannot run there.
        """
        with self._starting:
            if self._ended:
                raise ReferencesLost("the references were closed")
            self._process = self._process or _started()
        self._ask("plan", container.dump(plan), tolerance)

    def check(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> CheckedRequest:
        """What references make of these inputs, beside these outputs. Raises as ``take``."""
        return cast(CheckedRequest, self._ask("check", inputs, outputs))

    def look(self, inputs: Mapping[str, Any], run: Callable[[StepObserver], None]) -> LookedAt:
        """Steps that depart from their references. ``run``: runs the engine on the inputs, observed
        so. Raises as ``take``, and what running raises.
        """
        self._send("look", inputs)
        try:
            run(_Telling(self._pipe))
        finally:
            self._write(END)
            answer = self._answer()
        return cast(LookedAt, answer)

    def close(self) -> None:
        """End it, from any thread; what is asked meanwhile raises ReferencesLost."""
        with self._starting:
            self._ended, process = True, self._process
        if process is None:
            return
        process.kill()  # it keeps nothing
        with contextlib.suppress(subprocess.TimeoutExpired, OSError, ValueError):
            process.wait(END_SECONDS)
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()

    # -- asking -----------------------------------------------------------------------------------

    @property
    def _pipe(self) -> BinaryIO:
        assert self._process is not None
        return cast(BinaryIO, self._process.stdin)

    def _ask(self, name: str, *arguments: object) -> object:
        self._send(name, *arguments)
        return self._answer()

    def _send(self, name: str, *arguments: object) -> None:
        self._write((name, *arguments))

    def _write(self, message: object) -> None:
        try:
            send(self._pipe, message)
        except (OSError, ValueError) as e:
            raise self._lost() from e

    def _answer(self) -> object:
        assert self._process is not None
        try:
            told, what = cast("tuple[str, object]", receive(cast(BinaryIO, self._process.stdout)))
        except (EOFError, OSError, ValueError) as e:
            raise self._lost() from e
        if told == "failed":
            raise ExecutionError("the references failed", why=str(what))
        return what

    def _lost(self) -> ReferencesLost:
        assert self._process is not None
        code = self._process.poll()
        why = f"it ended with {code}" if code is not None else ""
        return ReferencesLost("the process that runs references is gone", why=why)


def _started() -> subprocess.Popen[bytes]:
    """It finds what this process would import."""
    path = os.pathsep.join(p or os.getcwd() for p in sys.path)
    single = dict.fromkeys(ONE_THREAD, "1")
    try:
        return subprocess.Popen(
            [sys.executable, "-c", f"from {main.__module__} import main; main()"],
            env={**os.environ, **single, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # a Ctrl-C is for whoever started it
        )
    except OSError as e:
        raise ReferencesLost("no process to run references in", why=str(e)) from e


class _Telling:
    """Sends what each step of a run made."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def step(self, running: RunningStep, /) -> None:
        running.run()
        s = running.step
        made = [running.read(o) for o in s.outputs]
        send(self._stream, StepResult(s.name, str(s.info.get("tactic", "")), made))
