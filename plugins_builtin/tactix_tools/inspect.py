"""``tactix inspect``: what is in a plan or a model."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import click
from rich.console import Console

from tactix.base.errors import InvalidArgument, PlanFormatError, ShapeError
from tactix.base.logger import printable
from tactix.pipeline.shortfall import Shortfall
from tactix.plugins.session import Session
from tactix_tools import options, show, source
from tactix_tools.cli import OK, OTHER

SHOWN = 200
"""So many refused nodes are printed."""

NEWLINE = "\n"
"""Ends of lines of code stay."""


@click.command("inspect")
@click.argument("file", type=options.FILE)
@click.option(
    "--shapes", type=options.SHAPES, multiple=True, help="Input shapes that memory is computed for."
)
@click.option(
    "--source", "node", metavar="NODE", help="Of a plan: the C or CUDA that runs a step or a node."
)
@click.option(
    "--quantization",
    is_flag=True,
    help="What became of every QuantizeLinear and DequantizeLinear, and what keeps floats there.",
)
@options.enable_option
@options.json_option
@click.pass_obj
def command(
    session: Session,
    /,
    file: str,
    shapes: Any,
    node: str | None,
    quantization: bool,
    enable: tuple[str, ...],
    as_json: bool,
) -> int:
    """Show FILE: a plan, or a model in ONNX or a format that a pack imports. Nothing of it is run.

    Of a plan: inputs and outputs, layers with the tactic of each, rules that fired, memory. Of a
    model: inputs and outputs, nodes per operator, and every node that cannot be imported with the
    reason. Exit code 1 if there is one.

    With --source the text that the plan's step NODE, or the steps of the model's NODE, were
    compiled from, below a
    comment: what it computes, shapes, tactic and variant, why it was chosen, compiler and target.

    With --quantization every QuantizeLinear and DequantizeLinear, what became of it (fused into a
    step, computed in integers, erased, a step of its own), and what to do where floats remain; of
    a model as the rules leave it, before tactics are chosen.

    With --enable as `tactix build` reads a model: by a pack's converters of operators that others
    have, and by its importer of a format that tactix knows.
    """
    for pack in enable:
        session.enable(pack)
    if node is not None:
        show_source(file, node, as_json)
        return OK
    if quantization:
        show_quantization(file, session, as_json)
        return OK
    if source.is_meant_as_plan(file):
        show_plan(file, options.merged(shapes), None if as_json else show.console())
        return OK
    from tactix_tools import model_report

    facts = model_report.report(file, session)
    if as_json:
        show.print_json(facts)
    else:
        print_model(show.console(), facts)
    return OTHER if facts.get("refused") or facts.get("unreadable") else OK


def show_plan(file: str, shapes: options.Shapes, console: Console | None) -> None:
    """Print what is in a plan, as JSON without a console. Raises PlanFormatError, ShapeError,
    InvalidArgument.

    Its notes for people may hold any JSON, which need not be what tactix writes there.
    """
    from tactix_tools import plan_report

    try:
        facts = plan_report.report(file, shapes)
        if console is None:
            show.print_json(facts)
        else:
            print_plan(console, facts)
    except (LookupError, TypeError, AttributeError) as e:
        why = f"{type(e).__name__}: {e}"
        raise PlanFormatError(
            "its notes cannot be shown", who=file, why=why, do="Build the plan again"
        ) from e
    except ArithmeticError as e:
        raise ShapeError(
            "a size makes no sense at these shapes", who=file, why=str(e), do="Give others"
        ) from e


def show_source(file: str, node: str, as_json: bool) -> None:
    """Print the texts of a plan's node. Raises InvalidArgument, PlanFormatError."""
    from tactix.plan import container
    from tactix_tools.kernel_source import kernel_texts

    if not source.is_meant_as_plan(file):
        raise InvalidArgument(
            "a model has no kernels", who=file, do="Build a plan of it first: tactix build"
        )
    found = kernel_texts(container.load(file), node)
    if as_json:
        show.print_json({"plan": file, "sources": [t.to_json() for t in found]})
        return
    for text in found:
        sys.stdout.write(f"{text.header}\n{printable(text.text, NEWLINE).rstrip()}\n\n")


def show_quantization(file: str, session: Session, as_json: bool) -> None:
    """Print what became of the Q/DQ layers of a plan or a model. Raises InvalidArgument,
    PlanFormatError, ModelImportError.
    """
    from tactix_tools import quantization_report as report

    is_plan = source.is_meant_as_plan(file)
    found = report.of_plan(file) if is_plan else report.of_model(file, session)
    if as_json:
        show.print_json(report.document(file, found))
    else:
        report.tell(show.console(), file, found)


def print_model(console: Console, facts: dict[str, Any]) -> None:
    opsets = ", ".join(f"{domain} {version}" for domain, version in facts["opsets"].items())
    kind = f"opset {opsets}" if opsets else f"imported from {facts['format']}"
    show.line(
        console,
        f"{facts['file']}: {facts['nodes']} nodes, {facts['parameters']} parameters, {kind}",
    )
    _print_io(console, facts)
    rows = [
        [r["operator"], r["count"], "yes" if r["supported"] else "NO", _first(r)]
        for r in facts["operators"]
    ]
    console.print(
        show.table("Operators", ["operator", "nodes", "known", "where"], rows, right=["nodes"])
    )
    if facts["unsupported"]:
        console.print(
            printable(f"no plugin knows {', '.join(facts['unsupported'])}"),
            style="bold red",
            markup=False,
        )
    _print_refused(console, facts)
    for name, why in facts["unreadable"].items():
        console.print(printable(f"weight {name!r}: {why}"), style="bold red", markup=False)


