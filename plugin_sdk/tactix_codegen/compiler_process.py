"""Compiler processes: several at a time, with a time limit, and stopped at once when the build is
cancelled.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import IO, Any

from tactix.base.errors import BuildCancelled

ASKED = 0.05
"""Seconds between two questions whether to stop."""


@dataclass(frozen=True)
class CommandResult:
    """How a command ended; ``code`` is None if its time ran out. ``output``: what it wrote to
    either stream.
    """

    code: int | None
    output: str


@dataclass
class _Job:
    index: int
    process: subprocess.Popen[bytes]
    log: IO[bytes]
    deadline: float

    def outcome(self, code: int | None) -> CommandResult:
        self.log.seek(0)
        return CommandResult(code, self.log.read().decode(errors="replace"))


def run_all(
    commands: Sequence[Sequence[str]],
    cwd: str,
    timeout: float,
    cancelled: threading.Event,
    workers: int = 0,
    stopped: Callable[[], bool] = lambda: False,
    ended: Callable[[int, CommandResult], None] = lambda index, outcome: None,
) -> list[CommandResult]:
    """Run commands in ``cwd``, ``workers`` at a time (0: one per core), ``timeout`` seconds each.
    Their temporary files lie there, too: a compiler that is killed leaves them. ``ended``: told of
    each that ends by itself, by another thread.

    Raises BuildCancelled when ``cancelled`` is set, or ``stopped`` says so, which this thread asks;
    no process outlives the call. That of Ctrl-C, too: a KeyboardInterrupt comes between any two
    steps of the main thread, such as the start of a process and noting it down, and in no other
    thread. A daemon, which nobody waits for when Python ends, starts them itself, and so does any
    thread where another one cannot be had.
    """
    at_once = workers or os.cpu_count() or 1
    if threading.current_thread().daemon:
        return _work_off(commands, cwd, timeout, (cancelled.is_set, stopped), at_once, ended)
    interrupted = threading.Event()
    thread = ThreadPoolExecutor(1, "tactix-compilers")
    try:
        stop = (cancelled.is_set, interrupted.is_set)
        try:
            work = thread.submit(_work_off, commands, cwd, timeout, stop, at_once, ended)
        except RuntimeError:  # the system has no thread to give, or no memory for its stack
            return _work_off(commands, cwd, timeout, (cancelled.is_set, stopped), at_once, ended)
        while not wait([work], ASKED).done:
            if stopped():
                interrupted.set()
        return work.result()
    finally:
        interrupted.set()
        thread.shutdown()


def _work_off(
    commands: Sequence[Sequence[str]],
    cwd: str,
    timeout: float,
    stop: Sequence[Callable[[], bool]],
    workers: int,
    ended: Callable[[int, CommandResult], None],
) -> list[CommandResult]:
    waiting = list(enumerate(commands))[::-1]
    running: list[_Job] = []
    done: dict[int, CommandResult] = {}
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                running.append(_start(*waiting.pop(), cwd, timeout))
            over = [job for job in running if _finished(job, done)]
            running = [job for job in running if job not in over]
            for job in over:
                ended(job.index, done[job.index])
            if any(said() for said in stop):
                raise BuildCancelled("compiling was cancelled")
            time.sleep(0.004)
    finally:
        for job in running:
            _kill(job.process)
            job.log.close()
    return [done[i] for i in range(len(commands))]


def _start(index: int, command: Sequence[str], cwd: str, timeout: float) -> _Job:
    log: Any = tempfile.TemporaryFile()  # noqa: SIM115 - closed with its job
    quiet = {**os.environ, "LC_ALL": "C", "SOURCE_DATE_EPOCH": "0", "TMPDIR": cwd}
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env=quiet,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    return _Job(index, process, log, time.monotonic() + timeout)


def _finished(job: _Job, done: dict[int, CommandResult]) -> bool:
    code = job.process.poll()
    if code is None and time.monotonic() < job.deadline:
        return False
    if code is None:
        _kill(job.process)
    done[job.index] = job.outcome(code)
    job.log.close()
    return True


def _kill(process: subprocess.Popen[bytes]) -> None:
    """The whole session: a compiler driver has children."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, 9) if hasattr(os, "killpg") else process.kill()
    process.wait()
