"""Numbers and types of inputs and outputs, held against onnx's description of each operator."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx.helper import make_function, make_node, make_opsetid

import tactix
from tactix.base.errors import ModelImportError
from tactix.base.logger import Logger, Severity

F32, F64, BF16 = np.float32, np.float64, ml_dtypes.bfloat16
OF_FLOATS = [
    "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Elu", "Exp", "Floor",
    "HardSigmoid", "LeakyRelu", "Log", "Reciprocal", "Round", "Selu", "Sigmoid", "Sin", "Sinh",
    "Softplus", "Softsign", "Sqrt", "Tan", "Tanh",
]  # fmt: skip


@pytest.mark.parametrize("op", OF_FLOATS)
@pytest.mark.parametrize("dtype", [np.int32, np.bool_])
def test_functions_of_floats_take_nothing_else(
    op: str, dtype: Any, imported: Any, model: Any
) -> None:
    nodes = [make_node(op, ["x"], ["y"], name="it")]
    words = rf"node 'it' \(ai.onnx::{op}, .*input 0 \(\w+\) 'x' is tensor.*takes.*Cast to float"
    with pytest.raises(ModelImportError, match=words):
        imported(model(nodes, {"x": (dtype, [2])}, ["y"]))
    assert imported(model(nodes, {"x": (F32, [2])}, ["y"])).nodes


@pytest.mark.parametrize(
    ("op", "inputs", "words"),
    [
        (
            "Add",
            {"x": F32, "w": F64},
            "input 0 'x' is tensor.float., and input 1 'w' tensor.double",
        ),
        ("Concat", {"x": F32, "w": F32, "z": F64}, "and input 2 'z' tensor.double.*one type .T."),
        ("Where", {"c": F32, "x": F32, "w": F32}, "input 0 .condition. 'c' .*Cast to bool"),
        ("Gather", {"x": F32, "i": F32}, "input 1 .indices. 'i' .*Cast to int64"),
        ("Add", {"x": F32}, "its inputs are 1: Add takes 2"),
        ("Relu", {"x": F32, "w": F32}, "its inputs are 2: Relu takes 1"),
        ("Concat", {}, "its inputs are 0: Concat takes 1 or more"),
        ("Clip", {f"x{i}": F32 for i in range(4)}, "its inputs are 4: Clip takes 1 to 3"),
        ("Add", {"x": F32, "": F32}, "input 1 .B. is missing: Add needs it"),
        ("Clip", {"": F32, "x": F32}, "input 0 .input. is missing"),
        ("SequenceLength", {"x": F32}, "input 0 .*is tensor.float.: SequenceLength takes seq"),
    ],
)
def test_what_an_operator_does_not_take_is_refused(
    op: str, inputs: dict[str, Any], words: str, imported: Any, model: Any
) -> None:
    attrs = {"axis": 0} if op == "Concat" else {}
    given = {k: (t, [2]) for k, t in inputs.items() if k}
    with pytest.raises(ModelImportError, match=words):
        imported(model([make_node(op, list(inputs), ["y"], **attrs)], given, ["y"]))


def test_results_that_no_operator_gives(imported: Any, model: Any) -> None:
    nodes = [make_node("Relu", ["x"], ["y", "z"])]
    with pytest.raises(ModelImportError, match="its outputs are 2: Relu gives at most 1"):
        imported(model(nodes, {"x": (F32, [2])}, ["y"]))


@pytest.mark.parametrize(
    ("op", "opset", "inputs"),
    [
        ("Relu", 12, {"x": BF16}),
        ("Add", 7, {"x": np.int8, "w": np.int8}),
        ("Pow", 7, {"x": F32, "w": np.int64}),
        ("BatchNormalization", 13, {"x": F32, "s": F64, "b": F64, "m": F64, "v": F64}),
    ],
)
def test_what_a_newer_version_permits_is_taken_with_a_warning(
    op: str, opset: int, inputs: dict[str, Any], model: Any
) -> None:
    m = model(
        [make_node(op, list(inputs), ["y"], name="it"), make_node(op, list(inputs), ["z"])],
        {k: (t, [2, 2] if k == "x" else [2]) for k, t in inputs.items()},
        ["y", "z"],
        opset=opset,
    )
    told: list[str] = []

    class Kept(Logger):
        def log(self, severity: Severity, msg: str) -> None:
            if severity == Severity.WARNING:
                told.append(msg)

    network = tactix.Builder(Kept()).import_model(m)
    assert len(network.nodes) == 2
    assert len(told) == 1
    assert f"{op} of ai.onnx {opset} is used as ai.onnx" in told[0]
    assert "node 'it': input" in told[0]


def test_what_may_be_left_out_and_of_any_type_is_taken(imported: Any, model: Any) -> None:
    nodes = [
        make_node("Clip", ["x", "", "m"], ["a"]),
        make_node("Resize", ["a", "", "s"], ["b"]),  # Resize-11 does not let roi out: 13 does
        make_node("Reshape", ["b", "n"], ["y"]),
    ]
    constants = {"m": np.array(1, F32), "s": np.array([1, 1, 2, 2], F32), "n": np.array([4, 4])}
    for opset in (11, 13, 18):
        net = imported(model(nodes, {"x": (F32, [1, 1, 2, 2])}, ["y"], constants, opset))
        assert net.outputs[0].spec.shape == (4, 4)


def test_states_of_a_loop_differ_in_type(imported: Any, model: Any) -> None:
    names = ("i", "c", "s", "t")
    kinds = (np.int64, np.bool_, F32, np.int32)
    info = [
        onnx.helper.make_tensor_value_info(n, onnx.helper.np_dtype_to_tensor_dtype(np.dtype(k)), [])
        for n, k in zip(names, kinds, strict=True)
    ]
    body = onnx.helper.make_graph(
        [make_node("Identity", [n], [f"{n}_"]) for n in names[1:]],
        "body",
        info,
        [onnx.helper.make_empty_tensor_value_info(f"{n}_") for n in names[1:]],
    )
    nodes = [make_node("Loop", ["n", "", "x", "w"], ["y", "z"], body=body)]
    inputs = {"n": (np.int64, []), "x": (F32, []), "w": (np.int32, [])}
    assert len(imported(model(nodes, inputs, ["y", "z"])).outputs) == 2


def test_a_function_of_the_model_has_no_description(imported: Any, model: Any) -> None:
    body = [make_node("Abs", ["a"], ["b"]), make_node("Add", ["b", "c"], ["d"])]
    own = make_function("f", "Sqrt", ["a", "c"], ["d"], body, [make_opsetid("", 18)])
    opsets = [make_opsetid("", 18), make_opsetid("f", 1)]
    nodes = [make_node("Sqrt", ["x", "x"], ["y"], domain="f")]
    m = model(nodes, {"x": (np.int32, [2])}, ["y"], functions=[own], opset_imports=opsets)
    assert len(imported(m).nodes) == 2
