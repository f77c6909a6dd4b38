"""One try of a plan that may be hostile: loaded, admitted, made an engine, written again, bound; no native code is run.

Whatever is not a typed error is a fault. Code that no sample holds is not linked, nor is its Python imported: loading
a library runs what it likes.
"""

from __future__ import annotations

import functools
import io
import resource
import tempfile
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

import tactix
from tactix.plan import container
from tactix.plan.schema import Plan
from tactix.run.admission import embedded
from tactix.run.bound import Bound
from tactix.words.errors import InternalError, TactixError
from tactix_builtin.embedded.archive import content, unpack
from tactix_builtin.tools import inspect
from tactix_builtin.tools.arrays import random, sizes

ROOM = 64 << 20
"""Bytes that a try may have beside the size of its file."""

WHOLE = ("loaded", "admitted", "bound", "ran")


class Trial:
    """Tries of the children of some samples. ``known``: machine code that may be linked."""

    def __init__(self, samples: dict[str, Plan]) -> None:
        quiet = tactix.Logger(tactix.Severity.INTERNAL_ERROR)
        allowing = tactix.Runtime(quiet, max_threads=1, on_untrusted="allow")
        self.runtimes = allowing, tactix.Runtime(quiet, allowing.session, max_threads=1, on_untrusted="references")
        self.known = {c.blob for p in samples.values() for c in codes(p)}
        self.packs = {digest for p in samples.values() for digest in embedded(p)}

    def __call__(self, data: bytes, *, verify: bool = False, more: bool = False, references: bool = False) -> str:
        """How far it came: the type of the error, or one of WHOLE. ``more``: also write it again, and inspect it.

        ``references``: run those of layers in place of its host code.
        """
        reached = ""
        try:
            plan = container.load(data, verify=verify)
            reached = "loaded"
            if more:
                assert container.dump(container.load(container.dump(plan))) == container.dump(plan)
                inspected(data)
            if wheels := embedded(plan).keys() - self.packs:
                assert all(unpack(content(plan, name), "a trial") for name in wheels)
                return reached
            engine = self.runtimes[references].load(plan)
            assert not (references and codes(engine.plan))
            reached = "admitted"
            engine.inspect()
            reached = self._bound(engine)
        except TactixError as e:
            if isinstance(e, InternalError) or not str(e):
                raise
            return f"{reached}, then {type(e).__name__}" if reached else type(e).__name__
        return reached

    def _bound(self, engine: Any) -> str:
        """Bind at the tuned shapes; run if all is numpy, whose memory accesses are the plan's."""
        plan = engine.plan
        found = codes(plan)
        symbols = sizes(plan, {})
        if any(c.blob not in self.known for c in found) or any(n > 64 for n in symbols.values()):
            return "admitted"
        numpy = all(s.artifact.launcher == "tactix.numpy@1" for s in plan.steps)
        if numpy and not plan.meta.get("loops"):
            engine(**random(plan, symbols))
            return "ran"
        if not plan.produced:
            program = engine._program
            bound = Bound(program, program.layout(symbols))
            bound.runnable.bind(bound.layout.env, [1 << 20] * len(plan.buffers))
        return "bound"


def codes(plan: Plan) -> list[Any]:
    """Machine code of a plan and its bodies."""
    own = [s.artifact.code for s in plan.steps if s.artifact.code is not None]
    return own + [c for s in plan.steps for p in s.plans for c in codes(p)]


@functools.cache
def scratch() -> Path:
    return Path(tempfile.mkdtemp(prefix="tactix-trial-")) / "x.plan"


def inspected(data: bytes) -> str:
    """What ``tactix inspect`` prints."""
    scratch().write_bytes(data)
    out = io.StringIO()
    inspect.show_plan(str(scratch()), {}, Console(file=out, width=100))
    text = out.getvalue()
    text.encode()
    assert "\x1b" not in text
    return text


def peak(trial: Trial, data: bytes) -> int:
    """Most bytes that Python had at once beyond what it had before."""
    tracemalloc.start()
    try:
        trial(data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def held_back(room: int) -> None:
    """No more than so much address space from here on."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + room
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


np.seterr(all="ignore")
