"""Numbers that are rounded to bytes and read again stay whole floats within one expression."""

from __future__ import annotations

import numpy as np
import pytest

from tactix.base.dtypes import DType
from tactix.contracts.expr import Scalar, cast, exp, maximum, minimum, round_, var, walk
from tactix_codegen.c.rounding import in_floats, rounded_part
from tactix_codegen.numerics import evaluate


def quantized(x: Scalar, zero: float) -> Scalar:
    return cast(maximum(minimum(round_(x) + zero, 255.0), 0.0), DType.UINT8)


def dequantized(q: Scalar, zero: float) -> Scalar:
    return (cast(q, DType.FP32) - zero) * 0.25


@pytest.mark.parametrize("zero", [0.0, 3.0, 255.0])
def test_they_are_the_same_numbers_without_bytes(zero: float) -> None:
    x = exp(dequantized(quantized(var(0) * 4.0, zero), zero)) + var(0)
    (made,) = in_floats([x])
    assert [n for n in walk([made]) if n.op == "cast" and n.dtype is DType.UINT8] == []
    given = [np.linspace(-80, 80, 999, dtype=np.float32)]
    want, got = (evaluate(s, given) for s in (x, made))
    np.testing.assert_array_equal(got, want)


def test_bytes_that_are_given_stay_bytes() -> None:
    q = quantized(var(0), 3.0)
    assert in_floats([q])[0] is q
    part = rounded_part(q)
    assert part is not None
    assert (part.zero, part.dtype) == (3, DType.UINT8)
    assert rounded_part(cast(round_(var(0)), DType.UINT8)) is None


def test_a_shared_part_is_rewritten_once() -> None:
    y = dequantized(quantized(var(0), 3.0), 3.0)
    for _ in range(40):
        y = y + y * 0.5
    (made,) = in_floats([y])
    assert len(walk([made])) < 200
