"""BuilderConfig and OptimizationProfile: all that a user can say about a build."""

from __future__ import annotations

import enum
import functools
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from tactix.base.errors import ConfigError
from tactix.base.progress import ProgressMonitor, SilentProgress
from tactix.contracts.calibrator import Calibration
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.launcher import MOST_THREADS
from tactix.plan.reader import LIMIT
from tactix.run.shapes import shape_of
from tactix.select.contests import Workers
from tactix.select.enumerate import Bids, Candidate


class BuilderFlag(enum.Enum):
    """Switches of a build.

    ``EXACT_NUMERICS``: only rules that do not change rounding. ``FP16``, ``BF16``, ``TF32``: what
    is float32 in the model may be computed with that precision where it is faster; inputs and
    outputs keep their dtypes, as does what has other dtypes in the model. With both of 16 bits,
    FP16 where weights fit its range. ``INT8``: so may products with constant weights, by the ranges
    that ``calibration`` gives; a model that has QuantizeLinear operators needs no flag. ``FP8``:
    the same with float8 E4M3.
    ``NO_FALLBACK``: a layer that only the reference tactic can run is an error, beside a GPU, too.
    ``GPU_FALLBACK``: TensorRT's name of what happens without that flag; it changes nothing.
    ``VERSION_COMPATIBLE``: no tactic bids whose steps need the version of a vendor's library that
    the build had, and the plan holds the lean runtime, so that other versions can run it;
    ``EXCLUDE_LEAN_RUNTIME`` leaves that out. ``REFIT``: the plan takes other weights;
    ``REFIT_IDENTICAL``: only the same ones again. ``STRIP_PLAN`` beside one of them leaves weights
    out of the plan.
    ``WEIGHT_STREAMING``: engines may hold fewer bytes of weights than there are.
    ``RESERVE_STATES``: states that grow lie in memory that contexts reserve for them
    (``ExecutionContext.reserve``), so that a run appends to them and copies nothing.
    ``PROFILE_KERNELS``: every profile is tuned for, and has kernels of its own where that makes it
    faster. ``DEBUG``: check the network after every stage.
    """

    EXACT_NUMERICS = "exact_numerics"
    FP16 = "fp16"
    BF16 = "bf16"
    TF32 = "tf32"
    INT8 = "int8"
    FP8 = "fp8"
    NO_FALLBACK = "no_fallback"
    GPU_FALLBACK = "gpu_fallback"
    VERSION_COMPATIBLE = "version_compatible"
    EXCLUDE_LEAN_RUNTIME = "exclude_lean_runtime"
    REFIT = "refit"
    REFIT_IDENTICAL = "refit_identical"
    STRIP_PLAN = "strip_plan"
    WEIGHT_STREAMING = "weight_streaming"
    RESERVE_STATES = "reserve_states"
    PROFILE_KERNELS = "profile_kernels"
    DEBUG = "debug"


PRECISIONS = {BuilderFlag.FP16, BuilderFlag.BF16, BuilderFlag.TF32}
CALIBRATED = {BuilderFlag.INT8, BuilderFlag.FP8}
"""Flags whose numbers need the ranges of a calibration."""
NAMED = {*PRECISIONS, *CALIBRATED}
"""Flags that ``precision`` sets by name."""
REFITTING = {BuilderFlag.REFIT, BuilderFlag.REFIT_IDENTICAL}
STAGED = {
    *REFITTING,
    *CALIBRATED,
    BuilderFlag.STRIP_PLAN,
    BuilderFlag.WEIGHT_STREAMING,
    BuilderFlag.RESERVE_STATES,
    BuilderFlag.VERSION_COMPATIBLE,
}
"""Flags that mean what the build stage which serves them does."""


class ProfilingVerbosity(enum.Enum):
    """What a plan tells people of its layers. ``DETAILED``: tactics, times and operations of steps,
    and every decision of the build; ``LAYER_NAMES_ONLY``: names of layers and tensors; ``NONE``:
    nothing, its steps are numbered.
    """

    NONE = "none"
    LAYER_NAMES_ONLY = "layer_names_only"
    DETAILED = "detailed"


class MemoryPoolType(enum.Enum):
    """``WORKSPACE``: scratch bytes of one step, at the shapes tuned for."""

    WORKSPACE = "workspace"


