"""The options of a run, as trtexec prints them before it begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tactix_tools.options import Shapes
from tactix_tools.trtexec.lines import ReportLines, as_trtexec
from tactix_tools.trtexec.options import (
    PRECISIONS,
    AllOptions,
    BuildOptions,
    InferenceOptions,
    ReportingOptions,
)


def print_options(options: AllOptions, lines: ReportLines) -> None:
    """A section for each part."""
    model = {"Format": "ONNX" if options.onnx else "*", "Model": options.onnx, "Output": ""}
    _section("Model", model, lines)
    _section("Build", _build(options.build), lines)
    dla = "" if options.build.dla < 0 else options.build.dla
    _section("System", {"Device": 0, "DLACore": dla, "Plugins": " ".join(options.plugins)}, lines)
    _section("Inference", _inference(options.inference), lines)
    _section("Reporting", _reporting(options.reporting), lines)


def _section(title: str, rows: Mapping[str, object], lines: ReportLines) -> None:
    lines.info(f"=== {title} Options ===")
    for name, value in rows.items():
        lines.info(f"{name}: {_told(value)}")
    lines.info()


def _told(value: object) -> object:
    if isinstance(value, bool):
        return "Enabled" if value else "Disabled"
    return value


def _build(options: BuildOptions) -> dict[str, object]:
    on = options.flags
    lower = [p for p in PRECISIONS if p in on]
    rows: dict[str, object] = {
        "Memory Pools": ", ".join(f"{k}: {v >> 20} MiB" for k, v in options.pools.items())
        or "workspace: default",
        "Precision": "Strongly Typed" if options.strongly_typed else "+".join(["FP32", *lower]),
        "LayerPrecisions": ",".join(f"{k}:{v}" for k, v in options.layer_precisions.items()),
        "Calibration": options.calibration,
        "Refit": "REFIT" in on,
        "Strip weights": "STRIP_PLAN" in on,
        "Version Compatible": "VERSION_COMPATIBLE" in on,
        "TensorRT runtime": "full",
        "Sparsity": "SPARSE_WEIGHTS" in on,
        "Save engine": options.save,
        "Load engine": options.load,
        "Profiling verbosity": options.verbosity,
        "timingCacheMode": _cache_mode(options),
        "timingCacheFile": options.timing_cache,
        "MaxAuxStreams": options.aux_streams,
        "BuilderOptimizationLevel": options.level,
        "Weight Streaming": "WEIGHT_STREAMING" in on,
        "Debug Tensors": ",".join(options.debug),
        "Input(s)s format": _formats(options.input_types),
        "Output(s)s format": _formats(options.output_types),
    }
    for i, p in enumerate(options.profiles):
        told = {n: "+".join(as_trtexec(s[n]) for s in (p.low, p.opt, p.high)) for n in p.opt}
        rows[f"Input build shape (profile {i})"] = ",".join(map("=".join, told.items()))
    return rows if options.profiles else rows | {"Input build shapes": "model"}


def _cache_mode(options: BuildOptions) -> str:
    if "DISABLE_TIMING_CACHE" in options.flags:
        return "disable"
    return "global" if options.timing_cache else "local"


def _formats(types: Sequence[str]) -> str:
    return ", ".join(f"{t}:CHW" for t in types) or "model:CHW"


def _shapes(shapes: Shapes) -> str:
    return ",".join(f"{name}={as_trtexec(s)}" for name, s in shapes.items()) or "model"


def _inference(options: InferenceOptions) -> dict[str, object]:
    return {
        "Batch": "Explicit",
        "Input inference shapes": _shapes(options.shapes),
        "Iterations": options.iterations,
        "Duration": f"{options.duration:.6g}s (+ {options.warm_up:.6g}ms warm up)",
        "Sleep time": "0ms",
        "Idle time": f"{options.idle:.6g}ms",
        "Inference Streams": options.streams,
        "Data transfers": options.transfers,
        "Multithreading": options.threads,
        "Time Deserialize": options.time_deserialize,
        "Time Refit": options.time_refit,
        "Optimization Profile Index": options.profile,
        "Weight Streaming Budget": options.budget or "100%",
        "Inputs": ",".join(f"{name}<-{path}" for name, path in options.inputs.items()),
    }


def _reporting(options: ReportingOptions) -> dict[str, object]:
    return {
        "Verbose": options.verbose,
        "Averages": f"{options.averaged} inferences",
        "Percentiles": ",".join(f"{p:.6g}" for p in options.percentiles),
        "Dump refittable layers": "dumpRefit" in options.dumps,
        "Dump output": "dumpOutput" in options.dumps,
        "Profile": "dumpProfile" in options.dumps,
        "Export timing to JSON file": options.times,
        "Export output to JSON file": options.output,
        "Export profile to JSON file": options.profile,
        "Export layer info to JSON file": options.layers,
        "Debug tensors to files": ",".join(f"{k}->{v}" for k, v in options.debug_files.items()),
        "Debug tensors in formats": ",".join(options.debug_formats),
    }
