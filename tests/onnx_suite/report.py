"""docs/onnx.md from the results of the suite: totals, a table by operator, and every failure's reason."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from suite import Result

HEAD = """# ONNX operators

Written by `tests/onnx_suite/suite.py --write docs/onnx.md`: onnx's own conformance cases (`onnx.backend.test`, of onnx
{version}), each imported, built and run by tactix. A case passes if every output has the expected dtype and shape and
agrees within the case's own tolerance. Nothing is skipped: what is not supported counts as failed.

"""

REASONS = (
    (r"which axes have size 1", "a rank that only running tells"),
    (r"of its branches is", "branches of different ranks"),
    (r"^wrong result", "another reading of the standard"),
)
"""What an error says, and the reason in a few words."""


def reason(error: str, name: str = "") -> str:
    """Why a case fails, in a few words; the error itself, without the node's name, if it is none of the known ones."""
    if "bernoulli" in name:
        return "random numbers of onnx's own generator"
    for pattern, words in REASONS:
        if re.search(pattern, error):
            return words
    return re.sub(r"node '[^']*' |\S*\.onnx: ", "", error)[:160]


def document(results: Sequence[Result]) -> str:
    """The Markdown text."""
    import onnx

    parts = [HEAD.format(version=onnx.__version__), _totals(results), _operators(results), _failures(results)]
    return "\n".join(parts)


def _totals(results: Sequence[Result]) -> str:
    groups: dict[str, list[Result]] = defaultdict(list)
    for r in results:
        groups[r.kind].append(r)
    rows = [(kind, *_count(own)) for kind, own in groups.items()]
    return "## Totals\n\n" + _table(("kind", "passed", "total"), [*rows, ("all", *_count(results))])


def _operators(results: Sequence[Result]) -> str:
    """Cases of the kind ``node`` by the operator that they are about, functions' expanded forms included."""
    groups: dict[str, list[Result]] = defaultdict(list)
    for r in results:
        if r.kind == "node":
            groups[r.operator].append(r)
    rows = [(op, _versions(own), *_count(own)) for op, own in sorted(groups.items())]
    title = "## Operators\n\nVersions are those of the operator sets that the cases import.\n\n"
    return title + _table(("operator", "versions", "passed", "total"), rows)


def _failures(results: Sequence[Result]) -> str:
    groups: dict[str, list[Result]] = defaultdict(list)
    for r in results:
        if r.error:
            groups[reason(r.error, r.name)].append(r)
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    lines = ["## Failures\n"]
    for words, own in ordered:
        lines.append(f"**{len(own)}: {words}**\n")
        lines.append(", ".join(f"`{r.name}`" for r in own) + "\n")
    return "\n".join(lines)


def _count(results: Iterable[Result]) -> tuple[int, int]:
    own = list(results)
    return sum(not r.error for r in own), len(own)


def _versions(results: Iterable[Result]) -> str:
    found = sorted({r.opset for r in results})
    return str(found[0]) if len(found) == 1 else f"{found[0]} to {found[-1]}"


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(str(c) for c in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"
