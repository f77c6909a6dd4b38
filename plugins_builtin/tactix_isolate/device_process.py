"""The build's end of the process in which candidates for a device are tried: what it was told of a
node, and again where it had to be replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from itertools import count
from math import inf
from pathlib import Path
from typing import Any, TypeVar

from tactix.base.dims import Env
from tactix.base.errors import DeviceLost, ExecutionError
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.graph import Node
from tactix.contracts.tactic import Variant
from tactix.select.bench import FatalTrial
from tactix.select.contests import Conditions
from tactix.select.enumerate import Candidate
from tactix_isolate.allowance import LONGEST, Allowance
from tactix_isolate.graph_bytes import GraphWriter
from tactix_isolate.process import Died, NoProcess, TrialResult, Worker
from tactix_isolate.shared_folder import shared_folder

T = TypeVar("T")
MODULE = "tactix_isolate.device_worker"


class DeviceProcess:
    """``conditions``: of trials. ``allowance``: counts what was fatal. ``stopped``: whether to give
    up while nothing of a candidate runs. ``warn``: takes what is warned of there.
    """

    def __init__(
        self,
        conditions: Conditions,
        allowance: Allowance,
        stopped: Callable[[], bool],
        warn: Callable[[str], None],
    ) -> None:
        self.allowance = allowance
        self._worker = Worker(conditions, module=MODULE)
        self._stopped, self._warn = stopped, warn
        self._numbers = count()
        self._writer: GraphWriter | None = None
        self._node = b""
        self._told = 0
        self._closed = False

    @cached_property
    def _folder(self) -> Path:
        self._shared = shared_folder()
        return Path(self._shared.name)

    def begin(self) -> None:
        """Let it start. Raises NoProcess."""
        self._worker.begin()

    def close(self) -> None:
        """From now on nothing can be tried in it."""
        self._closed = True
        self._worker.stop()
        self._forget()
        if "_folder" in self.__dict__:
            self._shared.cleanup()

    def _forget(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    # -- a node -----------------------------------------------------------------------------------

    def write(self, node: Node, env: Env) -> None:
        """Make bytes of a node, the next one to be tried. Raises whatever pickling it raises."""
        self._forget()
        self._writer, self._told = GraphWriter(self._folder, node), 0
        self._node = self._writer.written((node, dict(env)))

    def take(self) -> None:
        """Let the process take the node. Raises NoProcess; Untriable if it lacks what that is made
        of; ExecutionError if the process ends, and what the reference raises.
        """
        while True:
            is_new = not self._worker.loaded
            try:
                self._take()
            except Died as e:  # what was tried before may have hurt it
                if is_new or e.verdict.kind == "stopped":
                    what = f"the process of trials {e.verdict.text}, before any candidate was run"
                    raise ExecutionError(what) from None
            else:
                return

    def _take(self) -> None:
        """Unless it has it. Raises Died, and as ``take``."""
        if not self._worker.pid or self._told != self._worker.starts:
            self.ask(inf, "trial", self._node, stopped=self._stopped)
            self._told = self._worker.starts

    def rest(self) -> None:
        """What was tried needs no memory any more."""
        if self._worker.pid:
            self._told = 0
            with suppress(Died, ExecutionError):  # the next one has taken none
                self.ask(LONGEST, "rest")

    def ask(
        self,
        seconds: float,
        name: str,
        *arguments: Any,
        stopped: Callable[[], bool] = lambda: False,
    ) -> dict[str, Any]:
        """See ``Worker.ask``."""
        if self._closed:
            raise NoProcess("there is no process for trials any more")
        answer = self._worker.ask(seconds, name, *arguments, stopped=stopped)
        for text in answer["warned"]:
            self._warn(text)
        return answer

    # -- a candidate ------------------------------------------------------------------------------

    def candidate(
        self,
        c: Candidate,
        title: str,
        artifact: KernelArtifact,
        variant: Variant,
        seconds: float,
    ) -> RemoteRun:
        """One of the node. ``seconds``: what a request may take that runs it. Raises whatever
        pickling it raises.
        """
        assert self._writer is not None
        content = self._writer.written((artifact, variant))
        return RemoteRun(self, c, title, next(self._numbers), content, seconds)

    def is_loaded(self, start: int) -> bool:
        """Whether what was loaded in the process of that number is there now."""
        return bool(self._worker.pid) and start == self._worker.starts

    def load(self, number: int, content: bytes) -> int:
        """Let the process take a candidate; the process's number. Raises as ``take``, Died, and
        what linking it raises.
        """
        self.take()
        self._worker.loaded.add(number)
        self.ask(LONGEST, "prepare", number, content)
        return self._worker.starts

    def has_others(self, number: int) -> bool:
        """Whether other candidates were in the process, too."""
        return not self._worker.loaded <= {number}

    def stop(self) -> None:
        """Nothing can be tried in it any more; the next request starts another."""
        self._worker.stop()


class RemoteRun:
    """A candidate in the process, as a runnable; taken again by one that was started since."""

    def __init__(
        self,
        process: DeviceProcess,
        c: Candidate,
        title: str,
        number: int,
        content: bytes,
        seconds: float,
    ) -> None:
        self.candidate = c
        self._process, self._title = process, title
        self._number, self._content, self._seconds = number, content, seconds
        self._start = 0
        self._has_run = False

    def load(self) -> None:
        """Raises FatalTrial; NoProcess; Untriable if the process lacks what it is made of; and what
        linking it raises.
        """
        self._surely(lambda: None)

    def _surely(self, what: Callable[[], T]) -> T:
        """Do something with the candidate in the process. Where others ran there before, a fault
        may be theirs: it is done again in a new process.
        """
        had_others = self._process.has_others(self._number)
        try:
            return self._done(what)
        except Died as e:
            verdict = e.verdict
        except DeviceLost as e:
            self._process.stop()
            verdict = TrialResult("lost", f"lost the device when it was tried: {e.why or e.what}")
        if not had_others:
            raise self._failure(verdict)
        try:
            return self._surely(what)
        except NoProcess:
            raise self._failure(verdict) from None

    def _done(self, what: Callable[[], T]) -> T:
        if not self._process.is_loaded(self._start):
            self._start = self._process.load(self._number, self._content)
            if self._has_run:
                self._ask("repeat", 1)
        return what()

    def _failure(self, verdict: TrialResult) -> ExecutionError:
        """Who is killed may be another's victim."""
        kind = ExecutionError if verdict.kind == "killed" else FatalTrial
        self._process.allowance.count(self.candidate.tactic.key)
        return kind(f"{self._title} {verdict.text}")

    def _ask(self, name: str, *arguments: Any, seconds: float = 0.0) -> dict[str, Any]:
        return self._process.ask(seconds or self._seconds, name, self._number, *arguments)

    def repeat(self, times: int) -> None:
        self._surely(lambda: self._ask("repeat", times))
        self._has_run = True

    def __call__(self) -> None:
        self.repeat(1)

    def departure(self, granted: float) -> float:
        """What ``Bench.check`` tells there."""
        answer = self._surely(lambda: self._ask("check", granted, seconds=LONGEST))
        return float(answer["departure"])

    def seconds_of(self, times: int) -> float:
        """What ``Bench.measure`` tells there."""
        return float(self._surely(lambda: self._ask("measure", times))["seconds"])

    def bind(self, env: Env, addresses: Any) -> None:
        raise ExecutionError("a candidate in another process has its own memory", who=self._title)

    def rebind(self, buffer: int, address: int) -> None:
        self.bind({}, ())
