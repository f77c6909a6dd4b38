"""``tactix bench``: how fast a plan is, and beside it ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from tactix.base.errors import ConfigError
from tactix.plugins.session import Session
from tactix_inspect.model_tensors import SessionTerms, runtime_session
from tactix_tools import arrays, options, peers, show, source
from tactix_tools.timing import Latency, Schedule, measure

PERCENTILES = (90, 99)


@click.command("bench")
@click.argument("file", type=options.FILE)
@click.option(
    "--warmup",
    type=options.DURATION,
    default="200ms",
    show_default=True,
    help="Time before measuring.",
)
@click.option(
    "--iterations",
    type=click.IntRange(1),
    help="Calls to measure, instead of --seconds.",
)
@click.option(
    "--seconds",
    type=options.DurationType("For a single call, give --iterations 1"),
    default="3s",
    show_default=True,
    help="Time to measure.",
)
@click.option(
    "--streams",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Contexts, each on its thread.",
)
@click.option(
    "--compare-ort", is_flag=True, help="Measure ONNX Runtime the same way, after tactix."
)
@click.option(
    "--model", type=options.FILE, help="The ONNX file for --compare-ort, where FILE is a plan."
)
@options.input_options
@options.engine_options
@options.devices_option
@options.build_options
@options.json_option
@click.pass_obj
def command(
    session: Session,
    /,
    file: str,
    warmup: float,
    iterations: int | None,
    seconds: float,
    streams: int,
    compare_ort: bool,
    model: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Measure FILE: a plan, or a model that is built first, for the given shapes.

    A call takes arrays and gives arrays: copies of inputs and outputs count. --threads says how
    many threads one call may use; all streams are at work at the same time.
    """
    onnx_file = _model_of(file, model) if compare_ort else ""
    source.tell_unread(file, session)
    engine = source.open_engine(
        file, session, given, options.merged(given["shapes"]), quiet=as_json
    )
    feed = arrays.feed(engine.plan, given)
    schedule = Schedule(warmup, iterations or 0, seconds)
    rows = {"tactix": measure([source.caller(engine, feed) for _ in range(streams)], schedule)}
    if compare_ort:
        with peers.answering("onnxruntime", onnx_file):
            terms = SessionTerms(threads=source.threads(given))
            peer = runtime_session(onnx_file, terms)
            rows["onnxruntime"] = measure([_peer_call(peer, feed)] * streams, schedule)
    facts = {
        "file": file,
        "shapes": {name: list(x.shape) for name, x in feed.items()},
        "threads": source.threads(given),
        "streams": streams,
        "on_references": source.on_references(engine),
        "results": {name: statistics(latency) for name, latency in rows.items()},
    }
    if as_json:
        show.print_json(facts)
    else:
        _print(facts)


def _model_of(file: str, model: str | None) -> str:
    if model is None and source.is_meant_as_plan(file):
        raise ConfigError("--compare-ort needs the ONNX file", do="Give it with --model")
    return model or file


def _peer_call(peer: Any, feed: dict[str, Any]) -> Callable[[], object]:
    return lambda: peer.run(None, feed)


def statistics(latency: Latency) -> dict[str, float]:
    """Seconds: median, mean, fastest, percentiles; calls per second over all streams."""
    samples = latency.samples
    out = {
        "calls": len(samples),
        "median": latency.median,
        "mean": sum(samples) / len(samples),
        "min": samples[0],
    }
    out |= {f"p{p}": latency.percentile(p) for p in PERCENTILES}
    return {**out, "calls_per_second": latency.calls_per_second}


def _print(facts: dict[str, Any]) -> None:
    console = show.console()
    shapes = ", ".join(f"{name} {tuple(s)}" for name, s in facts["shapes"].items())
    show.line(
        console,
        f"{facts['file']}: {shapes}; {facts['threads']} threads, {facts['streams']} streams",
    )
    timed = ["median", "mean", "min", *(f"p{p}" for p in PERCENTILES)]
    columns = ["", *timed, "calls/s", "calls"]
    cells = [
        [name, *(show.duration(s[k]) for k in timed), f"{s['calls_per_second']:.1f}", s["calls"]]
        for name, s in facts["results"].items()
    ]
    console.print(show.table("", columns, cells, right=columns[1:]))
    if len(facts["results"]) == 2:
        ours, theirs = (s["median"] for s in facts["results"].values())
        console.print(f"tactix takes {ours / theirs:.2f} times as long as ONNX Runtime")
