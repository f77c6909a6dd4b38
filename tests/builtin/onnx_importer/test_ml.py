"""Operators of ``ai.onnx.ml`` against ONNX Runtime, trees drawn at random."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tactix
from tactix.base.errors import (
    ExecutionError,
    InvalidArgument,
    ModelImportError,
    UnsupportedOperator,
)
from tactix_ops.layers.trees import PATIENCE, TreeEnsemble, TreeEnsembleAttrs
from tactix_sdk.evaluate import evaluate

F32 = np.float32
RNG = np.random.default_rng(11)
X = RNG.standard_normal((9, 4), F32)
ROUND = np.round(X)


def check(
    op: str, arrays: list[Any], attrs: dict[str, Any], outputs: int, imported: Any, model: Any
) -> list[Any]:
    """Outputs, after comparing them with ONNX Runtime's."""
    import onnxruntime as ort

    names = [f"o{i}" for i in range(outputs)]
    node = onnx.helper.make_node(
        op, [f"i{i}" for i in range(len(arrays))], names, domain="ai.onnx.ml", **attrs
    )
    feed = {f"i{i}": a for i, a in enumerate(arrays)}
    opsets = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("ai.onnx.ml", 3)]
    declared = {k: (8 if a.dtype == object else a.dtype, a.shape) for k, a in feed.items()}
    proto = model([node], declared, names, opset_imports=opsets)
    wanted = ort.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    ).run(names, feed)
    found = evaluate(imported(proto), feed)
    for name, want in zip(names, wanted, strict=True):
        assert (found[name].dtype, found[name].shape) == (want.dtype, want.shape)
        if want.dtype == object:
            assert found[name].tolist() == want.tolist()
        else:
            np.testing.assert_allclose(found[name], want, rtol=1e-5, atol=1e-6)
    return [found[n] for n in names]


SMALL = RNG.standard_normal(12).tolist()
TEXT = {2: ["no", "yes"], 3: ["low", "mid", "high"]}


def machine(classes: int, kernel: str, **more: Any) -> dict[str, Any]:
    """Attributes of a support vector classifier with 1, 2, ... vectors of its classes, drawn at
    random.
    """
    counts = list(range(1, classes + 1))
    total, pairs = sum(counts), classes * (classes - 1) // 2
    drawn = {"support_vectors": total * 4, "coefficients": (classes - 1) * total, "rho": pairs}
    rng = np.random.default_rng(classes)
    numbers = {name: rng.standard_normal(count).tolist() for name, count in drawn.items()}
    kernel_params = [0.3, 0.5, 3.0]
    return {
        "vectors_per_class": counts,
        "kernel_type": kernel,
        "kernel_params": kernel_params,
        **numbers,
        **more,
    }


def with_probabilities(classes: int, **more: Any) -> dict[str, Any]:
    """A classifier that tells the probability of each class."""
    pairs = classes * (classes - 1) // 2
    numbers = {
        "prob_a": np.linspace(-2, -1, pairs).tolist(),
        "prob_b": np.linspace(-0.5, 0.5, pairs).tolist(),
    }
    return machine(classes, "RBF", **numbers, **more)


