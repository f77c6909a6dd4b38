"""The timing cache: a JSON file of what was measured, shared between builds and processes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tactix.base.cache_folder import cache_folder
from tactix.base.errors import TimingCacheError
from tactix.base.files import EMPTY, make_private, read_own, read_regular, replacing
from tactix.base.logger import Logger

VERSION = 1
WHERE = (
    "Name another file with timing_cache (--timing-cache), or another folder with TACTIX_CACHE_DIR"
)


@dataclass(frozen=True)
class Timing:
    """Seconds of one run, relative spread, departure from the reference in units of its budget.

    ``delay``: by what share of itself it may be too long, as others used the machine when it was
    taken. A candidate that departs by more than its budget has infinite ``seconds``.
    """

    seconds: float
    spread: float
    error: float
    delay: float = 0.0

    @property
    def is_sound(self) -> bool:
        """Whether it can be of a measurement: nothing is negative or no number, and no time of a
        right one infinite.
        """
        known = all(x >= 0 for x in (self.seconds, self.spread, self.error, self.delay))
        finite = math.isfinite(self.spread) and math.isfinite(self.delay)
        return known and finite and (math.isfinite(self.seconds) or self.error > 1)


class TimingCache:
    """Timings by key. ``path`` None keeps them in memory.

    ``private``: the file is this user's own; one that others own or can write counts as none. A
    file that cannot be read costs a warning, and is replaced by the next ``save``. ``warn``: takes
    the warning.
    """

    def __init__(
        self,
        path: Path | None = None,
        private: bool = False,
        warn: Callable[[str], None] | None = None,
    ) -> None:
        self.path = path
        self._private = private
        self.entries: dict[str, Timing] = self._read(warn or Logger().warning) if path else {}
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
        """Merge what is new into the file, under a lock, by an atomic rename. Raises
        TimingCacheError.
        """
        if self.path is None or not self._new:
            return
        from filelock import FileLock

        try:
            if self._private:
                make_private(self.path.parent)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(str(self.path) + ".lock"):
                merged = {**self._read(lambda text: None), **self._new}
                rows = {
                    k: [t.seconds, t.spread, t.error, t.delay] for k, t in sorted(merged.items())
                }
                with replacing(self.path, 0o600 if self._private else 0o666) as f:
                    f.write(json.dumps({"version": VERSION, "timings": rows}, indent=0).encode())
        except OSError as e:
            what, do = "cannot write the timing cache", f"{WHERE}; the plan does not need it"
            raise TimingCacheError(what, who=str(self.path), why=str(e), do=do) from None
        self._new = {}

    def _read(self, warn: Callable[[str], None]) -> dict[str, Timing]:
        assert self.path is not None
        try:
            text = read_own(self.path) if self._private else read_regular(self.path)
            if not text:
                raise ValueError(EMPTY)
            return _timings(json.loads(text))
        except FileNotFoundError:
            return {}
        except (
            OSError,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            OverflowError,
            RecursionError,
        ) as e:
            do = "What was measured before is measured again"
            warn(
                str(
                    TimingCacheError(
                        "cannot read the timing cache", who=str(self.path), why=str(e), do=do
                    )
                )
            )
            return {}


def _timings(j: Any) -> dict[str, Timing]:
    """Those that can be of measurements."""
    if j["version"] != VERSION:
        raise ValueError(f"version {j['version']}, this tactix reads {VERSION}")
    found = {str(k): Timing(*map(float, row)) for k, row in j["timings"].items()}
    return {k: t for k, t in found.items() if t.is_sound}


def default_path() -> Path:
    """The user's own cache file."""
    return cache_folder() / "timings.json"
