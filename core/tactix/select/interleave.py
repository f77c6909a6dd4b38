"""Times of several runnables, taken in turns, so that all meet the same load of the machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf

from tactix.contracts.launcher import Runnable

Measure = Callable[[Runnable, int], float]
"""Seconds that so many runs take together."""

ROUND_SECONDS, SLOW = 0.001, 0.1
"""Seconds that one sample is to take, and above which a single run is one that is alone."""

LEAST_ROUNDS, ROUNDS, MOST_ROUNDS = 3, 5, 16
"""Turns: before anything is decided, where the two fastest are close, where times stay doubtful."""

HOPELESS, DOUBTFUL = 1.3, 4.0
"""Times the fastest: who is slower drops out, with a confirmed time and with one that is not."""

STOP = 0.01
"""Seconds for which a busy system may stop a process, as seen on one: a time that is not confirmed
and lies no further off stays in doubt.
"""

SEPARATED, CONFIRMED = 1.05, 1.02
"""A winner leads the next by the first; two shortest times within the second confirm each other."""


def repeats(seconds: float) -> int:
    """How many runs make one sample of what takes so long."""
    return max(1, min(10000, int(ROUND_SECONDS / max(seconds, 1e-7))))


@dataclass
class _Racer:
    """``least``: the shortest time of one run so far, at first that of a run which is no sample.
    ``stop``: by how much a stop of the process would have made it too long.
    """

    runnable: Runnable
    measure: Measure
    least: float = 0.0
    stop: float = 0.0
    samples: list[float] = field(default_factory=list)

    def warm_up(self) -> None:
        self.least = self._seconds(1)

    def run(self) -> None:
        """Take a sample."""
        times = repeats(self.least)
        self.samples.append(self._seconds(times) / times)
        self.least = min(self.samples)
        if self.samples[-1] == self.least:
            self.stop = STOP / times

    def _seconds(self, times: int) -> float:
        """What a clock that was set back gives is no time."""
        seconds = self.measure(self.runnable, times)
        return seconds if seconds >= 0 else inf

    @property
    def is_confirmed(self) -> bool:
        """Whether its shortest time was met twice."""
        return len(self.samples) >= LEAST_ROUNDS and (
            sorted(self.samples)[1] <= self.least * CONFIRMED
        )

    def may_beat(self, best: float) -> bool:
        """Whether more samples might bring its time, of LEAST_ROUNDS or more, near that one."""
        if self.is_confirmed:
            return self.least <= best * HOPELESS
        return self.least <= best * DOUBTFUL or self.least - self.stop <= best * HOPELESS


def interleave(
    measure: Measure,
    runnables: Sequence[Runnable],
    stopped: Callable[[], bool] = lambda: False,
) -> list[list[float]]:
    """Seconds of one run, several samples for each, taken in turns until a winner stands out or the
    rounds are over.

    While others use the machine there are more rounds: a shortest time counts once it was met
    twice. What a clock that was set back gives is no time, but infinite. One that is alone and slow
    is run once. Once ``stopped`` says so nothing more is run, and there are no samples at all if
    there would be less than LEAST_ROUNDS: who ran more often then would look faster.
    """
    racers = [_Racer(r, measure) for r in runnables]
    for racer in racers:
        if stopped():
            return [[] for _ in racers]
        racer.warm_up()
    if len(racers) == 1 and racers[0].least > SLOW:
        return [[racers[0].least]]
    if _race(racers, stopped) < LEAST_ROUNDS:
        return [[] for _ in racers]
    return [racer.samples for racer in racers]


def _race(racers: Sequence[_Racer], stopped: Callable[[], bool]) -> int:
    """Let them take samples in turns. How many turns were finished."""
    racing = racers
    for turn in range(1, MOST_ROUNDS + 1):
        for racer in racing:
            if stopped():
                return turn - 1
            racer.run()
        racing = _hopeful(racing, turn)
        if _is_decided(racing, turn):
            return turn
    return MOST_ROUNDS


def _hopeful(racing: Sequence[_Racer], turn: int) -> Sequence[_Racer]:
    """Those that may still win; the first turn, which finds caches cold, drops nobody."""
    if turn == 1 or not racing:
        return racing
    best = min(racer.least for racer in racing)
    if turn < LEAST_ROUNDS:
        return [r for r in racing if r.least <= best * DOUBTFUL**2]
    return [r for r in racing if r.may_beat(best)]


def _is_decided(racing: Sequence[_Racer], turn: int) -> bool:
    """Whether every time is confirmed, and the fastest leads clearly or had its ROUNDS."""
    ranked = sorted(racer.least for racer in racing)
    is_clear = len(ranked) < 2 or ranked[1] > ranked[0] * SEPARATED
    return turn >= (LEAST_ROUNDS if is_clear else ROUNDS) and all(r.is_confirmed for r in racing)
