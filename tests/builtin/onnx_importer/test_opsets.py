"""The same small network in every operator set from 7 on: attributes become inputs, and mean the
same.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.helper import make_node

from tactix_sdk.evaluate import evaluate

OPSETS = (7, 8, 9, 10, 11, 12, 13, 14, 16, 17, 18, 19, 20, 21, 22, 23)


def _array(value: Any) -> Any:
    return np.asarray(value, np.float32 if isinstance(value, float) else np.int64)


class Writer:
    """Nodes of one operator set; parameters go where that set wants them."""

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Any] = {}

    def node(self, op: str, inputs: list[str], out: str | list[str], **attrs: Any) -> None:
        self.nodes.append(make_node(op, inputs, [out] if isinstance(out, str) else out, **attrs))

    def moved(
        self, op: str, x: str, out: Any, since: int, parameters: dict[str, Any], **attrs: Any
    ) -> None:
        """``parameters`` are attributes before ``since``, then constant inputs in this order."""
        if self.opset < since:
            self.node(op, [x], out, **parameters, **attrs)
            return
        names = []
        for key, value in parameters.items():
            names.append(f"{x}_{op}_{key}")
            self.constants[names[-1]] = value if isinstance(value, np.ndarray) else _array(value)
        self.node(op, [x, *names], out, **attrs)


def network(opset: int) -> Writer:
    """x (n, 3, 8, 8) through every operator whose form has changed; y (n, k)."""
    w = Writer(opset)
    rng = np.random.default_rng(1)
    for name, shape in {
        "w": (6, 3, 3, 3),
        "scale": (6,),
        "bias": (6,),
        "mean": (6,),
        "var": (6,),
    }.items():
        w.constants[name] = rng.uniform(0.2, 1.5, shape).astype(np.float32)
    w.node("Conv", ["x", "w"], "a", pads=[1, 1, 1, 1])
    w.node("BatchNormalization", ["a", "scale", "bias", "mean", "var"], "b")
    w.moved("Clip", "b", "c", 11, {"min": -0.5, "max": 2.0})
    if opset < 10:
        w.moved(
            "Upsample", "c", "d", 9, {"scales": np.array([1, 1, 2, 2], np.float32)}, mode="nearest"
        )
    else:
        w.constants["scales"] = np.array([1, 1, 2, 2], np.float32)
        w.constants["roi"] = np.zeros(0, np.float32)
        scales = ["scales"] if opset == 10 else ["roi", "scales"]
        newer = (
            {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
            if opset > 10
            else {}
        )
        w.node("Resize", ["c", *scales], "d", mode="nearest", **newer)
    w.moved("Slice", "d", "e", 10, {"starts": [1, 2], "ends": [100, -1], "axes": [2, 3]})
    w.moved("Pad", "e", "f", 11, {"pads": [0, 0, 1, 0, 0, 0, 0, 2], "value": 0.5})
    w.node("Dropout", ["f"], "g")
    w.moved("Split", "g", ["h0", "h1"], 13, {"split": [2, 4]}, axis=1)
    w.moved("ReduceMean", "h1", "i", 18, {"axes": [2, 3]}, keepdims=1)
    w.moved("Squeeze", "i", "j", 13, {"axes": [2, 3]})
    w.moved("Unsqueeze", "j", "k", 13, {"axes": [1]})
    w.moved("ReduceSum", "k", "l", 13, {"axes": [1]}, keepdims=0)
    w.node("Softmax", ["l"], "m", axis=1)
    w.node("Flatten", ["h0"], "o")
    w.moved("TopK", "o", ["p", "q"], 10, {"k": 3 if opset < 10 else [3]}, axis=1)
    w.node("Concat", ["m", "p"], "y", axis=1)
    return w


@pytest.mark.parametrize("opset", OPSETS)
def test_means_the_same(opset: int, imported: Any, model: Any) -> None:
    import onnxruntime as ort

    w = network(opset)
    m = model(w.nodes, {"x": (np.float32, ["n", 3, 8, 8])}, ["y"], w.constants, opset=opset)
    x = np.random.default_rng(2).standard_normal((3, 3, 8, 8), np.float32)
    want = ort.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        ["y"], {"x": x}
    )[0]
    net = imported(m)
    assert np.allclose(evaluate(net, {"x": x})["y"], want, atol=1e-5)
    assert net.outputs[0].spec.shape == (net.inputs[0].spec.shape[0], 7)


def test_every_operator_set_gives_the_same_layers(imported: Any, model: Any) -> None:
    def layers(opset: int) -> list[tuple[str, Any]]:
        w = network(opset)
        net = imported(
            model(w.nodes, {"x": (np.float32, ["n", 3, 8, 8])}, ["y"], w.constants, opset=opset)
        )
        return [(n.layer.name, _as_since_11(n.attrs)) for n in net.nodes]

    first = layers(11)
    for opset in OPSETS:
        assert layers(opset) == first


def _as_since_11(attrs: Any) -> Any:
    """The first Resize has a way of rounding of its own, which is ``floor`` along axes that grow."""
    simple = getattr(attrs, "nearest_mode", "") == "simple"
    return dataclasses.replace(attrs, nearest_mode="floor") if simple else attrs


X = np.random.default_rng(3).standard_normal((2, 3, 6, 5)).astype(np.float32)

EXPERIMENTS: list[tuple[str, dict[str, Any]]] = [
    ("ImageScaler", {"scale": 0.5, "bias": [1.0, -2.0, 3.0]}),
    ("Crop", {"border": [1, 2, 1, 0]}),
    ("Crop", {"border": [1, 2, 0, 0], "scale": [3, 2]}),
]


@pytest.mark.parametrize(("op", "attrs"), EXPERIMENTS)
def test_experiments_of_the_first_operator_set(
    op: str, attrs: dict[str, Any], imported: Any, model: Any
) -> None:
    import onnxruntime as ort

    proto = model([make_node(op, ["x"], ["y"], **attrs)], {"x": (X.dtype, X.shape)}, ["y"], opset=9)
    proto.graph.output[0].CopyFrom(
        onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    )
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    (want,) = session.run(None, {"x": X})
    np.testing.assert_allclose(evaluate(imported(proto), {"x": X})["y"], want, rtol=1e-6)
