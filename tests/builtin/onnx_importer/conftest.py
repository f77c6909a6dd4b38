"""Small ONNX models, and their import; the table of operator cases is importable from these tests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tactix.network.definition import NetworkDefinition
from tactix_onnx import converters, importers
from tactix_ops.layers import all_layers

sys.path.insert(0, str(Path(__file__).parent))

Import = Callable[..., NetworkDefinition]
Build = Callable[..., onnx.ModelProto]


@pytest.fixture(scope="session")
def imported() -> Import:
    """A function from a model to its network, with the built-in layers and converters."""
    layers = {x.key: x for x in all_layers()}
    table = {c.key: c for c in converters()}

    def load(
        source: Any, extra_layers: Sequence[Any] = (), extra_converters: Sequence[Any] = ()
    ) -> NetworkDefinition:
        net = NetworkDefinition({**layers, **{x.key: x for x in extra_layers}})
        importers()[0].load(source, net, {**table, **{c.key: c for c in extra_converters}})
        return net

    return load


@pytest.fixture(scope="session")
def model() -> Build:
    """A function from nodes, inputs (name: dtype and shape), constants and output names to a model."""

    def build(
        nodes: Sequence[onnx.NodeProto],
        inputs: dict[str, tuple[Any, Sequence[Any]]],
        outputs: Sequence[str],
        constants: dict[str, Any] | None = None,
        opset: int = 18,
        **more: Any,
    ) -> onnx.ModelProto:
        graph = onnx.helper.make_graph(
            list(nodes),
            "test",
            [
                onnx.helper.make_tensor_value_info(k, _code(t), list(s))
                for k, (t, s) in inputs.items()
            ],
            [onnx.helper.make_empty_tensor_value_info(name) for name in outputs],
            [onnx.numpy_helper.from_array(np.asarray(a), k) for k, a in (constants or {}).items()],
        )
        domains = {n.domain for n in nodes} | {""}
        opsets = [onnx.helper.make_opsetid(d, 1 if d else opset) for d in sorted(domains)]
        return onnx.helper.make_model(
            graph, opset_imports=more.pop("opset_imports", opsets), ir_version=10, **more
        )

    return build


def _code(dtype: Any) -> int:
    return (
        dtype if isinstance(dtype, int) else onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    )
