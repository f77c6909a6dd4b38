"""What was raised in another process, as JSON and again as an exception: tactix's own errors with
their parts, Python's by name.
"""

from __future__ import annotations

import builtins
import traceback
from typing import Any

from tactix.base import errors
from tactix.base.errors import ExecutionError, TactixError
from tactix.select import bench


def told(e: BaseException) -> dict[str, str]:
    """The parts of an exception, and the name of what caused it."""
    cause = type(e.__cause__).__name__ if e.__cause__ is not None else ""
    if not isinstance(e, TactixError):
        where = "".join(traceback.format_tb(e.__traceback__))
        return {"kind": type(e).__name__, "text": str(e), "cause": cause, "where": where}
    kinds = [c.__name__ for c in type(e).__mro__]
    kind = next(k for k in kinds if _kind(k) is not None)
    return {"kind": kind, "what": e.what, "who": e.who, "why": e.why, "do": e.do, "cause": cause}


def made(parts: dict[str, str]) -> Exception:
    """The exception of these parts. One that this process does not know is an ExecutionError; of a
    TactixError of a pack, the nearest class that is tactix's own.
    """
    out = _error(parts)
    out.__cause__ = _python(parts["cause"], "") if parts["cause"] else None
    if parts.get("where"):
        out.add_note(f"In the other process:\n{parts['where']}")
    return out


def _error(parts: dict[str, str]) -> Exception:
    if "text" in parts:
        known = _python(parts["kind"], parts["text"])
        return known or ExecutionError(f"{parts['kind']}: {parts['text']}")
    kind = _kind(parts["kind"]) or ExecutionError
    return kind(parts["what"], who=parts["who"], why=parts["why"], do=parts["do"])


def _kind(name: str) -> Any:
    """The class of tactix's own error of that name that is made of its parts alone."""
    found = getattr(errors, name, None) or getattr(bench, name, None)
    if not (isinstance(found, type) and issubclass(found, TactixError)):
        return None
    return found if found is TactixError or "__init__" not in vars(found) else None


def _python(name: str, text: str) -> Exception | None:
    found: Any = getattr(builtins, name, None)
    if not (isinstance(found, type) and issubclass(found, Exception)):
        return None
    try:
        return found(text)  # type: ignore[no-any-return]
    except TypeError:  # it takes more than a text, as UnicodeDecodeError does
        return None
