"""Mixtures of precisions: one network is tried with all nodes lowered that can be, with none, and
with some.

Losing is never failing: a node that has no kernel as it was lowered stays as it is, alone, and a
mixture that cannot be built costs only itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tactix.base.errors import NoTacticError, TactixError, TimingCacheError, punctuated
from tactix.contracts.graph import Node
from tactix.fuse.trace import Trace
from tactix.network.definition import NetworkDefinition
from tactix.pipeline.state import BuildState
from tactix.select.choose import Choice
from tactix.select.enumerate import Bids
from tactix.select.precision import (
    NOT_FASTER,
    NOTHING,
    Lost,
    Lowering,
    Pair,
    Stays,
    Times,
    corrected,
    pairs,
    slower,
)


@dataclass(frozen=True)
class Attempt:
    """One way to fuse a network, and what is fastest then. ``source``: the network before rules."""

    state: BuildState
    source: NetworkDefinition
    network: NetworkDefinition
    trace: Trace
    bids: dict[Node, Bids]
    choice: Choice


class NotLowered(Exception):
    """Nodes of an attempt have no kernel as they were lowered. ``lost``: what they were made of,
    and why; ``lowering``: by which keys.
    """

    def __init__(self, lost: Sequence[Lost], lowering: frozenset[str]) -> None:
        super().__init__(punctuated((x.why for x in lost), "; "))
        self.lost, self.lowering = lost, lowering


def apart(lowered: Attempt, wide: Attempt, found: Mapping[str, Pair]) -> dict[str, Times]:
    """Times of pairs as they are known."""
    return {name: Times.apart(pair) for name, pair in found.items()}


@dataclass
class Mixtures:
    """``attempt``: builds with some nodes left as they are; ``lowering``: keys of the rules or
    stages that lower precision.

    ``duel``: times nodes of two attempts in turns. ``stopped``: whether one attempt is enough, as
    the user stopped the build; ``is_over``: whether two are, as nothing more is measured.
    ``wider``: gives the attempt with no node lowered; without it ``attempt`` does.
    """

    attempt: Callable[[Stays], Attempt]
    lowering: frozenset[str]
    warn: Callable[[str], None]
    duel: Callable[[Attempt, Attempt, Mapping[str, Pair]], dict[str, Times]] = apart
    stopped: Callable[[], bool] = lambda: False
    is_over: Callable[[], bool] = lambda: False
    wider: Callable[[], Attempt] | None = None
    kept: dict[str, str] = field(default_factory=dict)
    times: dict[str, Times] = field(default_factory=dict)
    _around: dict[frozenset[str], frozenset[str]] = field(default_factory=dict)

    def tried(self) -> list[Attempt]:
        """Attempts that went, at least one. Raises what ``attempt`` raises, NotLowered apart."""
        try:
            lowered = self.lowered()
        except NoTacticError as e:
            if not self.lowering:
                raise
            reason = f"what is lowered cannot be built: {e}"
            return [self.attempt(lambda name: reason)]
        if self.stopped():
            return [lowered]
        if not lowered.trace.counts.keys() & self.lowering:
            return [self.wider() if self.wider else lowered]
        return [lowered, *self._wider(lowered)]

    def settled(self) -> Attempt:
        """The fastest of those tried, whose nodes that are not lowered are those kept from now on.
        Raises what ``attempt`` raises, NotLowered apart.
        """
        best = min(self.tried(), key=lambda attempt: attempt.choice.seconds)
        self.kept.clear()
        self.kept |= Lowering(best.trace, self.lowering).wide
        return best

    def lowered(self) -> Attempt:
        """With all nodes lowered but those that are kept, to which it adds those that have no
        kernel then.
        """
        while True:
            try:
                return self.attempt(lambda name: self.kept.get(name, ""))
            except NotLowered as e:
                if e.lowering != self.lowering:
                    raise
                for lost in e.lost:
                    self._keep(lost)

    def _keep(self, lost: Lost) -> None:
        """What is fused around an anchor first; the anchor alone if that does not help."""
        if lost.around:
            self._around[lost.anchor] = self._around.get(lost.anchor, NOTHING) | lost.around
            self.kept |= dict.fromkeys(lost.around, lost.why)
            return
        for name in self._around.pop(lost.anchor, NOTHING):
            self.kept.pop(name, None)
        self.kept |= dict.fromkeys(lost.anchor, lost.why)

    def _wider(self, lowered: Attempt) -> list[Attempt]:
        """Without those nodes that gain nothing, and with none lowered."""
        wide = self._beside(self.wider or self._wide)
        if wide is None:
            return []
        tried, last = [wide], lowered
        while (more := self._slower(last, wide) - self.kept.keys()) and not self.is_over():
            self.kept |= dict.fromkeys(more, NOT_FASTER)
            mixed = self._beside(self.lowered)
            if mixed is None:
                break
            tried.insert(-1, mixed)
            last = mixed
        return tried

    def _wide(self) -> Attempt:
        """With no node lowered."""
        return self.attempt(lambda name: self.kept.get(name, NOT_FASTER))

    def _slower(self, lowered: Attempt, wide: Attempt) -> frozenset[str]:
        """Names of what gains nothing in an attempt, whose predicted seconds are set right beside
        the wide one's.
        """
        lowering = Lowering(lowered.trace, self.lowering)
        found = pairs(lowered.choice, wide.choice, lowering, wide.trace)
        times = self.duel(lowered, wide, found)
        lowered.choice.seconds = corrected(lowered.choice, found, times)
        self.times |= times
        lowered.choice.duels = wide.choice.duels = wide.choice.duels | self.times
        return slower(times)

    def _beside(self, attempt: Callable[[], Attempt]) -> Attempt | None:
        """An attempt beside one that is there; None where it fails, which is told. Raises
        TimingCacheError.
        """
        try:
            return attempt()
        except (
            TimingCacheError
        ):  # of a frozen build, which must come to what an earlier one came to
            raise
        except TactixError as e:
            told = f"a mixture of precisions is left out: {e}"
            self.warn(punctuated((told, "The plan is the best of the others")))
            return None
