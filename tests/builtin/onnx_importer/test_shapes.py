"""Shape arithmetic of exported models: it is settled at import, over symbols, and none of it is
left in the network.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx.helper import make_node

from tactix.base.dims import Dim, dmax, evaluate_shape, floordiv, sym
from tactix.base.dtypes import DType
from tactix.base.errors import ShapeError
from tactix_onnx.dim_text import dim_of
from tactix_onnx.dims_of import even_parts, resolved, slice_bounds
from tactix_sdk.evaluate import evaluate

F32 = np.float32
N, S, T = sym("n"), sym("s"), sym("t")


def names(net: Any) -> list[str]:
    return [n.layer.name for n in net.nodes]


def heads(model: Any) -> onnx.ModelProto:
    """x (n, s, 24) to (n, 4, s, 6), as the tracing exporter writes it."""
    nodes = [
        make_node("Shape", ["x"], ["shape"]),
        make_node("Gather", ["shape", "zero"], ["batch"]),
        make_node("Gather", ["shape", "one"], ["length"]),
        make_node("Unsqueeze", ["batch", "axis"], ["batch1"]),
        make_node("Unsqueeze", ["length", "axis"], ["length1"]),
        make_node("Concat", ["batch1", "length1", "four", "rest"], ["target"], axis=0),
        make_node("Reshape", ["x", "target"], ["split"]),
        make_node("Transpose", ["split"], ["y"], perm=[0, 2, 1, 3]),
    ]
    constants = {"zero": np.int64(0), "one": np.int64(1), "axis": [0], "four": [4], "rest": [-1]}
    out: onnx.ModelProto = model(nodes, {"x": (F32, ["n", "s", 24])}, ["y"], constants)
    return out


def test_a_reshape_target_is_resolved(imported: Any, model: Any) -> None:
    net = imported(heads(model))
    assert names(net) == ["Reshape", "Transpose"]
    assert net.nodes[0].attrs.shape == (N, S, 4, 6)
    assert net.outputs[0].spec.shape == (N, 4, S, 6)


def test_the_broadcast_target_idiom(imported: Any, model: Any) -> None:
    """Expand to a shape in which -1 stands for 1: ConstantOfShape, Mul, Equal, Where on the shape
    itself.
    """
    nodes = [
        make_node("Shape", ["y"], ["shape"]),
        make_node("Gather", ["shape", "first"], ["batch"]),
        make_node("Concat", ["batch", "minus"], ["wanted"], axis=0),
        make_node("Shape", ["wanted"], ["rank"]),
        make_node(
            "ConstantOfShape", ["rank"], ["ones"], value=onnx.helper.make_tensor("v", 7, [1], [1])
        ),
        make_node("Mul", ["ones", "minus"], ["minuses"]),
        make_node("Equal", ["wanted", "minuses"], ["free"]),
        make_node("Where", ["free", "ones", "wanted"], ["target"]),
        make_node("Expand", ["x", "target"], ["z"]),
    ]
    constants = {"first": [0], "minus": [-1]}
    net = imported(model(nodes, {"x": (F32, [1, 3]), "y": (F32, ["n", 9])}, ["z"], constants))
    assert names(net) == ["Expand"]
    assert net.outputs[0].spec.shape == (N, 3)


def test_a_shape_that_is_data_becomes_one_layer(imported: Any, model: Any) -> None:
    nodes = [
        make_node("Shape", ["x"], ["shape"], start=1, end=2),
        make_node("Squeeze", ["shape"], ["length"]),
        make_node("Cast", ["length"], ["count"], to=1),
        make_node("Div", ["x", "count"], ["y"]),
    ]
    net = imported(model(nodes, {"x": (F32, ["n", "s"])}, ["y"]))
    assert names(net) == ["Dims", "Div"]
    assert net.nodes[0].attrs.values == (S,)
    assert net.nodes[0].outputs[0].spec.dtype is DType.FP32
    x = np.arange(12, dtype=F32).reshape(3, 4)
    assert np.array_equal(evaluate(net, {"x": x})["y"], x / 4)


def test_small_constant_subgraphs_are_folded(imported: Any, model: Any) -> None:
    nodes = [
        make_node("Exp", ["c"], ["e"]),
        make_node("ReduceSum", ["e"], ["total"], keepdims=0),
        make_node("Mul", ["x", "total"], ["y"]),
        make_node("Neg", ["large"], ["kept"]),
        make_node("Add", ["y", "kept"], ["z"]),
    ]
    constants = {"c": np.zeros(5, F32), "large": np.zeros((40, 40), F32)}
    net = imported(model(nodes, {"x": (F32, [40, 40])}, ["z"], constants))
    assert sorted(names(net)) == ["Add", "Mul", "Neg"]
    assert float(next(n for n in net.nodes if n.layer.name == "Mul").inputs[1].const) == 5.0


def test_a_static_shape_gives_constants_alone(imported: Any, model: Any) -> None:
    nodes = [
        make_node("Shape", ["x"], ["s"]),
        make_node("ConstantOfShape", ["s"], ["z"]),
        make_node("Add", ["x", "z"], ["y"]),
    ]
    net = imported(model(nodes, {"x": (F32, [2, 3])}, ["y"]))
    assert names(net) == ["Add"]


def test_resize_by_a_computed_size(imported: Any, model: Any) -> None:
    """Twice the size, by Shape, Slice, Cast, Mul, Floor, Cast, Concat: as older exporters write
    interpolation.
    """
    nodes = [
        make_node("Shape", ["x"], ["shape"]),
        make_node("Slice", ["shape", "two", "four"], ["hw"]),
        make_node("Slice", ["shape", "zero", "two"], ["nc"]),
        make_node("Cast", ["hw"], ["real"], to=1),
        make_node("Mul", ["real", "factor"], ["scaled"]),
        make_node("Floor", ["scaled"], ["whole"]),
        make_node("Cast", ["whole"], ["sizes2"], to=7),
        make_node("Concat", ["nc", "sizes2"], ["sizes"], axis=0),
        make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="nearest"),
    ]
    constants = {"zero": [0], "two": [2], "four": [4], "factor": np.full(2, 2, F32)}
    net = imported(model(nodes, {"x": (F32, ["n", 3, "h", "w"])}, ["y"], constants))
    assert names(net) == ["Resize"]
    assert net.outputs[0].spec.shape == (N, 3, 2 * sym("h"), 2 * sym("w"))


def test_scales_that_are_fractions(imported: Any, model: Any) -> None:
    scales = np.array([1, 1, 0.5, 0.7], F32)
    nodes = [make_node("Resize", ["x", "", "scales"], ["y"], mode="linear")]
    net = imported(model(nodes, {"x": (F32, [1, 1, "h", "w"])}, ["y"], {"scales": scales}))
    h, w = net.outputs[0].spec.shape[2:]
    for size in range(1, 40):
        want = [int(np.floor(F32(size) * s)) for s in scales[2:]]
        assert list(evaluate_shape((h, w), {"h": size, "w": size})) == want


def test_a_table_limits_the_symbol_that_reads_it(imported: Any, model: Any) -> None:
    nodes = [
        make_node("Shape", ["x"], ["len"], start=1),
        make_node("Slice", ["table", "zero", "len", "zero"], ["used"]),
        make_node("Add", ["x", "used"], ["y"]),
    ]
    constants = {"table": np.arange(16, dtype=F32), "zero": [0]}
    net = imported(model(nodes, {"x": (F32, ["n", "s"])}, ["y"], constants))
    assert net.limits == {"s": 16}
    assert net.outputs[0].spec.shape == (N, S)
    assert evaluate(net, {"x": np.zeros((1, 16), F32)})["y"].shape == (1, 16)
    with pytest.raises(ShapeError, match="'s' is 17, the network takes at most 16"):
        evaluate(net, {"x": np.zeros((1, 17), F32)})


def test_counting_through_a_table_limits_the_symbol(imported: Any, model: Any) -> None:
    nodes = [
        make_node("Shape", ["x"], ["len"], start=1),
        make_node("Squeeze", ["len"], ["count"]),
        make_node("Range", ["zero", "count", "one"], ["positions"]),
        make_node("Unsqueeze", ["positions", "axis"], ["row"]),
        make_node("Gather", ["table", "row"], ["y"]),
    ]
    constants = {
        "table": np.zeros((16, 3), F32),
        "zero": np.int64(0),
        "one": np.int64(1),
        "axis": [0],
    }
    net = imported(model(nodes, {"x": (F32, ["n", "s"])}, ["y"], constants))
    assert net.limits == {"s": 16}
    assert names(net) == ["Dims", "Range", "Reshape", "Gather"]


def test_a_cut_of_data_is_clamped(imported: Any, model: Any) -> None:
    nodes = [make_node("Slice", ["x", "zero", "end", "one"], ["y"])]
    net = imported(
        model(nodes, {"x": (F32, ["n", "s"])}, ["y"], {"zero": [0], "end": [5], "one": [1]})
    )
    assert net.limits == {}
    for s in (3, 5, 8):
        assert evaluate(net, {"x": np.zeros((2, s), F32)})["y"].shape == (2, min(s, 5))


def test_a_reshape_by_data_keeps_its_shape_tensor(imported: Any, model: Any) -> None:
    net = imported(
        model(
            [make_node("Reshape", ["x", "s"], ["y"], name="r")],
            {"x": (F32, [6]), "s": (np.int64, [2])},
            ["y"],
        )
    )
    assert names(net) == ["DynamicReshape"]
    assert net.outputs[0].spec.shape == (sym("r_0"), sym("r_1"))
    assert evaluate(net, {"x": np.zeros(6, F32), "s": np.array([2, -1])})["y"].shape == (2, 3)


def test_a_range_by_data_names_its_size(imported: Any, model: Any) -> None:
    scalar = (np.int64, [])
    nodes = [make_node("Range", ["a", "b", "c"], ["y"], name="r")]
    net = imported(model(nodes, {"a": scalar, "b": scalar, "c": scalar}, ["y"]))
    assert net.outputs[0].spec.shape == (sym("r_size"),)
    got = evaluate(net, {"a": np.int64(2), "b": np.int64(9), "c": np.int64(3)})["y"]
    assert got.tolist() == [2, 5, 8]


def test_bounds_that_only_running_gives_name_a_dim(imported: Any, model: Any) -> None:
    nodes = [make_node("Slice", ["x", "a", "b"], ["y"], name="cut")]
    net = imported(
        model(nodes, {"x": (F32, [6, 2]), "a": (np.int64, [1]), "b": (np.int64, [1])}, ["y"])
    )
    assert net.outputs[0].spec.shape == (sym("cut_0"), 2)
    x = np.arange(12, dtype=F32).reshape(6, 2)
    got = evaluate(net, {"x": x, "a": np.array([-5]), "b": np.array([100])})["y"]
    assert np.array_equal(got, x[1:])


def test_nodes_of_one_name_give_different_dims(imported: Any, model: Any) -> None:
    nodes = [
        make_node("NonZero", ["x"], ["a"], name="n"),
        make_node("NonZero", ["y"], ["b"], name="n"),
    ]
    net = imported(model(nodes, {"x": (F32, [4]), "y": (F32, [4])}, ["a", "b"]))
    got = evaluate(net, {"x": np.array([1, 0, 2, 0], F32), "y": np.array([0, 0, 3, 0], F32)})
    assert (got["a"].tolist(), got["b"].tolist()) == ([[0, 2]], [[2]])


# -- the arithmetic by itself --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "target", "want"),
    [
        ((N, S, 768), (N, S, 12, -1), (N, S, 12, 64)),
        ((N, S, 768), (-1, 768), (N * S, 768)),
        ((N, 12, S, 64), (-1, S, 64), (12 * N, S, 64)),
        ((N, S + T, 8), (N, -1, 4), (N, 2 * (S + T), 4)),
        ((N, S + T, 8), (-1, S + T, 8), (N, S + T, 8)),
        ((N, 6), (0, -1, 2), (N, 3, 2)),
        ((2, 6), (3, 4), (3, 4)),
        ((N, 6), (-1,), (6 * N,)),
        ((N, 6), (4, -1), (4, floordiv(6 * N, 4))),
    ],
)
def test_targets(shape: tuple[Dim, ...], target: tuple[Dim, ...], want: tuple[Dim, ...]) -> None:
    assert resolved(shape, target, allow_zero=False) == want


@pytest.mark.parametrize(
    ("shape", "target"),
    [((2, 3), (-1, -1)), ((2, 3), (0, 0, 0)), ((2, 3), (4, -1))],
    ids=["two", "copy", "divide"],
)
def test_targets_without_meaning(shape: tuple[int, ...], target: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError):
        resolved(shape, target, allow_zero=False)


def test_slices_are_pythons_own() -> None:
    for size in (0, 1, 5):
        for start in range(-7, 8):
            for end in range(-7, 8):
                for step in (-3, -1, 1, 2):
                    first, count = slice_bounds(size, start, end, step)
                    want = list(range(size))[start:end:step] if size else []
                    assert isinstance(first, int)
                    assert isinstance(count, int)
                    assert [first + i * step for i in range(count)] == want, (
                        size,
                        start,
                        end,
                        step,
                    )


def test_slices_of_symbolic_axes() -> None:
    far = 2**63 - 1
    assert slice_bounds(S, 0, far, 1) == (0, S)
    assert slice_bounds(S + 4, 1, -1, 1) == (1, S + 2)
    assert slice_bounds(S + 4, -2, far, 1) == (S + 2, 2)
    assert slice_bounds(S, far, -far, -1) == (dmax(S - 1, 0), S)
    assert slice_bounds(N, 0, S, 1, fits=True) == (0, S)
    for start, end, step in ((0, -1, 1), (-3, far, 1), (1, 4, 2), (-1, -far, -2), (3, 0, -1)):
        first, count = slice_bounds(S, start, end, step)
        for size in range(1, 9):
            k = evaluate_shape((count,), {"s": size})[0]
            a = evaluate_shape((first,), {"s": size})[0]
            assert [a + i * step for i in range(k)] == list(range(size))[start:end:step], (
                size,
                start,
                end,
                step,
            )


def test_even_parts() -> None:
    assert even_parts(7, 3) == (3, 3, 1)
    assert even_parts(3 * S, 3) == (S, S, S)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("a", sym("a")),
        ("a + b", sym("a") + sym("b")),
        ("2*a//3", floordiv(2 * sym("a"), 3)),
        ("a + stranger", sym("a + stranger")),
        ("f(a)", sym("f(a)")),
        ("a.b", sym("a.b")),
        ("a +", sym("a +")),
        ("2.5*a", sym("2.5*a")),
    ],
)
def test_named_dimensions(text: str, want: Dim) -> None:
    assert dim_of(text, {"a", "b"}) == want


def test_a_dimension_that_is_a_sum_of_others(imported: Any, model: Any) -> None:
    inputs = {
        "mask": (F32, ["n", "past + s"]),
        "x": (F32, ["n", "s"]),
        "cache": (F32, ["n", "past"]),
    }
    nodes = [
        make_node("Concat", ["cache", "x"], ["all"], axis=1),
        make_node("Mul", ["all", "mask"], ["y"]),
    ]
    net = imported(model(nodes, inputs, ["y"]))
    assert net.outputs[0].spec.shape == (N, sym("past") + S)
    assert net.symbols() == ("n", "past", "s")
    shapes = {"mask": (2, 7), "x": (2, 3), "cache": (2, 4)}
    assert evaluate(net, {k: np.ones(v, F32) for k, v in shapes.items()})["y"].shape == (2, 7)


def test_an_axis_of_at_most_one_element_goes(imported: Any, model: Any) -> None:
    nodes = [
        make_node("Slice", ["x", "zero", "one"], ["row"]),
        make_node("Squeeze", ["row"], ["y"]),
    ]
    net = imported(model(nodes, {"x": (F32, ["n", 3])}, ["y"], {"zero": [0], "one": [1]}))
    assert net.outputs[0].spec.shape == (3,)
    x = np.arange(12, dtype=F32).reshape(4, 3)
    np.testing.assert_array_equal(evaluate(net, {"x": x})["y"], x[0])


@pytest.mark.parametrize(
    ("policy", "sizes"),
    [
        ("not_larger", {(10, 10): (7, 7), (8, 21): (3, 9), (3, 2): (7, 5)}),
        ("not_smaller", {(10, 10): (9, 9), (8, 21): (7, 18), (3, 2): (14, 9)}),
    ],
)
@pytest.mark.parametrize("mode", ["linear", "nearest"])
def test_an_aspect_ratio_is_kept_of_images_of_open_size(
    policy: str, sizes: Any, mode: str, imported: Any, model: Any
) -> None:
    """The sizes are ONNX Runtime's."""

    def resize(shape: Any) -> Any:
        attrs = {"axes": [2, 3], "keep_aspect_ratio_policy": policy, "mode": mode}
        node = make_node("Resize", ["x", "", "", "wanted"], ["y"], **attrs)
        return imported(model([node], {"x": (F32, shape)}, ["y"], {"wanted": [7, 9]}, opset=19))

    net = resize([1, 2, "h", "w"])
    for given, made in sizes.items():
        x = np.arange(2 * given[0] * given[1], dtype=F32).reshape(1, 2, *given)
        y = evaluate(net, {"x": x})["y"]
        assert y.shape == (1, 2, *made)
        np.testing.assert_allclose(
            y, evaluate(resize(list(x.shape)), {"x": x})["y"], rtol=1e-5, atol=1e-4
        )


def test_bounds_whose_number_only_running_tells_cut_the_first_axes(
    imported: Any, model: Any
) -> None:
    """As torch's EmbeddingBag is written: bounds are slices of a list of offsets."""
    nodes = [
        make_node("Slice", ["offsets", "i", "j"], ["start"]),
        make_node("Slice", ["offsets", "j", "k"], ["end"]),
        make_node("Slice", ["x", "start", "end"], ["y"]),
    ]
    inputs = {"x": (F32, ["n", 2]), "offsets": (np.int64, ["m"])}
    inputs |= {name: (np.int64, [1]) for name in "ijk"}
    net = imported(model(nodes, inputs, ["y"]))
    x = np.arange(10, dtype=F32).reshape(5, 2)
    feed = {"x": x, "offsets": np.array([0, 1, 4])}
    feed |= {name: np.array([k]) for k, name in enumerate("ijk", 1)}
    assert np.array_equal(evaluate(net, feed)["y"], x[1:4])
