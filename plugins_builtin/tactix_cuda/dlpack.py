"""DLPack capsules of device memory, read and made by ctypes (the header dlpack.h,
``DLManagedTensor``).

The protocol is that of the Python array API standard: who takes an array gives its stream to
``__dlpack__``, and who has it makes that stream wait for what is under way.
https://dmlc.github.io/dlpack/latest/python_spec.html
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any

from tactix.base.dtypes import DType

CUDA, MANAGED = 2, 13
"""Kinds of devices that are CUDA's: ``kDLCUDA``, ``kDLCUDAManaged``."""

CODES = {
    DType.INT8: (0, 8),
    DType.INT16: (0, 16),
    DType.INT32: (0, 32),
    DType.INT64: (0, 64),
    DType.UINT8: (1, 8),
    DType.UINT16: (1, 16),
    DType.UINT32: (1, 32),
    DType.UINT64: (1, 64),
    DType.FP16: (2, 16),
    DType.FP32: (2, 32),
    DType.FP64: (2, 64),
    DType.BF16: (4, 16),
    DType.COMPLEX64: (5, 64),
    DType.COMPLEX128: (5, 128),
    DType.BOOL: (6, 8),
    DType.FP8: (10, 8),
    DType.FP8FNUZ: (11, 8),
    DType.FP8E5M2: (12, 8),
    DType.FP8E5M2FNUZ: (13, 8),
    DType.FP8E8M0: (14, 8),
}
"""``DLDataTypeCode`` and bits; what is narrower than a byte is packed in DLPack, but not here."""
NAMES = {code: dtype.value for dtype, code in CODES.items()}

_NAME = b"dltensor"
_HEAD = struct.Struct("=QiiiBBHQQQ")
"""Address, kind and number of the device, rank, code, bits, lanes, shape, strides, offset in bytes.
"""


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("kind", ctypes.c_int32),
        ("ordinal", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("offset", ctypes.c_uint64),
        ("owner", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


_api = ctypes.pythonapi
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _api)
)
# a capsule that is being freed must not be referred to again: it is passed as a number
_pointer_of_dying = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _api)
)
_is_named = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", _api)
)
_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", _api)
)

_given: dict[int, tuple[Any, ...]] = {}
"""What capsules that are in use refer to, by the address of the tensor."""


def read(capsule: Any) -> tuple[int, tuple[int, ...], tuple[int, ...] | None, tuple[int, int, int]]:
    """Address, shape, strides in elements (None: in order), and code, bits, lanes. Raises
    ValueError.

    The memory is there as long as the capsule.
    """
    head = _HEAD.unpack(ctypes.string_at(_pointer(capsule, _NAME), _HEAD.size))
    address, _, _, rank, code, bits, lanes, shape, strides, offset = head
    return (
        address + offset,
        _numbers(shape, rank),
        _numbers(strides, rank) if strides else None,
        (code, bits, lanes),
    )


def _numbers(address: int, count: int) -> tuple[int, ...]:
    return tuple((ctypes.c_int64 * count).from_address(address)) if count else ()


def make(owner: Any, address: int, shape: Sequence[int], dtype: DType, ordinal: int) -> Any:
    """A capsule of contiguous memory, which keeps the owner alive. Raises BufferError for a dtype
    that DLPack lacks.
    """
    if dtype not in CODES:
        raise BufferError(f"DLPack has no {dtype.value} of a byte each")
    rank, (code, bits) = len(shape), CODES[dtype]
    strides = [1] * rank
    for i in range(rank - 2, -1, -1):
        strides[i] = strides[i + 1] * shape[i + 1]
    sizes = (ctypes.c_int64 * (2 * rank))(*shape, *strides)
    start = ctypes.addressof(sizes)
    t = _Tensor(
        address, CUDA, ordinal, rank, code, bits, 1, start, start + 8 * rank, 0, None, _DELETER
    )
    key = ctypes.addressof(t)
    _given[key] = owner, t, sizes
    return _new(key, _NAME, _DESTRUCTOR)


def _delete(tensor: int) -> None:
    _given.pop(tensor, None)


def _destroy(capsule: int) -> None:
    """Nobody took what the capsule holds."""
    if _is_named(capsule, _NAME):
        _given.pop(_pointer_of_dying(capsule, _NAME), None)


# a taker may drop its tensor without holding the interpreter's lock; a capsule dies with it held
_CALLS = (
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_delete),
    ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(_destroy),
)
_DELETER, _DESTRUCTOR = (ctypes.cast(c, ctypes.c_void_p).value for c in _CALLS)
