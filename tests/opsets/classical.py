"""Classical models, ``ai.onnx.ml``: every operator that takes and gives tensors, at every version
of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from forms import ML, Form, forms, ints, normal

X = np.round(normal(6, 4), 1)
WORDS = np.array([["a", "b"], ["z", "a"]], object)
LINEAR = normal(12).tolist()
NUMBERS = ints(5, 2, 8, 5)
TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX")


@forms(
    f"{ML}::Scaler",
    f"{ML}::Normalizer",
    f"{ML}::Binarizer",
    f"{ML}::Imputer",
    f"{ML}::FeatureVectorizer",
)
def columns(op: str, version: int) -> Iterator[Form]:
    attrs: dict[str, list[dict[str, Any]]] = {
        "Scaler": [
            {"offset": [1.0, -2.0, 0.5, 0.0], "scale": [2.0, 0.5, 1.0, 3.0]},
            {"offset": [0.5], "scale": [2.0]},
        ],
        "Normalizer": [{"norm": "L1"}, {"norm": "L2"}],
        "Binarizer": [{"threshold": 0.25}],
        "Imputer": [
            {"imputed_value_floats": [1.0, 2.0, 3.0, 4.0], "replaced_value_float": float(X[0, 0])}
        ],
        "FeatureVectorizer": [{"inputdimensions": [4, 2]}],
    }
    arrays = [X, X[:, :2]] if op.endswith("FeatureVectorizer") else [X]
    for i, own in enumerate(attrs[op.partition("::")[2]]):
        yield Form(f"{i}", arrays, own)


@forms(f"{ML}::ArrayFeatureExtractor")
def extracted(op: str, version: int) -> Iterator[Form]:
    yield Form("places", [X, ints(2, 0, 2)])


@forms(f"{ML}::LabelEncoder")
def labels(op: str, version: int) -> Iterator[Form]:
    """A list of classes in version 1, then keys and values."""
    if version < 2:
        classes = {"classes_strings": ["b", "c", "a"]}
        yield Form("words", [WORDS], {**classes, "default_int64": 9})
        yield Form("places", [ints(2, 0, 7)], {**classes, "default_string": "none"})
        return
    yield Form(
        "words to numbers",
        [WORDS],
        {"keys_strings": ["b", "a"], "values_int64s": [4, 7], "default_int64": 9},
    )
    yield Form("numbers to words", [NUMBERS], {"keys_int64s": [5, 2], "values_strings": ["x", "y"]})
    yield Form(
        "numbers",
        [NUMBERS],
        {"keys_int64s": [5, 2], "values_floats": [0.5, 1.5], "default_float": 3.0},
    )


@forms(f"{ML}::CategoryMapper", f"{ML}::OneHotEncoder")
def categories(op: str, version: int) -> Iterator[Form]:
    words, numbers = {"cats_strings": ["a", "b"]}, {"cats_int64s": [5, 2]}
    both = {**words, **numbers}
    mapped = op.endswith("CategoryMapper")
    yield Form("words", [WORDS], both if mapped else words)
    yield Form("numbers", [NUMBERS], both if mapped else numbers)


@forms(f"{ML}::LinearRegressor", f"{ML}::LinearClassifier")
def linear(op: str, version: int) -> Iterator[Form]:
    own = {"coefficients": LINEAR, "intercepts": [0.1, 0.2, 0.3]}
    classifies = op.endswith("Classifier")
    more: dict[str, Any] = {"classlabels_ints": [5, 3, 9]} if classifies else {"targets": 3}
    for p in TRANSFORMS:
        yield Form(p, [X], {**own, **more, "post_transform": p}, outputs=1 + classifies)


@forms(f"{ML}::SVMRegressor", f"{ML}::SVMClassifier")
def machines(op: str, version: int) -> Iterator[Form]:
    shared = {"support_vectors": LINEAR, "kernel_params": [0.3, 0.5, 2.0]}
    for kernel in ("LINEAR", "POLY", "RBF", "SIGMOID"):
        if op.endswith("Regressor"):
            own: dict[str, Any] = {"coefficients": [0.5, -1.5, 2.0], "n_supports": 3, "rho": [0.4]}
        else:
            own = {"coefficients": [0.5, -1.5, 2.0], "vectors_per_class": [1, 2], "rho": [0.4]}
            own["classlabels_ints"] = [3, 8]
        yield Form(
            kernel,
            [X],
            {**shared, **own, "kernel_type": kernel},
            outputs=1 + op.endswith("Classifier"),
        )


@forms(f"{ML}::TreeEnsembleRegressor", f"{ML}::TreeEnsembleClassifier")
def trees(op: str, version: int) -> Iterator[Form]:
    """Two stumps; tensors of float64 came with version 3."""
    nodes: dict[str, Any] = {
        "nodes_treeids": [0, 0, 0, 1, 1, 1], "nodes_nodeids": [0, 1, 2, 0, 1, 2],
        "nodes_featureids": [1, 0, 0, 3, 0, 0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF", "BRANCH_GT", "LEAF", "LEAF"],
        "nodes_values": [0.2, 0.0, 0.0, -0.1, 0.0, 0.0], "nodes_truenodeids": [1, 0, 0, 1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0, 2, 0, 0],
    }  # fmt: skip
    kind, ids = ("target", [0, 0, 0, 0]) if op.endswith("Regressor") else ("class", [0, 1, 2, 1])
    leaves = {
        "treeids": [0, 0, 1, 1],
        "nodeids": [1, 2, 1, 2],
        "ids": ids,
        "weights": [0.5, 1.5, 2.0, 0.25],
    }
    own = nodes | {f"{kind}_{k}": v for k, v in leaves.items()}
    more = {"n_targets": 1} if kind == "target" else {"classlabels_int64s": [4, 2, 7]}
    for p in TRANSFORMS[: 1 if kind == "target" else 3]:
        for dtype in ("float32", "float64"):
            attrs = {**own, **more, "post_transform": p}
            yield Form(f"{dtype} {p}", [X.astype(dtype)], attrs, outputs=1 + (kind == "class"))
