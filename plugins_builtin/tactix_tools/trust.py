"""``tactix trust``: plans that may run their code here although nobody signed them."""

from __future__ import annotations

import click

from tactix.base.errors import InvalidArgument
from tactix_tools import options, show
from tactix_trust import trust_digest, trust_file
from tactix_trust.changing import changing


@click.command("trust")
@click.argument("digest", required=False)
@click.option("--note", default="", help="For people: why, or where it is from.")
@click.option("--remove", is_flag=True, help="Trust it no more.")
@options.json_option
def command(digest: str | None, note: str, remove: bool, as_json: bool) -> None:
    """Trust the plan with this DIGEST, which `tactix verify PLAN` shows; without one, list those
    that are trusted.

    A digest stands for one plan and every byte of it.
    """
    if digest and remove:
        _remove(trust_file.digest_of(digest))
    elif digest:
        trust_digest(digest, note)
    elif remove:
        raise click.UsageError("--remove needs a DIGEST")
    digests = trust_file.read().digests
    if as_json:
        show.print_json({"digests": digests})
    elif not digest:
        show.console().print(
            show.table("", ["digest", "note"], [[d, n] for d, n in digests.items()])
        )


def _remove(digest: str) -> None:
    with changing() as found:
        if digest not in found.digests:
            raise InvalidArgument(
                f"{digest} is not trusted", do="`tactix trust` lists those that are"
            )
        del found.digests[digest]
