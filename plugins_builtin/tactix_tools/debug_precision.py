"""``tactix debug precision``: which layers must stay float32."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import click

from tactix.api import configure
from tactix.builder import Builder
from tactix.plugins.session import Session
from tactix.run.engine import Engine
from tactix.run.runtime import Runtime
from tactix_inspect.emulation import ROUNDINGS, Emulation
from tactix_inspect.precision import LoweredRuns, PrecisionReport, Told, find_wide
from tactix_tools import options, replaying, show, source
from tactix_tools.cli import MISMATCH, OK
from tactix_tools.plan_model import check_plan_of
from tactix_tools.progress import BuildProgress

COLUMNS = ["stays float32", "error with it alone lowered"]
LEVEL = 1
"""Of the build where no plan is given."""


@click.command("precision")
@click.argument("model", type=options.FILE)
@click.option(
    "--plan",
    type=options.FILE,
    help="A float32 plan of MODEL for the CPU; default: one is built first.",
)
@click.option(
    "--precision",
    type=click.Choice(sorted(ROUNDINGS)),
    default="bf16",
    show_default=True,
    help="What the other layers are to be computed in.",
)
@click.option(
    "--max-error",
    type=options.TOLERANCE,
    default=0.01,
    show_default=True,
    help="Of the outputs against float32: relative, by their Euclidean norms.",
)
@click.option(
    "--for-gpu",
    is_flag=True,
    help="Tensors between layers are of that precision, too, as in a build for a GPU; so they "
    "always are in float16.",
)
@click.option(
    "--seconds",
    type=options.DurationType("Give the search some seconds"),
    default="45s",
    show_default=True,
    help="Time for the search.",
)
@replaying.data_option
@replaying.most_option(1)
@options.input_options
@options.untrusted_option
@replaying.threads_option
@options.json_option
@click.pass_obj
def command(
    session: Session,
    /,
    model: str,
    plan: str | None,
    precision: str,
    max_error: float,
    for_gpu: bool,
    seconds: float,
    as_json: bool,
    **given: Any,
) -> int:
    """Find the fewest layers of MODEL that must stay float32 for its outputs to be good enough in
    fewer bits.

    A float32 plan is replayed by its own kernels over operands that are rounded first; nothing is
    built for that. The last line is what `tactix build` takes. Exit code 6 if no set of layers was
    found that is good enough.
    """
    source.require_model(model)
    engine = _engine(model, plan, session, given, as_json)
    with contextlib.closing(engine.create_execution_context()) as context:
        feeds = list(replaying.feeds(engine, given))
        emulation = Emulation(precision, session.layers.__getitem__, for_gpu)
        runs = LoweredRuns(engine.plan, context, feeds, emulation)
        report = find_wide(runs, precision, max_error, seconds, _progress(as_json))
    if as_json:
        show.print_json(report.to_json())
    else:
        _print(report)
    return OK if report.is_reached else MISMATCH


def _engine(
    model: str, plan: str | None, session: Session, given: Mapping[str, Any], quiet: bool
) -> Engine:
    """Of the plan, or of a float32 plan that is built here."""
    if plan is not None:
        engine = replaying.opened(plan, session, given)
        check_plan_of(engine.plan, model)
        return engine
    threads = source.threads(dict(given))
    config = configure(level=LEVEL, threads=threads)
    with BuildProgress(show.errors_console(), quiet, keeps=False) as progress:
        config.progress_monitor = progress
        builder = Builder(session.logger, session)
        shapes = options.merged(given["shapes"])
        network = builder.import_model(model, config.enabled, shapes)
        built = builder.build_plan(network, config)
    engine = Runtime(session.logger, session, max_threads=threads).load(built)
    assert isinstance(engine, Engine)
    return engine


def _progress(quiet: bool) -> Told:
    """Each replay in one line on stderr, where that is a terminal."""
    console = show.errors_console()
    if quiet or not console.is_terminal:
        return lambda text: None
    return lambda text: console.print(text, markup=False)


def _print(report: PrecisionReport) -> None:
    console = show.console()
    if report.wide:
        rows = [
            [", ".join(w.layers), f"{w.error:.3g}" if w.replayed else f"about {w.error:.3g}"]
            for w in report.wide
        ]
        console.print(show.table("", COLUMNS, rows, right=COLUMNS[1:]))
    counts = f"{len(report.wide)} of {report.steps} steps stay float32"
    console.print(
        f"{report.precision}: error {report.error:.3g} with all lowered, {report.reached:.3g} "
        f"where {counts} ({report.replays} replays, {report.seconds:.0f} s)",
        soft_wrap=True,
    )
    if not report.settled:
        console.print("the time did not suffice to show that fewer would not do: --seconds")
    if report.idle:
        idle = f"{report.idle} more steps did not run on these inputs: nothing is known of them"
        console.print(idle, soft_wrap=True)
    line = " ".join(f"--layer-precision '{o}'" for o in report.options)
    console.print(f"--precision {report.precision} {line}".rstrip(), markup=False, soft_wrap=True)
