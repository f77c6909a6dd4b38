"""trtexec from its command line to its exit status: 0, or 1 for what fails."""

from __future__ import annotations

from collections.abc import Sequence

import tactix
from tactix.base.errors import InvalidArgument, TactixError
from tactix_tensorrt import api as trt
from tactix_tools.trtexec import reports
from tactix_tools.trtexec.arguments import Arguments, size
from tactix_tools.trtexec.bindings import Bindings, inputs_of
from tactix_tools.trtexec.flags import GROUPS, Standing
from tactix_tools.trtexec.installing import install
from tactix_tools.trtexec.lines import ReportLines, as_trtexec
from tactix_tools.trtexec.models import MIB, TrtexecFailure, engine_of, refit
from tactix_tools.trtexec.options import AllOptions, InferenceOptions, ReportingOptions, read
from tactix_tools.trtexec.plugin_files import load_plugins
from tactix_tools.trtexec.queries import Measured, measure
from tactix_tools.trtexec.sections import print_options

PASSED, FAILED = 0, 1
PROFILED = 10
"""Queries in which times of layers are taken."""


def main(argv: Sequence[str]) -> int:
    """Run trtexec with these flags; its exit status."""
    if not argv or any(word in ("--help", "-h", "--h") for word in argv):
        print(help_text())
        return PASSED if argv else FAILED
    lines = ReportLines("--verbose" in argv)
    _headline("RUNNING", argv)
    try:
        _run(Arguments(argv), lines)
    except (TactixError, TrtexecFailure, OSError) as e:
        lines.fail(str(e))
        _headline("FAILED", argv)
        return FAILED
    except Exception:
        _headline("FAILED", argv)
        raise
    _headline("PASSED", argv)
    return PASSED


def _headline(state: str, argv: Sequence[str]) -> None:
    """What scripts look for. The version is as TensorRT writes it: v101600, before 10 v8601."""
    major, minor, patch = (int(part) for part in trt.__version__.split("."))
    number = major * (10000 if major >= 10 else 1000) + minor * 100 + patch
    words = " ".join(["trtexec", *argv])
    told = f"[TensorRT v{number}] [tactix {tactix.__version__}] # {words}"
    print(f"&&&& {state} TensorRT.trtexec {told}", flush=True)


def help_text() -> str:
    """All flags, by group."""
    out = ["Build a plan of a model, or load one, and measure it. Flags are TensorRT's."]
    for title, group in GROUPS.items():
        out += ["", f"=== {title} Options ==="]
        for flag in group:
            served = flag.standing is Standing.SERVED
            note = "" if served else f" ({flag.standing.value}: {flag.why})"
            out.append(f"  {flag.spelling:<36} {flag.help}{note}")
    return "\n".join(out)


def _run(args: Arguments, lines: ReportLines) -> None:
    if folder := args.text("install"):
        lines.info(f"Installed {install(folder)}")
        return
    options = read(args)
    print_options(options, lines)
    for flag in args.flags():
        if flag.standing is Standing.KEPT:
            lines.info(f"--{flag.name} changes nothing here: {flag.why}")
    lines.info(f"TensorRT version: {trt.__version__}, as tactix {tactix.__version__} has it")
    for path in options.plugins:
        load_plugins(path)
    engine = engine_of(options, lines)
    if options.inference.time_deserialize:
        return
    if options.build.refit_from:
        refit(engine, options.build.refit_from, options.inference.time_refit, lines)
    _tell_of_engine(engine, options.reporting, lines)
    if options.build.skip_inference:
        lines.info("Skipped inference phase since --skipInference is added.")
        return
    _infer(engine, options, lines)


