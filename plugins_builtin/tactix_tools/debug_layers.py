"""``tactix debug layers``: every step of a plan beside its reference, and beside the model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from tactix.plugins.session import Session
from tactix.run.engine import Engine
from tactix_inspect.layers import (
    MODEL,
    REFERENCE,
    Judge,
    LayerReport,
    LayersComparison,
    LayersReport,
    by_reference,
)
from tactix_inspect.model_judge import ModelJudge
from tactix_inspect.replay import StepReplay, StepRun, check_replayable
from tactix_tools import arrays, options, replaying, show, source
from tactix_tools.cli import MISMATCH, OK

COLUMNS = ["step", "tactic", "budgets: reference", "model", "verdict"]
SHOWN = 10
"""Steps in the table: the worst."""


@click.command("layers")
@click.argument("plan", type=options.FILE)
@click.option("--model", type=options.FILE, help="The ONNX model that the plan was built from.")
@click.option(
    "--rtol",
    type=options.TOLERANCE,
    help="Tolerance relative to a tensor's largest magnitude; default: the builder's budgets.",
)
@click.option(
    "--save",
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="Write what the first step that departs, or makes NaN or Inf, read and made, as .npz.",
)
@replaying.data_option
@replaying.most_option(4)
@options.input_options
@options.untrusted_option
@replaying.threads_option
@options.json_option
@click.pass_obj
def command(
    session: Session,
    /,
    plan: str,
    model: str | None,
    rtol: float | None,
    save: str | None,
    as_json: bool,
    **given: Any,
) -> int:
    """Compare every step of PLAN, on the inputs that it actually reads, with the plan's own
    reference of that step, and with MODEL in ONNX Runtime, by the names of its tensors.

    Errors do not add up, as each step is judged alone: by the budgets of the builder's accuracy
    gate. The first step that departs is the one to look at. The reference tells wrong kernels; only
    the model tells a rule that changes the meaning, or weights that are wrong in the plan. Exit
    code 6 if a step departs, or makes NaN of finite inputs.
    """
    engine = replaying.opened(plan, session, given)
    if model is None:
        check_replayable(engine.plan)
    judges: dict[str, Judge] = {REFERENCE: by_reference(rtol)}
    by_model = None if model is None else ModelJudge(model, source.threads(given), rtol)
    if by_model is not None:
        judges[MODEL] = by_model
    saving = _Saving(save)
    comparison = LayersComparison(engine.plan, judges, saving.keep)
    _replay(engine, session, comparison, replaying.feeds(engine, given), by_model)
    report = comparison.report()
    if as_json:
        show.print_json({**report.to_json(), "saved": saving.files})
    else:
        _print(report, saving.files, model is not None)
    return OK if report.passed else MISMATCH


def _replay(
    engine: Engine,
    session: Session,
    comparison: LayersComparison,
    feeds: Iterable[Mapping[str, Any]],
    by_model: ModelJudge | None,
) -> None:
    with contextlib.closing(engine.create_execution_context()) as context:
        context.observer = StepReplay(session, comparison.visit)
        for feed in feeds:
            if by_model is not None:
                by_model.begin(feed)
            context.run(feed)


class _Saving:
    """Writes what a step read and made. ``files``: by what was the matter with it."""

    def __init__(self, folder: str | None) -> None:
        self._folder = None if folder is None else Path(folder)
        self.files: dict[str, str] = {}

    def keep(self, what: str, run: StepRun) -> None:
        if self._folder is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        inputs = {f"input_{i}": x for i, x in enumerate(run.inputs) if x is not None}
        outputs = {f"output_{i}": y for i, y in enumerate(run.outputs)}
        path = str(self._folder / f"{what}.npz")
        arrays.save(path, {**inputs, **outputs})
        self.files[what] = path


def _print(report: LayersReport, files: Mapping[str, str], has_model: bool) -> None:
    console = show.console()
    worst = sorted(report.layers, key=_severity, reverse=True)[:SHOWN]
    cells = ([x.name, x.tactic, _cell(x, REFERENCE), _cell(x, MODEL), _verdict(x)] for x in worst)
    counted = [f"{report.count(REFERENCE)} with their references"]
    counted += [f"{report.count(MODEL)} with the model"] if has_model else []
    title = f"{len(report.layers)} steps, {', '.join(counted)}; the worst"
    console.print(show.table(title, COLUMNS, cells, right=COLUMNS[2:4]))
    if (first := report.first_departure) is not None:
        console.print(f"first departure: {_who(first)}", markup=False, soft_wrap=True)
    if (odd := report.first_not_finite) is not None:
        console.print(f"first {odd.fresh}: {_who(odd)}", markup=False, soft_wrap=True)
    if report.passed:
        console.print(_agreement(report, has_model), soft_wrap=True)
    for what, path in files.items():
        console.print(f"{what}: saved {path}", soft_wrap=True)


def _agreement(report: LayersReport, has_model: bool) -> str:
    """What is said where no step departs: that, unless nothing was there to depart from."""
    if not any(map(report.count, (REFERENCE, MODEL))):
        return "nothing was compared: no step ran on these inputs, or none tells what it computes"
    if has_model and not report.count(MODEL):
        return (
            "no step departs from its reference; nothing was compared with the model: the plan"
            " names no tensor of it, as it is another's or tells no names, or ONNX Runtime"
            " does not run its operators"
        )
    return "no step departs"


def _who(x: LayerReport) -> str:
    origin = "" if x.origin in ((), (x.name,)) else f" (of {', '.join(x.origin)})"
    return f"step {x.index} {x.name} by {x.tactic}{origin}"


def _severity(x: LayerReport) -> float:
    return max((c.budgets for c in x.against.values() if c.budgets is not None), default=-1.0)


def _cell(x: LayerReport, judge: str) -> str:
    found = x.against.get(judge)
    return "-" if found is None or found.budgets is None else f"{found.budgets:.3g}"


def _verdict(x: LayerReport) -> str:
    if x.departs:
        return "DEPARTS"
    return f"makes {x.fresh}" if x.fresh else "ok"
