"""Q/DQ around products and convolutions, as quantizers write them, with made-up scales: nothing is
run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPERATORS = {"Conv": 0, "MatMul": 1, "Gemm": 1}
"""Operators whose weight, the second input, is quantized, and the axis of its output channels."""
SCALE = 0.05


def quantized(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with Q/DQ before the first inputs of OPERATORS, and weights in int8 by channel;
    opset 13 at least.
    """
    out = onnx.ModelProto()
    out.CopyFrom(model)
    graph = out.graph
    weights = {t.name: t for t in graph.initializer}
    nodes, new = list(graph.node), list[onnx.TensorProto]()
    del graph.node[:]
    new += [_tensor("replay_scale", np.float32(SCALE)), _tensor("replay_zero", np.int8(0))]
    done: set[str] = set()
    for n in nodes:
        if n.op_type in OPERATORS and len(n.input) > 1 and n.input[1] in weights:
            graph.node.extend(_activation(n.input[0], done))
            transposed = any(a.name == "transB" and a.i for a in n.attribute)
            axis = 0 if transposed else OPERATORS[n.op_type]
            graph.node.extend(_weight(weights[n.input[1]], axis, done, new))
            n.input[0], n.input[1] = f"{n.input[0]}/dq", f"{n.input[1]}/dq"
        graph.node.append(n)
    graph.initializer.extend(new)
    return out


def _activation(name: str, done: set[str]) -> Iterator[onnx.NodeProto]:
    if name not in done:
        done.add(name)
        yield _node("QuantizeLinear", name, ("replay_scale", "replay_zero"), f"{name}/q")
        yield _node("DequantizeLinear", f"{name}/q", ("replay_scale", "replay_zero"), f"{name}/dq")


def _weight(
    weight: TensorProto, axis: int, done: set[str], new: list[TensorProto]
) -> Iterator[onnx.NodeProto]:
    """A quantized initializer, and the node that widens it again."""
    if weight.name in done:
        return
    done.add(weight.name)
    array = numpy_helper.to_array(weight)
    rest = tuple(i for i in range(array.ndim) if i != axis)
    scale = (np.abs(array).max(axis=rest, keepdims=True) / 127 + 1e-8).astype(np.float32)
    new.append(
        _tensor(f"{weight.name}/q", np.clip(np.round(array / scale), -127, 127).astype(np.int8))
    )
    new.append(_tensor(f"{weight.name}/scale", scale.ravel()))
    new.append(_tensor(f"{weight.name}/zero", np.zeros(scale.size, np.int8)))
    given = (f"{weight.name}/scale", f"{weight.name}/zero")
    yield _node("DequantizeLinear", f"{weight.name}/q", given, f"{weight.name}/dq", axis=axis)


def _node(
    kind: str, first: str, rest: Sequence[str], output: str, **attributes: int
) -> onnx.NodeProto:
    return helper.make_node(kind, [first, *rest], [output], name=output, **attributes)


def _tensor(name: str, array: np.ndarray) -> TensorProto:
    return numpy_helper.from_array(np.asarray(array), name)
