"""``tactix inspect --check``: whether a plan can run here, and if not, every reason."""

from __future__ import annotations

from typing import Any

from tactix.plugins.session import Session
from tactix.run.runtime import Runtime
from tactix.words.errors import PlanFormatError
from tactix_builtin.cli import OK, PLAN
from tactix_builtin.flavours.dispatch import as_bytes
from tactix_builtin.lean import envelope
from tactix_builtin.tools import show


def check_plan(file: str, session: Session, as_json: bool) -> int:
    """Print the reasons; the exit code. Raises OSError."""
    facts = report(file, session)
    if as_json:
        show.print_json(facts)
    else:
        console = show.console()
        for reason in facts["reasons"]:
            console.print(f"- {reason}", markup=False, soft_wrap=True)
        if facts["reasons"] and facts["lean_runtime"]:
            console.print(f"It holds the lean runtime of tactix {facts['tactix']}: try --flavour dispatch.")
        console.print(f"{file}: {'cannot run here' if facts['reasons'] else 'can run here'}", soft_wrap=True)
    return PLAN if facts["reasons"] else OK


def report(file: str, session: Session) -> dict[str, Any]:
    """JSON: format, version, whether it holds a lean runtime, reasons against running it. Raises OSError."""
    found = None
    try:
        found = envelope.read(as_bytes(file))
    except PlanFormatError as e:
        reasons = [str(e)]
    else:
        reasons = Runtime(session.logger, session).check(file)
    return {
        "file": file,
        "format": found and found.format,
        "tactix": found and found.version,
        "lean_runtime": bool(found and found.runtime is not None),
        "reasons": reasons,
    }
