"""ONNX files to networks: the importer, and one converter per operator that is not a layer under
its own name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tactix.contracts.importer import Converter, Importer

FAMILIES = (
    "ai_onnx.math",
    "ai_onnx.nn",
    "ai_onnx.attention",
    "ai_onnx.shape",
    "ai_onnx.index",
    "ai_onnx.reduce",
    "ai_onnx.generate",
    "ai_onnx.resize",
    "ai_onnx.quantize",
    "ai_onnx.signal",
    "ai_onnx.selection",
    "training.optimizers",
    "ai_onnx.legacy",
    "ai_onnx_ml.classical",
    "ai_onnx_ml.svm",
    "ai_onnx_ml.trees",
    "com_microsoft.compositions",
    "com_microsoft.attention",
    "com_microsoft.quantized",
    "qonnx.quant",
    "ai_onnx.text",
    "ai_onnx.image",
    "ai_onnx.random",
    "training.gradient",
    "ai_onnx.control",
    "ai_onnx.sequence",
    "ops_refused",
)


def importers() -> list[Importer]:
    """The ONNX importer."""
    from tactix_onnx.importer import OnnxImporter

    return [OnnxImporter()]


def converters() -> list[Converter]:
    """Every built-in converter of ONNX operators."""
    from importlib import import_module

    return [c for family in FAMILIES for c in import_module(f"{__name__}.{family}").CONVERTERS]
