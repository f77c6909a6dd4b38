"""Float32 networks over 16-bit tensors, as a GPU runs them: what is lowered, what stays, and the
numbers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.builtin.rules.conftest import names

import tactix
from tactix.base.dtypes import DType
from tactix.contracts.rule import Rule
from tactix.fuse.rewrite import fuse
from tactix.network.verify import verify
from tactix.select.accuracy import departure
from tactix.select.precision import Precisions
from tactix_ops.rules import all_rules, sixteen
from tactix_sdk.evaluate import evaluate

MODELS = sorted((Path(__file__).parents[2] / "models").glob("*.onnx"))
KINDS = {"fp16": DType.FP16, "bf16": DType.BF16}


def rules(kind: str, **wanted: str) -> list[Rule]:
    precisions = Precisions(frozenset({"exact", "reassociates", kind}), wanted)
    return [precisions.gated(r) for r in (*all_rules(), *sixteen.RULES)]


def random_inputs(net: Any, seed: int, size: int = 3) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    out = {}
    for v in net.inputs:
        shape = v.spec.at(dict.fromkeys(net.symbols(), size))
        low = int("mask" in v.name)  # a row without any key has no meaning
        numbers = (
            rng.standard_normal(shape) if v.spec.dtype.is_float else rng.integers(low, 2, shape)
        )
        out[v.name] = numbers.astype(v.spec.dtype.numpy)
    return out


def lowered(net: Any, kind: str = "fp16", **wanted: str) -> Any:
    """The network rewritten, after its numbers were compared with the network's own."""
    out, _ = fuse(net, rules(kind, **wanted))
    verify(out, deep=True)
    inputs = random_inputs(net, 5)
    before, after = evaluate(net, inputs), evaluate(out, inputs)
    for name, want in before.items():
        assert after[name].dtype == want.dtype
        assert departure(after[name], want, KINDS[kind]) <= 1, name
    return out


def floats(node: Any) -> list[str]:
    return sorted(
        {v.spec.dtype.value for v in (*node.given, *node.outputs) if v.spec.dtype.is_float}
    )


def products(net: Any) -> list[str]:
    """What products of two matrices read, in the network's order."""
    return [
        "/".join(v.spec.dtype.value for v in n.given[:2])
        for n in net.nodes
        if n.kind == "tactix.MatMul@1"
    ]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_models_cast_at_their_ends_alone(path: Path, kind: str) -> None:
    out = lowered(tactix.Builder().import_model(path), kind)
    inside = {v for n in out.nodes for v in n.outputs} - set(out.outputs)
    casts = [
        n
        for n in out.nodes
        if {b.layer.name for b in n.body.nodes} <= {"Cast", "Clip"} and len(floats(n)) == 2
    ]
    for n in casts:  # of an input, of an output, of what no product made: a mask, a class token
        assert (
            n.given[0] in out.inputs
            or n.outputs[0] in out.outputs
            or floats(n.given[0].producer) == ["f32"]
        )
    anchors = [
        n for n in out.nodes if n.anchor is not None and n.anchor.layer.name in sixteen.PRODUCTS
    ]
    assert len(casts) <= 2
    assert anchors
    assert not any(v.spec.dtype is DType.FP32 for n in anchors for v in n.given)
    assert not any(v.spec.dtype is DType.FP32 for n in anchors for v in n.outputs if v in inside)


def test_branches_read_one_rounded_tensor(net: Any) -> None:
    x = net.x("n", 4, 6, 6)
    y, z = (net.add("Convolution", x, net.random(4, 4, 1, 1)) for _ in range(2))
    net.mark_output(
        net.add("MaxPool", net.add("Relu", net.add("Add", z, y)), kernel_shape=(2, 2)), "y"
    )
    out = lowered(net)
    assert names(out) == ["Cast", "Convolution", "Convolution+Add+Relu", "MaxPool+Cast"]


def test_layers_that_lose_too_much_stay(net: Any) -> None:
    """A sum of squares beyond float16, between products; its kernels read and write 16 bits."""
    x = net.add("MatMul", net.x("n", 4), net.random(4, 300))
    big = net.add("Pow", net.add("Mul", x, net.c(100.0)), net.c(2.0))
    share = net.add("Div", big, net.add("ReduceSum", big, axes=(1,), keepdims=True))
    net.mark_output(net.add("MatMul", share, net.random(300, 2)), "y")
    out = lowered(net)
    assert floats(next(n for n in out.nodes if n.kind == "tactix.ReduceSum@1"))[-1] == "f32"
    assert products(out) == ["f16/f16", "f16/f16"]


