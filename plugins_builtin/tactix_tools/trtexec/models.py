"""An engine, of a model or of a plan, as the options say. Raises TrtexecFailure, TactixError,
OSError.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeVar

from tactix.base.errors import InvalidArgument
from tactix.base.files import replacing
from tactix.base.spelling import did_you_mean
from tactix_tensorrt import api as trt
from tactix_tensorrt.api.callbacks import IInt8EntropyCalibrator2  # no level but 10 shows it
from tactix_tools.options import Shapes
from tactix_tools.trtexec.lines import ReportLines, as_trtexec
from tactix_tools.trtexec.options import (
    DEFAULT_LEVEL,
    PLATFORMS,
    AllOptions,
    BuildOptions,
    ProfileShapes,
)

Flagging = TypeVar("Flagging", trt.BuilderFlag, trt.NetworkDefinitionCreationFlag, trt.TacticSource)
MIB = 1 << 20
HARDWARE = {"none": "NONE", "ampere+": "AMPERE_PLUS"}


class KeptScales(IInt8EntropyCalibrator2):
    """A calibration that was done before."""

    def __init__(self, cache: bytes) -> None:
        super().__init__()
        self._cache = cache

    def read_calibration_cache(self) -> bytes:
        return self._cache


class TrtexecFailure(Exception):
    """What ends a run of trtexec; the log has told why."""


def engine_of(options: AllOptions, lines: ReportLines) -> trt.ICudaEngine:
    """Built or loaded, and written where that was asked for."""
    build = options.build
    plan = Path(build.load).read_bytes() if build.load else _build(options, lines)
    if build.load:
        lines.info(f"Engine loaded of size {len(plan) / MIB:.6g} MiB")
    if build.save:
        with replacing(build.save) as f:
            f.write(plan)
    return _loaded(plan, lines)


def _loaded(plan: bytes, lines: ReportLines) -> trt.ICudaEngine:
    begin = time.perf_counter()
    engine = trt.Runtime(lines).deserialize_cuda_engine(plan)
    if engine is None:
        raise TrtexecFailure("Engine deserialization failed")
    lines.info(f"Engine deserialized in {time.perf_counter() - begin:.6g} sec.")
    return engine


def refit(engine: trt.ICudaEngine, model: str, timed: bool, lines: ReportLines) -> None:
    """Give it a model's weights."""
    begin = time.perf_counter()
    refitter = trt.Refitter(engine, lines)
    parser = trt.OnnxParserRefitter(refitter, lines)
    if not (parser.refit_from_file(model) and refitter.refit_cuda_engine()):
        raise TrtexecFailure("Engine could not be refitted")
    if timed:
        lines.info(f"Engine refitted in {(time.perf_counter() - begin) * 1e3:.6g} ms.")


def _build(options: AllOptions, lines: ReportLines) -> bytes:
    """The plan's bytes."""
    builder = trt.Builder(lines)
    network = _network(options, builder, lines)
    config = _config(options.build, builder, network, lines)
    for index, profile in enumerate(_profiles(options.build, network, lines)):
        made = builder.create_optimization_profile()
        for tensor in network.inputs:
            if tensor.name in profile.opt:
                _set_range(made, tensor, profile)
        if config.add_optimization_profile(made) != index:
            raise TrtexecFailure("Optimization profile is invalid")
    begin = time.perf_counter()
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise TrtexecFailure("Engine could not be created from network")
    lines.info(f"Engine built in {time.perf_counter() - begin:.6g} sec.")
    lines.info(f"Created engine with size: {plan.nbytes / MIB:.6g} MiB")
    _keep_timings(options.build, config)
    return bytes(memoryview(plan))


