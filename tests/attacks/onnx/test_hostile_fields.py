"""Well-formed files with contradictions: each gets one refusal that names the thing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.helper import make_graph, make_node, make_opsetid, make_tensor, make_tensor_value_info
from onnx_hostile import F32, I64, Case, function, ints, model

import tactix

Refusal = Callable[[Any], tactix.TactixError]
RELU = make_node("Relu", ["x"], ["y"], name="relu")


def weight(dims: list[int], data: bytes = b"", code: int = F32, **fields: Any) -> onnx.TensorProto:
    return onnx.TensorProto(name="w", dims=dims, data_type=code, raw_data=data, **fields)


def typed(dims: list[int], code: int, **fields: Any) -> onnx.TensorProto:
    return onnx.TensorProto(name="w", dims=dims, data_type=code, **fields)


def adds(t: onnx.TensorProto) -> Callable[[], Any]:
    return lambda: model([make_node("Add", ["x", "w"], ["y"])], tensors=[t])


def sparse(dims: list[int], indices: np.ndarray, values: np.ndarray) -> Callable[[], Any]:
    def make() -> Any:
        m = model([make_node("Add", ["x", "w"], ["y"])])
        s = m.graph.sparse_initializer.add(dims=dims)
        s.values.CopyFrom(onnx.numpy_helper.from_array(values, "w"))
        s.indices.CopyFrom(onnx.numpy_helper.from_array(indices, "w_indices"))
        return m

    return make


def node(
    op: str, *shapes: list[Any], more: list[Any] | None = None, opset: int = 18, **attrs: Any
) -> Callable[[], Any]:
    """A model of one node over float inputs, then constants."""
    names = [f"x{i}" for i in range(len(shapes))]
    constants = {f"c{i}": v for i, v in enumerate(more or [])}
    made = make_node(op, [*names, *constants], ["y"], name="it", **attrs)
    return lambda: model(
        [made], dict(zip(names, shapes, strict=True)), constants=constants, opset=opset
    )


def changed(change: Callable[[Any], Any]) -> Callable[[], Any]:
    def make() -> Any:
        m = model([RELU])
        change(m)
        return m

    return make


def patched(old: bytes, new: bytes, make: Callable[[], Any]) -> Callable[[], Any]:
    """Other bytes in the file; the place must be there."""

    def patch() -> bytes:
        data = make().SerializeToString()
        assert old in data
        return bytes(data.replace(old, new))

    return patch


def twice(op: str, name: str) -> Callable[[], Any]:
    def make() -> Any:
        m = node(op, ["n", 4])()
        for _ in range(2):
            m.graph.node[0].attribute.append(onnx.helper.make_attribute(name, 1))
        return m

    return make


def versions(*opsets: tuple[str, int]) -> Callable[[], Any]:
    def change(m: Any) -> None:
        del m.opset_import[:]
        m.opset_import.extend([make_opsetid(*o) for o in opsets])

    return changed(change)


F = np.float32
WRONG = b"\xff\xfe\xfd\xfc"

GRAPHS: dict[str, Case] = {
    "a cycle": (lambda: model([make_node("Relu", ["b"], ["y"]), make_node("Relu", ["y"], ["b"])]), "cycle"),
    "a node that reads itself": (lambda: model([make_node("Add", ["x", "y"], ["y"], name="it")]), "cycle"),
    "two makers": (lambda: model([RELU, make_node("Abs", ["x"], ["y"])]), "two nodes make tensor 'y'"),
    "a node makes an input": (lambda: model([RELU, make_node("Abs", ["y"], ["x"])]), "'x' is made twice"),
    "two initializers": (
        lambda: model([make_node("Add", ["x", "w"], ["y"])], tensors=[weight([1], b"\0" * 4)] * 2), "named 'w'"
    ),
    "two inputs": (changed(lambda m: m.graph.input.append(m.graph.input[0])), "'x' is taken"),
    "an output without a maker": (lambda: model([RELU], outputs=["z"]), "'z' is made by nothing"),
    "an input without a maker": (lambda: model([make_node("Add", ["x", "q"], ["y"])]), "'q' is made by nothing"),
    "too few inputs": (node("Add", ["n", 4]), "Add takes 2"),
    "too many inputs": (node("Relu", [4], [4]), "Relu takes 1"),
    "no inputs": (node("MatMul"), "MatMul"),
    "a node without outputs": (lambda: model([RELU, make_node("Abs", ["x"], [])]), None),
    "an operator of no name": (lambda: model([make_node("", ["x"], ["y"])]), "ai.onnx::"),
    "an unknown operator": (lambda: model([make_node("Nonsense", ["x"], ["y"])]), "ai.onnx::Nonsense"),
    "an input that is a sequence": (
        changed(lambda m: m.graph.input[0].type.sequence_type.elem_type.tensor_type.SetInParent()), "type 0"
    ),
    "an input without a type": (changed(lambda m: m.graph.input[0].ClearField("type")), "'x'"),
    "an input without a shape": (changed(lambda m: m.graph.input[0].type.tensor_type.ClearField("shape")), "no rank"),
    "an input of dtype 0": (changed(lambda m: m.graph.input[0].type.tensor_type.ClearField("elem_type")), "type 0"),
    "an input of dtype 99": (changed(lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", 99)), "type 99"),
    "an input without a name": (changed(lambda m: m.graph.input[0].ClearField("name")), "empty"),
    "no graph": (changed(lambda m: m.ClearField("graph")), "no graph"),
    "two functions of one name": (
        lambda: model([make_node("a", ["x"], ["y"], domain="f")], functions=[function("a", [RELU])] * 2),
        "two functions",
    ),
}  # fmt: skip

TENSORS: dict[str, Case] = {
    "raw data too short": (adds(weight([4], b"\0" * 15)), "'w': it has 15 bytes"),
    "raw data too long": (adds(weight([4], b"\0" * 17)), "'w': it has 17 bytes"),
    "no data": (adds(weight([4])), "'w'"),
    "a negative dim": (adds(weight([-4], b"\0" * 16)), "negative"),
    "2**40 elements": (adds(weight([1 << 40], b"\0" * 16)), "'w': it has 16 bytes"),
    "2**40 typed elements": (adds(typed([1 << 40], F32, float_data=[1])), "'w': it has 1 elements"),
    "2**120 elements": (adds(weight([1 << 60, 1 << 60], b"\0" * 16)), "'w'"),
    "2**64 elements, which is 0 in 64 bits": (adds(weight([1 << 32, 1 << 32])), "'w'"),
    "0 by 2**62 by 2**62 elements": (adds(weight([0, 1 << 62, 1 << 62])), "'w'"),
    "1000 axes": (adds(weight([1] * 1000, b"\0" * 4)), "1000 axes"),
    "dtype 0": (adds(weight([1], b"\0" * 4, 0)), "type 0"),
    "dtype 99": (adds(weight([1], b"\0" * 4, 99)), "type 99"),
    "dtype -1": (adds(weight([1], b"\0" * 4, -1)), "type -1"),
    "half a complex number": (adds(typed([1], 14, float_data=[1.0])), "'w'"),
    "raw text": (adds(weight([1], b"abcd", 8)), "'w'"),
    "a segment": (
        adds(weight([1], b"\0" * 4, segment=onnx.TensorProto.Segment(begin=0, end=9))),
        "segments",
    ),
    "half bytes of 4-bit elements": (adds(weight([4], b"\0", 22)), "'w'"),
    "int32 data in floats": (adds(typed([2], F32, int32_data=[1, 2])), "'w': it has 0 elements"),
    "a sparse tensor of 2**40": (sparse([1 << 40], ints(3), np.ones(1, F)), "too large"),
    "a sparse index beyond": (sparse([4], ints(4), np.ones(1, F)), "indices"),
    "a sparse index before": (sparse([4], ints(-1), np.ones(1, F)), "indices"),
    "a sparse row beyond": (sparse([2, 2], np.array([[0, 2]]), np.ones(1, F)), "indices"),
    "a sparse row of 3 for 2 axes": (
        sparse([2, 2], np.array([[0, 1, 1]]), np.ones(1, F)),
        "indices",
    ),
    "sparse indices of rank 3": (
        sparse([2, 2], np.zeros((1, 1, 1), np.int64), np.ones(1, F)),
        "indices",
    ),
    "sparse indices that are floats": (sparse([4], np.ones(1, F), np.ones(1, F)), "indices"),
    "more sparse values than indices": (sparse([4], ints(1), np.ones(2, F)), "indices"),
    "sparse values that are a matrix": (sparse([4], ints(1), np.ones((1, 1), F)), "indices"),
    "a negative sparse dim": (sparse([-4], ints(1), np.ones(1, F)), "negative"),
}

ATTRIBUTES: dict[str, Case] = {
    "a string for ints": (node("Transpose", [2, 3], perm="ab"), "'perm' of node 'it' (ai.onnx::Transpose, opset 18)"),
    "floats for ints": (node("Transpose", [2, 3], perm=[1.0, 0.0]), "FLOATS"),
    "an int for ints": (node("MaxPool", [1, 1, 8, 8], kernel_shape=2), "'kernel_shape'"),
    "a float for an int": (node("Softmax", [2, 3], axis=1.0), "FLOAT"),
    "a string for an int": (node("Concat", [2], [2], axis="0"), "STRING"),
    "ints for a string": (node("Conv", [1, 1, 8, 8], [1, 1, 3, 3], auto_pad=[1, 2]), "'auto_pad'"),
    "a tensor for an int": (node("Gather", [3], [3], axis=make_tensor("t", I64, [1], [0])), "TENSOR"),
    "an attribute twice": (twice("Softmax", "axis"), "twice"),
    "an unknown attribute": (node("Relu", [3], slope=0.5), "'slope'"),
    "a reference outside of a function": (
        changed(lambda m: m.graph.node[0].attribute.add(name="alpha", ref_attr_name="q", type=1)), "'alpha'"
    ),
    "a cast to dtype 99": (node("Cast", [3], to=99), "type 99"),
    "a cast to dtype 2**40": (node("Cast", [3], to=1 << 40), "type 1099511627776"),
    "a permutation twice": (node("Transpose", [2, 3], perm=[0, 0]), "no order"),
    "an axis of 2**62": (node("Softmax", [2, 3], axis=1 << 62), "axis"),
    "a constant without value": (node("Constant"), "no value"),
    "a constant of a kind that is none": (node("Constant", value="text"), "STRING"),
    "a constant with raw data too short": (node("Constant", value=weight([9], b"\0")), "1 bytes"),
    "a sparse constant of 2**40": (
        node("Constant", sparse_value=onnx.helper.make_sparse_tensor(
            make_tensor("v", F32, [1], [1.0]), make_tensor("i", I64, [1], [0]), [1 << 40])), "too large"
    ),
    "a constant of strings": (node("Constant", value_strings=["a", "b"]), None),
    "a fill with two values": (node("ConstantOfShape", more=[ints(2)], value=make_tensor("v", F32, [2], [1, 2])), "it"),
    "a stride of 0": (node("Conv", [1, 1, 8, 8], [1, 1, 3, 3], strides=[0, 0]), "it"),
    "a stride of -1": (node("MaxPool", [1, 1, 8, 8], kernel_shape=[2, 2], strides=[-1, -1]), "it"),
    "a window of 0": (node("MaxPool", [1, 1, 8, 8], kernel_shape=[0, 0]), "'kernel_shape'"),
    "groups of 0": (node("Conv", [1, 4, 8, 8], [4, 4, 3, 3], group=0), "it"),
    "groups of -1": (node("Conv", [1, 4, 8, 8], [4, 4, 3, 3], group=-1), "it"),
    "5 pads for 2 axes": (node("Conv", [1, 1, 8, 8], [1, 1, 3, 3], pads=[1] * 5), "it"),
    "blocks of 0": (node("DepthToSpace", [1, 4, 2, 2], blocksize=0), "it"),
    "blocks of -2": (node("DepthToSpace", [1, 4, 2, 2], blocksize=-2), "it"),
}  # fmt: skip

VERSIONS: dict[str, Case] = {
    "operator set 0": (versions(("", 0)), "operator set 0"),
    "operator set -1": (versions(("", -1)), "operator set -1"),
    "operator set 999": (versions(("", 999)), "operator set 999"),
    "operator set 2**40": (versions(("", 1 << 40)), "operator set 1099511627776"),
    "a foreign operator set of 2**40": (versions(("", 18), ("acme", 1 << 40)), "acme"),
    "no operator set": (versions(), "no operator set"),
    "only a foreign operator set": (versions(("acme", 1)), "opset_import"),
    "IR version 0": (changed(lambda m: setattr(m, "ir_version", 0)), "IR version 0"),
    "IR version -1": (changed(lambda m: setattr(m, "ir_version", -1)), "IR version -1"),
    "IR version 999": (changed(lambda m: setattr(m, "ir_version", 999)), "IR version 999"),
    "no IR version": (changed(lambda m: m.ClearField("ir_version")), "IR version"),
    "a function of operator set 999": (
        lambda: model([make_node("a", ["x"], ["y"], domain="f")], functions=[
            onnx.helper.make_function("f", "a", ["x"], ["y"], [RELU], [make_opsetid("", 999)])]), "function f::a"
    ),
}  # fmt: skip

TEXTS: dict[str, Case] = {
    "a node's name": (patched(b"relu", WRONG, lambda: model([RELU])), "not text"),
    "an operator": (patched(b"Relu", WRONG, lambda: model([RELU])), "not text"),
    "a tensor": (patched(b"long", WRONG, lambda: model([RELU, make_node("Abs", ["y"], ["long"])])), "not text"),
    "a graph": (patched(b"g" * 4, WRONG, changed(lambda m: setattr(m.graph, "name", "gggg"))), "not text"),
    "a dimension": (patched(b"dims", WRONG, lambda: model([RELU], {"x": ["dims"]})), "not text"),
    "an attribute": (patched(b"axis", WRONG, node("Softmax", [2, 3], axis=1)), "not text"),
    "an operator set": (patched(b"acme", WRONG, versions(("", 18), ("acme", 1))), "not text"),
    "a weight": (patched(b"wwww", WRONG, lambda: model(
        [make_node("Add", ["x", "wwww"], ["y"])], constants={"wwww": np.ones(4, F)})), "not text"),
    "a function": (patched(b"fffa", WRONG, lambda: model(
        [make_node("fffa", ["x"], ["y"], domain="f")], functions=[function("fffa", [RELU])])), "not text"),
    "a name in a branch": (patched(b"zzzz", WRONG, lambda: model([make_node("If", ["c"], ["y"], **dict.fromkeys(
        ("then_branch", "else_branch"), make_graph([make_node("Relu", ["x"], ["zzzz"])], "b", [],
                                                   [make_tensor_value_info("zzzz", F32, [4])])))],
        constants={"c": np.array(True)})), "not text"),
    "a documentation": (patched(b"docu", WRONG, changed(lambda m: setattr(m, "doc_string", "docu"))), None),
}  # fmt: skip

SHAPES: dict[str, Case] = {
    "a product of wrong sizes": (node("MatMul", [2, 3], [4, 5]), "it"),
    "a product of scalars": (node("MatMul", [], []), "it"),
    "sums of wrong sizes": (node("Add", [2, 3], [4]), "it"),
    "a convolution of wrong channels": (node("Conv", [1, 3, 8, 8], [4, 5, 3, 3]), "it"),
    "a kernel beyond the picture": (node("Conv", [1, 3, 2, 2], [4, 3, 5, 5]), "it"),
    "a convolution of vectors": (node("Conv", [3], [3]), "it"),
    "a reshape to another size": (node("Reshape", [2, 3], more=[ints(7)]), "it"),
    "a reshape with two -1": (node("Reshape", [2, 3], more=[ints(-1, -1)]), "-1"),
    "a reshape with -2": (node("Reshape", [2, 3], more=[ints(-2, -3)]), "it"),
    "a reshape to 2**40": (node("Reshape", [2, 3], more=[ints(1 << 40)]), "it"),
    "joined tensors of unlike ranks": (node("Concat", [2, 3], [2], axis=0), "it"),
    "joined tensors of unlike sizes": (node("Concat", [2, 3], [2, 4], axis=0), "it"),
    "parts that do not add up": (node("Split", [5], more=[ints(2, 2)]), "it"),
    "an axis beyond the rank": (node("Gather", [2, 3], more=[ints(0)], axis=5), "it"),
    "pads of wrong number": (node("Pad", [2, 3], more=[ints(1)]), "it"),
    "a slice of step 0": (node("Slice", [5], more=[ints(0), ints(5), ints(0), ints(0)]), "step"),
    "a slice with fewer ends": (node("Slice", [5, 5], more=[ints(0, 0), ints(5)]), "it"),
    "repeats of wrong number": (node("Tile", [2, 3], more=[ints(2)]), "it"),
    "squeezing a size of 3": (node("Squeeze", [2, 3], more=[ints(1)]), "it"),
    "squeezing a scalar": (node("Squeeze", [], more=[ints(0)]), "it"),
    "normalised by wrong sizes": (node("BatchNormalization", [1, 3, 4], [2], [2], [2], [2]), "it"),
    "an expansion that does not fit": (node("Expand", [2, 3], more=[ints(5, 4)]), "it"),
    "recurrence over wrong sizes": (
        node("LSTM", [5, 1, 3], [1, 8, 4], [1, 8, 2], hidden_size=2),
        "it",
    ),
    "recurrence of 2**40 states": (
        node("GRU", [5, 1, 3], [1, 6, 3], [1, 6, 2], hidden_size=1 << 40),
        "it",
    ),
    "a formula of wrong rank": (node("Einsum", [2, 3], equation="ijk->i"), "it"),
    "a formula that is none": (node("Einsum", [2, 3], equation="((((->"), "it"),
}

ALL = {
    f"{kind}: {name}": case
    for kind, table in {
        "graph": GRAPHS,
        "tensor": TENSORS,
        "attribute": ATTRIBUTES,
        "version": VERSIONS,
        "text": TEXTS,
        "shape": SHAPES,
    }.items()
    for name, case in table.items()
}


@pytest.mark.parametrize("name", ALL)
def test_a_contradiction_is_named(name: str, builder: tactix.Builder, refusal: Refusal) -> None:
    make, told = ALL[name]
    if told is None:
        assert builder.import_model(make()).outputs
        return
    text = str(refusal(make()))
    assert told in text
    assert "Traceback" not in text


@pytest.mark.parametrize("name", sorted({s.name for s in onnx.defs.get_all_schemas()}))
def test_an_operator_with_senseless_inputs_is_imported_or_refused(
    name: str, outcome: Callable[[Any], Any]
) -> None:
    """Every operator of the standard with 0 to 5 inputs of odd shapes and values."""
    for count, shape in (
        (0, []),
        (1, []),
        (2, [0]),
        (3, [2, 3]),
        (1, [2, 3, 4, 5]),
        (5, [1, 1, 1]),
    ):
        outcome(node(name, *[shape] * count, opset=20)())
        outcome(node(name, shape, more=[ints(-1)] * count, opset=20)())
        outcome(node(name, more=[np.full(shape, -7, np.int64)] * count, opset=20)())
        outcome(node(name, more=[np.full(shape, np.nan, F)] * count, opset=20)())
