"""An NVIDIA GPU through the driver API: its primary context, streams, events, copies, and the link
of a plan.

A process may use several: the context of each is made current before it is called, on every
thread, and what runs in the middle of anything (a finalizer, a run in a caller's thread) leaves the
context that it found (``visited``).

What a thread does inside ``Stream.submit`` goes into that stream and is not waited for. Outside of
it everything is in the default stream and has happened when the call returns.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from tactix.base.errors import ExecutionError, InvalidArgument, TactixError
from tactix.contracts.allocator import Allocator
from tactix.contracts.device import Costs, Device, DeviceProperties
from tactix.contracts.launcher import Launcher, LinkContext, Runnable, Step, TimedRunnable
from tactix.run.segments import Segments
from tactix_codegen.cuda.target import (
    GIB,
    LEAST,
    SAME_COMPUTE_CAPABILITY,
    VECTOR_BITS,
    facts_of,
    features,
    same_capability,
    target,
)
from tactix_cuda.capture import Recorder
from tactix_cuda.driver import Driver
from tactix_cuda.launcher import GraphLauncher, link
from tactix_cuda.modules import Modules
from tactix_cuda.stream import CudaEvent, CudaStream, handle_of

if TYPE_CHECKING:
    from tactix.base.logger import Logger
    from tactix.plan.schema import Plan
    from tactix_cuda.build_bench import CudaBuildBench
    from tactix_cuda.caller_arrays import CudaExchange
    from tactix_cuda.pinned import PinnedAllocator
    from tactix_cuda.weight_update import WeightUpdate
    from tactix_cuda.weight_windows import Windows

__all__ = ["CudaDevice", "target", "the_device"]

INSTALL = "`pip install tactix[cuda]` installs it"
SHARED = 0
"""CU_COMPUTEMODE_DEFAULT: any number of processes may have contexts on the device."""
WARM = 32
"""Runs before a measurement starts, at most: a graph of many runs is made then, and clocks rise."""
LAUNCH = 7e-7
"""Seconds of an empty kernel in a graph that is replayed (H200; 0.6e-6 where it begins early)."""
REFORMAT, BANDWIDTH = 2e-6, 1.5e12
"""Seconds to start a change of format, and bytes per second that it reads and writes: about a third
of a copy's 4.3e12 (H200). No measurement of these two is recorded.
"""
SPREAD = 256 << 10
"""Bytes up to which memory is not used again for some steps, so that branches do not wait for each
other's buffers; of small tensors that costs little memory (docs/cuda.md, "Branches, streams,
contexts"). It is no measured threshold.
"""


class _Local(threading.local):
    """Of a thread: whether the context is known to be current, which is never where there are other
    devices; and the stream that it submits to.
    """

    active = False
    stream: CudaStream | None = None


class Visit:
    """A device's context on this thread for a while. Nothing is done where it is current already;
    the first device's stays where there was none, as that is what CUDA's runtime takes then.
    """

    __slots__ = ("_before", "_device")

    def __init__(self, device: CudaDevice) -> None:
        self._device, self._before = device, None

    def __enter__(self) -> None:
        device = self._device
        before = device.driver.call("cuCtxGetCurrent")
        if int(before) != int(device.context):
            device.activate()
            self._before = before if int(before) or device.ordinal else None

    def __exit__(self, *raised: object) -> None:
        if self._before is not None:
            self._device.local.active = False
            self._device.driver.call("cuCtxSetCurrent", self._before)


class CudaDevice(Device):
    """``ordinal``: as the driver counts. ``driver``: what to call it by; cuda-python's binding is
    imported if None.

    ``alignment``: of the widest access of a thread, and of what tensor maps and the libraries take.
    """

    key = "tactix.cuda@1"
    kind = "cuda"
    timing = "each step by what it adds to runs that end with it, between two events of the stream"
    alignment = 16
    spread = SPREAD
    costs = Costs(launch=LAUNCH, reformat=REFORMAT, bandwidth=BANDWIDTH)

    def __init__(self, ordinal: int = 0, driver: Driver | None = None) -> None:
        self.ordinal = ordinal
        self.local = _Local()
        self.modules = Modules(self)
        self.recorder = Recorder(self)
        self._given = driver
        self._lock = (
            threading.RLock()
        )  # the garbage collector may come back to it in the same thread
        self._context: Any = None
        self._set_aside = 0
        self._counters: dict[str, float] = {}
        self._family: list[CudaDevice] | None = None
        self._allocators: dict[Callable[[CudaDevice], Allocator], Allocator] = {}

    # -- what is there ----------------------------------------------------------------------------

    def available(self) -> str:
        try:
            self.driver.call("cuInit", 0)
            count = int(self.driver.call("cuDeviceGetCount"))
            if self.ordinal >= count:
                return f"the driver shows {count} devices, {self.ordinal} is not among them"
            p = self.properties()
        except ImportError as e:
            return f"cuda-python is not installed ({e}); {INSTALL}"
        except TactixError as e:
            return str(e)
        except (RuntimeError, OSError) as e:  # what the binding raises without a driver
            return f"no NVIDIA driver: {str(e).splitlines()[0].rstrip('.')}"
        if (capability := int(p.facts["capability"])) >= LEAST:
            return ""
        return (
            f"{p.name} has compute capability {capability / 10}; "
            f"kernels are written for {LEAST / 10} and later"
        )

    def siblings(self) -> Sequence[CudaDevice]:
        """By ordinal; itself alone without a driver."""
        with self._lock:
            if self._family is None:
                try:
                    self.driver.call("cuInit", 0)
                    count = int(self.driver.call("cuDeviceGetCount"))
                except (ImportError, TactixError, RuntimeError, OSError):
                    return [self]
                family = [CudaDevice(i, self.driver) for i in range(count)]
                if self.ordinal < count:
                    family[self.ordinal] = self
                for device in family:
                    device._family = family
            return self._family or [self]

    def holds(self, given: object) -> bool:
        from tactix_cuda.arrays import ordinal_told

        return ordinal_told(given, self) == self.ordinal

    def allocator(self, kind: Callable[[CudaDevice], Allocator]) -> Allocator:
        """The one of that kind that serves this device, of which the session has none."""
        with self._lock:
            if kind not in self._allocators:
                self._allocators[kind] = kind(self)
            return self._allocators[kind]

    @functools.cached_property
    def driver(self) -> Driver:
        return self._given or Driver()

    @functools.cached_property
    def native(self) -> Any:
        """The driver's handle."""
        self.driver.call("cuInit", 0)
        return self.driver.call("cuDeviceGet", self.ordinal)

    @functools.cached_property
    def default_stream(self) -> CudaStream:
        return CudaStream(self, 0)

    def attribute(self, name: str) -> int:
        """An attribute by the end of its name in ``CUdevice_attribute``."""
        key = getattr(self.driver.api.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self.driver.call("cuDeviceGetAttribute", key, self.native))

    def properties(self) -> DeviceProperties:
        return self._properties

    def target(self, name: str) -> DeviceProperties:
        """``sm_80``, ``sm_90a``, ``h200``, ``AMPERE_PLUS``, ``SAME_COMPUTE_CAPABILITY``. Raises
        InvalidArgument.
        """
        if name != SAME_COMPUTE_CAPABILITY:
            return target(name)
        if why := self.available():
            raise InvalidArgument(
                "no device tells its compute capability", why=why, do="Name one, such as sm_90"
            )
        return same_capability(self.properties())

    @functools.cached_property
    def _properties(self) -> DeviceProperties:
        call, ask = self.driver.call, self.attribute
        capability = 10 * ask("COMPUTE_CAPABILITY_MAJOR") + ask("COMPUTE_CAPABILITY_MINOR")
        facts = facts_of(
            capability,
            ask("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
            ask("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
            ask("MAX_REGISTERS_PER_MULTIPROCESSOR"),
            ask("MAX_THREADS_PER_MULTIPROCESSOR"),
            ask("L2_CACHE_SIZE"),
        )
        cores, memory = ask("MULTIPROCESSOR_COUNT"), int(call("cuDeviceTotalMem", self.native))
        return DeviceProperties(
            kind="cuda",
            name=str(call("cuDeviceGetName", 256, self.native).split(b"\0")[0], "utf-8", "replace"),
            features=features(capability),
            vector_bits=VECTOR_BITS,
            cores=cores,
            memory=memory,
            facts=facts,
            tuned_to={
                "multiprocessors": cores,
                "memory_gib": round(memory / GIB),
                "memory_bus_bits": ask("GLOBAL_MEMORY_BUS_WIDTH"),
                "integrated": ask("INTEGRATED"),
                **{
                    fact: facts[fact]
                    for fact in ("l2", "shared_per_block", "shared_per_multiprocessor")
                },
            },
        )

    @property
    def bench(self) -> type[CudaBuildBench]:
        """What checks and times candidates on it."""
        from tactix_cuda.build_bench import CudaBuildBench

        return CudaBuildBench

    @property
    def stands_in(self) -> bool:
        """Whether its driver is of this process alone, so that no other one has such a device."""
        return self._given is not None

    def why_alone(self) -> str:
        """Why no other process can use it beside this one; empty if one can."""
        mode = self.attribute("COMPUTE_MODE")
        return "" if mode == SHARED else f"its compute mode ({mode}) allows one process alone"

    @functools.cached_property
    def programmatic(self) -> bool:
        """Whether a kernel may begin before the one that it follows is over (9.0 on; drivers of
        CUDA 12.4).
        """
        enough = int(self.driver.call("cuDriverGetVersion")) >= 12040
        return enough and self.attribute("COMPUTE_CAPABILITY_MAJOR") >= 9

    def persistent_cache(self) -> int:
        return self.attribute("MAX_PERSISTING_L2_CACHE_SIZE")

    def count(self, **done: float) -> None:
        """Of what was done, for ``counters``."""
        with self._lock:
            for name, more in done.items():
                self._counters[name] = self._counters.get(name, 0) + more

    def counters(self) -> Mapping[str, float]:
        """Of runs on arrays of the host: their number; seconds of putting them to work, with the
        copies into pinned memory, of waiting for the device, and of the copies out of pinned
        memory; bytes each way. Steps that were bound, graphs that were made, and nodes of graphs
        that were given other addresses.
        """
        with self._lock:
            return dict(self._counters)

    def memory_used(self) -> int:
        self.activate()
        free, total = self.driver.call("cuMemGetInfo")
        return int(total) - int(free)

    def set_aside(self, size: int) -> None:
        """Keep at least so many bytes of the L2 cache for accesses that ask for it; all of the
        process have them.
        """
        self.activate()
        with self._lock:
            if size > self._set_aside:
                kind = self.driver.api.CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE
                self.driver.call("cuCtxSetLimit", kind, size)
                self._set_aside = size

    # -- contexts and streams ---------------------------------------------------------------------

    def activate(self) -> None:
        """Make the device's primary context current on this thread. Raises ExecutionError."""
        self.driver.call("cuCtxSetCurrent", self.context)
        self.local.active = self._alone

    @functools.cached_property
    def _alone(self) -> bool:
        return len(self.siblings()) == 1

    @property
    def context(self) -> Any:
        """The primary context. Raises ExecutionError."""
        if self._context is None:
            with self._lock:
                if self._context is None:
                    self._context = self.driver.call("cuDevicePrimaryCtxRetain", self.native)
        return self._context

    def visited(self) -> Visit:
        """``with device.visited():`` has its context current, and the one before again after it."""
        return Visit(self)

    def current(self) -> CudaStream:
        """The stream that this thread submits to, else the default stream."""
        return self.local.stream or self.default_stream

    def settle(self) -> None:
        """Outside of ``Stream.submit`` wait for what was done."""
        if self.local.stream is None:
            self.driver.call("cuStreamSynchronize", self.default_stream.native)

    def synchronize(self) -> None:
        """Wait for all work, once no library's call is being recorded: a driver cannot do both."""
        self.activate()
        with self.recorder.lock:
            self.driver.call("cuCtxSynchronize")

    def create_stream(self) -> CudaStream:
        return CudaStream.create(self)

    def create_event(self) -> CudaEvent:
        return CudaEvent(self)

    def stream_of(self, stream: Any) -> CudaStream:
        """By a handle (0: the default), or an object of whoever made it, see ``handle_of``. Raises
        InvalidArgument.
        """
        if isinstance(stream, CudaStream):
            return stream
        handle = handle_of(stream)
        return CudaStream(self, handle, stream) if handle else self.default_stream

    # -- memory -----------------------------------------------------------------------------------

    def copy_in(self, address: int, array: Any) -> None:
        import numpy as np

        source = np.ascontiguousarray(array)
        if not source.nbytes:
            return
        self.activate()
        place, stream = self.driver.api.CUdeviceptr(address), self.current().native
        self.driver.call(
            "cuMemcpyHtoDAsync", place, source.__array_interface__["data"][0], source.nbytes, stream
        )
        self.settle()

    def copy_out(self, array: Any, address: int) -> None:
        """``array`` must be contiguous and writable; it is filled at return. Raises
        InvalidArgument.
        """
        if not (array.flags.c_contiguous and array.flags.writeable):
            raise InvalidArgument(
                "cannot copy into an array that is read-only or not contiguous", who=self.key
            )
        if not array.nbytes:
            return
        self.activate()
        place, stream = self.driver.api.CUdeviceptr(address), self.current().native
        self.driver.call(
            "cuMemcpyDtoHAsync", array.__array_interface__["data"][0], place, array.nbytes, stream
        )
        self.driver.call("cuStreamSynchronize", stream)

    def fill(self, address: int, byte: int, size: int) -> None:
        """Set all bytes of some memory."""
        if size:
            self.activate()
            place, stream = self.driver.api.CUdeviceptr(address), self.current().native
            self.driver.call("cuMemsetD8Async", place, byte, size, stream)
            self.settle()

    def copy_within(self, address: int, source: int, size: int) -> None:
        """From one place of the device's memory to another."""
        self.activate()
        places = (self.driver.api.CUdeviceptr(a) for a in (address, source))
        self.driver.call("cuMemcpyDtoDAsync", *places, size, self.current().native)
        self.settle()

    def copy_all(self, pairs: Sequence[tuple[int, Any]]) -> None:
        """Through pinned memory, neighbours together."""
        from tactix_cuda.pinned import upload

        upload(self, pairs)

    @functools.cached_property
    def pinned(self) -> PinnedAllocator:
        """Of host memory that it reads and writes by itself."""
        from tactix_cuda.pinned import PinnedAllocator

        return PinnedAllocator(self)

    def weight_update(
        self, allocator: Allocator, fresh: Mapping[str, Any], homes: Mapping[str, int]
    ) -> WeightUpdate:
        """How other content gets to weights that contexts use: bytes in pinned memory to addresses,
        by blob.
        """
        from tactix_cuda.weight_update import WeightUpdate

        return WeightUpdate(self, allocator, fresh, homes)

    def streamed(
        self, plan: Plan, blobs: Sequence[str], allocator: Allocator, logger: Logger
    ) -> Windows:
        """Weights of an engine that need not all be on the device, if a budget says so."""
        from tactix_cuda.weight_windows import Windows

        return Windows(plan, blobs, self, allocator, logger)

    def ordinal_of(self, address: int) -> int:
        """The device whose memory an address is in. Raises CudaFailure for none."""
        self.activate()
        key = self.driver.api.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        return int(self.driver.call("cuPointerGetAttribute", key, address))

    def exchange(self, allocator: Allocator) -> CudaExchange:
        from tactix_cuda.caller_arrays import CudaExchange

        return CudaExchange(self, allocator)

    # -- running ----------------------------------------------------------------------------------

    def link(
        self, steps: Sequence[Step], launchers: Mapping[str, Launcher], ctx: LinkContext
    ) -> Runnable:
        """Consecutive steps are one graph where all their launchers make graphs. Raises
        ExecutionError.
        """
        self.activate()  # libraries take the current device for theirs
        parts: list[Runnable] = []
        for key, group in groupby(steps, key=lambda s: _graph_or(launchers, s.artifact.launcher)):
            own = list(group)
            if not key:
                graphs = [(launchers[s.artifact.launcher], s) for s in own]
                parts.append(link(graphs, ctx))  # type: ignore[arg-type]
                continue
            found = launchers.get(key)
            if found is None or found.device != self.kind:
                why = f"it is for {found.device}" if found else "there is none"
                raise ExecutionError(
                    f"launcher {key!r} cannot run on {self.kind}", who=own[0].name, why=why
                )
            parts.append(found.link(own, ctx))
        return parts[0] if len(parts) == 1 else Segments(parts)

    def link_timed(
        self, steps: Sequence[Step], launchers: Mapping[str, Launcher], ctx: LinkContext
    ) -> TimedRunnable:
        """Raises ExecutionError."""
        from tactix_cuda.prefixes import timed_steps

        def in_graph(step: Step) -> bool:
            return not _graph_or(launchers, step.artifact.launcher)

        return timed_steps(self, steps, launchers, ctx, in_graph)

    def timed(self, runnable: Runnable) -> float:
        """Between two events in the stream that is under way, as the whole run would be."""
        begin, end = self.create_event(), self.create_event()
        stream = self.current()
        begin.record(stream)
        runnable()
        end.record(stream)
        return end.elapsed(begin)

    def measure(self, runnable: Runnable, times: int) -> float:
        """Between two events, after some runs that are not counted."""
        begin, end = self.create_event(), self.create_event()
        stream = self.current()

        def work() -> None:
            runnable.repeat(min(times, WARM))
            begin.record(stream)
            runnable.repeat(times)
            end.record(stream)

        stream.submit(work)
        return end.elapsed(begin)


def _graph_or(launchers: Mapping[str, Launcher], key: str) -> str:
    """Empty for a launcher that makes graphs, else the key."""
    found = launchers.get(key)
    return "" if isinstance(found, GraphLauncher) and found.device == CudaDevice.kind else key


@functools.cache
def the_device() -> CudaDevice:
    """The first of this process, shared by all that need it; it knows its siblings. Nothing is
    asked of the driver yet.
    """
    return CudaDevice()
