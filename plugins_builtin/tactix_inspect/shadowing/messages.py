"""How the two processes talk: pickled values over a pipe or in memory, arrays beside them as they
lie in memory.

A message is the number of its parts and the size of each, in 8 bytes each, then the parts: first
the pickle, then the content of its arrays. Both ends are one program of one user, and each starts
or is started by the other. Pipes have no buffers here, which a process that forks would have twice.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterator, Sequence
from io import RawIOBase
from itertools import accumulate

WORD = struct.Struct("<Q")
ALIGNMENT = 64
"""Of parts in memory, so that arrays are used where they lie."""


def send(stream: RawIOBase, value: object) -> None:
    """Raises OSError where nobody reads any more."""
    parts = _parts(value)
    for part in (memoryview(_head(parts)), *parts):
        done = 0
        while done < part.nbytes:
            done += stream.write(part[done:]) or 0


def receive(stream: RawIOBase) -> object:
    """The next message. Raises EOFError where none will come."""
    count = _word(stream)
    sizes = [_word(stream) for _ in range(count)]
    head, *buffers = [_exactly(stream, n) for n in sizes]
    return pickle.loads(head, buffers=buffers)


def write(memory: memoryview, value: object) -> bool:
    """Put a message into memory; whether there is room for it."""
    parts = _parts(value)
    head = _head(parts)
    *starts, end = _places(len(head), [p.nbytes for p in parts])
    if end > memory.nbytes:
        return False
    memory[: len(head)] = head
    for start, part in zip(starts, parts, strict=True):
        memory[start : start + part.nbytes] = part
    return True


def read(memory: memoryview) -> object:
    """The message that was written there. Its arrays lie in that memory."""
    (count,) = WORD.unpack_from(memory)
    sizes = [WORD.unpack_from(memory, WORD.size * (1 + k))[0] for k in range(count)]
    starts = _places(WORD.size * (1 + count), sizes)
    head, *buffers = [memory[start : start + n] for start, n in zip(starts, sizes)]
    return pickle.loads(head, buffers=buffers)


def _parts(value: object) -> list[memoryview]:
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return [memoryview(head), *(b.raw() for b in buffers)]


def _head(parts: Sequence[memoryview]) -> bytes:
    return b"".join(WORD.pack(n) for n in (len(parts), *(p.nbytes for p in parts)))


def _places(head: int, sizes: Sequence[int]) -> Iterator[int]:
    """Where each part begins in memory, and where the message ends."""
    padded = (-(-n // ALIGNMENT) * ALIGNMENT for n in (head, *sizes))
    return accumulate(padded)


def _word(stream: RawIOBase) -> int:
    (n,) = WORD.unpack(_exactly(stream, WORD.size))
    return int(n)


def _exactly(stream: RawIOBase, size: int) -> bytearray:
    out = bytearray(size)
    view, done = memoryview(out), 0
    while done < size:
        n = stream.readinto(view[done:])
        if not n:
            raise EOFError
        done += n
    return out
