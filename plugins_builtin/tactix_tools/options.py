"""Options that several tools share, and what they mean to the builder."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from tactix.base.logger import Severity
from tactix.contracts.launcher import MOST_THREADS
from tactix.contracts.trust import OnUntrusted
from tactix.plan.reader import LIMIT

F = TypeVar("F", bound=Callable[..., Any])
Shapes = dict[str, tuple[int, ...]]

_SHAPE = re.compile(r"(?P<name>.+?):(?P<dims>\d+(x\d+)*|scalar)")
_TIME = re.compile(r"(?P<number>\d+(\.\d+)?)(?P<unit>ms|s|m|h|)")
_DIGITS = len(str(LIMIT))
_FLAGS = (
    "no_fallback", "gpu_fallback", "version_compatible", "exclude_lean_runtime", "refit",
    "refit_identical", "strip_plan", "weight_streaming", "reserve_states",
)  # fmt: skip
_UNITS = {"ms": 1e-3, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0}
_SIZE = re.compile(r"(?P<number>\d+(\.\d+)?)(?P<unit>[KMG%]|)")
_BYTES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class ShapesType(click.ParamType):
    """``name:1x3x224x224`` or several with commas between; ``name:scalar`` for rank 0."""

    name = "NAME:DxD[,...]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Shapes:
        out: Shapes = {}
        for item in value.split(","):
            found = _SHAPE.fullmatch(item.strip())
            if found is None:
                self.fail(f"{item!r} is not of the form name:1x3x224x224", param, ctx)
            sizes = [] if found["dims"] == "scalar" else found["dims"].split("x")
            if any(len(d) > _DIGITS or int(d) >= LIMIT for d in sizes):
                self.fail(f"{item!r}: a plan takes sizes up to {LIMIT - 1}", param, ctx)
            out[found["name"]] = tuple(map(int, sizes))
        return out


class DurationType(click.ParamType):
    """``90``, ``90s``, ``250ms``, ``2m`` in seconds.

    ``zero``: the cure that is told with a refusal of 0; empty where 0 is taken.
    """

    name = "TIME"

    def __init__(self, zero: str = "") -> None:
        self.zero = zero

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, float):
            return value
        found = _TIME.fullmatch(value)
        if found is None:
            self.fail(f"{value!r} is not a time like 90s, 250ms or 2m", param, ctx)
        seconds = float(found["number"]) * _UNITS[found["unit"]]
        if self.zero and not seconds:
            self.fail(f"{value!r} is no time at all. {self.zero}", param, ctx)
        return seconds


class SizeType(click.ParamType):
    """``200M``, ``1.5G``, ``4096`` in bytes, an int; ``25%`` as a share, a float."""

    name = "BYTES|N%"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | float:
        if isinstance(value, int | float):
            return value
        found = _SIZE.fullmatch(value)
        if found is None:
            self.fail(f"{value!r} is not a size like 200M, 1.5G or 25%", param, ctx)
        number, unit = float(found["number"]), found["unit"]
        return number / 100 if unit == "%" else int(number * _BYTES[unit])


class ToleranceType(click.FloatRange):
    """A number of 0 or more: nothing is near a NaN."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value!r} is no tolerance. Give a number of 0 or more", param, ctx)
        return number


SHAPES, DURATION, SIZE, TOLERANCE = ShapesType(), DurationType(), SizeType(), ToleranceType(0)
FILE = click.Path(exists=True, dir_okay=False)


def merged(given: tuple[Shapes, ...]) -> Shapes:
    """One table of an option that may be repeated."""
    return {name: shape for one in given for name, shape in one.items()}


def _stack(options: list[Callable[[F], F]]) -> Callable[[F], F]:
    def wrap(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return wrap


enable_option = click.option(
    "--enable",
    metavar="PACK",
    multiple=True,
    help="Let a pack touch others' layers, operators and formats.",
)
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document on stdout, nothing else."
)
untrusted_option = click.option(
    "--untrusted",
    type=click.Choice([p.value for p in OnUntrusted]),
    help="What becomes of a plan whose code is not trusted; default: TACTIX_UNTRUSTED, or refuse.",
)
shapes_option = click.option(
    "--shapes",
    type=SHAPES,
    multiple=True,
    help="Input shapes, for example x:1x3x224x224,mask:1x128.",
)