PLAIN: list[tuple[str, list[Any], dict[str, Any], int]] = [
    ("Scaler", [X], {"offset": [1.0, -2.0, 0.5, 0.0], "scale": [2.0, 0.5, 1.0, 3.0]}, 1),
    ("Scaler", [X], {"offset": [0.5], "scale": [2.0]}, 1),
    ("Normalizer", [np.abs(X)], {"norm": "MAX"}, 1),
    ("Normalizer", [X], {"norm": "L1"}, 1),
    ("Normalizer", [np.vstack([X, 0 * X[:1]])], {"norm": "L2"}, 1),
    ("Binarizer", [X], {"threshold": 0.25}, 1),
    ("ArrayFeatureExtractor", [X, np.array([[2, 0, 2]])], {}, 1),
    ("FeatureVectorizer", [X, X[:, :1]], {"inputdimensions": [4, 1]}, 1),
    ("Imputer", [np.where(X > 1, np.nan, X).astype(F32)],
     {"imputed_value_floats": [1.0, 2.0, 3.0, 4.0], "replaced_value_float": float("nan")}, 1),
    ("LabelEncoder", [ROUND.astype(np.int64)],
     {"keys_int64s": [1, -1, 0], "values_floats": [0.5, 2.5, -3.0], "default_float": 9.0}, 1),
    ("LabelEncoder", [ROUND], {"keys_floats": [1.0, -1.0], "values_int64s": [4, 7]}, 1),
    *(("LinearRegressor", [X], {"coefficients": SMALL, "intercepts": [0.1, 0.2, 0.3], "targets": 3,
       "post_transform": p}, 1) for p in ("NONE", "SOFTMAX", "LOGISTIC")),
    *(("LinearClassifier", [X], {"coefficients": SMALL, "intercepts": [0.1, 0.2, 0.3], "classlabels_ints": [5, 3, 9],
       "multi_class": 1, "post_transform": p}, 2) for p in ("NONE", "SOFTMAX", "LOGISTIC")),
    *(("LinearClassifier", [X], {"coefficients": SMALL[:4], "intercepts": [0.1], "classlabels_ints": [3, 8],
       "post_transform": p}, 2) for p in ("NONE", "LOGISTIC")),
    ("LinearClassifier", [X], {"coefficients": SMALL, "intercepts": [0.1, 0.2, 0.3],
      "classlabels_strings": TEXT[3]}, 2),
    ("LinearClassifier", [X], {"coefficients": SMALL[:4], "intercepts": [0.1], "classlabels_strings": TEXT[2]}, 2),
    ("LinearClassifier", [X[0]], {"coefficients": SMALL, "intercepts": [0.1, 0.2, 0.3],
      "classlabels_strings": TEXT[3]}, 2),
    *(("SVMClassifier", [X], machine(classes, kernel, classlabels_ints=list(range(3, 3 + classes))), 2)
      for classes in (2, 3, 4) for kernel in ("LINEAR", "POLY", "RBF", "SIGMOID")),
    ("SVMClassifier", [X], machine(3, "RBF", classlabels_strings=TEXT[3]), 2),
    *(("SVMClassifier", [X], machine(classes, "RBF", classlabels_strings=TEXT[classes], post_transform=p), 2)
      for classes in (2, 3) for p in ("LOGISTIC", "SOFTMAX")),
    *(("SVMClassifier", [X], with_probabilities(classes, classlabels_ints=list(range(classes))), 2)
      for classes in (2, 3, 5)),
    ("SVMClassifier", [X.astype(np.float64)], with_probabilities(3, classlabels_strings=TEXT[3]), 2),
    *(("SVMClassifier", [X], {"coefficients": np.multiply(SMALL[:4 * n], s).tolist(), "rho": [0.3],
       "kernel_params": [0.1, 0.0, 3.0], "classlabels_ints": list(range(5, 5 + n)), "post_transform": p}, 2)
      for n in (2, 3) for s in (1, np.sign(SMALL[:4 * n])) for p in ("NONE", "LOGISTIC")),
    *(("SVMRegressor", [X], {"support_vectors": SMALL, "coefficients": [0.5, -1.5, 2.0], "n_supports": 3, "rho": [0.4],
       "kernel_type": kernel, "kernel_params": [0.3, 0.5, 2.0], "one_class": one}, 1)
      for kernel in ("LINEAR", "POLY", "RBF", "SIGMOID") for one in (0, 1)),
    ("SVMRegressor", [X], {"coefficients": SMALL[:4], "n_supports": 0, "rho": [0.4],
      "kernel_params": [0.3, 0.5, 2.0]}, 1),
]  # fmt: skip


@pytest.mark.parametrize(
    ("op", "arrays", "attrs", "outputs"), PLAIN, ids=[f"{c[0]}-{i}" for i, c in enumerate(PLAIN)]
)
def test_agrees_with_onnx_runtime(
    op: str, arrays: list[Any], attrs: dict[str, Any], outputs: int, imported: Any, model: Any
) -> None:
    check(op, arrays, attrs, outputs, imported, model)


def forest(
    rng: np.random.Generator, trees: int, kind: str, ids: int, low: float
) -> dict[str, list[Any]]:
    """Attributes of random trees of depth 3 over 4 features; each leaf has a weight of at least
    ``low``.
    """
    names = ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids")
    out: dict[str, list[Any]] = {f"nodes_{n}": [] for n in names}
    out.update({f"{kind}_{n}": [] for n in ("treeids", "nodeids", "ids", "weights")})
    modes = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT"]
    for tree in range(trees):
        for node in range(15):
            leaf = node >= 7
            row = (tree, node, rng.integers(4), "LEAF" if leaf else str(rng.choice(modes)), rng.standard_normal(),
                   0 if leaf else 2 * node + 1, 0 if leaf else 2 * node + 2)  # fmt: skip
            for name, value in zip(names, row, strict=True):
                out[f"nodes_{name}"].append(
                    value if isinstance(value, (str, float)) else int(value)
                )
            if leaf:
                entry = (tree, node, int(rng.integers(ids)), float(rng.uniform(low, 1)))
                for name, value in zip(
                    ("treeids", "nodeids", "ids", "weights"), entry, strict=True
                ):
                    out[f"{kind}_{name}"].append(value)
    return out


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_a_forest_regresses(aggregate: str, imported: Any, model: Any) -> None:
    attrs = forest(np.random.default_rng(3), 5, "target", 1, -1)
    check(
        "TreeEnsembleRegressor",
        [X],
        {**attrs, "n_targets": 1, "aggregate_function": aggregate, "base_values": [0.5]},
        1,
        imported,
        model,
    )


