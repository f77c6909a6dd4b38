"""The gate: budgets per dtype, NaN and infinity."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tactix.base.dtypes import DType
from tactix.contracts.device import DeviceProperties
from tactix.select import measure
from tactix.select.accuracy import BUDGET, departure, drawn_departure
from tactix.select.measure import Measurer
from tactix.select.timing_cache import TimingCache


def test_the_budget_is_relative_to_the_largest_magnitude() -> None:
    want = np.array([1000.0, 0.0], np.float32)
    got = want + np.float32(1000 * BUDGET[DType.FP32] / 2)
    assert departure(got, want, DType.FP32) == pytest.approx(0.5, rel=0.01)
    assert departure(want + 1, want, DType.FP32) > 1


def test_nan_and_infinity_must_stand_where_the_reference_has_them() -> None:
    want = np.array([np.nan, np.inf, -np.inf, 1], np.float32)
    assert departure(want.copy(), want, DType.FP32) == 0
    for i, bad in ((0, 1.0), (1, np.nan), (1, -np.inf), (3, np.nan), (3, np.inf)):
        got = want.copy()
        got[i] = bad
        assert departure(got, want, DType.FP32) == float("inf")


def test_integers_and_booleans_must_be_equal() -> None:
    want = np.array([1, 2, 3], np.int64)
    assert departure(want.copy(), want, DType.INT64) == 0
    assert departure(want + 1, want, DType.INT64) == float("inf")
    assert departure(np.array([True]), np.array([False]), DType.BOOL) == float("inf")


def test_a_wrong_shape_and_empty_arrays() -> None:
    assert departure(np.zeros((2, 1)), np.zeros(2), DType.FP64) == float("inf")
    assert departure(np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32), DType.FP32) == 0


def test_what_is_drawn_is_compared_by_its_distribution() -> None:
    rng = np.random.default_rng(0)
    want = rng.standard_normal((40, 50))
    assert drawn_departure(rng.standard_normal((40, 50)), want) < 1
    assert drawn_departure(rng.standard_normal((7, 50)), want) < 1  # some of the rows
    for other in (rng.uniform(-2, 2, (40, 50)), want + 0.5, 1.5 * want, np.full((40, 50), np.nan)):
        assert drawn_departure(other, want) > 1
    assert drawn_departure(np.zeros((0, 3)), np.zeros((0, 3))) == 0
    assert drawn_departure(np.zeros((2, 1)), np.zeros((2, 2))) == float("inf")


def test_errors_of_another_gate_are_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    toolchain: Any = SimpleNamespace(identity=lambda artifact: "")
    m = Measurer(
        SimpleNamespace(conditions=()),
        toolchain,
        TimingCache(),
        DeviceProperties("cpu", "c", frozenset(), 128),
        {},
        1,
    )  # type: ignore[arg-type]
    candidate: Any = SimpleNamespace(
        tactic=SimpleNamespace(key="k"),
        variant=SimpleNamespace(id="v"),
        artifact=SimpleNamespace(digest="d"),
    )
    bids: Any = SimpleNamespace(signature="s")
    now = m.key(bids, candidate)
    assert m.key(bids, candidate) == now
    monkeypatch.setattr(measure, "GATE", measure.GATE + 1)
    assert m.key(bids, candidate) != now
