"""The text of a module in the lean package: relative imports; no comments, docstrings, annotations of functions."""

from __future__ import annotations

import ast
import re
from typing import Any

from tactix.words.errors import InternalError
from tactix_builtin.lean.modules import PLACES, is_package


def shrink(module: str, tree: ast.Module) -> str:
    """The same code, shorter, in a package of any name. Changes the tree. Raises InternalError."""
    depth = len([*PLACES[module.partition(".")[0]], *module.split(".")[1:]]) - (not is_package(module))
    small = ast.fix_missing_locations(_Shrink(module, depth + 1).visit(tree))
    _drop_imports(small)
    text = "".join(map(_line, ast.unparse(small).splitlines()))
    if ast.dump(ast.parse(text)) != ast.dump(ast.parse(ast.unparse(small))):
        raise InternalError("its text lost something", who=module)
    return text


def _line(line: str) -> str:
    """With one space per level, and none around operators where there is no text that has some."""
    content = line.lstrip(" ")
    indent = " " * ((len(line) - len(content)) // 4)
    if not {"'", '"'}.intersection(content):
        content = _SPACED.sub(r"\1", content)
    return f"{indent}{content}\n" if content else ""


_FOR_TYPES = ("__future__", "collections.abc", "typing")
_SPACED = re.compile(r" ?([-+*/%=<>!|&^,:@]+) ?")


class _Shrink(ast.NodeTransformer):
    """``level``: how many packages up the whole one is, as in ``from ...words import dims``."""

    def __init__(self, module: str, level: int) -> None:
        self.module, self.level, self.in_function = module, level, False

    def visit_Module(self, node: ast.Module) -> ast.AST:
        node.body = _code(node.body)
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        outer, self.in_function = self.in_function, False
        node.body = _code(node.body) or [ast.Pass()]
        self.generic_visit(node)
        node.body = node.body or [ast.Pass()]
        self.in_function = outer
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        outer, self.in_function = self.in_function, True
        node.body, node.returns = _code(node.body) or [ast.Pass()], None
        self.generic_visit(node)
        self.in_function = outer
        node.body = node.body or [ast.Pass()]
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        """What is a field of a dataclass stays one; its type is for readers."""
        self.generic_visit(node)
        if not self.in_function:
            if "Var" in ast.unparse(node.annotation):
                raise InternalError("dataclasses look at that annotation", who=self.module)
            node.annotation = ast.Constant(0)
            return node
        return ast.Assign([node.target], node.value) if node.value else None

    def visit_Import(self, node: ast.Import) -> ast.AST:
        ours = [a for a in node.names if a.name.partition(".")[0] in PLACES]
        if not ours:
            return node
        if [(a.name, a.asname) for a in node.names] != [("tactix", None)]:
            raise InternalError(f"cannot rewrite {ast.unparse(node)!r}", who=self.module, do="Write from ... import")
        return ast.ImportFrom(None, [ast.alias("this", "tactix")], self.level)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        top, *rest = (node.module or "").split(".")
        if top not in PLACES or node.level:
            return node
        return ast.ImportFrom(".".join([*PLACES[top], *rest]) or None, node.names, self.level)


def _drop_imports(tree: ast.Module) -> None:
    """Those of types that only annotations named, and what lets annotations be anything."""
    named = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    for node in [n for n in tree.body if isinstance(n, ast.ImportFrom) and n.module in _FOR_TYPES]:
        node.names = [a for a in node.names if (a.asname or a.name) in named]
        if not node.names:
            tree.body.remove(node)


def _code(body: list[ast.stmt]) -> list[Any]:
    """Without docstrings, those below attributes among them."""
    texts = (s for s in body if isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))
    docs = {id(s) for s in texts if isinstance(s.value, ast.Constant) and isinstance(s.value.value, str)}
    return [s for s in body if id(s) not in docs]
