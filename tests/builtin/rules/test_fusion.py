"""Epilogues and pointwise groups: who joins whom."""

from __future__ import annotations

import numpy as np
import pytest

from tactix.base.dtypes import DType
from tactix.fuse.rewrite import fuse
from tactix_ops.layers import all_layers
from tactix_ops.rules import all_rules
from tactix_ops.rules.epilogue import MAX_NODES


def conv(net, x, channels=4):
    return net.add(
        "Convolution", x, net.random(channels, x.spec.shape[1], 1, 1), net.random(channels)
    )


REDUCTIONS = ("Sum", "Mean", "Max", "Min", "Prod")
ANCHORS = {
    "Convolution": lambda net, x: conv(net, x),
    "ConvTranspose": lambda net, x: net.add("ConvTranspose", x, net.random(4, 2, 1, 1)),
    "MatMul": lambda net, x: net.add("MatMul", x, net.random(5, 3)),
    "Attention": lambda net, x: net.add("Attention", x, x, x),
    "LayerNormalization": lambda net, x: net.add("LayerNormalization", x, net.random(5)),
    "RMSNormalization": lambda net, x: net.add("RMSNormalization", x, net.random(5)),
    "GroupNormalization": lambda net, x: net.add(
        "GroupNormalization", x, net.random(4), net.random(4), num_groups=2
    ),
    "InstanceNormalization": lambda net, x: net.add(
        "InstanceNormalization", x, net.random(4), net.random(4)
    ),
    "Softmax": lambda net, x: net.add("Softmax", x),
    "LogSoftmax": lambda net, x: net.add("LogSoftmax", x),
    "MaxPool": lambda net, x: net.add("MaxPool", x, kernel_shape=(2, 2)),
    "AveragePool": lambda net, x: net.add("AveragePool", x, kernel_shape=(2, 2)),
    "GlobalAveragePool": lambda net, x: net.add("GlobalAveragePool", x),
    "GlobalMaxPool": lambda net, x: net.add("GlobalMaxPool", x),
    **{f"Reduce{k}": lambda net, x, k=k: net.add(f"Reduce{k}", x, axes=(1,)) for k in REDUCTIONS},
}


@pytest.mark.parametrize("layer", ANCHORS)
def test_anchors_take_epilogues(net, apply, layer):
    y = ANCHORS[layer](net, net.x("n", 4, 6, 5))
    net.mark_output(net.add("LeakyRelu", net.add("Sub", net.c(0.25), y)), "y")
    kinds, out, _ = apply(net)
    assert kinds == [f"{layer}+Sub+LeakyRelu"]
    assert out.nodes[0].kind == f"tactix.{layer}@1"


def test_attention_of_tokens_takes_an_epilogue(net, apply):
    y = net.add("TokenAttention", *[net.x("n", 6, 4)] * 3, heads=2, dim=2, value_dim=2)
    net.mark_output(net.add("Abs", y), "y")
    assert apply(net)[0] == ["TokenAttention+Abs"]


def test_every_anchor_is_tried():
    """Gemm is left out: it is a MatMul by then; products of integers, halves, bytes and few bits
    have tests of their own.
    """
    others = {
        "ByteMatMul",
        "FewBitsMatMul",
        "Float8MatMul",
        "Gemm",
        "IntegerConvolution",
        "IntegerMatMul",
        "WideConvolution",
        "WideConvTranspose",
        "WideMatMul",
    }
    others |= {"WideGlobalAveragePool", "TokenAttention"}
    takers = {layer.name for layer in all_layers() if layer.takes_epilogue}
    assert takers == {*ANCHORS, *others}


@pytest.mark.parametrize("layer", ["Concat", "Transpose", "Gather", "CumSum"])
def test_other_layers_do_not(net, apply, layer):
    x = net.x("n", 4, 5)
    more = {
        "Concat": {"axis": 1},
        "Transpose": {"perm": (2, 1, 0)},
        "Gather": {"axis": 1},
        "CumSum": {},
    }[layer]
    inputs = {
        "Concat": [x, x],
        "Gather": [x, net.c([3, 0, 1], np.int64)],
        "CumSum": [x, net.c(1, np.int64)],
    }
    net.mark_output(net.add("Relu", net.add(layer, *inputs.get(layer, [x]), **more)), "y")
    assert apply(net)[0] == [layer, "Relu"]


def test_bias_activation_and_residual_end_in_one_node(net, apply):
    x = net.x("n", 4, 6, 5)
    y = net.add("Relu", conv(net, x))
    y = net.add("Add", net.add("Mul", conv(net, y), net.x(1, name="gain")), x)
    net.mark_output(net.add("Clip", y, min=0.0, max=6.0), "y")
    assert apply(net)[0] == ["Convolution+Relu", "Convolution+Mul+Add+Clip"]


def test_the_sum_of_two_anchors_goes_to_the_later(net, apply):
    x = net.x("n", 4, 6, 5)
    short = conv(net, x)
    long = conv(net, net.add("Relu", conv(net, x)))
    net.mark_output(net.add("Relu", net.add("Add", short, long)), "y")
    kinds, out, _ = apply(net)
    assert sorted(kinds) == ["Convolution", "Convolution+Add+Relu", "Convolution+Relu"]
    assert out.nodes[-1].name.startswith("convolution_2 + add")


