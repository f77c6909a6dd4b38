"""``tactix quantize``: an ONNX file of floats to one whose layers read 8 bits or fewer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from tactix.base.files import replacing
from tactix.builder import Builder
from tactix.config import BuilderConfig
from tactix.contracts.calibrator import Calibration
from tactix.network.definition import NetworkDefinition
from tactix.plan.schema import Plan, TensorIO
from tactix.plugins.session import Session
from tactix_quantize import onnx_model, trade
from tactix_quantize.accuracy import AccuracyControl, AccuracyTrade, script_metric
from tactix_quantize.calibrate import Observer
from tactix_quantize.data_rounding import DataRounding
from tactix_quantize.model import FloatModel, LayerOptions
from tactix_quantize.numbers import INTEGERS, NUMBERS, REDUCED, NarrowNumbers
from tactix_quantize.weight_blocks import FewBits
from tactix_quantize.weights_only import WeightsOnly
from tactix_tools import arrays, options, show, source
from tactix_tools.progress import BuildProgress
from tactix_tools.show import errors_console

ACTIVATIONS = {4: "int8", 8: "float"}
"""What activations are multiplied as, by the bits of weights, unless that is asked for. Of blocks
of 32 normal numbers 4 bits keep 21 dB of signal to noise, 8 bits 45: beside weights of 4 bits
rounded activations add 0.01 dB of noise, beside 8 bits 3 dB.
"""
SHOWN = 12
"""Layers in the table of losses, unless all are asked for."""


@click.command("quantize")
@click.argument("model", type=options.FILE)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    help="The file to write; default: MODEL's, with .int8.onnx or what else it reads.",
)
@click.option(
    "--precision",
    type=click.Choice(list(NUMBERS)),
    default=INTEGERS.name,
    show_default=True,
    help="What layers read: integers, or floats (E4M3), which Hopper GPUs multiply.",
)
@click.option(
    "--data",
    type=click.Path(exists=True),
    metavar="PATH",
    help="Sample inputs: a folder of .npy or .npz files, or one such file.",
)
@click.option(
    "--random",
    "count",
    type=click.IntRange(1),
    metavar="N",
    help="In place of data: N batches of normal floats, and of integers as --int-below says.",
)
@click.option(
    "--calibrator",
    default="",
    metavar="NAME",
    help="What makes ranges of them: minmax (default), entropy2, entropy, legacy.",
)
@click.option(
    "--cache",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Scales in TensorRT's form: read if the file is there, else written.",
)
@click.option(
    "--symmetric", is_flag=True, help="int8 with zero point 0 for all tensors, as TensorRT wants."
)
@click.option("--per-tensor", is_flag=True, help="One scale for weights, not one a channel.")
@click.option(
    "--reduce-range",
    is_flag=True,
    help="int8 weights of 7 bits: for x86 processors without VNNI, where products are faster then, "
    "and those of ONNX Runtime exact.",
)
@click.option(
    "--weights",
    type=click.Choice(["int4", "int8"]),
    help="Only weights of MatMul and Gemm, and embeddings, in blocks; activations are floats.",
)
@click.option(
    "--block",
    type=click.Choice(["16", "32", "64", "128"]),
    default="32",
    show_default=True,
    help="For --weights: elements that share a scale.",
)
@click.option(
    "--zero-points", is_flag=True, help="For --weights: every block has one, not the middle."
)
@click.option(
    "--activations",
    type=click.Choice(["int8", "float"]),
    help="For --weights: whether what runs the file may round activations to int8, a scale for "
    "each block, or keeps floats. Default: int8 beside int4 weights, which are rounded far more; "
    "float beside int8.",
)
@click.option(
    "--method",
    type=click.Choice(["rtn", "gptq", "awq"]),
    default="rtn",
    show_default=True,
    help="For --weights: round to the nearest, or by --data, as GPTQ or AWQ do.",
)
@click.option(
    "--exclude",
    multiple=True,
    metavar="LAYER",
    help="Layers that stay float, by name (* as in file names); repeatable.",
)
@click.option(
    "--max-drop",
    type=click.FloatRange(0),
    metavar="X",
    help="Leave so many layers float that the metric drops by no more.",
)
@click.option(
    "--metric",
    type=options.FILE,
    metavar="SCRIPT",
    help="For --max-drop: a Python file with metric(outputs, inputs), more is better; without it "
    "1 less the noise of the outputs by their signal.",
)
@click.option(
    "--picture",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="For --max-drop: an SVG of drop over layers in floats.",
)
@options.shapes_option
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of --random.")
@click.option(
    "--int-below",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    help="Random integers are from 0 up to below this.",
)
@click.option("--threads", type=click.IntRange(0), default=0, help="That run the model; 0: all.")
@click.option("--quiet", is_flag=True, help="No progress.")
@options.json_option
@click.pass_obj
def command(session: Session, /, **given: Any) -> None:
    """Write MODEL with QuantizeLinear and DequantizeLinear operators, as ONNX Runtime, OpenVINO,
    TensorRT and tactix read them.

    Scales follow from sample inputs, on which the model is run as it is. Conv, Gemm and MatMul with
    constant weights read 8-bit integers then, or Gemm and MatMul 8-bit floats (--precision fp8).
    With --max-drop the fewest layers stay float with which the model is good enough. With --weights
    constant weights alone, float32 or float16, have few bits, and samples are not needed. Ctrl-C
    ends it and writes nothing.
    """
    _check(given)
    suffix = f".{given['weights'] or given['precision']}.onnx"
    path = Path(given["output"] or Path(given["model"]).with_suffix(suffix))
    source.output(path)
    if given["picture"]:
        source.output(given["picture"], "--picture")
    if given["cache"] and not Path(given["cache"]).exists():
        source.output(given["cache"], "--cache")
    config = BuilderConfig(threads=given["threads"])
    with BuildProgress(errors_console(), given["quiet"] or given["as_json"], keeps=False) as bars:
        config.progress_monitor = bars
        quantize = _weights if given["weights"] else _quantize
        facts = quantize(given, path, Observer(session, config))
    _tell(facts, given["as_json"])


def _tell(facts: dict[str, Any], as_json: bool) -> None:
    if as_json:
        show.print_json(facts)
    else:
        _print(facts)


def _weights(given: dict[str, Any], path: Path, by: Observer) -> dict[str, Any]:
    """Write the file with weights of few bits; gives what is told of it."""
    bits = int(given["weights"].removeprefix("int"))
    kind = FewBits(bits, int(given["block"]), not given["zero_points"])
    activations = given["activations"] or ACTIVATIONS[bits]
    model = WeightsOnly(given["model"], kind, given["exclude"], activations == "int8")
    method = given["method"]
    rounding: DataRounding | None = None
    if method != "rtn":
        data = given["data"] or _batches(given["model"], given, by)
        rounding = DataRounding(given["model"], method, kind, data, by)
        rounding.prepare(model.products, model.weights)
    outcome = model.written(rounding)
    onnx_model.save(outcome.model, path)
    counts = {"layers": outcome.layers, "quantized": len(outcome.names)}
    kinds = {"weights": given["weights"], "activations": activations}
    return {**_sizes(given, path), **kinds, **counts}


def _sizes(given: dict[str, Any], path: Path) -> dict[str, Any]:
    sizes = {"bytes": _stored_bytes(path), "float_bytes": _stored_bytes(Path(given["model"]))}
    return {"model": str(path), **sizes}


def _stored_bytes(model: Path) -> int:
    """Of a model's file, and of those beside it that hold its weights."""
    from tactix_onnx.importer import OnnxImporter

    return sum(f.stat().st_size for f in {model, *OnnxImporter().files(model)})


