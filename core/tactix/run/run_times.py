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


class RunTimes:
    """Of one context at one shape."""

    __slots__ = ("_least", "_next_pause", "_pause")

    def __init__(self) -> None:
        self._least, self._pause, self._next_pause = math.inf, 0, PAUSE

    @property
    def quick(self) -> bool:
        """Whether the next run is likely to take no longer than ``QUICK``."""
        return self._least <= QUICK and not self._pause

    def note(self, seconds: float) -> None:
        """Of a run that came to its end. The least of late counts: what is measured is also how
        long the run waited for other threads.
        """
        if self._pause:
            self._pause -= 1
        elif seconds > LONG and self._least <= QUICK:
            self._pause = self._next_pause
            self._next_pause = min(LONGEST_PAUSE, 2 * self._next_pause)
        else:
            self._next_pause = max(PAUSE, self._next_pause - 1)
        self._least = min(seconds, self._least * FADING)
