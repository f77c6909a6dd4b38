"""How long work tells of itself, and how it is stopped."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class ProgressMonitor(Protocol):
    """Told how a build goes; may stop it. Called on the building thread."""

    def phase(self, name: str, total: int) -> None:
        """A phase begins, with so many steps (0: unknown)."""

    def step(self, name: str, done: int, message: str = "") -> None:
        """So many steps of the phase are done."""

    def finish(self, name: str) -> None:
        """The phase is over."""

    def cancelled(self) -> bool:
        """Whether to stop: what is chosen by then is kept, the rest is chosen by estimate.

        There is a plan then, too. A method that raises ends the build without one.
        """


class SilentProgress:
    """Shows nothing and never stops a build."""

    def phase(self, name: str, total: int) -> None: ...

    def step(self, name: str, done: int, message: str = "") -> None: ...

    def finish(self, name: str) -> None: ...

    def cancelled(self) -> bool:
        return False


class Quiet(SilentProgress):
    """Shows nothing, and stops where another monitor does."""

    def __init__(self, monitor: ProgressMonitor) -> None:
        self.cancelled = monitor.cancelled  # type: ignore[method-assign]