@pytest.mark.parametrize(("node", "back"), [(0, 0), (1, 0), (6, 6), (5, 2), (3, 15)])
def test_a_tree_that_comes_back_to_itself_is_refused(
    node: int, back: int, imported: Any, model: Any
) -> None:
    """So is one that goes on at a node that is not there."""
    attrs = forest(np.random.default_rng(3), 2, "target", 1, -1)
    attrs["nodes_truenodeids"][node] = back
    node_proto = onnx.helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", **attrs
    )
    opsets = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("ai.onnx.ml", 3)]
    with pytest.raises(ModelImportError):
        imported(model([node_proto], {"x": (F32, (9, 4))}, ["y"], opset_imports=opsets))


def test_a_tree_that_has_no_end_where_it_runs() -> None:
    """As a plan may bring it, whose weights no importer has seen."""
    layer = TreeEnsemble()
    nodes = [
        np.zeros(3, np.int64),
        np.array([0, 0, 7]),
        np.zeros(3, F32),
        np.array([1, 0, 0]),
        np.array([2, 2, 0]),
    ]
    rest = [np.ones(3, bool), np.array([0]), np.array([2]), np.array([0]), np.ones(1, F32)]
    with pytest.raises(InvalidArgument, match="come back to themselves"):
        layer.reference(TreeEnsembleAttrs(), np.zeros((2, 1), F32) - 1, *nodes, *rest)


def test_a_tree_deeper_than_patience_has_an_end() -> None:
    n = 2 * PATIENCE
    mode = np.append(np.zeros(n, np.int64), 7)
    nodes = [
        np.zeros(n + 1, np.int64),
        mode,
        np.zeros(n + 1, F32),
        np.arange(1, n + 2),
        np.full(n + 1, n),
    ]
    rest = [np.zeros(n + 1, bool), np.array([0]), np.array([n]), np.array([0]), np.full(1, 3, F32)]
    (y,) = TreeEnsemble().reference(TreeEnsembleAttrs(), np.zeros((2, 1), F32) - 1, *nodes, *rest)
    assert y.tolist() == [[3], [3]]


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX"])
def test_a_forest_classifies(transform: str, imported: Any, model: Any) -> None:
    attrs = forest(np.random.default_rng(4), 5, "class", 3, 0)
    labels, _ = check("TreeEnsembleClassifier", [X], {**attrs, "classlabels_int64s": [4, 2, 7],
                      "post_transform": transform}, 2, imported, model)  # fmt: skip
    assert set(labels.tolist()) <= {2, 4, 7}


def test_a_forest_tells_classes_by_name(imported: Any, model: Any) -> None:
    attrs = forest(np.random.default_rng(4), 5, "class", 3, 0)
    labels, _ = check(
        "TreeEnsembleClassifier", [X], {**attrs, "classlabels_strings": TEXT[3]}, 2, imported, model
    )
    assert set(labels.tolist()) <= set(TEXT[3])


@pytest.mark.parametrize(
    "labels", [{"classlabels_int64s": [4, 2, 7, 9]}, {"classlabels_strings": ["a", "b", "c", "d"]}]
)
@pytest.mark.parametrize("x", [X, X[0], X[:0]], ids=["rows", "one sample", "no rows"])
def test_scores_become_maps(labels: dict[str, Any], x: Any, model: Any, tmp_path: Path) -> None:
    import onnxruntime as ort

    node = onnx.helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", **labels)
    proto = model([node], {"x": (x.dtype, ("n", 4) if x.ndim == 2 else (4,))}, [])
    key = onnx.TensorProto.INT64 if "classlabels_int64s" in labels else onnx.TensorProto.STRING
    value = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [])
    map_type = onnx.helper.make_sequence_type_proto(onnx.helper.make_map_type_proto(key, value))
    proto.graph.output.append(onnx.helper.make_value_info("y", map_type))
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    (want,) = session.run(None, {"x": x})
    engine = tactix.build(proto)
    engine.save(plan := tmp_path / "maps.plan")
    assert tactix.load(plan)(x) == want
    assert engine(x) == want
    assert [type(k) for row in engine(x) for k in row] == [type(k) for row in want for k in row]


@pytest.mark.parametrize("known", [0, 1])
@pytest.mark.parametrize(
    ("low", "transform"), [(0, "NONE"), (-1, "NONE"), (-1, "LOGISTIC"), (0, "LOGISTIC")]
)
def test_a_forest_of_one_class_tells_two_apart(
    low: float, transform: str, known: int, imported: Any, model: Any
) -> None:
    attrs = forest(np.random.default_rng(5), 1, "class", 1, low)
    attrs["class_ids"] = [known] * len(attrs["class_ids"])
    check(
        "TreeEnsembleClassifier",
        [X],
        {**attrs, "classlabels_int64s": [0, 1], "post_transform": transform},
        2,
        imported,
        model,
    )


