"""The pack under test: its distribution, its plugins, and what they provide in a session of their
own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tactix.contracts.device import Device
from tactix.contracts.launcher import LinkContext
from tactix.plugins.identity import normal
from tactix.plugins.loader import Found, reset_scan, scan
from tactix.plugins.registry import Entry
from tactix.plugins.session import Session
from tactix.select.bench import Bench
from tactix.words.errors import InvalidArgument

THREADS = 2
"""Of what a check runs."""


@dataclass(frozen=True)
class Subject:
    """``dist``: the name of an installed distribution. ``beyond``: its tactics that no example
    reaches, and why. ``without``: keys of objects that are left out.

    Raises InvalidArgument where it has no plugins.
    """

    dist: str
    beyond: Mapping[str, str] = field(default_factory=dict, hash=False)
    without: frozenset[str] = frozenset()

    @cached_property
    def found(self) -> tuple[Found, ...]:
        """Its entry points, of both groups."""
        mine = [f for f in scan() if normal(f.provider.dist) == normal(self.dist)]
        if not mine:
            reset_scan()
            mine = [f for f in scan() if normal(f.provider.dist) == normal(self.dist)]
        if not mine:
            raise InvalidArgument(
                f"no plugins of {self.dist!r} are installed",
                why="no distribution of that name has an entry point in tactix.build.v1 or tactix.runtime.v1",
                do="pip install -e . in its folder; `tactix plugins list` shows what is found",
            )
        return tuple(mine)

    @property
    def namespaces(self) -> tuple[str, ...]:
        return tuple(sorted({f.namespace for f in self.found}))

    @property
    def modules(self) -> tuple[str, ...]:
        """Those that the entry points name."""
        return tuple(sorted({f.module for f in self.found}))

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(sorted({f.group for f in self.found}))

    @cached_property
    def session(self) -> Session:
        """Everything that building needs, with this pack's rules and tactics enabled; a plugin that
        fails raises.
        """
        return self.fresh("build")

    def fresh(self, group: str) -> Session:
        """A new session of an entry-point group, with nothing but this pack beside tactix. Raises
        PluginError.
        """
        foreign = sorted(
            {f.namespace for f in self.found if f.group == group and f.namespace != "tactix"}
        )
        return Session(group=group, only=["tactix", *foreign], enable=foreign, strict=True)

    def entries(self, registry: str, session: Session | None = None) -> list[Entry[Any]]:
        """What the pack provides in a registry: ``layers``, ``rules``, ``tactics``,
        ``launchers``...
        """
        held = getattr(session or self.session, registry)
        return [e for e in held.entries() if normal(e.provider.dist) == normal(self.dist)]

    def objects(self, registry: str) -> Iterator[Any]:
        return (e.object for e in self.entries(registry) if e.key not in self.without)

    def bench(self, device: Device) -> Bench:
        """A device's bench that takes the pack for a stranger, and writes nothing down; one for all
        checks.
        """
        if device.key not in self._benches:
            session = self.session
            link = LinkContext(
                device, THREADS, session.layers.__getitem__, warn=lambda message: None
            )
            allocators = [a for a in session.allocators.values() if a.device == device.kind]
            entries = (*self.entries("tactics"), *self.entries("launchers"))
            made = (device.bench or Bench)(
                link,
                session.launchers,
                None if device.host_memory else allocators[0],
                {e.key: e.provider for e in entries},
            )
            made.keep_nothing()
            self._benches[device.key] = made
        return self._benches[device.key]

    @cached_property
    def _benches(self) -> dict[str, Bench]:
        return {}
