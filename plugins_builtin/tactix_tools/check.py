"""``tactix check``: whether a plan can run here; if not, every reason."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from tactix.base.errors import TactixError
from tactix.base.logger import Logger, Severity, printable
from tactix.plan import container
from tactix.plugins.session import Session
from tactix.run.runtime import Runtime
from tactix_runtime.dispatch import envelope_of, is_of_other_version, judge
from tactix_tools import options, show
from tactix_tools.cli import OK, PLAN


class Heard(Logger):
    """Keeps the warnings."""

    def __init__(self) -> None:
        super().__init__()
        self.warnings: list[str] = []

    def log(self, severity: Severity, msg: str) -> None:
        if severity <= Severity.WARNING:
            self.warnings.append(msg)


@click.command("check")
@click.argument("plan", type=options.FILE)
@options.untrusted_option
@options.json_option
@click.pass_obj
def command(session: Session, /, plan: str, untrusted: str | None, as_json: bool) -> int:
    """Say whether PLAN can run here, without running any of it: every reason against it, and what
    to be warned of.

    Looked at are its format and version, whether it is trusted, the device and its features, and
    the plugins that it needs. Exit code 5 if it cannot run, or would be refused. One of another
    version that holds its lean runtime runs on that; here it is asked whether it is trusted, and
    nothing else.
    """
    facts = report(plan, session, untrusted)
    if as_json:
        show.print_json(facts)
    else:
        _print(facts)
    return PLAN if facts["reasons"] else OK


def report(file: str, session: Session, untrusted: str | None = None) -> dict[str, Any]:
    """JSON: format, version, whether it holds a lean runtime and runs on that, what of its code
    would run, reasons against running it, warnings. ``untrusted``: as ``Runtime`` takes it. Raises
    OSError.
    """
    found, heard, trust, other = None, Heard(), None, False
    runtime = Runtime(heard, session, on_untrusted=untrusted or "")
    try:
        _, found = envelope_of(file)
        other = is_of_other_version(file)
        plan = None if other else container.load(file)
        trust = runtime.judge(plan) if plan else judge(runtime, found)
    except TactixError as e:
        reasons = [str(e)]
    else:
        reasons = runtime.check(plan or file)
    return {
        "file": file,
        "format": found and found.format,
        "tactix": found and found.version,
        "lean_runtime": bool(found and found.runtime is not None),
        "runs_on_lean_runtime": other,
        "trust": trust and {**asdict(trust), "policy": runtime.on_untrusted},
        "reasons": reasons,
        "warnings": heard.warnings,
    }


def _print(facts: dict[str, Any]) -> None:
    console = show.console()
    for text in (*facts["reasons"], *(f"warning: {w}" for w in facts["warnings"])):
        console.print(f"- {printable(text)}", markup=False, soft_wrap=True)
    if facts["lean_runtime"]:
        show.line(console, f"It holds the lean runtime of tactix {facts['tactix']}{_use(facts)}.")
    console.print(f"{facts['file']}: {_outcome(facts)}", soft_wrap=True)


def _use(facts: dict[str, Any]) -> str:
    if facts["runs_on_lean_runtime"]:
        return ", which is what runs it here"
    return ": try --flavour dispatch" if facts["reasons"] else ""


def _outcome(facts: dict[str, Any]) -> str:
    outcome = facts["trust"]["outcome"] if facts["trust"] else ""
    if facts["reasons"]:
        return "would be refused here" if outcome == "refused" else "cannot run here"
    return "would run on references here, slowly" if outcome == "references" else "can run here"
