"""The timing cache: a JSON file of what was measured, shared between builds and processes."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from tactix.words.errors import TimingCacheError
from tactix.words.files import replacing

VERSION = 1


@dataclass(frozen=True)
class Timing:
    """Seconds of one run, relative spread, departure from the reference in units of its budget.

    ``delay``: by what share of itself it may be too long, as others used the machine when it was taken.
    """

    seconds: float
    spread: float
    error: float
    delay: float = 0.0


class TimingCache:
    """Timings by key. ``path`` None keeps them in memory."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.entries: dict[str, Timing] = _read(path) if path and path.exists() else {}
        self._new: dict[str, Timing] = {}
        self.hits = self.misses = 0

    def get(self, key: str) -> Timing | None:
        found = self.entries.get(key)
        self.hits += found is not None
        self.misses += found is None
        return found

    def put(self, key: str, timing: Timing) -> None:
        self.entries[key] = self._new[key] = timing

    def save(self) -> None:
        """Merge what is new into the file, under a lock, by an atomic rename. Raises TimingCacheError."""
        if self.path is None or not self._new:
            return
        from filelock import FileLock

        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(str(self.path) + ".lock"):
                merged = {**(_read(self.path) if self.path.exists() else {}), **self._new}
                rows = {k: [t.seconds, t.spread, t.error, t.delay] for k, t in sorted(merged.items())}
                with replacing(self.path) as f:
                    f.write(json.dumps({"version": VERSION, "timings": rows}, indent=0).encode())
        except OSError as e:
            raise TimingCacheError("cannot write the timing cache", who=str(self.path), why=str(e)) from None
        self._new = {}


def _read(path: Path) -> dict[str, Timing]:
    try:
        j = json.loads(path.read_text())
        if j.get("version") != VERSION:
            raise ValueError(f"version {j.get('version')}, this tactix reads {VERSION}")
        return {str(k): Timing(*map(float, row)) for k, row in j["timings"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as e:
        do = "Delete it, or name another"
        raise TimingCacheError("cannot read the timing cache", who=str(path), why=str(e), do=do) from None


def default_path() -> Path:
    """The user's own cache file."""
    from platformdirs import user_cache_dir

    return Path(os.environ.get("TACTIX_CACHE_DIR") or user_cache_dir("tactix")) / "timings.json"