WORDS = np.array([["a", "b", ""], ["c", "a", "b"]], object)
TABLES = {"int64s": [4, -1, 7], "floats": [0.5, -2.0, 3.5], "strings": ["a", "b", "c"]}
LOOKED_UP = {
    "int64s": np.array([[4, 7], [-1, 3]]),
    "floats": np.array([0.5, 3.5, 9.0], F32),
    "strings": WORDS,
}


@pytest.mark.parametrize("keys", TABLES)
@pytest.mark.parametrize("values", TABLES)
def test_labels_of_every_kind(keys: str, values: str, imported: Any, model: Any) -> None:
    attrs: dict[str, Any] = {f"keys_{keys}": TABLES[keys], f"values_{values}": TABLES[values]}
    given = {"default_int64": 8, "default_float": 8.5, "default_string": "?"}
    for more in ({}, given):
        check("LabelEncoder", [LOOKED_UP[keys]], {**attrs, **more}, 1, imported, model)


def test_labels_that_are_tensors(imported: Any, model: Any) -> None:
    def tensor(values: Any) -> onnx.TensorProto:
        return onnx.numpy_helper.from_array(np.array(values))

    nan = float("nan")
    x = np.array([nan, 2.0, 1.0, 5.0])
    attrs = {"keys_tensor": tensor([1.0, nan]), "values_tensor": tensor(np.array([3, 4], np.int16)),
             "default_tensor": tensor(np.array([-9], np.int16))}  # fmt: skip
    node = onnx.helper.make_node("LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml", **attrs)
    opsets = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("ai.onnx.ml", 4)]
    y = evaluate(
        imported(model([node], {"x": (x.dtype, x.shape)}, ["y"], opset_imports=opsets)), {"x": x}
    )["y"]
    assert y.dtype == np.int16
    assert y.tolist() == [4, -9, 3, -9]


def test_the_first_version_of_labels(imported: Any, model: Any) -> None:
    attrs = {"classes_strings": ["a", "b"], "default_string": "?", "default_int64": -3}
    node = onnx.helper.make_node("LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml", **attrs)
    pairs = [(WORDS, [[0, 1, -3], [-3, 0, 1]]), (np.array([[1, 0, 7]]), [["b", "a", "?"]])]
    for x, want in pairs:
        y = evaluate(
            imported(model([node], {"x": (8 if x is WORDS else x.dtype, x.shape)}, ["y"])), {"x": x}
        )["y"]
        assert y.tolist() == want


def test_keys_of_another_kind_are_refused(imported: Any, model: Any) -> None:
    attrs = {"keys_strings": ["a"], "values_int64s": [1]}
    node = onnx.helper.make_node("LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml", **attrs)
    opsets = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("ai.onnx.ml", 3)]
    with pytest.raises(UnsupportedOperator, match="keys str do not fit elements i64"):
        imported(model([node], {"x": (np.int64, [3])}, ["y"], opset_imports=opsets))


@pytest.mark.parametrize(
    "x", [WORDS, np.array([[5, 2, 5], [8, 2, -1]])], ids=["strings", "numbers"]
)
def test_categories_are_mapped(x: Any, imported: Any, model: Any) -> None:
    check(
        "CategoryMapper",
        [x],
        {
            "cats_strings": ["a", "b"],
            "cats_int64s": [5, 2],
            "default_string": "none",
            "default_int64": -7,
        },
        1,
        imported,
        model,
    )


@pytest.mark.parametrize(
    "x", [LOOKED_UP["int64s"], np.array([[4.0, 7.9]], F32), WORDS], ids=["i64", "f32", "str"]
)
def test_categories_as_columns(x: Any, imported: Any, model: Any) -> None:
    name = "cats_strings" if x is WORDS else "cats_int64s"
    cats = TABLES[name.removeprefix("cats_")]
    (y,) = check("OneHotEncoder", [x], {name: cats}, 1, imported, model)
    assert y.sum() > 0
    bad = onnx.helper.make_node(
        "OneHotEncoder", ["x"], ["y"], domain="ai.onnx.ml", zeros=0, **{name: cats[:1]}
    )
    declared = {"x": (8 if x is WORDS else x.dtype, x.shape)}
    if x is WORDS:
        node = onnx.helper.make_node(
            "OneHotEncoder", ["x"], ["y"], domain="ai.onnx.ml", zeros=0, **{name: [*cats, ""]}
        )
        assert evaluate(imported(model([node], declared, ["y"])), {"x": x})["y"].sum() == x.size
    with pytest.raises(ExecutionError, match="in no category"):
        evaluate(imported(model([bad], declared, ["y"])), {"x": x})
