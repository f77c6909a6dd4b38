"""What compares a refitted engine with one built anew; the models are importable from here."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tactix
from tactix import BuilderFlag

sys.path.insert(0, str(Path(__file__).parent))

Feeds = dict[str, np.ndarray]
Model = Callable[[int], bytes]
REFIT = {BuilderFlag.REFIT}


def built(content: bytes, flags: set[BuilderFlag] = REFIT, **options: Any) -> tactix.Engine:
    return tactix.build(content, flags=flags, level=0, timing_cache=False, threads=1, **options)


def constants(engine: tactix.Engine) -> dict[str, bytes]:
    """What the plan stores, by name."""
    return {b.blob: bytes(engine.plan.blobs[b.blob]) for b in engine.plan.buffers if b.blob}


def run(engine: tactix.Engine, feeds: Feeds) -> Feeds:
    return engine.create_execution_context().run(feeds)


def assert_same(got: Feeds, want: Feeds) -> None:
    assert got.keys() == want.keys()
    for name in want:
        np.testing.assert_array_equal(got[name], want[name], name)
