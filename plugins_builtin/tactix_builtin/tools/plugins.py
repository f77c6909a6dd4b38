"""``tactix plugins``: which packs are there, what they provide, and what is wrong with them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from tactix.plugins.registry import KINDS
from tactix.plugins.session import Session
from tactix_builtin.pack_info import packs
from tactix_builtin.tools import options, quarantine, show


@click.group("plugins")
def command() -> None:
    """Show the installed plugins."""


command.add_command(quarantine.command)


@command.command("list")
@click.option("--keys", is_flag=True, help="Also list every object that is provided.")
@options.json_option
@click.pass_obj
def list_plugins(session: Session, /, keys: bool, as_json: bool) -> None:
    """List packs: distribution, namespace, doors, state, and how much each provides."""
    found = [_pack(session, info) for info in packs(session)]
    if as_json:
        show.print_json({"packs": found, "digest": session.digest})
        return
    console = show.console()
    columns = ["namespace", "distribution", "doors", "state", "provides", "ms"]
    console.print(show.table("", columns, map(_row, found), right=["ms"]))
    for p in found:
        if p["reason"]:
            console.print(f"{p['namespace']}: {p['reason']}. {p['cure']}", markup=False, soft_wrap=True)
        for kind, names in p["provides"].items() if keys else ():
            console.print(f"{p['namespace']} {kind}: {', '.join(names)}", markup=False)


def _pack(session: Session, info: Any) -> dict[str, Any]:
    """JSON of one pack: who, state, and keys by kind."""
    out = asdict(info)
    out["distribution"] = out.pop("dist")
    out["provides"] = {kind: _keys(session, kind, info) for kind in KINDS if info.counts.get(kind)}
    return out


def _keys(session: Session, kind: str, info: Any) -> list[str]:
    entries = getattr(session, kind).entries()
    return [
        e.key for e in entries
        if (e.namespace, e.provider.dist, e.provider.version) == (info.namespace, info.dist, info.version)
    ]  # fmt: skip


def _row(p: dict[str, Any]) -> list[object]:
    provides = ", ".join(f"{n} {kind if n > 1 else kind[:-1]}" for kind, n in p["counts"].items())
    who = f"{p['distribution']} {p['version']}".strip() or "given in process"
    return [p["namespace"], who, ", ".join(p["doors"]), p["status"], provides or "nothing", f"{p['milliseconds']:.0f}"]
