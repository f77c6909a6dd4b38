"""The process in which strangers' kernels are tried and timed: ``python -m tactix_isolate.worker``.

Requests come on stdin: the length in 8 bytes, then a pickled tuple of a method's name and its
arguments. Answers go to what was stdout, a line of JSON each: ``{"layout": ...}`` before a trial,
``{"fault": ...}`` before the process dies of a bad address, else the result. What kernels print
goes to stderr.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from tactix.contracts.artifact import Binary
from tactix.contracts.launcher import LinkContext, Runnable, Step, bind
from tactix_isolate.eviction import Evicted
from tactix_isolate.fault import watch
from tactix_isolate.fence import FILL, Fence
from tactix_isolate.guardian import guard
from tactix_isolate.job import Job

LENGTH = 8
ALWAYS_SHARED = "TACTIX_ALWAYS_PARALLEL"


@functools.cache
def _code(path: str) -> bytes:
    return Path(path).read_bytes()


class Tried:
    """A job here: its step with machine code, its content, and, once it is timed, its runnable over
    plain memory.
    """

    def __init__(
        self,
        job: Job,
        link: Callable[[Step], Runnable],
        measure: Callable[[Runnable, int], float],
    ) -> None:
        import numpy as np

        artifact = job.step.artifact
        if isinstance(artifact.code, Binary):
            artifact = replace(artifact, code=replace(artifact.code, blob=_code(job.library)))
        self.job, self._link, self._measure = job, link, measure
        self.step = replace(job.step, artifact=artifact)
        self.content: Any = np.memmap(job.content, np.uint8, "r+")
        self._arrays: list[Any] = []

    def slot(self, i: int) -> Any:
        """The bytes of a buffer in the file."""
        b = self.job.buffers[i]
        return self.content[b.at : b.at + b.nbytes]

    def bound(self, addresses: Sequence[int]) -> Runnable:
        return self._bound(self.step, addresses)

    def _bound(self, step: Step, addresses: Sequence[int]) -> Runnable:
        runnable = self._link(step)
        bind(runnable, [step], self.job.env, addresses)
        return runnable

    def seconds(self, times: int) -> float:
        """That so many runs take together."""
        run = self.runnable
        return run.seconds_of(times) if isinstance(run, Evicted) else self._measure(run, times)

    @functools.cached_property
    def runnable(self) -> Runnable:
        """As a bench in the building process would have it: with plain memory, aligned as there."""
        import numpy as np

        from tactix.select.bench import Bench

        for i, b in enumerate(self.job.buffers):
            scratch = np.full(b.nbytes, FILL, np.uint8)
            self._arrays.append(Bench.aligned(scratch if b.written else self.slot(i)))
        addresses = [a.__array_interface__["data"][0] for a in self._arrays]
        runnable = self.bound(addresses)
        if self.job.eviction is None:
            return runnable
        return Evicted(runnable, self._bound(self.job.eviction, addresses), self._measure)


class TrialServer:
    """Answers requests. ``threads``: of one inference."""

    def __init__(self, tell: Callable[[Any], None]) -> None:
        self.tell = tell
        self.tried: dict[int, Tried] = {}

    def hello(self, threads: int, device: str) -> dict[str, Any]:
        """The first request: get ready. ``device``: its key; no pack but tactix and its own is
        imported for it.
        """
        from tactix.plugins.session import Session

        session = Session(group="runtime", only=["tactix", device.partition(".")[0]])
        self.device, self.threads = session.devices[device], threads
        self.device.properties()  # asks for what instructions the system must allow
        self.launchers = session.launchers
        return {"pid": os.getpid()}

    def load(self, job: Job) -> dict[str, Any]:
        """Take a candidate."""

        def layer(key: str) -> Any:
            return pickle.loads(job.layers[key]) if key in job.layers else _session().layers[key]

        own = pickle.loads(job.launcher)
        launchers = {**self.launchers, own.key: own} if own else self.launchers
        context = LinkContext(self.device, self.threads, layer)
        link = functools.partial(self._link, launchers=launchers, context=context)
        self.tried[job.number] = Tried(job, link, self.device.measure)
        return {}

    def _link(self, step: Step, launchers: Any, context: LinkContext) -> Runnable:
        return self.device.link([step], launchers, context)

    def trial(self, number: int, shared: bool, at_end: bool) -> dict[str, Any]:
        """One run between fences. ``shared``: on all threads, whatever that takes. Outputs go to
        the job's file.
        """
        found = self.tried[number]
        fences = [Fence(b.nbytes, b.alignment, at_end) for b in found.job.buffers]
        for i, (b, f) in enumerate(zip(found.job.buffers, fences, strict=True)):
            if not b.written:
                f.content[:] = found.slot(i)
                f.close_to_writers()
        named = [b.name for b in found.job.buffers]
        self.tell(
            {
                "layout": [
                    (n, f.address, f.nbytes, *f.reach) for n, f in zip(named, fences, strict=True)
                ]
            }
        )
        with _always_shared(shared):
            runnable = found.bound([f.address for f in fences])
        before = float_results()
        runnable.repeat(1)
        if float_results() != before:
            return {"float_mode": True}
        for name, f in zip(named, fences, strict=True):
            if (offset := f.damage()) is not None:
                return {"outside": [name, offset, f.nbytes]}
        for i, _, _ in found.job.outputs:
            found.slot(i)[:] = fences[i].content
        return {}

    def measure(self, number: int, times: int) -> dict[str, Any]:
        """Seconds of so many runs, by the device's own timer."""
        return {"seconds": self.tried[number].seconds(times)}

    def forget(self) -> dict[str, Any]:
        """Drop all candidates."""
        self.tried.clear()
        return {}

    @staticmethod
    def more(e: BaseException) -> dict[str, Any]:
        """What to tell of an error beside its text."""
        return {}


