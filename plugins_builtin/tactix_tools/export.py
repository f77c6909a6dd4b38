"""``tactix export``: a plan in forms that other programs read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from tactix.base.errors import InvalidArgument
from tactix.base.files import replacing
from tactix.plan import container
from tactix.plan.schema import Plan
from tactix.plugins.session import Session
from tactix_inspect.layer_info import layers_document
from tactix_tools import arrays, options, show, source
from tactix_tools.c_library import c_options, refuse_options, write_library
from tactix_tools.cli import OK

ONNX, LAYERS = "onnx", "layers-json"
SUFFIXES = {ONNX: ".opt.onnx", LAYERS: ".layers.json"}
"""In place of the plan's; ``.onnx`` alone is the model's as a rule, which must stay."""


@click.command("export")
@click.argument("file", metavar="PLAN", type=options.FILE)
@click.option(
    "--onnx",
    "as_onnx",
    is_flag=True,
    help="The optimised network: a node for each step, which calls a function where it is fused.",
)
@click.option(
    "--layers-json",
    "as_layers",
    is_flag=True,
    help="Layers as trtexec --exportLayerInfo writes them.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    help="The file to write, of one form; default: PLAN's, with .onnx or .layers.json.",
)
@click.option(
    "--shapes",
    type=options.SHAPES,
    multiple=True,
    help="For --layers-json: input shapes that sizes are told for; without, open ones are -1.",
)
@c_options
@options.json_option
@click.pass_obj
def command(
    session: Session,
    /,
    file: str,
    as_onnx: bool,
    as_layers: bool,
    output: str | None,
    shapes: Any,
    as_json: bool,
    **library: Any,
) -> int:
    """Write PLAN in a form that other programs read. Nothing of it is run.

    --onnx: an ONNX file of the network as the plan runs it, after fusion, for Netron and ONNX
    Runtime. Each step is a node of its name; fused layers are a function. Layers that no operators
    of ONNX mean are nodes of the domain tactix, and are told.
    --layers-json: the JSON of TensorRT's engine inspector, for its explorers.
    --c OUT: a C library for programs without Python, with its sources; its code is the plan's,
    which must be trusted.
    """
    forms = [form for form, asked in ((ONNX, as_onnx), (LAYERS, as_layers)) if asked]
    folder = library["folder"]
    if not forms and folder is None:
        do = "Give --onnx, --layers-json or --c"
        raise InvalidArgument("nothing says what to write", do=do)
    if output and len(forms) != 1:
        what = "two forms are no one file" if forms else "a library is no file"
        raise InvalidArgument(what, who=output, do="Leave -o out")
    if folder is None:
        refuse_options(library)
    if not source.is_meant_as_plan(file):
        raise InvalidArgument(
            "that is no plan", who=file, do="Build one of the model first: tactix build"
        )
    targets = [
        str(source.output(output or Path(file).with_suffix(SUFFIXES[form]), reads=(file,)))
        for form in forms
    ]
    written = [] if folder is None else [write_library(file, session, library)]
    plan = container.load(file)
    written += [
        {"form": form, "output": target, **_written(form, plan, target, session, shapes)}
        for form, target in zip(forms, targets, strict=True)
    ]
    if as_json:
        show.print_json({"plan": file, "written": written})
        return OK
    for facts in written:
        _print(facts)
    return OK


def _written(form: str, plan: Plan, target: str, session: Session, shapes: Any) -> dict[str, Any]:
    if form == ONNX:
        return _write_onnx(plan, target, session)
    return _write_layers(plan, target, shapes)


def _print(facts: Mapping[str, Any]) -> None:
    show.line(show.console(), f"{facts['output']}: {facts['told']}")
    if facts.get("custom"):
        named = ", ".join(f"{key} ({n})" for key, n in facts["custom"].items())
        show.line(show.console(), f"no operators of ONNX mean {named}: nodes of another domain")
    if not facts.get("same_compiler", True):
        told = f"compiled by {facts['compiler']}, not by what the plan was compiled by"
        show.line(show.console(), f"{told}: results may differ in their last bits")


def _write_onnx(plan: Plan, target: str, session: Session) -> dict[str, Any]:
    from tactix_inspect.onnx_export.plan import exported

    made = exported(plan, session.layers.__getitem__)
    made.save(target)
    nodes, functions = len(made.model.graph.node), len(made.model.functions)
    told = f"{nodes} nodes, {functions} functions, operator set {made.opset}"
    return {
        "nodes": nodes,
        "functions": functions,
        "opset": made.opset,
        "custom": dict(sorted(made.strange.items())),
        "told": told,
    }


def _write_layers(plan: Plan, target: str, shapes: Any) -> dict[str, Any]:
    given = options.merged(shapes)
    document = layers_document(plan, arrays.sizes(plan, given) if given else {})
    with replacing(target) as f:
        f.write(f"{json.dumps(document, indent=1)}\n".encode())
    return {"layers": len(plan.steps), "told": f"{len(plan.steps)} layers"}
