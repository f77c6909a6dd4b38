"""The walk over a graph: inputs, names, order, what is refused and how it is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.helper import make_node

import tactix
from tactix.base.dims import sym
from tactix.base.errors import ConfigError, ModelImportError, ShapeError, UnsupportedOperator
from tactix.contracts.expr import Scalar
from tactix.contracts.importer import Converter
from tactix_onnx import converters, importers
from tactix_sdk.evaluate import evaluate
from tactix_sdk.scalar_layer import pointwise
from tactix_tools import cli

F32 = np.float32


def test_unnamed_dimensions_get_the_names_of_input_and_axis(imported: Any, model: Any) -> None:
    m = model(
        [make_node("Add", ["x", "y"], ["z"])],
        {"x": (F32, ["n", None, 3]), "y": (F32, ["?", -1, 3])},
        ["z"],
    )
    x, y = imported(m).inputs
    assert x.spec.shape == (sym("n"), sym("x_1"), 3)
    assert y.spec.shape == (sym("y_0"), sym("y_1"), 3)


def test_an_input_with_an_initializer_is_a_constant(imported: Any, model: Any) -> None:
    w = np.arange(3, dtype=F32)
    m = model(
        [make_node("Add", ["x", "w"], ["y"])], {"x": (F32, [3]), "w": (F32, [3])}, ["y"], {"w": w}
    )
    net = imported(m)
    assert [v.name for v in net.inputs] == ["x"]
    assert np.array_equal(evaluate(net, {"x": w})["y"], 2 * w)


def test_nodes_may_stand_in_any_order(imported: Any, model: Any) -> None:
    nodes = [
        make_node("Neg", ["b"], ["c"]),
        make_node("Exp", ["a"], ["b"]),
        make_node("Abs", ["x"], ["a"]),
    ]
    net = imported(model(nodes, {"x": (F32, ["n"])}, ["c"]))
    assert [n.layer.name for n in net.nodes] == ["Abs", "Exp", "Neg"]


def test_nodes_without_use_are_left_out_even_unknown_ones(imported: Any, model: Any) -> None:
    nodes = [make_node("Abs", ["x"], ["y"]), make_node("Nonsense", ["x"], ["z"], domain="acme")]
    assert len(imported(model(nodes, {"x": (F32, [3])}, ["y"])).nodes) == 1


def test_further_results_that_nothing_reads_need_no_support(imported: Any, model: Any) -> None:
    """Exporters name all results: batch normalizations in training form, places of a pooling."""
    one = np.ones(2, F32)
    nodes = [
        make_node("BatchNormalization", ["x", "w", "w", "w", "w"], ["n", "a", "b", "c", "d"]),
        make_node("MaxPool", ["n"], ["p", "places"], kernel_shape=[2, 2]),
        make_node("Split", ["p"], ["y", "rest"], axis=1),
    ]
    m = model(nodes, {"x": (F32, [1, 2, 3, 3])}, ["y"], {"w": one}, opset=9)
    names = [n.layer.name for n in imported(m).nodes]
    assert names == ["BatchNormalization", "MaxPool", "Split"]


def test_names_and_origins_are_those_of_the_model(imported: Any, model: Any) -> None:
    nodes = [make_node("Abs", ["x"], ["t"], name="first"), make_node("Max", ["t", "x", "x"], ["y"])]
    net = imported(model(nodes, {"x": (F32, [3])}, ["y"]))
    assert [(n.name, n.origin) for n in net.nodes] == [
        ("first", ("first",)),
        ("Max_1", ("Max_1",)),
        ("Max_1/max", ("Max_1",)),
    ]
    assert net.output_names == ("y",)


def test_what_the_model_calls_its_tensors_is_kept(imported: Any, model: Any) -> None:
    nodes = [
        make_node("Identity", ["x"], ["same"], name="first"),
        make_node("Abs", ["same"], ["t"], name="second"),
        make_node("Shape", ["x"], ["sizes"], name="third"),
        make_node("Reshape", ["t", "sizes"], ["y"], name="fourth"),
    ]
    net = imported(model(nodes, {"x": (F32, [3])}, ["y"]))
    for one in (net, net.copy()):
        found = one.model_tensors
        assert {name: t.node for name, t in found.items()} == {
            "same": "first", "t": "second", "sizes": "third", "y": "fourth",
        }  # fmt: skip
        assert found["same"].value is one.inputs[0]
        assert found["t"].value.producer.name == "second"
        assert found["sizes"].value.const.tolist() == [3]


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ([make_node("Abs", ["b"], ["y"], name="p"), make_node("Abs", ["y"], ["b"], name="q")], ["cycle", "p", "q"]),
        ([make_node("Abs", ["x"], ["y"], name="p"), make_node("Exp", ["x"], ["y"], name="q")], ["two nodes", "'p'"]),
        ([make_node("Add", ["x", "ghost"], ["y"], name="p")], ["'ghost'", "made by nothing", "'p'"]),
        ([make_node("Abs", ["x"], ["t"])], ["'y'", "made by nothing"]),
        ([make_node("Abs", ["x"], ["x"]), make_node("Abs", ["x"], ["y"])], ["twice"]),
    ],
)  # fmt: skip
def test_damage_is_told_with_names(nodes: Any, words: list[str], imported: Any, model: Any) -> None:
    with pytest.raises(ModelImportError) as e:
        imported(model(nodes, {"x": (F32, [3])}, ["y"]))
    assert all(w in str(e.value) for w in words), str(e.value)


def test_every_unsupported_node_is_listed(imported: Any, model: Any) -> None:
    nodes = [
        make_node("Swirl", ["x"], ["a"], name="one", domain="acme"),
        make_node("Abs", ["a"], ["b"]),
        make_node("Warble", ["b"], ["y"], name="two"),
    ]
    with pytest.raises(UnsupportedOperator) as e:
        imported(model(nodes, {"x": (F32, [3])}, ["y"], opset=17))
    for words in (
        "'one' (acme::Swirl, opset 1)",
        "'two' (ai.onnx::Warble, opset 17)",
        "no installed plugin",
    ):
        assert words in str(e.value)


def test_a_refusal_names_node_operator_and_reason(imported: Any, model: Any) -> None:
    nodes = [make_node("Tile", ["x", "n", "a"], ["y"], name="thick")]
    proto = model(nodes, {"x": (F32, [3]), "n": (F32, []), "a": (F32, [])}, ["y"], opset=5)
    with pytest.raises(
        UnsupportedOperator, match=r"'thick' \(ai.onnx::Tile, opset 5\).*input 1\) are not constant"
    ):
        imported(proto)


def test_an_error_of_inference_names_the_node(imported: Any, model: Any) -> None:
    nodes = [make_node("MatMul", ["x", "x"], ["y"], name="product")]
    with pytest.raises(ModelImportError, match=r"'product' \(ai.onnx::MatMul.*summed axis"):
        imported(model(nodes, {"x": (F32, [3, 4])}, ["y"]))


@pytest.mark.parametrize(
    ("op", "dtypes", "words"),
    [
        ("Conv", (F32, np.int32), "input 1 .W. 'w' is tensor.int32.: Conv takes"),
        ("Conv", (np.int32, np.int32), "input 0 .X. 'x' is tensor.int32.: Conv takes"),
        ("ConvTranspose", (F32, np.int32), "input 1 .W. 'w' is tensor.int32."),
        ("ConvTranspose", (np.int32, np.int32), "input 0 .X. 'x' is tensor.int32."),
        ("MatMul", (F32, np.int32), "is tensor.float., and input 1 'w' tensor.int32."),
        ("MatMul", (F32, np.float16), "is tensor.float., and input 1 'w' tensor.float16."),
    ],
)
def test_dtypes_that_products_do_not_take(
    op: str, dtypes: Any, words: str, imported: Any, model: Any
) -> None:
    nodes = [make_node(op, ["x", "w"], ["y"], name="product")]
    w = np.ones((1, 1, 3, 3), dtypes[1])
    with pytest.raises(ModelImportError, match=rf"'product' \(ai.onnx::{op}.*{words}"):
        imported(model(nodes, {"x": (dtypes[0], [1, 1, 3, 3])}, ["y"], {"w": w}))


@pytest.mark.parametrize(
    ("op", "indices", "words"),
    [
        ("Gather", [5], "index 5 is out of range: axis 1 of f32(2, 3) has 3 elements"),
        ("Gather", [0, -4], "index -4 is out of range: axis 1 of f32(2, 3) has 3 elements"),
        ("GatherElements", [[0, 3]], "index 3 is out of range: axis 1 of f32(2, 3)"),
        ("GatherND", [[1, 0], [0, 7]], "index 7 is out of range: axis 1 of f32(2, 3)"),
        ("GatherND", [[-3, 0]], "index -3 is out of range: axis 0 of f32(2, 3) has 2 elements"),
    ],
)
def test_a_constant_index_beyond_its_axis(
    op: str, indices: Any, words: str, imported: Any, model: Any
) -> None:
    fields = {} if op == "GatherND" else {"axis": 1}
    m = model(
        [make_node(op, ["x", "i"], ["y"], name="reader", **fields)],
        {"x": (F32, [2, 3])},
        ["y"],
        {"i": np.array(indices)},
    )
    with pytest.raises(ModelImportError, match="'reader'") as told:
        imported(m)
    assert words in str(told.value)


@pytest.mark.parametrize(
    ("op", "inputs", "constants", "words"),
    [
        (
            "Reshape",
            ["x", "a"],
            {"a": np.array([4, 4], F32)},
            "input 1 .shape. 'a' is tensor.float.",
        ),
        (
            "Resize",
            ["x", "", "a", "b"],
            {"a": np.ones(4, F32), "b": np.array([1, 1, 4, 4])},
            "both scales and sizes",
        ),
        (
            "OneHot",
            ["x", "a", "b"],
            {"a": np.array(-2), "b": np.array([0, 1], F32)},
            "a depth of -2, which is negative",
        ),
    ],
)
def test_constants_that_an_operator_does_not_take(
    op: str, inputs: list[str], constants: Any, words: str, imported: Any, model: Any
) -> None:
    nodes = [make_node(op, inputs, ["y"], name="reader")]
    with pytest.raises(ModelImportError, match=rf"'reader' \(ai.onnx::{op}.*{words}"):
        imported(model(nodes, {"x": (F32, [1, 1, 4, 4])}, ["y"], constants))


def test_an_exception_in_a_converter_names_the_node(imported: Any, model: Any) -> None:
    def broken(ctx: Any, node: Any) -> Any:
        return [][1]

    nodes = [make_node("Spin", ["x"], ["y"], name="s", domain="acme")]
    with pytest.raises(ModelImportError, match=r"'s' \(acme::Spin.*IndexError"):
        imported(
            model(nodes, {"x": (F32, [3])}, ["y"]),
            extra_converters=[Converter("onnx", "acme::Spin", broken)],
        )


def test_the_highest_converter_that_fits_is_taken(imported: Any, model: Any) -> None:
    def layer(name: str) -> Any:
        return lambda ctx, node: ctx.layer(f"tactix.{name}", [ctx.tensor()])

    nodes = [make_node("Spin", ["x"], ["y"], domain="acme")]
    table = [
        Converter("onnx", "acme::Spin", layer(n), since)
        for n, since in (("Abs", 1), ("Exp", 2), ("Log", 4))
    ]
    opsets = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("acme", 3)]
    net = imported(
        model(nodes, {"x": (F32, [3])}, ["y"], opset_imports=opsets), extra_converters=table
    )
    assert [n.layer.name for n in net.nodes] == ["Exp"]


def test_converters_of_the_caller_come_first_and_those_of_any_domain_last(model: Any) -> None:
    def layer(name: str) -> Any:
        return lambda ctx, node: ctx.layer(f"tactix.{name}", [ctx.tensor()])

    nodes = [
        make_node("Spin", ["x"], ["a"], domain="acme"),
        make_node("Resize", ["a"], ["b"], domain="acme"),
        make_node("Abs", ["b"], ["c"]),
        make_node("Flatten", ["c"], ["d"]),
        make_node("Exp", ["d"], ["y"]),
    ]
    own = {"*::Spin": "Neg", "*::Resize": "Floor", "*::Flatten": "Sin", "*::Exp": "Sin"}
    own["ai.onnx::Abs"] = "Ceil"
    table = [Converter("onnx", op, layer(name)) for op, name in own.items()]
    source = model(nodes, {"x": (F32, [2, 3, 4])}, ["y"])
    net = tactix.Builder().import_model(source, converters=table)
    assert [n.layer.name for n in net.nodes] == ["Neg", "Floor", "Ceil", "Reshape", "Exp"]


def test_a_layer_imports_its_operator_with_attributes_and_defaults(
    imported: Any, model: Any
) -> None:
    @pointwise("acme.Ramp@1", onnx="acme::Ramp")
    def ramp(x: Scalar, *, slope: float = 2.0, flip: bool = False) -> Scalar:
        return -(x * slope) if flip else x * slope

    nodes = [
        make_node("Ramp", ["x"], ["t"], domain="acme", flip=1),
        make_node("Ramp", ["t"], ["y"], domain="acme", slope=3.0),
    ]
    net = imported(model(nodes, {"x": (F32, [2])}, ["y"]), extra_layers=[ramp])
    assert np.array_equal(
        evaluate(net, {"x": np.array([1, 2], F32)})["y"], np.array([-6, -12], F32)
    )


def test_an_attribute_that_a_layer_lacks_is_refused(imported: Any, model: Any) -> None:
    @pointwise("acme.Ramp@1", onnx="acme::Ramp")
    def ramp(x: Scalar) -> Scalar:
        return x

    nodes = [make_node("Ramp", ["x"], ["y"], domain="acme", slope=3.0)]
    with pytest.raises(UnsupportedOperator, match=r"attribute 'slope' = 3\.0.*It has: no attr"):
        imported(model(nodes, {"x": (F32, [2])}, ["y"]), extra_layers=[ramp])


@pytest.mark.parametrize(("name", "cure"), [("gian", "Did you mean 'gain'"), ("q", "It has: gain")])
def test_a_misspelt_attribute_is_told_with_what_the_layer_has(
    name: str, cure: str, imported: Any, model: Any
) -> None:
    @pointwise("acme.Ramp@1", onnx="acme::Ramp")
    def ramp(x: Scalar, *, gain: float = 1.0) -> Scalar:
        return x * gain

    nodes = [make_node("Ramp", ["x"], ["y"], domain="acme", **{name: 3.0})]
    with pytest.raises(UnsupportedOperator, match=cure) as e:
        imported(model(nodes, {"x": (F32, [2])}, ["y"]), extra_layers=[ramp])
    assert "onnx.checker" not in str(e.value)


def test_an_attribute_that_a_converter_does_not_look_at_is_refused(
    imported: Any, model: Any
) -> None:
    def plain(ctx: Any, node: Any) -> Any:
        ctx.ignore("note")
        return ctx.layer("tactix.Abs", [ctx.tensor()])

    def net(**attrs: Any) -> Any:
        nodes = [make_node("Spin", ["x"], ["y"], domain="acme", **attrs)]
        table = [Converter("onnx", "acme::Spin", plain)]
        return imported(model(nodes, {"x": (F32, [2])}, ["y"]), extra_converters=table)

    assert len(net(note="any").nodes) == 1
    with pytest.raises(UnsupportedOperator, match="attribute 'speed' = 3"):
        net(speed=3)


def test_an_operators_own_default_may_be_spelt_out(imported: Any, model: Any) -> None:
    nodes = [
        make_node("Gemm", ["x", "x"], ["t"], alpha=1.0, transA=0),
        make_node("Relu", ["t"], ["y"]),
    ]
    assert len(imported(model(nodes, {"x": (F32, [2, 2])}, ["y"])).nodes) == 2


def test_a_kernel_shape_must_be_that_of_the_weights(imported: Any, model: Any) -> None:
    nodes = [make_node("Conv", ["x", "w"], ["y"], kernel_shape=[3, 5])]
    with pytest.raises(ModelImportError, match="kernel_shape has 5 where the weights have 3"):
        imported(
            model(nodes, {"x": (F32, [1, 1, 9, 9])}, ["y"], {"w": np.zeros((1, 1, 3, 3), F32)})
        )


def test_an_output_that_nothing_gives_is_refused(imported: Any, model: Any) -> None:
    nodes = [make_node("AveragePool", ["x"], ["y", "where"], kernel_shape=[2])]
    with pytest.raises(ModelImportError, match="its outputs are 2: AveragePool gives at most 1"):
        imported(model(nodes, {"x": (F32, [1, 1, 4])}, ["y", "where"]))


def test_an_output_may_be_an_input_or_a_constant(imported: Any, model: Any) -> None:
    m = model(
        [make_node("Abs", ["x"], ["y"])], {"x": (F32, [2])}, ["y", "x", "c"], {"c": np.arange(3)}
    )
    got = evaluate(imported(m), {"x": np.array([-1, 1], F32)})
    assert list(got) == ["y", "x", "c"]
    assert np.array_equal(got["c"], np.arange(3))


def test_what_is_no_tensor_is_refused(imported: Any) -> None:
    mapping = onnx.helper.make_empty_tensor_value_info("x")
    mapping.type.map_type.key_type = 7
    graph = onnx.helper.make_graph(
        [], "g", [mapping], [onnx.helper.make_empty_tensor_value_info("x")]
    )
    with pytest.raises(
        UnsupportedOperator, match="'x': the model takes something that is no tensor"
    ):
        imported(onnx.helper.make_model(graph))


def test_an_input_without_rank_is_refused(imported: Any) -> None:
    x = onnx.helper.make_tensor_value_info("x", 1, None)
    graph = onnx.helper.make_graph([], "g", [x], [onnx.helper.make_empty_tensor_value_info("x")])
    with pytest.raises(
        ModelImportError, match=r"'x': it has no rank.*declares no shape.*--shapes x:1x3"
    ):
        imported(onnx.helper.make_model(graph))


def test_an_input_without_rank_takes_the_shape_that_is_built_for(
    tmp_path: Path, model: Any
) -> None:
    proto = model([make_node("Add", ["x", "x"], ["y"])], {"x": (F32, [])}, ["y"])
    proto.graph.input[0].type.tensor_type.ClearField("shape")
    onnx.save(proto, tmp_path / "m.onnx")
    options: dict[str, Any] = {"level": 0, "timing_cache": False}
    fixed = tactix.build(proto, shapes={"x": (2, 3)}, **options)
    assert [io.shape for io in fixed.inputs] == [(2, 3)]
    x = np.ones((5, 3), F32)
    ranged = tactix.build(proto, shapes={"x": ((1, 3), (4, 3), (8, 3))}, **options)
    np.testing.assert_array_equal(ranged(x), 2 * x)
    with pytest.raises(ShapeError, match="is 9: profile"):
        ranged(np.ones((9, 3), F32))
    args = [
        "build",
        str(tmp_path / "m.onnx"),
        "--shapes",
        "x:2x3",
        "-O",
        "0",
        "-o",
        str(tmp_path / "m.plan"),
    ]
    assert cli.main(args) == 0
    assert cli.main(args[:2] + args[4:]) != 0


@pytest.mark.parametrize("where", [{"y": (1,)}, {"x": (1,), "y": (1,)}])
def test_shapes_of_inputs_that_are_not_there_are_refused(where: Any, model: Any) -> None:
    proto = model([make_node("Neg", ["x"], ["y"])], {"x": (F32, [])}, ["y"])
    proto.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises((ConfigError, ModelImportError)):
        tactix.build(proto, shapes=where, level=0, timing_cache=False)


def test_claims(tmp_path: Path, model: Any) -> None:
    importer = importers()[0]
    m = model([make_node("Abs", ["x"], ["y"])], {"x": (F32, [2])}, ["y"])
    other = tmp_path / "weights.bin"
    other.write_bytes(b"PK\x03\x04")
    plain = tmp_path / "model"
    plain.write_bytes(m.SerializeToString())
    assert importer.claims(m)
    assert importer.claims(m.SerializeToString())
    assert importer.claims(plain)
    assert importer.claims("anything.onnx")
    assert not importer.claims(other)
    assert not importer.claims(b"PK")
    assert not importer.claims(3)


def test_path_bytes_and_object_give_the_same(tmp_path: Path, imported: Any, model: Any) -> None:
    m = model(
        [make_node("Add", ["x", "w"], ["y"])], {"x": (F32, [3])}, ["y"], {"w": np.ones(3, F32)}
    )
    path = tmp_path / "m.onnx"
    path.write_bytes(m.SerializeToString())
    for source in (m, m.SerializeToString(), path, str(path)):
        assert np.array_equal(
            evaluate(imported(source), {"x": np.ones(3, F32)})["y"], np.full(3, 2, F32)
        )


@pytest.mark.parametrize("damage", [b"", b"\x08", b"\x08\x09garbage" * 9, b"<html></html>"])
def test_what_is_no_model_is_told(damage: bytes, tmp_path: Path, imported: Any) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(damage)
    with pytest.raises(ModelImportError, match=r"m\.onnx: not an ONNX model"):
        imported(path)


def test_a_truncated_model_is_told(tmp_path: Path, imported: Any, model: Any) -> None:
    m = model([make_node("Abs", ["x"], ["y"])], {"x": (F32, [2])}, ["y"])
    path = tmp_path / "m.onnx"
    path.write_bytes(m.SerializeToString()[:-9])
    with pytest.raises(ModelImportError):
        imported(path)


def test_keys_of_converters_are_unique() -> None:
    keys = [c.key for c in converters()]
    assert len(keys) == len(set(keys))


def test_a_model_without_outputs_is_told_what_it_lacks(imported: Any, model: Any) -> None:
    with pytest.raises(ModelImportError, match=r"the model has no outputs.*Export it with"):
        imported(model([make_node("Abs", ["x"], ["y"])], {"x": (F32, ["n"])}, []))


def test_an_output_named_twice_is_one(imported: Any, model: Any) -> None:
    net = imported(model([make_node("Abs", ["x"], ["y"])], {"x": (F32, ["n"])}, ["y", "y"]))
    assert net.output_names == ("y",)


def expanding(model: Any) -> onnx.ModelProto:
    inputs = {"x": (F32, ["n", 1]), "s": (np.int64, ["k"])}
    return model([make_node("Expand", ["x", "s"], ["y"])], inputs, ["y"])


def test_the_length_of_a_shape_is_the_one_that_is_built_for(model: Any) -> None:
    options: dict[str, Any] = {"level": 0, "timing_cache": False}
    engine = tactix.build(expanding(model), shapes={"s": (3,)}, **options)
    x = np.arange(2, dtype=F32).reshape(2, 1)
    want = np.broadcast_to(x, (4, 2, 5))
    np.testing.assert_array_equal(engine(x=x, s=np.array([4, 1, 5])), want)


def test_a_shape_of_unknown_length_names_the_option_that_fixes_it(
    imported: Any, model: Any
) -> None:
    with pytest.raises(ModelImportError, match=r"number of dims must be fixed.*--shapes") as e:
        imported(expanding(model))
    assert "onnx.checker" not in str(e.value)
