"""What candidates of a build are compiled and measured by, wherever that is done."""

from __future__ import annotations

from tactix.contracts.device import Device
from tactix.contracts.launcher import LinkContext
from tactix.plugins.session import Session
from tactix.run.link import allocator_of
from tactix.select.bench import Bench
from tactix.select.compile import Toolchain


def toolchain_of(session: Session, device: Device, level: int) -> Toolchain:
    """The compilers for a device: the quick ones for a build that measures nothing."""
    own = {key for key, launcher in session.launchers.items() if launcher.device == device.kind}
    able = [c for c in session.active_compilers() if c.launcher in own]
    return Toolchain(able if level else [c.quick() for c in able])


def bench_of(session: Session, linked: LinkContext, here: bool) -> Bench:
    """What measures candidates; without memory of the device where that is not here."""
    allocator = allocator_of(session, linked.device) if here else None
    kind = linked.device.bench or Bench
    made: Bench = kind(linked, session.launchers, allocator, session.strangers())
    return made
