"""Code without what only readers and type checkers look at: docstrings, annotations, and what these
alone name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from tactix.base.errors import InternalError


def without_types(module: str, tree: ast.Module) -> ast.Module:
    """The same code without them. Changes the tree. Raises InternalError."""
    bare: ast.Module = _WithoutTypes(module).visit(tree)
    kept = set(_named(bare))
    for node in [n for n in bare.body if isinstance(n, ast.ImportFrom | ast.Import)]:
        node.names = [a for a in node.names if (a.asname or a.name).partition(".")[0] in kept]
        if not node.names:
            bare.body.remove(node)
    return bare


def _named(tree: ast.Module) -> Iterator[str]:
    """What code names, and what it says that others may import from it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            yield from ast.literal_eval(node.value)


class _WithoutTypes(ast.NodeTransformer):
    def __init__(self, module: str) -> None:
        self.module, self.in_function = module, False

    def visit_Module(self, node: ast.Module) -> ast.AST:
        node.body = _code(node.body)
        return self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        if ast.unparse(node.test).endswith("TYPE_CHECKING"):
            return node.orelse
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._inside(node, in_function=False)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self._inside(node, in_function=True)

    def _inside(self, node: ast.ClassDef | ast.FunctionDef, in_function: bool) -> ast.AST:
        outer, self.in_function = self.in_function, in_function
        node.body = _code(node.body)
        self.generic_visit(node)
        node.body = node.body or [ast.Pass()]
        self.in_function = outer
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        """What is a field of a dataclass stays one; its type is for readers."""
        self.generic_visit(node)
        if not self.in_function:
            if any(name in ast.unparse(node.annotation) for name in ("ClassVar", "InitVar")):
                raise InternalError("dataclasses look at that annotation", who=self.module)
            node.annotation = ast.Constant(0)
            return node
        return ast.Assign([node.target], node.value) if node.value else None


def _code(body: list[ast.stmt]) -> list[Any]:
    """Without docstrings, those below attributes among them."""
    texts = (s for s in body if isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))
    docs = {
        id(s) for s in texts if isinstance(s.value, ast.Constant) and isinstance(s.value.value, str)
    }
    return [s for s in body if id(s) not in docs]
