from __future__ import annotations

import numpy as np
import pytest

from tactix_inspect.agreement import agree


def check(got: object, want: object, rtol: float = 1e-4, atol: float | None = None):  # type: ignore[no-untyped-def]
    return agree("y", "peer", np.asarray(got), np.asarray(want), rtol, atol)


def test_equal_arrays() -> None:
    x = np.random.default_rng(1).standard_normal((3, 5)).astype(np.float32)
    found = check(x, x.copy())
    assert found.passed
    assert (found.max_abs, found.max_rel, found.outside) == (0, 0, 0)
    assert found.cosine == pytest.approx(1)


def test_default_atol_scales_with_the_output() -> None:
    want = np.array([100.0, 1e-6], np.float32)
    assert check(want + np.float32(0.009), want).passed
    assert not check(want + np.float32(0.03), want).passed
    assert check(want * 1e-8 + np.float32(1e-10), want * 1e-8).passed


def test_given_atol_and_rtol() -> None:
    want = np.array([1.0, 0.0])
    assert check(want + 1e-3, want, rtol=0, atol=2e-3).passed
    found = check(want + 1e-3, want, rtol=2e-3, atol=0.0)
    assert (found.passed, found.outside) == (False, 1)
    assert found.max_abs == pytest.approx(1e-3)


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.bool_])
def test_integers_must_be_equal(dtype: type) -> None:
    want = np.array([0, 1, 1], dtype)
    assert check(want, want).passed
    assert check(np.array([1, 1, 1], dtype), want, rtol=10, atol=10).outside == 1


def test_nan_and_infinity() -> None:
    want = [np.nan, np.inf, -np.inf, 1.0]
    assert check(want, want).passed
    for index, wrong in ((0, 0.0), (1, -np.inf), (1, 5.0), (2, np.nan), (3, np.nan), (3, np.inf)):
        got = list(want)
        got[index] = wrong
        assert check(got, want).outside == 1, (index, wrong)


def test_shape_and_dtype_differences_are_told() -> None:
    assert "float64(3,) instead of float64(4,)" in check(np.zeros(3), np.zeros(4)).note
    assert not check(np.zeros(3, np.float32), np.zeros(3)).passed


def test_empty_and_zero_arrays() -> None:
    assert check(np.zeros((0, 3)), np.zeros((0, 3))).passed
    assert check(np.zeros(4), np.zeros(4)).cosine == 1
    assert not check(np.array([1e-3, 0]), np.zeros(2)).passed


def test_cosine_sees_direction() -> None:
    assert check([1.0, 0.0], [0.0, 1.0]).cosine == 0
    assert check([-2.0, 0.0], [1.0, 0.0]).cosine == -1


def test_strings() -> None:
    assert check(np.array(["a", "b"], object), np.array(["a", "b"], object)).passed
    assert check(np.array(["a", "c"], object), np.array(["a", "b"], object)).outside == 1


def test_maps_agree_by_label() -> None:
    want = [{"a": 1.0, "b": 2.0}, {"a": 3.0, "b": 4.0}]
    assert agree("y", "peer", [{"b": 2.0, "a": 1.0}, want[1]], want, 1e-4, None).passed
    assert agree("y", "peer", [want[0], {"a": 3.0, "b": 5.0}], want, 1e-4, None).outside == 1
    other = agree("y", "peer", [{"a": 1.0, "c": 2.0}, {"a": 3.0, "c": 4.0}], want, 1e-4, None)
    assert not other.passed
    assert "instead of ['a', 'b']" in other.note
