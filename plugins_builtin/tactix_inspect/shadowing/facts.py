"""What the two processes tell each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tactix.contracts.shadow import StepDrift
from tactix_inspect.agreement import Agreement


@dataclass(frozen=True)
class ReferencePace:
    """How the references rest: as ``ShadowOptions`` have it."""

    load: float
    pause: float


@dataclass(frozen=True)
class Sample:
    """A request and its answer. ``number``: of the request, from 1."""

    number: int
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]


@dataclass(frozen=True)
class CheckedRequest:
    """What comparing one request gave. ``seconds``: of this process, to compute and compare."""

    outputs: tuple[Agreement, ...]
    seconds: float

    @property
    def departs(self) -> bool:
        return not all(a.passed for a in self.outputs)


@dataclass(frozen=True)
class LookedAt:
    """Steps that departed by themselves, in order. ``seconds``: as of ``CheckedRequest``."""

    steps: tuple[StepDrift, ...]
    seconds: float


@dataclass(frozen=True)
class StepResult:
    """What the engine's own kernels gave for one step: its outputs as linear arrays."""

    step: str
    tactic: str
    outputs: Sequence[Any]


@dataclass(frozen=True)
class PlanWanted:
    """Samples from here on are of the next plan: what the references say to get it."""


@dataclass(frozen=True)
class Departed:
    """The sample in the ``place``-th place departs: what the references say to be told how to go
    on.
    """

    place: int
    checked: CheckedRequest
