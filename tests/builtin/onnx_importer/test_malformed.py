"""Nodes whose inputs and attributes contradict each other: a typed error names the node, the
reason and a cure.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx.helper import make_function, make_node, make_opsetid, make_tensor_value_info

from tactix.base.errors import ModelImportError

F32, I64 = np.float32, np.int64
IMAGE = {"x": (F32, [1, 4, 8, 8])}
MATRIX = {"x": (F32, [3, 4])}
VECTOR = {"x": (F32, [4])}


def floats(*shape: int) -> Any:
    return np.ones(shape, F32)


def ints(*values: int) -> Any:
    return np.array(values, I64)


CASES: list[tuple[str, Any, dict[str, Any], dict[str, Any], str]] = [
    ("Conv", IMAGE, {"w": floats(5, 1, 3, 3)}, {"group": 4}, "what is left of 4 groups of channels is 1 and 0"),
    ("Conv", IMAGE, {"w": floats(4, 4, 3, 3)}, {"kernel_shape": [3]}, "names 1 axes.*have 2 spatial"),
    ("Conv", IMAGE, {"w": floats(4, 4, 3, 3)}, {"auto_pad": "SAME_UPPER", "pads": [1, 1, 1, 1]}, "auto_pad.*and pads"),
    ("Reshape", MATRIX, {"s": ints(3, 4).reshape(1, 2)}, {}, "input 1 's' is i64.1, 2.*takes a vector"),
    ("CumSum", MATRIX, {"a": ints(0, 1)}, {}, "input 1 'a' is i64.2.*takes one element"),
    ("Clip", VECTOR, {"a": floats(4)}, {}, "input 1 'a' is f32.4.*one element"),
    ("Trilu", MATRIX, {"k": ints(1, 2)}, {}, "'k'.*one element"),
    ("Trilu", VECTOR, {}, {}, "takes matrices, not f32.4"),
    ("EyeLike", {"x": (F32, [2, 2, 2])}, {}, {}, "takes a matrix, not f32.2, 2, 2"),
    ("Slice", MATRIX, {"s": ints(0, 0), "e": ints(2)}, {}, "2 starts, 1 ends, 2 axes, 2 steps"),
    ("Slice", MATRIX, {"s": ints(0), "e": ints(2), "a": ints(0), "t": ints(0)}, {}, "a step is 0"),
    ("Split", MATRIX, {"s": ints(1, 1, 1)}, {"axis": 0}, "its sizes are 3: it has 1 outputs"),
    ("Tile", MATRIX, {"r": ints(-1, 2)}, {}, "its result would be f32.-3, 8.*0 or more"),
    ("OneHot", {"x": (I64, [3])}, {"d": ints(3), "v": floats(3)}, {}, "its values are f32.3.*off and on"),
    ("Gather", {"x": (F32, [])}, {"k": ints(0)}, {}, "axis 0 of a tensor of rank 0"),
    ("Det", MATRIX, {}, {}, "number of rows and columns is 3 and 4"),
    ("NonMaxSuppression", {"x": (F32, [1, 4, 3]), "s": (F32, [1, 1, 4])}, {}, {}, "numbers of a box is 3 and 4"),
    ("Einsum", MATRIX, {}, {"equation": "ij->ii"}, "not an einsum equation.*once"),
    ("QuantizeLinear", MATRIX, {"s": floats(4), "z": np.zeros(2, np.uint8)}, {}, "zero point"),
    ("DequantizeLinear", {"x": (np.uint8, [3, 4])}, {"s": floats(), "z": np.zeros(4, np.uint8)}, {}, "zero point"),
    ("DFT", {"x": (F32, [1, 8, 2])}, {}, {"axis": 1, "onesided": 1}, "real numbers alone.*onesided"),
    ("Resize", IMAGE, {"r": floats(0), "s": floats(2)}, {}, "has 2 scales: it resizes 4 axes"),
    ("Resize", IMAGE, {"r": floats(0), "s": np.array([1, 1, np.nan, 2], F32)}, {}, "its scales are"),
]  # fmt: skip


@pytest.mark.parametrize(("op", "inputs", "constants", "attrs", "words"), CASES)
def test_a_contradiction_is_told(
    op: str, inputs: Any, constants: Any, attrs: Any, words: str, imported: Any, model: Any
) -> None:
    nodes = [make_node(op, [*inputs, *constants], ["y"], name="it", **attrs)]
    with pytest.raises(ModelImportError, match=rf"node 'it' \(ai.onnx::{op}.*{words}") as raised:
        imported(model(nodes, inputs, ["y"], constants, 18))
    assert raised.value.do


def test_names_that_nothing_has_come_with_a_cure(imported: Any, model: Any) -> None:
    for nodes, words in (
        ([make_node("Abs", ["q"], ["y"], name="it")], "'it' .Abs.: tensor 'q' is made by nothing"),
        ([make_node("Abs", ["x"], ["y"]), make_node("Neg", ["x"], ["y"])], "two nodes make"),
        ([make_node("Abs", ["x"], ["t"])], "'y' is made by nothing: no input, initializer"),
    ):
        with pytest.raises(ModelImportError, match=words) as raised:
            imported(model(nodes, MATRIX, ["y"]))
        assert "name" in raised.value.do


def test_a_call_with_more_than_a_function_has(imported: Any, model: Any) -> None:
    own = make_function(
        "f", "F", ["a"], ["b"], [make_node("Abs", ["a"], ["b"])], [make_opsetid("", 18)]
    )
    opsets = [make_opsetid("", 18), make_opsetid("f", 1)]
    for given, results, words in (
        (["x", "x"], ["y"], "its inputs are 2: the function has 1"),
        (["x"], ["y", "z"], "its outputs are 2: the function has 1"),
    ):
        nodes = [make_node("F", given, results, domain="f")]
        m = model(nodes, MATRIX, ["y"], functions=[own], opset_imports=opsets)
        with pytest.raises(ModelImportError, match=words):
            imported(m)


def test_an_output_of_another_type_than_it_is_declared(imported: Any, model: Any) -> None:
    m = model([make_node("Abs", ["x"], ["y"])], MATRIX, ["y"])
    m.graph.output[0].CopyFrom(make_tensor_value_info("y", onnx.TensorProto.INT64, [3, 4]))
    with pytest.raises(ModelImportError, match="output 'y': it is declared as i64, and is f32"):
        imported(m)
