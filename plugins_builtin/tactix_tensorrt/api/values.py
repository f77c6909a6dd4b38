"""Plain values: dimensions, weights, bytes, and which dtype is which."""

from __future__ import annotations

import ctypes
import math
import operator
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from tactix.base.dims import Expr, Shape
from tactix.base.dtypes import DType
from tactix.base.errors import TactixError
from tactix_tensorrt.api.enums import DataType

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]
    Unsigned = int
    """Of a size or an address: below 0 is of another type to the bindings."""

float32, float16, bfloat16 = DataType.FLOAT, DataType.HALF, DataType.BF16
int64, int32, int8, uint8, int4 = (
    DataType.INT64,
    DataType.INT32,
    DataType.INT8,
    DataType.UINT8,
    DataType.INT4,
)
bool = DataType.BOOL
fp8, fp4, e8m0 = DataType.FP8, DataType.FP4, DataType.E8M0

NATIVE = {
    DataType.FLOAT: DType.FP32,
    DataType.HALF: DType.FP16,
    DataType.BF16: DType.BF16,
    DataType.FP8: DType.FP8,
    DataType.FP4: DType.FP4,
    DataType.E8M0: DType.FP8E8M0,
    DataType.INT64: DType.INT64,
    DataType.INT32: DType.INT32,
    DataType.INT8: DType.INT8,
    DataType.INT4: DType.INT4,
    DataType.UINT8: DType.UINT8,
    DataType.BOOL: DType.BOOL,
}
FROM_NATIVE = {ours: theirs for theirs, ours in NATIVE.items()}
_WITHOUT_NUMPY = {DataType.BF16, DataType.FP8, DataType.FP4, DataType.E8M0, DataType.INT4}


class Dims(list[int]):
    """Sizes, -1 where they are open. Equal to lists and tuples; slices are tuples. Raises TypeError
    for what is no integer.
    """

    MAX_DIMS = 8

    def __init__(self, *sizes: int | Iterable[int]) -> None:
        flat = [n for s in sizes for n in (s if isinstance(s, Iterable) else (s,))]
        super().__init__(operator.index(n) for n in flat)

    def __eq__(self, other: object) -> Any:
        return list(self) == list(other) if isinstance(other, Sequence) else NotImplemented

    def __ne__(self, other: object) -> Any:
        return list(self) != list(other) if isinstance(other, Sequence) else NotImplemented

    @overload  # type: ignore[override]
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[int, ...]: ...
    def __getitem__(self, index: int | slice) -> int | tuple[int, ...]:
        if isinstance(index, slice):
            return tuple(super().__getitem__(index))
        return super().__getitem__(index)

    @property
    def nbDims(self) -> int:
        return len(self)

    @property
    def numel(self) -> int:
        return volume(self)

    def __repr__(self) -> str:
        return str(tuple(self))

    __str__ = __repr__


class Dims2(Dims): ...


class DimsHW(Dims2):
    """Height and width."""

    @property
    def h(self) -> int:
        return self[0]

    @property
    def w(self) -> int:
        return self[1]


class Dims3(Dims): ...


class Dims4(Dims): ...


class Permutation(list[int]):
    """Where each axis of the result comes from."""


def native(dtype: DataType) -> DType:
    """tactix's dtype."""
    return NATIVE[dtype]


def as_dims(shape: Shape) -> Dims:
    """A shape of tactix's, in which what is not known is -1."""
    return Dims([-1 if isinstance(d, Expr) else d for d in shape])


def volume(iterable: Iterable[int]) -> int:
    """The product of all sizes; 1 for none."""
    return math.prod(iterable)


def nptype(trt_type: DataType) -> type[np.generic]:
    """numpy's scalar type. Raises TypeError for those that numpy does not have."""
    if trt_type in _WITHOUT_NUMPY:
        raise TypeError(
            f"Could not resolve TensorRT datatype to an equivalent numpy datatype: {trt_type}"
        )
    found: type[np.generic] = NATIVE[trt_type].numpy.type
    return found


class IHostMemory(bytes):
    """Bytes that a method made. A ``bytes``, since only that gives every Python its buffer."""

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.IHostMemory object at {id(self):#x}>"

    __str__ = __repr__

    @property
    def nbytes(self) -> int:
        return len(self)

    @property
    def dtype(self) -> DataType:
        return DataType.INT8

    def __enter__(self) -> IHostMemory:
        return self

    def __exit__(self, *_: object) -> None: ...


class Weights:
    """Numbers of a layer: an array, an address with a count, or none of a type.

    What lies at an address must stay until the engine is built.
    """

    def __init__(
        self,
        type: Array | DataType | None = None,
        ptr: int = 0,
        count: int = 0,
        *,
        a: Array | None = None,
    ) -> None:
        data = type if a is None else a
        self._array, self._ptr = None, 0
        if data is None or isinstance(data, DataType):
            self._dtype, self._ptr, self._size = data or DataType.FLOAT, ptr, count
            return
        import numpy as np

        self._array = np.ascontiguousarray(data)
        self._dtype = _dtype_of(self._array)
        self._size = self._array.size

    @property
    def dtype(self) -> DataType:
        return self._dtype

    @property
    def size(self) -> int:
        return self._size

    @property
    def nbytes(self) -> int:
        return int(self._size * self._dtype.itemsize)

    def numpy(self) -> Array:
        """The numbers: a view of an address. Raises TypeError for types that numpy lacks."""
        return (
            self.view()
            if self._array is not None
            else self.view().astype(nptype(self._dtype), copy=False)
        )

    def view(self) -> Array:
        """The numbers, as ml_dtypes has those that numpy lacks; flat where an address was given, at
        which two of four bits lie in a byte, the first in its lower half.
        """
        import numpy as np

        if self._array is not None:
            return self._array
        native = NATIVE[self._dtype].numpy
        if not self._ptr or not self._size:
            return np.empty(0, native)
        raw = (ctypes.c_char * math.ceil(self._size * self._dtype.itemsize)).from_address(self._ptr)
        stored: Array = np.frombuffer(memoryview(raw).cast("B"), np.uint8)
        if self._dtype.itemsize < 1:
            halves = np.stack([stored & 15, stored >> 4], -1).ravel()[: self._size]
            return halves.view(native)
        return stored.view(native)

    def __len__(self) -> int:
        return self._size


def _dtype_of(array: Any) -> DataType:
    """Raises TypeError for numbers that TensorRT has no type of."""
    try:
        return FROM_NATIVE[DType.of(array.dtype)]
    except (KeyError, TactixError):
        what = f"weights of {array.dtype}: TensorRT has no such type"
        raise TypeError(f"{what}. Convert them, such as by astype(np.float32)") from None


T = TypeVar("T")


def checked_numbers(given: T) -> T:
    """What a layer is given. Raises TypeError for an array that TensorRT has no type of."""
    if getattr(given, "size", 0) and hasattr(given, "__array_function__"):
        _dtype_of(given)
    return given


def weights_array(given: Weights | Array | None) -> Array | None:
    """What a layer was given, None for no numbers."""
    if given is None:
        return None
    array = (given if isinstance(given, Weights) else Weights(given)).view()
    return array if array.size else None
