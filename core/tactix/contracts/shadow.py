"""Shadow mode: a share of an engine's live requests is computed a second time, to see whether the
answers are right.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import TYPE_CHECKING, Protocol, TypeVar

from tactix.base.errors import InvalidArgument
from tactix.contracts.engine import EngineView
from tactix.contracts.flavour import Flavour

if TYPE_CHECKING:
    from tactix.contracts.session import SessionView

Plan = TypeVar("Plan")


@dataclass(frozen=True)
class ShadowStats:
    """``requests``: calls so far. Of those ``sampled``, ``checked`` were compared, ``dropped`` had
    no room, and others wait or were given up. ``departed``: checked requests whose outputs are
    beyond the tolerance. ``by_step``: how often each step departed by itself in requests that were
    looked at step by step. ``seconds``: of a core, that computing and comparing took. ``state``:
    ``starting``, ``running``, ``failed`` or ``closed``; ``error``: what failed.
    """

    requests: int = 0
    sampled: int = 0
    checked: int = 0
    dropped: int = 0
    departed: int = 0
    by_step: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    state: str = "starting"
    error: str = ""


@dataclass(frozen=True)
class OutputDrift:
    """An output that is beyond the tolerance. ``max_rel``: the largest difference, relative to the
    largest magnitude that is right; ``outside``: elements beyond the tolerance; ``note``: what else
    is wrong.
    """

    output: str
    max_rel: float
    outside: int
    note: str = ""


@dataclass(frozen=True)
class StepDrift:
    """A step whose result is beyond the tolerance of what is right for the inputs that it had; as
    ``OutputDrift``.
    """

    step: str
    tactic: str
    max_rel: float
    outside: int


@dataclass(frozen=True)
class DriftReport:
    """A request whose outputs are beyond the tolerance. ``request``: its number, from 1; ``steps``:
    in order, those that departed by themselves when it ran again; ``note``: why none is named.
    """

    engine: str
    request: int
    tolerance: float
    outputs: tuple[OutputDrift, ...]
    steps: tuple[StepDrift, ...] = ()
    note: str = ""
    stats: ShadowStats = ShadowStats()

    @property
    def text(self) -> str:
        """In one line."""
        worst = max(self.outputs, key=lambda o: o.max_rel)
        told = (
            f"request {self.request} of {self.engine or 'an engine'} departs from the references: "
            f"output {worst.output!r} by {worst.max_rel:.3g} of its largest magnitude, tolerance "
            f"{self.tolerance:g}"
        )
        named = ", ".join(s.step for s in self.steps)
        return f"{told}; steps: {named}" if named else f"{told}; {self.note}"


OnDrift = Callable[[DriftReport], object]


MOST_WAITING = 4096
"""Requests, each of which takes a byte of a pipe."""
LEAST_BYTES = 1024
"""Of a request, which is told with its names and shapes."""
BOUNDS = f"Give a queue of 1 to {MOST_WAITING}, and 0 looks or more"


@dataclass(frozen=True)
class ShadowOptions:
    """``rate``: the share of requests that is looked at, about evenly spaced; ``seed`` decides
    which. ``on_drift``: is called for each that departs, in a thread of its own. The rest bounds
    what that costs: ``load``: the share of one core that computing them may take; ``pause``:
    seconds from one to the next at least; ``queue``, ``queue_bytes``: requests that wait or are
    looked at, and bytes of their copies, of which each has an equal share; ``looks``: requests that
    are looked at step by step, beside those whose number among the departed is a power of two.

    Raises InvalidArgument.
    """

    rate: float = 0.001
    on_drift: OnDrift | None = None
    seed: int = 0
    load: float = 0.002
    pause: float = 5.0
    queue: int = 1
    queue_bytes: int = 64 << 20
    looks: int = 8

    def __post_init__(self) -> None:
        for name in ("rate", "load"):
            share = getattr(self, name)
            if not (isinstance(share, Real) and 0 < float(share) <= 1):
                raise InvalidArgument(f"{name} is {share!r}", do="Give a share, as 0.001")
        if not (isinstance(self.pause, Real) and 0 <= float(self.pause) < threading.TIMEOUT_MAX):
            raise InvalidArgument(f"a pause of {self.pause!r}", do="Give seconds, or 0")
        for name in ("seed", "queue", "queue_bytes", "looks"):
            if not isinstance(number := getattr(self, name), Integral):
                raise InvalidArgument(f"{name} is {number!r}", do="Give an integer")
        if not 1 <= self.queue <= MOST_WAITING or self.looks < 0:
            raise InvalidArgument(f"no queue of {self.queue}, no {self.looks} looks", do=BOUNDS)
        if self.queue_bytes < LEAST_BYTES * self.queue:
            why = f"each of {self.queue} requests has a share of {self.queue_bytes} bytes"
            raise InvalidArgument("no room for requests", why=why, do="Give more queue_bytes")
        if not (self.on_drift is None or callable(self.on_drift)):
            do = "Give a function of a DriftReport"
            raise InvalidArgument(f"on_drift is {self.on_drift!r}", do=do)


class ShadowedView(EngineView, Protocol):
    """An engine of which a share of the calls is looked at, until it is closed; also in ``with``.
    All else is the engine's.
    """

    def stats(self) -> ShadowStats:
        """As of now."""

    def drain(self, seconds: float = 60.0) -> bool:
        """Wait until every request that was taken is checked; whether it came to that in time."""

    def close(self) -> None:
        """No more requests are looked at; those that wait are given up."""

    def __enter__(self) -> ShadowedView: ...

    def __exit__(self, *raised: object) -> None: ...


class ShadowFlavour(Flavour[Plan]):
    """A flavour whose engines are looked at; also such as another flavour has loaded."""

    @abstractmethod
    def shadow(
        self, engine: EngineView, session: SessionView, options: ShadowOptions
    ) -> ShadowedView:
        """The engine, which itself stays as it is. Raises InvalidArgument,
        PlanCompatibilityError for one that cannot be looked at.
        """
