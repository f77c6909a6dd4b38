"""The subcommands of the command line. A tool's module is imported when the tool is used."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from tactix.contracts.tool import Tool

_TOOLS = {
    "build": "Build a plan of a model.",
    "lock": "Write down what a build chose, to build the same bytes again.",
    "run": "Run a plan or a model once and show or save the outputs.",
    "bench": "Measure latency and throughput of a plan or a model.",
    "profile": "Tell where the time of a run goes, step by step.",
    "inspect": "Show what is in a plan or a model.",
    "explain": "Tell why a plan is as it is.",
    "check": "Say whether a plan can run here, and why not.",
    "export": "Write a plan as ONNX or a C library, or its layers as JSON.",
    "diff": "Tell two plans apart.",
    "report": "Write a plan as one HTML file to look at.",
    "compare": "Compare a model's outputs with ONNX Runtime or another reference.",
    "debug": "Find the layer where a plan or a model goes wrong.",
    "lean-wheel": "Write the wheel of the lean runtime.",
    "plugins": "Show the installed plugins.",
    "quantize": "Write a model whose layers read 8 bits, or whose weights have few.",
    "refit": "Give a plan other weights.",
    "refit-map": "Find out which tensor of a checkpoint each weight of a model is.",
    "sign": "Sign a plan, so that its code runs where the key is trusted.",
    "verify": "Check a plan's bytes and its signature.",
    "trust": "Trust a plan by its digest.",
    "trtexec": "Build and measure by the flags of TensorRT's trtexec.",
    "keys": "Keys that sign plans, and keys that are trusted.",
}


def tools() -> list[Tool]:
    """All built-in tools."""
    return [Tool(name, help, _command(name)) for name, help in _TOOLS.items()]


def _command(name: str) -> Callable[[], Any]:
    return lambda: importlib.import_module(f"tactix_tools.{name.replace('-', '_')}").command
