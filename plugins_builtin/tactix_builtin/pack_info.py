"""Which packs a session found, what became of each, and what it provides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from tactix.plugins.identity import Provider
from tactix.plugins.loader import Plugin
from tactix.plugins.session import Session, enable_cure


@dataclass(frozen=True)
class PackInfo:
    """One pack as ``tactix plugins list`` shows it.

    ``status``: ``active``, ``inert`` (some of what it has is), ``disabled``, ``incompatible``, ``tombstone``;
    ``reason`` says why, ``cure`` what to do. ``counts``: its objects by registry. ``milliseconds``: spent in its code.
    """

    namespace: str
    dist: str
    version: str
    doors: tuple[str, ...]
    status: str
    reason: str = ""
    cure: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    milliseconds: float = 0.0


def packs(session: Session) -> list[PackInfo]:
    """Every pack that was found or given, used or not, by namespace; asks all its hooks."""
    counts: dict[tuple[str, Provider], Counter[str]] = {}
    for name in session.kinds:
        for e in getattr(session, name).entries():
            counts.setdefault((e.namespace, e.provider), Counter())[name] += 1
    inert = session.inert()
    groups: dict[tuple[str, Provider], list[Plugin]] = {}
    for p in session.found():
        groups.setdefault((p.namespace, p.provider), []).append(p)
    return [_info(groups[k], counts.get(k, Counter()), inert) for k in sorted(groups)]


_WORST = ("tombstone", "incompatible", "disabled", "active")


def _info(group: list[Plugin], counts: Counter[str], inert: Mapping[str, str]) -> PackInfo:
    p = min(group, key=lambda p: _WORST.index(p.status))
    status, reason, cure = p.status, p.reason, p.cure
    if status == "active" and p.namespace in inert:
        status, reason = "inert", f"{inert[p.namespace]} on the ground of others"
        cure = enable_cure(p.namespace)
    doors = tuple(sorted({d for q in group for d in q.doors}))
    spent = sum(q.milliseconds for q in group)
    who = p.provider
    return PackInfo(p.namespace, who.dist, who.version, doors, status, reason, cure, dict(counts), spent)
