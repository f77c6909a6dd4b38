"""How the two processes talk: pickled values over a pipe, arrays beside them as they lie in memory.

A message is the number of its parts and the size of each, in 8 bytes each, then the parts: first
the pickle, then the content of its arrays. Both ends are one program of one user, and each starts
or is started by the other.
"""

from __future__ import annotations

import pickle
import struct
from typing import BinaryIO

WORD = struct.Struct("<Q")


def send(stream: BinaryIO, value: object) -> None:
    """Raises OSError where nobody reads any more."""
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    parts = [memoryview(head), *(b.raw() for b in buffers)]
    stream.write(b"".join(WORD.pack(n) for n in (len(parts), *(p.nbytes for p in parts))))
    for part in parts:
        stream.write(part)
    stream.flush()


def receive(stream: BinaryIO) -> object:
    """The next message. Raises EOFError where none will come."""
    count = _word(stream)
    sizes = [_word(stream) for _ in range(count)]
    head, *buffers = [_exactly(stream, n) for n in sizes]
    return pickle.loads(head, buffers=buffers)


def _word(stream: BinaryIO) -> int:
    (n,) = WORD.unpack(_exactly(stream, WORD.size))
    return int(n)


def _exactly(stream: BinaryIO, size: int) -> bytearray:
    out = bytearray(size)
    view, done = memoryview(out), 0
    while done < size:
        n = stream.readinto(view[done:])  # type: ignore[attr-defined]
        if not n:
            raise EOFError
        done += n
    return out