def input_options(function: F) -> F:
    """Where the input arrays come from; ``arrays.feed`` understands the keywords."""
    return _stack(
        [
            shapes_option,
            click.option(
                "--inputs", type=FILE, help="Input arrays, an .npz file; default: random ones."
            ),
            click.option(
                "--seed",
                type=click.IntRange(0),
                default=0,
                show_default=True,
                help="Of the random inputs.",
            ),
            click.option(
                "--int-below",
                type=click.IntRange(1),
                default=2,
                show_default=True,
                help="Random integers are 0 or more and less than this.",
            ),
        ]
    )(function)


def engine_options(function: F) -> F:
    """What runs a plan, and what it may do and take; ``source.open_engine`` takes the keywords."""
    return _stack(
        [
            untrusted_option,
            click.option(
                "--flavour",
                default="default",
                show_default=True,
                help="What runs a plan: dispatch for the lean runtime in it, "
                "lean for that of this version.",
            ),
            click.option(
                "--lean-runtime",
                type=click.Path(exists=True),
                help="A lean runtime to run it: wheel or folder.",
            ),
            click.option(
                "--weight-streaming-budget",
                type=SIZE,
                help="Weights that may be in memory at once, "
                "of a plan with --weight-streaming: 200M, 25%.",
            ),
        ]
    )(function)


def devices_option(function: F) -> F:
    """Where a plan runs; ``source.open_engine`` takes the keyword."""
    return click.option(
        "--devices",
        default="",
        metavar="NAMES",
        help="Devices that take turns: cuda:1, or cuda:0,cuda:1, or all. "
        "By default the first that the plan is for.",
    )(function)


def build_options(function: F) -> F:
    """What says how to build; the tool gets it as keywords, which ``settings`` understands."""
    return _stack(
        [
            _profile_options,
            _choice_options,
            _numerics_options,
            _device_options,
            _plan_options,
            log_options,
        ]
    )(function)


@functools.cache
def _read_by_builds() -> dict[str, str]:
    """Options, as they are written, that only say how a model is built, by their keywords."""

    @build_options
    def options(**given: Any) -> None: ...

    params = click.command(options).params
    names = {p.name: next(o for o in p.opts if o.startswith("--")) for p in params if p.name}
    return {name: option for name, option in names.items() if name not in READ_BY_ENGINES}


READ_BY_ENGINES = frozenset({"threads", "verbose", "log_level"})
"""Of ``build_options``."""


def given_for_builds() -> list[str]:
    """Options of this command line that only say how a model is built."""
    source = click.get_current_context().get_parameter_source
    return [o for n, o in _read_by_builds().items() if source(n) is ParameterSource.COMMANDLINE]


def log_options(function: F) -> F:
    """What is told on stderr beside warnings; the command gets no keyword of it."""
    return _stack(
        [
            click.option(
                "-v",
                "--verbose",
                is_flag=True,
                expose_value=False,
                callback=_heard,
                help="As --log-level verbose.",
            ),
            click.option(
                "--log-level",
                type=click.Choice([s.name.lower() for s in Severity if s > 0]),
                expose_value=False,
                callback=_heard,
                help="What is told on stderr: info: fusions by rule, memory; verbose: each fusion, "
                "and each layer's tactic with the reason. Default: warning.",
            ),
        ]
    )(function)


def _heard(ctx: click.Context, param: click.Parameter, value: str | bool | None) -> None:
    """Sets what the session's logger hears."""
    if value:
        level = Severity.VERBOSE if value is True else Severity[str(value).upper()]
        ctx.obj.logger.min_severity = level


def _profile_options(function: F) -> F:
    return _stack(
        [
            click.option(
                "--min-shapes",
                type=SHAPES,
                multiple=True,
                help="Smallest input shapes of the profile.",
            ),
            click.option(
                "--opt-shapes", type=SHAPES, multiple=True, help="Input shapes to tune for."
            ),
            click.option(
                "--max-shapes",
                type=SHAPES,
                multiple=True,
                help="Largest input shapes of the profile.",
            ),
        ]
    )(function)