@dataclass
class OptimizationProfile:
    """Ranges of input shapes: lowest, the one to tune for, highest. ``shapes``: by input name."""

    shapes: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = field(
        default_factory=dict
    )

    def set_shape(
        self, name: str, min: Sequence[int], opt: Sequence[int], max: Sequence[int]
    ) -> OptimizationProfile:
        """Set the range of one input; returns self. Raises ConfigError unless 0 <= min <= opt <=
        max, and no more than a plan takes; ShapeError.
        """
        rows = (shape_of(name, min), shape_of(name, opt), shape_of(name, max))
        if any(n >= LIMIT for row in rows for n in row):
            raise ConfigError(
                f"profile of {name!r}: min {rows[0]}, opt {rows[1]}, max {rows[2]}",
                why=f"a plan takes sizes up to {LIMIT - 1}",
            )
        if why := _disorder(rows):
            what = f"profile of {name!r}: min {rows[0]}, opt {rows[1]}, max {rows[2]}"
            raise ConfigError(f"{what} {why}")
        self.shapes[name] = rows
        return self


def _disorder(rows: Sequence[tuple[int, ...]]) -> str:
    """What is wrong with lowest, tuned for and highest sizes; empty if nothing is."""
    if len({len(row) for row in rows}) != 1:
        return "have not the same number of axes"
    if any(n < 0 for row in rows for n in row):
        return "have a size below 0: a profile gives the open ones numbers"
    if any(not a <= b <= c for a, b, c in zip(*rows, strict=True)):
        return "are not in order"
    return ""


@runtime_checkable
class Locked(Protocol):
    """Choices that are made before a build, which measures nothing then. ``device``: what it is
    for.
    """

    device: DeviceProperties

    def kernel_sets(self) -> tuple[int, ...]:
        """For each profile the index of its set of kernels, if the plan has several: asked once,
        before any network is entered.
        """

    def enter(self) -> Callable[[str], bool]:
        """Go on to the next network: the model's, or the body of a layer. Gives whether a node
        keeps its precision.
        """

    def splits(self, name: str) -> bool:
        """Whether a group of that name is taken apart."""

    def outruns(self, name: str) -> bool:
        """Whether another form takes the place of a node of that name."""

    def has(self, name: str, bids: Bids) -> bool:
        """Whether the candidate of a node of that name is among its bids, or the lock has none for
        it.
        """

    def settle(self, bids: dict[Node, Bids]) -> None:
        """Leave every node its one candidate. Raises LockError."""


