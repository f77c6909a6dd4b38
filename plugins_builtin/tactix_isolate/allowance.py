"""What kernels that fail their trials may cost a build: some of each tactic, some time of each
pack.

A kernel that crashes costs a second, for a new process, and one that hangs costs its whole limit.
What failed is in the quarantine, so the next build comes to those that were not tried in this one.
"""

from __future__ import annotations

import os
from collections import Counter
from math import inf

from tactix.base.errors import ConfigError

TIMEOUT = "TACTIX_TRIAL_TIMEOUT"
SECONDS, ESTIMATES, LONGEST = 10.0, 100, 300.0
"""How long a trial may take at least, in units of the tactic's own estimate, and whatever that is.
"""
FAILURES = 3
"""Kernels of one tactic that may end or block their process before no more of it are tried."""


class Allowance:
    """``seconds``: how long trials of one pack's kernels may take that fail."""

    def __init__(self, seconds: float = inf) -> None:
        self.seconds = seconds
        self._spent: dict[str, float] = {}
        self._fatal: Counter[str] = Counter()

    def charge(self, pack: str, seconds: float) -> None:
        """A trial of the pack took so long and failed."""
        self._spent[pack] = self._spent.get(pack, 0.0) + seconds

    def count(self, tactic: str) -> None:
        """A kernel of the tactic ended or blocked its process."""
        self._fatal[tactic] += 1

    def has_failed(self, tactic: str) -> bool:
        """Whether any kernel of the tactic ended or blocked its process."""
        return self._fatal[tactic] > 0

    def refusal(self, pack: str, tactic: str) -> str:
        """Why no more kernels of the tactic are tried; empty if they are."""
        if (failed := self._fatal[tactic]) >= FAILURES:
            return f"{failed} kernels of this tactic crashed or hung in this build"
        if (spent := self._spent.get(pack, 0.0)) > self.seconds:
            return f"failed trials of its pack took {spent:.1f} s, and may take {self.seconds:g} s"
        return ""


def patience(estimate: float | None) -> float:
    """Seconds that a trial may take. Raises ConfigError for a TACTIX_TRIAL_TIMEOUT that is no
    number.
    """
    given = os.environ.get(TIMEOUT)
    try:
        if given:
            return float(given)
    except ValueError:
        raise ConfigError(f"{TIMEOUT}={given!r} is no number of seconds") from None
    return min(max(SECONDS, ESTIMATES * (estimate or 0.0)), LONGEST)