def _network(
    options: AllOptions, builder: trt.Builder, lines: ReportLines
) -> trt.INetworkDefinition:
    kind = trt.NetworkDefinitionCreationFlag
    typed = options.build.strongly_typed
    network = builder.create_network(_member(kind, "STRONGLY_TYPED").mask if typed else 0)
    begin = time.perf_counter()
    lines.info("Start parsing network model.")
    parser = trt.OnnxParser(network, lines)
    if not parser.parse_from_file(options.onnx):
        told = [parser.get_error(i).desc() for i in range(parser.num_errors)]
        raise TrtexecFailure("\n".join([*told, "Failed to parse onnx file"]))
    lines.info(f"Finished parsing network model. Parse time: {time.perf_counter() - begin:.6g}")
    _set_types(network.inputs, options.build.input_types)
    _set_types(network.outputs, options.build.output_types)
    _mark_debug(network, options.build)
    return network


def _mark_debug(network: trt.INetworkDefinition, options: BuildOptions) -> None:
    """Raises InvalidArgument for a name that no tensor has."""
    made = (t for layer in network.layers for t in layer.outputs)
    tensors = {t.name: t for t in (*network.inputs, *made)}
    for name in options.debug:
        if name not in tensors:
            do = did_you_mean(name, list(tensors), "Give names of the model's tensors")
            raise InvalidArgument(f"--markDebug: no tensor is named {name!r}", do=do)
        network.mark_debug(tensors[name])
    if options.debug_unfused:
        network.mark_unfused_tensors_as_debug_tensors()


def _set_types(tensors: Sequence[trt.ITensor], names: Sequence[str]) -> None:
    """One type for all, or one each."""
    if not names:
        return
    if len(names) not in (1, len(tensors)):
        raise InvalidArgument(f"{len(names)} formats for {len(tensors)} tensors", do="Give one")
    for tensor, name in zip(tensors, itertools.cycle(names), strict=False):
        wanted = getattr(trt.DataType, name)
        tensor.dtype = wanted
        if tensor.dtype != wanted:
            raise TrtexecFailure(f"{tensor.name} cannot be {name}")


def _config(
    options: BuildOptions, builder: trt.Builder, network: trt.INetworkDefinition, lines: ReportLines
) -> trt.IBuilderConfig:
    config = builder.create_builder_config()
    for name in sorted(options.flags):
        config.set_flag(_member(trt.BuilderFlag, name))
    if not options.tf32:
        config.clear_flag(trt.BuilderFlag.TF32)
    for pool, amount in options.pools.items():
        config.set_memory_pool_limit(getattr(trt.MemoryPoolType, pool), amount)
    if options.level != DEFAULT_LEVEL:
        config.builder_optimization_level = options.level
    config.max_aux_streams = options.aux_streams
    config.profiling_verbosity = trt.ProfilingVerbosity[options.verbosity.upper()]
    config.hardware_compatibility_level = trt.HardwareCompatibilityLevel[
        HARDWARE[options.compatibility]
    ]
    if options.platform != "SameAsBuild":
        config.runtime_platform = trt.RuntimePlatform[PLATFORMS[options.platform]]
    if options.dla >= 0:
        config.default_device_type, config.DLA_core = trt.DeviceType.DLA, options.dla
    _set_calibration(options, config)
    _set_tactics(options, config)
    _set_precisions(options, network, lines)
    if options.timing_cache:
        path = Path(options.timing_cache)
        found = path.read_bytes() if path.is_file() else b""
        config.set_timing_cache(config.create_timing_cache(found), ignore_mismatch=False)
    return config


def _set_calibration(options: BuildOptions, config: trt.IBuilderConfig) -> None:
    """Raises InvalidArgument for a file that is not there, or a level without calibrators."""
    if not options.calibration:
        return
    path = Path(options.calibration)
    if not path.is_file():
        do = "Make one by `tactix quantize MODEL --data DIR --cache FILE`"
        raise InvalidArgument(f"--calib={path}: there is no such calibration cache", do=do)
    _member(trt.BuilderFlag, "INT8")
    config.int8_calibrator = KeptScales(path.read_bytes())


