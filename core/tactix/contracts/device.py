"""Device: memory, streams, events, timing, facts for compatibility checks, and ``link``."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tactix.contracts.launcher import Launcher, LinkContext, Runnable, Step
from tactix.words.errors import InvalidArgument


@dataclass(frozen=True)
class DeviceProperties:
    """Facts about a device, present or only targeted.

    ``features``: instruction sets, or ``sm_90``-like names. ``vector_bits``: width of its widest useful vectors.
    ``cores``: processors that may run one plan. ``facts``: whatever else goes into the timing cache's key.
    """

    kind: str
    name: str
    features: frozenset[str] = frozenset()
    vector_bits: int = 128
    cores: int = 1
    memory: int = 0
    facts: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def has(self, *features: str) -> bool:
        return self.features.issuperset(features)

    @property
    def lanes(self) -> int:
        """float32 elements in a vector."""
        return self.vector_bits // 32


class Stream(Protocol):
    """A queue of work in order."""

    @property
    def handle(self) -> int:
        """An integer that names it; 0 is the caller's own thread or the default stream."""

    def submit(self, work: Callable[[], None]) -> None:
        """Enqueue; returns at once."""

    def synchronize(self) -> None:
        """Wait for all work; raises what it raised."""


class Event(Protocol):
    """A mark in a stream."""

    def record(self, stream: Stream) -> None: ...

    def synchronize(self) -> None: ...

    def elapsed(self, earlier: Event) -> float:
        """Seconds since the earlier event."""


class Device:
    """``kind``: ``cpu``, ``cuda``, ...; one instance per physical device.

    ``host_memory``: whether its addresses are the host's, so that arrays and plan files are used where they lie.
    """

    key: str
    kind: str
    host_memory: bool = False

    def properties(self) -> DeviceProperties:
        raise NotImplementedError(f"{self.key}: properties")

    def target(self, name: str) -> DeviceProperties:
        """Facts of a level or a model of such devices, which need not be here. Raises InvalidArgument."""
        raise InvalidArgument(f"no target {name!r}", who=self.key, why="the device has none")

    def available(self) -> str:
        """Empty if the device is here, else why not."""
        return ""

    def create_stream(self) -> Stream:
        raise NotImplementedError(f"{self.key}: create_stream")

    def create_event(self) -> Event:
        raise NotImplementedError(f"{self.key}: create_event")

    def stream_of(self, handle: int) -> Stream:
        """The stream that a handle names. Raises InvalidArgument."""
        raise NotImplementedError(f"{self.key}: stream_of")

    def copy_in(self, address: int, array: Any) -> None:
        """Host array to device memory."""
        raise NotImplementedError(f"{self.key}: copy_in")

    def copy_out(self, array: Any, address: int) -> None:
        """Device memory to host array."""
        raise NotImplementedError(f"{self.key}: copy_out")

    def link(self, steps: Sequence[Step], launchers: Mapping[str, Launcher], ctx: LinkContext) -> Runnable:
        """All steps as one callable; consecutive steps of a launcher go to it together."""
        raise NotImplementedError(f"{self.key}: link")

    def measure(self, runnable: Runnable, times: int) -> float:
        """Seconds that ``times`` runs take together, on the device's own timer."""
        start = time.perf_counter()
        runnable.repeat(times)
        return time.perf_counter() - start