def test_a_gate_computed_from_the_anchor_itself(net, apply):
    """Squeeze and excite: the gate depends on the convolution, whose result is read twice."""
    y = net.add("Swish", conv(net, net.x("n", 4, 6, 5)))
    gate = net.add("Sigmoid", conv(net, net.add("GlobalAveragePool", y)))
    net.mark_output(conv(net, net.add("Mul", y, gate)), "y")
    assert apply(net)[0] == [
        "Convolution+Swish",
        "GlobalAveragePool",
        "Convolution+Sigmoid",
        "Mul",
        "Convolution",
    ]


def test_a_result_read_twice_by_the_same_chain(net, apply):
    """``x * tanh(x)`` after an anchor: first a group, then an epilogue."""
    y = conv(net, net.x("n", 4, 6, 5))
    net.mark_output(net.add("Mul", y, net.add("Tanh", y)), "y")
    assert apply(net)[0] == ["Convolution+Tanh+Mul"]


def test_a_wider_result_is_no_epilogue(net, apply):
    pooled = net.add("GlobalAveragePool", net.x("n", 4, 6, 5))
    net.mark_output(net.add("Add", pooled, net.x("n", 4, 2, 2, name="z")), "y")
    assert apply(net)[0] == ["GlobalAveragePool", "Add"]


@pytest.mark.parametrize(("rows", "operand"), [("n", "m"), (4, "m"), ("n", 4)])
def test_an_operand_whose_size_may_repeat_or_not_is_no_epilogue(net, rows, operand):
    y = net.add("MatMul", net.x(rows, 5), net.random(5, 3))
    net.mark_output(net.add("Add", y, net.x(operand, 3, name="z")), "y")
    out, _ = fuse(net, all_rules())
    assert [n.layer.name for n in out.nodes] == ["MatMul", "Add"]


@pytest.mark.parametrize(
    ("dtype", "joins"), [("i64", False), ("f64", False), ("i32", True), ("f32", True)]
)
def test_64_bit_results_are_no_epilogue(net, apply, dtype, joins):
    y = net.add("Relu", net.add("MatMul", net.x("n", 5), net.random(5, 3)))
    net.mark_output(net.add("Cast", net.add("Add", y, net.c(0.5)), to=DType(dtype)), "y")
    together = "MatMul+Relu+Add+Cast" if dtype != "f32" else "MatMul+Relu+Add"
    assert apply(net)[0] == ([together] if joins else ["MatMul+Relu+Add", "Cast"])


def test_an_output_of_the_network_is_written(net, apply):
    y = conv(net, net.x("n", 4, 6, 5))
    net.mark_output(y, "c")
    net.mark_output(net.add("Relu", y), "y")
    assert apply(net)[0] == ["Convolution", "Relu"]


# -- groups --------------------------------------------------------------------------------------


def test_chains_and_trees(net, apply):
    x, z = net.x("n", 5), net.x("n", 5, name="z")
    y = net.add("Add", net.add("Exp", net.add("Neg", x)), net.add("Tanh", z))
    net.mark_output(net.add("Div", net.c(1), y), "y")
    kinds, out, _ = apply(net)
    assert len(kinds) == 1
    assert sorted(kinds[0].split("+")) == ["Add", "Div", "Exp", "Neg", "Tanh"]
    assert out.nodes[0].kind == "pointwise"


def test_results_that_others_read_come_out_too(net, apply):
    x = net.x("n", 5)
    y = net.add("Exp", x)
    net.mark_output(net.add("CumSum", y, net.c(1, np.int64)), "sum")
    net.mark_output(net.add("Tanh", y), "tanh")
    kinds, out, _ = apply(net)
    assert kinds == ["Exp+Tanh", "CumSum"]
    assert len(out.nodes[0].outputs) == 2


def test_no_cycle_through_what_lies_between(net, apply):
    x = net.x("n", 5)
    y = net.add("Exp", x)
    net.mark_output(net.add("Add", net.add("CumSum", y, net.c(1, np.int64)), y), "y")
    assert apply(net)[0] == ["Exp", "CumSum", "Add"]


def test_the_epilogue_goes_before_sharing(net, apply):
    x = net.x("n", 5)
    y = net.add("Exp", x)
    net.mark_output(net.add("CumSum", y, net.c(1, np.int64)), "sum")
    net.mark_output(net.add("Add", net.add("MatMul", x, net.random(5, 5)), y), "y")
    assert sorted(apply(net)[0]) == ["CumSum", "Exp", "MatMul+Add"]


@pytest.mark.parametrize(("layer", "joins"), [("Neg", True), ("Exp", False)])
def test_small_results_are_computed_again_if_that_is_cheap(net, apply, layer, joins):
    small = net.add(layer, net.x(5, name="z"))
    net.mark_output(net.add("Mul", net.x("n", 5), small), "y")
    assert apply(net)[0] == ([f"{layer}+Mul"] if joins else [layer, "Mul"])


@pytest.mark.parametrize(("layer", "joins"), [("Neg", True), ("Exp", False)])
def test_64_bit_numbers_meet_cheap_operations_only(net, apply, layer, joins):
    y = net.add("Cast", net.x("n", 5, dtype="i64"), to=DType.FP32)
    net.mark_output(net.add(layer, y), "y")
    assert apply(net)[0] == ([f"Cast+{layer}"] if joins else ["Cast", layer])


def test_groups_have_a_limit(net, apply):
    y = net.x("n", 5)
    for i in range(60):
        y = net.add(("Exp", "Tanh", "Sin")[i % 3], y)
    net.mark_output(y, "y")
    kinds = apply(net)[0]
    assert sum(len(k.split("+")) for k in kinds) == 60
    assert max(len(k.split("+")) for k in kinds) == MAX_NODES
    assert len(kinds) == 3
