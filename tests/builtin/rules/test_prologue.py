"""What joins a reduction before it, and what does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tactix.base.dtypes import DType
from tactix.fuse.rewrite import fuse
from tactix.network.verify import verify
from tactix_ops.rules import all_rules, lower_precision, prologue, rounded
from tactix_sdk.evaluate import evaluate


def kinds(net: Any, *rules: Any) -> list[str]:
    """Layers after the rules; the numbers stay."""
    out, _ = fuse(net, [*prologue.RULES, *rules])
    verify(out, deep=True)
    rng = np.random.default_rng(4)
    feed = {
        v.name: rng.standard_normal(v.spec.at(dict.fromkeys(net.symbols(), 3))).astype(
            v.spec.dtype.numpy
        )
        for v in net.inputs
    }
    want, got = evaluate(net, feed), evaluate(out, feed)
    for name, y in want.items():
        np.testing.assert_allclose(got[name], y, rtol=1e-5, atol=1e-5)
    return ["+".join(b.layer.name for b in n.body.nodes) for n in out.nodes]


def test_the_example_fires(net):
    prologue.RULES[0].example(net)
    assert kinds(net) == ["Mul+ReduceSum", "Sqrt"]


def test_a_gate_joins_the_convolution(net):
    prologue.RULES[1].example(net)
    assert kinds(net) == ["Mul+Convolution"]


def test_a_gate_and_what_rounds_it_join_a_convolution_of_bfloat16(net):
    (x,) = net.add_layer("tactix.Cast", [net.x("n", 16, 3, 3, dtype="bf16")], to=DType.FP32)
    y = net.add("Cast", net.add("Mul", x, net.x("n", 16, 1, 1, name="g")), to=DType.BF16)
    w = net.add_constant(np.ones((5, 16, 1, 1), np.float32).astype(DType.BF16.numpy))
    net.mark_output(net.add("WideConvolution", y, w), "y")
    assert kinds(net, *all_rules()) == ["Cast+Mul+Cast+WideConvolution"]


def test_a_gate_joins_a_convolution_that_is_lowered_to_bfloat16(net):
    x, g = net.x("n", 16, 3, 3), net.x("n", 16, 1, 1, name="g")
    net.mark_output(net.add("Convolution", net.add("Mul", x, g), net.random(5, 16, 1, 1)), "y")
    lowering = [*lower_precision.RULES, *rounded.RULES]
    out, _ = fuse(net, [*lowering, *prologue.RULES, *all_rules()])
    (node,) = out.nodes
    assert [b.layer.name for b in node.body.nodes] == ["Mul", "Cast", "WideConvolution"]


def test_what_only_rounds_stays_before_the_convolution(net):
    x = net.add("Cast", net.x("n", 16, 3, 3), to=DType.BF16)
    w = net.add_constant(np.ones((5, 16, 1, 1), np.float32).astype(DType.BF16.numpy))
    net.mark_output(net.add("WideConvolution", x, w), "y")
    assert kinds(net, *all_rules()) == ["Cast", "WideConvolution"]


def test_an_activation_behind_the_gate_joins_too(net):
    """As in MobileNetV3."""
    y = net.add("Mul", net.x("n", 16, 3, 3), net.x("n", 16, 1, 1, name="g"))
    y = net.add("Convolution", net.add("HardSwish", y), net.random(5, 16, 1, 1))
    net.mark_output(y, "y")
    assert kinds(net, *all_rules()) == ["Mul+HardSwish+Convolution"]


def test_what_is_pointwise_between_two_readers_and_a_convolution_joins_it(net):
    """As in dense blocks, whose normalisation stands before each convolution."""
    x = net.add("Concat", net.x("n", 16, 5, 5), net.x("n", 16, 5, 5, name="z"), axis=1)
    for k in range(2):
        y = net.add("Relu", net.add("Mul", x, net.random(32, 1, 1)))
        net.mark_output(net.add("Convolution", y, net.random(8, 32, 1, 1)), f"y{k}")
    assert kinds(net, *all_rules()) == ["Concat", *["Mul+Relu+Convolution"] * 2]


@pytest.mark.parametrize("case", ["window", "strides", "groups", "rows", "heavy", "few", "shown"])
def test_others_stay_before_the_convolution(net, case):
    channels = 8 if case == "few" else 16
    x = net.x("n", channels, 5, 5)
    g = net.x(*(("n", 16, 5, 1) if case == "rows" else ("n", channels, 1, 1)), name="g")
    y = net.add("Mul", x, g)
    if case == "heavy":
        y = net.add("Exp", y)
    w = net.random(
        8, 8 if case == "groups" else channels, *([2, 2] if case == "window" else [1, 1])
    )
    attrs = {"strides": (2, 2)} if case == "strides" else {"group": 2} if case == "groups" else {}
    net.mark_output(net.add("Convolution", y, w, **attrs), "y")
    if case == "shown":
        net.mark_output(y, "g2")
    assert "Convolution" in kinds(net)


@pytest.mark.parametrize("reduction", sorted(prologue.REDUCTIONS))
def test_chains_of_one_tensor_join(net, reduction):
    y = net.add("Abs", net.add("Exp", net.x("n", 4, 5)))
    net.mark_output(net.add("Relu", net.add(reduction, y, axes=(1, 2))), "y")
    assert kinds(net, *all_rules()) == [f"Exp+Abs+{reduction}+Relu"]


@pytest.mark.parametrize(
    "case", ["read twice", "two tensors", "broadcast", "float64", "to kernels"]
)
def test_others_stay_before(net, case):
    x = net.x("n", 4, 5, dtype="f64" if case == "float64" else "f32")
    y = net.add("Exp", x)
    if case == "two tensors":
        y = net.add("Mul", x, net.x("n", 4, 5, name="z"))
    elif case == "broadcast":
        y = net.add("Mul", x, net.random(5))
    elif case == "to kernels":
        y = net.add("Exp", net.add("MatMul", x, net.random(5, 3)))
    net.mark_output(net.add("ReduceSum", y, axes=(1,)), "y")
    if case == "read twice":
        net.mark_output(net.add("Softmax", y), "p")
    found = kinds(net, *(all_rules() if case == "to kernels" else ()))
    assert "ReduceSum" in found, "it stands alone"


@pytest.mark.parametrize("axes", [(1,), (2,), (1, 2), (0, 2)])
def test_a_variance_reads_its_mean_while_it_is_summed(net, axes):
    x = net.x("n", 4, 5)
    d = net.add("Sub", x, net.add("ReduceMean", x, axes=axes, keepdims=True))
    y = net.add("ReduceMean", net.add("Mul", d, d), axes=axes, keepdims=False)
    net.mark_output(y, "y")
    assert kinds(net, *all_rules()) == ["ReduceMean", "Sub+Mul+ReduceMean"]


@pytest.mark.parametrize("shape", [(4, 1), (1, 4, 1), (3, 4, 5)])
def test_numbers_that_are_none_for_each_result_stay_before(net, shape):
    y = net.add("Sub", net.x(3, 4, 5), net.x(*shape, name="z"))
    net.mark_output(net.add("ReduceSum", y, axes=(2,)), "y")
    assert kinds(net) == ["Sub", "ReduceSum"]
