"""The closed set of element types: name, width, numpy twin."""

from __future__ import annotations

import enum
import functools
from typing import TYPE_CHECKING, Any

from tactix.base.errors import DTypeError

if TYPE_CHECKING:
    import numpy as np


class DType(enum.Enum):
    """An element type; the value is its short code, used in plans and knobs."""

    FP64 = "f64"
    FP32 = "f32"
    FP16 = "f16"
    BF16 = "bf16"
    FP8 = "f8e4m3"
    FP8E5M2 = "f8e5m2"
    FP8FNUZ = "f8e4m3fnuz"
    FP8E5M2FNUZ = "f8e5m2fnuz"
    FP8E8M0 = "f8e8m0"
    FP4 = "f4e2m1"
    INT64 = "i64"
    INT32 = "i32"
    INT16 = "i16"
    INT8 = "i8"
    INT4 = "i4"
    INT2 = "i2"
    UINT64 = "u64"
    UINT32 = "u32"
    UINT16 = "u16"
    UINT8 = "u8"
    UINT4 = "u4"
    UINT2 = "u2"
    BOOL = "bool"
    COMPLEX64 = "c64"
    COMPLEX128 = "c128"
    STRING = "str"
    SEQUENCE = "seq"
    OPTIONAL = "opt"
    MAP = "map"

    __hash__ = object.__hash__
    """There is one object of each; an Enum's own, in Python, is slow, and tables by dtype are asked
    in every run.
    """

    @property
    def bits(self) -> int:
        """Width of one stored element; 2- and 4-bit types are stored one per byte outside packed
        weights.
        """
        return _BITS[self]

    @property
    def itemsize(self) -> int:
        """Bytes of one element in an unpacked array."""
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        return self.value[0] == "f" or self is DType.BF16

    @property
    def is_signed_int(self) -> bool:
        return self.value[0] == "i"

    @property
    def is_int(self) -> bool:
        return self.value[0] in "iu"

    @property
    def is_small_int(self) -> bool:
        """Integers that stand for quantized numbers; wider ones are indices and counts."""
        return self.is_int and self.bits <= 8

    @property
    def on_host(self) -> bool:
        """Whether values are Python objects, which lie in no device memory: text, lists, optionals,
        dicts.
        """
        return self in _OBJECTS

    @property
    def has_element(self) -> bool:
        """Whether a value is one object that holds others, which an ``Element`` describes."""
        return self in _HOLDERS

    @property
    def numpy(self) -> np.dtype[Any]:
        """The numpy dtype; ml_dtypes gives those that numpy lacks."""
        found: np.dtype[Any] = _numpy(self)
        return found

    @staticmethod
    def of(dtype: Any) -> DType:
        """The type of a numpy dtype, scalar type, DType or code string; raises DTypeError."""
        return dtype if isinstance(dtype, DType) else _of(dtype)

    def __repr__(self) -> str:
        return f"DType.{self.name}"


_BITS = {
    DType.FP64: 64, DType.FP32: 32, DType.FP16: 16, DType.BF16: 16,
    DType.FP8: 8, DType.FP8E5M2: 8, DType.FP8FNUZ: 8, DType.FP8E5M2FNUZ: 8, DType.FP8E8M0: 8,
    DType.FP4: 4, DType.COMPLEX64: 64, DType.COMPLEX128: 128, DType.BOOL: 8,
    DType.INT64: 64, DType.INT32: 32, DType.INT16: 16, DType.INT8: 8, DType.INT4: 4, DType.INT2: 2,
    DType.UINT64: 64, DType.UINT32: 32, DType.UINT16: 16, DType.UINT8: 8, DType.UINT4: 4,
    DType.UINT2: 2, DType.STRING: 64, DType.SEQUENCE: 64, DType.OPTIONAL: 64, DType.MAP: 64,
}  # fmt: skip

_HOLDERS = frozenset({DType.SEQUENCE, DType.OPTIONAL, DType.MAP})
_OBJECTS = _HOLDERS | {DType.STRING}

_ML_DTYPES = {
    DType.BF16: "bfloat16", DType.FP8: "float8_e4m3fn", DType.FP8E5M2: "float8_e5m2",
    DType.FP8FNUZ: "float8_e4m3fnuz", DType.FP8E5M2FNUZ: "float8_e5m2fnuz",
    DType.FP8E8M0: "float8_e8m0fnu", DType.FP4: "float4_e2m1fn",
    DType.INT4: "int4", DType.UINT4: "uint4", DType.INT2: "int2", DType.UINT2: "uint2",
}  # fmt: skip

_NUMPY = {
    DType.FP64: "float64", DType.FP32: "float32", DType.FP16: "float16", DType.BOOL: "bool",
    DType.INT64: "int64", DType.INT32: "int32", DType.INT16: "int16", DType.INT8: "int8",
    DType.UINT64: "uint64", DType.UINT32: "uint32", DType.UINT16: "uint16", DType.UINT8: "uint8",
    DType.COMPLEX64: "complex64", DType.COMPLEX128: "complex128", DType.STRING: "object",
    DType.SEQUENCE: "object", DType.OPTIONAL: "object", DType.MAP: "object",
}  # fmt: skip


@functools.cache
def _numpy(dtype: DType) -> np.dtype[Any]:
    import numpy as np

    if dtype in _ML_DTYPES:
        import ml_dtypes

        made: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _ML_DTYPES[dtype]))
        return made
    return np.dtype(_NUMPY[dtype])


@functools.cache
def _of(dtype: Any) -> DType:
    if isinstance(dtype, str) and dtype in {t.value for t in DType}:
        return DType(dtype)
    import numpy as np

    name = np.dtype(dtype).name
    if np.dtype(dtype).kind in "UTS":
        return DType.STRING
    for table in (_NUMPY, _ML_DTYPES):
        for t, n in table.items():
            if n == name:
                return t
    raise DTypeError(
        f"no tactix dtype for {dtype!r}", do=f"Known: {', '.join(t.name for t in DType)}"
    )
