"""How candidates are tried and timed on the processor: tactix's own here, strangers' native and
host code elsewhere.

What trials of strangers need (``trial.py``) is imported when there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tactix.base.dims import Env
from tactix.base.errors import CompilerError, ConfigError, ToolchainError, punctuated
from tactix.contracts.artifact import Binary, KernelArtifact, Source
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.launcher import Runnable, Step
from tactix.select.bench import Bench, Expected
from tactix.select.compile import Toolchain, joined
from tactix.select.enumerate import Bids, Candidate, reject
from tactix_isolate import quarantine
from tactix_isolate.allowance import Allowance
from tactix_isolate.eviction import LEAST, Evicted, code, eviction, is_streamed, weights
from tactix_isolate.machine_load import OtherProcesses
from tactix_isolate.quarantine import Quarantine
from tactix_isolate.shared_folder import shared_folder

if TYPE_CHECKING:
    from tactix_isolate.process import Worker


class CpuBench(Bench):
    """The bench of a build. Without strangers it is like any other."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.numbers = count()
        self.other_processes = OtherProcesses()
        self._kept: dict[str, str] = {}
        self._evicting: KernelArtifact | None = None

    @cached_property
    def worker(self) -> Worker:
        """The process for trials; it starts when it is first asked."""
        from tactix_isolate.process import Worker

        return Worker(self.context.threads, self.device.key)

    @cached_property
    def allowance(self) -> Allowance:
        """Of this build."""
        return Allowance(self.trial_budget)

    @cached_property
    def quarantine(self) -> Quarantine:
        """The user's own, unless it was set to another."""
        return Quarantine(quarantine.default_path())

    @cached_property
    def folder(self) -> Path:
        """Where what processes share lies: in memory where there is room."""
        self._folder = shared_folder()
        return Path(self._folder.name)

    def keep_code(self, blob: bytes) -> str:
        """The path of machine code for the worker."""
        code = Binary(blob)
        if code.digest not in self._kept:
            path = self.folder / code.digest
            path.write_bytes(blob)
            self._kept[code.digest] = str(path)
        return self._kept[code.digest]

    # -- who is a stranger ------------------------------------------------------------------------

    def is_strange(self, c: Candidate) -> bool:
        """Whether a candidate runs code in this process that is neither tactix's nor made by its
        layers.
        """
        if c.tactic.key not in self.strangers:
            return False
        a = c.artifact
        known = self.launchers.get(a.launcher) if a.launcher not in self.strangers else None
        return known is None or known.host_code or a.host_code or a.code is not None or a.alias

    def key(self, c: Candidate) -> str:
        """The quarantine's."""
        provider = self.strangers.get(c.artifact.launcher)
        runs = f"{provider} {provider.digest}" if provider else ""
        return quarantine.key_of(c.artifact.digest, runs, self.device.properties())

    # -- weights that runs find in memory ---------------------------------------------------------

    @cached_property
    def is_streamed(self) -> bool:
        """Whether the network's weights are more than the caches hold."""
        return is_streamed(self.weights, self.device.properties())

    @property
    def conditions(self) -> Sequence[str]:
        return ("weights in memory",) if self.is_streamed else ()

    def eviction(self, step: Step, node: Node, nbytes: Callable[[int], int]) -> Step | None:
        """What takes the weights of a node's step out of the caches; None where it is timed with
        them there. ``nbytes``: of a buffer.
        """
        if self._evicting is None:
            return None
        sizes = {buffer: nbytes(buffer) for buffer in weights(step, node)}
        return eviction(self._evicting, sizes) if sum(sizes.values()) >= LEAST else None

    def _prepare_eviction(self, toolchain: Toolchain, device: DeviceProperties) -> None:
        """Where there is no compiler for it, weights are where the last run left them."""
        try:
            self._evicting = code(toolchain, device)
        except (CompilerError, ToolchainError) as e:
            self.is_streamed = False
            told = f"kernels are timed with weights in caches: {e}"
            self.context.warn(punctuated((told, "With a C compiler they are timed as they run")))

    def _linked(self, step: Step, node: Node, env: Env) -> Runnable:
        runnable = super()._linked(step, node, env)
        evict = self.eviction(step, node, lambda buffer: self._buffers[buffer].nbytes)
        if evict is None:
            return runnable
        return Evicted(runnable, super()._linked(evict, node, env), self.device.measure)

    # -- the bench of a build ---------------------------------------------------------------------

    def of(self, c: Candidate) -> Bench:
        if not self.is_strange(c):
            return self
        from tactix_isolate.trial import TrialBench

        return TrialBench(self, c)

    def barred(self, c: Candidate) -> str:
        try:
            found = self.quarantine.records.get(self.key(c)) if self.is_strange(c) else None
        except ConfigError:
            raise
        except Exception as e:  # of an artifact that is none
            return f"{self.title(c)} gave no artifact: {type(e).__name__}: {e}"
        return str(found["reason"]) if found else ""

    def compile(
        self, toolchain: Toolchain, candidates: Sequence[Candidate], device: DeviceProperties
    ) -> Mapping[str, Binary]:
        """Strangers' code is in a library of its own, which is not loaded here, but can be linked
        with all the rest.
        """
        if self.is_streamed and self._evicting is None:
            self._prepare_eviction(toolchain, device)
        own = [c for c in candidates if not self.is_strange(c)]
        made = super().compile(toolchain, own, device)
        apart = [
            c for c in candidates if self.is_strange(c) and isinstance(c.artifact.code, Source)
        ]
        apart = [c for c in apart if not self._refused(c)]
        fine = [c.artifact for c in own if c.status != "rejected"]
        return {**joined(toolchain, fine, apart, device, self.title), **made}

    def refusal(self, c: Candidate) -> str:
        """Why a stranger's candidate is not tried in this build; empty if it is."""
        why = self.allowance.refusal(str(self.strangers[c.tactic.key]), c.tactic.key)
        return f"{self.title(c)} was not tried: {why}" if why else ""

    def _refused(self, c: Candidate) -> bool:
        if why := self.refusal(c):
            reject(c, why)
        return bool(why)

    def close(self) -> None:
        if "worker" in self.__dict__:
            self.worker.stop()

    def keep_nothing(self) -> None:
        self.quarantine = Quarantine(None)

    def delay(self) -> float:
        return 0.0 if "worker" in self.__dict__ else self.other_processes.delay()

    def watch(self) -> Callable[[], float]:
        others = OtherProcesses()
        return lambda: 0.0 if "worker" in self.__dict__ else others.delay()

    def review(self, bids: Sequence[Bids]) -> None:
        """What was timed while others used the machine is taken to vary by as much as they may have
        delayed it.

        More candidates are near-ties then.
        """
        delay = self.delay()
        for c in (c for b in bids for c in b.candidates if c.status == "measured"):
            c.spread = max(c.spread, delay)

    def trial(self, node: Node, env: Env) -> tuple[list[Any], Expected]:
        if "worker" in self.__dict__:
            self.worker.forget()
        return super().trial(node, env)

    def measure(self, runnable: Runnable, times: int) -> float:
        seconds = getattr(runnable, "seconds_of", None)
        return float(seconds(times)) if seconds else super().measure(runnable, times)
