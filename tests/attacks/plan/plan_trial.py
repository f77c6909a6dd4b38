"""One try of a plan that may be hostile: loaded, admitted, made an engine, written again, bound; no
native code is run.

Whatever is not a typed error is a fault. Code that no sample holds is not linked, nor is its Python
imported: loading a library runs what it likes.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import io
import math
import resource
import tempfile
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

import tactix
from tactix.base.errors import ExecutionError, InternalError, TactixError
from tactix.plan import container
from tactix.plan.schema import Plan
from tactix.plan.wheels import content, unpack
from tactix.run.admission import embedded
from tactix.run.bound import BoundPlan
from tactix_cpu.allocator import ArenaAllocator
from tactix_ops.layers import control
from tactix_refit.refitter import Refitter
from tactix_tools import inspect
from tactix_tools.arrays import random, sizes

ROOM = 64 << 20
"""Bytes that a try may have beside the size of its file."""

CANARY, FENCE, LEAKED = 0x5A, 1 << 16, 16
"""A byte that memory is full of, bytes of it around each piece, and how many in a row are a leak.
"""

PERTURB = -6
"""glibc's M_PERTURB."""

CODELESS = {"tactix.numpy@1", "tactix.control@1"}

WHOLE = ("loaded", "admitted", "bound", "ran")


class Trial:
    """Tries of the children of some samples. ``known``: machine code that may be linked."""

    def __init__(self, samples: dict[str, Plan]) -> None:
        quiet = tactix.Logger(tactix.Severity.INTERNAL_ERROR)
        more: Any = {"max_threads": 1, "allocator": Fenced(), "copy_weights": True}
        allowing = tactix.Runtime(quiet, on_untrusted="allow", **more)
        self.runtimes = (
            allowing,
            tactix.Runtime(quiet, allowing.session, on_untrusted="references", **more),
        )
        self.known = {c.blob for p in samples.values() for c in codes(p)}
        self.packs = {digest for p in samples.values() for digest in embedded(p)}

    def __call__(
        self, data: bytes, *, verify: bool = False, more: bool = False, references: bool = False
    ) -> str:
        """How far it came: the type of the error, or one of WHOLE. ``more``: also write it again,
        and inspect it.

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
                for name in wheels:
                    unpack(content(plan, name), "a trial")
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
        """Bind at the tuned shapes; run if no step has code, whose memory accesses are then the
        plan's.
        """
        plan = engine.plan
        found = codes(plan)
        symbols = sizes(plan, {})
        if any(c.blob not in self.known for c in found) or any(n > 64 for n in symbols.values()):
            return "admitted"
        if "refit" in plan.meta:
            refit(plan)
        if {s.artifact.launcher for p in plan.nested() for s in p.steps} <= CODELESS:
            assert_clean(engine(**random(plan, symbols)))
            return "ran"
        if not plan.produced:
            program = engine._program
            bound = BoundPlan(program, program.layout(symbols), program.link)
            bound.runnable.bind(bound.layout.env, [1 << 20] * len(plan.buffers))
        return "bound"


def refit(plan: Plan) -> None:
    """Other weights, from which no constant gets what lay in memory before."""
    refitter = Refitter(plan, threads=1)
    for name in refitter.get_all_weights():
        spec = refitter.get_weights_prototype(name)
        if math.prod(map(int, spec.shape)) * spec.dtype.itemsize > ROOM >> 4:
            return
        refitter.set_named_weights(name, np.ones(spec.shape, spec.dtype.numpy))
    refitter.refit()
    changed = {name: b for name, b in refitter.plan.blobs.items() if b is not plan.blobs.get(name)}
    assert_clean({name: np.frombuffer(b, np.uint8) for name, b in changed.items()})


class Fenced(ArenaAllocator):
    """Memory full of canaries, and more of them on both sides of it."""

    key = "test.fenced"

    def allocate(self, size: int, alignment: int = 64, stream: int = 0) -> int:
        whole = super().allocate(size + 2 * FENCE, max(alignment, 64), stream)
        ctypes.memset(whole, CANARY, size + 2 * FENCE)
        return whole + FENCE

    def deallocate(self, address: int, stream: int = 0) -> None:
        super().deallocate(address - FENCE, stream)


def poisoned() -> None:
    """From now on memory that the C library gives holds canaries, as far as it can do that."""
    with contextlib.suppress(OSError, AttributeError):  # glibc's: others have no such option
        ctypes.CDLL(None).mallopt(PERTURB, CANARY ^ 0xFF)


def assert_clean(found: Any) -> None:
    """No value holds what lay in memory before, or beyond what was declared."""
    for x in (
        found.values() if isinstance(found, dict) else found if isinstance(found, list) else [found]
    ):
        if isinstance(x, list | dict):
            assert_clean(x)
        elif isinstance(x, np.ndarray) and x.dtype != object:
            assert bytes([CANARY]) * LEAKED not in x.tobytes(), "memory of the process leaks"


def no_endless_loops() -> None:
    """A loop may go on for as long as it says: not here."""

    def few(call: control.Running, values: Any) -> Any:
        if int(np.asarray(values[0]).reshape(())) > 50:
            raise ExecutionError("a long loop")
        return run_loop(call, values)

    run_loop = control.run_loop
    control.RUN = {**control.RUN, "Loop": few}


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
