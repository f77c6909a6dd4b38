"""A file in protobuf's wire format: how many messages it has, where nodes and weights lie, without
parsing it.
"""

from __future__ import annotations

import functools
import mmap
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tactix.base.errors import ModelImportError

Buffer = Any
"""bytes, bytearray, memoryview of bytes, or mmap."""

SMALL = 1 << 20
"""Bytes of a file that is parsed without counting: no message takes more than a few hundred bytes
of memory.
"""

MESSAGES = 1 << 20
"""Most messages of a model: as few as two bytes of the file make one of about 300 bytes of memory.
"""

LARGE = 1 << 16
"""Bytes of a weight from which on it stays in the file while the rest is parsed."""

OWN = "\0"
"""The location of external data that lie in the model's own file: a name that no file can have."""

_GRAPH, _NODE, _INITIALIZER = 7, 1, 5
"""ModelProto.graph, GraphProto.node and GraphProto.initializer."""

_RAW, _EXTERNAL, _LOCATION = 9, 13, 14
"""TensorProto.raw_data, external_data and data_location."""


@functools.cache
def _inner(kind: Any) -> dict[int, Any]:
    """Fields of a message that are messages: the descriptor of each by number."""
    return {f.number: f.message_type for f in kind.fields if f.message_type is not None}


def fields(data: Buffer, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Number, begin and end of each field's content that has a length; ends where the bytes are
    damaged.
    """
    return ((number, start, stop) for number, _, start, stop in _fields(data, at, end))


def _fields(data: Buffer, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """The same, with where the whole field begins before its content."""
    while at < end:
        begin = at
        tag, at = _varint(data, at, end)
        kind = tag & 7
        if kind == 2:
            size, at = _varint(data, at, end)
            if at + size > end:
                return
            yield (tag & 0xFFFFFFFF) >> 3, begin, at, at + size
            at += size
        elif kind == 0:
            at = _varint(data, at, end)[1]
        elif kind > 5:
            return
        else:
            at += (0, 8, 0, 0, 0, 4)[kind]  # the tags around a group have no content


def _varint(data: Buffer, at: int, end: int) -> tuple[int, int]:
    """A number of 7 bits per byte, lowest first, and where it ends: past ``end`` if it is cut."""
    value = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    return 0, end + 1


def locations(data: bytes | mmap.mmap) -> list[str]:
    """Names of the files that hold external data, sorted: what each key ``location`` has."""
    mark = b"\n\x08location\x12"  # field 1, eight bytes, and the tag of field 2
    found, at = set(), data.find(mark)
    while at >= 0:
        size, start = _varint(data, at + len(mark), len(data))
        found.add(data[start : start + size].decode("utf-8", "replace"))
        at = data.find(mark, start)
    return sorted(found)


def check_count(data: Buffer) -> None:
    """Raises ModelImportError for a file of so many messages that parsing exhausts memory."""
    if len(data) <= SMALL:
        return
    import onnx

    left = MESSAGES
    stack: list[tuple[int, int, dict[int, Any]]] = [
        (0, len(data), _inner(onnx.ModelProto.DESCRIPTOR))
    ]
    while stack:
        begin, end, kinds = stack.pop()
        for number, start, stop in fields(data, begin, end):
            if number not in kinds:
                continue
            left -= 1
            if left < 0:
                why = f"more than {MESSAGES} nodes, attributes, tensors and their like"
                raise ModelImportError(
                    "the model has too many parts", why=why, do="Split the model, if it is sound"
                )
            if start < stop and (inner := _inner(kinds[number])):
                stack.append((start, stop, inner))


def without_weights(data: Buffer) -> bytes:
    """The model with the large raw data of its main graph's initializers replaced by references to
    its own file.
    """

    def raw(number: int, start: int, stop: int) -> bytes:
        if number != _RAW:
            return b""
        pairs = (("location", OWN), ("offset", str(start)), ("length", str(stop - start)))
        entries = (_field(1, k.encode()) + _field(2, v.encode()) for k, v in pairs)
        return b"".join(_field(_EXTERNAL, e) for e in entries)

    def initializer(number: int, start: int, stop: int) -> bytes:
        if number != _INITIALIZER or stop - start < LARGE:
            return b""
        there = {n for n, _, _ in fields(data, start, stop)}
        if _EXTERNAL in there or _RAW not in there:
            return b""
        external = bytes([_LOCATION << 3, 1])  # last: of a field that stands twice the last counts
        return _field(_INITIALIZER, _rewritten(data, start, stop, raw) + external)

    def graph(number: int, start: int, stop: int) -> bytes:
        return (
            _field(_GRAPH, _rewritten(data, start, stop, initializer)) if number == _GRAPH else b""
        )

    return _rewritten(data, 0, len(data), graph)


def _rewritten(data: Buffer, at: int, end: int, change: Callable[[int, int, int], bytes]) -> bytes:
    """A message with some fields replaced: ``change`` of number, begin and end gives the new field,
    empty for none.
    """
    parts = []
    for number, begin, start, stop in _fields(data, at, end):
        if new := change(number, start, stop):
            parts += [data[at:begin], new]
            at = stop
    return b"".join((*parts, data[at:end]))


def _field(number: int, content: bytes) -> bytes:
    """A field with a length; numbers below 16."""
    size, left = bytearray(), len(content)
    while left > 127:
        size.append(left & 127 | 128)
        left >>= 7
    return bytes([number << 3 | 2, *size, left]) + content


def node_offsets(data: Buffer, wanted: Iterable[int]) -> dict[int, int]:
    """Where nodes of the main graph, by their position in it, begin in the file: the first byte of
    their content.
    """
    numbers, out = set(wanted), {}
    index = 0
    graphs = [(start, stop) for n, start, stop in fields(data, 0, len(data)) if n == _GRAPH]
    for begin, end in graphs:
        for number, start, _ in fields(data, begin, end):
            if number == _NODE:
                if index in numbers:
                    out[index] = start
                index += 1
    return out
