"""The operator Attention: one layer where it is plain, its function body elsewhere; both mean the
same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx.helper import make_node

from tactix_sdk.evaluate import evaluate

F32 = np.float32
RNG = np.random.default_rng(0)


def attend(q: Any, k: Any, v: Any, mask: Any, scale: float) -> Any:
    scores = scale * q @ k.swapaxes(-1, -2) + mask
    p = np.exp(scores - scores.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True) @ v


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape, F32)


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("masked", ["none", "float", "bool"])
def test_heads_apart(causal: int, masked: str, imported: Any, model: Any) -> None:
    q, k, v = normal(2, 4, 5, 8), normal(2, 2, 5, 8), normal(2, 2, 5, 6)
    feed = {"q": q, "k": k, "v": v}
    inputs = {
        "q": (F32, ["b", 4, "s", 8]),
        "k": (F32, ["b", 2, "s", 8]),
        "v": (F32, ["b", 2, "s", 6]),
    }
    seen = RNG.random((2, 1, 5, 5)) < 0.7
    seen[..., 0] = True
    added = (
        np.where(seen, 0, -np.inf)
        if masked == "bool"
        else normal(2, 1, 5, 5)
        if masked == "float"
        else 0.0
    )
    if masked != "none":
        feed["m"] = seen if masked == "bool" else added
        inputs["m"] = (np.bool_ if masked == "bool" else F32, ["b", 1, "s", "s"])
    nodes = [make_node("Attention", list(inputs), ["y"], is_causal=causal, scale=0.3)]
    net = imported(model(nodes, inputs, ["y"], opset=23))
    assert [n.layer.name for n in net.nodes].count("Attention") == 1
    below = np.where(np.tri(5) > 0, 0, -np.inf) if causal else 0.0
    want = attend(q, np.repeat(k, 2, 1), np.repeat(v, 2, 1), added + below, 0.3)
    assert np.allclose(evaluate(net, feed)["y"], want, atol=1e-5)


def test_heads_joined_with_a_cache(imported: Any, model: Any) -> None:
    q, k, v, past_k, past_v = (
        normal(2, 3, 32),
        normal(2, 3, 32),
        normal(2, 3, 32),
        normal(2, 4, 7, 8),
        normal(2, 4, 7, 8),
    )
    cache = (F32, ["b", 4, "p", 8])
    inputs = {**dict.fromkeys("qkv", (F32, ["b", "s", 32])), "past_k": cache, "past_v": cache}
    names = ["q", "k", "v", "", "past_k", "past_v"]
    nodes = [make_node("Attention", names, ["y", "new_k", "new_v"], q_num_heads=4, kv_num_heads=4)]
    net = imported(model(nodes, inputs, ["y", "new_k", "new_v"], opset=23))
    got = evaluate(net, {"q": q, "k": k, "v": v, "past_k": past_k, "past_v": past_v})
    apart = [x.reshape(2, 3, 4, 8).transpose(0, 2, 1, 3) for x in (q, k, v)]
    all_k, all_v = np.concatenate([past_k, apart[1]], 2), np.concatenate([past_v, apart[2]], 2)
    want = attend(apart[0], all_k, all_v, 0.0, 8**-0.5).transpose(0, 2, 1, 3).reshape(2, 3, 32)
    assert np.allclose(got["y"], want, atol=1e-5)
    assert np.array_equal(got["new_k"], all_k)
    assert np.array_equal(got["new_v"], all_v)


def test_a_query_that_sees_nothing_gives_zero(imported: Any, model: Any) -> None:
    shape = (F32, [1, 1, 2, 4])
    nodes = [make_node("Attention", ["q", "k", "v", "m"], ["y"])]
    net = imported(
        model(nodes, {**dict.fromkeys("qkv", shape), "m": (np.bool_, [2, 2])}, ["y"], opset=23)
    )
    feed = {name: normal(1, 1, 2, 4) for name in "qkv"}
    y = evaluate(net, {**feed, "m": np.array([[False, False], [True, True]])})["y"]
    assert np.array_equal(y[0, 0, 0], np.zeros(4, F32))
    assert np.isfinite(y).all()


@pytest.mark.parametrize("attrs", [{"softcap": 2.0}, {"qk_matmul_output_mode": 1}])
def test_other_forms_are_left_to_the_function_body(
    attrs: dict[str, Any], imported: Any, model: Any
) -> None:
    outputs = ["y", "", "", "scores"] if "qk_matmul_output_mode" in attrs else ["y"]
    nodes = [make_node("Attention", ["q", "k", "v"], outputs, **attrs)]
    net = imported(
        model(
            nodes,
            dict.fromkeys("qkv", (F32, ["b", 2, "s", 8])),
            [o for o in outputs if o],
            opset=23,
        )
    )
    layers = [n.layer.name for n in net.nodes]
    assert "Attention" not in layers
    assert "Softmax" in layers
