"""``tactix trtexec``: TensorRT's program for builds and measurements: its flags, its reports."""

from __future__ import annotations

import click


@click.command("trtexec", add_help_option=False, context_settings={"ignore_unknown_options": True})
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def command(flags: tuple[str, ...]) -> int:
    """Build a model's plan and measure it, by trtexec's FLAGS: --onnx=FILE --fp16 ..."""
    from tactix_tools.trtexec.program import main

    return main(flags)
