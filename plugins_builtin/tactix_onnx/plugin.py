"""Networks from ONNX files: the package's functions import the rest."""

from __future__ import annotations

from tactix.plugins.pack import BasePack
from tactix_onnx import converters, importers

pack = BasePack("tactix")
pack.importer(importers)
pack.converter(converters)