@runtime_checkable
class Selector(Protocol):
    """What a program has to say about the candidates of a build."""

    def select(self, node: Node, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """Those that may run a node, before any is measured; all of them where none is named. A
        node is asked for again where it is tried in another precision, and a part of it where it is
        split.
        """


@functools.cache
def _field_types() -> dict[str, Any]:
    """Types of BuilderConfig's fields by name; annotations are texts until they are looked up."""
    return typing.get_type_hints(BuilderConfig)


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value is of an annotated type, and so is all that it holds."""
    if isinstance(kind, types.UnionType):
        return any(_fits(value, k) for k in typing.get_args(kind))
    if not isinstance(value, typing.get_origin(kind) or kind):
        return False
    parts: list[Any] = [value.keys(), value.values()] if isinstance(value, dict) else [value]
    return all(_fits(x, k) for part, k in zip(parts, typing.get_args(kind)) for x in part)


@dataclass(slots=True)
class BuilderConfig:
    """Settings of a build; every field has a default that works.

    ``builder_optimization_level``: 0 chooses by estimate and measures nothing but what packs alone
    can do; 1 measures one variant of every tactic, 2 two, 3 four, 4 eight, 5 all, and of each
    combination of formats the best.
    ``tactic_sources``: names of families that may bid, None for all. ``timing_cache``: a file, None
    for the user's own, False for none. ``frozen``: the file that ``tactix lock`` wrote, by which to
    choose: nothing is measured, and what differs from it is an error; True: a timing that is not in
    the cache is one. ``budget``: seconds of ``build_plan`` after which nothing more is
    measured, nor compiled but what the plan needs; the rest is chosen by estimate.
    ``trial_budget``: seconds that trials of one pack's kernels may take that fail; then no more of
    its kernels are tried.
    ``selector``: what says which candidates of a node may race; a lock's are not asked for.
    ``workers``: who times candidates elsewhere, on devices like the one that is built for, which
    need not be here; what they leave is timed here, if it can be.
    ``threads``: of one inference, at most MOST_THREADS; 0 means TACTIX_NUM_THREADS or all usable
    cores. ``device``: its key or its kind, such as ``cpu`` or ``cuda``. ``enabled``: packs that may
    touch layers of others. ``target``: what to build for, if not this machine's device as it is:
    ``x86-64-v3``, ``sm_90``, or a family of devices, ``AMPERE_PLUS``
    (``hardware_compatibility_level`` is another name of it); what cannot run here is chosen by
    cached timings and estimates.
    ``layer_precisions``, ``preferred_precisions`` of their patterns: see ``set_layer_precision``.
    ``calibration``: where ranges for INT8 and FP8 come from.
    ``plugins_to_serialize``: packs whose Python goes into the plan as far as running it needs them:
    files of wheels, names of installed distributions, or ``auto`` for all. ``sign``: whether
    ``engine.save`` signs with the local key.
    ``max_aux_streams``: how many steps a GPU may run beside one: 0 is one after the other, -1
    leaves it to the device.
    ``profiling_verbosity``: what the plan tells people of its layers.
    """

    flags: set[BuilderFlag] = field(default_factory=set)
    memory_pool_limits: dict[MemoryPoolType, int] = field(default_factory=dict)
    tactic_sources: set[str] | None = None
    builder_optimization_level: int = 3
    profiles: list[OptimizationProfile] = field(default_factory=list)
    timing_cache: str | Path | bool | None = None
    frozen: bool | str | Path | Locked = False
    budget: float | int = float("inf")
    trial_budget: float | int = 15.0
    selector: Selector | None = None
    workers: Workers | None = None
    threads: int = 0
    device: str = "cpu"
    target: str = ""
    enabled: set[str] = field(default_factory=set)
    layer_precisions: dict[str, str] = field(default_factory=dict)
    preferred_precisions: frozenset[str] = frozenset()
    calibration: Calibration | None = None
    plugins_to_serialize: list[str | Path] = field(default_factory=list)
    sign: bool = True
    max_aux_streams: int = -1
    profiling_verbosity: ProfilingVerbosity = ProfilingVerbosity.DETAILED
    progress_monitor: ProgressMonitor = field(default_factory=SilentProgress)
    hardware_compatibility_level = property(
        lambda self: self.target, lambda self, x: setattr(self, "target", x)
    )

    def set_memory_pool_limit(self, pool: MemoryPoolType, size: int) -> None:
        """Limit a pool to so many bytes. Raises ConfigError if not positive."""
        if size <= 0:
            raise ConfigError(
                f"memory pool {pool.value}: {size} bytes", do="Give a positive number"
            )
        self.memory_pool_limits[pool] = size

    def add_optimization_profile(self, profile: OptimizationProfile) -> int:
        """Add a profile; returns its index."""
        self.profiles.append(profile)
        return len(self.profiles) - 1

    def set_layer_precision(self, pattern: str, precision: str, preferred: bool = False) -> None:
        """Compute layers of that name in the model (``*`` as in file names) in ``fp32``, ``fp16``,
        ``bf16`` or, under INT8, ``int8``, under FP8, ``fp8``, obeyed; ``preferred``: where the
        device can, else the build warns.

        Of several patterns that fit a name the last counts. Raises ConfigError for another
        precision.
        """
        if precision not in ("fp32", "fp16", "bf16", "int8", "fp8"):
            do = "Choose fp32, fp16, bf16, int8 or fp8"
            raise ConfigError(f"no layer precision {precision!r}", who=pattern, do=do)
        self.layer_precisions = {**self.layer_precisions, pattern: precision}
        self.preferred_precisions = (self.preferred_precisions - {pattern}) | (
            {pattern} if preferred else frozenset()
        )

    def enable(self, pack: str) -> None:
        """Let a pack's rules and tactics touch layers that are not its own."""
        self.enabled.add(pack)

    def check_types(self) -> None:
        """Raises ConfigError for a field that is not of its type."""
        for name, kind in _field_types().items():
            if not _fits(value := getattr(self, name), kind):
                raise ConfigError(f"{name} is {value!r}", do=f"Give a {self.__annotations__[name]}")

    def check(self) -> None:
        """Raises ConfigError for settings that make no sense."""
        self.check_types()
        for name in ("timing_cache", "frozen"):
            if getattr(self, name) == "":
                raise ConfigError(f"{name} is an empty path", do="Name a file, or give False")
        if self.builder_optimization_level not in range(6):
            raise ConfigError(
                f"builder_optimization_level {self.builder_optimization_level}", do="Choose 0 to 5"
            )
        self._check_numbers()
        for profile in self.profiles:
            for name, rows in profile.shapes.items():
                OptimizationProfile().set_shape(name, *rows)  # it may have been filled otherwise
        self._check_flags()

    def _check_numbers(self) -> None:
        """Raises ConfigError for times and counts out of their range; NaN is in none."""
        for name in ("budget", "trial_budget"):
            if not getattr(self, name) >= 0:
                do = "Give seconds, 0 or more, or infinity for no limit"
                raise ConfigError(f"{name} is {getattr(self, name)} s", do=do)
        if not 0 <= self.threads <= MOST_THREADS:
            do = f"Give 1 to {MOST_THREADS}, or 0 for all usable cores"
            raise ConfigError(f"threads is {self.threads}", do=do)
        if self.max_aux_streams < -1:
            do = "Give 0 or more, or -1 for as many as help"
            raise ConfigError(f"max_aux_streams is {self.max_aux_streams}", do=do)

    def _check_flags(self) -> None:
        """Raises ConfigError for flags that contradict each other or have nothing to act on."""
        exact = BuilderFlag.EXACT_NUMERICS in self.flags
        portable = BuilderFlag.VERSION_COMPATIBLE in self.flags
        alone = BuilderFlag.EXCLUDE_LEAN_RUNTIME in self.flags
        stripped = BuilderFlag.STRIP_PLAN in self.flags
        if exact and not self.numerics <= {"exact"}:
            raise ConfigError("EXACT_NUMERICS and a lower precision contradict each other")
        calibrated = self.flags & CALIBRATED
        if self.calibration is not None and not calibrated:
            do = "Set one of these flags: precision='int8' or 'fp8'"
            raise ConfigError("a calibration without INT8 or FP8", do=do)
        if len(calibrated) > 1:
            raise ConfigError("INT8 and FP8 contradict each other", do="Choose one")
        for flag in calibrated:
            if exact:
                raise ConfigError(f"EXACT_NUMERICS and {flag.name} contradict each other")
        if alone and not portable:
            what = "EXCLUDE_LEAN_RUNTIME without VERSION_COMPATIBLE"
            raise ConfigError(what, why="no other plan holds one")
        if stripped and not self.flags & REFITTING:
            raise ConfigError("STRIP_PLAN without REFIT", why="nothing could fill the plan again")
        if self.frozen is True and self.timing_cache is False:
            do = "Name its file, or freeze by a lock"
            raise ConfigError("frozen needs a timing cache", do=do)

    @property
    def input_shapes(self) -> dict[str, tuple[int | None, ...]]:
        """Of the inputs that profiles name: sizes that all of them fix, else None."""
        out: dict[str, tuple[int | None, ...]] = {}
        for name in dict.fromkeys(k for p in self.profiles for k in p.shapes):
            sizes = zip(
                *(row for p in self.profiles for row in p.shapes.get(name, ())), strict=False
            )
            out[name] = tuple(d[0] if len(set(d)) == 1 else None for d in sizes)
        return out

    @property
    def requests(self) -> dict[str, str]:
        """What build stages have to serve: values of flags and names of options, and how a message
        calls each.
        """
        flags = {f.value: f"BuilderFlag.{f.name}" for f in BuilderFlag if f in self.flags & STAGED}
        set_here = {
            "plugins_to_serialize": bool(self.plugins_to_serialize),
            "frozen": isinstance(self.frozen, (str, Path)),
        }
        return flags | {name: f"the option {name}" for name, given in set_here.items() if given}

    @property
    def numerics(self) -> frozenset[str]:
        """Kinds of rules that may fire, and of tactics that may bid."""
        exact = BuilderFlag.EXACT_NUMERICS in self.flags
        own = set() if exact else {"reassociates", "short_sums", "int8_activations"}
        return frozenset({"exact", *own, *(f.value for f in self.flags & PRECISIONS)})

    def thread_count(self, cores: int) -> int:
        """Intra-op threads of a device with so many cores. Raises ConfigError for a bad
        TACTIX_NUM_THREADS.
        """
        from tactix.run.runtime import default_threads

        return self.threads or default_threads(cores)
