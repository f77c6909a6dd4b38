"""Operators of ``com.microsoft`` on floats: against ONNX Runtime, or a formula where its CPU has no
kernel.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from microsoft_oracle import Case, by_converter, by_onnx_runtime, check

from tactix.base.errors import UnsupportedOperator
from tactix_sdk.evaluate import evaluate

F32 = np.float32
RNG = np.random.default_rng(7)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape, F32)


def below(high: int, *shape: int) -> Any:
    return RNG.integers(0, high, shape).astype(np.int32)


# -- products and activations --------------------------------------------------------------------

PRODUCTS = [
    Case("FusedMatMul", [normal(2, 4, 3), normal(2, 5, 4)], {"transA": 1, "transB": 1, "alpha": 0.5}, symbols={2: "b"}),
    Case("FusedMatMul", [normal(3, 2, 4), normal(3, 2, 5)], {"transBatchA": 1, "transBatchB": 1, "transA": 1}),
    Case("FusedMatMul", [normal(4, 2, 3), normal(2, 3, 5)], {"transBatchA": 1}),
    Case("TransposeMatMul", [normal(4, 3), normal(4, 5)], {"transA": 1}),
    Case("Gelu", [normal(3, 5)]),
    Case("BiasGelu", [normal(3, 5), normal(5)], symbols={3: "n"}),
    Case("FastGelu", [normal(3, 5), normal(5)]),
    Case("FastGelu", [normal(3, 5)]),
    Case("QuickGelu", [normal(3, 5)], {"alpha": 1.5}),
    Case("QuickGelu", [normal(3, 5)]),
    *[Case("FusedGemm", [normal(5, 7), normal(3, 7), normal(3)], {"transB": 1, "alpha": 0.5, "beta": 2.0, **a})
      for a in (
          {"activation": "Relu"}, {"activation": "Tanh"}, {"activation": "Sigmoid"}, {"activation": "Softplus"},
          {"activation": "Softsign"}, {"activation": "LeakyRelu", "activation_alpha": 0.3},
          {"activation": "Elu", "activation_alpha": 0.3}, {"activation": "Celu", "activation_alpha": 0.7},
          {"activation": "ThresholdedRelu", "activation_alpha": 0.3},
          {"activation": "HardSigmoid", "activation_alpha": 0.3, "activation_beta": 0.4},
          {"activation": "Selu", "activation_alpha": 1.3, "activation_gamma": 0.9},
      )],
    Case("FusedGemm", [normal(7, 5), normal(7, 3)], {"transA": 1, "activation": "Relu"}),
]  # fmt: skip

IMAGE, KERNELS = normal(2, 4, 9, 7), normal(6, 4, 3, 3)
CONVOLUTIONS = [
    *[Case("FusedConv", [IMAGE, KERNELS, normal(6)], {"pads": [1, 1, 1, 1], **a}, symbols={2: "b", 9: "h"})
      for a in (
          {"activation": "Relu"}, {"activation": "Tanh"}, {"activation": "Sigmoid"}, {"activation": "HardSwish"},
          {"activation": "LeakyRelu", "activation_params": [0.2]},
          {"activation": "Clip", "activation_params": [-0.5, 0.7]},
          {"activation": "HardSigmoid", "activation_params": [0.3, 0.4]},
      )],
    Case("FusedConv", [IMAGE, normal(6, 2, 3, 3), normal(6), normal(2, 6, 9, 7)],
         {"activation": "Relu", "group": 2, "pads": [1, 1, 1, 1]}),
    Case("FusedConv", [IMAGE, KERNELS], {"activation": "Relu", "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    Case("NhwcMaxPool", [below(256, 2, 7, 9, 3).astype(np.uint8)],
         {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 0]}, symbols={2: "b", 7: "h"}),
    Case("NhwcMaxPool", [(below(256, 2, 7, 9, 3) - 128).astype(np.int8)],
         {"kernel_shape": [3, 2], "ceil_mode": 1, "strides": [2, 2], "dilations": [2, 1]}),
]  # fmt: skip

# -- normalisation --------------------------------------------------------------------------------

X, TABLES = normal(2, 3, 8), [normal(6, 8), normal(5, 8), normal(2, 8), normal(8), normal(8)]
IDS, SEGMENTS = below(6, 2, 3), below(2, 2, 3)
NORMALIZATIONS = [
    Case("SimplifiedLayerNormalization", [X, normal(8)], {"axis": -1, "epsilon": 1e-4}, domain="", symbols={2: "b"}),
    Case("SimplifiedLayerNormalization", [X, normal(3, 8)], {"axis": 1}, domain=""),
    Case("SimplifiedLayerNormalization", [X, normal(8)], {"axis": -1}, (0, 1), domain="", symbols={2: "b"}),
    Case("SkipLayerNormalization", [X, normal(2, 3, 8), normal(8), normal(8), normal(8)], {}, (0, 3), symbols={2: "b"}),
    Case("SkipLayerNormalization", [X, normal(3, 8), normal(8), normal(8)], {"epsilon": 1e-3}),
    Case("SkipLayerNormalization", [X, normal(1, 3, 8), normal(8)], {}, (0, 3)),
    Case("SkipSimplifiedLayerNormalization", [X, normal(2, 3, 8), normal(8)], {"epsilon": 1e-5}),
    Case("SkipSimplifiedLayerNormalization", [X, X, normal(8), normal(8)], {}, (0, 3)),
    Case("SkipSimplifiedLayerNormalization", [normal(6, 8), normal(6, 8), normal(8)], {}, (0, 3), symbols={6: "t"}),
    Case("EmbedLayerNormalization", [IDS, SEGMENTS, *TABLES], {}, (0, 1), symbols={2: "b", 3: "s"}),
    Case("EmbedLayerNormalization", [IDS, SEGMENTS, *TABLES, np.array([[1, 1, 0], [1, 0, 1]], np.int32)],
         {"mask_index_type": 1}, (0, 1, 2), frozenset(range(2, 7)), {2: "b", 3: "s"}),
    Case("EmbedLayerNormalization", [IDS, None, *TABLES[:2], None, *TABLES[3:]], {}, (0, 1, 2)),
    Case("EmbedLayerNormalization", [IDS, SEGMENTS, *TABLES, None, below(5, 2, 3)], {"epsilon": 1e-3}, (0, 1)),
    Case("EmbedLayerNormalization", [IDS, SEGMENTS, *TABLES, None, below(5, 1, 3)], {}, (0, 1)),
]  # fmt: skip

# -- others ---------------------------------------------------------------------------------------

BYTES = [RNG.integers(0, 255, np.shape(t)).astype(np.uint8) for t in TABLES]
SCALES, ZEROS = [np.full((), 0.01, F32)] * 5, [np.full((), 120, np.uint8)] * 5
OTHERS = [
    Case("QEmbedLayerNormalization", [IDS, SEGMENTS, *BYTES, None, *SCALES, *ZEROS], {}, (0, 1),
         frozenset(range(2, 18)) - {7}, {2: "b", 3: "s"}, tolerance=1e-4),
    Case("ExpandDims", [normal(3, 4), np.array(-1, np.int32)], constants=frozenset({1}), symbols={3: "n"}),
    Case("Range", [np.array(1, F32), np.array(3.5, F32)]),
    Case("Pad", [normal(3, 4), np.array([1, 0, 0, 2]), np.array(0.5, F32)], constants=frozenset({1, 2})),
    Case("GatherND", [normal(3, 4, 5), below(3, 2, 2)], symbols={4: "n"}),
    Case("GridSample", [normal(2, 3, 5, 6), normal(2, 4, 4, 2)], {"mode": "bilinear", "align_corners": 1}),
    Case("GridSample", [normal(2, 3, 5, 6), normal(2, 4, 4, 2)], {"mode": "nearest", "padding_mode": "border"}),
    Case("Unique", [np.array([2, 1, 1, 3, 4, 3], F32)], {}, (0, 1, 2), symbols={6: "n"}),
    Case("CDist", [normal(5, 7), normal(4, 7)], {"metric": "sqeuclidean"}, tolerance=1e-4, symbols={5: "m", 4: "k"}),
    Case("CDist", [normal(5, 7), normal(4, 7)], {"metric": "euclidean"}, tolerance=1e-4),
    Case("Inverse", [normal(3, 4, 4) + 4 * np.eye(4, dtype=F32)], symbols={3: "b"}),
    *[Case("Trilu", [normal(2, 4, 5), k], {"upper": upper}, symbols={2: "b", 4: "m"})
      for k in (None, np.array(1), np.array(-2)) for upper in (0, 1)],
]  # fmt: skip


@pytest.mark.parametrize(
    "c", [*PRODUCTS, *CONVOLUTIONS, *NORMALIZATIONS, *OTHERS], ids=lambda c: c.id
)
def test_agrees_with_onnx_runtime(c: Case, imported: Any, model: Any) -> None:
    check(c, imported, model)


# -- by formulas ---------------------------------------------------------------------------------


def erf_gelu(x: Any) -> Any:
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def tanh_gelu(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def grouped(x: Any, groups: int, scale: Any, bias: Any, epsilon: float) -> Any:
    """Group normalisation of (N, C, H, W)."""
    apart = x.reshape(x.shape[0], groups, -1)
    y = (apart - apart.mean(-1, keepdims=True)) / np.sqrt(apart.var(-1, keepdims=True) + epsilon)
    return y.reshape(x.shape) * scale[:, None, None] + bias[:, None, None]


def test_fused_products_and_sums(imported: Any, model: Any) -> None:
    x, bias, skip = normal(2, 3, 8), normal(8), normal(2, 3, 8)
    total = x + bias
    want = (total[..., :4] * erf_gelu(total[..., 4:])).astype(F32)
    check(Case("BiasSplitGelu", [x, bias], symbols={2: "b"}), imported, model, [want])
    check(Case("BiasAdd", [x, bias, skip]), imported, model, [total + skip])
    w, more = normal(8, 5), normal(5)
    check(Case("GemmFastGelu", [x, w, more]), imported, model, [tanh_gelu(x @ w + more)])
    attrs = {"transA": 1, "activation": "LeakyRelu", "activation_alpha": 0.2}
    y = w.T @ normal(8, 3)
    c = Case("FusedMatMulActivation", [w, normal(8, 3)], attrs)
    y = w.T @ c.arrays[1]
    check(c, imported, model, [np.where(y < 0, F32(0.2) * y, y)])


def test_simplified_normalization_in_either_domain(imported: Any, model: Any) -> None:
    main = Case("SimplifiedLayerNormalization", [X, normal(8)], {"axis": -1}, domain="")
    (want,) = by_onnx_runtime(main.model(model, False), main.names, main.feed)
    check(Case(main.op, main.arrays, main.attrs), imported, model, [want])


def test_channels_last(imported: Any, model: Any) -> None:
    """By the operator with channels first, which ONNX Runtime's CPU has."""
    attrs = {"activation": "Relu", "pads": [1, 0, 1, 0], "strides": [2, 1]}
    bias, skip = normal(6), normal(2, 6, 5, 5)
    first = Case("FusedConv", [IMAGE, KERNELS, bias, skip], attrs)
    (want,) = by_onnx_runtime(first.model(model, False), first.names, first.feed)
    turned = [IMAGE.transpose(0, 2, 3, 1), KERNELS, bias, skip.transpose(0, 2, 3, 1)]
    check(
        Case("NhwcFusedConv", turned, attrs, symbols={2: "b"}),
        imported,
        model,
        [want.transpose(0, 2, 3, 1)],
    )
    plain = Case("NhwcConv", turned[:3], {"pads": [1, 0, 1, 0], "strides": [2, 1]})
    (y,) = by_converter(plain, imported, model, False)
    np.testing.assert_allclose(
        np.maximum(y + turned[3], 0), want.transpose(0, 2, 3, 1), rtol=2e-5, atol=2e-5
    )


