"""What a plugin sees of engines and contexts, of this runtime or of another version's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from tactix.base.arrays import Array
from tactix.base.error_recorder import Recorded


class ContextView(Protocol):
    """Runs an engine, one run after the other."""

    name: str
    closed: bool

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Arrays by name in, new arrays by name out."""

    def close(self) -> None:
        """Give back memory and links; the context cannot run any more."""


class EngineView(Protocol):
    """A plan ready to run, shared by any number of contexts. Immutable; may be used from any
    thread.
    """

    name: str

    def __call__(self, /, *args: object, **named: object) -> object:
        """Arrays in, arrays out; each calling thread has a context of its own."""

    def create_execution_context(self) -> ContextView:
        """A context of the caller's own."""

    def inspect(self) -> dict[str, object]:
        """io, steps and memory as JSON. Raises PluginError where there is no inspector."""

    def save(self, path: str | Path) -> None:
        """Write the plan file. Raises ConfigError, OSError."""

    def inherit_recorder(self, parent: Recorded) -> None:
        """Report errors to what the parent reports to, unless told otherwise."""
