"""The process in which candidates for a device are tried and timed, which may lose the device:
``python -m tactix_isolate.device_worker``.

It has the device's bench as the process of the build would have it, and is asked as that is. How it
is asked, and answers, is told in ``worker.py``.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tactix.base.dims import Env
from tactix.base.errors import ExecutionError
from tactix.base.logger import Logger, Severity
from tactix.contracts.graph import Node
from tactix.contracts.launcher import Runnable
from tactix.contracts.tactic import Variant
from tactix.pipeline.delegate import ContestHost
from tactix.plugins.session import Session
from tactix.select.bench import Expected, Untriable
from tactix.select.contests import Conditions
from tactix_isolate import raised
from tactix_isolate.graph_bytes import GraphReader
from tactix_isolate.worker import serve


@dataclass(frozen=True)
class NodeTrial:
    """A node, its sizes, and what is right for it."""

    node: Node
    env: Env
    samples: Sequence[Any]
    want: Expected


@dataclass(frozen=True)
class PreparedCandidate:
    """A candidate. ``kept``: what its runnable needs."""

    variant: Variant
    runnable: Runnable
    outputs: Sequence[Any]
    kept: Any


class WarningsThere(Logger):
    """Keeps warnings, and what is worse, for the process of the build."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def log(self, severity: Severity, msg: str) -> None:
        if severity <= Severity.WARNING:
            self.messages.append(msg)


class DeviceTrials:
    """Answers requests about the candidates of one node after the other."""

    def __init__(self) -> None:
        self._heard = WarningsThere()
        self._arrays: dict[str, Any] = {}
        self._prepared: dict[int, PreparedCandidate] = {}
        self._trial: NodeTrial | None = None

    def hello(self, conditions: Conditions) -> dict[str, Any]:
        """The first request: get ready. Raises ExecutionError if this process cannot stand for that
        of the build, and what the device raises.
        """
        self._session = Session(group="build")
        self._session.layers  # noqa: B018 - found while the build does something else
        self._host = ContestHost(self._session, conditions, self._heard)
        if why := self._host.unlike():
            raise ExecutionError(why)
        self._bench = self._host.bench()
        if (allocator := self._bench.allocator) is not None:
            allocator.deallocate(allocator.allocate(1))  # the device's context is there from now on
        return self._answer()

    def _answer(self, **more: Any) -> dict[str, Any]:
        """With what was warned of meanwhile."""
        warned, self._heard.messages = self._heard.messages, []
        return {"warned": warned, **more}

    @staticmethod
    def more(e: BaseException) -> dict[str, Any]:
        """What to tell of an error beside its text."""
        return {"raised": raised.told(e)}

    def _read(self, content: bytes) -> Any:
        """Raises Untriable for what this process lacks."""
        try:
            return GraphReader(content, self._session, self._arrays).load()
        except Exception as e:
            why = f"{type(e).__name__}: {e}"
            raise Untriable("another process does not have it", why=why) from e

    def trial(self, content: bytes) -> dict[str, Any]:
        """Take a node. Raises Untriable, and what its reference raises."""
        self._forget()
        node, env = self._read(content)
        self._trial = NodeTrial(node, env, *self._bench.trial(node, env))
        return self._answer()

    def _forget(self) -> None:
        self._trial = None
        self._prepared.clear()
        self._arrays.clear()

    @property
    def _taken(self) -> NodeTrial:
        assert self._trial is not None
        return self._trial

    def prepare(self, number: int, content: bytes) -> dict[str, Any]:
        """Take a candidate of the node. Raises Untriable, and what linking it raises."""
        artifact, variant = self._read(content)
        t, bench = self._taken, self._bench
        made = bench.prepare(t.node, artifact, variant, t.samples, t.env)
        self._prepared[number] = PreparedCandidate(variant, *made, bench.keep())
        return self._answer()

    def repeat(self, number: int, times: int) -> dict[str, Any]:
        """Run it so often."""
        self._prepared[number].runnable.repeat(times)
        return self._answer()

    def check(self, number: int, granted: float) -> dict[str, Any]:
        """By how many budgets what was prepared last, and has run, is off."""
        found, t = self._prepared[number], self._taken
        off = self._bench.check(t.node, found.variant, found.outputs, t.want, granted)
        return self._answer(departure=float(off))

    def measure(self, number: int, times: int) -> dict[str, Any]:
        """Seconds of so many runs, as the device's bench takes them."""
        seconds = self._bench.measure(self._prepared[number].runnable, times)
        return self._answer(seconds=float(seconds))

    def rest(self) -> dict[str, Any]:
        """Give back the memory of all that was tried."""
        self._forget()
        self._bench = self._host.bench()
        gc.collect()
        if trim := getattr(self._bench.allocator, "trim", None):
            trim()
        return self._answer()


if __name__ == "__main__":
    serve(lambda answers: DeviceTrials())
