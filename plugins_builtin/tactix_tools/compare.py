"""``tactix compare``: outputs of a plan or a model beside those of another way to compute them."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from tactix.base.errors import AccuracyError, InvalidArgument
from tactix.base.files import replacing
from tactix.builder import Builder
from tactix.plan.schema import Plan
from tactix.plugins.session import Session
from tactix.run.engine import Engine
from tactix_inspect.agreement import Agreement, agree, tolerance
from tactix_inspect.layer_compare import (
    PlanTensors,
    Tolerance,
    compare_tensors,
    departures_first,
)
from tactix_inspect.model_tensors import CPU, ModelTensors
from tactix_sdk.evaluate import evaluate
from tactix_tools import arrays, options, peers, show, source
from tactix_tools.cli import MISMATCH, OK

COLUMNS = [
    "output", "against", "50 %", "90 %", "99 %", "max abs", "max rel", "cosine", "outside",
    "verdict",
]  # fmt: skip

OWN_REFERENCE = "tactix-reference"
"""The references of the layers that the importer makes of a model."""
RUNTIME = "onnxruntime"
SHOWN = 5
"""Most operators that a message names."""
NOTHING_COMPARED = (
    "nothing on the way was compared: both sides know no tensor by one name, as one is of another "
    "model, or its plan was built with profiling verbosity none"
)
SHOWN_LAYERS = 20
"""Tensors on the way in the table."""


@click.command("compare")
@click.argument("file", type=options.FILE)
@click.argument("other", type=options.FILE, required=False)
@click.option(
    "--against",
    type=click.Choice([*sorted(peers.RUNNERS), OWN_REFERENCE]),
    multiple=True,
    help="What runs the other model; may be repeated.",
)
@click.option(
    "--rtol",
    type=options.TOLERANCE,
    help="Tolerance relative to each element; default: by the plans' precision.",
)
@click.option(
    "--atol",
    type=options.TOLERANCE,
    help="Absolute tolerance; default: rtol times the output's largest magnitude.",
)
@click.option(
    "--provider",
    metavar="NAME",
    help="ONNX Runtime's, which runs the other model: CUDAExecutionProvider, ...",
)
@click.option("--layers", is_flag=True, help="Tensors on the way, too, that both sides know.")
@click.option("--csv", "table", type=click.Path(dir_okay=False), help="Write all rows there.")
@options.input_options
@options.engine_options
@options.build_options
@options.json_option
@click.pass_obj
def command(
    session: Session,
    /,
    file: str,
    other: str | None,
    against: tuple[str, ...],
    rtol: float | None,
    atol: float | None,
    as_json: bool,
    **given: Any,
) -> int:
    """Compare the outputs of FILE, a plan or a model that is built first, with those of OTHER, one
    by one.

    OTHER is a model, which ONNX Runtime runs (or the onnx package's reference where that is not
    installed), or a plan; by default it is FILE, if that is a model. Operators of packs, which
    neither knows, are tactix-reference's: the references of the layers that the importer makes of
    the model. An element passes if |got - want| <= atol + rtol * |want|; integers must be equal.
    Exit code 6 if one does not.

    With --layers every tensor on the way is compared, too, that both sides know by the model's
    name of it: of two plans, or a plan and the model in ONNX Runtime. Errors add up on the way; the
    exit code is that of the outputs, and 6 if there was something on the way and none was compared.
    """
    _check(file, other, against, given)
    table = source.output(given["table"], "--csv") if given["table"] else None
    source.tell_unread(file, session)
    engine = source.open_engine(file, session, given, quiet=as_json)
    plans, feed = [engine.plan], arrays.feed(engine.plan, given)
    context = engine.create_execution_context()
    got = _by_model_names(engine.plan, context.run(feed))
    second = None
    if other and source.is_meant_as_plan(other):
        second = source.open_engine(other, session, given, quiet=as_json)
        plans.append(second.plan)
        ways: dict[str, Callable[[], Any]] = {
            other: lambda: _by_model_names(second.plan, second.create_execution_context().run(feed))
        }
    else:
        ways = dict(_peers(other or file, against, feed, session, given))
    rtol = max(tolerance(p, session.tactics) for p in plans) if rtol is None else rtol
    rows = [row for name, run in ways.items() for row in beside(name, got, run(), rtol, atol)]
    layers: list[Agreement] | None = None
    if given["layers"]:
        ours, name = PlanTensors(engine.plan, context), other if second else _provider(given)
        with peers.answering(RUNTIME, other or file, peers.OTHERS_WITH_LAYERS):
            theirs = _tensors(other or file, second, given)
            layers = list(compare_tensors(ours, str(name), theirs, feed, Tolerance(rtol, atol)))
    if table is not None:
        write_csv(table, rows, layers or ())
    told = Told(
        rows, layers, rtol, bool(layers is not None and PlanTensors.on_the_way(engine.plan))
    )
    if as_json:
        show.print_json({"inputs": {name: list(x.shape) for name, x in feed.items()}, **told.json})
    else:
        told.print(show.console())
    return OK if told.passed else MISMATCH


@dataclass(frozen=True)
class Told:
    """What comparing gave. ``layers``: None where nobody asked; ``has_layers``: whether there was
    something on the way to compare, which then must have been compared.
    """

    rows: Sequence[Agreement]
    layers: Sequence[Agreement] | None
    rtol: float
    has_layers: bool

    @property
    def compared_nothing(self) -> bool:
        return self.has_layers and not self.layers

    @property
    def passed(self) -> bool:
        return all(r.passed for r in self.rows) and not self.compared_nothing

    @property
    def json(self) -> dict[str, Any]:
        document: dict[str, Any] = {
            "rtol": self.rtol,
            "outputs": [r.to_json() for r in self.rows],
            "passed": self.passed,
        }
        if self.layers is not None:
            first = next((r.output for r in self.layers if not r.passed), None)
            layers = [r.to_json() for r in self.layers]
            document |= {"layers": layers, "first_departure": first}
        return document

    def print(self, console: Console) -> None:
        _print(console, self.rows, self.rtol)
        if self.layers:
            _print_layers(console, self.layers)
        elif self.compared_nothing:
            show.line(console, NOTHING_COMPARED)
        elif self.layers is not None:
            show.line(console, "nothing lies on the way: all that the plan makes are outputs")


def _check(file: str, other: str | None, against: Sequence[str], given: Mapping[str, Any]) -> None:
    """Raises InvalidArgument for files that make no pair, and options that do not go together."""
    if other is None and source.is_meant_as_plan(file):
        do = "Give the model that it was built from, or another plan, as a second file"
        raise InvalidArgument("a plan alone has nothing to be compared with", who=file, do=do)
    of_model = [*against, *([given["provider"]] if given["provider"] else [])]
    if other is not None and source.is_meant_as_plan(other) and of_model:
        raise InvalidArgument(
            f"{of_model[0]} cannot run a plan",
            who=other,
            do="Leave --against and --provider out, or give a model",
        )
    foreign = [a for a in against if a != RUNTIME]
    if foreign and (given["provider"] or given["layers"]):
        asked = "--provider" if given["provider"] else "--layers"
        raise InvalidArgument(
            f"{asked} is about ONNX Runtime",
            why=f"{foreign[0]} is asked for",
            do=f"Leave {asked} out",
        )


def _provider(given: Mapping[str, Any]) -> str:
    return str(given["provider"] or CPU)


def _tensors(
    other: str, second: Engine | None, given: Mapping[str, Any]
) -> PlanTensors | ModelTensors:
    """Of the other side, tensors on the way."""
    if second is not None:
        return PlanTensors(second.plan, second.create_execution_context())
    return ModelTensors(other, _provider(given))


def _peers(
    model: str, against: Sequence[str], feed: Any, session: Session, given: dict[str, Any]
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """By name, what runs the model on the arrays. Calls raise ExecutionError."""
    do = peers.OTHERS_WITH_LAYERS if given["layers"] else peers.OTHERS

    def run(peer: str) -> Any:
        with peers.answering(peer, model, do):
            if peer == OWN_REFERENCE:
                shapes = {name: getattr(x, "shape", ()) for name, x in feed.items()}
                network = Builder(session.logger, session).import_model(
                    model, given["enable"], shapes
                )
                return evaluate(network, feed)
            if peer == RUNTIME:
                return peers.onnxruntime_runner(model, _provider(given))(feed)
            return peers.RUNNERS[peer](model)(feed)

    if not against:
        asked = given["provider"] or given["layers"]
        against = (RUNTIME if asked else _usual_peer(model, session),)
    for peer in against:
        name = given["provider"] or peer
        yield name, lambda peer=peer: run(peer)  # type: ignore[misc]


def _usual_peer(model: str, session: Session) -> str:
    """What runs a model where nobody says: tactix's own references where it has operators that no
    other knows.
    """
    usual = "onnxruntime" if peers.has_onnxruntime() else "reference"
    if not (custom := peers.custom_operators(model)):
        return usual
    what = f"{usual} cannot run {', '.join(custom[:SHOWN])}: compared with tactix's own references"
    session.logger.warning(
        f"{what}, which share the importer with the plan. Compare with the framework that the "
        "model comes from, too"
    )
    return OWN_REFERENCE


def _by_model_names(plan: Plan, outputs: dict[str, Any]) -> dict[str, Any]:
    return {plan.model_names[name]: y for name, y in outputs.items()}


def beside(
    name: str, got: dict[str, Any], want: dict[str, Any], rtol: float, atol: float | None
) -> list[Agreement]:
    """One row per output of the other. Raises AccuracyError if the outputs have other names."""
    if set(want) != set(got):
        raise AccuracyError(
            "the outputs differ in name", why=f"{sorted(got)} instead of {sorted(want)}"
        )
    return [agree(output, name, got[output], want[output], rtol, atol) for output in want]


def write_csv(path: Path, outputs: Sequence[Agreement], layers: Sequence[Agreement]) -> None:
    """A row for each output, then for each tensor on the way."""
    text = io.StringIO()
    columns = ["kind", *(f.name for f in fields(Agreement)), "passed"]
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for kind, rows in (("output", outputs), ("layer", layers)):
        writer.writerows({"kind": kind, **r.to_json()} for r in rows)
    with replacing(path) as f:
        f.write(text.getvalue().encode())


def _print(console: Console, rows: Sequence[Agreement], rtol: float) -> None:
    cells = [_cells(r) for r in rows]
    console.print(show.table(f"Tolerance {rtol:g}", COLUMNS, cells, right=COLUMNS[2:9]))


def _cells(r: Agreement) -> list[object]:
    numbers = [f"{x:.3g}" for x in (r.p50, r.p90, r.p99, r.max_abs, r.max_rel)]
    verdict = r.note or ("pass" if r.passed else "FAIL")
    return [r.output, r.peer, *numbers, f"{r.cosine:.6f}", r.outside, verdict]


def _print_layers(console: Console, layers: Sequence[Agreement]) -> None:
    """Those that depart before the others."""
    shown = departures_first(layers)[:SHOWN_LAYERS]
    outside = sum(not r.passed for r in layers)
    title = f"{len(layers)} tensors on the way, {outside} of them outside the tolerance"
    more = f"; the first {len(shown)}, those outside before the others"
    columns = ["tensor", *COLUMNS[1:]]
    console.print(show.table(title + more, columns, map(_cells, shown), right=COLUMNS[2:9]))
    first = next((r for r in layers if not r.passed), None)
    if first is not None:
        show.line(console, f"first departure: {first.output}")
