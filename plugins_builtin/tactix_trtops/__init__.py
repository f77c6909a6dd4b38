"""Operators that ONNX files name after TensorRT's plugins: what each takes, and what it becomes.

No layer is theirs: each is a composition of tactix's, so that kernels for every device and rules
come with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tactix.contracts.importer import Converter
    from tactix_trtops.operator import PluginOperator

FAMILIES = (
    "detection",
    "proposals",
    "sampling",
    "pyramids",
    "normalization",
    "transformers",
    "moving",
)


def operators() -> list[PluginOperator]:
    """Every plugin that is known, in the order of the families."""
    from importlib import import_module

    return [o for f in FAMILIES for o in import_module(f"{__name__}.{f}").OPERATORS]


def converters() -> list[Converter]:
    """A converter for each name and each domain that exporters write it in."""
    return [c for o in operators() for c in o.converters()]
