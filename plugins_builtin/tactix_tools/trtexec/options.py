"""What a command line of trtexec asks for, part by part. Raises InvalidArgument."""

from __future__ import annotations

from dataclasses import dataclass, field

from tactix.base.errors import InvalidArgument
from tactix_tools.options import Shapes
from tactix_tools.trtexec.arguments import Arguments, read_as, shapes, size

SWITCHES = {
    "fp16": "FP16",
    "bf16": "BF16",
    "int8": "INT8",
    "fp8": "FP8",
    "int4": "INT4",
    "refit": "REFIT",
    "vc": "VERSION_COMPATIBLE",
    "versionCompatible": "VERSION_COMPATIBLE",
    "excludeLeanRuntime": "EXCLUDE_LEAN_RUNTIME",
    "directIO": "DIRECT_IO",
    "noBuilderCache": "DISABLE_TIMING_CACHE",
    "noCompilationCache": "DISABLE_COMPILATION_CACHE",
    "errorOnTimingCacheMiss": "ERROR_ON_TIMING_CACHE_MISS",
    "distributiveIndependence": "DISTRIBUTIVE_INDEPENDENCE",
    "monitorMemory": "MONITOR_MEMORY",
    "allowWeightStreaming": "WEIGHT_STREAMING",
    "allowGPUFallback": "GPU_FALLBACK",
}
"""Names of the builder's flags."""

PRECISIONS = ("FP16", "BF16", "INT8", "FP8", "INT4")
TYPES = {
    "fp32": "FLOAT",
    "fp16": "HALF",
    "bf16": "BF16",
    "int8": "INT8",
    "int32": "INT32",
    "int64": "INT64",
    "uint8": "UINT8",
    "bool": "BOOL",
    "fp8": "FP8",
    "int4": "INT4",
}
POOLS = {
    "workspace": "WORKSPACE",
    "dlaSRAM": "DLA_MANAGED_SRAM",
    "dlaLocalDRAM": "DLA_LOCAL_DRAM",
    "dlaGlobalDRAM": "DLA_GLOBAL_DRAM",
    "tacticSharedMem": "TACTIC_SHARED_MEMORY",
}
SOURCES = ("CUBLAS", "CUBLAS_LT", "CUDNN", "EDGE_MASK_CONVOLUTIONS", "JIT_CONVOLUTIONS")
PLATFORMS = {"SameAsBuild": "SAME_AS_BUILD", "WindowsAMD64": "WINDOWS_AMD64"}
LAYER_PRECISIONS = ("fp32", "fp16", "bf16", "int8")
CONSTRAINTS = {"obey": "OBEY_PRECISION_CONSTRAINTS", "prefer": "PREFER_PRECISION_CONSTRAINTS"}
PLUGINS = ("plugins", "staticPlugins", "dynamicPlugins")
RANGES = ("minShapes", "optShapes", "maxShapes")
DEBUG_FORMATS = ("summary", "numpy", "string", "raw")
DEFAULT_LEVEL = -1


@dataclass(frozen=True)
class ProfileShapes:
    """Shapes of inputs: lowest, the ones to tune for, highest. All have the same names."""

    low: Shapes
    opt: Shapes
    high: Shapes


@dataclass(frozen=True)
class BuildOptions:
    """``flags``: the builder's. ``pools``: bytes. ``input_types``, ``output_types``: names of
    DataType, one for all or one each. ``tactics``: to try for a layer, -1 for
    all that the level allows; ``sources``: ``+NAME`` or ``-NAME`` of TacticSource;
    ``dla``: the DLA's number, -1 for none; ``debug``: names of debug tensors.
    """

    save: str = ""
    load: str = ""
    flags: frozenset[str] = frozenset()
    profiles: tuple[ProfileShapes, ...] = ()
    input_types: tuple[str, ...] = ()
    output_types: tuple[str, ...] = ()
    tf32: bool = True
    strongly_typed: bool = False
    constraints: str = "none"
    layer_precisions: dict[str, str] = field(default_factory=dict)
    pools: dict[str, int] = field(default_factory=dict)
    level: int = DEFAULT_LEVEL
    aux_streams: int = -1
    tactics: int = -1
    sources: tuple[str, ...] = ()
    platform: str = "SameAsBuild"
    dla: int = -1
    timing_cache: str = ""
    calibration: str = ""
    compatibility: str = "none"
    verbosity: str = "layer_names_only"
    refit_from: str = ""
    debug: tuple[str, ...] = ()
    debug_unfused: bool = False
    skip_inference: bool = False


@dataclass(frozen=True)
class InferenceOptions:
    """``warm_up``, ``idle``: ms; ``duration``: s. ``inputs``: files by name."""

    shapes: Shapes = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)
    iterations: int = 10
    warm_up: float = 200.0
    duration: float = 3.0
    idle: float = 0.0
    streams: int = 1
    threads: bool = False
    profile: int = 0
    transfers: bool = True
    budget: str = ""
    time_deserialize: bool = False
    time_refit: bool = False


