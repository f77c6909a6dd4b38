"""Types of a model's tensors as the onnx package infers them, in a process of its own: a damaged
model may end that.
"""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

PATIENCE = 60
"""Seconds after which inference is given up."""

LARGEST = 256 << 20
"""Most bytes of a model without its weights that is sent there."""

SMALL = 1024
"""So many elements of a weight may be a shape: larger ones are sent without their content."""

PROGRAM = """
import sys, onnx
model = onnx.load_model_from_string(sys.stdin.buffer.read())
inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
sys.stdout.buffer.write(inferred.SerializeToString())
"""


def inferred(path: str | Path) -> dict[str, onnx.TypeProto]:
    """Types with shapes by the tensor's name; what onnx cannot tell is left out, all of it if
    inference fails.
    """
    import onnx
    from google.protobuf.message import DecodeError

    model = onnx.load(path, load_external_data=False)
    _drop_weights(model.graph)
    if model.ByteSize() > LARGEST:
        return {}
    try:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            input=model.SerializeToString(),
            capture_output=True,
            timeout=PATIENCE,
        )
        graph = onnx.load_model_from_string(done.stdout).graph
    except (OSError, subprocess.TimeoutExpired, DecodeError):
        return {}
    return {
        v.name: v.type
        for v in (*graph.value_info, *graph.output)
        if v.type.tensor_type.HasField("shape")
    }


def _drop_weights(graph: onnx.GraphProto) -> None:
    """Its weights that are no shapes lose their content, where that is in the file."""
    for t in graph.initializer:
        if math.prod(t.dims) > SMALL:
            for name in (
                "raw_data",
                "float_data",
                "int32_data",
                "int64_data",
                "double_data",
                "uint64_data",
            ):
                t.ClearField(name)
