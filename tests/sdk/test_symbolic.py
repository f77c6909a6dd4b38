"""Scalar expressions over dims: arithmetic, decisions that hold for all symbols, and giving up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tactix.base.dims import Dim, dmax, dmin, evaluate, floordiv, mod, sym
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix.contracts import expr
from tactix.contracts.expr import Scalar, cast, select
from tactix_codegen import numerics
from tactix_sdk.scalar_layer import PointwiseLayer
from tactix_sdk.symbolic import LIMIT, content, propagate

N, S = sym("n"), sym("s")


def known(*values: Dim, dtype: DType = DType.INT64) -> TensorSpec:
    return TensorSpec(dtype, (len(values),), tuple(values))


def apply(function: Any, *inputs: TensorSpec, dtype: DType = DType.INT64) -> tuple[Dim, ...] | None:
    scalar = function(*(expr.var(i) for i in range(len(inputs))))
    shape = max((x.shape for x in inputs), key=len)
    return propagate(scalar, inputs, TensorSpec(dtype, shape))


@pytest.mark.parametrize(
    ("function", "want"),
    [
        (lambda a, b: a + b, N + 3),
        (lambda a, b: a - b, N - 3),
        (lambda a, b: a * b, 3 * N),
        (lambda a, b: (a * b) / b, N),
        (lambda a, b: a / b, floordiv(N, 3)),
        (lambda a, b: expr.mod(a, b), mod(N, 3)),
        (expr.minimum, dmin(N, 3)),
        (expr.maximum, dmax(N, 3)),
        (lambda a, b: -a, -1 * N),
        (lambda a, b: expr.abs_(a), N),
        (lambda a, b: cast(a, DType.INT32), N),
        (lambda a, b: select(a < 0, b, a), N),
        (lambda a, b: select(expr.eq(a, -1), 1, a + b), N + 3),
        (lambda a, b: cast(a >= 0, DType.INT64), 1),
        (lambda a, b: cast(expr.not_(a >= 0), DType.INT64), 0),
        (lambda a, b: cast(expr.and_(a >= 0, b < 5), DType.INT64), 1),
        (lambda a, b: cast(expr.or_(a < 0, b < 2), DType.INT64), 0),
        (lambda a, b: cast(a + 1, DType.BOOL), 1),
        (lambda a, b: expr.floor(cast(a, DType.FP32) * 2.0), 2 * N),
    ],
)
def test_arithmetic(function: Any, want: Dim) -> None:
    assert apply(function, known(N), known(3)) == (want,)


@pytest.mark.parametrize("offset", [-1, -2, -7, 2])
@pytest.mark.parametrize("sign", [1, -1])
def test_what_may_be_negative_is_divided_toward_zero(offset: int, sign: int) -> None:
    (made,) = apply(lambda a, b: a / b, known(sign * N + offset), known(4)) or (None,)
    assert made is not None
    for n in range(12):
        a = sign * n + offset
        assert evaluate(made, {"n": n}) == int(a / 4)


def test_one_less_than_a_size_is_divided_in_one_term() -> None:
    assert apply(lambda a, b: a / b, known(N - 1), known(4)) == (floordiv(dmax(N - 1, 0), 4),)


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: select(expr.eq(a, b), 1, 0),
        lambda a, b: select(a < b, 1, 2),
        lambda a, b: cast(a, DType.BOOL),
        lambda a, b: cast(a, DType.INT8),
        lambda a, b: a / 0,
        lambda a, b: cast(a, DType.FP32) / 3.0,
        lambda a, b: cast(a, DType.FP32) * 0.5,
        lambda a, b: expr.abs_(a - b),
        lambda a, b: expr.exp(a),
        lambda a, b: (a - b) / (b - a),
    ],
)
def test_giving_up(function: Any) -> None:
    assert apply(function, known(N), known(3)) is None


def test_a_choice_between_equals_needs_no_decision() -> None:
    assert apply(lambda a, b: select(a < b, a + b, b + a), known(N), known(S)) == (N + S,)


@given(
    st.integers(-40, 40),
    st.integers(-40, 40),
    st.sampled_from(["add", "sub", "mul", "div", "mod", "min", "max"]),
)
def test_numbers_as_numpy(a: int, b: int, op: str) -> None:
    s = expr._op(op, expr.var(0), expr.var(1))
    found = propagate(s, [known(a), known(b)], TensorSpec(DType.INT64, (1,)))
    if b == 0 and op in ("div", "mod"):
        assert found is None
    else:
        assert found == tuple(numerics.evaluate(s, [np.array([a]), np.array([b])]).tolist())


@given(
    st.integers(0, 40),
    st.integers(1, 9),
    st.sampled_from(["add", "mul", "div", "mod", "min", "max"]),
)
def test_symbols_as_their_values(n: int, k: int, op: str) -> None:
    s: Scalar = expr._op(op, expr.var(0) + 2, expr.var(1))
    found = propagate(s, [known(N), known(k)], TensorSpec(DType.INT64, (1,)))
    assert found is not None
    assert evaluate(found[0], {"n": n}) == int(
        numerics.evaluate(s, [np.array([n]), np.array([k])])[0]
    )


def test_broadcasting_as_numpy() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 9, (3, 1, 4)), rng.integers(0, 9, (2, 1))
    inputs = [TensorSpec(DType.INT64, x.shape, tuple(x.ravel().tolist())) for x in (a, b)]
    found = propagate(expr.var(0) * 10 + expr.var(1), inputs, TensorSpec(DType.INT64, (3, 2, 4)))
    assert found == tuple((a * 10 + b).ravel().tolist())


def test_content() -> None:
    half, whole = np.array([0.5], np.float32), np.array([2.0, 3.0], np.float32)
    assert content(TensorSpec(DType.FP32, (2,), const=whole)) == (2, 3)
    assert content(TensorSpec(DType.FP32, (1,), const=half)) is None
    assert content(TensorSpec(DType.FP32, (1,), const=np.array([np.inf], np.float32))) is None
    assert content(TensorSpec(DType.BOOL, (1,), const=np.array([True]))) == (1,)
    assert content(TensorSpec(DType.INT64, (2,))) is None


def test_large_tensors_are_not_tracked() -> None:
    large = TensorSpec(DType.INT64, (LIMIT + 1,), (1,) * (LIMIT + 1))
    assert propagate(expr.var(0) + 1, [large], large.plain()) is None


def test_a_pointwise_layer_infers_content() -> None:
    layer = PointwiseLayer("acme.Twice@1", lambda a, b: a * 2 + b)
    (out,) = layer.infer(
        layer.Attrs(), [known(N, S), TensorSpec(DType.INT64, (), const=np.array(1))]
    )
    assert out == TensorSpec(DType.INT64, (2,), (2 * N + 1, 2 * S + 1))
    (out,) = layer.infer(layer.Attrs(), [known(N, S), TensorSpec(DType.INT64, ())])
    assert out.value is None
