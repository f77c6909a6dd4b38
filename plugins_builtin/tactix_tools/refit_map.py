"""``tactix refit-map``: which tensor of a checkpoint each weight of a model is."""

from __future__ import annotations

from typing import Any

import click

from tactix.builder import Builder
from tactix.plugins.session import Session
from tactix_refit.recipe import constants_of
from tactix_refit.tensor_file import TensorFile
from tactix_refit.weight_map import map_of
from tactix_tools import options, show, source


@click.command("refit-map")
@click.argument("model", type=options.FILE)
@click.argument("checkpoint", type=options.FILE)
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False), required=True, help="The file to write."
)
@options.json_option
@click.pass_obj
def command(session: Session, /, model: str, checkpoint: str, output: str, as_json: bool) -> None:
    """Find out which tensor of CHECKPOINT each weight of MODEL is, by content.

    CHECKPOINT is the safetensors file that MODEL was exported from. `tactix refit --map` then takes
    other checkpoints of the same structure.
    """
    source.require_model(model)
    source.output(output, reads=(model, checkpoint))
    constants = dict(constants_of(Builder(session=session).import_model(model)))
    with TensorFile(checkpoint) as file:
        made = map_of(constants, file)
    made.save(output)
    facts: dict[str, Any] = {
        "map": output,
        "weights": len(made.weights),
        "constants": sorted(made.constants),
        "unused": sorted(made.unused),
    }
    if as_json:
        show.print_json(facts)
        return
    kept, unused = len(facts["constants"]), facts["unused"]
    text = f"{output}: {facts['weights']} weights are tensors, {kept} are constants of the model"
    console = show.console()
    console.print(text, soft_wrap=True, markup=False)
    if unused:
        shown = ", ".join(unused[:8]) + (f" and {len(unused) - 8} more" if len(unused) > 8 else "")
        text = f"must stay as they are, as no weight is one of them: {shown}"
        console.print(text, soft_wrap=True, markup=False)
