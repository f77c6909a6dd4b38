"""What Python source imports, in every way there is: the one reader of imports that the tests of
structure share.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Import:
    """``name``: in full, ``tactix.base.dims.Dim``, whichever way the source says it."""

    line: int
    name: str

    @property
    def top(self) -> str:
        """The top-level package."""
        return self.name.partition(".")[0]


def imports(tree: ast.AST, package: str) -> Iterator[Import]:
    """What is imported anywhere: at the top, in functions, for type checking, by name.

    ``import tactix`` alone is none, but each attribute that is then taken from it is. ``package``:
    that of the module, from which relative imports go.
    """
    for node in ast.walk(tree):
        for name in _names(node, package):
            yield Import(getattr(node, "lineno", 0), name)


def _names(node: ast.AST, package: str) -> list[str]:
    match node:
        case ast.Import(names=aliases):
            return [a.name for a in aliases if (a.name, a.asname) != ("tactix", None)]
        case ast.ImportFrom():
            return [f"{_base(node, package)}.{a.name}" for a in node.names]
        case ast.Attribute(value=ast.Name(id="tactix")):
            return [f"tactix.{node.attr}"]
        case ast.Call(args=[ast.Constant(value=str(name)), *_]):
            function = ast.unparse(node.func).rpartition(".")[2]
            return [name] if function in ("import_module", "__import__") else []
    return []


def _base(node: ast.ImportFrom, package: str) -> str:
    """The module that names are imported from, in full."""
    parts = package.split(".")
    up = parts[: len(parts) - node.level + 1] if node.level else []
    return ".".join([*up, *([node.module] if node.module else [])])
