"""What builds, engines and contexts take of memory, in the log, as TensorRT tells it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tactix.base.host_memory import resident
from tactix.base.logger import LogEvent, Logger, Severity
from tactix.contracts.device import Device

MIB = 1 << 20


@contextmanager
def memory_told(logger: Logger, what: str, device: Device | None) -> Iterator[None]:
    """Tells, at INFO, what is in use at the beginning and at the end of a block, and by how much
    that changed. ``device``: None for one that is not here. Nothing is asked where nobody hears.
    """
    if not logger.hears(Severity.INFO):
        yield
        return
    before = _used(device)
    _tell(logger, "Init", what, before, before)
    try:
        yield
    finally:
        _tell(logger, "End", what, before, _used(device))


def _used(device: Device | None) -> tuple[int, int]:
    """Bytes of this process in the host's memory, and what is taken of the device's own."""
    return resident(), 0 if device is None else device.memory_used()


def _tell(
    logger: Logger, phase: str, what: str, before: tuple[int, int], now: tuple[int, int]
) -> None:
    (cpu, gpu), more = now, [b - a for a, b in zip(before, now, strict=True)]
    text = (
        f"[MemUsageChange] {phase} {what}: CPU {_mib(more[0]):+d}, GPU {_mib(more[1]):+d}, "
        f"now: CPU {_mib(cpu)}, GPU {_mib(gpu)} (MiB)"
    )
    fields = {
        "phase": phase.lower(),
        "of": what,
        "host_bytes": cpu,
        "host_bytes_more": more[0],
        "device_bytes": gpu,
        "device_bytes_more": more[1],
    }
    logger.tell(Severity.INFO, LogEvent("memory", text, fields))


def _mib(nbytes: int) -> int:
    return round(nbytes / MIB)