def _tell_of_engine(engine: trt.ICudaEngine, options: ReportingOptions, lines: ReportLines) -> None:
    """What it is made of."""
    if "dumpRefit" in options.dumps:
        names = trt.Refitter(engine, lines).get_all_weights()
        lines.info("\n".join(["Refittable weights:", *names]))
    if "dumpLayerInfo" in options.dumps:
        reports.print_layers(engine, lines)
    if "dumpOptimizationProfile" in options.dumps:
        reports.print_profiles(engine, lines)
    if options.layers:
        reports.export_layers(options.layers, engine)


def _infer(engine: trt.ICudaEngine, options: AllOptions, lines: ReportLines) -> None:
    """Measure, and tell what was asked for."""
    asked, told = options.inference, options.reporting
    if asked.budget:
        engine.weight_streaming_budget_v2 = _budget(asked.budget, engine.streamable_weights_size)
    inputs = inputs_of(engine, asked, lines)
    contexts = [_context(engine, asked, lines) for _ in range(asked.streams)]
    bindings = [Bindings(engine, c, inputs) for c in contexts]
    for name, array in inputs.items():
        lines.info(
            f"Input binding for {name} with dimensions {as_trtexec(array.shape)} is created."
        )
    lines.info("Starting inference")
    found = measure(contexts, bindings, asked)
    reports.print_performance(found, told, asked.warm_up, engine.native.device.host_memory, lines)
    _tell_of_results(bindings[0], found, told, lines)
    if told.profile or "dumpProfile" in told.dumps:
        _tell_of_layers(contexts[0], bindings[0], told, lines)
    if told.debug_files or told.debug_formats:
        _save_debug_tensors(contexts[0], told, lines)


def _save_debug_tensors(
    context: trt.IExecutionContext, options: ReportingOptions, lines: ReportLines
) -> None:
    """Of one query more: writing costs time."""
    if not hasattr(trt, "IDebugListener"):
        why = f"TensorRT {trt.__version__} has none"
        raise InvalidArgument("debug tensors", why=why, do="Set TACTIX_TENSORRT_LEVEL=10.16")
    from tactix_tools.trtexec.debug_tensors import save

    save(context, options, lines)


def _context(
    engine: trt.ICudaEngine, options: InferenceOptions, lines: ReportLines
) -> trt.IExecutionContext:
    context = engine.create_execution_context()
    if context is None or not context.set_optimization_profile_async(options.profile, 0):
        raise TrtexecFailure("Inference set up failed")
    amount = engine.device_memory_size_v2 / MIB
    lines.info(f"Created execution context with device memory size: {amount:.6g} MiB")
    return context


def _budget(text: str, all_of: int) -> int:
    """Bytes of ``25%``, or as ``size`` reads. Raises InvalidArgument."""
    try:
        return int(float(text[:-1]) / 100 * all_of) if text.endswith("%") else size(text)
    except ValueError as e:
        raise InvalidArgument(f"--weightStreamingBudget={text}", why=str(e)) from None


def _tell_of_results(
    bindings: Bindings, found: Measured, options: ReportingOptions, lines: ReportLines
) -> None:
    """Times and outputs."""
    if options.times:
        reports.export_times(options.times, found.queries)
    outputs = bindings.download()
    if "dumpOutput" in options.dumps:
        reports.print_output(outputs, lines)
    if options.output:
        reports.export_output(options.output, outputs)
    if "dumpRawBindingsToFile" in options.dumps:
        written = reports.write_raw(bindings.inputs, "input")
        written += reports.write_raw(outputs, "output")
        lines.info(f"Wrote {', '.join(written)}")


def _tell_of_layers(
    context: trt.IExecutionContext,
    bindings: Bindings,
    options: ReportingOptions,
    lines: ReportLines,
) -> None:
    """Times of layers, of queries that are run for them: reports cost time."""
    times = reports.LayerTimes()
    context.profiler = times
    measure([context], [bindings], InferenceOptions(iterations=PROFILED, warm_up=0.0, duration=0.0))
    if "dumpProfile" in options.dumps:
        times.print(lines)
    if options.profile:
        times.export(options.profile)
