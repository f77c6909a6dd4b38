"""Kernels that harm the process that runs them, tactics that bid them, and the driver on which they
do so: what stands for ``cuda.bindings.driver`` in a process that is started for trials.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import cuda_engine as e
import numpy as np
from fake_driver import TWINS, FakeApi, FakeKernel

import tactix
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.tactic import Tactic
from tactix.plugins.hookspecs import hookimpl
from tactix_codegen.compiling import symbol

LAUNCH_FAILED = 719
STAND_IN = (
    "from fatal_kernels import API\n\n\ndef __getattr__(name):\n    return getattr(API, name)\n"
)


class Everything(dict[str, int]):
    """Every function of a driver fails so."""

    def get(self, key: str, default: Any = None) -> Any:
        return LAUNCH_FAILED


def add(grid: Sequence[int], x: int, y: int, z: int, n: int) -> None:
    a, b, c = (np.frombuffer((ctypes.c_float * n).from_address(p), np.float32) for p in (x, y, z))
    c[:] = a + b


def lose(*args: Any) -> None:
    API.fail = Everything()


def lose_once_timed(*args: Any) -> None:
    """Right at first, and fatal when it is run again."""
    add(*args)
    API.ran_before = getattr(API, "ran_before", 0) + 1  # type: ignore[attr-defined]
    if API.ran_before > 1:  # type: ignore[attr-defined]
        lose()


def leave(*args: Any) -> None:
    os._exit(3)


def kill(*args: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def hang(*args: Any) -> None:
    time.sleep(3600)


class Harmful(e.SumTactic):
    """Bids on Adds; ``body``: what its kernel does."""

    def __init__(self, name: str, body: Callable[..., None]) -> None:
        super().__init__(f"test.a_{name}@1", f"/* {name} */ +")
        self.body = body


HARMFUL = {
    "lost": Harmful("lost", lose),
    "lost_later": Harmful("lost_later", lose_once_timed),
    "exit": Harmful("exit", leave),
    "killed": Harmful("killed", kill),
    "hang": Harmful("hang", hang),
}


class Unsendable(e.SumTactic):
    """Right, but its artifact holds what cannot be pickled."""

    def compile(self, node: Any, variant: Any, ctx: Any) -> KernelArtifact:
        return replace(super().compile(node, variant, ctx), params={"own": lambda: None})


UNSENDABLE = Unsendable("test.unsendable@1", "/* unsendable */ +")

SAME = e.SumTactic("test.same@1", "/* the same again */ +")

KERNELS = {symbol(t.code): FakeKernel(4, t.body) for t in HARMFUL.values()}
API = FakeApi({symbol(e.RIGHT.code): FakeKernel(4, add), **KERNELS, **TWINS})


def stand_in(folder: Path) -> Path:
    """A folder for ``sys.path`` whose ``cuda.bindings.driver`` is ``API``."""
    bindings = folder / "cuda" / "bindings"
    bindings.mkdir(parents=True)
    for package in (bindings.parent, bindings):
        (package / "__init__.py").write_text("")
    (bindings / "driver.py").write_text(STAND_IN)
    return folder


class Pack:
    def __init__(self, tactics: list[Tactic]) -> None:
        self.tactics = tactics

    @hookimpl
    def tactix_tactics(self) -> list[Tactic]:
        return self.tactics


def builder(tactics: list[Tactic], logger: tactix.Logger) -> tactix.Builder:
    session = tactix.Session(plugins=[("test", Pack(tactics))], enable=["test"])
    session.active_rules = list  # type: ignore[method-assign]  # sums stay apart
    return tactix.Builder(logger, session)