def _choice_options(function: F) -> F:
    """How tactics are chosen."""
    return _stack(
        [
            click.option(
                "-O",
                "--opt-level",
                type=click.IntRange(0, 5),
                default=3,
                show_default=True,
                help="How much to measure: 0 nothing, 5 every variant.",
            ),
            click.option(
                "--tactics", metavar="NAME[,...]", help="Tactic sources that may bid; default: all."
            ),
            click.option(
                "--threads",
                type=click.IntRange(0, MOST_THREADS),
                default=0,
                show_default=True,
                help="Threads of one inference; 0: TACTIX_NUM_THREADS, or all cores.",
            ),
            click.option(
                "--budget",
                type=DurationType("To measure nothing, give -O0"),
                default=None,
                help="Time after which measuring stops, like 60s.",
            ),
            click.option(
                "--trial-budget",
                type=DurationType(),
                default=None,
                help="Time that failed trials of one pack may take in all; default: 15s.",
            ),
            click.option(
                "--timing-cache",
                type=click.Path(dir_okay=False),
                help="Timing cache; default: the user's own.",
            ),
            click.option(
                "--no-timing-cache", is_flag=True, help="Neither read nor write a timing cache."
            ),
            click.option(
                "--frozen",
                is_flag=True,
                help="Fail where a timing is not in the cache; "
                "with --lock, where anything is not as it was.",
            ),
            click.option(
                "--lock",
                type=FILE,
                help="Choose by this file, which `tactix lock` wrote; for --frozen.",
            ),
            enable_option,
        ]
    )(function)


def _numerics_options(function: F) -> F:
    return _stack(
        [
            click.option("--exact", is_flag=True, help="No fusion that changes rounding."),
            click.option(
                "--precision",
                type=click.Choice(["fp32", "tf32", "fp16", "bf16", "int8", "fp8"]),
                default="fp32",
                show_default=True,
                help="What float32 layers may be computed in, where that is faster.",
            ),
            click.option(
                "--layer-precision",
                metavar="LAYER:TYPE",
                multiple=True,
                help="Precision of layers by name (* as in file names), obeyed: '*/norm*:fp32'.",
            ),
            click.option(
                "--calibration",
                type=click.Path(exists=True),
                metavar="PATH",
                help="For --precision int8 or fp8: sample inputs, a folder of .npy or .npz files, "
                "or one such file.",
            ),
            click.option(
                "--calibrator",
                default="",
                metavar="NAME",
                help="What makes ranges of them: minmax (default), entropy2, entropy, legacy.",
            ),
            click.option(
                "--calibration-cache",
                type=click.Path(dir_okay=False),
                metavar="FILE",
                help="Their scales in TensorRT's form: read if the file is there, else written.",
            ),
        ]
    )(function)


def _device_options(function: F) -> F:
    return _stack(
        [
            click.option(
                "--device",
                default="cpu",
                show_default=True,
                help="Device to build for: a kind or a key.",
            ),
            click.option(
                "--target",
                "--hardware-compatibility-level",
                "target",
                default="",
                metavar="NAME",
                help="Level, family or model of device, if not this machine's: "
                "x86-64-v3, armv8, sm_90a, h200.",
            ),
            click.option(
                "--no-fallback",
                is_flag=True,
                help="Fail where only the reference could run a layer.",
            ),
            click.option(
                "--gpu-fallback",
                is_flag=True,
                help="What happens without --no-fallback; it changes nothing.",
            ),
        ]
    )(function)


