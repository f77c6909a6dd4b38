"""The command line. Imports stay inside the hooks, so that finding plugins is quick."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tactix.plugins.hookspecs import hookimpl

if TYPE_CHECKING:
    from tactix.contracts.tool import Tool


@hookimpl
def tactix_tools() -> list[Tool]:
    from tactix_tools import tools

    return tools()
