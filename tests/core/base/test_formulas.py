"""Dims evaluated at once give what each gives by itself, errors among them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tactix.base import dims
from tactix.base.dims import Dim, evaluate, sym
from tactix.base.errors import ShapeError
from tactix.base.formulas import PATIENCE, Formulas

A, B = sym("a"), sym("b; import os")
"""Names come from files: anything may stand in them."""
OPERATIONS = [
    lambda x, y: x + y,
    lambda x, y: x - y,
    lambda x, y: x * y,
    dims.floordiv,
    dims.mod,
    dims.dmax,
    dims.dmin,
    dims.broadcast,
]


def _dims() -> st.SearchStrategy[Dim]:
    leaves = st.one_of(st.integers(-3, 9), st.sampled_from([A, B]))
    made = st.tuples(st.sampled_from(OPERATIONS), leaves, leaves, leaves)
    return made.map(lambda t: _quiet(t[0], _quiet(t[0], t[1], t[2]), t[3]))


def _quiet(operation: object, x: Dim, y: Dim) -> Dim:
    try:
        found: Dim = operation(x, y)  # type: ignore[operator]
        return found
    except (ShapeError, ZeroDivisionError):
        return x


@given(st.lists(_dims(), max_size=8), st.integers(0, 7), st.integers(0, 7))
@settings(max_examples=200, deadline=None)
def test_they_agree_with_each_by_itself(some: list[Dim], a: int, b: int) -> None:
    env = {"a": a, "b; import os": b, "another": 5}
    formulas = Formulas(some)
    for _ in range(PATIENCE + 2):
        assert _told(lambda: tuple(formulas.at(env))) == _told(
            lambda: tuple(evaluate(d, env) for d in some)
        )


def _told(function: Callable[[], tuple[int, ...]]) -> tuple[int, ...] | str:
    """What it gives, or the message of its error."""
    try:
        return function()
    except ShapeError as e:
        return str(e)


def test_a_symbol_without_a_value_is_named() -> None:
    formulas = Formulas([A * 2, 3])
    assert [formulas.at({"a": n}) for n in range(4)] == [(0, 3), (2, 3), (4, 3), (6, 3)]
    with pytest.raises(ShapeError, match="'a' has no value"):
        formulas.at({"b": 1})
    assert Formulas([]).at({}) == ()