@dataclass(frozen=True)
class ReportingOptions:
    """What is printed and written. ``dumps``: names of flags that print. ``debug_files``: by names
    of debug tensors; ``debug_formats``: in which all of them are written.
    """

    verbose: bool = False
    averaged: int = 10
    percentiles: tuple[float, ...] = (90.0, 95.0, 99.0)
    dumps: frozenset[str] = frozenset()
    times: str = ""
    output: str = ""
    profile: str = ""
    layers: str = ""
    debug_files: dict[str, str] = field(default_factory=dict)
    debug_formats: tuple[str, ...] = ()


@dataclass(frozen=True)
class AllOptions:
    """``onnx``: the model's file, empty where a plan is loaded. ``plugins``: files."""

    onnx: str
    plugins: tuple[str, ...]
    build: BuildOptions
    inference: InferenceOptions
    reporting: ReportingOptions


def read(args: Arguments) -> AllOptions:
    """All of a command line."""
    inference = _inference(args)
    build = _build(args, inference.shapes)
    plugins = tuple(path for _, path in args.ordered(*PLUGINS))
    out = AllOptions(args.text("onnx"), plugins, build, inference, _reporting(args))
    if not (out.onnx or out.build.load):
        raise InvalidArgument("Model missing or format not recognized", do="Give --onnx=FILE")
    if out.build.load and out.build.save:
        raise InvalidArgument(
            "Incompatible load and save engine options selected",
            do="Give --loadEngine or --saveEngine",
        )
    _only(args.number("device", 0), "device", "Set CUDA_VISIBLE_DEVICES to that device")
    _only(args.real("sleepTime", 0), "sleepTime", "Use --idleTime")
    _only(args.real("persistentCacheRatio", 0), "persistentCacheRatio", "Leave it out")
    return out


def _only(number: float, name: str, do: str) -> None:
    """Of flags that have no counterpart but for 0."""
    if number:
        raise InvalidArgument(f"--{name} can be 0 here, not {number}", do=do)


def _build(args: Arguments, inferred: Shapes) -> BuildOptions:
    typed = args.on("stronglyTyped")
    flags = _flags(args)
    choices = ("none", "obey", "prefer")
    return BuildOptions(
        save=args.text("saveEngine"),
        load=args.text("loadEngine"),
        flags=flags - frozenset(PRECISIONS) if typed else flags,
        profiles=_profiles(args, inferred),
        input_types=args.given("inputIOFormats", _types, ()),
        output_types=args.given("outputIOFormats", _types, ()),
        tf32=not args.on("noTF32"),
        strongly_typed=typed,
        constraints=args.choice("precisionConstraints", choices, "none"),
        layer_precisions=_layer_precisions(args),
        pools=_pools(args),
        level=args.number("builderOptimizationLevel", DEFAULT_LEVEL, 0, 5),
        aux_streams=args.number("maxAuxStreams", -1),
        tactics=args.number("maxTactics", -1, 1),
        sources=args.given("tacticSources", _sources, ()),
        platform=args.choice("runtimePlatform", tuple(PLATFORMS), "SameAsBuild"),
        dla=args.number("useDLACore", -1),
        timing_cache=args.text("timingCacheFile"),
        calibration=args.text("calib"),
        compatibility=args.choice("hardwareCompatibilityLevel", ("none", "ampere+"), "none"),
        verbosity=args.choice(
            "profilingVerbosity", ("layer_names_only", "detailed", "none"), "layer_names_only"
        ),
        refit_from=args.text("refitFromOnnx"),
        debug=tuple(filter(None, args.text("markDebug").replace("'", "").split(","))),
        debug_unfused=args.on("markUnfusedTensorsAsDebugTensors"),
        skip_inference=args.on("skipInference", "buildOnly"),
    )


def _flags(args: Arguments) -> frozenset[str]:
    """Of the builder."""
    out = {flag for name, flag in SWITCHES.items() if args.on(name)}
    if args.on("best"):
        out |= {"FP16", "BF16", "INT8"}
    if args.on("stripAllWeights"):
        out |= {"STRIP_PLAN", "REFIT"}
    elif args.on("stripWeights", "weightless"):
        out |= {"STRIP_PLAN"} | (set() if "REFIT" in out else {"REFIT_IDENTICAL"})
    sparsity = args.choice("sparsity", ("disable", "enable", "force"), "disable")
    if sparsity == "force":
        raise InvalidArgument("--sparsity=force would change the weights", do="Prune the model")
    out |= {"SPARSE_WEIGHTS"} if sparsity == "enable" else set()
    constraints = CONSTRAINTS.get(args.text("precisionConstraints"))
    return frozenset(out | ({constraints} if constraints else set()))


