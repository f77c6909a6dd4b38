"""Layers of one expression: what Python's operators mean, and what is no expression."""

from __future__ import annotations

import gc
import math
import operator
import weakref
from typing import Any

import numpy as np
import pytest

from tactix.base.dtypes import DType
from tactix.base.errors import InvalidArgument
from tactix.base.tensor import TensorSpec
from tactix.contracts.layer import NoAttrs
from tactix_sdk import pointwise
from tactix_sdk.scalar import select
from tactix_sdk.scalar_layer import PointwiseLayer

X = np.array([-2.0, 0.0, 3.0], np.float32)
Y = np.array([-2.0, 1.0, -3.0], np.float32)


def made(function: Any) -> PointwiseLayer:
    return pointwise("acme.It@1")(function)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: x + y * 2.0 - 1.0 / (3.0 - x / 4.0), lambda x, y: 5.0 - (2.0 + x) * (2.0 * -y),
        lambda x, y: (x < y) == (y < 0.0), lambda x, y: x <= 0.0, lambda x, y: x > y, lambda x, y: x >= y,
        lambda x, y: x == y, lambda x, y: x != y, lambda x, y: x != 0.0, lambda x, y: operator.lt(0.0, x),
        lambda x, y: operator.ge(0.0, x), lambda x, y: operator.eq(0.0, x),
    ],
)  # fmt: skip
def test_operators_mean_what_they_mean_in_numpy(function: Any) -> None:
    (got,) = made(function).reference(made(function).Attrs(), X, Y)
    np.testing.assert_allclose(got, function(X, Y), rtol=1e-6)


def test_a_comparison_may_decide() -> None:
    layer = made(lambda x, y: select(x == y, 1.0, 0.0))
    assert layer.reference(layer.Attrs(), X, Y)[0].tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x if x > 0.0 else 0.0 * x, "neither true nor false. Write select, "),
        (lambda x: x > 0.0 and x < 1.0, "neither true nor false"),
        (lambda x: not x, "neither true nor false"),
        (lambda x: max(x, 0.0), "neither true nor false"),
        (lambda x: 0.0 if x == 1.0 else x, "neither true nor false"),
        (lambda x: None, "None is no number"),
        (lambda x: x + "1", "'1' is no number"),
        (lambda x: x * np.ones(3), "is no number"),
    ],
)
def test_what_is_no_expression_is_refused(function: Any, message: str) -> None:
    layer = made(function)
    with pytest.raises(InvalidArgument, match=rf"acme\.It@1: .*{message}"):
        layer.infer(layer.Attrs(), [TensorSpec(DType.FP32, (3,))])


def test_numbers_of_any_kind_are_constants() -> None:
    layer = made(lambda x: x * np.float32(0.5) + np.int64(2) - math.pi + True)
    (got,) = layer.reference(layer.Attrs(), X)
    np.testing.assert_allclose(got, X * 0.5 + 3 - math.pi, rtol=1e-6)


def test_a_layer_without_attributes_asks_its_function_once_and_is_kept_by_nobody():
    asked = []

    def double(x):
        asked.append(x)
        return x + x

    layer = PointwiseLayer("t.Double@1", double)
    assert layer.scalar(NoAttrs(), 1) is layer.scalar(NoAttrs(), 1)
    assert len(asked) == 1
    held = weakref.ref(layer)
    del layer
    gc.collect()
    assert held() is None
