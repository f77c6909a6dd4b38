"""Python's search for cycles, made rarer while a network is built."""

from __future__ import annotations

import gc
import threading
from contextlib import ContextDecorator

RARE = 2_000_000
"""Objects more, of those that could form cycles, after which the youngest are searched. Python's
700 take a third of the time of building 20,000 nodes, which all stay, 20,000 an eighth, and 100,000
as much as that; so many are of 25,000 nodes. The peaks of memory of models with much weight are the
same with 100,000 and with this.
"""


class RareCollections(ContextDecorator):
    """Cycles are searched for rarely in the block, in all threads; not at all where the caller
    turned that off. Blocks may lie in each other, and run in several threads.
    """

    def __init__(self) -> None:
        self._lock, self._inside, self._before = threading.Lock(), 0, (0, 0, 0)

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._before = gc.get_threshold()
                if 0 < self._before[0] < RARE:
                    gc.set_threshold(RARE, *self._before[1:])

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                gc.set_threshold(*self._before)


rarely_collected = RareCollections()
