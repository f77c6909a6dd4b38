"""``tactix plugins``: which packs are there, what they provide, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

import click

from tactix.base.errors import InvalidArgument, PluginError
from tactix.base.spelling import did_you_mean
from tactix.plugins.identity import called
from tactix.plugins.registry import KINDS, Clash
from tactix.plugins.session import Session
from tactix_tools import options, quarantine, show
from tactix_tools.cli import OK, OTHER
from tactix_tools.pack_info import PackInfo, lost_by, packs

USELESS = ("failed", "incompatible", "disabled")
"""States of packs that provide nothing."""


@click.group("plugins")
def command() -> None:
    """Show the installed plugins."""


command.add_command(quarantine.command)


@command.command("list")
@click.option("--keys", is_flag=True, help="Also list every object that is provided.")
@options.json_option
@click.pass_obj
def list_plugins(session: Session, /, keys: bool, as_json: bool) -> None:
    """List packs: distribution, namespace, entry-point groups, state, and how much each
    provides.
    """
    found = [_pack(session, info) for info in packs(session)]
    if as_json:
        show.print_json({"packs": found, "digest": session.digest})
        return
    console = show.console()
    columns = ["pack", "distribution", "groups", "state", "provides", "ms"]
    console.print(show.table("", columns, map(_row, found), right=["ms"]))
    reasons = (f"{p['name']}: {p['reason']}. {p['cure']}" for p in found if p["reason"])
    for told in dict.fromkeys(reasons):  # two packs of a namespace clash with one sentence
        console.print(told, markup=False, soft_wrap=True)
    for p in found:
        for kind, names in p["provides"].items() if keys else ():
            console.print(f"{p['name']} {kind}: {', '.join(names)}", markup=False)


def _pack(session: Session, info: Any) -> dict[str, Any]:
    """JSON of one pack: who, state, and keys by kind."""
    out = asdict(info)
    out["distribution"] = out.pop("dist")
    out["name"] = info.name
    out["provides"] = {kind: _keys(session, kind, info) for kind in KINDS if info.counts.get(kind)}
    return out


def _keys(session: Session, kind: str, info: Any) -> list[str]:
    entries = getattr(session, kind).entries()
    return [
        e.key
        for e in entries
        if (e.namespace, e.part, e.provider.dist, e.provider.version)
        == (info.namespace, info.part, info.dist, info.version)
    ]


def _row(p: dict[str, Any]) -> list[object]:
    provides = ", ".join(f"{n} {kind if n > 1 else kind[:-1]}" for kind, n in p["counts"].items())
    who = f"{p['distribution']} {p['version']}".strip() or "given in process"
    return [
        p["name"],
        who,
        ", ".join(p["groups"]),
        p["status"],
        provides or "nothing",
        f"{p['milliseconds']:.0f}",
    ]


@command.command("info")
@click.argument("pack")
@options.json_option
@click.pass_obj
def info(session: Session, /, pack: str, as_json: bool) -> None:
    """Show all about PACK, a namespace or a distribution: state, cure, entry-point groups, every
    object it provides.
    """
    every = packs(session)
    found = [p for p in every if called(pack, p.namespace, p.dist, p.part)]
    if not found:
        known = [*(p.name for p in every), *(p.dist for p in every)]
        asked = did_you_mean(pack, known, most=3)
        raise InvalidArgument(
            f"no pack {pack!r}", do=f"{asked} `tactix plugins list` shows all".lstrip()
        )
    facts = [_pack(session, p) | {"digest": _digest(session, p)} for p in found]
    if as_json:
        show.print_json({"packs": facts})
        return
    console = show.console()
    for p in facts:
        show.line(
            console,
            f"{p['name']}: {p['distribution']} {p['version']}, sha256 {p['digest'] or 'none'}",
        )
        show.line(console, f"  {p['status']}{': ' + p['reason'] if p['reason'] else ''}")
        for text in filter(None, (p["cure"], f"groups: {', '.join(p['groups'])}")):
            show.line(console, f"  {text}")
        for kind, keys in p["provides"].items():
            show.line(console, f"  {kind}: {', '.join(keys)}")


def _digest(session: Session, pack: PackInfo) -> str:
    plugins = (
        p for p in session.found() if p.provider.dist == pack.dist and p.namespace == pack.namespace
    )
    return next((p.provider.digest for p in plugins), "")


@command.command("why")
@click.argument("key")
@options.json_option
@click.pass_obj
def why(session: Session, /, key: str, as_json: bool) -> int:
    """Say who provides KEY (as acme.Swish@1, or acme.Swish for every version) and whether it takes
    part in builds.

    Or why nobody does (exit code 1).
    """
    facts = _provided(session, key)
    code = OK if facts["provided"] else OTHER
    if as_json:
        show.print_json(facts)
        return code
    console = show.console()
    if not facts["provided"]:
        show.line(console, f"nobody provides {key}. {facts['cure']}".rstrip())
    for row in facts["provided"]:
        state = row["state"] + (f": {row['reason']}. {row['cure']}" if row["cure"] else "")
        show.line(console, f"{row['key']} is one of the {row['kind']} of {row['pack']}; {state}")
    for row in facts["broken"]:
        who = f"{row['namespace']} ({row['distribution']} {row['version']})"
        show.line(console, f"{who}: {row['reason']}. {row['cure']}")
    return code


def _provided(session: Session, key: str) -> dict[str, Any]:
    """JSON: where the key is, and which packs of its namespace are of no use."""
    every = packs(session)
    entries = [(kind, e) for kind in session.kinds for e in getattr(session, kind).entries()]
    rows = [
        _entry(session, kind, e, every)
        for kind, e in entries
        if key in (e.key, e.key.partition("@")[0])
    ]
    broken = [p for p in every if p.namespace == key.partition(".")[0] and p.status in USELESS]
    clashing = [
        replace(p, reason=f"{e.what}: {e.why}", cure=e.do)
        for c, e in _clashes(session, key)
        for p in every
        if lost_by(p, c)
    ]
    broken += clashing
    told = [
        {
            "namespace": p.namespace,
            "distribution": p.dist,
            "version": p.version,
            "reason": p.reason,
            "cure": p.cure,
        }
        for p in broken
    ]
    known = (e.key for _, e in entries)
    cure = "" if rows or broken else did_you_mean(key, known, "Install a pack that does", most=3)
    return {"key": key, "provided": rows, "broken": told, "cure": cure}


def _clashes(session: Session, key: str) -> list[tuple[Clash, PluginError]]:
    """Those of the key, in any registry, each with what it says."""
    found = (c for c in session.clashes() if key in (c.key, c.key.partition("@")[0]))
    return [(c, c.error()) for c in found]


def _entry(session: Session, kind: str, e: Any, every: Iterable[PackInfo]) -> dict[str, Any]:
    not_enabled = session.needs_enabling(kind, e)
    pack = next(
        p for p in every if (p.namespace, p.part, p.dist) == (e.namespace, e.part, e.provider.dist)
    )
    return {
        "key": e.key,
        "kind": kind,
        "pack": str(e.provider),
        "state": "not enabled" if not_enabled else "active",
        "reason": pack.reason if not_enabled else "",
        "cure": pack.cure if not_enabled else "",
    }
