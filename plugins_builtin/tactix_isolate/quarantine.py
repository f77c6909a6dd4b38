"""The quarantine: a file of kernels that failed a trial on a machine, so that no later build there
tries them again.

A record is JSON: ``kind`` (crash, exit, outside, hang, wrong), ``reason`` in words, ``tactic``,
``variant``, ``pack``, ``version``, ``node``, ``layer``, ``shapes``, ``when``, ``tactix``, what the
process ``said`` at last, and ``case``: all that ``record.replay`` needs to do it again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from tactix.base.errors import InvalidArgument, punctuated
from tactix.base.files import make_private, read_own, replacing
from tactix.base.logger import Logger
from tactix.contracts.device import DeviceProperties

VERSION = 1
ID = 12
"""Digits of a key that name a record."""

Record = Mapping[str, Any]
Records = dict[str, Record]


def default_path() -> Path:
    """Beside the user's own timing cache."""
    from tactix.select import timing_cache

    return timing_cache.default_path().with_name("quarantine.json")


def key_of(artifact: str, provider: str, properties: DeviceProperties) -> str:
    """The key of an artifact's digest on a machine. ``provider``: who runs it, if that is not
    tactix.
    """
    p = properties
    machine = [p.kind, p.name, sorted(p.features), p.facts.get("arch"), p.facts.get("system")]
    return hashlib.sha256(json.dumps([artifact, provider, machine]).encode()).hexdigest()[:40]


class Quarantine:
    """Records by key. ``path`` None keeps them in memory. A file that is broken, or that others own
    or can write, costs a warning, and the next change replaces it. ``warn``: takes the warning.
    """

    def __init__(self, path: Path | None = None, warn: Callable[[str], None] | None = None) -> None:
        self.path = path
        self._warn = warn or Logger().warning
        self._records: Records | None = None

    @property
    def records(self) -> Records:
        """As they were when first asked for, and what was added since."""
        if self._records is None:
            self._records = _read(self.path, self._warn)
        return self._records

    def add(self, key: str, record: Record) -> None:
        self.records[key] = record
        self._change(lambda found: found | {key: record})

    def find(self, start: str) -> tuple[str, Record]:
        """The record whose key begins so. Raises InvalidArgument unless there is exactly one."""
        fit = [k for k in self.records if k.startswith(start)]
        if len(fit) != 1:
            known = ", ".join(k[:ID] for k in fit or self.records) or "none"
            raise InvalidArgument(
                f"{len(fit)} records begin with {start!r}", do=f"There are: {known}"
            )
        return fit[0], self.records[fit[0]]

    def clear(self, keys: Iterable[str] | None = None) -> int:
        """Forget those records, or all; how many they were."""
        gone = set(self.records if keys is None else keys) & self.records.keys()
        self._records = {k: r for k, r in self.records.items() if k not in gone}
        self._change(lambda found: {k: r for k, r in found.items() if k not in gone})
        return len(gone)

    def _change(self, change: Callable[[Records], Records]) -> None:
        """Under a lock, by an atomic rename."""
        if self.path is None:
            return
        from filelock import FileLock

        make_private(self.path.parent)
        with FileLock(f"{self.path}.lock"):
            entries = dict(sorted(change(_read(self.path, lambda text: None)).items()))
            with replacing(self.path, 0o600) as f:
                f.write(json.dumps({"version": VERSION, "entries": entries}, indent=1).encode())


def _read(path: Path | None, warn: Callable[[str], None]) -> Records:
    try:
        j: Any = json.loads(read_own(path)) if path else {"version": VERSION, "entries": {}}
        if j["version"] != VERSION:
            raise ValueError(f"version {j['version']}, this tactix reads {VERSION}")
        return {str(k): {**r, "reason": str(r["reason"])} for k, r in j["entries"].items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        told = f"{path}: cannot read the quarantine: {e}"
        do = "What failed before is tried again; a build that finds something bad writes it anew"
        warn(punctuated((told, do)))
        return {}
