"""What plugins are told: fields of their creators, and descriptions of tensors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tactix_tensorrt.api.enums import DataType, PluginFieldType, TensorFormat
from tactix_tensorrt.api.values import Dims

if TYPE_CHECKING:
    from tactix_tensorrt.api.values import Array

    FieldData = Array | bytes | bytearray | memoryview

ELEMENTS = {
    PluginFieldType.FLOAT16: "float16",
    PluginFieldType.FLOAT32: "float32",
    PluginFieldType.FLOAT64: "float64",
    PluginFieldType.INT8: "int8",
    PluginFieldType.INT16: "int16",
    PluginFieldType.INT32: "int32",
    PluginFieldType.INT64: "int64",
    PluginFieldType.DIMS: "int64",
}
"""numpy's types of fields; of all others the bytes are given, as int8."""


class PluginField:
    """A named value of a plugin: what was given, as a flat array of the field's type.

    ``size``: of how many numbers. Raises TypeError for what has no buffer.
    """

    def __init__(
        self,
        name: str | bytes = "",
        data: FieldData | None = None,
        type: PluginFieldType = PluginFieldType.UNKNOWN,
    ) -> None:
        self.name = name if isinstance(name, str) else bytes(name).decode()
        self.type = type
        self.data = data  # type: ignore[assignment]

    @property
    def data(self) -> Array | None:
        return self._data

    @data.setter
    def data(self, data: FieldData | None) -> None:
        self._data = None if data is None else _typed(data, self.type)
        self.size = 0 if self._data is None else self._data.size


def _typed(data: FieldData, type: PluginFieldType) -> Array:
    import numpy as np

    given = data if isinstance(data, np.ndarray) else np.asarray(memoryview(data))
    if type in ELEMENTS and not isinstance(data, bytes | bytearray):
        return given.reshape(-1).astype(ELEMENTS[type])
    raw = np.frombuffer(given.tobytes(), ELEMENTS.get(type, "int8"))
    return raw.copy()


class PluginFieldCollection(list[PluginField]):
    """Fields in order."""

    def __init__(self, fields: Iterable[PluginField] = ()) -> None:
        super().__init__(fields)


class PluginTensorDesc:
    """What a plugin's input or output is."""

    type = DataType.FLOAT
    format = TensorFormat.LINEAR
    scale = 1.0

    def __init__(self) -> None:
        self._dims = Dims()

    @property
    def dims(self) -> Dims:
        return self._dims

    @dims.setter
    def dims(self, dims: Iterable[int]) -> None:
        self._dims = Dims(dims)


def described(dims: Iterable[int], type: DataType) -> PluginTensorDesc:
    """A linear tensor of that shape and dtype."""
    out = PluginTensorDesc()
    out.dims, out.type = Dims(dims), type
    return out


class DynamicPluginTensorDesc:
    """That, with its range of sizes. ``desc.dims`` are -1 where it is open."""

    def __init__(self) -> None:
        self.desc, self.min, self.max, self.opt = PluginTensorDesc(), Dims(), Dims(), Dims()
