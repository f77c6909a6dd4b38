"""``tactix check``: whether a plan can run here; if not, every reason."""

from __future__ import annotations

from typing import Any

import click

from tactix.plugins.session import Session
from tactix.run.runtime import Runtime
from tactix.words.errors import PlanFormatError
from tactix.words.logger import Logger, Severity
from tactix_builtin.cli import OK, PLAN
from tactix_builtin.flavours.dispatch import envelope_of
from tactix_builtin.tools import options, show


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
@options.json_option
@click.pass_obj
def command(session: Session, /, plan: str, as_json: bool) -> int:
    """Say whether PLAN can run here, without running any of it: every reason against it, and what to be warned of.

    Looked at are its format and version, who vouches for it, the device and its features, and the plugins that it
    needs. Exit code 5 if it cannot run; one that holds its lean runtime may still run with --flavour dispatch.
    """
    facts = report(plan, session)
    if as_json:
        show.print_json(facts)
    else:
        _print(facts)
    return PLAN if facts["reasons"] else OK


def report(file: str, session: Session) -> dict[str, Any]:
    """JSON: format, version, whether it holds a lean runtime, reasons against running it, warnings. Raises OSError."""
    found, heard = None, Heard()
    try:
        _, found = envelope_of(file)
    except PlanFormatError as e:
        reasons = [str(e)]
    else:
        reasons = Runtime(heard, session).check(file)
    return {
        "file": file,
        "format": found and found.format,
        "tactix": found and found.version,
        "lean_runtime": bool(found and found.runtime is not None),
        "reasons": reasons,
        "warnings": heard.warnings,
    }


def _print(facts: dict[str, Any]) -> None:
    console = show.console()
    for text in (*facts["reasons"], *(f"warning: {w}" for w in facts["warnings"])):
        console.print(f"- {show.clean(text)}", markup=False, soft_wrap=True)
    if facts["lean_runtime"]:
        hint = ": try --flavour dispatch" if facts["reasons"] else ""
        console.print(f"It holds the lean runtime of tactix {facts['tactix']}{hint}.")
    console.print(f"{facts['file']}: {'cannot run here' if facts['reasons'] else 'can run here'}", soft_wrap=True)
