"""The pack under test: its distribution, its plugins, and what they provide in a session of their
own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tactix.base.errors import InvalidArgument
from tactix.contracts.device import Device
from tactix.contracts.launcher import LinkContext
from tactix.contracts.tactic import Tactic
from tactix.plugins.hookspecs import HOOKS
from tactix.plugins.identity import called
from tactix.plugins.loader import Found, reset_scan, scan
from tactix.plugins.names import OWN
from tactix.plugins.registry import KINDS, Entry
from tactix.plugins.session import Session
from tactix.select.bench import Bench

THREADS = 2
"""Of what a check runs."""


def provided(plugin: object, group: str) -> list[str]:
    """The registries that the hooks of a plugin give to in an entry-point group, in their order."""
    return [n for n in KINDS if f"tactix_{n}" in HOOKS[group] and hasattr(plugin, f"tactix_{n}")]


@dataclass(frozen=True)
class Subject:
    """``dist``: the name of an installed distribution, its namespace, or a part of that,
    ``namespace.part``. ``beyond``: its tactics that no example reaches and that do not say so
    themselves, and why. ``without``: keys of objects that are left out.

    Raises InvalidArgument where it has no plugins.
    """

    dist: str
    beyond: Mapping[str, str] = field(default_factory=dict, hash=False)
    without: frozenset[str] = frozenset()

    @cached_property
    def found(self) -> tuple[Found, ...]:
        """Its entry points, of both groups."""
        mine = [f for f in scan() if self.owns(f)]
        if not mine:
            reset_scan()
            mine = [f for f in scan() if self.owns(f)]
        if not mine:
            raise InvalidArgument(
                f"no plugins of {self.dist!r} are installed",
                why="no distribution, namespace or part of that name has an entry point in "
                "tactix.build.v1 or tactix.runtime.v1",
                do="pip install -e . in its folder; `tactix plugins list` shows what is found",
            )
        return tuple(mine)

    def owns(self, thing: Found | Entry[Any]) -> bool:
        """Whether an entry point, or an object in a registry, is of the pack."""
        return called(self.dist, thing.namespace, thing.provider.dist, thing.part)

    @property
    def dists(self) -> tuple[str, ...]:
        """Names of the distributions that it is in."""
        return tuple(sorted({f.provider.dist for f in self.found}))

    @property
    def namespaces(self) -> tuple[str, ...]:
        return tuple(sorted({f.namespace for f in self.found}))

    @property
    def modules(self) -> tuple[str, ...]:
        """Those that the entry points name."""
        return tuple(sorted({f.module.partition(":")[0].strip() for f in self.found}))

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(sorted({f.group for f in self.found}))

    @cached_property
    def session(self) -> Session:
        """Everything that building needs, with this pack's rules and tactics enabled; a plugin that
        fails raises.
        """
        return self.fresh("build")

    def provides(self, group: str) -> list[str]:
        """The registries that its hooks in an entry-point group give to."""
        plugins = [f.load() for f in self.found if f.group == group]
        return [name for name in KINDS if any(name in provided(p, group) for p in plugins)]

    def fresh(self, group: str, strict: bool = True) -> Session:
        """A new session of an entry-point group, with nothing but this pack beside tactix.

        ``strict``: PluginError is raised for the first plugin that fails.
        """
        reached = [f for f in self.found if group in ("build", f.group)]
        packs = sorted({f.namespace for f in reached if f.namespace != OWN})
        return Session(group=group, only=[OWN, *packs], enable=packs, strict=strict)

    def entries(self, registry: str, session: Session | None = None) -> list[Entry[Any]]:
        """What the pack provides in a registry: ``layers``, ``rules``, ``tactics``,
        ``launchers``...
        """
        provided = getattr(session or self.session, registry)
        return [e for e in provided.entries() if self.owns(e)]

    def objects(self, registry: str) -> Iterator[Any]:
        return (e.object for e in self.entries(registry) if e.key not in self.without)

    def excuse(self, tactic: Tactic) -> str:
        """Why no example reaches a tactic; empty for one that an example must reach."""
        return tactic.beyond or self.beyond.get(tactic.key, "")

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
