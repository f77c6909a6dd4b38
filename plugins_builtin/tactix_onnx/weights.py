"""Tensors of a model as arrays: raw, typed or in external files, checked, and not copied where that
can be helped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tactix.base.dtypes import DType
from tactix.base.errors import ModelImportError, UnsupportedOperator
from tactix_onnx.wire import OWN

if TYPE_CHECKING:
    import onnx

Array = Any
"""A numpy array; element types from ml_dtypes included."""

ONNX_DTYPES: dict[int, DType] = {
    1: DType.FP32, 2: DType.UINT8, 3: DType.INT8, 4: DType.UINT16, 5: DType.INT16, 6: DType.INT32,
    7: DType.INT64, 8: DType.STRING, 9: DType.BOOL, 10: DType.FP16, 11: DType.FP64,
    12: DType.UINT32, 13: DType.UINT64, 14: DType.COMPLEX64, 15: DType.COMPLEX128, 16: DType.BF16,
    17: DType.FP8, 18: DType.FP8FNUZ, 19: DType.FP8E5M2, 20: DType.FP8E5M2FNUZ, 21: DType.UINT4,
    22: DType.INT4, 23: DType.FP4, 24: DType.FP8E8M0, 25: DType.UINT2, 26: DType.INT2,
}  # fmt: skip
"""TensorProto.DataType to DType."""

RANK = 32
"""Most axes of a tensor: what numpy takes since its first version."""

SPARSE = 256 << 20
"""Most bytes of a sparse tensor that is written out."""

EXTERNAL = 1
"""TensorProto.DataLocation.EXTERNAL."""

_TYPED_FIELDS = {
    DType.FP32: "float_data", DType.COMPLEX64: "float_data", DType.FP64: "double_data",
    DType.COMPLEX128: "double_data", DType.INT64: "int64_data", DType.UINT32: "uint64_data",
    DType.UINT64: "uint64_data",
}  # fmt: skip


def dtype_of(code: int, who: str) -> DType:
    """The dtype of an ONNX element type. Raises ModelImportError."""
    if code not in ONNX_DTYPES:
        do = f"Export it with one of ONNX's element types, {min(ONNX_DTYPES)} to {max(ONNX_DTYPES)}"
        raise ModelImportError(f"element type {code} has no tactix dtype", who=who, do=do)
    return ONNX_DTYPES[code]


class WeightReader:
    """Reads tensors of one model. ``folder``: where its external files lie; None for a model in
    memory.

    ``owned``: the model was parsed for this import, so that bytes which became an array may be
    dropped from it.
    ``file``: the model's own, which holds the weights that ``wire.without_weights`` left there.
    """

    def __init__(
        self, folder: Path | None, owned: bool = False, file: str | Path | None = None
    ) -> None:
        self.folder = folder
        self.owned, self.file = owned, file
        self._files: dict[Path, Array] = {}

    def array(self, t: onnx.TensorProto) -> Array:
        """The tensor's elements; read-only where they lie in a file or in the model. Raises
        ModelImportError.
        """
        who = f"tensor {t.name!r}" if t.name else "a tensor attribute"
        try:
            return self._array(t, who)
        except (ValueError, OverflowError, MemoryError) as e:
            if isinstance(e, ModelImportError):
                raise
            raise ModelImportError(
                "its data cannot be read", who=who, why=str(e), do="Export the model again"
            ) from e

    def _array(self, t: onnx.TensorProto, who: str) -> Array:
        shape = _shape(t.dims, who)
        dtype = dtype_of(t.data_type, who)
        if t.HasField("segment"):
            raise ModelImportError(
                "it is cut in segments", who=who, do="Export the model again, without segments"
            )
        if t.data_location == EXTERNAL:
            return _shaped(self._external(t, dtype, math.prod(shape), who), dtype, shape, who)
        if t.HasField("raw_data"):
            return _shaped(np.frombuffer(t.raw_data, np.uint8), dtype, shape, who)
        return _typed(t, dtype, shape, who)

    def initializer(
        self, t: onnx.TensorProto | onnx.SparseTensorProto, again: bool = False
    ) -> Array:
        """An initializer's elements; its bytes leave the model if that is owned. ``again``: it may
        be read once more, as a node's graph may be imported for other shapes. Raises
        ModelImportError.
        """
        if hasattr(t, "indices"):
            return self.sparse(t)
        found = self.array(t)
        if self.owned and not again:
            t.ClearField("raw_data")
        return found

    def sparse(self, t: onnx.SparseTensorProto) -> Array:
        """A sparse tensor written out. Raises ModelImportError."""
        values, where = self.array(t.values), self.array(t.indices)
        who = f"sparse tensor {t.values.name!r}"
        shape = _shape(t.dims, who)
        if math.prod(shape) * values.dtype.itemsize > SPARSE:
            raise UnsupportedOperator(
                "it is too large", who=who, why=f"more than {SPARSE} bytes when written out"
            )
        return _dense(values, where, shape, who)

    def _external(self, t: onnx.TensorProto, dtype: DType, count: int, who: str) -> Array:
        entries = {e.key: e.value for e in t.external_data}
        if entries.get("location") == OWN and self.file:
            return np.fromfile(
                self.file, np.uint8, int(entries["length"]), offset=int(entries["offset"])
            )
        file = self._open(entries.get("location", ""), who)
        size = stored_bytes(dtype, count)
        try:
            offset, length = int(entries.get("offset", 0)), int(entries.get("length", size))
        except ValueError:
            raise ModelImportError(
                "offset or length of its external data is no number", who=who
            ) from None
        if length != size:
            raise ModelImportError(
                f"its external data has {length} bytes, its shape needs {size}", who=who
            )
        if offset < 0 or offset + length > file.size:
            raise ModelImportError(
                "its external data lies beyond the end of the file",
                who=who,
                why=f"bytes {offset} to {offset + length} of {file.size} "
                f"in {entries['location']!r}",
            )
        return file[offset : offset + length]

    def _open(self, location: str, who: str) -> Array:
        """The bytes of an external file, which must lie in the model's folder."""
        if self.folder is None:
            raise ModelImportError(
                "its data is in another file", who=who, do="Import the model by its path"
            )
        try:
            folder = self.folder.resolve()
            path = (folder / location).resolve()
            return self._mapped(folder, path, location, who)
        except (
            OSError,
            ValueError,
            RuntimeError,
        ) as e:  # names that no file can have, loops of links, no permission
            raise ModelImportError(
                f"cannot read the file {location[:80]!r} with its data", who=who, why=str(e)
            ) from e

    def _mapped(self, folder: Path, path: Path, location: str, who: str) -> Array:
        if not location or Path(location).is_absolute() or not path.is_relative_to(folder):
            raise ModelImportError(
                f"its data is in {location!r}, outside the model's folder",
                who=who,
                do="Put the file beside the model",
            )
        if not path.is_file():
            raise ModelImportError(f"the file {location!r} with its data is missing", who=who)
        if path not in self._files:
            empty = path.stat().st_size == 0
            self._files[path] = (
                np.zeros(0, np.uint8) if empty else np.asarray(np.memmap(path, np.uint8, mode="r"))
            )
        return self._files[path]


