"""``tactix keys``: with what plans are signed here, and whose signatures are trusted."""

from __future__ import annotations

import os
from typing import Any

import click

from tactix.base.errors import InvalidArgument
from tactix_tools import options, show, source
from tactix_trust import key_exchange, trust_file
from tactix_trust.changing import changing, generate
from tactix_trust.environment import secret_text
from tactix_trust.key import ALGORITHMS, HMAC, TrustKey, public_key


@click.group("keys")
def command() -> None:
    """Keys that sign plans, and keys whose signatures are trusted.

    An hmac-sha256 key is a secret of this user, and what it signs is trusted on this user's
    machines alone. Of an ed25519 key (pip install 'tactix[sign]') others get the public half, which
    verifies and cannot sign.
    """


@command.command("list")
@options.json_option
def list_keys(as_json: bool) -> None:
    """List the keys."""
    found = trust_file.read()
    rows = [_facts(k, found) for k in found.keys.values()]
    if as_json:
        show.print_json({"keys": rows, "file": str(trust_file.place())})
        return
    columns = ["id", "name", "algorithm", "can sign", "local"]
    cells = [
        [r["id"], r["name"], r["algorithm"], *("yes" if r[k] else "" for k in ("signs", "local"))]
        for r in rows
    ]
    show.console().print(show.table("", columns, cells))


@command.command("new")
@click.option("--name", default="", help="What to call it.")
@click.option("--algorithm", type=click.Choice(ALGORITHMS), default=HMAC, show_default=True)
@click.option("--local", is_flag=True, help="Sign with it what is built here from now on.")
@click.option(
    "--file",
    type=click.Path(dir_okay=False),
    help="Write the secret there, for TACTIX_SIGNING_KEY.",
)
@options.json_option
def new(name: str, algorithm: str, local: bool, file: str | None, as_json: bool) -> None:
    """Make a key. Its secret stays in the trust store, or goes into a FILE alone; others get the
    public half.
    """
    key = generate(algorithm, name)
    if file is None:
        _kept(key, local, as_json)
        return
    if algorithm == HMAC or local:
        raise click.UsageError("--file is for keys of ed25519, and not for --local")
    with open(
        source.output(file), "x", opener=lambda path, flags: os.open(path, flags, 0o600)
    ) as f:
        f.write(secret_text(key) + "\n")
    if as_json:
        show.print_json({"id": key.id, "public": key_exchange.export(key), "file": file})
    else:
        click.echo(key_exchange.export(key))


@command.command("trust")
@click.argument("public")
@click.option("--name", default="", help="What to call it: whose it is.")
@options.json_option
def trust(public: str, name: str, as_json: bool) -> None:
    """Trust the owner of a PUBLIC key (ed25519:...): plans that it signed run their code here."""
    _kept(public_key(public, name), False, as_json)


@command.command("export")
@click.argument("key")
def export(key: str) -> None:
    """Print the public half of KEY (a name or id) for `tactix keys trust` of others."""
    click.echo(key_exchange.export(key_exchange.find(trust_file.read(), key)))


@command.command("remove")
@click.argument("key")
def remove(key: str) -> None:
    """Forget KEY (a name or id): plans that it signed are trusted no more, and nothing can be
    signed with it again.
    """
    with changing() as found:
        gone = key_exchange.find(found, key)
        del found.keys[gone.id]
        found.local = "" if found.local == gone.id else found.local
    costs = f"removed {gone.title}: plans that it signed are not trusted here from now on"
    show.line(show.console(), costs)


def _kept(key: TrustKey, local: bool, as_json: bool) -> None:
    with changing() as found:
        if key.name and any(k.name == key.name and k.id != key.id for k in found.keys.values()):
            raise InvalidArgument(f"another key is called {key.name!r}", do="Give another --name")
        found.add(key)
        found.local = key.id if local else found.local
        facts = _facts(found.keys[key.id], found)
    if as_json:
        show.print_json(facts)
    else:
        show.console().print(f"{key.title}", soft_wrap=True)


def _facts(key: TrustKey, found: trust_file.TrustFile) -> dict[str, Any]:
    return {
        "id": key.id,
        "name": key.name,
        "algorithm": key.algorithm,
        "signs": bool(key.secret),
        "local": key.id == found.local,
        "public": key.public.hex() or None,
    }
