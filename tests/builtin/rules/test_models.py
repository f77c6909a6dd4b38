"""Whole models: what is left after the rules, and that it computes the same."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tactix.fuse.rewrite import fuse
from tactix.network.definition import NetworkDefinition
from tactix.network.verify import verify
from tactix_onnx import converters, importers
from tactix_ops.layers import all_layers
from tactix_ops.rules import all_rules
from tactix_sdk.evaluate import evaluate

SMALL = Path(__file__).parents[2] / "models"
MOVES = {"Reshape", "Transpose", "Slice", "Concat", "Split", "Expand"}

LEFT = {
    "decoder": {
        "TokenAttention": 2, "LayerNormalization": 5, "MatMul": 3, "MatMul+Add": 4, "MatMul+Gelu": 2, "Gather": 1,
        "Add": 1, "Cast": 1, "LessOrEqual+And+Where": 1, "Dims": 1, "Range": 1,
    },
    "encoder": {
        "TokenAttention": 2, "LayerNormalization": 5, "MatMul+Add": 2, "MatMul+Add+Add": 4, "MatMul+Add+Gelu": 2,
        "MatMul+Add+Tanh": 1, "Gather": 2, "Add+Add": 1, "Cast+Where": 1,
    },
    "gru": {"GRU": 2, "Gather": 1, "MatMul+Add": 1},
    "lenet": {"Convolution+Relu": 2, "MaxPool": 2, "MatMul+Add+Relu": 1, "MatMul+Add": 1, "LogSoftmax": 1},
    "lstm": {"LSTM": 2, "Gather": 1, "MatMul+Add": 1},
    "mlp": {"MatMul+Add+Relu": 1, "MatMul+Add": 1},
    "mobile": {
        "Convolution": 1, "Convolution+Add": 2, "Convolution+Clip": 5, "Convolution+Swish": 2, "GlobalAveragePool": 1,
        "MatMul+Add": 1,
    },
    "recommender": {"Gather": 6, "MatMul": 1, "MatMul+Add+Relu": 3, "MatMul+Add+Sigmoid": 1},
    "residual": {
        "Convolution": 2, "Convolution+Relu": 7, "Convolution+Add+Relu": 3, "MaxPool": 1, "GlobalAveragePool": 1,
        "MatMul+Add": 1,
    },
    "unet": {"Convolution": 1, "Convolution+Relu": 6, "ConvTranspose": 1, "MaxPool": 1},
    "vision": {
        "TokenAttention": 2, "LayerNormalization": 5, "MatMul+Add": 3, "MatMul+Add+Add": 4, "MatMul+Add+Gelu": 2,
        "Convolution": 1, "Add": 1,
    },
}  # fmt: skip
"""Nodes other than those that move elements, by what they are made of."""

LARGE = {"resnet50": 56, "mobilenet_v2": 54, "unet32": 31, "efficientnet_b0": 115, "bert_base": 92, "gpt2": 93,
         "vit_b16": 92, "lstm_tagger": 8, "gru_tagger": 6}  # fmt: skip
"""Nodes that run: all but views."""


def load(path: Path) -> NetworkDefinition:
    net = NetworkDefinition({layer.key: layer for layer in all_layers()}, path.stem)
    importers()[0].load(path, net, {c.key: c for c in converters()})
    return net


def made_of(net: NetworkDefinition) -> list[str]:
    return ["+".join(b.layer.name for b in n.body.nodes) for n in net.nodes]


def inputs_of(net: NetworkDefinition, batch: int, length: int) -> dict[str, np.ndarray]:
    """Random inputs; a mask hides the tail of the last row."""
    rng = np.random.default_rng(batch)
    out = {}
    for v in net.inputs:
        shape = v.spec.at({"batch": batch, "seq": length})
        if v.spec.dtype.is_float:
            out[v.name] = rng.standard_normal(shape, dtype=np.float32)
        else:
            out[v.name] = rng.integers(0, 2 if "type" in v.name else 40, shape)
        if "mask" in v.name:
            out[v.name] = np.ones(shape, np.int64)
            out[v.name][-1, length // 2 :] = 0
    return out


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left(name):
    net = load(SMALL / f"{name}.onnx")
    out, _ = fuse(net, all_rules())
    verify(out, deep=True)
    assert Counter(k for k in made_of(out) if k not in MOVES) == LEFT[name]
    assert fuse(out, all_rules())[1].counts == {}


@pytest.mark.parametrize("name", LEFT)
def test_the_same_numbers(name):
    net = load(SMALL / f"{name}.onnx")
    out, _ = fuse(net, all_rules())
    for batch, length in ((1, 6), (3, 9)):
        arrays = inputs_of(net, batch, length)
        before, after = evaluate(net, arrays), evaluate(out, arrays)
        for k, want in before.items():
            assert np.abs(after[k] - want).max() <= 1e-5 * np.abs(want).max(), k


def test_exact_rules_alone_give_exactly_the_same():
    """Without rules that regroup arithmetic, only the order within one product may differ."""
    net = load(SMALL / "encoder.onnx")
    out, _ = fuse(net, [r for r in all_rules() if r.numerics == "exact"])
    assert len(out.nodes) < len(net.nodes)
    arrays = inputs_of(net, 2, 7)
    before, after = evaluate(net, arrays), evaluate(out, arrays)
    for k, want in before.items():
        np.testing.assert_allclose(after[k], want, rtol=1e-6, atol=1e-6)


@pytest.mark.models
@pytest.mark.parametrize("name", LARGE)
def test_large_models(name):
    folder = os.environ.get("TACTIX_MODELS")
    if not folder:
        pytest.skip("TACTIX_MODELS is not set")
    out, trace = fuse(load(Path(folder) / f"{name}.onnx"), all_rules())
    kinds = made_of(out)
    assert len([k for k in kinds if k != "Reshape"]) == LARGE[name]
    assert not [
        k
        for k in kinds
        if k.split("+")[0] in ("Shape", "Gemm", "BatchNormalization", "Softmax", "DynamicReshape")
    ]
    assert trace.firings
