"""``tactix inspect model.onnx``: every node that cannot be imported, those behind refused ones
included.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console

from tactix.base.errors import ConfigError, ModelImportError
from tactix.plugins.session import Session
from tactix_onnx.wire import LARGE
from tactix_sdk import Importer, hookimpl
from tactix_tools import cli, inspect, inspect_shapes, model_report
from tactix_tools.inspect import print_model

Tool = Callable[..., Any]
SHAPE: list[Any] = ["n", 3, 4, 4]


def node(op: str, x: str, y: str, **attrs: Any) -> onnx.NodeProto:
    return helper.make_node(
        op, [x, *attrs.pop("more", ())], [y], name=attrs.pop("name", y), **attrs
    )


def save(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    declared: Sequence[str] = (),
    opset: int = 8,
    functions: Sequence[onnx.FunctionProto] = (),
) -> str:
    """A model from x of SHAPE to y; ``declared`` tensors have a value_info of that shape."""
    graph = helper.make_graph(
        list(nodes), "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
        [helper.make_empty_tensor_value_info("y")], [numpy_helper.from_array(np.ones(3, np.float32), "s")],
        value_info=[helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in declared],
    )  # fmt: skip
    opsets = [
        helper.make_opsetid(d, v)
        for d, v in (("", opset), ("acme", 3), ("com.microsoft", 1), ("own", 1))
    ]
    onnx.save(
        helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=list(functions)),
        path,
    )
    return str(path)


SWIRL = node("Swirl", "x", "swirled", domain="acme")
RELU = node("Relu", "swirled", "positive")
OLD = node("BatchNormalization", "positive", "normal", more="ssss", spatial=0)
TURNED = node("Transpose", "normal", "turned", perm=[0, 0, 1, 2])
FUSED = node("Quux", "turned", "fused", domain="com.microsoft")
LAST = node("Relu", "fused", "y")


@pytest.fixture
def refused(tmp_path: Path) -> str:
    """An unknown operator, a form that no converter takes, a contradiction, an unknown operator,
    one behind another.
    """
    return save(tmp_path / "refused.onnx", [SWIRL, RELU, OLD, TURNED, FUSED, LAST], ["swirled"])


@pytest.fixture
def tool(capsys: pytest.CaptureFixture[str]) -> Tool:
    """Run inspect with --json and give its document."""

    def run(path: str, code: int) -> Any:
        got = cli.main(["inspect", path, "--json"])
        out, err = capsys.readouterr()
        assert got == code, err
        return json.loads(out)

    return run


def test_nodes_of_all_kinds_one_behind_another_are_listed_at_once(refused: str, tool: Tool) -> None:
    found = tool(refused, cli.OTHER)
    rows = {r["node"]: r for r in found["refused"]}
    assert list(rows) == ["swirled", "normal", "turned", "fused"]
    assert [r["index"] for r in rows.values()] == [0, 2, 3, 4]
    assert [(r["operator"], r["opset"]) for r in rows.values()] == [
        ("acme::Swirl", 3),
        ("ai.onnx::BatchNormalization", 8),
        ("ai.onnx::Transpose", 8),
        ("com.microsoft::Quux", 1),
    ]
    assert [r["supported"] for r in rows.values()] == [False, True, True, False]
    assert "spatial" in rows["normal"]["reason"]
    assert "no order of the axes" in rows["turned"]["reason"]
    assert "ONNX Runtime" in rows["fused"]["do"]
    assert "acme" in rows["swirled"]["do"]
    assert found["refused_count"] == 4
    assert found["not_reached"] == 1


def test_offsets_are_those_of_the_nodes_in_the_file(refused: str, tool: Tool) -> None:
    data, nodes = Path(refused).read_bytes(), onnx.load(refused).graph.node
    for row in tool(refused, cli.OTHER)["refused"]:
        content = nodes[row["index"]].SerializeToString()
        assert data[row["offset"] : row["offset"] + len(content)] == content


def test_the_table_for_people(refused: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inspect", refused]) == cli.OTHER
    out = capsys.readouterr().out
    for text in (
        "Cannot be imported: 4 of 6 nodes",
        "acme::Swirl",
        "spatial = 0",
        "byte",
        "could not be looked at",
    ):
        assert text in out


def test_a_model_without_refusals_is_no_error(tmp_path: Path, tool: Tool) -> None:
    found = tool(save(tmp_path / "m.onnx", [node("Relu", "x", "y")]), cli.OK)
    assert (found["refused"], found["refused_count"], found["not_reached"]) == ([], 0, 0)


def test_the_error_of_an_import_lists_the_same_nodes(
    refused: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["build", refused, "--no-timing-cache", "--json"]) == cli.MODEL
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["type"] == "UnsupportedOperator"
    for name in ("'swirled' (acme::Swirl, opset 3), number 0", "'normal'", "'fused'", "byte "):
        assert name in error["why"]
    assert "tactix inspect" in error["do"]


@pytest.mark.parametrize(
    "program", ["import os; os.abort()", "raise SystemExit(1)", "print('no model')"]
)
def test_shape_inference_that_dies_takes_nothing_along(
    program: str, refused: str, tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspect_shapes, "PROGRAM", program)
    found = tool(refused, cli.OTHER)
    assert [r["node"] for r in found["refused"]] == ["swirled", "normal", "fused"]
    assert found["not_reached"] == 2


def test_nodes_inside_functions_are_named_with_their_call(tmp_path: Path, tool: Tool) -> None:
    body = [node("Relu", "a", "t"), node("Swirl", "t", "b", domain="acme", name="deep")]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("acme", 3)]
    f = helper.make_function("own", "F", ["a"], ["b"], body, opsets)
    nodes = [
        node("F", "x", "t", domain="own", name="call"),
        node("F", "t", "y", domain="own", name="again"),
    ]
    rows = tool(save(tmp_path / "m.onnx", nodes, ["t"], 18, [f]), cli.OTHER)["refused"]
    assert [(r["node"], r["graph"], r["index"], r["offset"]) for r in rows] == [
        ("call/deep", "call", 1, None),
        ("again/deep", "again", 1, None),
    ]


def test_nodes_in_branches_of_a_node_that_is_not_reached(tmp_path: Path, tool: Tool) -> None:
    branch = helper.make_graph(
        [node("Swirl", "x", "b", domain="acme", name="inner")],
        "b",
        [],
        [helper.make_empty_tensor_value_info("b")],
    )
    nodes = [
        node("Twist", "x", "t", domain="acme"),
        helper.make_node("If", ["t"], ["y"], name="choice", then_branch=branch, else_branch=branch),
    ]
    found = tool(save(tmp_path / "m.onnx", nodes, opset=18), cli.OTHER)
    assert [r["node"] for r in found["refused"]] == ["t", "choice/inner"]
    assert found["not_reached"] == 1


def test_weights_that_are_missing_do_not_hide_operators(tmp_path: Path, tool: Tool) -> None:
    path = save(
        tmp_path / "m.onnx",
        [node("Conv", "x", "t", more=["w"]), node("Swirl", "t", "y", domain="acme")],
    )
    m = onnx.load(path)
    w = m.graph.initializer.add(
        name="w", dims=[5, 3, 3, 3], data_type=TensorProto.FLOAT, data_location=1
    )
    w.external_data.add(key="location", value="gone.bin")
    onnx.save(m, path)
    found = tool(path, cli.OTHER)
    assert list(found["unreadable"]) == ["w"]
    assert "gone.bin" in found["unreadable"]["w"]
    assert [r["node"] for r in found["refused"]] == ["y"]


def test_large_weights_in_the_file_are_read(tmp_path: Path, tool: Tool) -> None:
    """Those that the importer leaves in the file while it parses the rest."""
    path = save(tmp_path / "m.onnx", [node("Conv", "x", "y", more=["w"])])
    m = onnx.load(path)
    m.graph.initializer.append(
        numpy_helper.from_array(np.ones((LARGE // 12, 3, 1, 1), np.float32), "w")
    )
    onnx.save(m, path)
    found = tool(path, cli.OK)
    assert (found["unreadable"], found["refused_count"]) == ({}, 0)


@pytest.mark.parametrize(("status", "words"), [("disabled", "TACTIX_DISABLE"), ("given", "")])
def test_packs_that_are_not_in_use_are_named(status: str, words: str, refused: str) -> None:
    pack = SimpleNamespace(TACTIX_NAMESPACE="acme")
    session = Session(plugins=[pack], disable=["acme"] if status == "disabled" else [])
    found = model_report.report(refused, session)
    assert list(found["packs_not_in_use"]) == (["acme"] if words else [])
    row = found["refused"][0]
    assert row["node"] == "swirled"
    assert ("disabled" in row["reason"]) == bool(words)
    assert words in row["do"]


def test_a_graph_that_is_none_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(tmp_path / "m.onnx", [node("Relu", "y", "t"), node("Relu", "t", "y")])
    assert cli.main(["inspect", path]) == cli.MODEL
    assert "cycle" in capsys.readouterr().err


def test_many_refused_nodes_are_counted(
    tmp_path: Path, tool: Tool, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = [node("Swirl", "x", f"t{i}", domain="acme") for i in range(300)]
    nodes.append(helper.make_node("Sum", [f"t{i}" for i in range(300)], ["y"]))
    path = save(tmp_path / "m.onnx", nodes)
    found = tool(path, cli.OTHER)
    assert found["refused_count"] == len(found["refused"]) == 300
    assert cli.main(["inspect", path]) == cli.OTHER
    out = capsys.readouterr().out
    assert "and 100 more" in out
    assert "t299" not in out


class Chain(Importer):
    """Files of words: layers of tactix's, one behind the other."""

    key, format = "acme.chain@1", "chain"

    def claims(self, source: Any) -> bool:
        return str(source).endswith(".chain")

    def load(self, source: Any, network: Any, converters: Any) -> None:
        x = network.add_input("x", "f32", ("n", 3))
        for word in Path(source).read_text().split():
            (x,) = network.add_layer(f"tactix.{word}", [x])
        (x,) = network.add_layer("tactix.Add", [x, network.add_constant(np.ones(3, np.float32))])
        network.mark_output(x, "y")


