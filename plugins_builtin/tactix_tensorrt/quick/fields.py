"""Attributes of quick plugins as fields, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tactix_tensorrt.api.enums import PluginFieldType
from tactix_tensorrt.api.plugin_fields import PluginField, PluginFieldCollection
from tactix_tensorrt.quick.signatures import Attribute

if TYPE_CHECKING:
    from tactix_tensorrt.api.plugin_fields import FieldData

ARRAYS = {
    "int8": PluginFieldType.INT8,
    "int16": PluginFieldType.INT16,
    "int32": PluginFieldType.INT32,
    "int64": PluginFieldType.INT64,
    "float16": PluginFieldType.FLOAT16,
    "float32": PluginFieldType.FLOAT32,
    "float64": PluginFieldType.FLOAT64,
    "bool": PluginFieldType.INT8,
}
PLAIN = {
    int: PluginFieldType.INT64,
    float: PluginFieldType.FLOAT64,
    bool: PluginFieldType.INT8,
    str: PluginFieldType.CHAR,
    bytes: PluginFieldType.UNKNOWN,
}


def field_type(attribute: Attribute) -> PluginFieldType:
    return ARRAYS[attribute.dtype] if attribute.kind is None else PLAIN[attribute.kind]


def declared(attributes: Mapping[str, Attribute]) -> PluginFieldCollection:
    """What a creator says that it takes."""
    return PluginFieldCollection(
        PluginField(name, b"", field_type(a)) for name, a in attributes.items()
    )


def fields_of(
    attributes: Mapping[str, Attribute], values: Mapping[str, object]
) -> PluginFieldCollection:
    """Raises ValueError for a value of another type."""
    pairs = ((name, attributes[name], v) for name, v in values.items())
    return PluginFieldCollection(
        PluginField(name, _data(name, a, v), field_type(a)) for name, a, v in pairs
    )


def _data(name: str, attribute: Attribute, value: object) -> FieldData:
    import numpy as np

    if attribute.kind is None:
        if not isinstance(value, np.ndarray) or value.dtype.name != attribute.dtype:
            got = value.dtype.name if isinstance(value, np.ndarray) else type(value).__name__
            raise ValueError(f"Attribute {name!r} is of {got}. Expected {attribute}")
        return value
    if type(value) is not attribute.kind:
        got = type(value).__name__
        raise ValueError(f"Attribute {name!r} is of {got}. Expected {attribute}")
    if isinstance(value, str | bytes):
        return value.encode() if isinstance(value, str) else value
    return np.array([value])


def values_of(
    attributes: Mapping[str, Attribute], fields: Sequence[PluginField]
) -> dict[str, object]:
    """Raises ValueError for a field that is no attribute."""
    out: dict[str, object] = {}
    for f in fields:
        if f.name not in attributes:
            raise ValueError(f"Unexpected attribute {f.name}. Expected one of {[*attributes]}")
        out[f.name] = _value(attributes[f.name], f)
    return out


def _value(attribute: Attribute, field: PluginField) -> object:
    data = field.data
    if data is None:
        raise ValueError(f"Attribute {field.name!r} has no content")
    if attribute.kind is None:
        return data.astype(attribute.dtype)
    if attribute.kind in (str, bytes):
        raw = data.tobytes()
        return raw.decode() if attribute.kind is str else raw
    return attribute.kind(data.item())
