"""Engines whose weights can be replaced while contexts run."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tactix.run.context import ExecutionContext
from tactix.run.memory import ALIGNMENT, Memory
from tactix.words.errors import InvalidArgument
from tactix_builtin.flavours.inspector import InspectedEngine

Array = Any
Fill = Callable[[Mapping[str, Array]], None]


class RefittableEngine(InspectedEngine):
    """An engine of a plan with recipes.

    Constants that are replaced get memory of their own, twice: new content is made in the one that is not in use while
    contexts go on running; then every context is moved to it between two of its runs. So a run sees old weights or new
    ones, never some of both, and nothing has changed if making them fails.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._contexts: weakref.WeakSet[ExecutionContext] = weakref.WeakSet()
        self._births = threading.Lock()
        self._refitting = threading.Lock()
        self._rooms: list[Room] = []
        self._homes: dict[str, int] = {}

    def create_execution_context(self) -> ExecutionContext:
        with self._births:
            context = super().create_execution_context()
            self._contexts.add(context)
        return context

    @contextmanager
    def refitted(self, sizes: Mapping[str, int], changed: Iterable[str]) -> Iterator[dict[str, Array]]:
        """Arrays of bytes to fill with new constants, which runs see from the end of the block on.

        ``sizes``: bytes of all constants that have a recipe, by blob. Raises InvalidArgument, AllocationError.
        """
        program = self._program
        if not program.device.host_memory:
            who, do = f"device {program.device.key}", "Refit the plan and load it again"
            raise InvalidArgument("an engine in memory of the device's own cannot be refitted", who=who, do=do)
        with self._refitting:
            if not self._rooms:
                self._rooms = [Room(program.allocator, sizes) for _ in range(2)]
            places = {blob: 1 - self._homes.get(blob, 1) for blob in changed}
            fresh = {blob: self._rooms[k].array(blob) for blob, k in places.items()}
            yield fresh
            self._homes |= places
            self._swap(fresh)

    def _swap(self, fresh: Mapping[str, Array]) -> None:
        program, weights = self._program, self._program.weights
        held = {b: a.view() for b, a in fresh.items()}
        for a in held.values():
            a.flags.writeable = False
        weights.blobs = {**weights.blobs, **{b: a.data for b, a in held.items()}}
        weights.addresses = {**weights.addresses, **{b: a.ctypes.data for b, a in held.items()}}
        with self._births:
            program.take_weights()
            self.plan = program.plan
            contexts = list(self._contexts)
        moved = {i: program.addresses[i] for i, b in enumerate(self.plan.buffers) if b.blob in fresh}
        for context in contexts:
            context.move(moved)


class Room:
    """Memory for all constants that may be replaced."""

    def __init__(self, allocator: Any, sizes: Mapping[str, int]) -> None:
        self._places: dict[str, tuple[int, int]] = {}
        end = 0
        for blob, size in sizes.items():
            self._places[blob] = (end, size)
            end += -(-size // ALIGNMENT) * ALIGNMENT
        self._memory = Memory.allocate(allocator, end)

    def array(self, blob: str) -> Array:
        """The bytes of one."""
        out = self._memory.view(*self._places[blob])
        out.flags.writeable = True
        return out
