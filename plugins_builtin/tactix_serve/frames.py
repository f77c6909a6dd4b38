"""Messages between the processes of a server: a small head and tensors, many in a system call."""

from __future__ import annotations

import asyncio
import marshal
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import numpy as np

ALIGNED = 16
"""Tensors begin at multiples of it within a message; memory of numpy does, too."""
PREFIX = struct.Struct("<II")
"""Bytes of the head, and of the tensors."""
CHUNK = 1 << 18
"""Bytes that are received into one piece of memory, which lives as long as one of the tensors in
it.
"""
LEAST_ROOM = 1 << 14
"""Free bytes under which a piece of memory is left."""
PARTS = 512
"""Buffers of one system call; Linux takes 1024."""

Head = tuple[Any, ...]
"""Numbers, text, None, and tuples, lists and dicts of them: what ``marshal`` writes, which both
ends have in the same version of Python.
"""
Buffer = bytes | memoryview


def padded(size: int) -> int:
    """Bytes that ``size`` take with what follows them up to the next tensor."""
    return -(-size // ALIGNED) * ALIGNED


class FrameReader:
    """Cuts messages out of what comes. Tensors are views of the memory that it came into."""

    def __init__(self) -> None:
        self._memory = _memory(CHUNK)
        self._start = self._end = 0

    def room(self) -> memoryview:
        """Where the next bytes go; never empty."""
        return self._memory[self._end :]

    def received(self, count: int, heard: Callable[[Head, memoryview], None]) -> None:
        """So many bytes are there; each message that is whole is told."""
        self._end += count
        needed = PREFIX.size
        while self._end - self._start >= needed:
            head, body = PREFIX.unpack_from(self._memory, self._start)
            first = padded(PREFIX.size + head)
            needed = first + body
            if self._end - self._start < needed:
                break
            begin, self._start = self._start, self._start + needed
            told = marshal.loads(self._memory[begin + PREFIX.size : begin + PREFIX.size + head])
            heard(told, self._memory[begin + first : begin + needed])
            needed = PREFIX.size
        self._make_room(needed)

    def _make_room(self, needed: int) -> None:
        """For the rest of a message; what has been told stays where it is."""
        left = self._end - self._start
        if len(self._memory) - self._start >= max(needed, left + LEAST_ROOM):
            return
        memory = _memory(max(CHUNK, needed))
        memory[:left] = self._memory[self._start : self._end]
        self._memory, self._start, self._end = memory, 0, left


def _memory(size: int) -> memoryview:
    """Not set to zeros first."""
    return np.empty(size, np.uint8).data


def frame(head: Head, tensors: Sequence[Buffer] = ()) -> list[Buffer]:
    """A message in parts; ``tensors`` are not copied."""
    parts, body = list[Buffer](), 0
    for x in tensors:
        size = x.nbytes if isinstance(x, memoryview) else len(x)
        if not size:
            continue
        parts.append(x)
        body += padded(size)
        if gap := padded(size) - size:
            parts.append(bytes(gap))
    told = marshal.dumps(head)
    begin = PREFIX.pack(len(told), body) + told
    return [begin + bytes(padded(len(begin)) - len(begin)), *parts]


class FrameLink:
    """One end of a socket, in an event loop: messages that are sent within one turn of the loop go
    in one system call. ``heard`` is told each message, ``lost`` once when there are no more.
    """

    def __init__(
        self,
        end: socket.socket,
        heard: Callable[[Head, memoryview], None],
        lost: Callable[[], None],
    ) -> None:
        end.setblocking(False)
        self._socket, self._heard, self._lost = end, heard, lost
        self._loop, self._reader = asyncio.get_running_loop(), FrameReader()
        self._out: deque[Buffer] = deque()
        self._flushing = self._blocked = self.closed = False
        self._loop.add_reader(end, self._readable)

    def send(self, head: Head, tensors: Sequence[Buffer] = ()) -> None:
        """Soon. Tensors must stay as they are. To nobody where the other end is gone."""
        if self.closed:
            return
        self._out.extend(frame(head, tensors))
        if not self._flushing and not self._blocked:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def close(self) -> None:
        """Nothing is told any more."""
        if not self.closed:
            self.closed = True
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket.close()
            self._out.clear()

    def _readable(self) -> None:
        try:
            count = self._socket.recv_into(self._reader.room())
        except BlockingIOError:
            return
        except OSError:
            count = 0
        if count:
            self._reader.received(count, self._heard)
        else:
            self._end()

    def _flush(self) -> None:
        self._flushing = False
        try:
            while self._out:
                self._sent(self._socket.sendmsg(_first(self._out)))
        except BlockingIOError:
            self._wait(True)
        except OSError:
            if not self.closed:
                self._end()
        else:
            self._wait(False)

    def _wait(self, blocked: bool) -> None:
        """Until the other end has read, or not any more."""
        if blocked != self._blocked:
            self._blocked = blocked
            if blocked:
                self._loop.add_writer(self._socket, self._flush)
            elif not self.closed:
                self._loop.remove_writer(self._socket)

    def _sent(self, count: int) -> None:
        while count:
            part = self._out.popleft()
            size = part.nbytes if isinstance(part, memoryview) else len(part)
            if size > count:
                self._out.appendleft(memoryview(part).cast("B")[count:])
                return
            count -= size

    def _end(self) -> None:
        self.close()
        self._lost()


def _first(parts: deque[Buffer]) -> list[Buffer]:
    """As many as one call takes."""
    return list(parts if len(parts) <= PARTS else islice(parts, PARTS))
