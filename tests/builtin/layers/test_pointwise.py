"""Pointwise layers against closed forms in float64, where they are delicate: far from zero, near
it, at the ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tactix.base.dtypes import DType
from tactix.base.errors import DTypeError
from tactix.base.tensor import TensorSpec
from tactix_ops.layers import all_layers

LAYERS = {x.name: x for x in all_layers()}
POINTS = np.concatenate(
    [
        np.linspace(-12, 12, 997),
        [-1e30, -200, -88.8, -30, -1e-3, -1e-7, -0.0, 0.0, 1e-7, 1e-3, 30, 88.8, 200, 1e30],
    ]
).astype(np.float32)


def run(name: str, *inputs: Any, **attrs: Any) -> Any:
    layer = LAYERS[name]
    return layer.reference(layer.Attrs(**attrs), *inputs)[0]


def softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def normal_cdf(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2))


CLOSED_FORMS: dict[str, Callable[[float], float]] = {
    "Sigmoid": lambda x: 1 / (1 + math.exp(-x)) if x > -700 else 0.0,
    "Softplus": softplus,
    "Mish": lambda x: x * math.tanh(softplus(x)),
    "Swish": lambda x: x / (1 + math.exp(-x)) if x > -700 else 0.0,
    "Softsign": lambda x: x / (1 + abs(x)),
    "Elu": lambda x: x if x >= 0 else math.expm1(x),
    "Celu": lambda x: x if x >= 0 else math.expm1(x),
    "Tanh": math.tanh,
    "Erf": math.erf,
}


@pytest.mark.parametrize("name", CLOSED_FORMS)
def test_relative_error_is_a_few_units(name: str) -> None:
    want = np.array([CLOSED_FORMS[name](float(x)) for x in POINTS])
    got = run(name, POINTS).astype(np.float64)
    overflow = (
        1e-36  # of exp in float32: x sigmoid(x) is 0 a little before it is smaller than a float
    )
    assert np.all(np.abs(got - want) <= 2e-6 * np.abs(want) + overflow)


def test_hard_swish() -> None:
    want = POINTS * np.clip(POINTS.astype(np.float64) / 6 + 0.5, 0, 1)
    assert np.allclose(run("HardSwish", POINTS), want, rtol=1e-6, atol=1e-6)


def test_gelu_is_exact_to_its_largest_value() -> None:
    want = np.array([float(x) * normal_cdf(float(x)) for x in POINTS])
    assert np.all(np.abs(run("Gelu", POINTS) - want) <= 5e-7 * np.maximum(np.abs(want), 1))


def test_gelu_by_tanh() -> None:
    x = POINTS[np.abs(POINTS) < 50].astype(np.float64)
    want = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    assert np.allclose(
        run("Gelu", x.astype(np.float32), approximate="tanh"), want, rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize(
    "name", ["Relu", "Sigmoid", "Softplus", "Tanh", "Gelu", "Clip", "Sign", "Abs", "Min", "Max"]
)
def test_nan_stays(name: str) -> None:
    nan = np.array([np.nan], np.float32)
    inputs = (nan, np.ones(1, np.float32)) if name in ("Min", "Max") else (nan,)
    attrs = {"min": -1.0, "max": 1.0} if name == "Clip" else {}
    assert np.isnan(run(name, *inputs, **attrs)[0])


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.int64, np.uint8])
def test_sign(dtype: Any) -> None:
    x = np.array([3, 0, 2], dtype) if dtype == np.uint8 else np.array([-3, 0, 2], dtype)
    got = run("Sign", x)
    assert got.dtype == dtype
    assert np.array_equal(got, np.sign(x))


def test_clip_keeps_large_integers_when_it_has_one_end() -> None:
    x = np.array([-1, 2**62 + 1])
    assert run("Clip", x).tolist() == x.tolist()


@pytest.mark.parametrize(
    ("to", "saturate", "want"),
    [
        (DType.INT32, True, [2, -2, 0]),
        (DType.BOOL, True, [True, True, False]),
        (DType.FP8, True, [2.75, -2.75, 0]),
        (DType.FP64, True, [2.7, -2.7, 0]),
    ],
)
def test_casts(to: DType, saturate: bool, want: list[Any]) -> None:
    got = run("Cast", np.array([2.7, -2.7, 0]), to=to, saturate=saturate)
    assert got.dtype == to.numpy
    assert got.tolist() == want


def test_casts_to_eight_bits_saturate_or_not() -> None:
    x = np.array([1e6, -np.inf, np.nan, 300], np.float32)
    ends = run("Cast", x, to=DType.FP8).astype(np.float32)
    assert ends.tolist()[:2] == [448, -448]
    assert np.isnan(ends[2])
    assert np.isnan(run("Cast", x, to=DType.FP8, saturate=False).astype(np.float32)[0])
    assert run("Cast", x, to=DType.FP8E5M2).astype(np.float32)[0] == 57344


def test_integer_division_and_remainders() -> None:
    a, b = np.array([7, -7, 7, -7]), np.array([2, 2, -2, -2])
    assert run("Div", a, b).tolist() == [3, -3, -3, 3]
    assert run("Mod", a, b).tolist() == [1, 1, -1, -1]
    assert run("Mod", a, b, fmod=True).tolist() == [1, -1, 1, -1]


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_what_integers_have_no_quotient_for_is_defined(dtype: str) -> None:
    low = np.iinfo(dtype).min
    a, b = np.array([7, -7, 0, low, low], dtype), np.array([0, 0, 0, 0, -1], dtype)
    assert run("Div", a, b).tolist() == [0, 0, 0, 0, low]
    for fmod in (False, True):
        assert run("Mod", a, b, fmod=fmod).tolist() == [0, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("name", "dtypes"),
    [("And", ("i64", "bool")), ("Not", ("f32",)), ("BitwiseNot", ("f32",)), ("Where", ("i64", "f32", "f32")),
     ("Where", ("bool", "f32", "i64"))],
)  # fmt: skip
def test_wrong_dtypes_are_refused(name: str, dtypes: tuple[str, ...]) -> None:
    layer = LAYERS[name]
    with pytest.raises(DTypeError):
        layer.infer(layer.Attrs(), [TensorSpec(DType(t), (2,)) for t in dtypes])
