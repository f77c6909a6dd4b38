"""Dequantised 8-bit floats that are multiplied become products of 8 bits: what fires, and the
numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.builtin.rules.conftest import arrays, compare

from tactix.base.dtypes import DType
from tactix.fuse.rewrite import fuse
from tactix.fuse.trace import Trace
from tactix.network.verify import verify
from tactix_ops.rules import all_rules, graphics_rules


def run(net: Any) -> tuple[list[str], Trace]:
    """The layers after the rules, whose numbers are those before."""
    out, trace = fuse(net, [*all_rules(), *graphics_rules()])
    verify(out, deep=True)
    compare(net, out, arrays(net, 1, [3]))
    return [b.layer.name for n in out.nodes for b in n.body.nodes], trace


def weights(net: Any, *shape: int, dtype: DType = DType.FP8) -> Any:
    w = net.rng.standard_normal(shape, dtype=np.float32)
    return net.add_constant(w.astype(dtype.numpy))


def dequantized(net: Any, x: Any, scale: Any, axis: int = 1) -> Any:
    return net.add("DequantizeLinear", x, net.c(scale), axis=axis)


@pytest.mark.parametrize("dtype", [DType.FP8, DType.FP8E5M2])
def test_the_scales_become_a_factor_of_the_sum(net: Any, dtype: DType) -> None:
    x = dequantized(net, net.x("n", 5, 16, dtype=dtype.value), 0.5)
    w = dequantized(net, weights(net, 16, 8, dtype=dtype), 0.25 + net.rng.random(8))
    net.mark_output(net.add("MatMul", x, w), "y")
    assert run(net)[0] == ["Float8MatMul", "Mul"]


def test_a_bias_is_added_behind(net: Any) -> None:
    x = dequantized(net, net.x("n", 16, dtype="f8e4m3"), 0.5)
    w = dequantized(net, weights(net, 8, 16), 0.25 + net.rng.random(8), axis=0)
    net.mark_output(net.add("Gemm", x, w, net.c(np.arange(8)), transB=True), "y")
    assert run(net)[0] == ["Float8MatMul", "Mul", "Add"]


@pytest.mark.parametrize(
    ("scale", "axis", "reason"),
    [
        ((0.5, 0.25) * 8, 0, "along the summed axis"),
        ((0.0, 0.25) * 4, 1, "not positive and finite"),
    ],
)
def test_what_stays_a_product_of_floats(net: Any, scale: Any, axis: int, reason: str) -> None:
    x = dequantized(net, net.x("n", 16, dtype="f8e4m3"), 0.5)
    w = dequantized(net, weights(net, 16, 8), scale, axis)
    net.mark_output(net.add("MatMul", x, w), "y")
    made, trace = run(net)
    assert "Float8MatMul" not in made
    assert any(reason in miss.reason for miss in trace.near_misses), trace.near_misses


def test_several_scales_of_activations_stay_where_they_are(net: Any) -> None:
    x = dequantized(net, net.x("n", 16, dtype="f8e4m3"), 0.5 + net.rng.random(16))
    net.mark_output(net.add("MatMul", x, dequantized(net, weights(net, 16, 8), 0.5)), "y")
    assert run(net)[0] == ["Cast", "Mul", "MatMul"]


def test_a_computed_scale_divides(net: Any) -> None:
    scale = net.add("Abs", net.x(1, name="s"))
    y = net.add("QuantizeLinear", net.x("n", 16), scale, dtype=DType.FP8)
    net.mark_output(net.add("DequantizeLinear", y, scale), "y")
    made, _ = run(net)
    assert "Div" in made
    assert not {"QuantizeLinear", "DequantizeLinear"} & {*made}


def test_what_does_not_saturate_stays(net: Any) -> None:
    y = net.add("QuantizeLinear", net.x("n", 16), net.c(0.5), dtype=DType.FP8, saturate=False)
    net.mark_output(y, "y")
    assert run(net)[0] == ["QuantizeLinear"]


@pytest.mark.parametrize("layer", ["Float8MatMul", "TokenAttention", "LayerNormalization"])
def test_what_quantises_joins_the_layer_before(net: Any, layer: str) -> None:
    if layer == "Float8MatMul":
        y = net.add(layer, net.x("n", 16, dtype="f8e4m3"), weights(net, 16, 8))
        y = net.add("Gelu", net.add("Mul", y, net.c(np.arange(8) / 8)))
    elif layer == "TokenAttention":
        y = net.add(layer, *[net.x("n", 6, 4)] * 3, heads=2, dim=2, value_dim=2)
    else:
        y = net.add(layer, net.x("n", 16), net.random(16))
    net.mark_output(net.add("QuantizeLinear", y, net.c(0.25), dtype=DType.FP8), "y")
    out, _ = fuse(net, [*all_rules(), *graphics_rules()])
    assert [n.body.nodes[0].layer.name for n in out.nodes] == [layer]
    compare(net, out, arrays(net, 1, [3]))


def test_a_normalisation_gives_8_bits_beside_what_others_read(net: Any) -> None:
    y = net.add("LayerNormalization", net.x("n", 16), net.random(16))
    eights = net.add("QuantizeLinear", y, net.c(0.25), dtype=DType.FP8)
    net.mark_output(
        net.add("MatMul", dequantized(net, eights, 0.25), y2 := net.random(16, 16)), "z"
    )
    net.mark_output(net.add("MatMul", y, y2), "y")
    out, _ = fuse(net, [*all_rules(), *graphics_rules()])
    first = out.nodes[0]
    assert [b.layer.name for b in first.body.nodes] == ["LayerNormalization", "Mul", "Cast"]
    assert {v.spec.dtype for v in first.outputs} == {DType.FP32, DType.FP8}
    compare(net, out, arrays(net, 1, [3]))


@pytest.mark.parametrize("dtype", [DType.FP8, DType.INT8])
def test_what_quantises_rises_above_moves_but_for_those_of_heads(net: Any, dtype: DType) -> None:
    y = net.add("Relu", net.x("n", 3, 5))
    scale = net.c(0.25)
    moved = net.add("Transpose", net.add("Roll", y, begins=(1,), axes=(1,)), perm=(0, 2, 1))
    net.mark_output(net.add("QuantizeLinear", moved, scale, dtype=dtype), "y")
    q = net.x("n", 2, 3, 4, name="q")
    heads = net.add("Transpose", net.add("Attention", q, q, q), perm=(0, 2, 1, 3))
    net.mark_output(net.add("QuantizeLinear", heads, scale, dtype=dtype), "z")
    out, _ = fuse(net, [r for r in graphics_rules() if r.key == "tactix.eight_bits_above_move"])
    compare(net, out, arrays(net, 1, [3]))
    made = [b.layer.name for n in out.nodes for b in n.body.nodes]
    assert made[:4] == ["Relu", "QuantizeLinear", "Roll", "Transpose"]
    assert made[-2:] == ["Transpose", "QuantizeLinear"]
