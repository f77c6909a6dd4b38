"""IBuilderConfig: what a program asks of a build, and what of it tactix has."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tactix.base.errors import ConfigError
from tactix.base.host_memory import physical_memory
from tactix_tensorrt import device, levels
from tactix_tensorrt.api.callbacks import IAlgorithmSelector, IInt8Calibrator, IProgressMonitor
from tactix_tensorrt.api.enums import (
    BuilderFlag,
    DataType,
    DeviceType,
    EngineCapability,
    HardwareCompatibilityLevel,
    MemoryPoolType,
    PreviewFeature,
    ProfilingVerbosity,
    QuantizationFlag,
    RuntimePlatform,
    TacticSource,
    TilingOptimizationLevel,
)
from tactix_tensorrt.api.flags import Flagged
from tactix_tensorrt.api.logger import ILogger, Reporting
from tactix_tensorrt.api.plan_facts import PlanFacts
from tactix_tensorrt.api.profile import IOptimizationProfile
from tactix_tensorrt.api.selection import Selection, left_out
from tactix_tensorrt.api.standing import IGNORED
from tactix_tensorrt.api.timing_cache import ITimingCache, is_cache
from tactix_tensorrt.levels import at_this_level

if TYPE_CHECKING:
    from tactix.config import BuilderConfig
    from tactix.config import BuilderFlag as NativeFlag
    from tactix.network.definition import NetworkDefinition
    from tactix_tensorrt.api.layer import ILayer
    from tactix_tensorrt.api.tensor import ITensor
    from tactix_tensorrt.api.values import Unsigned

MIB = 1 << 20
WHOLE_DEVICE = physical_memory()
"""Bytes that TensorRT answers for pools that nobody has limited: the device's memory. Here that of
the host, and no limit is set."""

POOLS = {
    "WORKSPACE": WHOLE_DEVICE,
    "DLA_MANAGED_SRAM": 0,
    "DLA_LOCAL_DRAM": 1024 * MIB,
    "DLA_GLOBAL_DRAM": 512 * MIB,
    "TACTIC_DRAM": WHOLE_DEVICE,
    "TACTIC_SHARED_MEMORY": 1024 * MIB,
}
"""Bytes that memory pools have at first."""

FLAGS = {
    "FP16": "FP16",
    "BF16": "BF16",
    "TF32": "TF32",
    "INT8": "INT8",
    "REFIT": "REFIT",
    "REFIT_IDENTICAL": "REFIT_IDENTICAL",
    "REFIT_INDIVIDUAL": "REFIT",
    "STRIP_PLAN": "STRIP_PLAN",
    "WEIGHTLESS": "STRIP_PLAN",
    "WEIGHT_STREAMING": "WEIGHT_STREAMING",
    "GPU_FALLBACK": "GPU_FALLBACK",
    "VERSION_COMPATIBLE": "VERSION_COMPATIBLE",
    "EXCLUDE_LEAN_RUNTIME": "EXCLUDE_LEAN_RUNTIME",
    "DEBUG": "DEBUG",
}
"""What a flag is called by tactix."""

NO_EFFECT = {
    "OBEY_PRECISION_CONSTRAINTS",
    "PREFER_PRECISION_CONSTRAINTS",
    "STRICT_TYPES",
    "ENABLE_TACTIC_HEURISTIC",
    "DISABLE_TIMING_CACHE",
    "EDITABLE_TIMING_CACHE",
    "DISABLE_COMPILATION_CACHE",
    "STRICT_NANS",
    "DISTRIBUTIVE_INDEPENDENCE",
    "MONITOR_MEMORY",
    "DIRECT_IO",
    "ERROR_ON_TIMING_CACHE_MISS",
}
"""Flags that are served elsewhere, or ask for what tactix does anyway; the others are ignored, with
a warning."""

PRECISION = {
    DataType.FLOAT: "fp32",
    DataType.HALF: "fp16",
    DataType.BF16: "bf16",
    DataType.INT8: "int8",
}


ON_AT_FIRST = {
    "8.6": (
        "FASTER_DYNAMIC_SHAPES_0805",
        "CUBLAS CUBLAS_LT CUDNN EDGE_MASK_CONVOLUTIONS JIT_CONVOLUTIONS",
    ),
    "10.16": ("PROFILE_SHARING_0806", "EDGE_MASK_CONVOLUTIONS JIT_CONVOLUTIONS"),
    "11.1": ("", "EDGE_MASK_CONVOLUTIONS JIT_CONVOLUTIONS"),
}
"""Preview features and sources of tactics that are on at first, level by level."""


@at_this_level
class IBuilderConfig(Flagged[BuilderFlag], Reporting):
    """Made by ``Builder.create_builder_config``. What tactix has no use for is kept, and told."""

    flags = BuilderFlag.TF32.mask
    quantization_flags = 0
    calibration_profile: IOptimizationProfile | None = None
    builder_optimization_level = 3
    max_aux_streams = -1
    max_num_tactics = -1
    avg_timing_iterations = 1
    DLA_core = -1
    default_device_type = DeviceType.GPU
    engine_capability = EngineCapability.STANDARD
    hardware_compatibility_level = HardwareCompatibilityLevel.NONE
    runtime_platform = RuntimePlatform.SAME_AS_BUILD
    tiling_optimization_level = TilingOptimizationLevel.NONE
    l2_limit_for_tiling = -1
    profiling_verbosity = ProfilingVerbosity.LAYER_NAMES_ONLY
    progress_monitor: IProgressMonitor | None = None
    profile_stream = 0
    plugins_to_serialize: Sequence[str] = ()
    int8_calibrator: IInt8Calibrator | None = None
    algorithm_selector: IAlgorithmSelector | None = None

    def __init__(self, logger: ILogger) -> None:
        super().__init__(logger)
        self.profiles: list[IOptimizationProfile] = []
        self._limits = {MemoryPoolType[name]: size for name, size in POOLS.items()}
        self._cache: ITimingCache | None = None
        previews, sources = ON_AT_FIRST[levels.current()]
        self._previews = {PreviewFeature[name] for name in previews.split()}
        self._sources = sum(TacticSource[name].mask for name in sources.split())
        self._left_out = frozenset[str]()
        self._devices: dict[ILayer, DeviceType] = {}

    # -- flags ------------------------------------------------------------------------------------

    def set_quantization_flag(self, flag: QuantizationFlag) -> None:
        self.quantization_flags |= flag.mask

    def clear_quantization_flag(self, flag: QuantizationFlag) -> None:
        self.quantization_flags &= ~flag.mask

    def get_quantization_flag(self, flag: QuantizationFlag) -> bool:
        return bool(self.quantization_flags & flag.mask)

    def set_preview_feature(self, feature: PreviewFeature, enable: bool) -> None:
        (self._previews.add if enable else self._previews.discard)(feature)

    def get_preview_feature(self, feature: PreviewFeature) -> bool:
        return feature in self._previews

    # -- memory, tactics, profiles ----------------------------------------------------------------

    def set_memory_pool_limit(self, pool: MemoryPoolType, pool_size: Unsigned) -> None:
        self._limits[pool] = pool_size

    def get_memory_pool_limit(self, pool: MemoryPoolType) -> int:
        return self._limits[pool]

    @property
    def max_workspace_size(self) -> int:
        """Before TensorRT 10: the workspace's limit."""
        return self._limits[MemoryPoolType.WORKSPACE]

    @max_workspace_size.setter
    def max_workspace_size(self, size: Unsigned) -> None:
        self._limits[MemoryPoolType.WORKSPACE] = size

    def set_tactic_sources(self, tactic_sources: Unsigned) -> bool:
        """Libraries that may be called; without a call all that are there may. Sources of kernels
        of TensorRT's own change nothing.
        """
        self._sources, self._left_out = tactic_sources, left_out(tactic_sources)
        return True

    def get_tactic_sources(self) -> int:
        return self._sources

    @property
    def num_optimization_profiles(self) -> int:
        return len(self.profiles)

    def add_optimization_profile(self, profile: IOptimizationProfile) -> int:
        """Returns its index, -1 for one that holds nothing."""
        if not profile:
            self.fail("an optimization profile without shapes")
            return -1
        self.profiles.append(profile)
        return len(self.profiles) - 1

    def set_calibration_profile(self, profile: IOptimizationProfile) -> bool:
        self.calibration_profile = profile
        return True

    def get_calibration_profile(self) -> IOptimizationProfile | None:
        return self.calibration_profile

    def create_timing_cache(self, serialized_timing_cache: bytes) -> ITimingCache:
        """A cache of what was serialized; an empty one for no bytes, and, with a warning, for what
        is none.
        """
        content = bytes(serialized_timing_cache)
        if content and not is_cache(content):
            what = f"{len(content)} bytes are no timing cache of tactix: An empty one is made"
            self.warn(f"{what}. Keep what it serializes to in their place")
            content = b""
        return ITimingCache(content)

    def set_timing_cache(self, cache: ITimingCache, ignore_mismatch: bool) -> bool:
        self._cache = cache
        return True

    def get_timing_cache(self) -> ITimingCache | None:
        return self._cache

    # -- devices ----------------------------------------------------------------------------------

    def set_device_type(self, layer: ILayer, device_type: DeviceType) -> None:
        self._devices[layer] = device_type

    def get_device_type(self, layer: ILayer) -> DeviceType:
        return self._devices.get(layer, self.default_device_type)

    def is_device_type_set(self, layer: ILayer) -> bool:
        """Whether it is another than the default."""
        return self.get_device_type(layer) is not self.default_device_type

    def reset_device_type(self, layer: ILayer) -> None:
        self._devices.pop(layer, None)

    def can_run_on_DLA(self, layer: ILayer) -> bool:
        return False

    def reset(self) -> None:
        """As it was made."""
        logger, recorder = self._logger, self.error_recorder
        vars(self).clear()
        IBuilderConfig.__init__(self, logger)
        self.error_recorder = recorder
        self.seal()

    # -- towards tactix ---------------------------------------------------------------------------

    def names(self) -> list[str]:
        """Flags that are set."""
        return [name for name, f in BuilderFlag.__members__.items() if self.flags & f.mask]

    def native(
        self, inputs: Sequence[str], layers: Sequence[ILayer], cache: Path | None
    ) -> BuilderConfig:
        """tactix's, and a warning for each flag that nothing here serves.

        ``inputs``: those whose shape is open; ``layers``: those that may have a precision;
        ``cache``: the file of timings.
        """
        from tactix.config import BuilderConfig
        from tactix.config import MemoryPoolType as NativePool

        self._check_target()
        self._warn_of_ignored()
        out = BuilderConfig(device=device.chosen())
        out.flags = self._native_flags(out.device)
        out.builder_optimization_level = self.builder_optimization_level
        out.max_aux_streams = self.max_aux_streams
        if inputs:
            asked = self.profiles or [IOptimizationProfile(self._logger)]
            out.profiles = [p.native(inputs) for p in asked]
        out.timing_cache = False if self.get_flag(BuilderFlag.DISABLE_TIMING_CACHE) else cache
        out.frozen = "ERROR_ON_TIMING_CACHE_MISS" in self.names()  # TensorRT 8 has no such flag
        out.plugins_to_serialize = list(self.plugins_to_serialize)
        limit = self._limits[MemoryPoolType.WORKSPACE]
        if limit != WHOLE_DEVICE and limit > 0:
            out.set_memory_pool_limit(NativePool.WORKSPACE, limit)
        if self.hardware_compatibility_level is HardwareCompatibilityLevel.AMPERE_PLUS:
            out.target = "AMPERE_PLUS" if out.device == "cuda" else ""
        for layer in layers:
            if wanted := PRECISION.get(layer.own_precision):
                self._set_precision(out, layer, wanted)
        return out

    def _set_precision(self, out: BuilderConfig, layer: ILayer, wanted: str) -> None:
        """Raises ConfigError for one that a processor has not, unless it is only preferred."""
        if out.device != "cpu" or wanted != "fp16":
            preferred = not self.get_flag(BuilderFlag.OBEY_PRECISION_CONSTRAINTS)
            out.set_layer_precision(_literal(layer.name), wanted, preferred)
            return
        what = f"a processor computes no layer in HALF, as layer {layer.name!r} asks"
        if self.get_flag(BuilderFlag.OBEY_PRECISION_CONSTRAINTS):
            do = "Call its reset_precision, or ask for trt.bfloat16 and set BuilderFlag.BF16"
            raise ConfigError(what, do=f"{do}; PREFER_PRECISION_CONSTRAINTS goes on without")
        self.warn(f"{what}: It stays as it is. Ask for trt.bfloat16 and set BuilderFlag.BF16")

    def check_typed(self) -> None:
        """Raises ConfigError for flags that would lower what a strongly typed network says."""
        lower = [n for n in ("FP16", "BF16", "INT8", "FP8", "INT4", "FP4") if n in self.names()]
        if lower:
            what = f"BuilderFlag.{lower[0]} is set, and the network is strongly typed"
            why = "its tensors' types say what is computed in which precision"
            raise ConfigError(what, why=why, do="Leave the flag out, or cast in the network")

    def _check_target(self) -> None:
        """Raises ConfigError for what would run elsewhere, or otherwise, than the program asks."""
        if self.engine_capability is not EngineCapability.STANDARD:
            what = f"no engine of {self.engine_capability} is built"
            raise ConfigError(what, do="Leave EngineCapability.STANDARD")
        if self.runtime_platform is not RuntimePlatform.SAME_AS_BUILD:
            what = f"no engine for {self.runtime_platform} is built here"
            raise ConfigError(what, do="Build it there, and leave RuntimePlatform.SAME_AS_BUILD")
        on_dla = self.default_device_type is DeviceType.DLA
        if (on_dla or DeviceType.DLA in self._devices.values()) and not self.get_flag(
            BuilderFlag.GPU_FALLBACK
        ):
            do = "Set BuilderFlag.GPU_FALLBACK, and they run beside the others"
            raise ConfigError("layers are for a DLA, and there is none", do=do)

    def _warn_of_ignored(self) -> None:
        """Of attributes that were set and change nothing."""
        for name in sorted(IGNORED["IBuilderConfig"] & vars(self).keys()):
            if name not in vars(IBuilderConfig) or callable(getattr(self, name)):
                continue
            if getattr(self, name) != getattr(IBuilderConfig, name):
                self._warn_of_no_counterpart(f"IBuilderConfig.{name}")

    def _warn_of_no_counterpart(self, name: str) -> None:
        told = f"{name} changes nothing here: tactix has no counterpart"
        self.warn(f"{told}. It may be left out")

    def _native_flags(self, kind: str) -> set[NativeFlag]:
        from tactix.config import BuilderFlag as NativeFlag

        names = self.names()
        for name in names:
            if name not in FLAGS and name not in NO_EFFECT:
                self._warn_of_no_counterpart(f"BuilderFlag.{name}")
        wanted = {FLAGS[n] for n in names if n in FLAGS and (n != "TF32" or kind == "cuda")}
        if "STRIP_PLAN" in wanted and "REFIT" not in wanted:
            wanted.add("REFIT_IDENTICAL")
        return {NativeFlag[n] for n in wanted}

    def ask_int8(
        self, out: BuilderConfig, net: NetworkDefinition, tensors: Sequence[ITensor]
    ) -> None:
        """Let a build in INT8 learn ranges as the program says; one that has none, or whose network
        has Q/DQ layers, goes on without the flag. Raises ConfigError, InvalidArgument.
        """
        from tactix.config import BuilderFlag as NativeFlag
        from tactix_tensorrt.api.calibration import Asked

        calibrator = getattr(self, "int8_calibrator", None)  # not in 11
        if NativeFlag.INT8 in out.flags:
            profiles = [self.calibration_profile, *self.profiles, None]
            profile = next((p for p in profiles if p is not None), None)
            out.calibration = Asked(calibrator, tensors, profile).calibration(net, self.warn)
        if out.calibration is None:
            out.flags.discard(NativeFlag.INT8)
            rest = {k: v for k, v in out.layer_precisions.items() if v != "int8"}
            out.layer_precisions = rest
            out.preferred_precisions = frozenset(out.preferred_precisions & rest.keys())

    def selection(self) -> Selection | None:
        """What is said about tactics; None where nothing is."""
        selector: IAlgorithmSelector | None = getattr(self, "algorithm_selector", None)  # not in 11
        if not (self._left_out or self.max_num_tactics > 0 or selector is not None):
            return None
        return Selection(self._left_out, self.max_num_tactics, selector)

    def facts(self) -> PlanFacts:
        """What engines tell of it."""
        return PlanFacts(
            self.profiling_verbosity,
            self.hardware_compatibility_level,
            self._sources,
            tuple(p.value_rows() for p in self.profiles),
        )


def _literal(name: str) -> str:
    """A pattern that fits that name alone."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)
