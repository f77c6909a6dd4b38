"""Random layers: distributions, dtypes, ranges; a seed gives the same numbers, none gives others
each time.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tactix.base.dims import sym
from tactix.base.dtypes import DType
from tactix.base.errors import DTypeError, ShapeError
from tactix.base.tensor import TensorSpec
from tactix_ops.layers import all_layers

LAYERS = {x.name: x for x in all_layers()}
COUNT = 200_000
"""Draws; the bounds below are some ten standard errors."""


def run(name: str, *inputs: Any, **attrs: Any) -> Any:
    layer = LAYERS[name]
    return layer.reference(layer.Attrs(**attrs), *inputs)[0]


@pytest.mark.parametrize(
    "dtype", [DType.FP64, DType.FP32, DType.FP16, DType.BF16], ids=lambda t: t.name
)
def test_normal(dtype: DType) -> None:
    y = run("RandomNormal", shape=(COUNT,), dtype=dtype, mean=-2.0, scale=3.0, seed=4.0)
    assert y.dtype == dtype.numpy
    wide = y.astype(np.float64)
    assert abs(wide.mean() + 2) < 0.07
    assert abs(wide.std() - 3) < 0.07
    assert abs(np.mean(wide < -5) - 0.1587) < 0.01


@pytest.mark.parametrize(
    "dtype", [DType.FP64, DType.FP32, DType.FP16, DType.BF16], ids=lambda t: t.name
)
def test_uniform(dtype: DType) -> None:
    y = run("RandomUniform", shape=(2, COUNT // 2), dtype=dtype, low=-1.0, high=3.0, seed=0.5)
    assert (y.dtype, y.shape) == (dtype.numpy, (2, COUNT // 2))
    wide = y.astype(np.float64)
    assert wide.min() >= -1
    assert wide.max() <= 3
    assert abs(wide.mean() - 1) < 0.03
    assert abs(wide.var() - 16 / 12) < 0.03


def test_bernoulli() -> None:
    p = np.broadcast_to(np.float32([0, 0.25, 0.9, 1]), (COUNT, 4))
    y = run("RandomBernoulli", p, dtype=DType.INT64, seed=1.0)
    assert y.dtype == np.int64
    assert set(np.unique(y)) == {0, 1}
    means = y.mean(axis=0)
    assert means[0] == 0
    assert means[3] == 1
    np.testing.assert_allclose(means, p[0], atol=0.012)


def test_multinomial() -> None:
    weights = np.array([[1, 2, 5, 0], [0.5, 0, 0, 1.5]])
    with np.errstate(divide="ignore"):
        x = np.log(weights).astype(np.float32) + 100  # not normalized
    y = run("RandomMultinomial", x, sample_size=COUNT, dtype=DType.INT32, seed=2.0)
    assert (y.dtype, y.shape) == (np.int32, (2, COUNT))
    found = np.stack([np.bincount(row, minlength=4) for row in y]) / COUNT
    np.testing.assert_allclose(found, weights / weights.sum(axis=1, keepdims=True), atol=0.012)
    assert found[0, 3] == found[1, 1] == found[1, 2] == 0


CASES: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("RandomNormal", [], {"shape": (64,)}), ("RandomUniform", [], {"shape": (64,)}),
    ("RandomBernoulli", [np.full(64, 0.5)], {}), ("RandomMultinomial", [np.zeros((2, 9))], {"sample_size": 64}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "inputs", "attrs"), CASES, ids=[c[0] for c in CASES])
def test_seeds(name: str, inputs: list[Any], attrs: dict[str, Any]) -> None:
    fresh = [run(name, *inputs, **attrs) for _ in range(3)]
    assert not any(np.array_equal(a, b) for a, b in itertools.combinations(fresh, 2))
    for seed in (0.0, 7.0, -1.5, 3e38):
        assert np.array_equal(
            run(name, *inputs, seed=seed, **attrs), run(name, *inputs, seed=seed, **attrs)
        )
    assert not np.array_equal(
        run(name, *inputs, seed=7.0, **attrs), run(name, *inputs, seed=7.5, **attrs)
    )


def test_what_does_not_fit_is_refused() -> None:
    integers = TensorSpec(DType.INT32, (3, 4))
    for name in ("RandomNormal", "RandomUniform"):
        with pytest.raises(DTypeError):
            LAYERS[name].infer(LAYERS[name].Attrs(dtype=DType.INT32), [])
    for name in ("RandomBernoulli", "RandomMultinomial"):
        with pytest.raises(DTypeError):
            LAYERS[name].infer(LAYERS[name].Attrs(), [integers])
    layer = LAYERS["RandomMultinomial"]
    with pytest.raises(ShapeError):
        layer.infer(layer.Attrs(), [TensorSpec(DType.FP32, (3,))])
    with pytest.raises(DTypeError, match="gives integers"):
        layer.infer(layer.Attrs(dtype=DType.FP32), [TensorSpec(DType.FP32, (3, 4))])
    assert layer.infer(layer.Attrs(), [TensorSpec(DType.FP32, (sym("n"), 4))])[0].shape == (
        sym("n"),
        1,
    )
