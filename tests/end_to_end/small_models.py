"""Small ONNX models from nodes, and what ONNX Runtime and tactix make of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

import tactix

Inputs = Mapping[str, tuple[Any, Sequence[Any]]]


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Inputs,
    outputs: Sequence[str],
    constants: Mapping[str, Any] | None = None,
    opset: int = 18,
) -> onnx.ModelProto:
    """``inputs``: dtype and shape by name; ``outputs`` are declared without a type where they are
    no input.
    """
    given = {k: helper.make_tensor_value_info(k, code(t), list(s)) for k, (t, s) in inputs.items()}
    graph = helper.make_graph(
        list(nodes),
        "small",
        list(given.values()),
        [given.get(name) or helper.make_empty_tensor_value_info(name) for name in outputs],
        [onnx.numpy_helper.from_array(np.asarray(a), k) for k, a in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def code(dtype: Any) -> int:
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def by_onnx_runtime(m: onnx.ModelProto, feeds: Mapping[str, Any]) -> list[Any]:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(
        m.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, dict(feeds)))


def engine(m: onnx.ModelProto, **how: Any) -> tactix.Engine:
    """Built without measuring unless ``level`` says so."""
    return tactix.build(m, **{"level": 0, **how})


def by_tactix(m: onnx.ModelProto, feeds: Mapping[str, Any], **how: Any) -> list[Any]:
    return list(engine(m, **how).create_execution_context().run(dict(feeds)).values())


def agree(
    m: onnx.ModelProto, feeds: Mapping[str, Any], tolerance: float = 1e-5, **how: Any
) -> None:
    """Assert that tactix gives what ONNX Runtime gives."""
    want, got = by_onnx_runtime(m, feeds), by_tactix(m, feeds, **how)
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        np.testing.assert_allclose(g, w, rtol=tolerance, atol=tolerance)
