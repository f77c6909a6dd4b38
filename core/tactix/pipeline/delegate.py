"""Both ends of timing elsewhere: what a build tells its workers, and what holds contests there."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import tactix
from tactix.base.errors import TactixError
from tactix.base.logger import Logger
from tactix.config import BuilderFlag
from tactix.contracts.device import Device, DeviceProperties
from tactix.contracts.launcher import LinkContext
from tactix.pipeline.measuring import bench_of, toolchain_of
from tactix.pipeline.state import BuildState
from tactix.plugins.session import Session
from tactix.run.link import device_of
from tactix.select.bench import Bench
from tactix.select.compile import Toolchain
from tactix.select.contests import Conditions, Contest, ContestOutcome, Delegation, Race
from tactix.select.measure import Measurer
from tactix.select.timing_cache import Timing, TimingCache


def delegation(state: BuildState) -> Delegation | None:
    """What a build has timed elsewhere; None where it has no workers."""
    workers = state.config.workers
    if workers is None:
        return None
    return Delegation(workers, conditions(state), lambda: state.is_over, state.logger.warning)


def conditions(state: BuildState) -> Conditions:
    """Under which a build has candidates timed."""
    config, bench = state.config, state.bench
    compilers = state.toolchain.by_language.items()
    return Conditions(
        device=state.device.key,
        properties=state.context.device,
        exact=not config.target,
        env=dict(state.context.opt),
        threads=state.context.threads,
        level=config.builder_optimization_level,
        compilers={language: c.identity() for language, c in compilers},
        enabled=tuple(sorted(config.enabled)),
        weights=bench.weights,
        least=dict(bench.least),
        trial_budget=bench.trial_budget,
        strict=BuilderFlag.DEBUG in config.flags,
        version=tactix.__version__,
    )


@dataclass
class ContestHost:
    """Holds contests under one set of conditions in this process, which should have the cores, or
    the device, for itself. ``session``: of the group ``build``.
    """

    session: Session
    conditions: Conditions
    logger: Logger = field(default_factory=Logger)

    def __post_init__(self) -> None:
        for pack in self.conditions.enabled:
            self.session.enable(pack)

    @cached_property
    def device(self) -> Device:
        return device_of(self.session, self.conditions.device)

    def unlike(self) -> str:
        """Why this process cannot stand for the device that is built for; empty if it can."""
        wanted = self.conditions
        if wanted.version != tactix.__version__:
            return f"tactix is {tactix.__version__} there, {wanted.version} here"
        try:
            why = self.device.available()
        except TactixError as e:
            return str(e)
        if why:
            return f"device {wanted.device} is not there: {why}"
        return self._unlike_device(self.device.properties()) or self._unlike_compilers()

    def _unlike_device(self, present: DeviceProperties) -> str:
        wanted = self.conditions.properties
        if missing := wanted.features - present.features:
            return f"its {present.kind} lacks {', '.join(sorted(missing))}"
        if self.conditions.exact and _identity(present) != _identity(wanted):
            return f"its {present.kind} is another one: {present.name}, not {wanted.name}"
        return ""

    def _unlike_compilers(self) -> str:
        wanted = self.conditions.compilers
        own = self.toolchain.by_language if wanted else {}
        for language, identity in wanted.items():
            found = own[language].identity() if language in own else "none"
            if found != identity:
                return f"its compiler of {language} is {found!r}, not {identity!r}"
        return ""

    @cached_property
    def toolchain(self) -> Toolchain:
        return toolchain_of(self.session, self.device, self.conditions.level)

    def hold(self, contests: list[Contest]) -> list[ContestOutcome]:
        """Compile and time them all. A contest that fails as a whole has no timings."""
        bench = self.bench()
        measurer = Measurer(
            bench,
            self.toolchain,
            TimingCache(),
            self.conditions.properties,
            self.conditions.env,
            self.conditions.threads,
            level=self.conditions.level,
            log=self.logger.warning,
            strict=self.conditions.strict,
        )
        try:
            measurer.race([c.bids for c in contests if isinstance(c, Race)])
            return [_outcome(measurer, c) for c in contests]
        finally:
            bench.close()

    def bench(self) -> Bench:
        """What measures candidates here as the build would. Raises PluginError."""
        wanted, device = self.conditions, self.device
        layer = self.session.layers.__getitem__
        linked = LinkContext(device, wanted.threads, layer, warn=self.logger.warning)
        made = bench_of(self.session, linked, here=True)
        made.trial_budget, made.weights, made.least = (
            wanted.trial_budget,
            wanted.weights,
            wanted.least,
        )
        return made


def _identity(p: DeviceProperties) -> tuple[object, ...]:
    """What the timing cache tells devices apart by."""
    return p.kind, p.name, p.features, dict(p.facts)


def _outcome(measurer: Measurer, contest: Contest) -> ContestOutcome:
    if not isinstance(contest, Race):
        return ContestOutcome(measurer.fought(contest.sides, linked=contest.linked))
    timings: list[Timing | None] = []
    rejected: dict[int, str] = {}
    for i, c in enumerate(contest.bids.candidates):
        found = measurer.cache.entries.get(measurer.key(contest.bids, c))
        timings.append(found)
        if c.status == "rejected":
            rejected[i] = c.reason
    return ContestOutcome(tuple(timings), rejected)