def float_results() -> bytes:
    """What arithmetic gives on this thread where its mode tells: thirds are rounded, in another
    direction for each; halves of denormals may be flushed to zero.
    """
    import numpy as np

    least = float(np.finfo(np.float32).tiny)
    over = np.array([3, 3, 2, 1], np.float32)
    with np.errstate(all="ignore"):
        results = np.array([1, -1, least, least / 2], np.float32) / over
    return results.tobytes()


@contextlib.contextmanager
def _always_shared(on: bool) -> Iterator[None]:
    """Whether what is bound meanwhile is shared between all threads at once."""
    before = os.environ.pop(ALWAYS_SHARED, None)
    if on:
        os.environ[ALWAYS_SHARED] = "1"
    try:
        yield
    finally:
        os.environ.pop(ALWAYS_SHARED, None)
        if before is not None:
            os.environ[ALWAYS_SHARED] = before


@functools.cache
def _session() -> Any:
    from tactix.plugins.session import Session

    return Session(group="runtime")


def requests(stream: BinaryIO) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """What the building process asks, until it closes the pipe."""
    while len(head := stream.read(LENGTH)) == LENGTH:
        yield pickle.loads(stream.read(int.from_bytes(head, "little")))


def _alone() -> None:
    """No core files, and nothing that outlives it, where the system can do that."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    guard()


def serve(made: Callable[[int], Any]) -> None:
    """Answer what the building process asks, by the methods of a server; until it is gone.

    ``made``: the server, from the descriptor that answers go to.
    """
    _alone()
    answers = os.dup(1)
    os.dup2(2, 1)
    server = made(answers)
    for name, arguments in requests(sys.stdin.buffer):
        try:
            told = getattr(server, name)(*arguments)
        except (Exception, SystemExit) as e:
            told = {"error": f"{type(e).__name__}: {e}", **server.more(e)}
        tell(answers, told)


def tell(answers: int, told: Any) -> None:
    """Write an answer."""
    os.write(answers, json.dumps(told).encode() + b"\n")


def _server(answers: int) -> TrialServer:
    watch(answers)
    return TrialServer(functools.partial(tell, answers))


def main() -> None:
    serve(_server)


if __name__ == "__main__":
    main()
