"""``tactix lock``: what a build chose, and what from."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import click

from tactix.plugins.session import Session
from tactix_lock import frozen
from tactix_tools import options, show, source


@click.command("lock")
@click.argument("model", type=options.FILE)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    help="The lock file; default: MODEL's, with .lock.",
)
@click.option("--quiet", is_flag=True, help="No progress.")
@options.shapes_option
@options.build_options
@options.json_option
@click.pass_obj
def command(
    session: Session,
    /,
    model: str,
    output: str | None,
    quiet: bool,
    shapes: Any,
    as_json: bool,
    **build: Any,
) -> None:
    """Build MODEL, measuring as `tactix build` does, and write down what that needs to be done
    again to the byte.

    The lock holds digests of model, weights and calibration, the options, the target device, the
    toolchain, the distributions that had a part, and the choice for every layer. `tactix build
    MODEL --frozen --lock FILE` measures nothing and takes all of that from it; it fails, naming
    what differs, where the plan would be another one.
    """
    path = Path(output or Path(model).with_suffix(".lock"))
    if path.resolve() == Path(model).resolve():
        raise click.UsageError("the lock would overwrite the model; give -o")
    source.require_model(model)
    source.output(path)
    with source.building(model, session, build, options.merged(shapes), quiet or as_json) as (
        builder,
        network,
        config,
    ):
        lock = frozen.make(builder, network, config)
    lock.write(path)
    tactics = Counter(c.tactic for net in lock.choices.networks() for c in net.nodes.values())
    facts = {
        "lock": str(path),
        "plan": lock.plan,
        "choices": tactics.total(),
        "tactics": dict(tactics.most_common()),
    }
    if as_json:
        show.print_json(facts)
    else:
        show.line(show.console(), f"{path}: {tactics.total()} choices, plan sha256 {lock.plan}")
