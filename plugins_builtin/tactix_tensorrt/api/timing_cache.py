"""ITimingCache: what was measured, as bytes that programs keep: tactix's own file of timings."""

from __future__ import annotations

import json

from tactix_tensorrt.api.values import IHostMemory

EMPTY = b'{"version": 1, "timings": {}}'


class ITimingCache:
    """Made by ``IBuilderConfig.create_timing_cache``. ``content``: the file's bytes."""

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
        self.content = json.dumps(own, indent=0, sort_keys=True).encode()
        return True

    def reset(self) -> bool:
        """Forget everything."""
        self.content = EMPTY
        return True

    def __enter__(self) -> ITimingCache:
        return self

    def __exit__(self, *_: object) -> None: ...