def _profiles(args: Arguments, inferred: Shapes) -> tuple[ProfileShapes, ...]:
    """A profile each; of the shapes of the inference where none is given."""
    found: dict[str, dict[str, Shapes]] = {}
    at = "0"
    for name, text in args.ordered("profile", *RANGES):
        if name == "profile":
            at = text
        else:
            found.setdefault(at, {})[name] = read_as(name, text, shapes)
    if not found:
        return (ProfileShapes(inferred, inferred, inferred),) if inferred else ()
    return tuple(_profile(ranges) for _, ranges in sorted(found.items()))


def _profile(ranges: dict[str, Shapes]) -> ProfileShapes:
    opt = ranges.get("optShapes")
    if opt is None or len(ranges) == 2:
        raise InvalidArgument(
            "Must specify only --optShapes or all of --minShapes, --optShapes, --maxShapes"
        )
    low, high = ranges.get("minShapes", opt), ranges.get("maxShapes", opt)
    if not (low.keys() == opt.keys() == high.keys()):
        raise InvalidArgument("--minShapes, --optShapes and --maxShapes name different inputs")
    return ProfileShapes(low, opt, high)


def _types(text: str) -> tuple[str, ...]:
    """Names of DataType. Raises ValueError for formats that are not linear."""
    out = []
    for item in text.split(","):
        kind, _, form = item.partition(":")
        if kind not in TYPES:
            raise ValueError(f"types are {', '.join(TYPES)}")
        if form != "chw":
            raise ValueError(f"{item!r}: the format is chw here")
        out.append(TYPES[kind])
    return tuple(out)


def _sources(text: str) -> tuple[str, ...]:
    """Names of TacticSource, each with its sign. Raises ValueError."""
    out = tuple(text.upper().split(","))
    if not all(item[:1] in ("+", "-") and item[1:] in SOURCES for item in out):
        raise ValueError(f"write + or - before {', '.join(SOURCES)}")
    return out


def _layer_precisions(args: Arguments) -> dict[str, str]:
    """Names of DataType by pattern."""
    found = args.pairs("layerPrecisions")
    for layer, precision in found.items():
        if precision not in LAYER_PRECISIONS:
            do = f"There are {', '.join(LAYER_PRECISIONS)}"
            raise InvalidArgument(f"--layerPrecisions: {precision} of {layer!r}", do=do)
    return {layer: TYPES[precision] for layer, precision in found.items()}


def _pools(args: Arguments) -> dict[str, int]:
    """Bytes by name of MemoryPoolType."""

    def convert(text: str) -> dict[str, int]:
        out = {}
        for item in text.split(","):
            pool, _, amount = item.partition(":")
            if pool not in POOLS:
                raise ValueError(f"pools are {', '.join(POOLS)}")
            out[POOLS[pool]] = size(amount)
        return out

    workspace = args.given("workspace", size, 0)
    named: dict[str, int] = args.given("memPoolSize", convert, {})
    return {"WORKSPACE": workspace, **named} if workspace else named


def _inference(args: Arguments) -> InferenceOptions:
    return InferenceOptions(
        shapes=args.given("shapes", shapes, {}),
        inputs=args.pairs("loadInputs"),
        iterations=args.number("iterations", 10),
        warm_up=args.real("warmUp", 200.0),
        duration=args.real("duration", 3.0),
        idle=args.real("idleTime", 0.0),
        streams=args.number("infStreams", args.number("streams", 1, 1), 1),
        threads=args.on("threads"),
        profile=args.number("useProfile", 0),
        transfers=not args.on("noDataTransfers"),
        budget=args.text("weightStreamingBudget"),
        time_deserialize=args.on("timeDeserialize"),
        time_refit=args.on("timeRefit"),
    )


def _reporting(args: Arguments) -> ReportingOptions:
    return ReportingOptions(
        verbose=args.on("verbose"),
        averaged=args.number("avgRuns", 10, 1),
        percentiles=args.given("percentile", _percentiles, (90.0, 95.0, 99.0)),
        dumps=frozenset(f.name for f in args.flags() if f.name.startswith("dump")),
        times=args.text("exportTimes"),
        output=args.text("exportOutput"),
        profile=args.text("exportProfile"),
        layers=args.text("exportLayerInfo"),
        debug_files=args.pairs("saveDebugTensors"),
        debug_formats=args.given("saveAllDebugTensors", _debug_formats, ()),
    )


def _debug_formats(text: str) -> tuple[str, ...]:
    """Raises ValueError."""
    out = tuple(text.split(","))
    if not set(out) <= set(DEBUG_FORMATS):
        raise ValueError(f"formats are {', '.join(DEBUG_FORMATS)}")
    return out


def _percentiles(text: str) -> tuple[float, ...]:
    out = tuple(float(p) for p in text.split(","))
    if not all(0 <= p <= 100 for p in out):
        raise ValueError("percentiles are between 0 and 100")
    return out
