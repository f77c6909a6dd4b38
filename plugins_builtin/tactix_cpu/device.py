"""The host's own processor: always there, and the default."""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tactix.base.arithmetic import Evaluator, IntegerArithmetic
from tactix.base.cores import usable_cores
from tactix.base.errors import ExecutionError, InvalidArgument
from tactix.base.host_memory import physical_memory
from tactix.contracts.device import Device, DeviceProperties, Stream
from tactix.contracts.launcher import Launcher, LinkContext, Runnable, Step
from tactix.run.segments import Segments
from tactix_cpu.features import ARM, BASELINE, MASK, X86, vector_bits

if TYPE_CHECKING:
    from concurrent.futures import Future

    from tactix_isolate.bench import CpuBench

CPUINFO = Path("/proc/cpuinfo")


class CallerStream:
    """Handle 0: work is done at once on the calling thread."""

    handle = 0

    def submit(self, work: Callable[[], None]) -> None:
        work()

    def synchronize(self) -> None: ...


class WorkerStream:
    """A thread that works off its queue in order. Failed work does not stop what follows it."""

    _handles = count(1)

    def __init__(self) -> None:
        from concurrent.futures import ThreadPoolExecutor

        self.handle = next(self._handles)
        self._worker = ThreadPoolExecutor(1, f"tactix-stream-{self.handle}")
        self._lock = threading.Lock()
        self._pending: list[Future[None]] = []

    def submit(self, work: Callable[[], None]) -> None:
        with self._lock:
            self._pending = [f for f in self._pending if not f.done() or f.exception()]
            self._pending.append(self._worker.submit(work))

    def synchronize(self) -> None:
        """Wait for all work so far; raises the first error since the last wait."""
        with self._lock:
            waiting, self._pending = self._pending, []
        errors = [e for f in waiting if (e := f.exception())]
        if errors:
            raise errors[0]


class CpuEvent:
    """A mark in a stream, with the time at which it was reached."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._seconds = 0.0

    def record(self, stream: Stream) -> None:
        self._reached = reached = threading.Event()

        def mark() -> None:
            self._seconds = time.perf_counter()
            reached.set()

        stream.submit(mark)

    def synchronize(self) -> None:
        self._reached.wait()

    def elapsed(self, earlier: Any) -> float:
        """Seconds since the earlier event; waits for both."""
        earlier.synchronize()
        self.synchronize()
        return self._seconds - float(earlier._seconds)


class CpuDevice(Device):
    """Streams are worker threads; memory is the host's."""

    key = "tactix.cpu@1"
    kind = "cpu"
    host_memory = True

    def __init__(self) -> None:
        self._caller = CallerStream()
        self._streams: weakref.WeakValueDictionary[int, WorkerStream] = (
            weakref.WeakValueDictionary()
        )

    @property
    def bench(self) -> type[CpuBench]:
        """What tries and times candidates on it."""
        from tactix_isolate.bench import CpuBench

        return CpuBench

    def target(self, name: str) -> DeviceProperties:
        from tactix_cpu.levels import target

        return target(name)

    def properties(self) -> DeviceProperties:
        return _properties()

    def create_stream(self) -> Stream:
        stream = WorkerStream()
        self._streams[stream.handle] = stream
        return stream

    def create_event(self) -> CpuEvent:
        return CpuEvent()

    def stream_of(self, stream: Any) -> Stream:
        """The caller's own thread for 0, else a stream or its handle, still referenced. Raises
        InvalidArgument.
        """
        handle = getattr(stream, "handle", stream)
        if handle == 0:
            return self._caller
        found = self._streams.get(handle)
        if found is None:
            raise InvalidArgument(
                f"no stream has handle {handle}", who=self.key, do="Keep the stream referenced"
            )
        return found

    def copy_in(self, address: int, array: Any) -> None:
        import numpy as np

        source = np.ascontiguousarray(array)
        ctypes.memmove(address, source.__array_interface__["data"][0], source.nbytes)

    def copy_all(self, pairs: Sequence[tuple[int, Any]]) -> None:
        """By several threads."""
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor() as pool:
            list(pool.map(self.copy_in, *zip(*pairs)))

    def copy_out(self, array: Any, address: int) -> None:
        """``array`` must be contiguous and writable. Raises InvalidArgument."""
        if not (array.flags.c_contiguous and array.flags.writeable):
            raise InvalidArgument(
                "cannot copy into an array that is read-only or not contiguous", who=self.key
            )
        ctypes.memmove(array.__array_interface__["data"][0], address, array.nbytes)

    def evaluator(self, arithmetic: IntegerArithmetic, steps: Sequence[Step]) -> Evaluator:
        """By the executor of the plan's machine code. Raises ExecutionError."""
        from tactix_cpu.launcher import evaluator

        return evaluator(arithmetic, steps)

    def link(
        self, steps: Sequence[Step], launchers: Mapping[str, Launcher], ctx: LinkContext
    ) -> Runnable:
        """Consecutive steps of one launcher are its to run as one. Raises ExecutionError."""
        parts: list[Runnable] = []
        for key, group in groupby(steps, key=lambda s: s.artifact.launcher):
            own = list(group)
            if key not in launchers:
                raise ExecutionError(
                    f"no launcher {key!r}", who=own[0].name, do=f"There are: {', '.join(launchers)}"
                )
            parts.append(launchers[key].link(own, ctx))
        return parts[0] if len(parts) == 1 else Segments(parts)


