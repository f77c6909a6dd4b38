"""What PTX says a kernel takes."""

from __future__ import annotations

import re

COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
WIDE = re.compile(r"\.[bus]64\b")
"""Of a parameter that may be an address."""


def unstated(code: bytes, name: str, given: int) -> int:
    """How many addresses a kernel takes behind the arguments that a program gives.

    Triton adds those of scratch memory, one of the kernel's own and one of its profiler's, which
    are null where a kernel uses none. 0 for code that is no PTX. Raises ValueError for another
    number of arguments.
    """
    kinds = _parameters(code, name)
    if kinds is None:
        return 0
    rest = kinds[given:]
    if len(kinds) < given or not all(WIDE.search(k) for k in rest):
        raise ValueError(f"kernel {name!r} takes {len(kinds)} arguments, and gets {given}")
    return len(rest)


def _parameters(code: bytes, name: str) -> list[str] | None:
    """The declarations of a kernel's parameters; None if they cannot be told."""
    text = COMMENTS.sub(" ", code.decode(errors="replace"))
    found = re.search(rf"\.entry\s+{re.escape(name)}\s*(?:\(([^)]*)\))?", text)
    if found is None:
        return None
    return [p for p in (found[1] or "").split(",") if ".param" in p]
