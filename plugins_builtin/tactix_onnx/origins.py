"""Operators that nothing provides: where they usually come from, and what can be done."""

from __future__ import annotations

from typing import Any

from tactix.base.errors import PluginError
from tactix_onnx.catalog import MAIN, schema_of

_RUNTIME = (
    "It comes from ONNX Runtime's graph optimization: "
    "use the model before that, or save it at a lower level"
)
_TORCH = (
    "It is a function or operator of PyTorch that the export left as it is: "
    "export with a newer torch.onnx"
)
_EXTENSIONS = "It is an operator of onnxruntime-extensions: export without pre- and post-processing"

ORIGINS = {
    "com.microsoft": _RUNTIME,
    "com.microsoft.nchwc": _RUNTIME,
    "com.ms.internal.nhwc": _RUNTIME,
    "com.microsoft.extensions": _EXTENSIONS,
    "ai.onnx.contrib": _EXTENSIONS,
    "ai.onnx.preview.training": "It belongs to training: export the model for inference",
    "ai.onnx.training": "It belongs to training: export the model for inference",
    "org.pytorch.aten": _TORCH,
    "pkg.torch": _TORCH,
    "pkg.onnxscript.torch_lib": _TORCH,
    "qonnx.custom_op.general": "Of QONNX Quant, BipolarQuant and Trunc are known: export with "
    "QuantizeLinear and "
    "DequantizeLinear (in Brevitas export_onnx_qcdq)",
    "org.openvinotoolkit": "It is an operator of OpenVINO: export the model without its extensions",
    "trt.plugins": "It stands for a TensorRT plugin: export without such plugins",
}
"""By domain."""


def origin_of(domain: str, op: str, version: int, layers: Any) -> tuple[str, str]:
    """Why nothing provides an operator, and what to do. ``layers``: the network's, which know of
    packs not in use.
    """
    if domain == MAIN:
        if schema_of(domain, op, version) is None:
            return (
                f"ONNX has no such operator up to operator set {version}",
                "Export the model again",
            )
        return (
            "no installed plugin provides it",
            f"Install a pack with a converter or layer for {domain}::{op}",
        )
    why, do = _pack_of(domain, op, layers)
    cure = do or f"Install a pack with converters or layers for {domain}"
    origin = ORIGINS.get(domain)
    return why or "no installed plugin provides it", f"{origin}. {cure}" if origin else cure


def _pack_of(domain: str, op: str, layers: Any) -> tuple[str, str]:
    """Why a pack of the domain's name, or its layer for the operator, is not in use."""
    if lost := _clash_of(domain, op, layers):
        return f"no plugin in use provides it: {lost.what}: {lost.why}", lost.do
    entry = getattr(layers, "entry", None)
    if entry is None or "." in domain or ":" in domain:
        return "", ""
    try:
        entry(f"{domain}.{op}@0")
    except PluginError as e:
        if e.why.startswith("its "):  # a pack of that name is there
            return f"no plugin in use provides it: {e.why}", e.do
    return "", ""


def _clash_of(domain: str, op: str, layers: Any) -> PluginError | None:
    """What left out the layer of that name, or one that imports the operator."""
    word = f"onnx:{domain}::{op}"
    for key, clash in getattr(layers, "clashes", {}).items():
        imported = {w for e in clash.left_out for w in getattr(e.object, "imports", ())}
        if key.partition("@")[0] == f"{domain}.{op}" or word in imported:
            error: PluginError = clash.error()
            return error
    return None
