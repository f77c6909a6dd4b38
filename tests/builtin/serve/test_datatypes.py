"""Tensors as bytes and as JSON: there and back, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tactix.base.errors import InvalidArgument
from tactix_serve import datatypes
from tactix_serve.http_json import document

ARRAYS = {
    "BOOL": np.array([[True, False]]),
    "UINT8": np.array([0, 255], np.uint8),
    "INT16": np.array([-(2**15), 2**15 - 1], np.int16),
    "INT64": np.array([-(2**63), 2**63 - 1]),
    "UINT64": np.array([0, 2**64 - 1], np.uint64),
    "FP16": np.array([0.5, -65504], np.float16),
    "BF16": np.array([0.5, 3e38], ml_dtypes.bfloat16),
    "FP32": np.array([[0.1], [3e38]], np.float32),
    "FP64": np.array([0.1, 1e300]),
    "BYTES": np.array([["", "zwölf"], ["a\n", "b" * 300]], object),
}


@pytest.mark.parametrize("datatype", ARRAYS)
def test_there_and_back(datatype: str) -> None:
    x = ARRAYS[datatype]
    raw = memoryview(bytes(datatypes.to_bytes(datatype, x)))
    back = datatypes.from_bytes("x", datatype, x.shape, raw)
    assert (back.dtype, back.shape) == (x.dtype, x.shape)
    assert np.array_equal(back, x)
    values = json.loads(json.dumps(datatypes.to_values("x", datatype, x)))
    again = datatypes.from_values("x", datatype, x.shape, values)
    assert again.dtype == x.dtype
    assert np.array_equal(again, x)
    with pytest.raises(InvalidArgument):
        datatypes.from_bytes("x", datatype, x.shape, raw[:-1])
    with pytest.raises(InvalidArgument):
        datatypes.from_bytes("x", datatype, x.shape, memoryview(bytes(raw) + b"1"))


def test_nested_lists_and_parts_of_arrays() -> None:
    x = datatypes.from_values("x", "INT32", (2, 2), [[1, 2], [3, 4]])
    assert x.tolist() == [[1, 2], [3, 4]]
    assert bytes(datatypes.to_bytes("INT32", x.T)) == x.T.copy().tobytes()
    assert not bytes(datatypes.to_bytes("FP32", np.zeros((0, 3), np.float32)))
    empty = datatypes.from_bytes("x", "FP32", (0, 3), memoryview(b""))
    assert empty.shape == (0, 3)


def test_infinities_that_are_meant_and_numbers_that_are_too_large() -> None:
    meant = document(b'{"data": [Infinity, -Infinity, NaN]}')["data"]
    x = datatypes.from_values("x", "FP32", (3,), meant)
    assert np.array_equal(x, np.array([np.inf, -np.inf, np.nan], np.float32), equal_nan=True)
    for datatype, number in (("FP64", b"1e999"), ("FP32", b"-1e39"), ("FP16", b"65520")):
        values = document(b'{"data": [1, %s]}' % number)["data"]
        with pytest.raises(InvalidArgument, match=r"'x' is not .*the number at 1 is too large"):
            datatypes.from_values("x", datatype, (2,), values)


@pytest.mark.parametrize("offset", [0, 1])
def test_bytes_are_arrays_that_engines_take_as_they_are(offset: int) -> None:
    raw = memoryview(bytes(8 + offset))[offset:]
    flags = datatypes.from_bytes("x", "FP32", (2,), raw).flags
    assert flags.aligned
    assert flags.writeable


@pytest.mark.parametrize(
    ("datatype", "shape", "values"),
    [
        ("FP31", (1,), [1]),
        ("INT8", (1,), [128]),
        ("INT8", (1,), [1.5]),
        ("INT8", (1,), [True]),
        ("INT8", (2,), [1]),
        ("UINT8", (1,), [-1]),
        ("BOOL", (1,), [1]),
        ("FP32", (1,), ["1"]),
        ("FP32", (1,), [None]),
        ("FP32", (1,), {"a": 1}),
        ("BYTES", (1,), [1]),
        ("INT8", (-1,), [1]),
        ("INT8", (0, 2**70), []),
        ("INT8", (0, 2**62), []),
        ("INT8", (True,), [1]),
    ],
)
def test_values_that_do_not_fit(datatype: str, shape: Any, values: Any) -> None:
    with pytest.raises(InvalidArgument):
        datatypes.from_values("x", datatype, shape, values)


def test_bytes_that_do_not_fit() -> None:
    for raw in (b"\x05\0\0\0abc", b"\x01\0\0", b"\x01\0\0\0\xff", b"\xff\xff\xff\xff"):
        with pytest.raises(InvalidArgument):
            datatypes.from_bytes("x", "BYTES", (1,), memoryview(raw))
    with pytest.raises(InvalidArgument, match="other bytes than 0 and 1"):
        datatypes.from_bytes("x", "BOOL", (1,), memoryview(b"\x02"))
    with pytest.raises(InvalidArgument, match="JSON cannot say"):
        datatypes.to_values("y", "FP32", np.array([np.nan], np.float32))
