"""How generated text is laid out: no line of it is longer than a screen is wide."""

from __future__ import annotations

from collections.abc import Iterator

COLUMNS = 110
"""Lines are folded to this, so that they stay below 120 once they are quoted or indented."""
FARTHER = 8
"""Columns by which what is folded stands in from its first line."""
NARROWEST = 40
"""Columns that a line has at least before it is folded."""
_AFTER, _BEFORE = (", ", "; "), (" + ", " && ", " || ", " ? ", " : ")


def folded(text: str) -> str:
    """C or CUDA in lines of at most COLUMNS: folded after commas or before operators, where few
    parentheses are open.

    Directives, lines with a comment to their end, and string literals stay whole.
    """
    return "\n".join(part for line in text.split("\n") for part in _folded(line))


def _folded(line: str) -> Iterator[str]:
    margin = " " * (len(line) - len(line.lstrip()) + FARTHER)
    while len(line) > COLUMNS and _can_fold(line):
        places = [(depth, -at) for depth, at in _places(line) if NARROWEST <= at <= COLUMNS]
        if not places:
            break
        at = -min(places)[1]
        yield line[:at].rstrip()
        line = margin + line[at:].lstrip()
    yield line


def _can_fold(line: str) -> bool:
    return not (line.lstrip().startswith("#") or line.endswith("\\") or "//" in line)


def _places(line: str) -> Iterator[tuple[int, int]]:
    """Where it may be folded, with how many parentheses are open there; not inside of string
    literals.
    """
    depth, quoted = 0, False
    for i, c in enumerate(line):
        if c == '"' and line[i - 1] != "\\":
            quoted = not quoted
        if quoted:
            continue
        depth += (c in "([{") - (c in ")]}")
        if line.startswith(_AFTER, i):
            yield depth, i + 1
        elif line.startswith(_BEFORE, i):
            yield depth, i