def _shape(dims: Sequence[int], who: str) -> tuple[int, ...]:
    if len(dims) > RANK:
        why = f"there are at most {RANK}"
        do = "Export the model again"
        raise ModelImportError(f"it has {len(dims)} axes", who=who, why=why, do=do)
    if any(d < 0 for d in dims):
        what, why = f"its shape is {tuple(dims)}", "no size is negative"
        raise ModelImportError(what, who=who, why=why, do="Export the model again")
    return tuple(dims)


def _dense(values: Array, where: Array, shape: tuple[int, ...], who: str) -> Array:
    """Values at places, which are indices of flat elements or one row of indices each; zeros
    elsewhere.
    """
    ends = np.array(shape if where.ndim == 2 else [math.prod(shape)], np.int64)
    rows = where.reshape(len(where), -1) if where.ndim in (1, 2) else np.zeros((0, 0))
    fits = where.dtype == np.int64 and values.ndim == 1 and rows.shape == (len(values), len(ends))
    if not fits or (rows < 0).any() or (rows >= ends).any():
        raise ModelImportError("its indices do not fit", who=who, do="Export the model again")
    out = np.zeros(shape, values.dtype)
    out.reshape(-1)[where if where.ndim == 1 else np.ravel_multi_index(tuple(where.T), shape)] = (
        values
    )
    return out


def stored_bytes(dtype: DType, count: int) -> int:
    """Bytes of so many elements as ONNX stores them: 4-bit ones two in a byte, 2-bit ones four."""
    return -(-count * dtype.bits // 8) if dtype.bits < 8 else count * dtype.itemsize


def _shaped(raw: Array, dtype: DType, shape: tuple[int, ...], who: str) -> Array:
    """Little-endian bytes as an array; copied only if they are packed or not aligned."""
    count = math.prod(shape)
    if dtype is DType.STRING or raw.size != stored_bytes(dtype, count):
        raise ModelImportError(
            f"it has {raw.size} bytes, which do not fit {dtype.value}{shape}", who=who
        )
    if dtype.bits < 8:
        return _unpacked(raw, dtype, count).reshape(shape)
    if raw.ctypes.data % dtype.itemsize:
        raw = raw.copy()
    return raw.view(dtype.numpy).reshape(shape)


def _unpacked(raw: Array, dtype: DType, count: int) -> Array:
    """One element per byte from several: the lowest bits come first."""
    mask, sign = (1 << dtype.bits) - 1, 1 << dtype.bits - 1
    parts = np.stack([raw >> shift & mask for shift in range(0, 8, dtype.bits)], axis=-1).reshape(
        -1
    )[:count]
    if dtype.is_signed_int:
        parts = (parts ^ sign).astype(np.int8) - sign
    return parts.view(dtype.numpy) if dtype.is_float else parts.astype(dtype.numpy)


def _typed(t: onnx.TensorProto, dtype: DType, shape: tuple[int, ...], who: str) -> Array:
    """From the field for the dtype: 16-bit and narrower types lie in int32_data, floats among them
    by their bits.
    """
    count = math.prod(shape)
    if dtype is DType.STRING:
        data: Array = np.array([s.decode("utf-8", "replace") for s in t.string_data], object)
    else:
        data = np.asarray(getattr(t, _TYPED_FIELDS.get(dtype, "int32_data")))
    if dtype.bits < 8:
        return _shaped(data.astype(np.uint8), dtype, shape, who)
    if dtype in (DType.COMPLEX64, DType.COMPLEX128):
        data = data.astype(np.float32 if dtype is DType.COMPLEX64 else np.float64).view(dtype.numpy)
    elif dtype.is_float and dtype.bits < 32:
        data = data.astype(np.uint16 if dtype.bits == 16 else np.uint8).view(dtype.numpy)
    if data.size != count:
        raise ModelImportError(
            f"it has {data.size} elements, its shape {shape} needs {count}", who=who
        )
    return data.astype(dtype.numpy, copy=False).reshape(shape)
