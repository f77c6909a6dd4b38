"""``tactix profile``: where the time of a run goes, step by step."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click
from rich.console import Console

from tactix.base.errors import InvalidArgument
from tactix.base.files import replacing
from tactix.plugins.session import Session
from tactix.run.engine import Engine
from tactix_inspect import profiling
from tactix_inspect.nvtx_ranges import NvtxSteps
from tactix_inspect.profile import PlanProfile, StepTime
from tactix_inspect.trace import trace
from tactix_tools import arrays, options, show, source

COLUMNS = ("step", "tactic", "time", "share", "bytes", "FLOPs", "of peak")
RIGHT = COLUMNS[2:]


@click.command("profile")
@click.argument("file", type=options.FILE)
@click.option(
    "--runs",
    type=click.IntRange(1),
    default=profiling.RUNS,
    show_default=True,
    help="Runs with timestamps, in turns with as many without; fewer where they take long.",
)
@click.option("-o", "--output", help="Write the profile as JSON.")
@click.option("--trace", "trace_file", help="Write a run for Perfetto or chrome://tracing.")
@click.option("--nvtx", is_flag=True, help="Run each step in an NVTX range first.")
@click.option(
    "--roofline/--no-roofline", default=True, help="Measure what the device can do at most."
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
    runs: int,
    output: str | None,
    trace_file: str | None,
    nvtx: bool,
    roofline: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Measure the steps of FILE: a plan, or a model that is built first, for the given shapes.

    Times are medians over runs. A step's share is of all steps together; FLOPs are multiplications
    and additions; "of peak" is the least time that its bytes and FLOPs take by the measured peaks
    of the device over its time.
    """
    asked = {"-o": output, "--trace": trace_file}
    written = {name: source.output(path, name) for name, path in asked.items() if path}
    source.tell_unread(file, session)
    engine = source.open_engine(
        file, session, given, options.merged(given["shapes"]), quiet=as_json
    )
    if not isinstance(engine, Engine):
        why, do = "it is run by another runtime", "Use --flavour default"
        raise InvalidArgument("no profile of the plan", who=file, why=why, do=do)
    feed = arrays.feed(engine.plan, given)
    if nvtx:
        _mark(engine, feed, runs)
    found = profiling.observed(engine, feed, runs)
    profile = profiling.told(engine, feed, found, session if roofline else None)
    if output:
        _write(written["-o"], profile.to_json())
    if trace_file:
        _write(written["--trace"], trace(engine.plan, profile.shapes, found))
    if as_json:
        show.print_json(profile.to_json())
    else:
        _print(show.console(), profile)


def _mark(engine: Engine, feed: Mapping[str, Any], runs: int) -> None:
    context = engine.create_execution_context()
    context.observer = NvtxSteps()
    for _ in range(runs):
        context.run(feed)


def _write(path: Any, document: Mapping[str, Any]) -> None:
    with replacing(path) as f:
        f.write(json.dumps(document).encode())


def _print(console: Console, p: PlanProfile) -> None:
    whole = p.in_steps
    rows = [_row(s, whole) for s in p.steps]
    console.print(show.table(p.name or "plan", COLUMNS, rows, RIGHT))
    times = f"{show.duration(p.seconds)} a run, {show.duration(whole)} of it in steps"
    show.line(console, f"{times}; {show.duration(p.profiled)} with timestamps; {p.runs} runs")
    if p.copies:
        show.line(console, f"beside it {_copied(p, True)} to the device, {_copied(p, False)} back")
    show.line(console, f"{p.threads} threads; {p.method}")
    if p.roofline is None:
        show.line(console, f"no roofline: {p.no_roofline}")
        return
    rates = [f"{n / 1e9:.4g} GFLOP/s in {dtype}" for dtype, n in p.roofline.flops.items()]
    memory = f"{p.roofline.nbytes / 1e9:.4g} GB/s read"
    spread = f"the best of rounds, {100 * p.roofline.spread:.0f} % apart at most"
    show.line(console, f"measured peaks: {', '.join((*rates, memory))}; {spread}")


def _copied(p: PlanProfile, into: bool) -> str:
    own = [c for c in p.copies if c.into == into]
    took, size = sum(c.seconds for c in own), sum(c.nbytes for c in own)
    return f"{show.duration(took)} to copy {show.size(size)}"


def _row(s: StepTime, whole: float) -> tuple[str, ...]:
    often = f" x {s.times:.4g}" if s.times != 1 else ""
    name = f"  in {s.inside}: {s.name}{often}" if s.inside else s.name
    return (
        name,
        s.tactic,
        show.duration(s.seconds),
        "" if s.inside or not whole else f"{100 * s.seconds / whole:.1f} %",
        show.size(s.nbytes) if s.nbytes else "-",
        f"{s.flops:.4g}" if s.flops else "-",
        "-" if s.of_roofline is None else f"{100 * s.of_roofline:.0f} %",
    )