def _print_refused(console: Console, facts: dict[str, Any]) -> None:
    rows = [
        [r["node"], r["operator"], r["opset"], _where(r), r["reason"]]
        for r in facts["refused"][:SHOWN]
    ]
    if not rows:
        return
    title = f"Cannot be imported: {facts['refused_count']} of {facts['nodes']} nodes"
    console.print(
        show.table(title, ["node", "operator", "opset", "where", "reason"], rows, right=["opset"])
    )
    if facts["refused_count"] > SHOWN:
        console.print(f"and {facts['refused_count'] - SHOWN} more; --json lists them")
    if facts["not_reached"]:
        console.print(
            f"{facts['not_reached']} nodes behind these could not be looked at: "
            "their inputs have no shape"
        )
    for cure in dict.fromkeys(r["do"] for r in facts["refused"] if r["do"]):
        show.line(console, f"- {cure}")
    for pack, why in facts["packs_not_in_use"].items():
        show.line(console, f"installed, but not in use: {pack} ({why})")


def _where(row: dict[str, Any]) -> str:
    """Its number, and the byte of the file where that is known."""
    at = f"number {row['index']}" + (f" of the body of {row['graph']}" if row["graph"] else "")
    return at if row["offset"] is None else f"{at}, byte {row['offset']}"


def _first(row: dict[str, Any]) -> str:
    """Where an unknown operator is used."""
    if row["supported"]:
        return ""
    more = row["count"] - len(row["nodes"])
    return ", ".join(row["nodes"]) + (f" and {more} more" if more else "")


def print_plan(console: Console, facts: dict[str, Any]) -> None:
    who = f"tactix {facts['meta'].get('tactix', '?')}, for {facts['device'].get('name', '?')}"
    show.line(console, f"{facts['file']}: {facts['name']}, {show.size(facts['bytes'])}, by {who}")
    _print_io(console, facts)
    for p in facts["profiles"]:
        ranges = ", ".join(f"{s} {_range(r)}" for s, r in p["dims"].items())
        show.line(console, f"profile {p['name']}: {ranges or 'all shapes are fixed'}")
    rows = list(_rows(facts["steps"]))
    columns = ["#", "layer", "tactic", "variant", "time", "by"]
    console.print(show.table("Layers", columns, rows, right=["#", "time"]))
    rules = ", ".join(f"{name} {n}" for name, n in facts["rules"].items())
    show.line(console, f"rules that fired: {rules or 'none'}")
    if short := Shortfall.read(facts).text:
        show.line(console, f"short of the fast path: {short}")
    _print_memory(console, facts["memory"])
    needs = ", ".join(_need(r) for r in facts["requirements"])
    show.line(console, f"needs at run time: {needs or 'nothing'}")


def _need(r: dict[str, Any]) -> str:
    return f"{r['key']} ({r['dist']} {r['version']}{', in the plan' if r['embedded'] else ''})"


def _rows(steps: list[dict[str, Any]], level: int = 0) -> Iterator[list[Any]]:
    """A line per layer, and per copy around those on the host; those of a body stand below their
    layer, further in.
    """
    for i, s in enumerate(steps):
        indent, copied = "  " * level, s.get("copies", {})
        yield from _copies(indent, "copy to the host", copied.get("to_host"))
        yield [
            f"{indent}{i}",
            f"{indent}{s['name']}",
            s["tactic"],
            ", ".join([s["variant"], *s.get("body_runs", ()), *_places(s)]).strip(", "),
            _time(s),
            s["status"],
        ]
        yield from _copies(indent, "copy to the device", copied.get("to_device"))
        for body in s.get("bodies", ()):
            yield from _rows(body, level + 1)


def _places(step: dict[str, Any]) -> list[str]:
    """The results that are made in their places of a Concat's output."""
    return [f"in place in {name}" for name in step.get("in_place", ())]


def _copies(indent: str, what: str, copied: dict[str, Any] | None) -> Iterator[list[Any]]:
    if copied:
        size = "depends on data" if copied["bytes"] is None else show.size(copied["bytes"])
        yield [
            "",
            f"{indent}{what}: {', '.join(copied['names'])}",
            "",
            size,
            _time(copied),
            "estimated",
        ]


def _print_io(console: Console, facts: dict[str, Any]) -> None:
    rows = [
        [way[:-1], x["name"], x["dtype"], f"({', '.join(map(str, x['shape']))})"]
        for way in ("inputs", "outputs")
        for x in facts[way]
    ]
    console.print(show.table("", ["", "name", "dtype", "shape"], rows))


def _range(r: Any) -> str:
    low, opt, high = r
    return f"{low} to {'any' if high is None else high}, tuned for {opt}"


def _time(step: dict[str, Any]) -> str:
    return show.duration(step["seconds"]) if step.get("seconds") is not None else "-"


def _print_memory(console: Console, m: dict[str, Any]) -> None:
    at = ", ".join(f"{s} {n}" for s, n in m["symbols"].items())
    if "arena" not in m:
        console.print(
            f"memory: weights {show.size(m['weights'])}; that of activations depends on data"
        )
        return
    weights, arena, least = (show.size(m[k]) for k in ("weights", "arena", "lower_bound"))
    ratio = f"{m['ratio']:.3f} times the lower bound {least}"
    show.line(
        console,
        f"memory{f' at {at}' if at else ''}: weights {weights}, activations {arena}, {ratio}",
    )
