"""float16 networks on a processor: products are float32 between casts, and no number changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.builtin.rules.conftest import names

from tactix.base.dtypes import DType
from tactix.fuse.rewrite import fuse
from tactix.network.verify import verify
from tactix_ops.rules import all_rules, half, processor_rules
from tactix_sdk.evaluate import evaluate

RULES = {rule.key.removeprefix("tactix."): rule for rule in half.RULES}
HALF = np.float16


def weights(net: Any, *shape: int) -> Any:
    return net.add_constant(net.random(*shape).array.astype(HALF))


def image(net: Any, channels: int = 4) -> Any:
    """What a pointwise layer makes of an input."""
    return net.add("Relu", net.x("n", channels, 6, 6, dtype="f16"))


def rewritten(net: Any, seed: int = 1) -> list[str]:
    """What nodes are made of; the references of both networks give the same bits."""
    out, _ = fuse(net, [*all_rules(), *processor_rules()])
    verify(out, deep=True)
    rng = np.random.default_rng(seed)
    feed = {
        v.name: rng.standard_normal(v.spec.at(dict.fromkeys(net.symbols(), 3))).astype(
            v.spec.dtype.numpy
        )
        for v in net.inputs
    }
    alone, _ = fuse(net, processor_rules())
    want, got, fused = (evaluate(n, feed) for n in (net, alone, out))
    for name, y in want.items():
        np.testing.assert_array_equal(got[name], y)
        np.testing.assert_allclose(fused[name].astype(float), y.astype(float), rtol=4e-3, atol=4e-3)
    assert fuse(out, processor_rules())[1].counts == {}
    products = [
        b for n in out.nodes for b in n.body.nodes if b.layer.name in ("MatMul", "Convolution")
    ]
    assert products
    assert all(not b.layer.name.startswith("Wide") for n in out.nodes for b in n.body.nodes)
    return names(out)


@pytest.mark.parametrize("key", sorted(RULES))
def test_example_changes_no_bit(net: Any, key: str) -> None:
    rule = RULES[key]
    rule.example(net)
    out, trace = fuse(net, [rule])
    verify(out, deep=True)
    assert trace.counts == {rule.key: 1}
    assert (rule.numerics, rule.device) == ("exact", "cpu")
    feed = {v.name: np.linspace(-3, 3, 15, dtype=HALF).reshape(3, 5) for v in net.inputs}
    for got, want in zip(evaluate(out, feed).values(), evaluate(net, feed).values(), strict=True):
        np.testing.assert_array_equal(got, want)


def test_chained_products_hand_on_float32(net: Any) -> None:
    x = net.x("n", 4, 6, 6, dtype="f16")
    y = net.add("Relu", net.add("Convolution", x, weights(net, 4, 4, 3, 3), weights(net, 4)))
    net.mark_output(net.add("Convolution", y, weights(net, 4, 4, 1, 1)), "y")
    assert rewritten(net) == ["Cast", "Convolution+Cast+Relu+Cast", "Convolution+Cast"]


def test_a_residual_is_stored_once(net: Any) -> None:
    """The sum reads the float32 tensor that the product reads."""
    x = net.add("Convolution", net.x("n", 4, 6, 6, dtype="f16"), weights(net, 4, 4, 1, 1))
    x = net.add("Relu", x)
    y = net.add("Relu", net.add("Convolution", x, weights(net, 4, 4, 1, 1)))
    y = net.add("Convolution", y, weights(net, 4, 4, 1, 1))
    net.mark_output(net.add("Relu", net.add("Add", y, x)), "y")
    assert rewritten(net) == [
        "Cast",
        "Convolution+Cast+Relu+Cast",
        "Convolution+Cast+Relu+Cast",
        "Convolution+Cast+Cast+Add+Relu",
    ]


def test_pooled_beside_a_product_reads_what_that_reads(net: Any) -> None:
    x = net.add("Convolution", net.x("n", 4, 6, 6, dtype="f16"), weights(net, 4, 4, 1, 1))
    p = net.add("MaxPool", x, kernel_shape=(2, 2))
    net.mark_output(net.add("Convolution", p, weights(net, 2, 4, 1, 1)), "p")
    net.mark_output(net.add("Convolution", x, weights(net, 2, 4, 1, 1)), "y")
    made = rewritten(net)
    assert made.count("Cast") == 1, "of the input alone"
    assert "Convolution+Cast+Cast" in made
    assert "MaxPool" in made


def test_what_moves_between_products_moves_in_float32(net: Any) -> None:
    x = net.add("MatMul", net.x("n", 3, 4, dtype="f16"), weights(net, 4, 6))
    x = net.add("Transpose", net.add("Tanh", x), perm=(0, 2, 1))
    y, z = net.add_layer("tactix.Split", [x], axis=1, sizes=(2, 4))
    y = net.add("Concat", z, y, axis=1)
    net.mark_output(net.add("MatMul", y, weights(net, 3, 5)), "y")
    assert rewritten(net) == [
        "Cast",
        "MatMul+Cast+Tanh+Cast",
        "Transpose",
        "Split",
        "Concat",
        "MatMul+Cast",
    ]


def test_what_no_product_reads_stays_float16(net: Any) -> None:
    x = net.add("Convolution", image(net), weights(net, 4, 4, 1, 1))
    x = net.add("Transpose", net.add("Softmax", net.add("Exp", x), axis=-1), perm=(0, 2, 3, 1))
    net.mark_output(x, "y")
    out, _ = fuse(net, [*all_rules(), *processor_rules()])
    moved = next(n for n in out.nodes if n.layer.name == "Transpose")
    assert moved.given[0].spec.dtype is DType.FP16


def test_products_of_sixteen_bits_with_wide_results(net: Any) -> None:
    x = net.x("n", 4, 6, 6, dtype="f16")
    y = net.add("WideConvolution", x, weights(net, 4, 4, 3, 3), net.random(4))
    net.mark_output(y, "y")
    net.mark_output(net.add("WideConvTranspose", x, weights(net, 4, 2, 2, 2), strides=(2, 2)), "t")
    net.mark_output(net.add("WideMatMul", x, weights(net, 6, 5), net.random(5)), "c")
    net.mark_output(net.add("WideMatMul", x, weights(net, 6, 5)), "m")
    made = rewritten(net)
    assert made[0] == "Cast"
    assert sorted(made[1:]) == ["ConvTranspose", "Convolution", "MatMul", "MatMul+Add"]


def test_layers_of_other_types_stay(net: Any) -> None:
    net.mark_output(net.add("MatMul", net.x("n", 4), net.random(4, 4)), "f")
    w = net.add_constant(net.random(4, 4).array.astype(DType.BF16.numpy))
    net.mark_output(net.add("MatMul", net.x("n", 4, name="b", dtype="bf16"), w), "b")
    assert fuse(net, processor_rules())[1].counts == {}


def test_bfloat16_is_widened_where_it_has_no_kernel(net: Any) -> None:
    def narrow(*shape: int) -> Any:
        return net.add_constant(net.random(*shape).array.astype(DType.BF16.numpy))

    x, y = (net.x("n", 4, 4, 4, name=n, dtype="bf16") for n in "xy")
    marked = {
        "two": net.add("MatMul", x, y),
        "one": net.add("MatMul", x, narrow(4, 4)),
        "attention": net.add("Attention", x, y, x, scale=0.5),
        "conv": net.add("Convolution", x, narrow(4, 4, 3, 3)),
        "groups": net.add("Convolution", x, narrow(4, 2, 3, 3), group=2),
        "apart": net.add("ConvTranspose", x, narrow(4, 4, 2, 2), strides=(2, 2)),
        "overlap": net.add("ConvTranspose", x, narrow(4, 4, 3, 3), strides=(2, 2)),
    }
    for name, v in marked.items():
        net.mark_output(v, name)
    out, _ = fuse(net, processor_rules())
    made = dict(zip(marked, (v.producer for v in out.outputs), strict=True))
    wide = [k for k, n in made.items() if n and n.given[0].spec.dtype is DType.FP32]
    assert wide == ["two", "groups", "overlap"]
    feed = {n: np.random.default_rng(3).standard_normal((2, 4, 4, 4)) for n in "xy"}
    feed = {n: x.astype(DType.BF16.numpy) for n, x in feed.items()}
    for got, want in zip(evaluate(out, feed).values(), evaluate(net, feed).values(), strict=True):
        np.testing.assert_array_equal(got, want)
    assert fuse(out, processor_rules())[1].counts == {}
