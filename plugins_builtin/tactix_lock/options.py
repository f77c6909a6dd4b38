"""The options of a build as JSON, those that decide what comes out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from tactix.base.errors import LockError
from tactix.config import (
    BuilderConfig,
    BuilderFlag,
    MemoryPoolType,
    OptimizationProfile,
    ProfilingVerbosity,
)

APART = frozenset(
    {
        "timing_cache",
        "frozen",
        "budget",
        "trial_budget",
        "selector",
        "workers",
        "sign",
        "progress_monitor",
    }
)
"""Options that change how a build goes, or how its plan is kept, or whose effect a lock holds."""

Decode = Callable[[Any], Any]
DECODERS: Mapping[str, Decode] = {
    "flags": lambda j: {BuilderFlag(f) for f in j},
    "memory_pool_limits": lambda j: {MemoryPoolType(pool): size for pool, size in j},
    "tactic_sources": lambda j: None if j is None else set(j),
    "profiles": lambda j: [_profile(p) for p in j],
    "enabled": set,
    "layer_precisions": dict,
    "preferred_precisions": frozenset,
    "profiling_verbosity": ProfilingVerbosity,
}
"""Where JSON has no such type; mappings are pairs, as their order may count."""


def locked(config: BuilderConfig) -> dict[str, Any]:
    """JSON of the options. Raises LockError for one that cannot be kept."""
    fields = (f.name for f in dataclasses.fields(config) if f.name not in APART)
    return {name: _encode(name, getattr(config, name)) for name in fields}


def restored(config: BuilderConfig, options: Mapping[str, Any]) -> tuple[BuilderConfig, list[str]]:
    """The configuration with those options, and where it was given others: what is left out is
    taken from them.
    """
    mine, default = locked(config), locked(BuilderConfig())
    unknown = [f"option {name}: this tactix has none" for name in options.keys() - mine.keys()]
    same = {name: options.get(name, default[name]) for name in mine}
    given = [name for name in mine if mine[name] not in (default[name], same[name])]
    differ = [f"option {name} is {mine[name]!r}, the lock has {same[name]!r}" for name in given]
    try:
        fields = {name: DECODERS.get(name, lambda j: j)(j) for name, j in same.items()}
    except (ValueError, TypeError, LookupError) as e:
        raise LockError("options that this tactix does not know", why=str(e)) from None
    return dataclasses.replace(config, **fields), sorted(unknown) + differ


def _encode(name: str, v: Any) -> Any:
    if v is None or isinstance(v, (bool, int, float, str)):
        return v
    if isinstance(v, Enum):
        return v.value
    if isinstance(v, OptimizationProfile):
        return _encode(name, v.shapes)
    if isinstance(v, (set, frozenset)):
        return sorted(_encode(name, x) for x in v)
    if isinstance(v, Mapping):
        return [[_encode(name, key), _encode(name, x)] for key, x in v.items()]
    if isinstance(v, (tuple, list)):
        return [_encode(name, x) for x in v]
    if isinstance(v, Path):
        return str(v)
    raise LockError(f"option {name} cannot be locked", why=f"it holds a {type(v).__name__}")


def _profile(pairs: Any) -> OptimizationProfile:
    profile = OptimizationProfile()
    for name, rows in pairs:
        profile.set_shape(name, *rows)
    return profile