def test_masks_keep_their_meaning(net: Any) -> None:
    """float16 has no -3.4e38: minus infinity, times zero or alone in a row, would be no number."""
    keep = net.add("Cast", net.x("n", 1, 1, 5, name="keep", dtype="i64"), to=DType.FP32)
    mask = net.add("Mul", net.add("Sub", net.c(1.0), keep), net.c(np.finfo(np.float32).min))
    q, k, v = (net.add("MatMul", net.x("n", 2, 5, 4, name=n), net.random(4, 4)) for n in "qkv")
    net.mark_output(net.add("Attention", q, k, v, mask, scale=0.5), "y")
    out, _ = fuse(net, rules("fp16"))
    inputs = random_inputs(net, 1)
    inputs["keep"][:] = [[[[1, 0, 1, 1, 0]]], [[[0] * 5]], [[[1] * 5]]]
    (want,), (got,) = evaluate(net, inputs).values(), evaluate(out, inputs).values()
    assert np.isfinite(got).all(), "nor has a row without any key become no number"
    assert departure(got[::2], want[::2], DType.FP16) <= 1
    (attention,) = (n for n in out.nodes if n.kind == "tactix.Attention@1")
    assert {v.spec.dtype for v in attention.given} == {DType.FP16}


def test_what_the_type_does_not_hold_stays(net: Any) -> None:
    """Weights beyond float16, and terms below it; bfloat16 has both."""
    x = net.add("MatMul", net.x("n", 4), net.random(4, 4))
    y = net.add("Add", net.add("Mul", net.add("Tanh", x), net.c(1e-9)), x)
    net.mark_output(net.add("MatMul", y, net.c(np.full((4, 2), 1e5))), "y")
    out = lowered(net)
    assert products(out) == ["f16/f16", "f32/f32"]
    assert products(lowered(net, "bf16")) == ["bf16/bf16", "bf16/bf16"]


def test_angles_stay(net: Any) -> None:
    """Positions by frequencies, as rotary embeddings have them: an outer product, and cosines of
    large numbers.
    """
    places = net.add("Cast", net.x("n", 1, 7, name="places", dtype="i64"), to=DType.FP32)
    angles = net.add(
        "MatMul",
        net.add("Reshape", net.random(4), shape=(4, 1)),
        net.add("Mul", places, net.c(1000.0)),
    )
    x = net.add("MatMul", net.x("n", 4, 4), net.random(4, 7))
    net.mark_output(net.add("Mul", x, net.add("Cos", angles)), "y")
    out = lowered(net)
    assert sorted(products(out)) == ["f16/f16", "f32/f32"]


def test_what_has_another_dtype_in_the_model_stays(net: Any) -> None:
    x = net.x("n", 4, dtype="f16")
    w = net.add_constant(net.rng.standard_normal((4, 3)).astype(np.float16))
    net.mark_output(net.add("Relu", net.add("MatMul", x, w)), "y")
    out, trace = fuse(net, rules("bf16"))
    assert {d for n in out.nodes for d in floats(n)} == {"f16"}
    assert "tactix.stored_bf16" not in trace.counts


def test_outputs_that_nobody_reads_are_not_made_wide(net: Any) -> None:
    y, *_ = net.add_layer(
        "tactix.LSTM",
        [net.x("t", "n", 3), net.random(1, 20, 3), net.random(1, 20, 5)],
        hidden_size=5,
    )
    net.mark_output(y, "y")
    assert [n for n in names(lowered(net)) if n == "Cast"] == ["Cast", "Cast"]


def test_layers_by_name(net: Any) -> None:
    x = net.add_layer("tactix.MatMul", [net.x("n", 4), net.random(4, 5)], "first")[0]
    y = net.add_layer("tactix.MatMul", [net.add("Relu", x), net.random(5, 6)], "second")[0]
    z = net.add("Relu", y)
    net.mark_output(net.add_layer("tactix.MatMul", [z, net.random(6, 2)], "third")[0], "y")

    def kinds(**wanted: str) -> list[str]:
        return [p.split("/")[0] for p in products(lowered(net, "bf16", **wanted))]

    assert kinds() == ["bf16", "bf16", "bf16"]
    assert kinds(second="fp32") == ["bf16", "f32", "bf16"]
    assert kinds(**{"*": "fp32", "third": "fp16"}) == ["f32", "f32", "f16"]
