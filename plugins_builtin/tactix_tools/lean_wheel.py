"""``tactix lean-wheel``: the runtime alone, as a wheel."""

from __future__ import annotations

from typing import Any

import click

from tactix_tools import options, show


@click.command("lean-wheel")
@click.option(
    "--out",
    type=click.Path(file_okay=False),
    default=".",
    help="The folder to write it to; default: this.",
)
@options.json_option
@click.pass_obj
def command(_: Any, /, out: str, as_json: bool) -> None:
    """Write the wheel of tactix-runtime: what runs plans, and needs nothing but numpy.

    It is generated from this very installation; the same sources give the same bytes.
    """
    import hashlib

    from tactix_ship.lean.wheel import installed_size, write

    path = write(out)
    content = path.read_bytes()
    facts: dict[str, Any] = {
        "wheel": str(path),
        "bytes": len(content),
        "installed_bytes": installed_size(),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    if as_json:
        show.print_json(facts)
        return
    console = show.console()
    sizes = f"{show.size(facts['bytes'])}, installed {show.size(facts['installed_bytes'])}"
    console.print(f"{path}: {sizes}, sha256 {facts['sha256']}", soft_wrap=True)
