"""``tactix diff``: what differs between two plans."""

from __future__ import annotations

from typing import Any

import click
from rich.console import Console

from tactix.base.errors import InvalidArgument, PlanFormatError, ShapeError
from tactix_tools import options, plan_diff, show
from tactix_tools.cli import OK, OTHER

NOTABLE = 0.05
"""Share of the predicted time from which on a step's other time is told."""


@click.command("diff")
@click.argument("first", type=options.FILE)
@click.argument("second", type=options.FILE)
@click.option(
    "--shapes", type=options.SHAPES, multiple=True, help="Input shapes that memory is computed for."
)
@options.json_option
def command(first: str, second: str, shapes: Any, as_json: bool) -> int:
    """Tell the plans FIRST and SECOND apart: choices, precision, steps, bytes, times, inputs and
    outputs, requirements.

    Nothing of them is run; their content is checked against its sha256. Times are those that the
    builds measured. As with diff, the exit code is 0 if they are the same, signatures aside, and 1
    if they differ; 5 if one is damaged.
    """
    try:
        facts = plan_diff.report(first, second, options.merged(shapes))
        show.print_json(facts) if as_json else _print(show.console(), facts)
    except (LookupError, TypeError, AttributeError, ValueError) as e:
        if isinstance(e, InvalidArgument):  # of --shapes
            raise
        raise PlanFormatError(
            "their notes cannot be compared", who=f"{first}, {second}", why=repr(e)[:200]
        ) from e
    except ArithmeticError as e:
        raise ShapeError(
            "a size makes no sense at these shapes", why=str(e), do="Give others with --shapes"
        ) from e
    return OK if facts["same"] else OTHER


def _print(console: Console, facts: dict[str, Any]) -> None:
    if facts["same"]:
        show.line(console, "the plans are the same")
        return
    _choices(console, facts)
    _steps(console, facts["steps"])
    _bytes(console, facts["bytes"])
    _times(console, facts["times"])
    for part in ("inputs", "outputs", "profiles", "requirements", "device", "meta"):
        if facts[part]:
            rows = [
                [name, *("-" if x is None else x for x in pair)]
                for name, pair in facts[part].items()
            ]
            console.print(show.table(part.capitalize(), ["", "first", "second"], rows))
    told = (
        "choices",
        "precision",
        "inputs",
        "outputs",
        "profiles",
        "requirements",
        "device",
        "meta",
    )
    if not any(facts[part] for part in told) and not any(facts["steps"]["only"]):
        show.line(console, "the choices are the same: times, weights or machine code differ")


def _choices(console: Console, facts: dict[str, Any]) -> None:
    rows = [
        [r["name"], *map(_choice, range(2), (r, r)), *_seconds(r["seconds"])]
        for r in facts["choices"]
    ]
    if rows:
        times = ["time of first", "time of second"]
        console.print(
            show.table("Choices", ["layer", "first", "second", *times], rows, right=times)
        )
    if facts["precision"]:
        rows = [[r["name"], *r["precision"]] for r in facts["precision"]]
        console.print(show.table("Precision", ["layer", "first", "second"], rows))


def _choice(which: int, row: dict[str, Any]) -> str:
    return f"{row['tactic'][which]} {row['variant'][which]}"


def _seconds(pair: list[Any]) -> list[str]:
    return [show.duration(s) if isinstance(s, (int, float)) else "-" for s in pair]


def _steps(console: Console, steps: dict[str, Any]) -> None:
    rows = [
        [which, r["name"], r["tactic"], r["precision"], *_seconds([r["seconds"]])]
        for which, own in zip(("first", "second"), steps["only"], strict=True)
        for r in own
    ]
    if rows:
        title = "Steps of one alone ({} and {} in all)".format(*steps["count"])
        columns = ["in", "layer", "tactic", "precision", "time"]
        console.print(show.table(title, columns, rows, right=["time"]))


def _bytes(console: Console, sizes: dict[str, Any]) -> None:
    rows = [
        [name, *("depends on data" if n is None else show.size(n) for n in pair), _change(pair)]
        for name, pair in sizes.items()
    ]
    console.print(show.table("Bytes", ["", "first", "second", ""], rows, right=["first", "second"]))


def _times(console: Console, times: dict[str, Any]) -> None:
    """The whole, and the steps that made a difference."""
    total = times["predicted"]
    known = [r for r in times["steps"] if all(isinstance(s, (int, float)) for s in r["seconds"])]
    least = NOTABLE * max((s for s in total if isinstance(s, (int, float))), default=0.0)
    found = [r for r in known if abs(r["seconds"][1] - r["seconds"][0]) > least]
    rows = [["predicted", *_seconds(total), _change(total)]]
    rows += [[r["name"], *_seconds(r["seconds"]), _change(r["seconds"])] for r in found]
    console.print(
        show.table(
            "Times of the builds", ["", "first", "second", ""], rows, right=["first", "second"]
        )
    )


def _change(pair: list[Any]) -> str:
    """``+12.0 %`` of the second beside the first."""
    if not all(isinstance(x, (int, float)) for x in pair) or not pair[0] or pair[0] == pair[1]:
        return ""
    return f"{100 * (pair[1] / pair[0] - 1):+.1f} %"