@pytest.mark.parametrize("activation", [0, 1])
@pytest.mark.parametrize("last", [0, 1])
def test_group_norm(last: int, activation: int, imported: Any, model: Any) -> None:
    x, skip, scale, shift, bias = normal(2, 6, 5, 3), normal(2, 6), normal(6), normal(6), normal(6)
    attrs = {"groups": 3, "channels_last": last, "activation": activation, "epsilon": 1e-4}
    total = x + skip[:, :, None, None] + bias[:, None, None]
    results = [grouped(a, 3, scale, shift, 1e-4) for a in (x, total)]
    results = [y / (1 + np.exp(-y)) if activation else y for y in results]
    turn = (0, 2, 3, 1) if last else (0, 1, 2, 3)
    one, two, added, given = (a.transpose(turn) for a in (*results, total, x))
    check(Case("GroupNorm", [given, scale, shift], attrs, symbols={2: "b"}), imported, model, [one])
    c = Case("SkipGroupNorm", [given, scale, shift, skip, bias], attrs, (0, 1), symbols={2: "b"})
    check(c, imported, model, [two, added])


# -- what is refused -----------------------------------------------------------------------------

REFUSED = [
    (Case("FusedConv", [IMAGE, KERNELS], {"activation": "Mish"}), "'Mish' is not supported"),
    (Case("NhwcConv", [normal(2, 9, 7, 4), KERNELS], {"auto_pad": "SAME_UPPER"}), "auto_pad"),
    (
        Case("CDist", [normal(5, 7), normal(4, 7)], {"metric": "cosine"}),
        "'cosine' is not supported",
    ),
]


