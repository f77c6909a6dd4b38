"""Attribute values are read back as they were written, and nothing else is read."""

from __future__ import annotations

import math

import pytest

from tactix.base.dtypes import DType
from tactix.base.errors import InvalidArgument
from tactix.base.tensor import NHWC, blocked
from tactix.contracts.attrs import decode, encode

STRANGE: list[object] = [
    {"dtype": "nope"},
    {"dtype": ["f32"]},
    {"float": "abc"},
    {"float": 5},
    {"float": ["nan"]},
    {"format": 5},
    {"format": "c1"},
    {"dim": 1.5},
    {"other": 1},
    {},
]


@pytest.mark.parametrize(
    "value", [DType.FP16, NHWC, blocked(16), math.inf, -math.inf, (1, ("a", None))]
)
def test_a_value_comes_back(value: object) -> None:
    assert decode(encode(value)) == value


def test_nan_comes_back() -> None:
    found = decode(encode(math.nan))
    assert isinstance(found, float)
    assert math.isnan(found)


@pytest.mark.parametrize("damaged", STRANGE, ids=str)
def test_what_is_not_written_is_not_read(damaged: object) -> None:
    with pytest.raises(InvalidArgument):
        decode(damaged)
    with pytest.raises(InvalidArgument):
        decode([damaged])
