from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tactix.base import dims
from tactix.base.dims import (
    Dim,
    along,
    broadcast,
    broadcast_shapes,
    ceildiv,
    compare,
    dmax,
    dmin,
    evaluate,
    exact_div,
    floordiv,
    from_json,
    mod,
    show,
    substitute,
    sym,
    symbols,
    to_json,
)
from tactix.base.errors import InvalidArgument, ShapeError

n, m = sym("n"), sym("m")

OPS: dict[str, tuple[Callable[[Dim, Dim], Dim], Callable[[int, int], int]]] = {
    "+": (lambda a, b: a + b, lambda a, b: a + b),
    "-": (lambda a, b: a - b, lambda a, b: a - b),
    "*": (lambda a, b: a * b, lambda a, b: a * b),
    "//": (floordiv, lambda a, b: a // b),
    "%": (mod, lambda a, b: a % b),
    "ceil": (ceildiv, lambda a, b: -(-a // b)),
    "max": (dmax, max),
    "min": (dmin, min),
}


@dataclass
class Both:
    """A dim, and what it must be at an environment."""

    dim: Dim
    value: int


@st.composite
def environments(draw: st.DrawFn) -> dict[str, int]:
    return {name: draw(st.integers(0, 40)) for name in "nmk"}


@st.composite
def expressions(draw: st.DrawFn, env: dict[str, int], depth: int = 4) -> Both:
    """Like dims, no part of it is negative."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        if draw(st.booleans()):
            value = draw(st.integers(0, 12))
            return Both(value, value)
        name = draw(st.sampled_from(sorted(env)))
        return Both(sym(name), env[name])
    op = draw(st.sampled_from(sorted(OPS)))
    a, b = draw(expressions(env, depth - 1)), draw(expressions(env, depth - 1))
    assume(b.value != 0 or op not in ("//", "%", "ceil"))
    make, count = OPS[op]
    value = count(a.value, b.value)
    assume(value >= 0)
    return Both(make(a.dim, b.dim), value)


@settings(derandomize=True, deadline=None)
@given(st.data())
def test_simplified_expressions_keep_their_value(data: st.DataObject) -> None:
    env = data.draw(environments())
    e = data.draw(expressions(env))
    assert evaluate(e.dim, env) == e.value
    assert from_json(json.loads(json.dumps(to_json(e.dim)))) == e.dim
    assert evaluate(substitute(e.dim, {"n": env["n"]}), env) == e.value
    assert substitute(e.dim, dict(env)) == e.value
    assert symbols(e.dim) <= set(env)
    ranges = dict.fromkeys(env, (0, 40))
    low, high = dims.bounds(e.dim, ranges)
    assert low is None or low <= e.value
    assert high is None or e.value <= high


@settings(derandomize=True, deadline=None)
@given(st.data())
def test_comparisons_hold(data: st.DataObject) -> None:
    env = data.draw(environments())
    a, b = data.draw(expressions(env)), data.draw(expressions(env))
    found = compare(a.dim, b.dim)
    x, y = a.value, b.value
    holds = {None: True, "==": x == y, "<": x < y, "<=": x <= y, ">": x > y, ">=": x >= y}
    assert holds[found], found


@pytest.mark.parametrize(
    ("got", "expected"),
    [((n + 1) * (n - 1), n * n - 1), (n - n, 0), (2 * n + 3 - n, n + 3), ((4 * n) // 2, 2 * n), ((n * m) // m, n),
     ((2 * n + 3) // 2, n + 1), ((6 * n) % 3, 0), (ceildiv(4 * n, 4), n), (exact_div(6 * n, 4), None),
     (exact_div(n + 1, n + 1), 1), (dmax(n + 1, n), n + 1), (dmin(n, n + 2), n), (dmax(n, 0), n), (ceildiv(7, 2), 4)],
)  # fmt: skip
def test_known_forms(got: Dim | None, expected: Dim | None) -> None:
    assert got == expected
    assert hash(got) == hash(expected)


@pytest.mark.parametrize(
    ("a", "b", "found"),
    [(n, 0, ">="), (n + 1, 0, ">"), (n + 1, n, ">"), (n, m, None), (n, n, "=="), (0, n + 2, "<"), (2, 2, "=="),
     (n, 2 * n, "<="), (n - 1, 0, None), (n // 2, 0, ">=")],
)  # fmt: skip
def test_known_comparisons(a: Dim, b: Dim, found: str | None) -> None:
    assert compare(a, b) == found


def test_rounding_up_is_never_negative() -> None:
    assert compare(0, ceildiv(1, n)) == "<"
    assert compare(ceildiv(1, n + m), 0) in (">", ">=", None)


def test_bounds_of_a_quotient_need_a_positive_divisor() -> None:
    assert dims.bounds(n // (n - m), {"n": (0, 40), "m": (0, 40)}) == (0, None)
    assert dims.bounds(n // (m + 2), {"n": (0, 40), "m": (0, 3)}) == (0, 20)


def test_text() -> None:
    assert str(2 * n * m - 3 * n + 1) in ("2*m*n - 3*n + 1", "2*n*m - 3*n + 1")
    assert show((n, 3, (n + 1) // 2)) == "(n, 3, ((n + 1) // 2))"


@settings(derandomize=True, deadline=None)
@given(
    st.lists(st.sampled_from([1, 1, 5, 7]), max_size=3),
    st.lists(st.sampled_from([1, 5]), max_size=3),
)
def test_broadcasting_is_numpys(a: list[int], b: list[int]) -> None:
    try:
        expected = np.broadcast_shapes(tuple(a), tuple(b))
    except ValueError:
        with pytest.raises(ShapeError, match="do not broadcast"):
            broadcast_shapes(tuple(a), tuple(b))
    else:
        assert broadcast_shapes(tuple(a), tuple(b)) == expected


def test_symbols_broadcast_when_shapes_are_set() -> None:
    assert broadcast(n, 1) == n
    assert broadcast(n, n) == n
    assert broadcast(n, 5) == 5
    both = broadcast(n, m)
    assert both == broadcast(both, n) == broadcast(m, both) == broadcast(both, broadcast(m, n))
    other = broadcast(n, sym("k"))
    assert broadcast(other, both) not in (both, other)
    assert evaluate(both, {"n": 1, "m": 4}) == evaluate(both, {"n": 4, "m": 1}) == 4
    with pytest.raises(ShapeError, match="3 and 4 do not broadcast"):
        evaluate(both, {"n": 3, "m": 4})
    assert substitute(both, {"n": 1}) == m
    assert broadcast_shapes((n, 1, 3), (7, 1), ()) == (n, 7, 3)
    assert broadcast_shapes((n, 1, 3), (n, 1, 3)) == (n, 1, 3)
    assert broadcast_shapes() == ()


def test_an_axis_goes_along_with_what_it_broadcasts_to_or_stays() -> None:
    assert (along(1, n), along(n, n), along(5, 5)) == (0, 1, 1)
    both = broadcast(n, m)
    values = [(1, 4), (4, 1), (4, 4), (1, 1), (0, 1)]
    assert [evaluate(along(n, both), {"n": i, "m": j}) for i, j in values] == [0, 1, 1, 0, 0]
    assert evaluate(along(n, 5), {"n": 1}) == 0
    for of, env in ((along(n, both), {"n": 3, "m": 5}), (along(n, 5), {"n": 3})):
        with pytest.raises(ShapeError, match="3 and 5 do not broadcast"):
            evaluate(of, env)


def test_what_cannot_be() -> None:
    with pytest.raises(ShapeError, match="divided by zero"):
        floordiv(n, 0)
    with pytest.raises(ShapeError, match=r"'n' has no value yet. Set the input shapes first"):
        evaluate(n + 1, {})
    with pytest.raises(InvalidArgument, match="a symbol needs a name"):
        sym("")


@pytest.mark.parametrize(
    "j",
    [
        None,
        1.5,
        True,
        "",
        [],
        ["+"],
        ["n"],
        ["?", 1, 2],
        ["//", 1],
        ["//", 1, 2, 3],
        {"a": 1},
        [1, 2],
        ["+", None],
    ],
)
def test_what_is_no_expression(j: object) -> None:
    with pytest.raises(InvalidArgument, match="not a dimension expression"):
        from_json(j)


def test_nesting_is_limited() -> None:
    j: object = "n"
    for _ in range(1000):
        j = ["//", j, 2]
    with pytest.raises(InvalidArgument):
        from_json(j)


@pytest.mark.parametrize("divide", [dims.floordiv, dims.mod, dims.ceildiv])
def test_dividing_by_zero_names_the_expression_and_the_symbols(
    divide: Callable[[Dim, Dim], Dim],
) -> None:
    n, m = dims.sym("n"), dims.sym("m")
    d = 2 * divide(n, m + 0) + 1
    assert dims.evaluate(d, {"n": 7, "m": 4}) in (3, 5, 7)
    with pytest.raises(ShapeError, match=r"m\)? divides by zero: 'm' is 0"):
        dims.evaluate(d, {"n": 7, "m": 0})
    for number in (7, n):
        with pytest.raises(ShapeError, match="divided by zero"):
            divide(number, 0)
    with pytest.raises(ShapeError, match="divided by zero"):
        dims.substitute(divide(n, m), {"m": 0})
