"""``tactix build``: a model to a plan file."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from tactix.base.garbage import rarely_collected
from tactix.plan import container
from tactix.plan.schema import Plan
from tactix.plugins.session import Session
from tactix.run.admission import signer_of
from tactix.select.contests import Workers
from tactix_tools import options, show, source
from tactix_tools.cli import INTERRUPTED, OK


@click.command("build")
@click.argument("model", type=options.FILE)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    help="The plan file; default: MODEL's, with .plan.",
)
@click.option("--quiet", is_flag=True, help="No progress.")
@click.option("--no-sign", is_flag=True, help="Do not sign the plan with the local key.")
@click.option(
    "--on",
    metavar="local|ray|ray://HOST:PORT",
    help="Measure on idle workers of a Ray cluster that have what the plan is for: of one on this "
    "machine's cores, the one that runs, or the one there.",
)
@click.option(
    "--workers",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="With --on: so many workers at most; 0: as many as there is room for.",
)
@options.shapes_option
@options.build_options
@options.json_option
@click.pass_obj
@rarely_collected
def command(
    session: Session,
    /,
    model: str,
    output: str | None,
    quiet: bool,
    no_sign: bool,
    on: str | None,
    workers: int,
    shapes: Any,
    as_json: bool,
    **build: Any,
) -> int:
    """Build a plan of MODEL: import, fuse, measure tactics, write.

    Without shapes the plan takes any size along symbolic dimensions and is tuned for a batch of 1.
    --shapes fixes the sizes; --min-shapes, --opt-shapes and --max-shapes give a range. Ctrl-C ends
    the measuring: the plan is written with what is known by then, and the exit code is 130.
    While the model is imported, and when it is pressed again, it ends the build without a plan.
    """
    source.require_model(model)
    path = Path(output or Path(model).with_suffix(".plan"))
    if path.resolve() == Path(model).resolve():
        raise click.UsageError("the plan would overwrite the model; give -o")
    source.output(path)
    sign = None if no_sign else signer_of(session)
    if sign:
        sign(bytes(32))  # a key that cannot be had is better found before the build
    start = time.monotonic()
    given = model, session, build, options.merged(shapes), quiet or as_json
    with _workers(on, workers) as found, source.building(*given, keeps=True) as making:
        builder, network, config = making
        config.workers = found
        plan = builder.build_plan(network, config)
        container.save(plan, path, sign)
        stopped = config.progress_monitor.cancelled()
    facts = summary(plan, path, time.monotonic() - start)
    if as_json:
        show.print_json(facts)
    else:
        _print(facts)
    return INTERRUPTED if stopped else OK


@contextmanager
def _workers(on: str | None, most: int) -> Iterator[Workers | None]:
    """Who measures elsewhere. Raises UsageError, ConfigError."""
    if on is None:
        if most:
            raise click.UsageError("--workers is for --on; give that, too")
        yield None
        return
    from tactix_cluster.ray_workers import ray_workers

    with ray_workers(on, most) as found:
        yield found


def summary(plan: Plan, path: Path, seconds: float) -> dict[str, Any]:
    """What was built: file, size, seconds, steps per tactic, rules that fired, what fell short of
    the fast path.
    """
    tactics = Counter(str(s.info.get("tactic", s.artifact.launcher)) for s in plan.steps)
    return {
        "plan": str(path),
        "bytes": path.stat().st_size,
        "seconds": round(seconds, 3),
        "steps": len(plan.steps),
        "tactics": dict(tactics.most_common()),
        "rules": plan.ledger["rules"],
        "fell_short": plan.ledger["fell_short"],
    }


def _print(facts: dict[str, Any]) -> None:
    console = show.console()
    tactics = ", ".join(f"{name} {count}" for name, count in facts["tactics"].items())
    head = (
        f"{facts['plan']}: {facts['steps']} layers, {show.size(facts['bytes'])}, "
        f"{facts['seconds']:.1f} s"
    )
    console.print(head, soft_wrap=True)
    show.line(console, f"tactics: {tactics or 'none'}")
    console.print(
        f"fused by {sum(facts['rules'].values())} rewrites of {len(facts['rules'])} rules"
    )
