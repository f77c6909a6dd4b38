"""Quantised models become integer products; models in lower precision bfloat16 ones: what fires,
and the numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.builtin.rules.conftest import compare, names

from tactix.base.dtypes import DType
from tactix.fuse.rewrite import fuse
from tactix.network.verify import verify
from tactix_ops.rules import all_rules, lowering_rules, reordering_rules

SCALE, ZERO = 0.04, 119
ON_CPU = [r for r in lowering_rules() if r.device == "cpu"]


def quantized(
    net: Any, x: Any, scale: float = SCALE, zero: int = ZERO, dtype: Any = np.uint8
) -> Any:
    """Quantised and dequantised, as quantisers write it."""
    s, z = net.c(scale), net.c(zero, dtype)
    y = net.add("QuantizeLinear", x, s, z, dtype=DType.of(dtype))
    return net.add("DequantizeLinear", y, s, z)


def weights(net: Any, *shape: int, axis: int = 0) -> Any:
    """Signed weights with a scale for each output channel."""
    w = net.rng.integers(-127, 128, shape)
    scales = 0.01 + net.rng.random(shape[axis]) / 100
    zeros = net.c(np.zeros(shape[axis]), np.int8)
    return net.add("DequantizeLinear", net.c(w, np.int8), net.c(scales), zeros, axis=axis), scales


def run(net: Any, rules: list[Any], seed: int = 0) -> tuple[Any, dict[str, Any]]:
    out, _ = fuse(net, rules)
    verify(out, deep=True)
    rng = np.random.default_rng(seed)
    return out, {
        v.name: rng.standard_normal(v.spec.at({"n": 2})).astype(np.float32) for v in net.inputs
    }


def within_one_unit(net: Any, out: Any, inputs: dict[str, Any], unit: float) -> None:
    from tactix_sdk.evaluate import evaluate

    before, after = evaluate(net, inputs), evaluate(out, inputs)
    for name, want in before.items():
        assert np.abs(after[name] - want).max() <= unit * 1.001


def test_convolution_between_quantised_tensors(net: Any) -> None:
    w, scales = weights(net, 6, 4, 3, 3)
    b = net.c(net.rng.integers(-500, 500, 6), np.int32)
    bias = net.add(
        "DequantizeLinear", b, net.c(scales * SCALE), net.c(np.zeros(6), np.int32), axis=0
    )
    y = net.add("Convolution", quantized(net, net.x("n", 4, 9, 9)), w, bias, pads=(1, 1, 1, 1))
    net.mark_output(quantized(net, y, 0.1, 3), "y")
    out, inputs = run(net, all_rules())
    assert names(out) == ["Mul+Quantize", "IntegerConvolution+Cast+Mul+Quantize+Dequantize"]
    within_one_unit(net, out, inputs, 0.1)


@pytest.mark.parametrize(
    ("layer", "scale", "zero", "dtype", "stays"),
    [
        ("Clip", 6 / 255, 0, np.uint8, False),
        ("Clip", 5 / 255, 0, np.uint8, False),
        ("Clip", 10 / 255, 0, np.uint8, True),
        ("Clip", 6 / 255, 1, np.uint8, True),
        ("Relu", 0.01, 0, np.uint8, False),
        ("Relu", 0.01, -128, np.int8, False),
        ("Relu", 0.01, 0, np.int8, True),
    ],
)
def test_bytes_end_where_a_clip_does(
    net: Any, layer: str, scale: float, zero: int, dtype: Any, stays: bool
) -> None:
    w, _ = weights(net, 6, 4, 1, 1)
    x = net.add("Convolution", quantized(net, net.x("n", 4, 5, 5)), w)
    y = net.add(layer, x, **({"min": 0.0, "max": 6.0} if layer == "Clip" else {}))
    net.mark_output(quantized(net, y, scale, zero, dtype), "y")
    out, inputs = run(net, all_rules())
    assert any(layer in name for name in names(out)) == stays
    within_one_unit(net, out, inputs, scale)


def test_a_residual_is_scaled_with_the_product(net: Any) -> None:
    x = quantized(net, net.x("n", 4, 6, 6), 0.05, 7)
    w, _ = weights(net, 4, 4, 1, 1)
    y = net.add("Relu", net.add("Add", net.add("Convolution", x, w), x))
    net.mark_output(quantized(net, y, 0.01, 0), "y")
    out, inputs = run(net, all_rules())
    assert names(out)[1] == "IntegerConvolution+Cast+Mul+Dequantize+Add+Quantize+Dequantize"
    within_one_unit(net, out, inputs, 0.01)


def test_a_residual_sum_is_read_as_bytes(net: Any) -> None:
    x = quantized(net, net.x("n", 4, 6, 6), 0.05, 0)
    w, _ = weights(net, 4, 4, 1, 1)
    y = quantized(net, net.add("Convolution", x, w), 0.1, 120)
    y = quantized(net, net.add("Add", y, x), 0.12, 0)
    net.mark_output(net.add("GlobalAveragePool", y), "y")
    out, inputs = run(net, all_rules())
    kinds = names(out)
    assert kinds[1].startswith("IntegerConvolution+Cast+Mul+Quantize+Dequantize")
    assert {v.spec.dtype for v in out.nodes[1].given if v.const is None} == {DType.UINT8}
    within_one_unit(net, out, inputs, 0.12)


@pytest.mark.parametrize("layer", ["MatMul", "Gemm"])
def test_matrices(net: Any, layer: str) -> None:
    w, _ = weights(net, 12, 6, axis=1)
    x = quantized(net, net.x("n", 12), dtype=np.int8, zero=-7)
    y = net.add(layer, x, w, *([net.random(6)] if layer == "Gemm" else []))
    net.mark_output(net.add("Relu", y), "y")
    out, inputs = run(net, all_rules())
    term = "+Add" if layer == "Gemm" else ""
    assert names(out) == ["Mul+Quantize", f"IntegerMatMul+Cast+Mul{term}+Relu"]
    compare(net, out, inputs)


def test_what_is_not_exact_is_quantised_where_it_is_made(net: Any) -> None:
    x = net.add("Softmax", net.x("n", 12), axis=1)
    net.mark_output(quantized(net, x, 1 / 255, 0), "x")
    w, _ = weights(net, 12, 6, axis=1)
    net.mark_output(net.add("MatMul", quantized(net, net.add("Exp", x), 1 / 64, 3), w), "y")
    out, inputs = run(net, all_rules())
    assert "QuantizeLinear" not in "+".join(names(out))
    within_one_unit(net, out, inputs, 1 / 64)


def test_blocked_or_computed_scales_stay(net: Any) -> None:
    x = quantized(net, net.x("n", 12))
    s = net.add("Relu", net.x(name="s"))
    w = net.add("DequantizeLinear", net.c(np.ones((12, 6)), np.int8), s)
    net.mark_output(net.add("MatMul", x, w), "y")
    out, _ = fuse(net, all_rules())
    assert "MatMul" in names(out)


def test_weights_alone_are_dequantised_at_build(net: Any) -> None:
    w, _ = weights(net, 12, 6, axis=1)
    net.mark_output(net.add("MatMul", net.x("n", 12), w), "y")
    out, inputs = run(net, all_rules())
    assert names(out) == ["MatMul"]
    compare(net, out, inputs)


def test_pooling_and_reshaping_keep_bytes(net: Any) -> None:
    x = net.add("MaxPool", quantized(net, net.x("n", 4, 6, 6)), kernel_shape=(2, 2), strides=(2, 2))
    y = quantized(net, net.add("Reshape", quantized(net, x), shape=(x.spec.shape[0], 36)))
    w, _ = weights(net, 36, 6, axis=1)
    net.mark_output(net.add("MatMul", y, w), "y")
    out, inputs = run(net, all_rules())
    assert names(out) == ["Mul+Quantize", "MaxPool", "Reshape", "IntegerMatMul+Cast+Mul"]
    compare(net, out, inputs)


@pytest.mark.parametrize("rule", lowering_rules(), ids=lambda r: r.key)
def test_lower_precision(net: Any, rule: Any) -> None:
    rule.example(net)
    out, _ = fuse(net, [rule])
    verify(out, deep=True)
    rng = np.random.default_rng(1)
    env = dict.fromkeys(net.symbols(), 3)
    inputs = {
        v.name: rng.standard_normal(v.spec.at(env)).astype(v.spec.dtype.numpy) for v in net.inputs
    }
    compare(net, out, inputs, rtol=2e-2)
    assert rule.numerics in ("fp16", "bf16")
    assert fuse(out, [rule])[1].counts == {}


def test_lower_precision_stores_residuals_rounded(net: Any) -> None:
    x = net.x("n", 4, 6, 6)
    y = net.add("Relu", net.add("Convolution", x, net.random(4, 4, 1, 1), net.random(4)))
    z = net.add("Convolution", y, net.random(4, 4, 1, 1))
    net.mark_output(net.add("Add", z, y), "y")
    out, inputs = run(net, [*all_rules(), *ON_CPU])
    assert names(out) == ["Cast", "WideConvolution+Relu+Cast", "WideConvolution+Cast+Add"]
    compare(net, out, inputs, rtol=2e-2)


def test_residuals_of_signals_are_stored_rounded(net: Any) -> None:
    """And those that products read are not: they are sums over all layers of a transformer."""
    x = net.x("n", 4, 9)
    y = net.add("Relu", net.add("Convolution", x, net.random(4, 4, 1), net.random(4)))
    net.mark_output(net.add("Add", net.add("Convolution", y, net.random(4, 4, 1)), y), "y")
    out, inputs = run(net, [*all_rules(), *ON_CPU])
    assert names(out) == ["Cast", "WideConvolution+Relu+Cast", "WideConvolution+Cast+Add"]
    compare(net, out, inputs, rtol=2e-2)


def test_residuals_of_sequences_stay(net: Any) -> None:
    y = net.add("Relu", net.add("MatMul", net.x("n", 4, 9), net.random(9, 9)))
    net.mark_output(net.add("Add", net.add("MatMul", y, net.random(9, 9)), y), "y")
    out, inputs = run(net, [*all_rules(), *ON_CPU])
    assert names(out) == ["Cast", "WideMatMul+Relu+Cast", "WideMatMul+Add"]
    compare(net, out, inputs, rtol=2e-2)


def test_of_two_branches_one_is_stored_rounded(net: Any) -> None:
    x = net.x("n", 4, 6, 6)
    y, z = (net.add("Convolution", x, net.random(8, 4, 1, 1)) for _ in range(2))
    net.mark_output(net.add("Relu", net.add("Add", z, y)), "y")
    out, inputs = run(net, [*all_rules(), *ON_CPU])
    assert names(out) == ["Cast", "WideConvolution+Cast", "WideConvolution+Cast+Add+Relu"]
    compare(net, out, inputs, rtol=2e-2)


def test_what_is_pooled_and_joined_is_stored_rounded_once(net: Any) -> None:
    x = net.add("Convolution", net.x("n", 4, 6, 6), net.random(4, 4, 1, 1))
    y = net.add(
        "Convolution",
        net.add("MaxPool", x, kernel_shape=(2, 2), strides=(2, 2)),
        net.random(4, 4, 1, 1),
    )
    z = net.add("ConvTranspose", y, net.random(4, 4, 2, 2), strides=(2, 2))
    w = net.random(2, 8, 1, 1)
    net.mark_output(net.add("Convolution", net.add("Concat", z, x, axis=1), w), "y")
    out, inputs = run(net, [*all_rules(), *ON_CPU])
    assert names(out) == [
        "Cast",
        "WideConvolution+Cast",
        "MaxPool",
        "WideConvolution+Cast",
        "WideConvTranspose+Cast",
        "Concat",
        "WideConvolution",
    ]
    compare(net, out, inputs, rtol=3e-2)


def test_a_transposed_convolution_with_overlap_stays(net: Any) -> None:
    net.mark_output(
        net.add("ConvTranspose", net.x("n", 4, 6, 6), net.random(4, 4, 3, 3), strides=(2, 2)), "y"
    )
    out, _ = run(net, [*all_rules(), *ON_CPU])
    assert names(out) == ["ConvTranspose"]


def test_squeeze_and_excitation_reads_halves(net: Any) -> None:
    """A depthwise product goes to its means and to their product with it: both read what is stored
    rounded.
    """
    x = net.add(
        "Sigmoid", net.add("Convolution", net.x("n", 4, 6, 6), net.random(4, 1, 3, 3), group=4)
    )
    gate = net.add("Convolution", net.add("GlobalAveragePool", x), net.random(4, 4, 1, 1))
    y = net.add("Convolution", net.add("Mul", x, net.add("Sigmoid", gate)), net.random(6, 4, 1, 1))
    net.mark_output(y, "y")
    out, inputs = run(net, [*all_rules(), *ON_CPU])
    assert names(out) == [
        "Cast",
        "WideConvolution+Sigmoid+Cast",
        "WideGlobalAveragePool+Cast",
        "WideConvolution+Sigmoid",
        "Cast+Mul+Cast",
        "WideConvolution",
    ]
    compare(net, out, inputs, rtol=2e-2)


def test_recurrent_layers_hand_on_halves(net: Any) -> None:
    x, first = net.x("n", 2, 3), None
    for size, kind, gates in ((3, "LSTM", 4), (5, "GRU", 3)):
        weights = [net.random(1, gates * 5, k) for k in (size, 5)]
        y, last, *_ = net.add_layer(f"tactix.{kind}", [x, *weights], hidden_size=5)
        first = first or last
        y = net.add("Transpose", y, perm=(0, 2, 1, 3))
        x = net.add("Reshape", y, shape=(*y.spec.shape[:2], 5))
    net.mark_output(net.add("Relu", x), "y")
    net.mark_output(first, "h")
    out, inputs = run(net, [*all_rules(), *ON_CPU])
    assert [n for n in names(out) if n in ("LSTM", "GRU") or n.startswith("Cast")] == [
        "Cast",
        "LSTM",
        "Cast",
        "GRU",
        "Cast+Relu",
    ]
    compare(net, out, inputs, rtol=2e-2)


MOVES = {
    "Reshape": {"shape": ("n", 4, 12)},
    "Transpose": {"perm": (0, 2, 1)},
    "Slice": {"begins": (1,), "sizes": (12,), "axes": (2,), "steps": (1,)},
}


@pytest.mark.parametrize("move", MOVES)
def test_a_product_of_moved_bytes(net: Any, move: str) -> None:
    shapes = {"Reshape": ("n", 6, 8), "Transpose": ("n", 12, 4), "Slice": ("n", 4, 14)}
    x = quantized(net, net.x(*shapes[move]))
    fields = MOVES[move]
    if move == "Reshape":
        fields = {"shape": (x.spec.shape[0], 4, 12)}
    w, _ = weights(net, 12, 6, axis=1)
    net.mark_output(net.add("MatMul", net.add(move, x, **fields), w), "y")
    out, inputs = run(net, all_rules())
    assert names(out) == ["Mul+Quantize", move, "IntegerMatMul+Cast+Mul"]
    compare(net, out, inputs)


def test_rows_that_are_looked_up_among_bytes(net: Any) -> None:
    x = quantized(net, net.x("n", 9, 12))
    y = net.add("Gather", x, net.c([3, 0, 8], np.int64), axis=1)
    w, _ = weights(net, 12, 6, axis=1)
    net.mark_output(net.add("MatMul", y, w), "y")
    out, inputs = run(net, all_rules())
    assert names(out) == ["Mul+Quantize", "Gather", "IntegerMatMul+Cast+Mul"]
    compare(net, out, inputs)


def test_joined_tensors_of_one_scale_are_joined_as_bytes(net: Any) -> None:
    parts = [quantized(net, net.x("n", 3, 8, 8, name=k)) for k in "ab"]
    w, _ = weights(net, 4, 6, 1, 1)
    net.mark_output(net.add("Convolution", net.add("Concat", *parts, axis=1), w), "y")
    out, inputs = run(net, all_rules())
    assert names(out)[-2:] == ["Concat", "IntegerConvolution+Cast+Mul"]
    compare(net, out, inputs)


@pytest.mark.parametrize("reader", ["Softmax", "Convolution"])
def test_joined_tensors_stay_floats(net: Any, reader: str) -> None:
    """Where what reads them reads floats, or where their scales differ."""
    scales = (0.04, 0.04) if reader == "Softmax" else (0.04, 0.05)
    parts = [
        quantized(net, net.x("n", 3, 8, 8, name=k), s) for k, s in zip("ab", scales, strict=True)
    ]
    y = net.add("Concat", *parts, axis=1)
    y = net.add("Softmax", y) if reader == "Softmax" else net.add(reader, y, net.random(4, 6, 1, 1))
    net.mark_output(y, "y")
    out, _ = run(net, all_rules())
    joined = next(n for n in out.nodes if n.layer.name == "Concat")
    assert joined.outputs[0].spec.dtype is DType.FP32


def test_a_cut_tensor_is_not_quantised_again(net: Any) -> None:
    x = quantized(net, net.x("n", 4, 14))
    y = net.add("Slice", x, begins=(1,), sizes=(12,), axes=(2,), steps=(1,))
    s, z = net.c(SCALE), net.c(ZERO, np.uint8)
    net.mark_output(net.add("QuantizeLinear", y, s, z, dtype=DType.UINT8), "y")
    out, inputs = run(net, all_rules())
    assert names(out) == ["Mul+Quantize", "Slice"]
    compare(net, out, inputs)


def with_processor_rules(net: Any) -> tuple[Any, dict[str, Any]]:
    return run(net, [*all_rules(), *reordering_rules()])


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_two_computed_matrices(net: Any, turned: bool, dtype: Any) -> None:
    a = quantized(net, net.x("n", 3, 5, 7))
    b = quantized(net, net.x("n", 3, *((6, 7) if turned else (7, 6)), name="b"), 0.03, -3, np.int8)
    b = net.add("Transpose", b, perm=(0, 1, 3, 2)) if turned else b
    y = net.add("MatMul", a, b)
    net.mark_output(quantized(net, y, 0.1, 3, dtype), "y")
    out, inputs = with_processor_rules(net)
    assert names(out)[-1] == "ByteMatMul+Cast+Mul+Quantize+Dequantize"
    within_one_unit(net, out, inputs, 0.1)


@pytest.mark.parametrize("k", ["n", 40_000])
def test_sums_that_may_leave_int32_stay_floats(net: Any, k: Any) -> None:
    a, b = (quantized(net, net.x(*s, name=m)) for m, s in (("a", (1, k)), ("b", (k, 1))))
    net.mark_output(net.add("MatMul", a, b), "y")
    assert not any("Byte" in name for name in names(with_processor_rules(net)[0]))


GEOMETRIES: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((4, 4), {"strides": (2, 2), "pads": (1, 1, 1, 1)}),
    ((2, 2), {"strides": (2, 2)}),
    ((3, 3), {"pads": (1, 1, 1, 1)}),
    ((3, 2), {"strides": (2, 1), "output_padding": (1, 0)}),
    ((5,), {"strides": (3,)}),
]


@pytest.mark.parametrize(("kernel", "attrs"), GEOMETRIES, ids=str)
@pytest.mark.parametrize("batch", [1, "n"])
def test_transposed_convolutions(net: Any, kernel: Any, attrs: Any, batch: Any) -> None:
    x = quantized(net, net.x(batch, 4, *(5, 6)[: len(kernel)]))
    w, _ = weights(net, 4, 3, *kernel, axis=1)
    y = net.add("Relu", net.add("ConvTranspose", x, w, net.random(3), **attrs))
    net.mark_output(quantized(net, y, 0.1, 3), "y")
    out, inputs = with_processor_rules(net)
    product = next(name for name in names(out) if name.startswith("Integer"))
    assert product.startswith("IntegerConvolution+Cast+Mul+Add+Relu+Mul+Quantize")
    within_one_unit(net, out, inputs, 0.1)


@pytest.mark.parametrize("case", ["groups", "volume"])
def test_transposed_convolutions_without_a_kernel_stay(net: Any, case: str) -> None:
    shape, kernel = ((4, 5), (3,)) if case == "groups" else ((4, 3, 3, 3), (2, 2, 2))
    w, _ = weights(net, 4, 2, *kernel, axis=1)
    group = 2 if case == "groups" else 1
    net.mark_output(net.add("ConvTranspose", quantized(net, net.x("n", *shape)), w, group=group))
    assert not any("Integer" in name for name in names(with_processor_rules(net)[0]))


@pytest.mark.parametrize("dtype", [DType.INT16, DType.UINT16, DType.INT4, DType.UINT8])
@pytest.mark.parametrize("shared", [False, True])
def test_what_no_kernel_of_bytes_takes_is_rounded_in_floats(
    net: Any, dtype: DType, shared: bool
) -> None:
    channels = 3 if dtype is DType.UINT8 else 1
    s = net.c(np.linspace(0.25, 0.5, channels)[: None if channels > 1 else 1])
    z = net.add_constant(np.full(channels, 2).astype(dtype.numpy))
    q = net.add("QuantizeLinear", net.add("Exp", net.x("n", 3, 4)), s, z, dtype=dtype)
    net.mark_output(net.add("Relu", net.add("DequantizeLinear", q, s, z)), "y")
    if shared:
        net.mark_output(q, "q")
    out, inputs = with_processor_rules(net)
    made = "+".join(names(out))
    few = dtype is DType.INT4
    assert ("QuantizeLinear" in made, "DequantizeLinear" in made) == (few and shared,) * 2
    within_one_unit(net, out, inputs, 1.0)
