"""Chains of reshapes, transposes and paddings against numpy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tactix_refit.moves import composed


@st.composite
def shapes(draw: Any, total: int) -> tuple[int, ...]:
    out = []
    while total > 1 and len(out) < 5:
        out.append(draw(st.sampled_from([d for d in range(1, total + 1) if total % d == 0])))
        total //= out[-1]
    return (*out, total)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_chain_is_one_move(data: Any) -> None:
    shape = data.draw(shapes(data.draw(st.sampled_from([1, 12, 36, 64, 90, 96]))))
    x = np.arange(1, math.prod(shape) + 1).reshape(shape)
    y, chain = x, []
    for _ in range(data.draw(st.integers(0, 5))):
        op = data.draw(st.sampled_from(["reshape", "transpose", "reshape", "transpose", "pad"]))
        if op == "reshape":
            what: Any = data.draw(shapes(y.size))
            y = y.reshape(what)
        elif op == "transpose":
            what = data.draw(st.permutations(range(y.ndim)))
            y = y.transpose(what)
        else:
            what = [data.draw(st.sampled_from([(0, 0), (0, 0), (1, 2), (0, 4)])) for _ in y.shape]
            y = np.pad(y, what)
        chain.append((op, [what]))
    move = composed(shape, [c for c in chain if c[0] != "pad" or any(map(any, c[1][0]))])
    if move is None:
        return
    source = (
        np.pad(x.reshape(move.padding.shape), move.padding.widths) if move.padding.widths else x
    )
    out = np.empty(y.shape, y.dtype)
    out.reshape(move.target_shape)[...] = source.reshape(move.source_shape).transpose(move.axes)
    np.testing.assert_array_equal(out, y)


@pytest.mark.parametrize(
    ("shape", "chain", "merged"),
    [
        (
            (64, 32, 3, 3),
            [("reshape", [(4, 16, 32, 9)]), ("transpose", [(0, 2, 3, 1)])],
            (4, 16, 288),
        ),
        ((10, 6), [("transpose", [(1, 0)]), ("reshape", [(1, 6, 10)])], (10, 6)),
        ((6, 5), [("reshape", [(30,)]), ("reshape", [(3, 2, 5)])], (30,)),
        ((1, 1), [("reshape", [(1,)])], ()),
    ],
)
def test_neighbours_that_stay_together_are_one_axis(shape: Any, chain: Any, merged: Any) -> None:
    move = composed(shape, chain)
    assert move is not None
    assert move.source_shape == merged


@pytest.mark.parametrize(
    ("shape", "chain"),
    [
        ((2, 3), [("transpose", [(1, 0)]), ("reshape", [(2, 3)])]),
        ((0, 3), []),
        ((4, 6), [("pad", [[(0, 1), (0, 0)]]), ("reshape", [(30,)]), ("pad", [[(1, 0)]])]),
    ],
)
def test_what_is_more_than_a_move(shape: Any, chain: Any) -> None:
    assert composed(shape, chain) is None
