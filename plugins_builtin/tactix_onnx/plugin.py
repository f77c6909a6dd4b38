"""Networks from ONNX files. Imports stay inside the hooks, so that finding plugins is quick."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tactix.plugins.hookspecs import hookimpl

if TYPE_CHECKING:
    from tactix.contracts.importer import Converter, Importer


@hookimpl
def tactix_importers() -> list[Importer]:
    from tactix_onnx import importers

    return importers()


@hookimpl
def tactix_converters() -> list[Converter]:
    from tactix_onnx import converters

    return converters()
