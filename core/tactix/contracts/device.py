"""Device: memory, streams, events, timing, facts for compatibility checks, and ``link``."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from tactix.base.arithmetic import Evaluator, IntegerArithmetic, python
from tactix.base.arrays import Array
from tactix.base.dims import Shape
from tactix.base.dtypes import DType
from tactix.base.errors import InvalidArgument
from tactix.contracts.allocator import Allocator
from tactix.contracts.launcher import Launcher, LinkContext, Runnable, Step, TimedRunnable

if TYPE_CHECKING:
    import numpy as np

    class Terminal(Protocol):
        """What an exchange sees of an input or an output of a plan."""

        @property
        def name(self) -> str: ...

        @property
        def dtype(self) -> DType: ...

        @property
        def shape(self) -> Shape: ...

    class Place(Protocol):
        """Where an array of the caller's lies in the device's memory."""

        @property
        def address(self) -> int: ...

        @property
        def shape(self) -> tuple[int, ...]: ...


@dataclass(frozen=True)
class DeviceProperties:
    """Facts about a device, present or only targeted.

    ``features``: instruction sets, or ``sm_90``-like names. ``vector_bits``: width of its widest
    useful vectors.
    ``cores``: processors that may run one plan. ``facts``: whatever else goes into the timing
    cache's key.
    ``tuned_to``: numbers by which kernels are fast or slow, by names for people; a plan that was
    tuned to others warns.
    ``family``: whether it stands for all devices with these features, so that plans for it warn of
    no differences.
    """

    kind: str
    name: str
    features: frozenset[str] = frozenset()
    vector_bits: int = 128
    cores: int = 1
    memory: int = 0
    facts: Mapping[str, int | str] = field(default_factory=dict, hash=False)
    tuned_to: Mapping[str, int] = field(default_factory=dict, hash=False)
    family: bool = False

    def has(self, *features: str) -> bool:
        return self.features.issuperset(features)

    @property
    def lanes(self) -> int:
        """float32 elements in a vector."""
        return self.vector_bits // 32


@dataclass(frozen=True)
class Costs:
    """What choosing reckons with beside the times of kernels.

    ``launch``: seconds that each launch of an artifact takes in a network beyond what it takes when
    measured alone. ``reformat``, ``bandwidth``: seconds for each change of format, and bytes per
    second read plus written.
    """

    launch: float = 0.0
    reformat: float = 1e-6
    bandwidth: float = 6e9


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


Bind = Callable[
    [list[tuple[int, ...]]],
    tuple[Sequence[tuple[tuple[int, ...], "np.dtype[np.generic]"]], Callable[[list[int]], None]],
]
"""From the shapes of inputs to the shapes and numpy dtypes of outputs, and what runs at addresses
of both.
"""


class Exchange(Protocol):
    """Of a context on a device whose memory is not the host's: between callers' arrays and
    addresses.
    """

    def run(
        self,
        inputs: Sequence[Terminal],
        given: Sequence[object],
        stream: object,
        bind: Bind,
        left_out: Collection[int] = (),
        out: Sequence[Array | None] = (),
    ) -> list[Array | None]:
        """Outputs for arrays beside the plan's inputs. ``stream``: what ``stream_of`` takes, None
        for any. ``left_out``: places of outputs that nobody asks for: they may stay where the run
        leaves them, and be None here. ``out``: contiguous arrays of the host, beside the outputs;
        those that it has stand for new ones, unless an input lies in the device's memory.
        """

    def locate(self, io: Terminal, given: object) -> Place:
        """Where an array lies in the device's memory. Raises InvalidArgument,
        DTypeError.
        """

    def fetch(self, io: Terminal, given: object) -> object:
        """What lies in the device's memory as an array of the host, anything else as it is."""


