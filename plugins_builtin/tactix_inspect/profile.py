"""What a profile of a plan says: the time of each step beside what the step must do at least."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Any

from tactix.base.errors import InvalidArgument

FORMAT = "tactix profile"
AGAIN = "Write one with tactix profile PLAN --json"
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
class CopyTime:
    """Of a tensor between the host's memory and the device's. ``into``: whether to the device.
    ``seconds``: median, by the host's clock, of memory that is not pinned.
    """

    name: str
    into: bool
    nbytes: int
    seconds: float


@dataclass(frozen=True)
class Roofline:
    """Peaks of the device, measured there: the best of several rounds. ``flops``: per second, by
    the name of a dtype. ``nbytes``: read per second, of as many bytes as a run works on, from
    whatever cache holds them. ``spread``: by what share of its best the rate that varied most was
    lower in its second best round; much where other work delays what is measured.
    """

    flops: Mapping[str, float]
    nbytes: float
    spread: float = 0.0


@dataclass(frozen=True)
class PlanProfile:
    """Of a plan at some input shapes. ``seconds``, ``profiled``: medians of whole runs without and
    with timestamps. ``method``: what the times were taken by. ``plan``: its sha256, or "" for one
    that was not saved. ``roofline``: None where nothing was measured, for which ``no_roofline``
    tells the reason. ``copies``: of inputs and outputs, which are no part of ``seconds``; none
    where the device reads the host's memory.
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
    copies: tuple[CopyTime, ...] = ()

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
    def from_json(cls, told: Any, file: str = "") -> PlanProfile:
        """``file``: where it is from. Raises InvalidArgument, which names that, for what is no
        profile.
        """
        if not isinstance(told, Mapping) or told.get("format") != FORMAT:
            raise InvalidArgument("no profile", who=file, do=AGAIN)
        if told.get("version") != VERSION:
            raise InvalidArgument(
                f"a profile of version {told.get('version')!r}",
                who=file,
                why=f"this is version {VERSION}",
                do=AGAIN,
            )
        facts = {k: v for k, v in told.items() if k not in ("format", "version")}
        try:
            _check(cls, facts, "the profile")
            _numbers(facts, ("seconds", "profiled"), "the profile")
            roofline = facts.pop("roofline", None)
            if roofline is not None:
                _check(Roofline, roofline, "the roofline")
            shapes = _mapping(facts["shapes"], "shapes of the profile")
            steps = tuple(_step(i, s) for i, s in enumerate(_list(facts["steps"], "steps")))
            copies = tuple(
                _copy(i, c) for i, c in enumerate(_list(facts.get("copies", []), "copies"))
            )
            return cls(
                **{
                    **facts,
                    "shapes": {k: tuple(_list(s, f"shape of {k!r}")) for k, s in shapes.items()},
                    "steps": steps,
                    "copies": copies,
                    "roofline": None if roofline is None else Roofline(**roofline),
                }
            )
        except _Damage as e:
            raise InvalidArgument("a damaged profile", who=file, why=str(e), do=AGAIN) from None


LISTS = ("threads", "makes", "consumes", "origin")
NUMBERS = ("seconds", "low", "high", "start")


class _Damage(Exception):
    """What of a profile is not as it should be."""


def _step(index: int, told: Any) -> StepTime:
    """Raises _Damage."""
    name = f"step {index}"
    _check(StepTime, told, name)
    _numbers(told, NUMBERS, name)
    lists: dict[str, Sequence[Any]] = {
        k: tuple(_list(told[k], f"{k} of {name}")) for k in LISTS if k in told
    }
    return StepTime(**{**told, **lists})


def _copy(index: int, told: Any) -> CopyTime:
    """Raises _Damage."""
    name = f"copy {index}"
    _check(CopyTime, told, name)
    _numbers(told, ("seconds", "nbytes"), name)
    return CopyTime(**told)


def _check(kind: type[Any], told: Any, name: str) -> None:
    """Whether these are fields of a dataclass, and all that it needs. Raises _Damage."""
    known = {f.name: f for f in fields(kind)}
    for key in _mapping(told, name):
        if key not in known:
            raise _Damage(f"{name} has {key!r:.40}, which no profile has")
    for key, f in known.items():
        if key not in told and f.default is MISSING and f.default_factory is MISSING:
            raise _Damage(f"{name} has no {key!r}")


def _numbers(told: Mapping[str, Any], keys: Sequence[str], name: str) -> None:
    for key in keys:
        if not isinstance(told[key], (int, float)) or not math.isfinite(told[key]):
            raise _Damage(f"{key} of {name} is {told[key]!r:.40}")


def _mapping(told: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(told, Mapping):
        raise _Damage(f"{name}: no object but {told!r:.40}")
    return told


def _list(told: Any, name: str) -> Sequence[Any]:
    if not isinstance(told, (list, tuple)):
        raise _Damage(f"{name}: no list but {told!r:.40}")
    return told
