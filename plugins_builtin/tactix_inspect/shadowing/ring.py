"""Memory that the served process and the one of the references share: samples on their way, and
counts of what came of them.

No thread of the served process feeds the other one: a sampled call copies its request into the next
place, if that is free, and writes a byte to a pipe. The bytes order what both do, as a system call
lies between writing and reading, and nobody waits at the served end.
"""

from __future__ import annotations

import mmap
import os
import tempfile

from tactix.base.errors import AllocationError
from tactix_inspect.shadowing import messages

SAMPLE, RENEWAL = b"s", b"r"
"""What a byte on the pipe says: a sample lies in the next place; those behind it, whose place stays
empty, are of another plan.
"""
HEAD = mmap.PAGESIZE
DONE, CHECKED, DEPARTED, MICROSECONDS = range(4)
"""Numbers in the head, of 8 bytes each; the references' process alone writes them. ``DONE``: places
that are free again, from the beginning on; ``MICROSECONDS``: of a core, for checks and looks.
"""


class SampleRing:
    """``places``: how many samples may be on their way; ``size``: bytes of each. ``descriptor``: of
    the memory, as a file without a name. ``numbers``: of the head.
    """

    def __init__(self, descriptor: int, places: int, size: int) -> None:
        self.descriptor, self.places, self.size = descriptor, places, size
        self._memory = memoryview(mmap.mmap(descriptor, HEAD + places * size))
        self.numbers = self._memory[:HEAD].cast("q")

    @classmethod
    def made(cls, places: int, nbytes: int) -> SampleRing:
        """Pages of it are taken when something is written there. Raises AllocationError."""
        size = nbytes // places // messages.ALIGNMENT * messages.ALIGNMENT
        try:
            descriptor = _nameless()
            os.ftruncate(descriptor, HEAD + places * size)
            return cls(descriptor, places, size)
        except (OSError, OverflowError, ValueError) as e:
            raise AllocationError(
                "no memory for requests of shadow mode", why=str(e), do="Give fewer queue_bytes"
            ) from e

    def __getitem__(self, number: int) -> int:
        """A number of the head."""
        return self.numbers[number]

    def add(self, number: int, more: int) -> None:
        self.numbers[number] += more

    def put(self, k: int, sample: object) -> bool:
        """Copy the k-th into its place, which must be free; whether that is large enough."""
        return messages.write(self._place(k), sample)

    def sample(self, k: int) -> object:
        """The k-th. Its arrays lie here, until its place is free again."""
        return messages.read(self._place(k))

    def _place(self, k: int) -> memoryview:
        start = HEAD + k % self.places * self.size
        return self._memory[start : start + self.size]


def _nameless() -> int:
    """A file in memory, or where there is no such thing, one that nobody else can open."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("tactix-shadow")
    with tempfile.TemporaryFile() as f:
        return os.dup(f.fileno())
