"""Which packs a session found, what became of each, and what it provides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tactix.base.errors import punctuated
from tactix.plugins.identity import Provider
from tactix.plugins.loader import Plugin
from tactix.plugins.registry import Clash, Entry
from tactix.plugins.session import Session, enable_cure


@dataclass(frozen=True)
class PackInfo:
    """One pack as ``tactix plugins list`` shows it.

    ``status``: ``active``, ``not enabled`` (some of what it has waits for that), ``clashing`` (some
    keys are left out), ``disabled``, ``incompatible``, ``failed``; ``groups``: of its entry points,
    ``build`` or ``runtime``; ``reason`` says why, ``cure`` what to do. ``counts``: its objects by
    registry. ``milliseconds``: spent in its code.
    """

    namespace: str
    dist: str
    version: str
    groups: tuple[str, ...]
    status: str
    reason: str = ""
    cure: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    milliseconds: float = 0.0
    part: str = ""

    @property
    def name(self) -> str:
        """``acme``, or ``acme.extras`` for a part of a namespace that has several packs."""
        return f"{self.namespace}.{self.part}" if self.part else self.namespace


def packs(session: Session) -> list[PackInfo]:
    """Every pack that was found or given, used or not, by namespace; asks all its hooks."""
    counts: dict[tuple[str, str, Provider], Counter[str]] = {}
    for name in session.kinds:
        for e in getattr(session, name).entries():
            counts.setdefault((e.namespace, e.part, e.provider), Counter())[name] += 1
    not_enabled = session.not_enabled()
    grouped: dict[tuple[str, str, Provider], list[Plugin]] = {}
    for p in session.found():
        grouped.setdefault((p.namespace, p.part, p.provider), []).append(p)
    found = [_info(grouped[k], counts.get(k, Counter()), not_enabled) for k in sorted(grouped)]
    return [_clashing(info, session.clashes()) for info in found]


def _clashing(info: PackInfo, clashes: Iterable[Clash]) -> PackInfo:
    """The pack, with the keys of it that are left out."""
    mine = [c.error() for c in clashes if lost_by(info, c)]
    if info.status not in ("active", "not enabled") or not mine:
        return info
    told = punctuated(dict.fromkeys(f"{e.what}: {e.why}" for e in mine), "; ")
    return replace(
        info, status="clashing", reason=told, cure=punctuated(dict.fromkeys(e.do for e in mine))
    )


def lost_by(info: PackInfo, clash: Clash) -> bool:
    """Whether the pack is one of those whose object is left out."""
    return any(_gave(info, e) for e in clash.left_out)


def _gave(info: PackInfo, e: Entry[Any]) -> bool:
    return (info.namespace, info.part, info.dist, info.version) == (
        e.namespace,
        e.part,
        e.provider.dist,
        e.provider.version,
    )


_WORST = ("failed", "incompatible", "disabled", "active")


def _info(same: list[Plugin], counts: Counter[str], not_enabled: Mapping[str, str]) -> PackInfo:
    p = min(same, key=lambda p: _WORST.index(p.status))
    status, reason, cure = p.status, p.reason, p.cure
    if status == "active" and p.namespace in not_enabled:
        status, reason = (
            "not enabled",
            f"{not_enabled[p.namespace]} disabled: they touch what others provide",
        )
        cure = enable_cure(p.namespace)
    groups = tuple(sorted({g for q in same for g in q.groups}))
    spent = sum(q.milliseconds for q in same)
    who = p.provider
    return PackInfo(
        p.namespace,
        who.dist,
        who.version,
        groups,
        status,
        reason,
        cure,
        dict(counts),
        spent,
        p.part,
    )
