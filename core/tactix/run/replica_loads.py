"""How much the replicas of an engine have to do, and which of them can do nothing any more."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from tactix.base.errors import AllocationError, DeviceLost, ExecutionError, TactixError


@dataclass(frozen=True)
class ReplicaState:
    """``device``: its label. ``running``: runs that are under way. ``ended``: that were, with those
    that failed. ``lost``: why it gets no more; empty as long as it does.
    """

    device: str
    running: int
    ended: int
    lost: str = ""


class ReplicaLoads:
    """Counts runs by replica, from any thread. ``labels``: of the devices."""

    def __init__(self, labels: Sequence[str]) -> None:
        self.labels = tuple(labels)
        self._lock = threading.Lock()
        self._running, self._ended = [0] * len(labels), [0] * len(labels)
        self._lost: dict[int, str] = {}

    def usable(self) -> list[int]:
        """Replicas whose devices are not lost; all of them where all are, so that a run tells."""
        every = range(len(self.labels))
        return [i for i in every if i not in self._lost] or list(every)

    def begin(self, homes: Sequence[int]) -> int:
        """Count a run on that of these replicas which has the fewest; which it is."""
        with self._lock:
            home = min(homes, key=self._running.__getitem__)
            self._running[home] += 1
            return home

    def end(self, home: int) -> None:
        with self._lock:
            self._running[home] -= 1
            self._ended[home] += 1

    def failed(self, home: int, error: BaseException) -> None:
        """Let an error that the device may have caused name it; note a device that is lost."""
        if isinstance(error, (ExecutionError, AllocationError)):
            named(error, self.labels[home])
        if isinstance(error, DeviceLost):
            with self._lock:
                self._lost[home] = str(error)

    def states(self) -> tuple[ReplicaState, ...]:
        """As of now."""
        with self._lock:
            rows = zip(self.labels, self._running, self._ended, strict=True)
            return tuple(ReplicaState(*r, self._lost.get(i, "")) for i, r in enumerate(rows))


def named(error: TactixError, label: str) -> None:
    """Let an error say on which device it happened."""
    if label not in error.who:
        error.who = f"{error.who} on {label}" if error.who else label
