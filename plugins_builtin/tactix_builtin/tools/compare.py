"""``tactix compare``: a model's outputs beside those of another way to run it."""

from __future__ import annotations

from typing import Any

import click
from rich.console import Console

from tactix.plugins.session import Session
from tactix.words.errors import AccuracyError, InvalidArgument
from tactix_builtin.cli import MISMATCH, OK
from tactix_builtin.tools import arrays, options, peers, show, source
from tactix_builtin.tools.agreement import Agreement, agree

COLUMNS = ["output", "against", "max abs", "max rel", "cosine", "outside", "verdict"]


@click.command("compare")
@click.argument("model", type=options.FILE)
@click.option("--plan", type=options.FILE, help="A plan of the model; default: one is built.")
@click.option("--against", type=click.Choice(sorted(peers.RUNNERS)), multiple=True, help="With what; may be repeated.")
@click.option("--rtol", type=float, default=1e-4, show_default=True, help="Tolerance relative to each element.")
@click.option("--atol", type=float, help="Absolute tolerance; default: rtol times the output's largest magnitude.")
@options.input_options
@options.engine_options
@options.build_options
@options.json_option
@click.pass_obj
def command(
    session: Session, /, model: str, plan: str | None, against: tuple[str, ...], rtol: float, atol: float | None,
    as_json: bool, **given: Any,
) -> int:  # fmt: skip
    """Compare the outputs of MODEL with those of ONNX Runtime or of the onnx package's reference, one by one.

    Without --against it is ONNX Runtime, or the reference where that is not installed.
    An element passes if |got - want| <= atol + rtol * |want|; integers must be equal. Exit code 6 if one does not.
    """
    source.require_model(model)
    if plan and not source.is_plan(plan):
        raise InvalidArgument("not a tactix plan", who=plan, do="Leave --plan out, and one is built")
    engine = source.open_engine(plan or model, session, given, quiet=as_json)
    feed = arrays.feed(engine.plan, given)
    got = engine.create_execution_context().run(feed)
    chosen = against or (("onnxruntime",) if peers.has_onnxruntime() else ("reference",))
    rows = [row for peer in chosen for row in compare_with(peer, model, feed, got, rtol, atol)]
    passed = all(r.passed for r in rows)
    if as_json:
        shown = {name: list(x.shape) for name, x in feed.items()}
        show.print_json({"inputs": shown, "outputs": [r.to_json() for r in rows], "passed": passed})
    else:
        _print(show.console(), rows)
    return OK if passed else MISMATCH


def compare_with(
    peer: str, model: str, feed: dict[str, Any], got: dict[str, Any], rtol: float, atol: float | None
) -> list[Agreement]:
    """One row per output of the peer. Raises AccuracyError if the outputs have other names, ExecutionError."""
    with peers.answering(peer, model):
        want = peers.RUNNERS[peer](model)(feed)
    if set(want) != set(got):
        raise AccuracyError("the outputs differ in name", why=f"{sorted(got)} instead of {sorted(want)}")
    return [agree(name, peer, got[name], want[name], rtol, atol) for name in want]


def _print(console: Console, rows: list[Agreement]) -> None:
    cells = [
        [r.output, r.peer, f"{r.max_abs:.3g}", f"{r.max_rel:.3g}", f"{r.cosine:.6f}", r.outside,
         r.note or ("pass" if r.passed else "FAIL")]
        for r in rows
    ]  # fmt: skip
    console.print(show.table("", COLUMNS, cells, right=COLUMNS[2:6]))
