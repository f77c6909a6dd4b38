"""Sizes: the core stays small, files and functions stay readable.

A line of code is one that holds a token other than a comment or a docstring.
"""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
ROOTS = ["core", "plugins_builtin", "plugin_sdk"]
FILES = sorted(p for root in ROOTS for p in (REPO / root).rglob("*.py"))

CORE_LINES = 6000
FILE_LINES = 400
FUNCTION_LINES = 60
FUNCTION_LINES_P90 = 30

_BLANK = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
    tokenize.ENDMARKER,
}  # fmt: skip


def code_lines(source: str) -> int:
    """How many lines of code a text has."""
    docs = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docs.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _BLANK:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docs)


def function_lines(source: str) -> list[tuple[int, str]]:
    """Length and name of every function, docstring included."""
    functions = (n for n in ast.walk(ast.parse(source)) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)))
    return [((f.end_lineno or f.lineno) - f.lineno + 1, f.name) for f in functions]


def test_the_core_is_small() -> None:
    total = sum(code_lines(p.read_text(encoding="utf-8")) for p in (REPO / "core").rglob("*.py"))
    assert 1000 < total < CORE_LINES


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(REPO)))
def test_files_and_functions_are_short(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert len(source.splitlines()) <= FILE_LINES
    assert [f for f in function_lines(source) if f[0] > FUNCTION_LINES] == []


@pytest.mark.parametrize("root", ROOTS)
def test_most_functions_are_very_short(root: str) -> None:
    lengths = sorted(n for p in (REPO / root).rglob("*.py") for n, _ in function_lines(p.read_text(encoding="utf-8")))
    assert not lengths or lengths[len(lengths) * 9 // 10] <= FUNCTION_LINES_P90


def test_the_counting() -> None:
    source = '''"""Doc

more."""

import os  # why

# only this

def f(x):
    """One."""
    text = """a
b"""

    return (x,
            text)
'''
    assert code_lines(source) == 6
    assert function_lines(source) == [(7, "f")]
