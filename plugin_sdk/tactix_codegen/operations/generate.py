"""Numbers from nothing but attributes and scalars: dims as data, ranges, one value everywhere."""

from __future__ import annotations

from tactix.base.dtypes import DType

KINDS = ("tactix.Dims@1", "tactix.Range@1", "tactix.Fill@1")
"""Kinds of nodes that make such tensors."""

DTYPES = frozenset({
    DType.FP64, DType.FP32, DType.INT64, DType.INT32, DType.INT16, DType.INT8,
    DType.UINT64, DType.UINT32, DType.UINT16, DType.UINT8, DType.BOOL,
})  # fmt: skip
"""dtypes in which kernels compute such numbers."""
