"""``tactix compare``: outputs of a plan or a model beside those of another way to compute them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import click
from rich.console import Console

from tactix.base.errors import AccuracyError, InvalidArgument
from tactix.builder import Builder
from tactix.plugins.session import Session
from tactix_inspect.agreement import Agreement, agree, tolerance
from tactix_sdk.evaluate import evaluate
from tactix_tools import arrays, options, peers, show, source
from tactix_tools.cli import MISMATCH, OK

COLUMNS = ["output", "against", "max abs", "max rel", "cosine", "outside", "verdict"]

OWN_REFERENCE = "tactix-reference"
"""The references of the layers that the importer makes of a model."""
SHOWN = 5
"""Most operators that a message names."""


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
    """
    _check(file, other, against)
    engine = source.open_engine(file, session, given, quiet=as_json)
    plans, feed = [engine.plan], arrays.feed(engine.plan, given)
    got = engine.create_execution_context().run(feed)
    if other and source.is_plan(other):
        second = source.open_engine(other, session, given, quiet=as_json)
        plans.append(second.plan)
        ways: dict[str, Callable[[], Any]] = {
            other: lambda: second.create_execution_context().run(feed)
        }
    else:
        ways = dict(_peers(other or file, against, feed, session, given))
    rtol = max(tolerance(p, session.tactics) for p in plans) if rtol is None else rtol
    rows = [row for name, run in ways.items() for row in beside(name, got, run(), rtol, atol)]
    passed = all(r.passed for r in rows)
    if as_json:
        shown = {name: list(x.shape) for name, x in feed.items()}
        show.print_json(
            {
                "inputs": shown,
                "rtol": rtol,
                "outputs": [r.to_json() for r in rows],
                "passed": passed,
            }
        )
    else:
        _print(show.console(), rows, rtol)
    return OK if passed else MISMATCH


def _check(file: str, other: str | None, against: Sequence[str]) -> None:
    """Raises InvalidArgument for files that make no pair."""
    if other is None and source.is_plan(file):
        do = "Give the model that it was built from, or another plan, as a second file"
        raise InvalidArgument("a plan alone has nothing to be compared with", who=file, do=do)
    if other is not None and source.is_plan(other) and against:
        raise InvalidArgument(
            f"{against[0]} cannot run a plan", who=other, do="Leave --against out, or give a model"
        )


def _peers(
    model: str, against: Sequence[str], feed: Any, session: Session, given: dict[str, Any]
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """By name, what runs the model on the arrays. Calls raise ExecutionError."""

    def run(peer: str) -> Any:
        with peers.answering(peer, model):
            if peer == OWN_REFERENCE:
                shapes = {name: getattr(x, "shape", ()) for name, x in feed.items()}
                network = Builder(session.logger, session).import_model(
                    model, given["enable"], shapes
                )
                return evaluate(network, feed)
            return peers.RUNNERS[peer](model)(feed)

    for peer in against or (_usual_peer(model, session),):
        yield peer, lambda peer=peer: run(peer)  # type: ignore[misc]


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


def beside(
    name: str, got: dict[str, Any], want: dict[str, Any], rtol: float, atol: float | None
) -> list[Agreement]:
    """One row per output of the other. Raises AccuracyError if the outputs have other names."""
    if set(want) != set(got):
        raise AccuracyError(
            "the outputs differ in name", why=f"{sorted(got)} instead of {sorted(want)}"
        )
    return [agree(output, name, got[output], want[output], rtol, atol) for output in want]


def _print(console: Console, rows: list[Agreement], rtol: float) -> None:
    cells = [
        [
            r.output,
            r.peer,
            f"{r.max_abs:.3g}",
            f"{r.max_rel:.3g}",
            f"{r.cosine:.6f}",
            r.outside,
            r.note or ("pass" if r.passed else "FAIL"),
        ]
        for r in rows
    ]
    console.print(show.table(f"Tolerance {rtol:g}", COLUMNS, cells, right=COLUMNS[2:6]))
