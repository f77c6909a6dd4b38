"""What the two processes tell each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tactix.contracts.shadow import StepDrift
from tactix_inspect.agreement import Agreement


@dataclass(frozen=True)
class CheckedRequest:
    """What comparing one request gave. ``seconds``: of this process, to compute and compare."""

    outputs: tuple[Agreement, ...]
    seconds: float


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
