"""What holds for every layer: samples are valid, references give what inference says, 16-bit floats
are wide inside.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tactix.base.dims import learn
from tactix.base.dtypes import DType
from tactix.contracts import attrs as attribute
from tactix_ops.layers import all_layers
from tactix_sdk.testing.examples import EXAMPLES, specs_of

LAYERS = {x.name: x for x in all_layers()}

SCALARS_ONLY = {"Range"}
OWN_DTYPE = {"Dequantize", "DequantizeLinear", "FewBitsGather", "MelWeightMatrix"}
OWN_DTYPE |= {"WideConvolution", "WideConvTranspose", "WideMatMul", "WideGlobalAveragePool"}


def examples() -> list[Any]:
    out = []
    for name, layer in LAYERS.items():
        found = EXAMPLES.get(name, [({}, "f32 3 5")] if layer.is_pointwise else [])
        out += [
            pytest.param(name, attrs, text, id=f"{name}-{i}")
            for i, (attrs, text) in enumerate(found)
        ]
    return out


def test_every_layer_has_an_example() -> None:
    objects = {
        n for n, x in LAYERS.items() if x.takes_objects
    }  # test_sequences.py and test_control.py
    shown = (
        set(EXAMPLES) | SCALARS_ONLY | objects | {n for n, x in LAYERS.items() if x.is_pointwise}
    )
    assert shown == set(LAYERS)


def test_keys_are_unique() -> None:
    assert len(LAYERS) == len(all_layers())
    assert all(x.key.startswith("tactix.") and x.key.endswith("@1") for x in LAYERS.values())


@pytest.mark.parametrize(("name", "attrs", "text"), examples())
def test_the_reference_gives_what_inference_says(
    name: str, attrs: dict[str, Any], text: str
) -> None:
    layer, specs = LAYERS[name], specs_of(text)
    a = layer.Attrs(**attrs)
    for seed in range(3):
        arrays = layer.sample(a, specs, np.random.default_rng(seed))
        assert [(x.dtype, x.shape) for x in arrays] == [(s.dtype.numpy, s.shape) for s in specs]
        kept = [x.copy() for x in arrays]
        outputs = layer.reference(a, *arrays)
        inferred = layer.infer(a, specs)
        assert [x.dtype for x in outputs] == [s.dtype.numpy for s in inferred]
        env: dict[str, int] = {}
        for s, y in zip(inferred, outputs, strict=True):
            learn(s.shape, y.shape, env)
        assert [x.shape for x in outputs] == [s.at(env) for s in inferred]
        assert all(np.array_equal(x, k) for x, k in zip(arrays, kept, strict=True)), (
            "an input was changed"
        )


@pytest.mark.parametrize("dtype", [DType.FP16, DType.BF16], ids=lambda t: t.name)
@pytest.mark.parametrize(("name", "attrs", "text"), [p for p in examples() if "f32" in p.values[2]])
def test_small_floats_are_rounded_once(
    name: str, attrs: dict[str, Any], text: str, dtype: DType
) -> None:
    """The result is that of float32 on the same numbers, rounded at the end."""
    layer = LAYERS[name]
    a = layer.Attrs(**attrs)
    specs = specs_of(text.replace("f32", dtype.value))
    arrays = layer.sample(a, specs, np.random.default_rng(0))
    raised = [
        x.astype(np.float32) if s.dtype.is_float else x for x, s in zip(arrays, specs, strict=True)
    ]
    with np.errstate(over="ignore", invalid="ignore"):
        for got, want in zip(layer.reference(a, *arrays), layer.reference(a, *raised), strict=True):
            assert got.dtype == (
                dtype.numpy if want.dtype == np.float32 and name not in OWN_DTYPE else want.dtype
            )
            assert np.array_equal(
                got.astype(np.float64), want.astype(got.dtype).astype(np.float64), equal_nan=True
            )


@pytest.mark.parametrize(("name", "attrs", "text"), examples())
def test_attributes_survive_json(name: str, attrs: dict[str, Any], text: str) -> None:
    layer = LAYERS[name]
    a = layer.Attrs(**attrs)
    assert attribute.decode_fields(layer.Attrs, attribute.encode_fields(a)) == a


@pytest.mark.parametrize("name", sorted(n for n, x in LAYERS.items() if x.commutative))
def test_commutative_layers_are(name: str) -> None:
    layer = LAYERS[name]
    a, b = specs_of(EXAMPLES[name][0][1])
    x, y = layer.sample(layer.Attrs(), [a, b], np.random.default_rng(0))
    assert np.array_equal(
        layer.reference(layer.Attrs(), x, y)[0], layer.reference(layer.Attrs(), y, x)[0]
    )
