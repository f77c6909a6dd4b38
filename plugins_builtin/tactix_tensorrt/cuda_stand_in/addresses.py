"""What callers hand over as an address: integers, handles, and whatever has a buffer."""

from __future__ import annotations

import ctypes
import functools
import mmap
import numbers
import operator
import os
from collections.abc import Callable
from dataclasses import dataclass

from tactix_tensorrt.cuda_stand_in.handles import Handle
from tactix_tensorrt.cuda_stand_in.statuses import INVALID_VALUE, CudaRefusal

_ANY_CONTIGUOUS = 0x98
"""PyBUF_ANY_CONTIGUOUS of CPython's buffer protocol: no element format is asked for, which
bfloat16 could not give.
"""
_ADDRESSES = 1 << 8 * ctypes.sizeof(ctypes.c_void_p)
"""How many addresses there are: ctypes takes larger numbers without their upper bits."""
_MS_ASYNC = 1
"""Of mman.h: Linux starts nothing by it, so that only the check of the range is left."""


@dataclass(frozen=True)
class CopyEnd:
    """One end of a copy. ``room``: bytes that the buffer behind it has; None if nothing tells."""

    address: int
    room: int | None = None
    writable: bool = True


class _PyBuffer(ctypes.Structure):
    """``Py_buffer`` of CPython's stable ABI."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


def copy_end(given: object) -> CopyEnd:
    """An address, or the memory of a buffer. Raises TypeError for what is neither, as cuda-python
    does; CudaRefusal for an array that is not contiguous.
    """
    if given is None or isinstance(given, (numbers.Integral, Handle, ctypes.c_void_p)):
        return CopyEnd(address(given))
    return _behind(given)


def address(given: object) -> int:
    """The number of a pointer or a handle; 0 for None. Raises TypeError."""
    if given is None:
        return 0
    if isinstance(given, ctypes.c_void_p):
        return given.value or 0
    return int(given) if isinstance(given, Handle) else operator.index(_integer(given))


def size(given: object) -> int:
    """A number of bytes. Raises TypeError; CudaRefusal for one below zero."""
    count = operator.index(_integer(given))
    if count < 0:
        raise CudaRefusal(INVALID_VALUE, f"a size of {count} bytes is below zero")
    return count


def _integer(given: object) -> numbers.Integral | int:
    if isinstance(given, (int, numbers.Integral)):
        return given
    raise TypeError(f"an integer is required, not {type(given).__name__}")


def _behind(given: object) -> CopyEnd:
    view = _PyBuffer()
    try:
        ctypes.pythonapi.PyObject_GetBuffer(
            ctypes.py_object(given), ctypes.byref(view), _ANY_CONTIGUOUS
        )
    except TypeError:
        raise TypeError(
            f"{type(given).__name__} is no address: give None, an integer, or an object with a "
            "buffer"
        ) from None
    except (BufferError, ValueError) as e:
        raise CudaRefusal(INVALID_VALUE, f"the memory of an array cannot be copied: {e}") from None
    found = CopyEnd(view.buf or 0, view.len, not view.readonly)
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(view))
    return found


def is_mapped(start: int, count: int) -> bool:
    """Whether these bytes are memory of this process. Where the system cannot be asked, whether
    they lie behind the first page, which never is.
    """
    if start < mmap.PAGESIZE or start + count > _ADDRESSES:
        return False
    sync = _page_check()
    first = start - start % mmap.PAGESIZE
    return sync is None or sync(first, start + count - first, _MS_ASYNC) == 0


@functools.cache
def _page_check() -> Callable[[int, int, int], int] | None:
    """POSIX's msync, which fails for a range that has a page without memory."""
    if os.name != "posix":
        return None
    ask = ctypes.CDLL(None).msync
    ask.argtypes, ask.restype = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int), ctypes.c_int
    return ask
