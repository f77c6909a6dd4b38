"""Random operators: nothing computes or merges them while importing or rewriting."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from tactix.fuse.rewrite import Rewriter
from tactix.fuse.trace import Trace
from tactix_ops.rules import all_rules
from tactix_sdk.evaluate import evaluate

P = np.full((8, 9), 0.5, np.float32)


def make(op: str, output: str, **attrs: Any) -> onnx.NodeProto:
    inputs = [] if op in ("RandomNormal", "RandomUniform") else ["c"]
    if not inputs:
        attrs["shape"] = P.shape
    if op == "Multinomial":
        attrs["sample_size"] = 40
    return onnx.helper.make_node(op, inputs, [output], **attrs)


OPS = (
    "RandomNormal",
    "RandomUniform",
    "RandomNormalLike",
    "RandomUniformLike",
    "Bernoulli",
    "Multinomial",
)


@pytest.mark.parametrize("op", OPS)
def test_each_node_draws_anew_at_each_run(op: str, imported: Any, model: Any) -> None:
    net = imported(model([make(op, "a"), make(op, "b")], {}, ["a", "b"], {"c": P}, opset=15))
    Rewriter(net, all_rules(), Trace()).run()
    runs = [evaluate(net, {}) for _ in range(2)]
    drawn = [r[name] for r in runs for name in "ab"]
    assert not any(np.array_equal(x, y) for i, x in enumerate(drawn) for y in drawn[:i])


@pytest.mark.parametrize("op", OPS)
def test_a_seed_gives_the_same_numbers(op: str, imported: Any, model: Any) -> None:
    net = imported(
        model(
            [make(op, "a", seed=3.0), make(op, "b", seed=4.0)], {}, ["a", "b"], {"c": P}, opset=15
        )
    )
    first, second = evaluate(net, {}), evaluate(net, {})
    assert np.array_equal(first["a"], second["a"])
    assert not np.array_equal(first["a"], first["b"])


@pytest.mark.parametrize(
    ("op", "attrs", "dtype"),
    [
        ("RandomNormal", {}, "float32"), ("RandomUniform", {"dtype": 11}, "float64"),
        ("RandomNormalLike", {}, "float16"), ("RandomUniformLike", {"dtype": 1}, "float32"),
        ("Bernoulli", {}, "float16"), ("Bernoulli", {"dtype": 9}, "bool"), ("Multinomial", {}, "int32"),
        ("Multinomial", {"dtype": 7}, "int64"),
    ],
)  # fmt: skip
def test_dtypes(op: str, attrs: dict[str, Any], dtype: str, imported: Any, model: Any) -> None:
    net = imported(model([make(op, "y", **attrs)], {"c": (np.float16, ["n", 9])}, ["y"], opset=15))
    y = evaluate(net, {"c": P.astype(np.float16)})["y"]
    assert y.dtype == dtype
    assert y.shape == ((8, 40) if op == "Multinomial" else (8, 9))


def test_the_settings_count(imported: Any, model: Any) -> None:
    normal = make("RandomNormal", "a", mean=100.0, scale=0.5)
    uniform = make("RandomUniform", "b", low=5.0, high=6.0)
    found = evaluate(imported(model([normal, uniform], {}, ["a", "b"], opset=15)), {})
    assert 95 < found["a"].min() < found["a"].max() < 105
    assert 5 <= found["b"].min() < found["b"].max() <= 6
