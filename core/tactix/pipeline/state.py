"""What the steps of one build hand on."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tactix.base.logger import Logger
from tactix.config import BuilderConfig
from tactix.contracts.device import Device
from tactix.contracts.rule import Rule
from tactix.contracts.tactic import CompileContext, Tactic
from tactix.pipeline.stages import Parts
from tactix.plan.schema import Plan, Profile
from tactix.plugins.session import Session
from tactix.run.engine import Engine
from tactix.select.bench import Bench
from tactix.select.compile import Toolchain
from tactix.select.precision import LOWER, Precisions
from tactix.select.timing_cache import TimingCache

PACKING = 1.5e-9
"""Seconds that a byte of the weights takes at the end of a build, to be packed and hashed: the
440 MB of bert_base took 0.7 s of two cores.
"""


@dataclass
class Pace:
    """What a build has taken of its own, as its end takes about as much again.

    ``fuse``, ``bid``: seconds of the last time; ``weights``: bytes of the network's constants.
    """

    fuse: float = 0.0
    bid: float = 0.0
    weights: int = 0

    @property
    def closing(self) -> float:
        """Seconds that choosing, assembling and finishing will take, compilers aside."""
        return self.fuse + self.bid + PACKING * self.weights


@dataclass(frozen=True)
class BuildState:
    """What one build is made by, from preparing to finishing.

    ``load``: makes an engine of a plan, to be timed. ``here``: whether what is built for runs here,
    to be measured. ``deadline``: when the build is to end, by the monotonic clock. ``logger``:
    tells each warning once in the build. ``compiling``: seconds that what plans need took to
    compile, beyond the time for measuring; each call of the compiler adds its own.
    """

    session: Session
    load: Callable[[Plan], Engine]
    config: BuilderConfig
    device: Device
    context: CompileContext
    toolchain: Toolchain
    rules: Sequence[Rule]
    tactics: Sequence[Tactic]
    precisions: Precisions
    cache: TimingCache
    profiles: Sequence[Profile]
    here: bool
    bench: Bench
    parts: Parts
    deadline: float
    logger: Logger
    compiling: list[float] = field(default_factory=list)
    pace: Pace = field(default_factory=Pace)

    @property
    def lowering(self) -> frozenset[str]:
        """Keys of the rules that lower precision."""
        return frozenset(r.key for r in self.rules if r.numerics in LOWER)

    @property
    def has_no_times(self) -> bool:
        """Whether there is surely something to measure here, as nothing was so far."""
        config = self.config
        return self._measures and not (config.frozen or config.workers or self.cache.entries)

    @property
    def _measures(self) -> bool:
        config = self.config
        return self.here and config.builder_optimization_level > 0 and config.budget > 0

    @property
    def measured_until(self) -> float:
        """When measuring ends, by the monotonic clock, so that the rest is done by the deadline."""
        return self.deadline - self.pace.closing

    @property
    def is_over(self) -> bool:
        """Whether nothing more is measured: the budget is spent, or the build was stopped."""
        late = self.toolchain.hurries or time.monotonic() > self.measured_until
        return late or self.config.progress_monitor.cancelled()

    @property
    def is_spent(self) -> bool:
        """Whether there was time for measuring, and it is over: what will be chosen is compiled,
        and more would be beyond the budget.
        """
        late = time.monotonic() > self.measured_until
        return self._measures and late and not self.toolchain.hurries

    def overrun(self, now: float) -> str:
        """What a build that is done has taken beyond its budget, in words; empty if nothing."""
        if not self.here or now <= self.deadline:
            return ""
        late = now - self.deadline
        compiling = min(late, sum(self.compiling))
        return (
            f"{late:.1f} s beyond the budget of {self.config.budget:g} s, "
            f"{compiling:.1f} s of them to compile what the plan needs"
        )
