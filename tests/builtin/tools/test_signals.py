"""A command that is stopped while kernels are compiled ends at once, with its exit code, and leaves
nothing behind.

The compiler is a script that never ends and has a child, as compiler drivers have; but for what is
compiled to see whether it works.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "killpg"), reason="signals of POSIX")

COMPILER = """#!/bin/sh
case "$*" in *--version*) echo endless 1.0; exit;; *probe.c*) echo works > probe.so; exit;; esac
[ -n "$BEGUN" ] || grep -q 'define TX_ENTRY' u0.c || exit 1
sleep 600 &
echo $$ $! >> "$PIDS"
echo half > half.o
echo half > "$TMPDIR/cc$$.s"
wait
"""
ENOUGH = 120.0
"""Seconds after which something hangs, however busy the machine is."""
SOON = 20.0
"""Seconds in which what was killed has gone; what was not lives 600."""


@pytest.fixture
def model(tmp_path) -> Path:
    import onnx
    from onnx import TensorProto, helper

    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Exp", ["x"], ["y"])], "g", [x], [y])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "m.onnx"
    )
    return tmp_path / "m.onnx"


class Running:
    """A build that waits for its compiler, in folders of its own. ``begun``: it compiles what is
    begun before there are kernels, too; else that fails at once.
    """

    def __init__(self, model: Path, begun: bool = False) -> None:
        self.at = model.parent
        self.temporary, self.cache, self.pids = (
            self.at / name for name in ("temporary", "cache", "pids")
        )
        self.temporary.mkdir()
        compiler = self.at / "cc"
        compiler.write_text(COMPILER)
        compiler.chmod(0o755)
        places = {
            "TMPDIR": self.temporary,
            "TACTIX_CACHE_DIR": self.cache,
            "PIDS": self.pids,
            "CC": compiler,
            "BEGUN": "1" if begun else "",
        }
        command = [sys.executable, "-m", "tactix", "build", model.name, "-o", "m.plan", "-O", "0"]
        self.process = subprocess.Popen(
            command,
            cwd=self.at,
            env={**os.environ, **{k: str(v) for k, v in places.items()}},
            stderr=subprocess.PIPE,
            text=True,
        )
        self.until(self.pids.exists)

    def until(self, holds: Callable[[], bool]) -> None:
        end = time.monotonic() + ENOUGH
        while not holds():
            assert time.monotonic() < end, "nothing happens"
            assert self.process.poll() is None, self.process.communicate()
            time.sleep(0.01)

    def told(self, word: str) -> None:
        """Wait until it says something on stderr."""
        assert self.process.stderr is not None
        assert any(word in line for line in self.process.stderr), "it ended"

    def left(self) -> list[Path]:
        """Files that are not whole, and temporary ones."""
        halves = [
            p
            for p in self.cache.rglob("*")
            if p.name.startswith(".tactix-") or p.suffix in (".o", ".so")
        ]
        return [*self.temporary.iterdir(), *halves, *self.at.glob("m.plan*")]

    def orphans(self) -> list[int]:
        return [pid for pid in map(int, self.pids.read_text().split()) if _lives(pid)]

    def leaves_nobody(self) -> bool:
        """Whether all compilers end soon: those that are killed need a core for that."""
        end = time.monotonic() + SOON
        while self.orphans() and time.monotonic() < end:
            time.sleep(0.01)
        return not self.orphans()


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        state = "" if Path("/proc/self/stat").exists() else _asked(pid)
    return state not in ("", "Z", "X")


def _asked(pid: int) -> str:
    return subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True
    ).stdout.strip()[:1]


@pytest.fixture
def running(model) -> Iterator[Running]:
    found = Running(model)
    yield found
    found.process.kill()
    found.process.communicate()
    for pid in found.orphans():
        os.kill(pid, signal.SIGKILL)


def test_sigterm_ends_what_was_begun_before_there_are_kernels(model):
    running = Running(model, begun=True)
    running.process.terminate()
    assert running.process.wait(ENOUGH) == 143
    running.process.communicate()
    assert not running.left()
    assert running.leaves_nobody()


def test_ctrl_c_while_a_kernel_is_compiled(running):
    running.process.send_signal(signal.SIGINT)
    running.told("Ctrl-C again")
    running.process.send_signal(signal.SIGINT)
    assert running.process.wait(ENOUGH) == 130
    assert not running.left()
    assert running.leaves_nobody()


def test_sigterm_while_a_kernel_is_compiled(running):
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(ENOUGH) == 143
    assert not running.left()
    assert running.leaves_nobody()


def test_what_sigkill_leaves_the_next_start_removes(running):
    running.process.send_signal(signal.SIGKILL)
    running.process.wait(ENOUGH)
    assert list(running.temporary.iterdir())
    build = (
        "import tempfile; from tactix.base.scratch import ScratchFolder; ScratchFolder().cleanup()"
    )
    subprocess.run(
        [sys.executable, "-c", build],
        env={**os.environ, "TMPDIR": str(running.temporary)},
        check=True,
    )
    assert not list(running.temporary.iterdir())
    for pid in running.orphans():  # what no process can do any more
        os.kill(pid, signal.SIGKILL)
