"""``tactix debug``: where a plan departs from what it should compute, and what to do about it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

import click

COMMANDS: Mapping[str, str] = {
    "layers": "debug_layers",
    "precision": "debug_precision",
    "reduce": "debug_reduce",
}
"""Module of this pack by subcommand; it is imported when the subcommand is used."""


class LazyGroup(click.Group):
    """Looks for a subcommand, called ``command`` in its module, when it is asked for it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        found = importlib.import_module(f"tactix_tools.{COMMANDS[name]}").command
        assert isinstance(found, click.Command)
        return found


@click.command("debug", cls=LazyGroup)
def command() -> None:
    """Find the layer where a plan or a model goes wrong."""