def _plan_options(function: F) -> F:
    """What the plan holds, and what may be done with it."""
    return _stack(
        [
            click.option(
                "--version-compatible",
                is_flag=True,
                help="Other versions can run the plan: it holds its runtime, "
                "and needs no vendor's library.",
            ),
            click.option(
                "--exclude-lean-runtime", is_flag=True, help="Leave the runtime out of such a plan."
            ),
            click.option(
                "--refit", is_flag=True, help="The plan takes other weights: tactix refit."
            ),
            click.option(
                "--refit-identical", is_flag=True, help="It takes the same weights again."
            ),
            click.option("--strip-plan", is_flag=True, help="Leave such weights out of the plan."),
            click.option(
                "--weight-streaming",
                is_flag=True,
                help="Engines may hold fewer weights than there are.",
            ),
            click.option(
                "--reserve-states",
                is_flag=True,
                help="States that grow lie in memory that contexts reserve.",
            ),
            click.option(
                "--profiling-verbosity",
                type=click.Choice(["detailed", "layer_names_only", "none"]),
                default="detailed",
                show_default=True,
                help="What the plan tells people of its layers.",
            ),
            click.option(
                "--embed",
                metavar="NAME|WHEEL|auto",
                multiple=True,
                help="Put a pack into the plan, if running it needs its Python; "
                "auto: all that it needs.",
            ),
        ]
    )(function)


def settings(options: dict[str, Any], shapes: Shapes | None = None) -> dict[str, Any]:
    """Keywords of ``tactix.build`` from those of ``build_options``; ``shapes``: fixed shapes.
    Raises UsageError.
    """
    if options["no_timing_cache"] and options["timing_cache"]:
        raise click.UsageError("--timing-cache and --no-timing-cache contradict each other")
    if options["lock"] and not options["frozen"]:
        raise click.UsageError("--lock is for frozen builds; give --frozen, too")
    sources = options["tactics"]
    given = {
        "tactic_sources": {s.strip() for s in sources.split(",")} if sources else None,
        "budget": options["budget"],
        "profiling_verbosity": _verbosity(options["profiling_verbosity"]),
        "trial_budget": options["trial_budget"],
    }
    return {
        "level": options["opt_level"],
        "threads": options["threads"],
        "plugins_to_serialize": list(options["embed"]),
        "frozen": options["lock"] or options["frozen"],
        "enable": options["enable"],
        "flags": _flags(options),
        "device": options["device"],
        "target": options["target"],
        "precision": options["precision"],
        "calibration": _calibration(options),
        "layer_precisions": _layer_precisions(options["layer_precision"]),
        "timing_cache": False if options["no_timing_cache"] else options["timing_cache"],
        "shapes": profile(options, shapes or {}),
        **{name: value for name, value in given.items() if value is not None},
    }


def _verbosity(name: str) -> Any:
    from tactix.config import ProfilingVerbosity

    return ProfilingVerbosity(name)


def _flags(options: dict[str, Any]) -> set[Any]:
    """Builder flags; most options are called as theirs."""
    from tactix.config import BuilderFlag

    exact = {BuilderFlag.EXACT_NUMERICS} if options["exact"] else set()
    return exact | {BuilderFlag(name) for name in _FLAGS if options[name]}


def _calibration(options: dict[str, Any]) -> Any:
    """Where ranges come from; None where nothing is said of it."""
    from tactix.contracts.calibrator import Calibration

    data, cache = options["calibration"], options["calibration_cache"]
    if not (data or cache or options["calibrator"]):
        return None
    return Calibration(data, options["calibrator"], cache)


def _layer_precisions(items: tuple[str, ...]) -> dict[str, str]:
    """Precisions by pattern, of items ``pattern:precision``."""
    from tactix.config import BuilderConfig

    config = BuilderConfig()
    for item in items:
        config.set_layer_precision(*item.rpartition(":")[::2])
    return config.layer_precisions


def profile(options: dict[str, Any], fixed: Shapes) -> dict[str, Any]:
    """(min, opt, max) by input name; what is not given is taken from what is, opt first."""
    low, opt, high = (merged(options[f"{k}_shapes"]) for k in ("min", "opt", "max"))
    out: dict[str, Any] = {name: (shape, shape, shape) for name, shape in fixed.items()}
    for name in {**low, **opt, **high}:
        middle = next(given[name] for given in (opt, low, high) if name in given)
        out[name] = (low.get(name, middle), middle, high.get(name, middle))
    return out
