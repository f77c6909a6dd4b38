"""Engines whose weights can be replaced while contexts run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from tactix.base.errors import InvalidArgument
from tactix.run.arrays import address_of
from tactix.run.blob_memory import BlobMemory
from tactix.run.inspector import InspectedEngine
from tactix.run.memory import Memory

Array = Any
Made = Callable[[str], None]


class RefittableEngine(InspectedEngine):
    """An engine of a plan with recipes.

    Constants that are replaced get host memory of their own, twice: new content is made in the one
    that is not in use while contexts go on running. A device that reads this memory gets its
    addresses; one with memory of its own has a ``weight_update``, which brings the content there.
    Then all contexts are halted between two of their runs, and go on with it. So a run sees old
    weights or new ones, never some of both, and nothing has changed if making them fails.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._refitting = threading.Lock()
        self._blob_memory: dict[int, BlobMemory] = {}
        self._homes: dict[str, int] = {}

    @contextmanager
    def refitted(
        self, sizes: Mapping[str, int], changed: Iterable[str]
    ) -> Iterator[tuple[dict[str, Array], Made]]:
        """Arrays of bytes to fill with new constants, which runs see from the end of the block on.

        The second is to be called with each that is filled, by any thread. ``sizes``: bytes of all
        constants that have a recipe, by blob. Raises InvalidArgument, AllocationError.
        """
        with self._refitting:
            places = {blob: 1 - self._homes.get(blob, 1) for blob in changed}
            fresh = {blob: self._memory_for(k, sizes).array(blob) for blob, k in places.items()}
            update = self._weight_update(fresh)
            try:
                yield fresh, update.send
            finally:
                update.arrived()
            self._swap(fresh, update)
            self._homes |= places

    def _memory_for(self, k: int, sizes: Mapping[str, int]) -> BlobMemory:
        """One of the two. Raises InvalidArgument, AllocationError."""
        device = self._program.device
        if not device.host_memory and not hasattr(device, "weight_update"):
            who, do = f"device {device.key}", "Refit the plan and load it again"
            raise InvalidArgument(
                "an engine in memory of the device's own cannot be refitted", who=who, do=do
            )
        if k not in self._blob_memory:
            own = self._program.allocator
            allocator = own if device.host_memory else device.pinned  # type: ignore[attr-defined]
            self._blob_memory[k] = BlobMemory(allocator, sizes)
        return self._blob_memory[k]

    def _weight_update(self, fresh: Mapping[str, Array]) -> Any:
        device, program = self._program.device, self._program
        if device.host_memory:
            return InPlace(fresh)
        allocator, addresses = program.allocator, program.weights.addresses
        return device.weight_update(allocator, fresh, addresses)  # type: ignore[attr-defined]

    def _swap(self, fresh: Mapping[str, Array], update: Any) -> None:
        program, weights = self._program, self._program.weights
        converted = {b: a.view() for b, a in fresh.items()}
        for a in converted.values():
            a.flags.writeable = False
        with self._births, ExitStack() as halted:
            contexts = list(self._contexts)
            for context in contexts:
                halted.enter_context(context.halted())
            weights.addresses = {**weights.addresses, **update.settled()}
            weights.blobs = {**weights.blobs, **{b: a.data for b, a in converted.items()}}
            before = program.addresses
            program.take_weights()
            self.plan = program.plan
            moved = {i: a for i, a in enumerate(program.addresses) if a != before[i]}
            for context in contexts:
                context.move(moved)
        self._file = None  # which holds other weights
        if update.kept.size:
            weights.memory.append(update.kept)
            weights.nbytes += update.kept.size

    def _let_go(self) -> None:
        super()._let_go()
        self._blob_memory.clear()


class InPlace:
    """New content where the device reads it."""

    kept = Memory(0, 0)

    def __init__(self, fresh: Mapping[str, Array]) -> None:
        self._fresh = fresh

    def send(self, blob: str) -> None:
        """It is there."""

    def arrived(self) -> None:
        """All is there."""

    def settled(self) -> Mapping[str, int]:
        """Where each lies from now on."""
        return {b: address_of(a) for b, a in self._fresh.items()}
