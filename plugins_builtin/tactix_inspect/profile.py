"""What a profile of a plan says: the time of each step beside what the step must do at least."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tactix.base.errors import InvalidArgument

FORMAT = "tactix profile"
VERSION = 1


@dataclass(frozen=True)
class StepTime:
    """One step. ``seconds``: median over the runs. ``low``, ``high``: what one run in ten was
    under, and over. ``start``: median seconds after a run began. ``threads``: median seconds that
    each thread worked on it. ``makes``, ``consumes``: the model's tensors. ``nbytes``: read and
    written at least. ``flops``: multiplications and additions; 0 where none are counted.
    ``of_roofline``: the least time by the measured peaks over ``seconds``; None where no peak is
    known. ``inside``: the step whose body it is a step of, "" for one of the plan itself; its
    time is in that one's. ``times``: how often it ran in a run.
    """

    index: int
    name: str
    kind: str
    tactic: str
    seconds: float
    low: float
    high: float
    start: float
    threads: tuple[float, ...] = ()
    nbytes: int = 0
    flops: int = 0
    of_roofline: float | None = None
    makes: tuple[str, ...] = ()
    consumes: tuple[str, ...] = ()
    origin: tuple[str, ...] = ()
    inside: str = ""
    times: float = 1.0


@dataclass(frozen=True)
class Roofline:
    """Peaks of the device, measured there. ``flops``: per second, by the name of a dtype.
    ``nbytes``: read per second, of as many bytes as a run works on, from whatever cache holds them.
    """

    flops: Mapping[str, float]
    nbytes: float


@dataclass(frozen=True)
class PlanProfile:
    """Of a plan at some input shapes. ``seconds``, ``profiled``: medians of whole runs without and
    with timestamps. ``method``: what the times were taken by. ``plan``: its sha256, or "" for one
    that was not saved. ``roofline``: None where nothing was measured, for which ``no_roofline``
    tells the reason.
    """

    name: str
    plan: str
    device: Mapping[str, Any]
    threads: int
    runs: int
    method: str
    shapes: Mapping[str, tuple[int, ...]]
    seconds: float
    profiled: float
    steps: tuple[StepTime, ...]
    roofline: Roofline | None = None
    memory: Mapping[str, Any] = field(default_factory=dict)
    no_roofline: str = ""

    @property
    def in_steps(self) -> float:
        """Seconds of all steps together; what a run takes beyond is its call."""
        return sum(s.seconds for s in self.steps if not s.inside)

    def to_json(self) -> dict[str, Any]:
        """As ``from_json`` takes it."""
        return {"format": FORMAT, "version": VERSION, **asdict(self)}

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from tactix_inspect.pictures import profile_picture

        return profile_picture(self)

    @classmethod
    def from_json(cls, told: Any) -> PlanProfile:
        """Raises InvalidArgument for what is no profile."""
        if not isinstance(told, Mapping) or told.get("format") != FORMAT:
            raise InvalidArgument("no profile", do="Write one with tactix profile PLAN --json")
        if told.get("version") != VERSION:
            raise InvalidArgument(
                f"a profile of version {told.get('version')!r}", why=f"this is version {VERSION}"
            )
        facts = {k: v for k, v in told.items() if k not in ("format", "version")}
        try:
            roofline = facts.pop("roofline", None)
            return cls(
                **{**facts, "shapes": {k: tuple(s) for k, s in facts["shapes"].items()}}
                | {"steps": tuple(_step(s) for s in facts["steps"])},
                roofline=None if roofline is None else Roofline(**roofline),
            )
        except (TypeError, KeyError, AttributeError) as e:
            raise InvalidArgument("a damaged profile", why=str(e)[:200]) from None


LISTS = ("threads", "makes", "consumes", "origin")
NUMBERS = ("seconds", "low", "high", "start")


def _step(told: Mapping[str, Any]) -> StepTime:
    """Raises TypeError for times that are none."""
    for name in NUMBERS:
        if not isinstance(told[name], (int, float)) or not math.isfinite(told[name]):
            raise TypeError(f"{name} of a step is {told[name]!r:.40}")
    lists: dict[str, Sequence[Any]] = {k: tuple(told[k]) for k in LISTS if k in told}
    return StepTime(**{**told, **lists})
