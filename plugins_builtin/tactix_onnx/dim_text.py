"""Dimensions as exporters name them: symbols, or arithmetic over them such as ``past + seq``."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Collection
from typing import Any

from tactix.base.dims import Dim, floordiv, mod, sym

_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Dim]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: floordiv,
    ast.Mod: mod,
}


LONGEST = 200
"""Longest text that is read as arithmetic, in characters: longer ones could exhaust the parser."""


def dim_of(text: str, plain: Collection[str]) -> Dim:
    """Arithmetic if all its names are in ``plain`` (dimensions that stand alone somewhere), else
    one symbol.
    """
    try:
        found = _value(ast.parse(text, mode="eval").body, plain) if len(text) <= LONGEST else None
    except (SyntaxError, ValueError, ArithmeticError, MemoryError, RecursionError):
        found = None
    return sym(text) if found is None else found


def _value(node: ast.expr, plain: Collection[str]) -> Dim | None:
    if isinstance(node, ast.Name):
        return sym(node.id) if node.id in plain else None
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if not isinstance(node, ast.BinOp) or type(node.op) not in _OPERATORS:
        return None
    left, right = _value(node.left, plain), _value(node.right, plain)
    return None if left is None or right is None else _OPERATORS[type(node.op)](left, right)
