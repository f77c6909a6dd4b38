"""Exported real models: they import with dynamic dims, no shape arithmetic survives, and the
references agree.

Needs the files of twelve architectures in the folder TACTIX_MODELS, and onnxruntime.
"""

from __future__ import annotations

import collections
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tactix.network.definition import NetworkDefinition
from tactix.network.verify import verify
from tactix_onnx import converters, importers
from tactix_ops.layers import all_layers
from tactix_sdk.evaluate import evaluate

FOLDER = os.environ.get("TACTIX_MODELS")
pytestmark = [pytest.mark.models, pytest.mark.skipif(not FOLDER, reason="TACTIX_MODELS is not set")]

LIGHT = ("lenet", "mlp", "lstm_tagger", "gru_tagger", "dlrm", "mobilenet_v2", "efficientnet_b0")
HEAVY = ("resnet50", "unet32", "vit_b16", "gpt2", "bert_base")
SYMBOLS = {name: {"batch"} for name in LIGHT + HEAVY} | {
    name: {"batch", "seq"} for name in ("lstm_tagger", "gru_tagger", "gpt2", "bert_base")
}


def imported(name: str) -> NetworkDefinition:
    net = NetworkDefinition({x.key: x for x in all_layers()}, name)
    importers()[0].load(Path(str(FOLDER)) / f"{name}.onnx", net, {c.key: c for c in converters()})
    return net


def feed(net: NetworkDefinition, batch: int, seq: int) -> dict[str, Any]:
    """Random inputs: small ids, masks with rows of different lengths, noise."""
    rng = np.random.default_rng(batch * 1000 + seq)
    out: dict[str, Any] = {}
    for v in net.inputs:
        shape = v.spec.at({"batch": batch, "seq": seq})
        if v.spec.dtype.is_float:
            out[v.name] = rng.standard_normal(shape, np.float32)
        elif "mask" in v.name:
            out[v.name] = (
                np.arange(shape[1]) < rng.integers(1, shape[1] + 1, (shape[0], 1))
            ).astype(np.int64)
        else:
            out[v.name] = rng.integers(0, 2 if "type" in v.name else 900, shape)
    return out


def worst(net: NetworkDefinition, name: str, batch: int, seq: int) -> float:
    """Largest error against onnxruntime, relative to the largest element of each output."""
    import onnxruntime as ort

    inputs = feed(net, batch, seq)
    session = ort.InferenceSession(
        str(Path(str(FOLDER)) / f"{name}.onnx"), providers=["CPUExecutionProvider"]
    )
    got, want = evaluate(net, inputs), session.run(list(net.output_names), inputs)
    errors = []
    for key, w in zip(net.output_names, want, strict=True):
        assert got[key].shape == w.shape
        errors.append(float(np.abs(got[key] - w).max() / np.abs(w).max()))
    return max(errors)


@pytest.mark.parametrize("name", LIGHT + HEAVY)
def test_imports_with_dynamic_dims(name: str) -> None:
    net = imported(name)
    verify(net, deep=True)
    assert set(net.symbols()) == SYMBOLS[name]
    count = collections.Counter(n.layer.name for n in net.nodes)
    assert not {"Shape", "DynamicReshape"} & set(count)


@pytest.mark.parametrize("name", ["bert_base", "gpt2"])
def test_no_shape_arithmetic_survives(name: str) -> None:
    for n in imported(name).nodes:
        small_integers = [v for v in n.outputs if v.spec.known() is not None]
        assert n.layer.name == "Dims" or not small_integers


@pytest.mark.parametrize("name", ["bert_base"])
def test_the_position_table_limits_the_sequence(name: str) -> None:
    assert imported(name).limits == {"seq": 512}


@pytest.mark.parametrize("name", LIGHT)
def test_references_agree_with_onnxruntime(name: str) -> None:
    assert worst(imported(name), name, 2, 9) < 1e-4


@pytest.mark.parametrize("name", HEAVY)
def test_references_of_large_models_agree_with_onnxruntime(name: str) -> None:
    assert worst(imported(name), name, 2, 37) < 1e-4
