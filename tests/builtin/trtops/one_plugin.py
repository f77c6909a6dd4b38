"""One node of a plugin by its converter, with fixed and with symbolic dims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from tactix.network.definition import NetworkDefinition
from tactix_onnx import importers
from tactix_ops.layers import all_layers
from tactix_sdk.evaluate import evaluate
from tactix_trtops import converters

LAYERS = {x.key: x for x in all_layers()}
CONVERTERS = {c.key: c for c in converters()}


def model(
    op: str,
    arrays: Sequence[Any],
    attrs: Mapping[str, Any],
    outputs: int = 1,
    domain: str = "",
    symbols: Mapping[int, str] | None = None,
    constants: Sequence[int] = (),
) -> onnx.ModelProto:
    """``symbols``: sizes of dims, and the symbol that stands for each. ``constants``: inputs that
    are initializers.
    """
    attrs = {
        k: onnx.numpy_helper.from_array(v, k) if isinstance(v, np.ndarray) else v
        for k, v in attrs.items()
    }
    names = [f"i{i}" for i in range(len(arrays))]
    out = [f"o{i}" for i in range(outputs)]
    node = onnx.helper.make_node(op, names, out, domain=domain, **attrs)
    named = symbols or {}
    given = [
        onnx.helper.make_tensor_value_info(
            f"i{i}",
            onnx.helper.np_dtype_to_tensor_dtype(a.dtype),
            [named.get(n, n) for n in a.shape],
        )
        for i, a in enumerate(arrays)
        if i not in constants
    ]
    stored = [onnx.numpy_helper.from_array(arrays[i], f"i{i}") for i in constants]
    results = [onnx.helper.make_empty_tensor_value_info(name) for name in out]
    graph = onnx.helper.make_graph([node], "g", given, results, stored)
    opsets = [onnx.helper.make_opsetid(d, 17 if not d else 1) for d in {"", domain}]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9)


def imported(proto: onnx.ModelProto) -> NetworkDefinition:
    net = NetworkDefinition(LAYERS)
    importers()[0].load(proto, net, CONVERTERS)
    return net


def run(op: str, arrays: Sequence[Any], outputs: int = 1, **options: Any) -> list[Any]:
    """Outputs of a node; ``options`` as those of ``model``, all others attributes."""
    own = {k: options.pop(k) for k in ("domain", "symbols", "constants") if k in options}
    proto = model(op, arrays, options, outputs, **own)
    stored = own.get("constants", ())
    feed = {f"i{i}": a for i, a in enumerate(arrays) if i not in stored}
    found = evaluate(imported(proto), feed)
    return [found[f"o{i}"] for i in range(outputs)]


def same(got: Sequence[Any], want: Sequence[Any], tolerance: float = 1e-5) -> None:
    """Dtypes and shapes are equal, numbers nearly."""
    for g, w in zip(got, want, strict=True):
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        np.testing.assert_allclose(
            g.astype(np.float64), w.astype(np.float64), rtol=tolerance, atol=tolerance
        )
