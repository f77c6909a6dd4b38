"""``tactix plugins quarantine``: kernels of packs that failed a trial here, and how to try them
again.
"""

from __future__ import annotations

import click

from tactix_isolate import quarantine as kept
from tactix_isolate import record
from tactix_tools import options, show


@click.group("quarantine")
def command() -> None:
    """Kernels of packs that failed a trial on this machine: no build tries them again."""


@command.command("list")
@options.json_option
def list_records(as_json: bool) -> None:
    """List what is in quarantine: which kernel, of whom, and what it did."""
    found = kept.Quarantine(kept.default_path()).records
    if as_json:
        show.print_json({"path": kept.default_path(), "records": found})
        return
    rows = [
        [
            k[: kept.ID],
            f"{r['tactic']} [{r['variant']}]",
            f"{r['pack']} {r['version']}".strip(),
            r["kind"],
            r["when"],
        ]
        for k, r in found.items()
    ]
    show.console().print(
        show.table("", ["id", "kernel", "pack", "what", "when"], rows) if rows else "nothing"
    )


@command.command("show")
@click.argument("record_id", metavar="ID")
@click.option("--script", is_flag=True, help="Print a Python program that makes the trial again.")
@options.json_option
def show_record(record_id: str, script: bool, as_json: bool) -> None:
    """Show one record, by the begin of its ID."""
    key, found = kept.Quarantine(kept.default_path()).find(record_id)
    if as_json:
        show.print_json({"key": key, **found})
        return
    if script:
        click.echo(record.script(found), nl=False)
        return
    console = show.console()
    for name in ("reason", "pack", "version", "node", "layer", "shapes", "when", "tactix", "said"):
        value = found[name]
        show.line(console, f"{name}: {', '.join(value) if isinstance(value, list) else value}")


@command.command("clear")
@click.argument("record_ids", metavar="[ID]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Forget all records.")
def clear(record_ids: tuple[str, ...], everything: bool) -> None:
    """Forget records, so that the next build tries these kernels again."""
    if bool(record_ids) == everything:
        raise click.UsageError("give the begins of IDs, or --all")
    found = kept.Quarantine(kept.default_path())
    count = found.clear(None if everything else [found.find(i)[0] for i in record_ids])
    show.line(show.console(), f"forgot {count} record{'' if count == 1 else 's'}")
