"""``tactix verify``: whether a plan is whole and trusted."""

from __future__ import annotations

from typing import Any

import click

from tactix.plan import container
from tactix.plugins.session import Session
from tactix.run.admission import code_steps
from tactix_tools import options, show
from tactix_tools.cli import OK, PLAN
from tactix_trust.store import parse


@click.command("verify")
@click.argument("plan", type=options.FILE)
@options.json_option
@click.pass_obj
def command(session: Session, /, plan: str, as_json: bool) -> int:
    """Check every byte of PLAN against its sha256, and its signature against the keys that are
    trusted here.

    Nothing of it is run. The digest names the plan: `tactix trust DIGEST` lets it run here. Exit
    code 5 if the plan is damaged or forged, or if it is not trusted.
    """
    loaded = container.load(plan, verify=True, admit=session.trusted_by)
    assert loaded.seal is not None
    trusted = session.trusted_by(loaded.seal)
    signature = parse(loaded.seal.signature) if loaded.seal.signature else None
    facts: dict[str, Any] = {
        "plan": plan,
        "digest": loaded.seal.digest.hex(),
        "signature": {"algorithm": signature[0], "key": signature[1]} if signature else None,
        "trusted": trusted or None,
        "code_steps": len(code_steps(loaded, session.launchers)),
    }
    if as_json:
        show.print_json(facts)
    else:
        _print(facts)
    return OK if trusted else PLAN


def _print(facts: dict[str, Any]) -> None:
    console, signature = show.console(), facts["signature"]
    own = f"by {signature['algorithm']} key {signature['key']}" if signature else "none"
    console.print(f"{facts['plan']}: whole", soft_wrap=True)
    console.print(f"digest: {facts['digest']}", soft_wrap=True)
    console.print(f"signature: {own}", soft_wrap=True)
    console.print(f"trusted: {facts['trusted'] or 'no'}", soft_wrap=True)
    console.print(f"steps with code of the plan: {facts['code_steps']}")
