"""Winograd convolution of bytes: the same integers as the reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import asked
import harness as h
import numpy as np
import pytest
from bytes_cases import DTYPES, first, product, requantised, whole_range

from tactix.contracts.tactic import Reject
from tactix_cpu.levels import target
from tactix_cpu.tactics.conv import winograd_int8

(WINOGRAD,) = winograd_int8.tactics()
AVX2 = replace(target("x86-64-v3"), cores=2)
WINDOWS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((1, 16, 8, 8), (16, 16, 3, 3), {"pads": (1, 1, 1, 1)}),
    ((2, 20, 13, 11), (40, 20, 3, 3), {"pads": (1, 0, 2, 1)}),
    ((1, 64, 7, 7), (96, 64, 3, 3), {"pads": (1, 1, 1, 1), "pad_value": 77}),
    ((1, 24, 9, 33), (20, 24, 1, 3), {"pads": (0, 1, 0, 1), "pad_value": 3}),
    ((2, 17, 37), (33, 17, 3), {"pads": (1, 1)}),
    ((1, 16, 20, 19), (24, 16, 2, 2), {}),
    ((1, 16, 19, 9), (24, 16, 3, 1), {}),
]


def window(x: Any, w: Any, **more: Any) -> h.Case:
    return product("IntegerConvolution", x, w, WINOGRAD, **more)


def check(cases: Sequence[h.Case]) -> None:
    """Check them as a processor with AVX2 and no more runs them."""
    if lacking := h.lacking("avx2"):
        pytest.skip(lacking)
    h.check_all([first(c, AVX2, 2) for c in cases])


@pytest.mark.parametrize("dtype", DTYPES)
def test_windows_pads_and_channels(dtype: Any) -> None:
    cases = [
        window(whole_range(dtype, *x), whole_range(np.int8, *w), nt=(1, 3), **more)
        for x, w, more in WINDOWS
    ]
    check([*cases, *(requantised(c) for c in cases)])


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_largest_numbers_of_as_many_channels_as_it_takes(dtype: Any) -> None:
    info, cases = np.iinfo(dtype), []
    most = ((1 << 31) - 1) // (9 * 4 * winograd_int8.LARGEST) // 8 * 8
    for a in (info.min, info.max):
        for b in (-128, 127):
            x, w = np.full((1, most, 8, 8), a, dtype), np.full((8, most, 3, 3), b, np.int8)
            cases.append(window(x, w, pads=(1, 1, 1, 1), pad_value=int(a), bias=False))
    check(cases)
    more = np.full((1, most + 8, 8, 8), 1, dtype), np.full((8, most + 8, 3, 3), 1, np.int8)
    answer = asked.variants(WINOGRAD, window(*more).node, AVX2)
    assert isinstance(answer, Reject)
    assert "32 bits" in answer.reason


def test_what_it_leaves_to_others() -> None:
    x, w = whole_range(np.uint8, 1, 16, 12, 12), whole_range(np.int8, 16, 16, 3, 3)
    same = {"pads": (1, 1, 1, 1)}
    assert not isinstance(asked.variants(WINOGRAD, window(x, w, **same).node, AVX2), Reject)
    for more in ({"strides": (2, 2)}, {"dilations": (2, 2)}):
        assert isinstance(asked.variants(WINOGRAD, window(x, w, **more).node, AVX2), Reject)
    dots = replace(AVX2, features=AVX2.features | {"avx_vnni"})
    assert isinstance(asked.variants(WINOGRAD, window(x, w, **same).node, dots), Reject)
