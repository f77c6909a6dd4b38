"""``tactix refit``: the same plan with other weights."""

from __future__ import annotations

from typing import Any

import click

from tactix.base.dims import show as shape_text
from tactix.base.errors import InvalidArgument
from tactix.base.logger import printable
from tactix.plugins.session import Session
from tactix_refit.refitter import Refitter
from tactix_tools import options, show, source

CHECKPOINT = ".safetensors"
"""How names of checkpoints end; nothing in the file tells it."""


@click.command("refit")
@click.argument("plan", type=options.FILE)
@click.argument("model", type=options.FILE, required=False)
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False), help="Write there; default: over PLAN."
)
@click.option(
    "--threads",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="That work on it; 0: all cores.",
)
@click.option(
    "--map",
    "weight_map",
    type=options.FILE,
    help="Of weights to tensors of a checkpoint; `tactix refit-map` writes one.",
)
@options.json_option
@click.pass_obj
def command(
    session: Session,
    /,
    plan: str,
    model: str | None,
    output: str | None,
    threads: int,
    weight_map: str | None,
    as_json: bool,
) -> None:
    """Give PLAN the weights of MODEL, or without MODEL list the weights that it takes.

    PLAN was built with --refit, from a model of the same structure; MODEL may be a checkpoint, a
    file whose name ends in .safetensors. If PLAN is trusted here, the new plan is signed by the
    local key.
    """
    refitter = Refitter(plan, threads, session)
    if model is None:
        _list(refitter, as_json)
        return
    source.require_model(model)
    source.output(output or plan)
    if model.endswith(CHECKPOINT):
        refitter.refit_from_safetensors(model, weight_map)
    elif weight_map is None:
        refitter.refit_from_onnx(model)
    else:
        raise InvalidArgument(f"--map is for a checkpoint, a {CHECKPOINT} file", who=model)
    trusted = refitter.trusted
    refitter.save(output or plan)
    facts: dict[str, Any] = {
        "plan": output or plan,
        "weights": len(refitter.get_all_weights()),
        "signed": trusted,
    }
    if as_json:
        show.print_json(facts)
    else:
        note = (
            "signed by the local key"
            if trusted
            else "not signed, as the plan was not trusted before"
        )
        show.console().print(f"{facts['plan']}: {facts['weights']} weights, {note}", soft_wrap=True)


def _list(refitter: Refitter, as_json: bool) -> None:
    specs = {name: refitter.get_weights_prototype(name) for name in refitter.get_all_weights()}
    missing = refitter.get_missing_weights()
    if as_json:
        rows = {name: {"dtype": s.dtype.value, "shape": list(s.shape)} for name, s in specs.items()}
        show.print_json({"weights": rows, "missing": missing, "fixed": dict(refitter.fixed)})
        return
    console = show.console()
    for name, s in specs.items():
        console.print(
            f"{name}: {s.dtype.value}{shape_text(s.shape)}{' missing' if name in missing else ''}",
            markup=False,
        )
    for name, why in refitter.fixed.items():
        console.print(printable(f"{name}: cannot be replaced: {why}"), markup=False, soft_wrap=True)
