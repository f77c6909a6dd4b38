"""The text of a module in the lean package: as it is written, but with relative imports of ours,
and without docstrings.

Words are replaced in the text itself, not printed from a syntax tree: the same sources give the
same bytes under every Python, and none quotes inside f-strings as older ones cannot read.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tactix.base.errors import InternalError
from tactix_ship.lean.modules import PLACES, is_package, parts_of

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def lean_text(module: str, source: str) -> str:
    """The same code in a package of any name. Raises InternalError for an import that cannot be
    rewritten.
    """
    lines = source.splitlines(keepends=True)
    level = len(parts_of(module)) + is_package(module)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, Documented):
            _cut_docstrings(node, lines)
        elif isinstance(node, ast.Import) and any(_is_ours(a.name) for a in node.names):
            _replace(lines, node, "import tactix", _relative([], level, "import this as tactix"))
        elif isinstance(node, ast.ImportFrom) and node.module and _is_ours(node.module):
            inside = parts_of(node.module)
            old = f"from {node.module} import "
            _replace(lines, node, old, _relative(inside, level, "import "))
    return "".join(lines)


def _is_ours(name: str) -> bool:
    return name.partition(".")[0] in PLACES


def _relative(inside: list[str], level: int, imports: str) -> str:
    return f"from {'.' * level}{'.'.join(inside)} {imports}"


def _replace(lines: list[str], node: ast.stmt, old: str, new: str) -> None:
    """Put ``new`` where a statement begins. Raises InternalError if it does not with ``old``."""
    row, column = node.lineno - 1, node.col_offset
    before, rest = lines[row][:column], lines[row][column:]
    whole = isinstance(node, ast.ImportFrom) or rest.strip() == old
    if not rest.startswith(old) or not whole:
        raise InternalError(f"cannot rewrite {rest.strip()!r}", do="Write from ... import")
    lines[row] = before + new + rest.removeprefix(old)


def _cut_docstrings(node: Documented, lines: list[str]) -> None:
    """Drop their lines, those below attributes, too; ``pass`` stands for a body of them alone."""
    found = list(_docstrings(node))
    for text in found:
        for row in range(text.lineno - 1, text.end_lineno or text.lineno):
            lines[row] = ""
    if len(found) == len(node.body) and not isinstance(node, ast.Module):
        lines[found[0].lineno - 1] = f"{' ' * found[0].col_offset}pass\n"


def _docstrings(node: Documented) -> Iterator[ast.Expr]:
    for statement in node.body:
        match statement:
            case ast.Expr(value=ast.Constant(value=str())):
                yield statement
