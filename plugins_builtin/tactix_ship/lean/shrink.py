"""The text of a module in the lean package: relative imports; no comments, no spare spaces."""

from __future__ import annotations

import ast
import re

from tactix.base.errors import InternalError
from tactix_ship.lean.modules import PLACES, is_package


def shrink(module: str, tree: ast.Module) -> str:
    """The same code, shorter, in a package of any name. Changes the tree. Raises InternalError."""
    depth = len([*PLACES[module.partition(".")[0]], *module.split(".")[1:]]) - (
        not is_package(module)
    )
    small = ast.fix_missing_locations(_Shrink(module, depth + 1).visit(tree))
    text = _short(long := ast.unparse(small))
    if ast.dump(ast.parse(text)) != ast.dump(ast.parse(long)):
        raise InternalError("its text lost something", who=module)
    return text


def _short(text: str) -> str:
    """What ``ast.unparse`` wrote, with simple statements beside each other, or behind the line that
    they belong to.
    """
    lines = [
        (len(line) - len(line.lstrip(" ")), line.strip()) for line in text.splitlines() if line
    ]
    rows: list[tuple[int, str, bool]] = []
    for (level, line), (after, _) in zip(lines, [*lines[1:], (0, "")]):
        simple = after <= level and not line.startswith("@")
        if simple and rows and rows[-1][0] == level and rows[-1][2]:
            rows[-1] = level, f"{rows[-1][1]};{_tight(line)}", True
        else:
            rows.append((level, _tight(line), simple))
    out: list[tuple[int, str]] = []
    for (level, line, simple), (after, *_) in zip(rows, [*rows[1:], (0, "", True)]):
        if simple and out and out[-1][0] < level and after < level:
            out[-1] = out[-1][0], out[-1][1] + line
        else:
            out.append((level, line))
    return "".join(f"{' ' * (level // 4)}{line}\n" for level, line in out)


def _tight(line: str) -> str:
    """Without the spaces that nothing needs."""
    out = ""
    for found in _TOKEN.finditer(line):
        text = found[0]
        out += f" {text}" if _WORD.match(out[-1:]) and _WORD.match(text) else text
    return out


_WORD = re.compile(r"\w")
_STRING = "|".join(rf"{q}(?:\\.|(?!{q})[^\\])*{q}" for q in ("'''", '"""', "'", '"'))
_TOKEN = re.compile(rf"(?:\b[bfru]+)?(?:{_STRING})|\w+|\S")


class _Shrink(ast.NodeTransformer):
    """``level``: how many packages up the whole one is, as in ``from ...base import dims``."""

    def __init__(self, module: str, level: int) -> None:
        self.module, self.level = module, level

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        """Strings inside are quoted in ways that differ by Python's version, and that older ones do
        not read.
        """
        self.generic_visit(node)
        inside = (
            n for v in node.values if isinstance(v, ast.FormattedValue) for n in ast.walk(v.value)
        )
        if not any(
            isinstance(n, ast.JoinedStr) or isinstance(getattr(n, "value", None), str)
            for n in inside
        ):
            return node
        text, given = _template(node)
        return ast.Call(ast.Attribute(ast.Constant(text), "format"), given, [])

    def visit_Import(self, node: ast.Import) -> ast.AST:
        ours = [a for a in node.names if a.name.partition(".")[0] in PLACES]
        if not ours:
            return node
        if [(a.name, a.asname) for a in node.names] != [("tactix", None)]:
            raise InternalError(
                f"cannot rewrite {ast.unparse(node)!r}", who=self.module, do="Write from ... import"
            )
        return ast.ImportFrom(None, [ast.alias("this", "tactix")], self.level)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        top, *rest = (node.module or "").split(".")
        if top not in PLACES or node.level:
            return node
        return ast.ImportFrom(".".join([*PLACES[top], *rest]) or None, node.names, self.level)


def _template(node: ast.JoinedStr) -> tuple[str, list[ast.expr]]:
    """What ``str.format`` makes the same text of, and of which values."""
    text, given = "", list[ast.expr]()
    for v in node.values:
        if isinstance(v, ast.FormattedValue):
            given.append(v.value)
            spec, more = (
                _template(v.format_spec) if isinstance(v.format_spec, ast.JoinedStr) else ("", [])
            )
            conversion = f"!{chr(v.conversion)}" if v.conversion >= 0 else ""
            text += f"{{{conversion}{':' if spec else ''}{spec}}}"
            given += more
        elif isinstance(v, ast.Constant):
            text += str(v.value).replace("{", "{{").replace("}", "}}")
    return text, given
