"""``tactix sign``: a key of this user signs a plan."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from tactix.plan import container
from tactix_tools import options, show, source
from tactix_trust import key_exchange, trust_file
from tactix_trust.store import local_key, sign


@click.command("sign")
@click.argument("plan", type=options.FILE)
@click.option(
    "--key", "name", metavar="KEY", help="Name, id or beginning of the id; default: the local key."
)
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False), help="Write there; default: over PLAN."
)
@options.json_option
def command(plan: str, name: str | None, output: str | None, as_json: bool) -> None:
    """Sign PLAN. All of it is checked against its sha256 first; a signature that it has is
    replaced.

    Who signs a plan answers for it: its machine code then runs wherever the key is trusted. The
    digest of the plan, which `tactix verify` shows, stays as it is.
    """
    loaded = container.load(plan, verify=True, private=True)
    key = key_exchange.find(trust_file.read(), name) if name else local_key()
    source.output(output or plan)
    container.save(loaded, output or plan, partial(sign, key))
    facts: dict[str, Any] = {"plan": output or plan, "key": key.id}
    if as_json:
        show.print_json(facts)
    else:
        show.console().print(f"{facts['plan']}: signed by key {facts['key']}", soft_wrap=True)
