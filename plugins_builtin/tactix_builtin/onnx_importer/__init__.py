"""ONNX files to networks: the importer, and one converter per operator that is not a layer under its own name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tactix.contracts.importer import Converter, Importer

FAMILIES = (
    "ops_math", "ops_nn", "ops_attention", "ops_shape", "ops_index", "ops_reduce", "ops_generate", "ops_resize",
    "ops_quantize", "ops_signal", "ops_selection", "ops_training", "ops_legacy", "ops_ml", "ops_svm", "ops_trees",
    "ops_microsoft", "ops_microsoft_attention", "ops_microsoft_quantized", "ops_text", "ops_image", "ops_random",
    "ops_gradient", "ops_control", "ops_sequence", "ops_refused",
)  # fmt: skip


def importers() -> list[Importer]:
    """The ONNX importer."""
    from tactix_builtin.onnx_importer.importer import OnnxImporter

    return [OnnxImporter()]


def converters() -> list[Converter]:
    """Every built-in converter of ONNX operators."""
    from importlib import import_module

    return [c for family in FAMILIES for c in import_module(f"{__name__}.{family}").CONVERTERS]