def _properties() -> DeviceProperties:
    """This processor as far as the environment's mask leaves it. Raises ConfigError for one that is
    none.
    """
    return _masked_properties(os.environ.get(MASK, ""))


@functools.cache
def _masked_properties(mask: str) -> DeviceProperties:
    """This processor under a mask; its name tells of one that takes something away."""
    whole = _processor()
    if not mask:
        return whole
    from tactix_cpu.mask import masked

    left = masked(whole.features, mask)
    if left == whole.features:
        return whole
    return replace(
        whole, name=f"{whole.name} ({MASK}={mask})", features=left, vector_bits=vector_bits(left)
    )


@functools.cache
def _processor() -> DeviceProperties:
    arch = platform.machine().lower()
    name, flags = _cpuinfo()
    features = (X86 & flags) | {ARM[f] for f in flags & ARM.keys()} or BASELINE.get(
        arch, frozenset()
    )
    if "amx_tile" in features and not _tiles_allowed():
        features = frozenset(f for f in features if not f.startswith("amx_"))
    caches = _caches()
    return DeviceProperties(
        kind="cpu",
        name=name or platform.processor() or arch,
        features=frozenset(features),
        vector_bits=vector_bits(features),
        cores=usable_cores(),
        memory=physical_memory(),
        facts={"arch": arch, "system": platform.system().lower(), **caches},
        tuned_to={
            cache: size for cache, size in caches.items() if cache != "l3"
        },  # of which a virtual machine sees any part
    )


def _tiles_allowed() -> bool:
    """Whether Linux lets this process use AMX tiles, which it must be asked for; x86-64 only.

    It must, as their 8 KiB make a thread's saved state larger (Linux, Documentation/arch/x86/
    xstate.rst): SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, and the state's number in XCR0.
    """
    arch_prctl, request_permission, tile_data = 158, 0x1023, 18
    try:
        return int(ctypes.CDLL(None).syscall(arch_prctl, request_permission, tile_data)) == 0
    except (OSError, AttributeError):
        return False


def _cpuinfo() -> tuple[str, frozenset[str]]:
    """Model name and flags of the first processor, as Linux tells them."""
    fields: dict[str, str] = {}
    for line in CPUINFO.read_text().split("\n") if CPUINFO.exists() else ():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip().lower(), value.strip())
    return fields.get("model name", ""), frozenset(
        (fields.get("flags") or fields.get("features") or "").split()
    )


def _caches() -> dict[str, int]:
    """Bytes of the data caches, ``l1d``, ``l2``, ``l3``, as far as the system tells them."""
    out = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            level, kind, size = (
                index.joinpath(f).read_text().strip() for f in ("level", "type", "size")
            )
            if kind != "Instruction":
                out["l1d" if level == "1" else f"l{level}"] = int(size.rstrip("K")) * 1024
        except (OSError, ValueError):
            continue
    return out