class Chains:
    @hookimpl
    def tactix_importers(self) -> list[Any]:
        return [Chain()]


def test_a_format_that_a_pack_imports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "it.chain"
    path.write_text("Relu Tanh Relu")
    facts = model_report.report(str(path), Session(plugins=[("acme", Chains())]))
    assert (facts["format"], facts["name"], facts["nodes"], facts["parameters"]) == (
        "chain",
        "it",
        4,
        3,
    )
    assert facts["inputs"] == [{"name": "x", "dtype": "f32", "shape": ["n", 3]}]
    assert facts["outputs"] == [{"name": "y", "dtype": "f32", "shape": ["n", 3]}]
    found = [(r["operator"], r["count"]) for r in facts["operators"]]
    assert found == [("tactix.Relu@1", 2), ("tactix.Add@1", 1), ("tactix.Tanh@1", 1)]
    json.dumps(facts)
    print_model(Console(width=400), facts)
    assert "4 nodes, 3 parameters, imported from chain" in capsys.readouterr().out


def test_the_error_of_a_packs_importer_names_the_pack(tmp_path: Path) -> None:
    path = tmp_path / "it.chain"
    path.write_bytes(b"\xff")
    with pytest.raises(ModelImportError, match=r"importer acme.chain@1 of .*UnicodeDecodeError"):
        model_report.report(str(path), Session(plugins=[("acme", Chains())]))


class OwnWay(Chain):
    """A chain of words that is ONNX, it says: a format that tactix knows."""

    format = "onnx"


class OwnWays:
    @hookimpl
    def tactix_importers(self) -> list[Any]:
        return [OwnWay()]


def test_a_packs_importer_of_a_format_that_tactix_knows_is_enabled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "it.chain"
    path.write_text("Relu Tanh")

    def inspected(*enable: str) -> Any:
        session = Session(plugins=[("acme", OwnWays())])
        return inspect.command.main(
            [str(path), *enable, "--json"], obj=session, standalone_mode=False
        )

    with pytest.raises(ModelImportError):
        inspected()
    with pytest.raises(ConfigError, match="there is no plugin 'acne'"):
        inspected("--enable", "acne")
    assert inspected("--enable", "acme") == cli.OK
    found = json.loads(capsys.readouterr().out)
    operators = {r["operator"] for r in found["operators"]}
    assert operators == {"tactix.Relu@1", "tactix.Tanh@1", "tactix.Add@1"}
