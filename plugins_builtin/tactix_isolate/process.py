"""The building process's end of a worker: started when first asked, again after it died, and told
what it died of.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, Any

from tactix.base.errors import ExecutionError
from tactix_isolate.raised import made
from tactix_isolate.worker import LENGTH

START_SECONDS, ASKED = 120.0, 0.1
"""How long it may take to start, and how often somebody asks meanwhile whether to stop."""
END_SECONDS = 10.0
"""How long a guardian may take to end what kernels started."""
TAIL = 2000
"""Bytes of what a process said last that are kept."""
_NOT_AN_ADDRESS = 0x80
"""si_code of a fault without one."""


@dataclass(frozen=True)
class TrialResult:
    """What a kernel did: ``crash``, ``exit``, ``outside``, ``hang``, ``wrong``, ``float mode``; or
    ``killed`` by somebody else, or ``stopped`` with the build.

    ``text`` goes on behind the pack's name; ``said``: the end of what the process wrote.
    """

    kind: str
    text: str
    said: str = ""


class NoProcess(ExecutionError):
    """None can be started."""


class Died(Exception):
    """The process is gone."""

    def __init__(self, verdict: TrialResult) -> None:
        super().__init__(verdict.text)
        self.verdict = verdict


class Worker:
    """``greeting``: what the process is told first. ``module``: what it runs.

    ``starts`` counts processes: what one was told the next does not know. ``loaded``: the jobs
    whose code has been in the process.
    """

    def __init__(self, *greeting: Any, module: str = "tactix_isolate.worker") -> None:
        self._greeting, self._module, self.starts = greeting, module, 0
        self.loaded: set[int] = set()
        self._greeted = False
        self._process: subprocess.Popen[bytes] | None = None
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._end: Any = None

    @property
    def pid(self) -> int:
        """Of the process; 0 if there is none."""
        return self._process.pid if self._process else 0

    def ask(
        self,
        seconds: float,
        name: str,
        *arguments: Any,
        stopped: Callable[[], bool] = lambda: False,
    ) -> dict[str, Any]:
        """The answer of the worker's method. Raises Died; what it raised, where the answer tells
        (``raised.py``), else ExecutionError with it; NoProcess if none starts.

        ``stopped``: asked meanwhile whether to give up.
        """
        self.begin()
        if not self._greeted:
            self._meet(stopped)
        answer = self._exchange(seconds, pickle.dumps((name, arguments)), stopped)
        if "error" in answer:
            raise made(answer["raised"]) if "raised" in answer else ExecutionError(answer["error"])
        return answer

    def forget(self) -> None:
        """What it was told of candidates so far."""
        if self._process is not None:
            with contextlib.suppress(Died):  # the next one knows none of them
                self.ask(START_SECONDS, "forget")

    def stop(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            self._end()
            self._process, self._greeted = None, False
            self.loaded.clear()

    def begin(self) -> None:
        """Let a process start, if there is none, which is not waited for. Raises NoProcess."""
        if self._process is None:
            self._start()

    def _start(self) -> None:
        path = os.pathsep.join(p or os.getcwd() for p in sys.path)
        # It lives as long as the process.
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", self._module],
                env={**os.environ, "PYTHONPATH": path},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
                start_new_session=True,
            )
        except OSError as e:
            raise NoProcess("no process to try it in", why=str(e)) from None
        self._lines = queue.SimpleQueue()
        threading.Thread(
            target=_read, args=(self._process.stdout, self._lines), daemon=True
        ).start()
        self._end = weakref.finalize(self, _end, self._process)
        self.starts += 1
        self._send(pickle.dumps(("hello", self._greeting)))

    def _meet(self, stopped: Callable[[], bool]) -> None:
        """Wait until it is ready. Raises NoProcess; ExecutionError if it is stopped meanwhile."""
        try:
            answer = self._answer(START_SECONDS, stopped)
        except Died as e:
            if e.verdict.kind == "stopped":
                raise ExecutionError("the build was stopped before a process was ready") from None
            why = f"{e} {e.verdict.said}".strip()
            raise NoProcess("no process to try it in", why=why) from None
        if "error" in answer:
            self.stop()
            raise NoProcess("no process to try it in", why=str(answer["error"]))
        self._greeted = True

    def _exchange(
        self, seconds: float, request: bytes, stopped: Callable[[], bool] = lambda: False
    ) -> dict[str, Any]:
        self._send(request)
        return self._answer(seconds, stopped)

    def _send(self, request: bytes) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(len(request).to_bytes(LENGTH, "little") + request)
            self._process.stdin.flush()

    def _answer(self, seconds: float, stopped: Callable[[], bool]) -> dict[str, Any]:
        """Of the last request. Raises Died."""
        told: dict[str, Any] = {}
        until = time.monotonic() + seconds
        while True:
            try:
                line = self._lines.get(timeout=min(ASKED, max(0.0, until - time.monotonic())))
            except queue.Empty:
                if stopped():
                    raise Died(
                        self._buried(
                            TrialResult("stopped", "was being tried when the build was stopped")
                        )
                    ) from None
                if time.monotonic() < until:
                    continue
                raise Died(
                    self._buried(TrialResult("hang", f"did not end within {seconds:g} s"))
                ) from None
            if line is None:
                raise Died(self._buried(None, told))
            try:
                answer = json.loads(line)
            except ValueError:
                raise Died(
                    self._buried(TrialResult("crash", "broke the process in which it was tried"))
                ) from None
            if not {"layout", "fault"} & answer.keys():
                return answer  # type: ignore[no-any-return]
            told |= answer

    def _buried(
        self, verdict: TrialResult | None, told: dict[str, Any] | None = None
    ) -> TrialResult:
        """What the process died of; without a verdict by what it told and how it ended."""
        assert self._process is not None
        code = self._process.wait() if verdict is None else 0
        self.stop()
        self._said.seek(max(0, self._said.seek(0, os.SEEK_END) - TAIL))
        said = self._said.read().decode(errors="replace").strip()
        self._said.close()
        found = verdict or _ended(code, told or {})
        return TrialResult(found.kind, found.text, said)


def _read(stream: IO[bytes], lines: queue.SimpleQueue[bytes | None]) -> None:
    with stream:
        for line in stream:
            lines.put(line)
    lines.put(None)


def _end(process: subprocess.Popen[bytes]) -> None:
    """With what kernels started: a guardian ends that; where there is none, the process group ends.
    While there is anything in that, nothing else gets its number.
    """
    if not _guardian_ended(process):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9) if hasattr(os, "killpg") else process.kill()
    process.wait()
    if process.stdin:
        with contextlib.suppress(OSError):
            process.stdin.close()


def _guardian_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether the process, asked to, ended with all that descends from its worker."""
    if not sys.platform.startswith("linux"):
        return False
    process.terminate()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return True


