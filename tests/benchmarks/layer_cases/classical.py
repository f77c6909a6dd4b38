"""Operators of ai.onnx.ml."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from layer_cases.case import Case


def classical() -> Iterator[Case]:
    ml, x = "ai.onnx.ml::", "f32[256,64]"
    yield Case(f"{ml}Binarizer", (x,), {"threshold": 0.5})
    yield Case(f"{ml}Scaler", (x,), {"offset": [0.1] * 64, "scale": [2.0] * 64})
    yield Case(
        f"{ml}Imputer", (x,), {"imputed_value_floats": [1.0] * 64, "replaced_value_float": 0.0}
    )
    for norm in ("MAX", "L1", "L2"):
        yield Case(f"{ml}Normalizer", (x,), {"norm": norm}, norm, slack=4)
    weights = [float(v) for v in np.random.default_rng(0).standard_normal(64 * 3)]
    yield Case(
        f"{ml}LinearRegressor",
        (x,),
        {"coefficients": weights, "intercepts": [0.1] * 3, "targets": 3},
        slack=8,
    )
    labels = {"classlabels_ints": [0, 1, 2], "multi_class": 1, "post_transform": "SOFTMAX"}
    yield Case(
        f"{ml}LinearClassifier",
        (x,),
        {"coefficients": weights, "intercepts": [0.1] * 3, **labels},
        "",
        2,
        slack=8,
    )
    supports = {
        "kernel_type": "RBF",
        "kernel_params": [0.02, 0.0, 3.0],
        "n_supports": 3,
        "rho": [0.1],
    }
    yield Case(
        f"{ml}SVMRegressor",
        (x,),
        {"support_vectors": weights, "coefficients": [0.5, -0.3, 0.2], **supports},
        slack=8,
    )
    yield Case(f"{ml}FeatureVectorizer", (x, "f32[256,32]"), {"inputdimensions": [64, 32]})
    yield Case(
        f"{ml}LabelEncoder",
        ("i64[16384] 0:200",),
        {"keys_int64s": list(range(200)), "values_floats": [0.5] * 200},
    )
    yield Case(f"{ml}OneHotEncoder", ("i64[256,8] 0:32",), {"cats_int64s": list(range(32))})
    yield Case(f"{ml}TreeEnsembleRegressor", (x,), _trees(50, 5, 64), slack=16)


def _trees(count: int, depth: int, features: int) -> dict[str, Any]:
    """Full trees of one target with thresholds near 0."""
    rng = np.random.default_rng(0)
    inner, nodes = 2**depth - 1, 2 ** (depth + 1) - 1
    modes = ["BRANCH_LEQ"] * inner + ["LEAF"] * (nodes - inner)
    left = [2 * i + 1 if i < inner else 0 for i in range(nodes)]
    right = [2 * i + 2 if i < inner else 0 for i in range(nodes)]
    leaves = list(range(inner, nodes))
    return {
        "n_targets": 1,
        "nodes_treeids": [t for t in range(count) for _ in range(nodes)],
        "nodes_nodeids": list(range(nodes)) * count,
        "nodes_modes": modes * count,
        "nodes_truenodeids": left * count,
        "nodes_falsenodeids": right * count,
        "nodes_featureids": [int(i) for i in rng.integers(0, features, nodes * count)],
        "nodes_values": [float(v) for v in rng.standard_normal(nodes * count) * 0.5],
        "target_treeids": [t for t in range(count) for _ in leaves],
        "target_nodeids": leaves * count,
        "target_ids": [0] * (count * len(leaves)),
        "target_weights": [float(v) for v in rng.standard_normal(count * len(leaves))],
    }
