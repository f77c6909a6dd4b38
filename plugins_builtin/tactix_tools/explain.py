"""``tactix explain``: why a plan is as it is."""

from __future__ import annotations

from typing import Any

import click
from rich.console import Console

from tactix.pipeline.shortfall import Shortfall
from tactix.plugins.session import Session
from tactix_tools import options, show
from tactix_tools.explanation import SCHEMA, explain

SHOWN = 8
"""Candidates and reasons shown of a node, unless all are asked for."""


@click.command("explain")
@click.argument("plan", type=options.FILE, required=False)
@click.argument("node", default="")
@click.option("--all", "whole", is_flag=True, help="Every candidate and reason, not the first few.")
@click.option("--schema", is_flag=True, help="Print the JSON schema of what --json prints.")
@options.json_option
@click.pass_obj
def command(
    session: Session, /, plan: str | None, node: str, whole: bool, schema: bool, as_json: bool
) -> None:
    """Tell why PLAN is as it is: what bid for each step, how fast each was, and why others did not.

    With NODE, a step or a node of the model, also which rules made the step or nearly did, and what
    another choice would cost. The plan's ledger is read; nothing is run. Tactics of packs that are
    installed now and not enabled are named, too. `tactix inspect PLAN --source NODE` shows the text
    of a kernel that won.
    """
    if schema:
        show.print_json(SCHEMA)
        return
    if plan is None:
        raise click.UsageError("Missing argument 'PLAN'.")
    facts = explain(plan, node, session)
    if as_json:
        show.print_json(facts)
    elif node:
        for row in facts["nodes"]:
            _node(show.console(), row, None if whole else SHOWN)
    else:
        _overview(show.console(), facts)


def _overview(console: Console, facts: dict[str, Any]) -> None:
    columns = ["step", "won", "time", "next best", "costs more", "bids", "rejected"]
    right = ["time", "costs more", "bids", "rejected"]
    console.print(show.table(facts["plan"], columns, map(_line, facts["nodes"]), right=right))
    show.line(console, f"predicted: {show.duration(facts['predicted_seconds'])} an inference")
    fired = ", ".join(f"{rule} {n}" for rule, n in facts["rules"].items())
    show.line(console, f"rules that fired: {fired or 'none'}")
    if short := Shortfall.read(facts).text:
        show.line(console, f"short of the fast path: {short}")
    lowered, wide = facts["precision"]["lowered"], facts["precision"]["wide"]
    if lowered or wide:
        show.line(console, f"in lower precision: {len(lowered)} layers; as they were: {len(wide)}")
    for name, why in wide.items():
        show.line(console, f"  {name}: {why}")


def _line(row: dict[str, Any]) -> list[object]:
    won = next((c for c in row["candidates"] if c["chosen"]), None)
    others = [c for c in row["candidates"] if "costs_more" in c]
    rival = min(others, key=lambda c: c["costs_more"], default=None)
    lost = sum(c["status"] == "rejected" for c in row["candidates"]) + len(row["rejections"])
    return [
        row["name"],
        _title(won),
        _time(won),
        _title(rival),
        _more(rival),
        len(row["candidates"]),
        lost,
    ]


def _title(c: dict[str, Any] | None) -> str:
    return f"{c['tactic']} [{c['variant']}]" if c else "-"


def _time(c: dict[str, Any] | None) -> str:
    return show.duration(c["seconds"]) if c and "seconds" in c else "-"


def _more(c: dict[str, Any] | None) -> str:
    if c is None:
        return "-"
    sign = "-" if c["costs_more"] < 0 else "+"
    return (
        f"{sign}{show.duration(abs(c['costs_more']))}{' (near tie)' if c.get('near_tie') else ''}"
    )


def _node(console: Console, row: dict[str, Any], limit: int | None) -> None:
    rows = [
        [
            _title(c),
            "won" if c["chosen"] else c["status"],
            _time(c),
            f"{c['spread']:.1%}" if "spread" in c else "-",
            f"{c['error']:.2g}" if "error" in c else "-",
            _more(c if "costs_more" in c else None),
            c.get("reason", ""),
        ]
        for c in row["candidates"][:limit]
    ]
    columns = ["candidate", "state", "time", "spread", "error", "costs more", "why"]
    console.print(show.table(row["name"], columns, rows, right=columns[2:6]))
    show.line(console, f"{row['kind']}, of the model's {', '.join(row['origin'])}")
    _list(
        console,
        "not asked, or not able",
        [f"{r['tactic']}: {r['reason']}" for r in row["rejections"]],
        limit,
    )
    fired = [
        f"{f['rule']}: {', '.join(f['removed'])} became {', '.join(f['added']) or 'nothing'}"
        for f in row["fired"]
    ]
    _list(console, "rules that made it", fired, limit)
    split = [f"{s['node']} into {', '.join(s['parts'])}: {s['reason']}" for s in row["split"]]
    _list(console, "groups that it was a part of and that no kernel could run", split, limit)
    _list(
        console,
        "rules that nearly fired",
        [f"{m['rule']} at {m['node']}: {m['reason']}" for m in row["nearly"]],
        limit,
    )


def _list(console: Console, title: str, lines: list[str], limit: int | None) -> None:
    if not lines:
        return
    show.line(console, f"{title}:")
    for text in lines[:limit]:
        show.line(console, f"  {text}")
    if limit is not None and len(lines) > limit:
        show.line(console, f"  and {len(lines) - limit} more, with --all")