def _check(given: dict[str, Any]) -> None:
    """Raises click.UsageError for options that need others, or contradict them; InvalidArgument."""
    source.require_model(given["model"])
    if given["output"] and Path(given["output"]).resolve() == Path(given["model"]).resolve():
        raise click.UsageError("the output would overwrite the model; give another one")
    if given["weights"]:
        _check_weights(given)
    else:
        _check_data(given)


SAMPLED = {
    "data": "--data",
    "count": "--random",
    "calibrator": "--calibrator",
    "cache": "--cache",
    "symmetric": "--symmetric",
    "per_tensor": "--per-tensor",
    "reduce_range": "--reduce-range",
    "max_drop": "--max-drop",
    "metric": "--metric",
    "picture": "--picture",
}
"""Options that --weights has no use for."""
DATA = ("data", "count")
"""Of these those that it has use for where weights are rounded by data."""


def _check_weights(given: dict[str, Any]) -> None:
    by_data = given["method"] != "rtn"
    asked = {n: o for n, o in SAMPLED.items() if given[n] not in (None, False, "")}
    for name, option in asked.items():
        if name not in DATA:
            raise click.UsageError(f"{option} and --weights contradict each other")
        if not by_data:
            what = "rounds to the nearest without data; --method gptq and awq round by it"
            raise click.UsageError(f"{option} is of no use: --weights {what}")
    if given["precision"] != INTEGERS.name:
        raise click.UsageError("--precision and --weights contradict each other")
    if by_data and not (given["data"] or given["count"]):
        raise click.UsageError(f"--method {given['method']} needs --data or --random")
    if given["data"] and given["count"]:
        raise click.UsageError("--data and --random contradict each other")


