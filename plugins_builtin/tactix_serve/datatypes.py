"""Tensors as the Open Inference Protocol writes them: datatypes, raw bytes, numbers in JSON."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tactix.base.arrays import Array
from tactix.base.dtypes import DType
from tactix.base.errors import InvalidArgument

OBJECTS = "BYTES"
"""The datatype of text: each element is its length in 4 bytes, little-endian, and UTF-8."""

MOST = 1 << 48
"""Elements of a tensor: more than any memory has, and few enough for numpy."""

FEW = 1 << 14
"""Bytes that are copied in less time than an engine takes to see that it may read, but not write,
what others own: about 2 us.
"""

NAMES = {
    DType.BOOL: "BOOL", DType.UINT8: "UINT8", DType.UINT16: "UINT16", DType.UINT32: "UINT32",
    DType.UINT64: "UINT64", DType.INT8: "INT8", DType.INT16: "INT16", DType.INT32: "INT32",
    DType.INT64: "INT64", DType.FP16: "FP16", DType.FP32: "FP32", DType.FP64: "FP64",
    DType.BF16: "BF16", DType.STRING: OBJECTS,
}  # fmt: skip
NO_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""What JSON has no numbers for, as many write it all the same: by these objects alone, as a number
that is too large is read as an infinity, too.
"""
_DTYPES = {name: dtype for dtype, name in NAMES.items()}


@dataclass(frozen=True)
class TensorMetadata:
    """``shape``: -1 for sizes that are open."""

    name: str
    datatype: str
    shape: tuple[int, ...]


def dtype_named(datatype: str) -> DType:
    """Raises InvalidArgument for a datatype that the protocol does not have."""
    if datatype not in _DTYPES:
        do = f"There are: {', '.join(sorted(_DTYPES))}"
        raise InvalidArgument(f"no datatype {datatype!r}", do=do)
    return _DTYPES[datatype]


def from_bytes(name: str, datatype: str, shape: Sequence[int], data: memoryview) -> Array:
    """An array of those bytes: over them, unless there are few, or they are not aligned. Raises
    InvalidArgument where they are too few or too many.
    """
    dtype, count = dtype_named(datatype), math.prod(checked_shape(name, shape))
    if dtype is DType.STRING:
        return _text(name, count, data).reshape(shape)
    if data.nbytes != count * dtype.itemsize:
        raise InvalidArgument(
            f"input {name!r} has {data.nbytes} bytes",
            why=f"{datatype} of shape {list(shape)} takes {count * dtype.itemsize}",
        )
    found = np.frombuffer(data, dtype.numpy)
    if dtype is DType.BOOL and found.size and found.view(np.uint8).max() > 1:
        raise InvalidArgument(f"input {name!r} is BOOL, and has other bytes than 0 and 1")
    if found.nbytes <= FEW or not found.flags.aligned:
        found = found.copy()
    return found.reshape(shape)


def from_values(name: str, datatype: str, shape: Sequence[int], values: object) -> Array:
    """An array of nested or flat lists, as JSON has them. Raises InvalidArgument."""
    dtype, count = dtype_named(datatype), math.prod(checked_shape(name, shape))
    flat = _flat(values if isinstance(values, list) else [values])
    if len(flat) != count:
        what = f"input {name!r} has {len(flat)} elements"
        raise InvalidArgument(what, why=f"its shape is {list(shape)}")
    try:
        return _array(dtype, flat).reshape(shape)
    except (TypeError, ValueError, OverflowError) as e:
        raise InvalidArgument(f"input {name!r} is not {datatype}", why=str(e)) from None


def _array(dtype: DType, flat: Sequence[object]) -> Array:
    """Raises TypeError, ValueError, OverflowError for elements of another kind, or too large."""
    wanted = _kinds(dtype)
    if not set(map(type, flat)) <= set(wanted):
        odd = next(x for x in flat if type(x) not in wanted)
        raise TypeError(f"{odd!r} is a {type(odd).__name__}")
    with np.errstate(over="ignore"):
        found = np.array(flat, dtype.numpy)
    if dtype.is_float:
        meant = list(map(id, NO_NUMBERS.values()))
        for i in np.flatnonzero(np.isinf(found)).tolist():
            if id(flat[i]) not in meant:
                raise OverflowError(f"the number at {i} is too large")
    return found


def _kinds(dtype: DType) -> tuple[type, ...]:
    if dtype is DType.STRING:
        return (str,)
    if dtype is DType.BOOL:
        return (bool,)
    return (int, float) if dtype.is_float else (int,)


def _flat(values: list[object]) -> list[object]:
    """Elements of lists in lists."""
    while list in set(map(type, values)):
        values = [y for x in values for y in (x if isinstance(x, list) else (x,))]
    return values


def checked_shape(name: str, shape: Sequence[int]) -> Sequence[int]:
    """Raises InvalidArgument for what is no shape."""
    if not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in shape):
        raise InvalidArgument(f"input {name!r} has the shape {list(shape)}", do="Give sizes from 0")
    if math.prod(n or 1 for n in shape) > MOST:  # beside a 0, which needs no bytes, too
        raise InvalidArgument(f"input {name!r} has the shape {list(shape)}, which is too large")
    return shape


def _text(name: str, count: int, data: memoryview) -> Array:
    found, at = list[str](), 0
    try:
        while at < data.nbytes:
            (length,) = struct.unpack_from("<I", data, at)
            end = at + 4 + length
            if end > data.nbytes:
                raise ValueError(f"an element of {length} bytes at {at}, of {data.nbytes}")
            found.append(bytes(data[at + 4 : end]).decode())
            at = end
    except (struct.error, ValueError) as e:
        raise InvalidArgument(f"input {name!r} is no BYTES tensor", why=str(e)) from None
    if len(found) != count:
        raise InvalidArgument(f"input {name!r} has {len(found)} elements, its shape {count}")
    return np.array(found, object)


def to_bytes(datatype: str, x: Array) -> bytes | memoryview:
    """The raw content, in order of rows."""
    if datatype == OBJECTS:
        encoded = [str(t).encode() for t in x.ravel()]
        return b"".join(struct.pack("<I", len(t)) + t for t in encoded)
    return np.ascontiguousarray(x).reshape(-1).view(np.uint8).data


def to_values(name: str, datatype: str, x: Array) -> list[object]:
    """Elements in order of rows, as JSON has them. Raises InvalidArgument for what JSON cannot
    say.
    """
    if datatype in ("FP16", "BF16"):
        x = x.astype(np.float32)
    if datatype in ("FP16", "BF16", "FP32", "FP64") and not np.isfinite(x).all():
        do = "Ask for binary data"
        raise InvalidArgument(f"output {name!r} has values that JSON cannot say", do=do)
    values: list[object] = x.ravel().tolist()
    return values
