"""The subcommands of the command line. A tool's module is imported when the tool is used."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from tactix.contracts.tool import Tool

_TOOLS = {
    "build": "Build a plan of a model.",
    "run": "Run a plan or a model once and show or save the outputs.",
    "bench": "Measure latency and throughput of a plan or a model.",
    "inspect": "Show what is in a plan or a model.",
    "compare": "Compare a model's outputs with ONNX Runtime or another reference.",
    "plugins": "Show the installed plugins.",
}


def tools() -> list[Tool]:
    """All built-in tools."""
    return [Tool(name, help, _command(name)) for name, help in _TOOLS.items()]


def _command(name: str) -> Callable[[], Any]:
    return lambda: importlib.import_module(f"tactix_builtin.tools.{name}").command
