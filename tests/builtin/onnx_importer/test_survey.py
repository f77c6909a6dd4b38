"""One error of an import tells of every node that is refused, and where it lies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.helper import make_graph, make_node, make_tensor_value_info

from tactix.base.errors import ModelImportError, UnsupportedOperator
from tactix_onnx import survey as surveys
from tactix_onnx.wire import check_count, node_offsets

F32 = 1
X = {"x": (F32, ["n", 4])}


def swirl(x: str, y: str, name: str) -> onnx.NodeProto:
    return make_node("Swirl", [x], [y], name=name, domain="acme")


def declared(m: onnx.ModelProto, *names: str) -> onnx.ModelProto:
    m.graph.value_info.extend(make_tensor_value_info(name, F32, ["n", 4]) for name in names)
    return m


def refusal(imported: Any, source: Any) -> ModelImportError:
    with pytest.raises(ModelImportError) as e:
        imported(source)
    return e.value


def test_nodes_behind_a_refused_one_are_looked_at_where_its_shape_is_declared(
    imported: Any, model: Any
) -> None:
    nodes = [
        swirl("x", "a", "one"),
        make_node("Abs", ["a"], ["b"]),
        make_node("Transpose", ["b"], ["c"], name="two", perm=[1, 1]),
        make_node("MatMul", ["c", "w"], ["y"], name="three"),
    ]
    m = declared(model(nodes, X, ["y"], {"w": np.ones((3, 3), np.float32)}), "a", "c")
    e = refusal(imported, m)
    assert isinstance(e, UnsupportedOperator)
    assert e.what == "3 nodes cannot be imported"
    places = [
        "'one' (acme::Swirl, opset 1), number 0 of the graph",
        "'two' (ai.onnx::Transpose, opset 18), number 2 of the graph",
        "'three' (ai.onnx::MatMul, opset 18), number 3 of the graph",
    ]
    at = [e.why.find(p) for p in places]
    assert -1 < at[0] < at[1] < at[2], e.why


def test_an_unknown_operator_behind_a_refused_form_is_listed_too(imported: Any, model: Any) -> None:
    nodes = [make_node("Transpose", ["x"], ["t"], name="one", perm=[0, 0]), swirl("t", "y", "two")]
    e = refusal(imported, model(nodes, X, ["y"]))
    assert e.what == "2 nodes cannot be imported"
    assert "'one'" in e.why
    assert "'two' (acme::Swirl" in e.why


def test_nodes_behind_an_unknown_shape_are_counted(imported: Any, model: Any) -> None:
    nodes = [swirl("x", "a", "one"), make_node("Abs", ["a"], ["b"]), make_node("Exp", ["b"], ["y"])]
    e = refusal(imported, model(nodes, X, ["y"]))
    assert "could not be looked at: 2" in e.why


def test_the_error_of_one_node_is_kept_as_it_is(imported: Any, model: Any) -> None:
    nodes = [
        make_node("Transpose", ["x"], ["t"], name="only", perm=[0, 0]),
        make_node("Abs", ["t"], ["y"]),
    ]
    e = refusal(imported, model(nodes, X, ["y"]))
    assert type(e) is ModelImportError
    assert e.who == "node 'only' (ai.onnx::Transpose, opset 18), number 0 of the graph"
    assert e.__cause__ is not None


def test_a_node_inside_a_loop_counts_once(imported: Any, model: Any) -> None:
    """The body is walked again while its states grow more general."""
    body = make_graph(
        [make_node("Identity", ["go"], ["on"]), make_node("Concat", ["s", "s"], ["d"], axis=0),
         make_node("Transpose", ["d"], ["bad"], name="bad", perm=[0, 0]), make_node("Add", ["d", "bad"], ["t"])],
        "body", [make_tensor_value_info("i", 7, []), make_tensor_value_info("go", 9, []),
                 make_tensor_value_info("s", F32, ["k", 4])],
        [onnx.helper.make_empty_tensor_value_info(name) for name in ("on", "t")],
        value_info=[make_tensor_value_info("bad", F32, ["m", 4])],
    )  # fmt: skip
    nodes = [make_node("Loop", ["k", "", "x"], ["y"], name="loop", body=body)]
    e = refusal(imported, model(nodes, {**X, "k": (7, [])}, ["y"]))
    assert e.who == "node 'loop/bad' (ai.onnx::Transpose, opset 18), number 2 of the body of 'loop'"


def test_both_branches_are_looked_at(imported: Any, model: Any) -> None:
    def branch(op: str) -> onnx.GraphProto:
        nodes = [make_node(op, ["x"], ["z"], domain="acme")]
        return make_graph(nodes, "b", [], [onnx.helper.make_empty_tensor_value_info("z")])

    nodes = [
        make_node("ReduceMax", ["x"], ["m"], keepdims=0),
        make_node("Cast", ["m"], ["c"], to=9),
        make_node(
            "If", ["c"], ["y"], name="choice", then_branch=branch("Yes"), else_branch=branch("No")
        ),
    ]
    m = model(nodes, X, ["y"])
    m.opset_import.add(domain="acme", version=1)
    e = refusal(imported, m)
    assert "'choice/Yes_0' (acme::Yes" in e.why
    assert "'choice/No_0' (acme::No" in e.why


def test_bytes_are_told_for_files_and_bytes(imported: Any, model: Any, tmp_path: Path) -> None:
    m = model([make_node("Abs", ["x"], ["t"]), swirl("t", "y", "one")], X, ["y"])
    data = m.SerializeToString()
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    begin = data.index(m.graph.node[1].SerializeToString())
    assert f"byte {begin} of the file" in str(refusal(imported, data))
    assert f"byte {begin} of the file" in str(refusal(imported, path))
    assert "byte" not in str(refusal(imported, m))


def test_offsets_of_a_graph_in_two_pieces(model: Any) -> None:
    """Parsers join messages of one field: the second piece's nodes come after the first's."""
    first = model([make_node("Abs", ["x"], ["t"])], X, ["y"])
    second = onnx.ModelProto()
    second.graph.node.append(make_node("Exp", ["t"], ["y"]))
    data = first.SerializeToString() + second.SerializeToString()
    joined = onnx.load_model_from_string(data)
    found = node_offsets(data, [0, 1, 2])
    assert list(found) == [0, 1]
    for i, at in found.items():
        content = joined.graph.node[i].SerializeToString()
        assert data[at : at + len(content)] == content


def test_damaged_bytes_end_the_count_of_messages(model: Any) -> None:
    data = model([make_node("Abs", ["x"], ["y"])], X, ["y"]).SerializeToString()
    large = data + b"\x3a\x80\x80\x80\x04" + bytes(1 << 21)
    rng = np.random.default_rng(0)
    for _ in range(200):
        cut = bytearray(large[: (1 << 20) + 2 + int(rng.integers(0, 300))])
        for at in rng.integers(0, len(data) + 8, 3):
            cut[at] = rng.integers(0, 256)
        check_count(cut)
        assert all(0 <= at <= len(cut) for at in node_offsets(cut, range(10)).values())


@pytest.mark.parametrize(
    ("op", "domain", "words"),
    [
        ("Warble", "", "ONNX has no such operator up to operator set 18"),
        ("Optimized", "com.microsoft", "ONNX Runtime's graph optimization"),
        ("ATen", "org.pytorch.aten", "torch.onnx"),
        ("Swirl", "acme", "converters or layers for acme"),
    ],
)
def test_what_is_said_of_an_operators_origin(
    op: str, domain: str, words: str, imported: Any, model: Any
) -> None:
    assert words in str(
        refusal(imported, model([make_node(op, ["x"], ["y"], domain=domain)], X, ["y"]))
    )


def test_an_error_names_no_more_nodes_than_people_read(imported: Any, model: Any) -> None:
    nodes = [swirl("x", f"t{i}", f"n{i}") for i in range(500)]
    e = refusal(
        imported, model([*nodes, make_node("Sum", [f"t{i}" for i in range(500)], ["y"])], X, ["y"])
    )
    assert e.what == "no installed plugin provides the operator of 500 nodes"
    assert f"and {500 - surveys.SHOWN} more" in e.why
    assert "'n199'" in e.why
    assert "'n200'" not in e.why


def test_an_unreadable_weight_names_its_reader(imported: Any, model: Any) -> None:
    m = model([make_node("Add", ["x", "w"], ["y"], name="sum")], X, ["y"])
    m.graph.initializer.add(name="w", dims=[4], data_type=F32, raw_data=b"short")
    e = refusal(imported, m)
    assert e.who == "tensor 'w'"
    assert any("'sum' (ai.onnx::Add, opset 18), number 0" in note for note in e.__notes__)
