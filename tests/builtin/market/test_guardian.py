"""Whatever ends a worker, nothing that it started outlives it."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux only")

WORKER = """
import fcntl, os, signal, sys, time
from tactix_isolate.guardian import guard

def stay(told):
    os.write(told, b"1")
    while True:
        signal.pause()

def start(told):
    if os.fork() == 0:
        LEAVE
        if os.fork():
            os._exit(0)
        stay(told)

guard()
fcntl.flock(os.open(sys.argv[1], os.O_RDWR), fcntl.LOCK_EX)
ready, told = os.pipe()
start(told)
os.read(ready, 1)
os.write(2, b"1")
os.read(0, 1)
END
"""
BUILDER = """
import os, signal, subprocess, sys
p = subprocess.Popen([sys.executable, "-c", sys.argv[2], sys.argv[1]], stdin=subprocess.PIPE,
                     stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)
p.stderr.read(1)
os.kill(os.getpid(), signal.SIGKILL)
"""
STAY = "signal.pause()"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file that is locked while anything that the worker started lives."""
    out = tmp_path / "locked"
    out.touch()
    return out


def free(path: Path) -> bool:
    with path.open() as f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def worker(path: Path, end: str, leave: str = "os.setsid()") -> subprocess.Popen[bytes]:
    """One that has started a process which has no parent of its own any more."""
    text = WORKER.replace("LEAVE", leave).replace("END", end)
    out = subprocess.Popen(
        [sys.executable, "-c", text, str(path)],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert out.stdin is not None
    assert out.stderr is not None
    assert out.stderr.read(1) == b"1"
    assert not free(path)
    out.stdin.write(b"1")
    out.stdin.flush()
    return out


@pytest.mark.parametrize("leave", ["pass", "os.setpgid(0, 0)", "os.setsid()"])
@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("os._exit(3)", 3),
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("os.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV),
        ("os.killpg(0, signal.SIGKILL)", -signal.SIGKILL),
    ],
)
def test_nothing_outlives_a_worker_that_ends(path: Path, end: str, code: int, leave: str) -> None:
    with worker(path, f"{end}; {STAY}", leave) as process:
        assert process.wait() == code
        assert free(path)


def test_the_guardian_ends_its_worker_when_asked(path: Path) -> None:
    with worker(path, STAY) as process:
        process.terminate()
        assert process.wait() == -signal.SIGKILL
        assert free(path)


def test_nothing_outlives_a_building_process_that_is_killed(path: Path) -> None:
    text = WORKER.replace("LEAVE", "os.setsid()").replace("END", STAY)
    subprocess.run([sys.executable, "-c", BUILDER, str(path), text], check=False)
    until(lambda: free(path))


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60  # something hangs
    while not true():
        assert time.monotonic() < end, f"process {os.getpid()} waits in vain"
        time.sleep(0.01)
