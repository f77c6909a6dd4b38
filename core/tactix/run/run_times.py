"""How long runs at one shape took: whether a run is worth another thread."""

from __future__ import annotations

import math

QUICK = 100e-6
"""Seconds: what it costs to hand a request to a thread and its results back (measured on a Zen 4:
70 to 130 us of the processor; of runs of 83 us one at once takes 191 us by a thread and 91 in the
loop, four at once 95 and 94). A run that takes less is done sooner where it is asked for.
"""
LONG = 1e-3
"""Seconds that a run may hold an event loop before its shape goes back to the threads for a while;
and that many of them may, one after the other, before the loop goes on.
"""
PAUSE, LONGEST_PAUSE = 10, 1000
"""Runs at a shape in threads after one that held a loop for too long: twice as many each time, and
one less for each that did not. A busy machine halts any run now and then; one that depends on its
data does so often.
"""
FADING = 1.01
"""By so much the least of earlier runs counts less with each run."""


NEAR, TRIAL = 4 * QUICK, 64
"""One of ``TRIAL`` runs at a shape that took up to ``NEAR`` in threads is tried in the event loop:
beside other threads of Python a run of 50 us may never seem to take less than 100.
"""


class RunTimes:
    """Of one context at one shape."""

    __slots__ = ("_count", "_least", "_next_pause", "_pause")

    def __init__(self) -> None:
        self._least, self._pause, self._next_pause = math.inf, 0, PAUSE
        self._count = 0

    @property
    def quick(self) -> bool:
        """Whether the next run is likely to take no longer than ``QUICK``, or is a trial."""
        if self._pause:
            return False
        return self._least <= QUICK or (self._least <= NEAR and self._count % TRIAL == TRIAL - 1)

    def note(self, seconds: float) -> None:
        """Of a run that came to its end. The least of late counts: what is measured is also how
        long the run waited for other threads.
        """
        self._count += 1
        if self._pause:
            self._pause -= 1
        elif seconds > LONG and self._least <= QUICK:
            self._pause = self._next_pause
            self._next_pause = min(LONGEST_PAUSE, 2 * self._next_pause)
        else:
            self._next_pause = max(PAUSE, self._next_pause - 1)
        self._least = min(seconds, self._least * FADING)
