"""Functions of the model and of the operator set, and subgraphs: put in place of the node."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx.helper import make_function, make_node, make_opsetid

import tactix
from tactix.base.errors import ModelImportError, UnsupportedOperator
from tactix_sdk.evaluate import evaluate

F32 = np.float32
OPSETS = [make_opsetid("", 18), make_opsetid("local", 1)]
X = np.array([-2, -1, 1, 3], F32)


def _reference(name: str, attribute: str, kind: int) -> onnx.AttributeProto:
    return onnx.AttributeProto(name=name, ref_attr_name=attribute, type=kind)


def _leaky() -> onnx.FunctionProto:
    """local::Leaky(x; slope=0.5 by default)."""
    body = make_node("LeakyRelu", ["x"], ["y"], name="core")
    body.attribute.append(_reference("alpha", "slope", onnx.AttributeProto.FLOAT))
    default = [onnx.helper.make_attribute("slope", 0.5)]
    return make_function("local", "Leaky", ["x"], ["y"], [body], OPSETS, attribute_protos=default)


def test_attributes_of_the_call_reach_the_body(imported: Any, model: Any) -> None:
    nodes = [
        make_node("Leaky", ["x"], ["t"], name="a", domain="local"),
        make_node("Leaky", ["t"], ["y"], name="b", domain="local", slope=0.25),
    ]
    net = imported(
        model(nodes, {"x": (F32, ["n"])}, ["y"], opset_imports=OPSETS, functions=[_leaky()])
    )
    assert [n.name for n in net.nodes] == ["a/core", "b/core"]
    assert evaluate(net, {"x": X})["y"].tolist() == [-0.25, -0.125, 1, 3]


def test_functions_call_functions_and_may_lack_inputs(imported: Any, model: Any) -> None:
    inner = make_function(
        "local", "Shift", ["x", "by"], ["y"], [make_node("Clip", ["x", "by"], ["y"])], OPSETS
    )
    body = [
        make_node("Shift", ["x"], ["p"], domain="local"),
        make_node("ReduceMin", ["x"], ["low"], keepdims=0),
        make_node("Shift", ["x", "low"], ["q"], domain="local"),
    ]
    outer = make_function("local", "Twice", ["x"], ["p", "q"], body, OPSETS)
    nodes = [
        make_node("Twice", ["x"], ["a", "b"], domain="local"),
        make_node("Add", ["a", "b"], ["y"]),
    ]
    net = imported(
        model(nodes, {"x": (F32, [4])}, ["y"], opset_imports=OPSETS, functions=[outer, inner])
    )
    assert evaluate(net, {"x": X})["y"].tolist() == (2 * X).tolist()


def test_a_graph_that_a_call_gives_sees_the_names_around_the_call(model: Any) -> None:
    body = onnx.helper.make_graph(
        [make_node("Mul", ["a", "two"], ["twice"])],
        "body",
        [onnx.helper.make_tensor_value_info("a", onnx.TensorProto.FLOAT, None)],
        [onnx.helper.make_tensor_value_info("twice", onnx.TensorProto.FLOAT, None)],
    )
    nodes = [
        # names that ONNX's own body of a SequenceMap uses, too
        make_node("SequenceConstruct", ["x", "x"], ["out_sequence_0"]),
        make_node("SequenceMap", ["out_sequence_0"], ["r"], body=body),
        make_node("ConcatFromSequence", ["r"], ["y"], axis=0),
    ]
    made = model(nodes, {"x": (F32, ["n"])}, ["y"], {"two": F32(2)})
    engine = tactix.build(made, level=0, timing_cache=False)
    assert engine.run({"x": X})["y"].tolist() == (2 * X).tolist() * 2


def test_a_function_sees_no_names_but_its_own(imported: Any, model: Any) -> None:
    bad = make_function(
        "local", "Bad", ["x"], ["y"], [make_node("Add", ["x", "outside"], ["y"])], OPSETS
    )
    nodes = [
        make_node("Abs", ["x"], ["outside"]),
        make_node("Bad", ["outside"], ["y"], domain="local"),
    ]
    with pytest.raises(ModelImportError, match="'outside' is made by nothing"):
        imported(model(nodes, {"x": (F32, [4])}, ["y"], opset_imports=OPSETS, functions=[bad]))


def test_a_function_that_calls_itself_is_told(imported: Any, model: Any) -> None:
    loop = make_function(
        "local", "Loop", ["x"], ["y"], [make_node("Loop", ["x"], ["y"], domain="local")], OPSETS
    )
    m = model(
        [make_node("Loop", ["x"], ["y"], domain="local")],
        {"x": (F32, [4])},
        ["y"],
        opset_imports=OPSETS,
        functions=[loop],
    )
    with pytest.raises(ModelImportError, match="local::Loop calls itself"):
        imported(m)


def test_unsupported_operators_inside_functions_are_listed(imported: Any, model: Any) -> None:
    body = [
        make_node("Alien", ["x"], ["t"], name="deep", domain="acme"),
        make_node("Warble", ["t"], ["y"]),
    ]
    f = make_function("local", "F", ["x"], ["y"], body, [*OPSETS, make_opsetid("acme", 4)])
    nodes = [make_node("F", ["x"], ["y"], name="call", domain="local")]
    with pytest.raises(UnsupportedOperator) as e:
        imported(model(nodes, {"x": (F32, [4])}, ["y"], opset_imports=OPSETS, functions=[f]))
    assert "'call/deep' (acme::Alien, opset 4)" in str(e.value)
    assert "'call/Warble_1' (ai.onnx::Warble" in str(e.value)


def test_an_installed_layer_comes_before_the_models_function(imported: Any, model: Any) -> None:
    own = make_function("", "Relu", ["x"], ["y"], [make_node("Neg", ["x"], ["y"])], OPSETS)
    nodes = [make_node("Relu", ["x"], ["y"])]
    net = imported(model(nodes, {"x": (F32, [4])}, ["y"], opset_imports=OPSETS, functions=[own]))
    assert [n.layer.name for n in net.nodes] == ["Relu"]


def test_a_function_body_of_the_operator_set(imported: Any, model: Any) -> None:
    net = imported(
        model(
            [make_node("MeanVarianceNormalization", ["x"], ["y"])],
            {"x": (F32, ["n", 3, 4, 4])},
            ["y"],
        )
    )
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 4), F32)
    axes = (0, 2, 3)
    want = (x - x.mean(axes, keepdims=True)) / x.std(axes, keepdims=True)
    assert np.allclose(evaluate(net, {"x": x})["y"], want, atol=1e-5)


def test_a_body_that_depends_on_types(imported: Any, model: Any) -> None:
    nodes = [make_node("Attention", ["q", "k", "v"], ["y"], is_causal=1, scale=0.5)]
    shape = (F32, ["b", 2, "s", 4])
    net = imported(model(nodes, {"q": shape, "k": shape, "v": shape}, ["y"], opset=23))
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((3, 2, 5, 4), F32) for _ in "qkv")
    scores = 0.5 * q @ k.swapaxes(-1, -2) + np.where(np.tri(5) > 0, 0, -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    want = p / p.sum(-1, keepdims=True) @ v
    assert np.allclose(evaluate(net, {"q": q, "k": k, "v": v})["y"], want, atol=1e-5)


def _branching(
    condition: list[onnx.NodeProto], inputs: dict[str, Any], model: Any
) -> onnx.ModelProto:
    def graph(op: str) -> onnx.GraphProto:
        node = make_node(op, ["t"], [f"{op}_out"])
        return onnx.helper.make_graph(
            [node], op, [], [onnx.helper.make_empty_tensor_value_info(f"{op}_out")]
        )

    branch = make_node(
        "If", ["c"], ["y"], name="if", then_branch=graph("Exp"), else_branch=graph("NonZero")
    )
    out: onnx.ModelProto = model(
        [make_node("Abs", ["x"], ["t"]), *condition, branch], inputs, ["y"]
    )
    return out


def test_a_branch_that_shapes_decide_is_taken(imported: Any, model: Any) -> None:
    condition = [
        make_node("Size", ["x"], ["n"]),
        make_node("Constant", [], ["zero"], value_int=-1),
        make_node("Greater", ["n", "zero"], ["c"]),
    ]
    net = imported(_branching(condition, {"x": (F32, ["n", 3])}, model))
    assert [n.layer.name for n in net.nodes] == ["Abs", "Exp"]


def test_branches_that_data_decides_between_are_of_one_type(imported: Any, model: Any) -> None:
    with pytest.raises(
        UnsupportedOperator, match=r"'if'.*output 0 of its branches is f32.* and i64"
    ):
        imported(_branching([], {"x": (F32, ["n", 3]), "c": (np.bool_, [])}, model))
