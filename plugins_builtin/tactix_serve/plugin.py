"""The command that serves. Heavy imports stay inside functions, so that finding plugins is
quick.
"""

from __future__ import annotations

from tactix.contracts.tool import Tool
from tactix.plugins.pack import BasePack

pack = BasePack("tactix")


def _command() -> object:
    from tactix_serve.command import command

    return command


pack.tool(Tool("serve", "Serve a folder of models over HTTP and gRPC.", _command))
