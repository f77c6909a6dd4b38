"""The command line. A tool's module is imported when the tool is used."""

from __future__ import annotations

from tactix.plugins.pack import BasePack
from tactix_tools import tools

pack = BasePack("tactix")
for tool in tools():
    pack.tool(tool)