def _set_tactics(options: BuildOptions, config: trt.IBuilderConfig) -> None:
    """What may be tried."""
    if options.tactics > 0:
        config.max_num_tactics = options.tactics
    sources = config.get_tactic_sources()
    for item in options.sources:
        mask = _member(trt.TacticSource, item[1:]).mask
        sources = sources | mask if item.startswith("+") else sources & ~mask
    if options.sources:
        config.set_tactic_sources(sources)


def _member(kind: type[Flagging], name: str) -> Flagging:
    """A flag that this level has. Raises InvalidArgument."""
    found = kind.__members__.get(name)
    if found is None:
        why = f"TensorRT {trt.__version__} has no {name}"
        raise InvalidArgument("a flag that is gone", why=why, do="Set TACTIX_TENSORRT_LEVEL=10.16")
    return found


def _set_precisions(
    options: BuildOptions, network: trt.INetworkDefinition, lines: ReportLines
) -> None:
    """Of layers by name; what obeys them is a flag of the builder."""
    if options.layer_precisions and options.constraints == "none":
        lines.warn("--layerPrecisions changes nothing without --precisionConstraints=obey")
        return
    for pattern, name in options.layer_precisions.items():
        meant = [layer for layer in network.layers if fnmatchcase(layer.name, pattern)]
        if not meant:
            lines.warn(f"--layerPrecisions: no layer is named {pattern!r}")
        for layer in meant:
            layer.precision = getattr(trt.DataType, name)


def _profiles(
    options: BuildOptions, network: trt.INetworkDefinition, lines: ReportLines
) -> Iterator[ProfileShapes]:
    """Those that were given; where none was, one of an open input with sizes of 1."""
    shapes = {t.name: tuple(t.shape) for t in network.inputs}
    for profile in options.profiles:
        if unknown := profile.opt.keys() - shapes.keys():
            raise InvalidArgument(
                f'Cannot find input tensor with name "{min(unknown)}" in the network inputs!',
                do=f"There are {', '.join(shapes)}",
            )
        yield _completed(profile, shapes, lines)
    if not options.profiles and any(-1 in s for s in shapes.values()):
        yield _completed(ProfileShapes({}, {}, {}), shapes, lines)


def _completed(profile: ProfileShapes, shapes: Shapes, lines: ReportLines) -> ProfileShapes:
    """With sizes of 1 for open inputs that it lacks."""
    added = {}
    for name, shape in shapes.items():
        if -1 in shape and name not in profile.opt:
            added[name] = tuple(1 if n < 0 else n for n in shape)
            lines.warn(
                f"Dynamic dimensions required for input: {name}, but no shapes were provided. "
                f"Automatically overriding shape to: {as_trtexec(added[name])}"
            )
    return ProfileShapes(
        {**profile.low, **added}, {**profile.opt, **added}, {**profile.high, **added}
    )


def _set_range(made: trt.IOptimizationProfile, tensor: trt.ITensor, profile: ProfileShapes) -> None:
    """Of a shape tensor what is given are its values. Raises InvalidArgument."""
    name = tensor.name
    rows = [rows[name] for rows in (profile.low, profile.opt, profile.high)]
    if not tensor.is_shape_tensor:
        try:
            made.set_shape(name, *rows)
        except ValueError as e:
            raise TrtexecFailure(f"Shapes of {name} are not in order") from e
        return
    count = trt.volume(tensor.shape)
    for row in rows:
        check_values(name, row, count)
    if not made.set_shape_input(name, *rows):
        raise TrtexecFailure(f"Values of {name} are not in order")


def check_values(name: str, values: Sequence[int], count: int) -> None:
    """Raises InvalidArgument for other than ``count`` values of a shape tensor."""
    if len(values) != count:
        what = f"the shape tensor {name!r} holds {count} values, not {len(values)}"
        raise InvalidArgument(what, do="Give what it holds, not its shape: NAME:3x4 for [3, 4]")


def _keep_timings(options: BuildOptions, config: trt.IBuilderConfig) -> None:
    """In the file that was given."""
    cache = config.get_timing_cache()
    if cache is not None:
        with replacing(options.timing_cache) as f:
            f.write(bytes(memoryview(cache.serialize())))
