"""What the tools that replay plans are given: a plan, and one or more batches of inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

import click

from tactix.base.errors import InvalidArgument
from tactix.base.tensor import TensorSpec
from tactix.contracts.graph import Value
from tactix.contracts.launcher import MOST_THREADS
from tactix.plugins.session import Session
from tactix.run.engine import Engine
from tactix.run.runtime import Runtime
from tactix_quantize.feeds import batches
from tactix_tools import arrays, source
from tactix_tools.options import F

threads_option = click.option(
    "--threads",
    type=click.IntRange(0, MOST_THREADS),
    default=0,
    show_default=True,
    help="Threads of one inference; 0: TACTIX_NUM_THREADS, or all cores.",
)
data_option = click.option(
    "--data",
    type=click.Path(exists=True),
    metavar="PATH",
    help="Sample inputs: a folder of .npy or .npz files, or one such file.",
)


def most_option(default: int) -> Callable[[F], F]:
    """How many batches of ``--data`` are looked at."""
    return click.option(
        "--batches",
        type=click.IntRange(1),
        default=default,
        show_default=True,
        help="Most batches of --data that are looked at.",
    )


def opened(path: str, session: Session, given: Mapping[str, Any]) -> Engine:
    """The engine of a plan file. Raises InvalidArgument for a file that is none, or a plan that
    only another version's runtime runs.
    """
    if not source.is_meant_as_plan(path):
        raise InvalidArgument("that is no plan", who=path, do="Build one: tactix build MODEL")
    engine = Runtime(
        session.logger,
        session,
        max_threads=source.threads(dict(given)),
        on_untrusted=given["untrusted"] or "",
    ).deserialize(path)
    if not isinstance(engine, Engine):
        do = "Use the command line of the version that built it"
        raise InvalidArgument("its own runtime runs the plan, unobserved", who=path, do=do)
    return engine


def feeds(engine: Engine, given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Batches of inputs by name: those of ``--data``, the one of ``--inputs``, or a random one.
    Raises InvalidArgument, ShapeError.
    """
    if given["data"] is None:
        yield arrays.feed(engine.plan, given)
        return
    if given["inputs"]:
        raise click.UsageError("--data and --inputs contradict each other")
    inputs = [Value(io.name, TensorSpec(io.dtype, io.shape)) for io in engine.inputs]
    for batch in islice(batches(given["data"], inputs), given["batches"]):
        yield dict(batch)
