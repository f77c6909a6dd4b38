"""Contests of a build, shared between processes of a cluster: who is idle gets the next ones, what
one that is lost was given goes to another.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Protocol

from tactix.base.errors import TactixError
from tactix.select.contest_pickle import packed
from tactix.select.contests import Conditions, Contest, ContestOutcome, Race

ASKED = 0.1
"""Seconds between two looks at whether the build is to stop."""
START_SECONDS = 60.0
"""How long a build waits for its first worker. No measurement is on record; one takes some seconds
to start, longer on a machine that is busy.
"""
MOST_LOSSES = 2
"""Workers that may be lost over a contest before it is left to the build: it may be what ends
them.
"""
SHARES = 3
"""So many times each worker is to come for more: fewer compile side by side what a compiler reads
once, more leave nobody idle at the end. No measurement is on record.
"""
LEAST = 8
"""Candidates that are sent at once at least, where that leaves some for every worker."""


class WorkerLost(Exception):
    """A worker is gone, or its machine."""


class WorkerRefused(Exception):
    """A worker cannot stand for the device; the text says why."""


class ClusterWorker(Protocol):
    """One process. Each question is answered in its turn."""

    def ready(self, conditions: Conditions) -> object:
        """A ticket for the answer whether it can hold contests under these conditions."""

    def hold(self, conditions: Conditions, contests: Sequence[bytes]) -> object:
        """A ticket for the outcomes of contests."""

    def stop(self) -> None:
        """End it, whatever it does."""


class Cluster(Protocol):
    """Where workers are started. Tickets are compared by identity."""

    def count(self, conditions: Conditions) -> int:
        """Workers for which there is room now."""

    def start(self, conditions: Conditions) -> ClusterWorker: ...

    def done(self, tickets: Sequence[object], seconds: float) -> Sequence[object]:
        """Those that are answered, after so many seconds at most."""

    def answer(self, ticket: object) -> Sequence[ContestOutcome]:
        """Empty to the question whether it is ready. Raises WorkerLost, WorkerRefused; TactixError
        for contests that it cannot hold.
        """

    def close(self) -> None: ...


@dataclass(eq=False)
class _Contest:
    """``index``: the caller's. ``lost``: how many workers were, over it. ``alone``: whether it is
    sent without others, as it may be what fails.
    """

    index: int
    content: bytes
    candidates: int
    lost: int = 0
    alone: bool = False


@dataclass
class ClusterWorkers:
    """Workers of a cluster, for ``BuilderConfig.workers``. ``most``: how many, 0 for as many as
    there is room for. Close it when no build needs it any more.
    """

    cluster: Cluster
    most: int = 0
    _shift: _Shift | None = field(default=None, init=False)

    def hold(
        self,
        conditions: Conditions,
        contests: Sequence[Contest],
        stopped: Callable[[], bool],
        warn: Callable[[str], None],
    ) -> Iterator[tuple[int, ContestOutcome]]:
        """See ``Workers.hold``."""
        if self._shift is None or self._shift.conditions != conditions:
            self._end_shift()
            self._shift = _Shift(self.cluster, conditions, self.most)
        sent = packed(contests, lambda contest, why: warn(f"{_title(contest)} stays here: {why}"))
        waiting = deque(_Contest(i, content, _size(contests[i])) for i, content in sent)
        try:
            yield from self._shift.work_off(waiting, stopped, warn)
        except BaseException:
            self._end_shift()
            raise
        if self._shift.is_busy:  # with what nobody waits for
            self._end_shift()

    def close(self) -> None:
        self._end_shift()
        self.cluster.close()

    def _end_shift(self) -> None:
        if self._shift is not None:
            self._shift.end()
            self._shift = None


def _title(contest: Contest) -> str:
    if isinstance(contest, Race):
        return contest.bids.node.name
    return " beside ".join(b.node.name for side in contest.sides for b, _ in side[:1])


def _size(contest: Contest) -> int:
    if isinstance(contest, Race):
        return len(contest.bids.candidates)
    return sum(map(len, contest.sides))


@dataclass
class _Shift:
    """Workers under one set of conditions. ``_asked``: what each that is busy was given, by ticket;
    nothing for one that starts.
    """

    cluster: Cluster
    conditions: Conditions
    most: int
    _idle: list[ClusterWorker] = field(default_factory=list)
    _asked: dict[int, tuple[object, ClusterWorker, list[_Contest]]] = field(default_factory=dict)
    _room: int = -1
    _was_ready: bool = False

    @property
    def is_busy(self) -> bool:
        return any(given for _, _, given in self._asked.values())

    def work_off(
        self,
        waiting: deque[_Contest],
        stopped: Callable[[], bool],
        warn: Callable[[str], None],
    ) -> Iterator[tuple[int, ContestOutcome]]:
        """Outcomes as they come; what nobody can hold is left."""
        self._start(len(waiting))
        until = time.monotonic() + START_SECONDS
        while (waiting or self.is_busy) and not stopped():
            self._send(waiting)
            if not self._asked:
                warn("no worker is left; the build goes on here")
                return
            if not self._was_ready and time.monotonic() > until:
                warn(f"no worker was ready within {START_SECONDS:g} s; the build goes on here")
                return
            tickets = [ticket for ticket, _, _ in self._asked.values()]
            for ticket in self.cluster.done(tickets, ASKED):
                yield from self._answered(ticket, waiting, warn)

    def end(self) -> None:
        for worker in (*self._idle, *(w for _, w, _ in self._asked.values())):
            worker.stop()

    def _start(self, contests: int) -> None:
        """As many as there is work and room for; once, as those that refuse would again."""
        if self._room < 0:
            self._room = self.cluster.count(self.conditions)
            self._room = min(self._room, self.most) if self.most else self._room
        there = len(self._idle) + len(self._asked)
        for _ in range(min(self._room, contests) - there):
            self._start_one()

    def _start_one(self) -> None:
        worker = self.cluster.start(self.conditions)
        self._ask(worker, worker.ready(self.conditions), [])

    def _ask(self, worker: ClusterWorker, ticket: object, given: list[_Contest]) -> None:
        self._asked[id(ticket)] = ticket, worker, given

    def _send(self, waiting: deque[_Contest]) -> None:
        while self._idle and waiting:
            worker, most = self._idle.pop(), self._share(waiting)
            given = [waiting.popleft()]
            while waiting and sum(c.candidates for c in given) < most:
                if given[0].alone or waiting[0].alone:
                    break
                given.append(waiting.popleft())
            contents = [c.content for c in given]
            self._ask(worker, worker.hold(self.conditions, contents), given)

    def _share(self, waiting: Sequence[_Contest]) -> int:
        """Candidates to send at once."""
        left, workers = sum(c.candidates for c in waiting), max(1, self._room)
        return min(ceil(left / workers), max(LEAST, ceil(left / (SHARES * workers))))

    def _answered(
        self, ticket: object, waiting: deque[_Contest], warn: Callable[[str], None]
    ) -> Iterator[tuple[int, ContestOutcome]]:
        _, worker, given = self._asked.pop(id(ticket))
        try:
            outcomes = self.cluster.answer(ticket)
        except WorkerRefused as e:
            warn(f"a worker does not take part: {e}")
            self._room -= 1
            worker.stop()
        except WorkerLost as e:
            self._replace(worker, given, waiting)
            warn(f"a worker was lost, and is replaced: {e}")
        except TactixError as e:
            self._idle.append(worker)
            if len(given) > 1:
                self._again(given, waiting)
            else:
                warn(f"what a worker could not time is left to this build: {e}")
        else:
            self._was_ready = True
            self._idle.append(worker)
            yield from ((c.index, outcome) for c, outcome in zip(given, outcomes, strict=True))

    def _replace(
        self, worker: ClusterWorker, given: list[_Contest], waiting: deque[_Contest]
    ) -> None:
        """Another one does what this one was to do. One that is lost before it is ready is not
        replaced.
        """
        worker.stop()
        for c in given:
            c.lost += 1
        self._again([c for c in given if c.lost < MOST_LOSSES], waiting)
        if given:
            self._start_one()
        else:
            self._room -= 1

    @staticmethod
    def _again(given: Sequence[_Contest], waiting: deque[_Contest]) -> None:
        """Each is sent once more, by itself."""
        for c in reversed(given):
            c.alone = True
            waiting.appendleft(c)
