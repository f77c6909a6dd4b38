"""What looks on while a plan runs, so that its steps run one by one."""

from __future__ import annotations

from dataclasses import dataclass

from tactix.run.observed import StepObserver
from tactix.run.segments import Profiler


@dataclass(frozen=True)
class Watchers:
    """``profiler``: what is told how long each step takes; not while there is an ``observer``,
    which runs the steps.
    """

    profiler: Profiler | None = None
    observer: StepObserver | None = None

    @property
    def is_off(self) -> bool:
        return self.profiler is None and self.observer is None


UNWATCHED = Watchers()
