"""Tool: a subcommand of the command line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Tool:
    """``name`` of the subcommand; ``command()`` gives a click command (imported when used);
    ``help`` in one line.
    """

    name: str
    help: str
    command: Callable[[], object]

    @property
    def key(self) -> str:
        return self.name