def _ended(code: int, told: dict[str, Any]) -> TrialResult:
    if code >= 0:
        return TrialResult("exit", f"ended the process with exit code {code}")
    name = signal.Signals(-code).name
    if "fault" in told:
        address, reach = int(told["address"]), told.get("layout", ())
        for where in (place(address, *row) for row in reach):
            if where:
                did = {True: "wrote", False: "read", None: "went"}[told["write"]]
                return TrialResult("outside", f"{did} {where} ({name})")
        if told.get("code") == _NOT_AN_ADDRESS:
            hint = (
                "an access that is not aligned, as inputs and outputs "
                "are aligned to their elements alone?"
            )
            return TrialResult("crash", f"crashed with {name} ({hint})")
        return TrialResult("crash", f"crashed with {name} at address {address:#x}")
    kind = (
        "killed"
        if -code in (getattr(signal, "SIGKILL", 9), signal.SIGTERM, signal.SIGINT)
        else "crash"
    )
    return TrialResult(kind, f"{'was killed' if kind == 'killed' else 'crashed'} with {name}")


def place(address: int, name: str, start: int, nbytes: int, low: int, high: int) -> str:
    """Where an address is, seen from a buffer; empty if it is not near."""
    if not low <= address < high:
        return ""
    return outside(name, address - start, nbytes)


def outside(name: str, offset: int, nbytes: int) -> str:
    """An offset in words: before a buffer, past it, or in one that is only to be read. Bytes count
    from 0, so that the first one past the end has the size as its number.
    """
    if 0 <= offset < nbytes:
        return f"at byte {offset} of {name}, which is not to be written"
    side = "before the begin" if offset < 0 else "past the end"
    return f"{side} of {name} ({nbytes} bytes), at byte {offset}"


def spoken(rows: Sequence[Any]) -> TrialResult:
    """The verdict on a kernel that wrote into the bytes beside a buffer: name, offset, size."""
    name, offset, nbytes = rows
    return TrialResult("outside", f"wrote {outside(name, offset, nbytes)}")
