"""A file in protobuf's wire format: how many messages it has and where nodes lie, without parsing or copying it."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any

from tactix.words.errors import ModelImportError

Buffer = Any
"""bytes, bytearray, memoryview of bytes, or mmap."""

SMALL = 1 << 20
"""Bytes of a file that is parsed without counting: no message takes more than a few hundred bytes of memory."""

MESSAGES = 1 << 20
"""Most messages of a model: as few as two bytes of the file make one of about 300 bytes of memory."""

_GRAPH, _NODE = 7, 1
"""ModelProto.graph and GraphProto.node."""


@functools.cache
def _inner(kind: Any) -> dict[int, Any]:
    """Fields of a message that are messages: the descriptor of each by number."""
    return {f.number: f.message_type for f in kind.fields if f.message_type is not None}


def fields(data: Buffer, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Number, begin and end of each field's content that has a length; ends where the bytes are damaged."""
    while at < end:
        tag, at = _varint(data, at, end)
        kind = tag & 7
        if kind == 2:
            size, at = _varint(data, at, end)
            if at + size > end:
                return
            yield (tag & 0xFFFFFFFF) >> 3, at, at + size
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


def check_count(data: Buffer) -> None:
    """Raises ModelImportError for a file of so many messages that parsing it would exhaust memory."""
    if len(data) <= SMALL:
        return
    import onnx

    left = MESSAGES
    stack: list[tuple[int, int, dict[int, Any]]] = [(0, len(data), _inner(onnx.ModelProto.DESCRIPTOR))]
    while stack:
        begin, end, kinds = stack.pop()
        for number, start, stop in fields(data, begin, end):
            if number not in kinds:
                continue
            left -= 1
            if left < 0:
                why = f"more than {MESSAGES} nodes, attributes, tensors and their like"
                raise ModelImportError("the model has too many parts", why=why, do="Split the model, if it is sound")
            if start < stop and (inner := _inner(kinds[number])):
                stack.append((start, stop, inner))


def node_offsets(data: Buffer, wanted: Iterable[int]) -> dict[int, int]:
    """Where nodes of the main graph, by their position in it, begin in the file: the first byte of their content."""
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
