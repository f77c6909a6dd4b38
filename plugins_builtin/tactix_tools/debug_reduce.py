"""``tactix debug reduce``: the smallest part of a model that a command still fails on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tactix.plan.schema import Plan
from tactix_inspect.check_command import CheckCommand
from tactix_inspect.reduce import Progress, Reduction
from tactix_inspect.submodel import inputs_of
from tactix_tools import arrays, options, show, source
from tactix_tools.cli import OK, Terminated, exit_code


@click.command("reduce")
@click.argument("model", type=options.FILE)
@click.option(
    "--check",
    required=True,
    metavar="COMMAND",
    help="What fails where the fault is: by exit code or a signal. {} stands for the model's path.",
)
@click.option("--match", default="", metavar="TEXT", help="Only failures that print this count.")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    help="The file to write; default: MODEL's, with .reduced.onnx.",
)
@click.option(
    "--timeout",
    type=options.DURATION,
    help="Time of one run. A longer one is no failure, unless the whole model's is.",
)
@click.option("--max-seconds", type=click.FloatRange(0), help="Then nothing more is tried.")
@click.option("--quiet", is_flag=True, help="No progress.")
@options.input_options
@options.json_option
def command(
    model: str,
    check: str,
    match: str,
    output: str | None,
    timeout: float | None,
    max_seconds: float | None,
    quiet: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """Find the smallest part of MODEL, an ONNX file, that COMMAND still fails on.

    Nodes are left out, halves first, then fewer and fewer, at last each by itself. What the rest
    reads of them becomes an input; small tensors of integers, as shapes, become constants, as ONNX
    Runtime computes them from the inputs given, or from random ones. Ctrl-C and SIGTERM end it: the
    smallest part so far is in the output file, which is written as soon as there is one.
    """
    source.require_model(model)
    target = str(source.output(output or Path(model).with_suffix(".reduced.onnx"), reads=(model,)))
    console = show.errors_console()

    def told(p: Progress) -> None:
        if not quiet and not as_json:
            show.line(console, _line(p))

    reduction = Reduction(model, target, CheckCommand(check, match, timeout), max_seconds, told)
    try:
        reduction.run(_feed(model, given))
    except (KeyboardInterrupt, Terminated) as e:
        if reduction.first is None or not reduction.first.failed:
            raise
        _report(reduction, target, as_json)
        return exit_code(e)
    _report(reduction, target, as_json)
    return OK


def _line(p: Progress) -> str:
    invalid = f", {p.skipped} were no valid models" if p.skipped else ""
    return f"{p.seconds:.0f} s: {p.nodes} of {p.whole} nodes after {p.tried} runs{invalid}"


def _feed(model: str, given: dict[str, Any]) -> dict[str, Any] | None:
    """Inputs of the whole model; None where nothing tells how they may be."""
    inputs = inputs_of(model)
    if inputs is None:
        return None
    arrays.check(inputs, given)
    return arrays.feed(Plan("model", tuple(inputs), (), (), (), ()), given)


def _report(reduction: Reduction, target: str, as_json: bool) -> None:
    p, first, last = reduction.progress, reduction.first, reduction.last
    assert first is not None
    assert last is not None
    smaller = p.nodes < p.whole
    facts = {
        "output": target if smaller else None,
        "nodes": p.nodes,
        "of": p.whole,
        "runs": p.tried,
        "skipped": p.skipped,
        "seconds": p.seconds,
        "failure": last.what,
    }
    if as_json:
        show.print_json(facts)
        return
    console = show.console()
    if smaller:
        show.line(console, f"{target}: {_line(p)}; it fails with {last.what}")
    else:
        show.line(console, f"nothing can be left out: {_line(p)}; it fails with {last.what}")
