"""Where candidates for a device are tried by a build: in a process of their own, so that one that
loses the device, or never ends, costs itself the race, and not the build.

The measurer asks as it asks any bench, and keeps budgets, turns and times; what a request runs is
known when it is not answered. So this is a bench, and no way to delegate races: who is blamed, when
to stop, what is compiled and what is cached stay where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from math import inf
from typing import Any

import tactix
from tactix.base.dims import Env
from tactix.base.errors import AllocationError, ExecutionError, punctuated
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.graph import Node
from tactix.contracts.launcher import Runnable
from tactix.contracts.tactic import Variant
from tactix.select.bench import Bench, Expected, FatalTrial, Untriable
from tactix.select.contests import Conditions
from tactix.select.enumerate import Candidate, reject
from tactix_isolate.allowance import Allowance, patience
from tactix_isolate.device_process import DeviceProcess, RemoteRun
from tactix_isolate.process import NoProcess

NONE_LEFT = "there is no process to try more of them in"
HERE = "One that loses the device ends the build"


class Elsewhere(Expected):
    """What is right, known to another process alone."""

    def __init__(self, node: Node, env: Env) -> None:
        self.node, self.env, self._arrays = node, env, []


class ApartBench(Bench):
    """In front of a device's bench, which tries what cannot be tried elsewhere."""

    _process: DeviceProcess | None = None
    _elsewhere: Elsewhere | None = None
    _here: tuple[Sequence[Any], Expected] | None = None

    @cached_property
    def allowance(self) -> Allowance:
        """Of this build."""
        return Allowance()

    def why_here(self) -> str:
        """Why no other process can have the device beside this one; empty if one can."""
        return ""

    def begin(self) -> None:
        if not self.apart or self._process is not None:
            return
        try:
            if why := self.why_here():
                raise NoProcess(why)
            self._process = DeviceProcess(
                self._conditions(), self.allowance, lambda: self.stopped(), self.context.warn
            )
            self._process.begin()
        except NoProcess as e:
            self.stay(e)

    def _conditions(self) -> Conditions:
        return Conditions(
            device=self.device.key,
            properties=self.device.properties(),
            exact=True,
            env={},
            threads=self.context.threads,
            level=1,
            compilers={},
            weights=self.weights,
            least=dict(self.least),
            version=tactix.__version__,
        )

    def stay(self, e: NoProcess) -> None:
        """Try all that is left here."""
        self.apart = False
        self.close()
        told = f"candidates are tried in the process of the build: {e}"
        self.context.warn(punctuated((told, HERE)))

    def trial(self, node: Node, env: Env) -> tuple[list[Any], Expected]:
        self._elsewhere = self._here = None
        if self._process is not None and self._takes(self._process, node, env):
            self._elsewhere = Elsewhere(node, env)
            return [], self._elsewhere
        return super().trial(node, env)

    def _takes(self, process: DeviceProcess, node: Node, env: Env) -> bool:
        """Whether the process has the node now. Raises what its reference raises."""
        try:
            process.write(node, env)
        except Exception as e:  # what a pack's node is made of may be anything
            self.tell_here(node.name, e)
            return False
        try:
            process.take()
        except NoProcess as e:
            self.stay(e)
        except Untriable as e:
            self.tell_here(node.name, e)
        else:
            return True
        return False

    def tell_here(self, what: str, e: Exception) -> None:
        """Warn of what cannot be tried elsewhere."""
        why = e.why if isinstance(e, Untriable) else f"{type(e).__name__}: {e}"
        told = f"{what} is tried in the process of the build: {why}"
        self.context.warn(punctuated((told, HERE)))

    def of(self, c: Candidate) -> Bench:
        if self._elsewhere is None or c.artifact.alias:
            return super().of(c)
        return CandidateApart(self, self._process, c)

    def barred(self, c: Candidate) -> str:
        why = self.allowance.refusal(str(self.strangers.get(c.tactic.key, "")), c.tactic.key)
        if not why and self._process is None and self.allowance.has_failed(c.tactic.key):
            why = f"one of this tactic crashed or hung, and {NONE_LEFT}"
        return f"{self.title(c)} was not tried: {why}" if why else super().barred(c)

    def here(self) -> tuple[Sequence[Any], Expected]:
        """What ``trial`` gives in this process for the node that another one has."""
        if self._here is None:
            assert self._elsewhere is not None
            self._here = super().trial(self._elsewhere.node, self._elsewhere.env)
        return self._here

    def measure(self, runnable: Runnable, times: int) -> float:
        if not isinstance(runnable, RemoteRun):
            return super().measure(runnable, times)
        try:
            return runnable.seconds_of(times)
        except FatalTrial:
            raise
        except (NoProcess, AllocationError):
            return inf
        except ExecutionError as e:
            reject(runnable.candidate, str(e))
            return inf

    def fastest(
        self, tried: Sequence[Any], complete: Callable[[Any], Any], load: Callable[[Any], Any]
    ) -> Any:
        """Whole plans are timed in this process, which needs the device's memory for that."""
        if self._process is not None:
            self._process.rest()
        return super().fastest(tried, complete, load)

    def close(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None
        super().close()


class CandidateApart(Bench):
    """The bench of one candidate. ``market``: that of the build. ``process``: None if it is gone
    since the node's first candidates.
    """

    def __init__(self, market: ApartBench, process: DeviceProcess | None, c: Candidate) -> None:
        super().__init__(market.context, market.launchers, market.allocator, market.strangers)
        self.market, self.candidate = market, c
        self._process, self._seconds = process, patience(c.estimate)
        self._run: RemoteRun | None = None

    def prepare(
        self,
        node: Node,
        artifact: KernelArtifact,
        variant: Variant,
        arrays: Sequence[Any],
        env: Env,
    ) -> tuple[Runnable, list[Any]]:
        """Raises FatalTrial, and what linking it raises. The outputs stay in the process."""
        if self._process is None:
            return self._prepared_here(node, artifact, variant, env)
        title = self.market.title(self.candidate)
        try:
            run = self._process.candidate(self.candidate, title, artifact, variant, self._seconds)
        except Exception as e:  # what a pack's kernel is made of may be anything
            self.market.tell_here(self.candidate.tactic.key, e)
            return self._prepared_here(node, artifact, variant, env)
        try:
            run.load()
        except NoProcess as e:
            self.market.stay(e)
            return self._prepared_here(node, artifact, variant, env)
        except Untriable as e:
            self.market.tell_here(self.candidate.tactic.key, e)
            return self._prepared_here(node, artifact, variant, env)
        self._run = run
        return run, []

    def _prepared_here(
        self, node: Node, artifact: KernelArtifact, variant: Variant, env: Env
    ) -> tuple[Runnable, list[Any]]:
        arrays, _ = self.market.here()
        return self.market.prepare(node, artifact, variant, arrays, env)

    def keep(self) -> list[Any]:
        return [] if self._run is not None else self.market.keep()

    def check(
        self, node: Node, variant: Variant, got: Sequence[Any], want: Expected, granted: float = 1.0
    ) -> float:
        if self._run is not None:
            return self._run.departure(granted)
        return self.market.check(node, variant, got, self.market.here()[1], granted)
