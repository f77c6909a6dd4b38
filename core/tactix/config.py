"""BuilderConfig and OptimizationProfile: all that a user can say about a build."""

from __future__ import annotations

import enum
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tactix.words.errors import ConfigError
from tactix.words.progress import ProgressMonitor, SilentProgress


class BuilderFlag(enum.Enum):
    """Switches of a build.

    ``EXACT_NUMERICS``: only rules that do not change rounding. ``LOWER_PRECISION``: also rules that lose precision.
    ``NO_FALLBACK``: a layer that only the reference tactic can run is an error. ``DEBUG``: check the network after
    every stage.
    """

    EXACT_NUMERICS = "exact_numerics"
    LOWER_PRECISION = "lower_precision"
    NO_FALLBACK = "no_fallback"
    DEBUG = "debug"


class MemoryPoolType(enum.Enum):
    """``WORKSPACE``: scratch bytes of one step, at the shapes tuned for."""

    WORKSPACE = "workspace"


@dataclass
class OptimizationProfile:
    """Ranges of input shapes: lowest, the one to tune for, highest. ``shapes``: by input name."""

    shapes: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict)

    def set_shape(self, name: str, min: Sequence[int], opt: Sequence[int], max: Sequence[int]) -> OptimizationProfile:
        """Set the range of one input; returns self. Raises ConfigError unless min <= opt <= max everywhere."""
        rows = (tuple(min), tuple(opt), tuple(max))
        if len({len(r) for r in rows}) != 1 or any(not a <= b <= c for a, b, c in zip(*rows, strict=True)):
            raise ConfigError(f"profile of {name!r}: min {rows[0]}, opt {rows[1]}, max {rows[2]} are not in order")
        self.shapes[name] = rows
        return self


@dataclass
class BuilderConfig:
    """Settings of a build; every field has a default that works.

    ``builder_optimization_level``: 0 chooses by estimate and measures nothing; 1 measures one variant of every tactic,
    2 two, 3 four, 4 eight, 5 all. ``tactic_sources``: names of families that may bid, None for all.
    ``timing_cache``: a file, None for the user's own, False for none. ``frozen``: a timing that is not in the cache is
    an error. ``budget``: seconds after which measuring stops. ``threads``: of one inference; 0 means TACTIX_NUM_THREADS
    or all usable cores. ``enabled``: packs that may touch layers of others. ``target``: what to build for, if not this
    machine's device as it is: ``x86-64-v3``, ``sm_90``; what cannot run here is chosen by cached timings and estimates.
    """

    flags: set[BuilderFlag] = field(default_factory=set)
    memory_pool_limits: dict[MemoryPoolType, int] = field(default_factory=dict)
    tactic_sources: set[str] | None = None
    builder_optimization_level: int = 3
    profiles: list[OptimizationProfile] = field(default_factory=list)
    timing_cache: str | Path | bool | None = None
    frozen: bool = False
    budget: float = float("inf")
    threads: int = 0
    device: str = "tactix.cpu@1"
    target: str = ""
    enabled: set[str] = field(default_factory=set)
    progress_monitor: ProgressMonitor = field(default_factory=SilentProgress)

    def set_memory_pool_limit(self, pool: MemoryPoolType, size: int) -> None:
        """Limit a pool to so many bytes. Raises ConfigError if not positive."""
        if size <= 0:
            raise ConfigError(f"memory pool {pool.value}: {size} bytes", do="Give a positive number")
        self.memory_pool_limits[pool] = size

    def add_optimization_profile(self, profile: OptimizationProfile) -> int:
        """Add a profile; returns its index."""
        self.profiles.append(profile)
        return len(self.profiles) - 1

    def enable(self, pack: str) -> None:
        """Let a pack's rules and tactics touch layers that are not its own."""
        self.enabled.add(pack)

    def check(self) -> None:
        """Raises ConfigError for settings that make no sense."""
        if self.builder_optimization_level not in range(6):
            raise ConfigError(f"builder_optimization_level {self.builder_optimization_level}", do="Choose 0 to 5")
        if self.budget < 0 or self.threads < 0:
            raise ConfigError(f"budget {self.budget} s, {self.threads} threads", do="Neither can be negative")
        if {BuilderFlag.EXACT_NUMERICS, BuilderFlag.LOWER_PRECISION} <= self.flags:
            raise ConfigError("EXACT_NUMERICS and LOWER_PRECISION contradict each other")
        if self.frozen and self.timing_cache is False:
            raise ConfigError("frozen needs a timing cache")

    @property
    def numerics(self) -> frozenset[str]:
        """Kinds of rules that may fire."""
        allowed = {"exact"}
        if BuilderFlag.EXACT_NUMERICS not in self.flags:
            allowed.add("reassociates")
        if BuilderFlag.LOWER_PRECISION in self.flags:
            allowed.add("lower-precision")
        return frozenset(allowed)

    def thread_count(self, cores: int) -> int:
        """Intra-op threads of a device with so many cores. Raises ConfigError for a bad TACTIX_NUM_THREADS."""
        text = os.environ.get("TACTIX_NUM_THREADS", "")
        if self.threads or not text:
            return self.threads or cores
        if not text.isdigit() or int(text) < 1:
            raise ConfigError(f"TACTIX_NUM_THREADS is {text!r}", do="Set it to a positive integer")
        return int(text)
