"""ITimingCache: what was measured, as bytes that programs keep: tactix's own file of timings."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

from tactix_tensorrt.api.values import IHostMemory
from tactix_tensorrt.levels import at_this_level

EMPTY = b'{"version": 1, "timings": {}}'
_DIGITS = 16
"""Of a key that are its tactic's number, which has 64 bits."""


@dataclass(frozen=True)
class TimingCacheKey:
    """Of an entry: a kernel at the shapes, the device and the threads that it was measured with."""

    text: str

    @staticmethod
    def parse(text: str) -> TimingCacheKey:
        """What ``str`` of a key gives."""
        return TimingCacheKey(text)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class TimingCacheValue:
    """``tacticHash``: which kernel it is; ``timingMSec``: milliseconds, NaN where there is none."""

    tacticHash: int
    timingMSec: float


@at_this_level
class ITimingCache:
    """Made by ``IBuilderConfig.create_timing_cache``. ``content``: the file's bytes.

    An entry is of one kernel, not of what was chosen for a layer: another time of it may have
    another one chosen.
    """

    def __init__(self, content: bytes = b"") -> None:
        self.content = content or EMPTY

    def serialize(self) -> IHostMemory:
        return IHostMemory(self.content)

    def combine(self, input_cache: ITimingCache, ignore_mismatch: bool) -> bool:
        """Take what another one has, unless it is known here; False for what is no cache."""
        try:
            own, other = json.loads(self.content), json.loads(input_cache.content)
            own["timings"] = {**other["timings"], **own["timings"]}
        except (ValueError, KeyError, TypeError):
            return False
        self._keep(own)
        return True

    def reset(self) -> bool:
        """Forget everything."""
        self.content = EMPTY
        return True

    # -- entries ----------------------------------------------------------------------------------

    def queryKeys(self) -> list[TimingCacheKey]:
        """Raises RuntimeError for what is no cache."""
        try:
            return [TimingCacheKey(text) for text in json.loads(self.content)["timings"]]
        except (ValueError, KeyError, TypeError) as e:
            raise RuntimeError(f"this is no timing cache of tactix: {e}") from None

    def query(self, key: TimingCacheKey) -> TimingCacheValue:
        """Of a key; a time of NaN if there is no such entry. Raises RuntimeError, as
        ``queryKeys``.
        """
        if key not in self.queryKeys():
            return TimingCacheValue(0, math.nan)
        seconds = float(json.loads(self.content)["timings"][key.text][0])
        return TimingCacheValue(_number(key), seconds * 1e3)

    def update(self, key: TimingCacheKey, value: TimingCacheValue) -> bool:
        """Give an entry another time, or take it out for NaN; False where there is none, for a time
        that is none, and for another kernel's number. Raises RuntimeError, as ``queryKeys``.
        """
        if key not in self.queryKeys() or value.tacticHash != _number(key):
            return False
        whole, seconds = json.loads(self.content), value.timingMSec / 1e3
        if math.isnan(seconds):
            del whole["timings"][key.text]
        elif math.isfinite(seconds) and seconds >= 0:
            error = whole["timings"][key.text][2]
            whole["timings"][key.text] = [seconds, 0.0, error, 0.0]  # without any noise
        else:
            return False
        self._keep(whole)
        return True

    def _keep(self, whole: Mapping[str, object]) -> None:
        self.content = json.dumps(whole, indent=0, sort_keys=True).encode()

    def __enter__(self) -> ITimingCache:
        return self

    def __exit__(self, *_: object) -> None: ...


def is_cache(content: bytes) -> bool:
    """Whether bytes are a file of timings."""
    try:
        return isinstance(json.loads(content)["timings"], dict)
    except (ValueError, KeyError, TypeError):
        return False


def _number(key: TimingCacheKey) -> int:
    return int(key.text[:_DIGITS], 16)