def _check_data(given: dict[str, Any]) -> None:
    plain = not given["zero_points"] and given["block"] == "32" and given["method"] == "rtn"
    if not plain or given["activations"]:
        what = "--block, --zero-points, --activations and --method are for --weights"
        raise click.UsageError(what)
    if given["symmetric"] and given["precision"] != INTEGERS.name:
        raise click.UsageError("--symmetric is for --precision int8: floats have no zero point")
    if given["reduce_range"] and given["precision"] != INTEGERS.name:
        raise click.UsageError("--reduce-range is for --precision int8")
    if given["data"] and given["count"]:
        raise click.UsageError("--data and --random contradict each other")
    cached = given["cache"] and Path(given["cache"]).exists()
    if not (given["data"] or given["count"] or cached):
        raise click.UsageError("give --data, --random, a --cache that is there, or --weights")
    if given["max_drop"] is None and (given["metric"] or given["picture"]):
        raise click.UsageError("--metric and --picture are for --max-drop")
    if given["max_drop"] is not None and not math.isfinite(given["max_drop"]):
        raise click.UsageError("--max-drop takes a finite number")
    if given["max_drop"] is not None and not (given["data"] or given["count"]):
        raise click.UsageError("--max-drop needs --data or --random, to run the model on")


def _numbers(given: dict[str, Any]) -> NarrowNumbers:
    return REDUCED if given["reduce_range"] else NUMBERS[given["precision"]]


def _quantize(given: dict[str, Any], path: Path, by: Observer) -> dict[str, Any]:
    """Write the file; gives what is told of it."""
    metric = script_metric(given["metric"]) if given["metric"] else None
    numbers = _numbers(given)
    choices = LayerOptions(given["exclude"], not given["per_tensor"], numbers)
    model = FloatModel(given["model"], by, choices)
    data = given["data"] or (_random(model.network, given) if given["count"] else None)
    calibration = Calibration(
        data, given["calibrator"], given["cache"], symmetric=given["symmetric"]
    )
    model.calibrate(calibration)
    outcome: AccuracyTrade | None = None
    if given["max_drop"] is not None:
        outcome = AccuracyControl(model, data, by).search(given["max_drop"], metric)
    wide = outcome.best.wide if outcome else ()
    onnx_model.save(model.quantized_file(wide), path)
    quantized, stayed = len(model.layers()) - len(wide), model.wide(wide)
    if outcome and given["picture"]:
        with replacing(given["picture"]) as f:
            f.write(trade.svg(outcome, given["max_drop"]).encode())
    return {
        **_sizes(given, path),
        "precision": numbers.name,
        "layers": quantized + len(stayed),
        "quantized": quantized,
        "stayed": dict(sorted(stayed.items())),
        **(trade.facts(outcome) if outcome else {}),
    }


def _batches(path: str, given: dict[str, Any], by: Observer) -> list[dict[str, Any]]:
    """Random batches of a model that is not imported yet."""
    return _random(Builder(by.session.logger, by.session).import_model(path), given)


def _random(network: NetworkDefinition, given: dict[str, Any]) -> list[dict[str, Any]]:
    """Random batches at the shapes that were asked for."""
    inputs = network.inputs
    ios = tuple(TensorIO(v.name, i, v.spec.dtype, v.spec.shape) for i, v in enumerate(inputs))
    plan = Plan(network.name, ios, (), (), (), ())
    sizes = arrays.sizes(plan, options.merged(given["shapes"]))
    first, below = given["seed"], given["int_below"]
    return [arrays.random(plan, sizes, first + i, below) for i in range(given["count"])]


def _print(facts: dict[str, Any]) -> None:
    console = show.console()
    if "losses" in facts:
        wide = set(facts["float_layers"])
        rows = [
            [name, f"{loss:.2e}", "float" if name in wide else facts["precision"]]
            for name, loss in facts["losses"].items()
        ]
        title = "layers by what each loses alone"
        columns = ["layer", "noise by signal", "as"]
        console.print(show.table(title, columns, rows[:SHOWN], right=["noise by signal"]))
        rows = [[str(t["float_layers"]), f"{t['drop']:.4g}"] for t in facts["trials"]]
        console.print(show.table("tried", ["layers in floats", "drop"], rows, right=["drop"]))
    for line in left_float(facts.get("stayed", {})):
        console.print(line, soft_wrap=True, markup=False)
    console.print(
        f"{facts['model']}: {facts['quantized']} of {facts['layers']} layers {_became(facts)}, "
        f"{show.size(facts['bytes'])} (float: {show.size(facts['float_bytes'])})",
        soft_wrap=True,
    )


def left_float(stayed: Mapping[str, str]) -> list[str]:
    """A line for each reason; ``stayed``: reasons by layer."""
    layers: dict[str, list[str]] = {}
    for name, why in stayed.items():
        layers.setdefault(why, []).append(name)
    lines = []
    for why, names in layers.items():
        if len(names) == 1:
            lines.append(f"{names[0]} stays float: {why}")
            continue
        more = [f"and {len(names) - SHOWN} more, which --json names"] if len(names) > SHOWN else []
        listed = ", ".join(names[:SHOWN] + more)
        lines.append(f"{len(names)} layers stay float: {why} ({listed})")
    return lines


def _became(facts: dict[str, Any]) -> str:
    if "weights" in facts:
        more = ", int8 activations permitted" if facts["activations"] == "int8" else ""
        return f"with constant weights have them in {facts['weights']}{more}"
    return f"read {NUMBERS[facts['precision']].plural}"
