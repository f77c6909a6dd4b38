"""The face of ONNX Runtime's Python package over tactix:
``import tactix_bridges.onnxruntime as onnxruntime``.
"""

from tactix import __version__
from tactix_bridges.onnxruntime.errors import Fail, InvalidArgument, InvalidProtobuf, NoSuchFile
from tactix_bridges.onnxruntime.options import (
    ExecutionMode,
    GraphOptimizationLevel,
    RunOptions,
    SessionOptions,
)
from tactix_bridges.onnxruntime.providers import get_available_providers, get_device
from tactix_bridges.onnxruntime.session import InferenceSession, ModelMetadata, NodeArg
from tactix_bridges.onnxruntime.values import IOBinding, OrtValue

__all__ = [
    "ExecutionMode",
    "Fail",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "InvalidArgument",
    "InvalidProtobuf",
    "ModelMetadata",
    "NoSuchFile",
    "NodeArg",
    "OrtValue",
    "RunOptions",
    "SessionOptions",
    "__version__",
    "get_available_providers",
    "get_device",
]
