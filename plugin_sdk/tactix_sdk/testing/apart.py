"""Checks in processes of their own: what a pack's code does to its process is a check's failure,
not the end of all.

A server that has tactix but not the pack is forked for each check; it answers with what became of
it.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tactix.base.errors import ExecutionError
from tactix.plugins.session import Session
from tactix_sdk.testing import report
from tactix_sdk.testing.report import CHECKS, FAILED, Outcome
from tactix_sdk.testing.subject import Subject

PATIENCE = 600.0
"""Seconds that a check may take."""
IMPORTED = ("layers", "converters", "rules", "tactics")
"""Registries of tactix whose modules take longest to import: the server has them before it is
forked.
"""


class CheckServer:
    """Runs checks. Raises ExecutionError where it does not start."""

    def __init__(self, patience: float = PATIENCE) -> None:
        path = os.pathsep.join(p or os.getcwd() for p in sys.path)
        code = "from tactix_sdk.testing.apart import main; main()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, str(patience)],
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def outcome(self, name: str, subject: Subject) -> tuple[Outcome, bool]:
        """What became of a check of a pack, and whether that can be loaded."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        without = sorted(subject.without)
        asked = json.dumps([name, subject.dist, dict(subject.beyond), without])
        print(asked, file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise ExecutionError("the process that runs checks ended", do="See what it wrote")
        told = json.loads(line)
        return Outcome(CHECKS[name], told["state"], told["said"], told["script"]), told["loads"]

    def close(self) -> None:
        """End it."""
        self._process.communicate()


@dataclass(frozen=True)
class Ended:
    """What a forked process told: an outcome, if it came so far; which part it looked at last; what
    it ``died`` of.
    """

    told: dict[str, Any] | None
    part: str
    died: str


def serve(patience: float) -> None:
    """Answer lines of JSON on stdin, a check and a subject's dist, beyond and without, with JSON on
    stdout; what a pack prints goes to stderr.
    """
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    session = Session(group="build", only=["tactix"])
    for registry in IMPORTED:
        getattr(session, registry)
    for line in sys.stdin:
        name, dist, beyond, without = json.loads(line)
        told = _checked(name, Subject(dist, beyond, frozenset(without)), patience)
        print(json.dumps(told), file=out, flush=True)


def _checked(name: str, subject: Subject, patience: float) -> Mapping[str, Any]:
    """Run one check; again without a part that ended the process, so that all that is wrong is
    known.
    """
    deaths: list[str] = []
    while True:
        ended = _forked(name, subject, patience)
        if ended.told is not None and not deaths:
            return ended.told
        if ended.told is not None:
            more = [ended.told["said"]] if ended.told["state"] == FAILED else []
            return {**ended.told, "state": FAILED, "said": "\n".join([*deaths, *more])}
        deaths.append(f"{ended.part}: {ended.died}" if ended.part else ended.died)
        if not ended.part:
            return {"state": FAILED, "said": "\n".join(deaths), "script": "", "loads": True}
        subject = replace(subject, without=subject.without | {ended.part})


def _forked(name: str, subject: Subject, patience: float) -> Ended:
    reads, writes = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reads)
        _alone(name, subject, writes)
    os.close(writes)
    text, late = _read(reads, time.monotonic() + patience)
    os.close(reads)
    if late:
        os.kill(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    lines = [json.loads(line) for line in text.splitlines()]
    told = next((x for x in lines if "state" in x), None)
    part = next((x["part"] for x in reversed(lines) if "part" in x), "")
    return Ended(
        None if status or late else told,
        part,
        f"no end after {patience:g} s" if late else _death(status),
    )


def _death(status: int) -> str:
    what = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
    return f"it ended the process of the check: {what}"


def _read(source: int, until: float) -> tuple[str, bool]:
    """All that is written until the other end closes, and whether that came too late."""
    parts = list[bytes]()
    while True:
        ready, _, _ = select.select([source], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            return b"".join(parts).decode(), True
        part = os.read(source, 1 << 16)
        if not part:
            return b"".join(parts).decode(), False
        parts.append(part)


def _alone(name: str, subject: Subject, writes: int) -> None:
    """In the forked process: run the check, tell, end."""
    status = 1
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        tell = os.fdopen(writes, "w")
        report.WATCHERS.append(
            lambda part: print(json.dumps({"part": part}), file=tell, flush=True)
        )
        got = report.outcome(CHECKS[name], subject)
        loads = got.state != FAILED or report.loads(subject)
        told = {"state": got.state, "said": got.said, "script": got.script, "loads": loads}
        print(json.dumps(told), file=tell, flush=True)
        atexit._run_exitfuncs()
        status = 0
    finally:
        os._exit(status)


def main() -> None:
    """The server's own process: seconds are its argument."""
    serve(float(sys.argv[1]))
