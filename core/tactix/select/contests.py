"""What a build may have others time in its place: races of a node's candidates, and duels, under
stated conditions, by whoever has a device like the build's target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from tactix.base.dims import Env
from tactix.contracts.device import DeviceProperties
from tactix.select.enumerate import Bids, Candidate
from tactix.select.timing_cache import Timing

Stand = tuple[Bids, Candidate]
"""A candidate, and the bids that it stands among."""

Sides = tuple[tuple[Stand, ...], tuple[Stand, ...]]
"""Of a duel: candidates whose times are added up on either side."""


@dataclass(frozen=True)
class Conditions:
    """What times depend on beside the candidates.

    ``device``: its key. ``properties``: of what the plan is for; ``exact``: whether only devices of
    just these will do, else those with its features. ``env``: sizes by symbol. ``threads``: of one
    inference. ``level``: of the build. ``compilers``: identity by language. ``enabled``: packs that
    may touch what others provide. ``weights``, ``least``, ``trial_budget``: see ``Bench``.
    ``strict``: see ``Measurer``. ``version``: of tactix.
    """

    device: str
    properties: DeviceProperties
    exact: bool
    env: Env
    threads: int
    level: int
    compilers: Mapping[str, str]
    enabled: tuple[str, ...] = ()
    weights: int = 0
    least: Mapping[str, int] = field(default_factory=dict)
    trial_budget: float = 0.0
    strict: bool = False
    version: str = ""


@dataclass(frozen=True)
class Race:
    """The open candidates of one node, which are timed in turns."""

    bids: Bids


@dataclass(frozen=True)
class Duel:
    """See ``Measurer.duel``."""

    sides: Sides
    linked: bool


Contest = Race | Duel


@dataclass(frozen=True)
class ContestOutcome:
    """Of one contest. ``timings``: of a race's candidates, None for one that was not timed; of a
    duel's two sides. ``rejected``: why a candidate, by its index, must not be chosen.
    """

    timings: tuple[Timing | None, ...]
    rejected: Mapping[int, str] = field(default_factory=dict)


@runtime_checkable
class Workers(Protocol):
    """Who holds contests for a build."""

    def hold(
        self,
        conditions: Conditions,
        contests: Sequence[Contest],
        stopped: Callable[[], bool],
        warn: Callable[[str], None],
    ) -> Iterator[tuple[int, ContestOutcome]]:
        """The index and the outcome of each contest that could be held, as they come; those that
        the caller expects to take longest are first. ``stopped``: whether to give up. ``warn``:
        takes what went wrong on the way.
        """


@dataclass(frozen=True)
class Delegation:
    """A build's workers. ``stopped``: whether there is no more time."""

    workers: Workers
    conditions: Conditions
    stopped: Callable[[], bool]
    warn: Callable[[str], None]

    def hold(self, contests: Sequence[Contest]) -> Iterator[tuple[int, ContestOutcome]]:
        """See ``Workers.hold``."""
        if contests and not self.stopped():
            yield from self.workers.hold(self.conditions, contests, self.stopped, self.warn)
