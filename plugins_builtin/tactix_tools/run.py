"""``tactix run``: one inference, its outputs shown or saved."""

from __future__ import annotations

from typing import Any

import click

from tactix.plugins.session import Session
from tactix_tools import arrays, options, show, source

COLUMNS = ["tensor", "dtype", "shape", "min", "max", "mean"]


@click.command("run")
@click.argument("file", type=options.FILE)
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False), help="Write the outputs to this .npz file."
)
@options.input_options
@options.engine_options
@options.devices_option
@options.build_options
@options.json_option
@click.pass_obj
def command(
    session: Session, /, file: str, output: str | None, as_json: bool, **given: Any
) -> None:
    """Run FILE once: a plan, or a model that is built first."""
    if output:
        source.output(output, reads=(file, given["inputs"]))
    source.tell_unread(file, session)
    engine = source.open_engine(file, session, given, quiet=as_json)
    feed = arrays.feed(engine.plan, given)
    results = engine.create_execution_context().run(feed)
    if output:
        arrays.save(output, results)
    facts: dict[str, Any] = {
        "inputs": arrays.describe(feed),
        "outputs": arrays.describe(results),
        "saved": output,
    }
    facts["on_references"] = source.on_references(engine)
    if as_json:
        show.print_json(facts)
        return
    console = show.console()
    for title in ("inputs", "outputs"):
        console.print(
            show.table(title.capitalize(), COLUMNS, map(_row, facts[title]), right=COLUMNS[3:])
        )
    if output:
        console.print(f"saved {output}")


def _row(x: dict[str, Any]) -> list[object]:
    numbers = [f"{x[k]:.6g}" if k in x else "-" for k in ("min", "max", "mean")]
    return [x["name"], x["dtype"], tuple(x["shape"]), *numbers]