@pytest.mark.parametrize(("c", "reason"), REFUSED, ids=[r for _, r in REFUSED])
def test_refused_forms_say_why(c: Case, reason: str, imported: Any, model: Any) -> None:
    with pytest.raises(UnsupportedOperator, match=reason) as e:
        imported(c.model(model, False))
    assert e.value.do


@pytest.mark.parametrize("simplified", [False, True])
def test_moments_of_a_skip(simplified: bool, imported: Any, model: Any) -> None:
    """ONNX Runtime's own kernels for the CPU leave them out."""
    skip, outputs = normal(2, 3, 8), (0, 2, 3) if simplified else (0, 1, 2, 3)
    op = "SkipSimplifiedLayerNormalization" if simplified else "SkipLayerNormalization"
    c = Case(op, [X, skip, normal(8)], {"epsilon": 1e-3}, outputs)
    found = evaluate(imported(c.model(model, False)), c.feed)
    total = (X + skip).astype(np.float64)
    mean = 0 * total.mean(-1, keepdims=True) if simplified else total.mean(-1, keepdims=True)
    inverse = 1 / np.sqrt(((total - mean) ** 2).mean(-1, keepdims=True) + 1e-3)
    wanted = {"o1": mean, "o2": inverse, "o3": total}
    for name in c.names[1:]:
        assert found[name].dtype == np.float32
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("opset", [1, 9, 16, 17])
def test_moments_of_a_layer_normalization_in_any_operator_set(
    opset: int, imported: Any, model: Any
) -> None:
    c = Case(
        "LayerNormalization",
        [X, normal(8), normal(8)],
        {"axis": -1, "epsilon": 1e-3},
        (0, 1, 2),
        domain="",
    )
    proto = c.model(lambda *given: model(*given, opset=opset), False)
    found = evaluate(imported(proto), c.feed)
    for name, want in zip(c.names, by_onnx_runtime(proto, c.names, c.feed), strict=True):
        assert (found[name].dtype, found[name].shape) == (want.dtype, want.shape)
        np.testing.assert_allclose(found[name], want, rtol=1e-5, atol=1e-6)
