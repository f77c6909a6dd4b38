"""Messages between the processes of a server, however they are cut."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tactix.base.errors import QueueFull
from tactix_serve.datatypes import TensorMetadata
from tactix_serve.directory import BatchLimits, ModelDescription, ModelDirectory, ModelNotFound
from tactix_serve.frames import ALIGNED, CHUNK, FrameLink, FrameReader, frame, padded
from tactix_serve.wire import directory_of, directory_rows, error_of, error_row

HEADS = [(1, "a", None), (2, (3, -1), "é" * 300), (3, 0.5), (4,), (5, "end")]
TENSORS = [
    [np.arange(n, dtype=np.uint8) for n in sizes]
    for sizes in ((), (1, 0, 17), (CHUNK + 5,), (16, 16), (3 * CHUNK, 7))
]


def message(k: int) -> bytes:
    return b"".join(frame(HEADS[k], [x.data for x in TENSORS[k]]))


def cut(body: memoryview, sizes: list[int]) -> list[np.ndarray]:
    out, at = [], 0
    for size in sizes:
        out.append(np.frombuffer(body[at : at + size], np.uint8))
        at += padded(size)
    assert at == body.nbytes
    return out


@pytest.mark.parametrize("piece", [1, 7, 4096, 1 << 22])
def test_messages_are_whole_however_they_come(piece: int) -> None:
    reader, told = FrameReader(), list[Any]()
    order = [0, 1, 3, 4, 2, 0] if piece > 7 else [0, 1, 3, 0]
    data = b"".join(message(k) for k in order)
    while data:
        room = reader.room()
        count = min(piece, len(room), len(data))
        room[:count], data = data[:count], data[count:]
        reader.received(count, lambda head, body: told.append((head, body)))
    assert [head for head, _ in told] == [HEADS[k] for k in order]
    for k, (_, body) in zip(order, told, strict=True):
        assert np.frombuffer(body, np.uint8).ctypes.data % ALIGNED == 0
        found = cut(body, [len(x) for x in TENSORS[k]])
        assert all(np.array_equal(a, b) for a, b in zip(found, TENSORS[k], strict=True))


def test_a_link_sends_more_than_a_socket_takes_at_once() -> None:
    async def work() -> None:
        ends = socket.socketpair()
        for end in ends:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        told, lost, count = list[Any](), asyncio.Event(), 700
        there = FrameLink(ends[0], lambda head, body: told.append((head, body.nbytes)), lost.set)
        here = FrameLink(ends[1], lambda head, body: None, lambda: None)
        for k in range(count):
            here.send((k,), [bytes(k), b"", TENSORS[1][2].data])
        while len(told) < count:
            await asyncio.sleep(0.001)
        assert told == [((k,), padded(k) + padded(17)) for k in range(count)]
        here.close()
        here.send((0,))  # to nobody
        await lost.wait()
        assert there.closed

    asyncio.run(asyncio.wait_for(work(), 60))


def test_errors_and_directories_arrive_as_they_were() -> None:
    for error in (QueueFull("full", who="m", do="wait"), ModelNotFound("none", why="because")):
        found = error_of(error_row(error))
        assert (type(found), str(found)) == (type(error), str(error))
    assert "ZeroDivisionError: no" in str(error_of(error_row(ZeroDivisionError("no"))))
    x = TensorMetadata("x", "FP32", (-1, 4))
    described = ModelDescription("m", "3", "tactix_plan", (x,), (x, x))
    batched = replace(described, name="b", batching=BatchLimits(8, 0.002, 256, 1.5))
    directory = ModelDirectory({"m": described, "b": batched}, {("n", "1"): "broken"})
    assert directory_of(directory_rows(directory)) == directory
    assert not directory.ready
    assert [row.ready for row in directory.index()] == [True, True, False]
    with pytest.raises(ModelNotFound, match="broken"):
        directory.find("n")