class Device:
    """``kind``: ``cpu``, ``cuda``, ...; one instance per physical device.

    ``ordinal``: which of those of its kind that this process sees, from 0 on; a session has the
    first, which knows the others as its ``siblings``.

    ``host_memory``: whether its addresses are the host's, so that arrays and plan files are used
    where they lie.
    ``alignment``: what addresses of inputs and outputs must be multiples of, in bytes. ``spread``:
    bytes up to which an intermediate tensor's memory is not used again for some steps, so that
    these can run beside its own.
    ``timing``: how steps are timed that are not stamped within a run, for people.
    ``costs``: by default those of a plain transposing copy on one core.
    """

    key: str
    kind: str
    ordinal: int = 0
    host_memory: bool = False
    alignment: int = 1
    spread: int = 0
    timing: str = "one step after the other, by the host's clock"
    costs = Costs()

    @property
    def label(self) -> str:
        """What people call it, as ``cuda:1``."""
        return f"{self.kind}:{self.ordinal}"

    def siblings(self) -> Sequence[Device]:
        """All of its kind that this process sees, by ordinal, itself among them."""
        return [self]

    def holds(self, given: object) -> bool:
        """Whether an array of a caller's lies in the memory of this very device."""
        return False

    @property
    def bench(self) -> type | None:
        """What measures candidates in place of ``tactix.select.bench.Bench``, of which it is a
        subclass.
        """
        return None

    def properties(self) -> DeviceProperties:
        raise NotImplementedError(f"{self.key}: properties")

    def target(self, name: str) -> DeviceProperties:
        """Facts of a level or a model of such devices, which need not be here. Raises
        InvalidArgument.
        """
        raise InvalidArgument(f"no target {name!r}", who=self.key, why="the device has none")

    def available(self) -> str:
        """Empty if the device is here, else why not."""
        return ""

    def persistent_cache(self) -> int:
        """The most bytes of its cache in which weights can stay from run to run."""
        return 0

    def counters(self) -> Mapping[str, float]:
        """What it has done so far in this process, for whichever engine, by names that end with
        their unit: what servers show beside their own numbers.
        """
        return {}

    def memory_used(self) -> int:
        """Bytes of its own memory that are taken, by whomever; 0 for one that has the host's."""
        return 0

    def create_stream(self) -> Stream:
        raise NotImplementedError(f"{self.key}: create_stream")

    def create_event(self) -> Event:
        raise NotImplementedError(f"{self.key}: create_event")

    def stream_of(self, stream: object) -> Stream:
        """The stream that a handle, or an object that stands for one, names.

        Raises InvalidArgument.
        """
        raise NotImplementedError(f"{self.key}: stream_of")

    def copy_in(self, address: int, array: Array) -> None:
        """Host array to device memory."""
        raise NotImplementedError(f"{self.key}: copy_in")

    def copy_all(self, pairs: Sequence[tuple[int, Array]]) -> None:
        """Contiguous host arrays to their addresses, which ascend."""
        for address, array in pairs:
            self.copy_in(address, array)

    def exchange(self, allocator: Allocator) -> Exchange:
        """For one context. ``allocator``: of memory to pass arrays through. Not asked for with
        ``host_memory``.
        """
        raise NotImplementedError(f"{self.key}: exchange")

    def copy_out(self, array: Array, address: int) -> None:
        """Device memory to host array."""
        raise NotImplementedError(f"{self.key}: copy_out")

    def link(
        self, steps: Sequence[Step], launchers: Mapping[str, Launcher], ctx: LinkContext
    ) -> Runnable:
        """All steps as one callable; consecutive steps of a launcher go to it together."""
        raise NotImplementedError(f"{self.key}: link")

    def link_timed(
        self, steps: Sequence[Step], launchers: Mapping[str, Launcher], ctx: LinkContext
    ) -> TimedRunnable | None:
        """All steps as one that knows their times; None where launchers can tell them, or each is
        to be timed by itself.
        """
        return None

    def evaluator(self, arithmetic: IntegerArithmetic, steps: Sequence[Step]) -> Evaluator:
        """What runs the arithmetic of shapes: of Python, unless the device has something faster.

        ``steps``: those of the plan, whose code may bring it.
        """
        return python(arithmetic)

    def timed(self, runnable: Runnable) -> float:
        """Run it once, and wait; seconds on the device's own timer."""
        start = time.perf_counter()
        runnable()
        return time.perf_counter() - start

    def measure(self, runnable: Runnable, times: int) -> float:
        """Seconds that ``times`` runs take together, on the device's own timer."""
        start = time.perf_counter()
        runnable.repeat(times)
        return time.perf_counter() - start
