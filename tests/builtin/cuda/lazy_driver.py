"""A driver whose streams do what they have queued later, in any order that streams and events
allow.
"""

from __future__ import annotations

import copy
import ctypes
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fake_driver import FakeApi


@dataclass
class Mark:
    """One recording of an event."""

    reached: bool = False


@dataclass
class Queued:
    """``after``: what the stream waits for before it goes on; ``touches``: addresses that it reads
    or writes.
    """

    do: Callable[[], Any]
    after: Mark | None = None
    touches: tuple[int, ...] = ()


@dataclass
class LazyApi(FakeApi):
    """``order``: chooses what comes next; ``queued``: streams and kinds of work, as the host asked
    for it.

    Copies from pinned memory read it when they are done, others when they are asked for. ``room``:
    bytes of device memory; ``used``: of it; ``torn``: memory that was given back while something
    that touches it was queued.
    """

    order: random.Random = field(default_factory=lambda: random.Random(0))
    queued: list[tuple[int, str, int]] = field(default_factory=list)
    room: int = 1 << 30
    used: int = 0
    torn: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._queues: dict[int, deque[Queued]] = {}
        self._marks: dict[int, Mark] = {}
        self._sizes: dict[int, int] = {}
        self._pinned: dict[int, int] = {}

    # -- what is queued ---------------------------------------------------------------------------

    def _put(self, stream: Any, kind: str, work: Queued, size: int = 0) -> tuple[()]:
        self._queues.setdefault(int(stream), deque()).append(work)
        self.queued.append((int(stream), kind, size))
        for _ in range(self.order.choice((0, 0, 1, 3))):
            self._step()
        return ()

    def _step(self) -> bool:
        """One piece of work of any stream that need not wait."""
        free = [
            s for s, q in self._queues.items() if q and (q[0].after is None or q[0].after.reached)
        ]
        if not free:
            assert not any(self._queues.values()), "streams wait for each other"
            return False
        self._queues[self.order.choice(free)].popleft().do()
        return True

    def _until(self, done: Callable[[], bool]) -> tuple[()]:
        while not done():
            assert self._step()
        return ()

    def _cuStreamSynchronize(self, stream: Any) -> tuple[()]:
        return self._until(lambda: not self._queues.get(int(stream)))

    def _cuCtxSynchronize(self) -> tuple[()]:
        return self._until(lambda: not any(self._queues.values()))

    # -- events -----------------------------------------------------------------------------------

    def _cuEventRecord(self, event: Any, stream: Any) -> tuple[()]:
        mark = self._marks[int(event)] = Mark()
        return self._put(stream, "record", Queued(lambda: setattr(mark, "reached", True)))

    def _cuEventSynchronize(self, event: Any) -> tuple[()]:
        return self._until(lambda: int(event) not in self._marks or self._marks[int(event)].reached)

    def _cuStreamWaitEvent(self, stream: Any, event: Any, flags: int) -> tuple[()]:
        return self._put(stream, "wait", Queued(lambda: None, self._marks.get(int(event))))

    # -- memory -----------------------------------------------------------------------------------

    def _cuMemHostAlloc(self, size: int, flags: int) -> tuple[int]:
        (address,) = super()._cuMemAlloc(size)
        self._sizes[address] = self._pinned[address] = size
        return (address,)

    def _cuMemAlloc(self, size: int) -> tuple[int]:
        (address,) = super()._cuMemAlloc(size)
        ctypes.memset(address, 0xFF, size)  # what nobody writes is NaN
        self._sizes[address] = size
        self.used += size
        return (address,)

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if name in ("cuMemAlloc", "cuMemAllocAsync"):
            return lambda size, *more: (
                (2, None) if self.used + size > self.room else found(size, *more)
            )
        return found

    def _cuMemFree(self, address: Any, stream: Any = 0) -> tuple[()]:
        start, size = int(address), self._sizes.pop(int(address))
        self.used -= 0 if self._pinned.pop(start, 0) else size
        work = [w for q in self._queues.values() for w in q]
        self.torn += [start for w in work if any(start <= t < start + size for t in w.touches)]
        return super()._cuMemFree(address, stream)

    _cuMemFreeAsync = _cuMemFreeHost = _cuMemFree

    def _cuMemcpyHtoDAsync(self, to: Any, source: Any, size: int, stream: Any) -> tuple[()]:
        place, kept = int(source), None
        if not any(a <= place < a + n for a, n in self._pinned.items()):
            kept = ctypes.create_string_buffer(ctypes.string_at(place, size), size)
        touches = (int(to),) if kept else (int(to), place)
        work = Queued(lambda: ctypes.memmove(int(to), kept or place, size), touches=touches)
        return self._put(stream, "copy", work, size)

    def _cuMemcpyDtoHAsync(self, to: Any, source: Any, size: int, stream: Any) -> tuple[()]:
        work = Queued(
            lambda: ctypes.memmove(int(to), int(source), size), touches=(int(source), int(to))
        )
        return self._put(stream, "back", work)

    _cuMemcpyDtoDAsync = _cuMemcpyDtoHAsync

    # -- graphs -----------------------------------------------------------------------------------

    def _cuGraphLaunch(self, executable: int, stream: Any) -> tuple[()]:
        made = next(self._numbers)  # with the arguments that it has now
        self._graphs[made], self.edges[made] = (
            [copy.copy(n) for n in self._graphs[executable]],
            self.edges[executable],
        )
        launch, touches = (
            super()._cuGraphLaunch,
            tuple(a for n in self._graphs[made] for a in n.args),
        )
        return self._put(stream, "launch", Queued(lambda: launch(made, stream), touches=touches))
