"""How the source is built, in numbers: what must be zero, and what is only worth a look.

Which package may import which is not counted but held: of the core's folders by
``tests/core/test_layering.py``, of packs by ``tests/core/test_packs.py``.

``python tests/shared/structure.py [--list NAME]``; with ``--list`` the places that one number counts.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from source_imports import Import, imports

from tactix_ship.lean.modules import STANDS_FOR

ROOT = Path(__file__).resolve().parents[2]
FLOORS = ("core", "plugin_sdk", "plugins_builtin")
WIDTH = 100


@dataclass(frozen=True)
class Module:
    """A source file. ``name``: dotted, as it is imported."""

    path: Path
    name: str

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def imports(self) -> list[Import]:
        """What it imports anywhere."""
        is_package = self.path.name == "__init__.py"
        return list(imports(self.tree, self.name if is_package else self.name.rpartition(".")[0]))

    @property
    def pack(self) -> str:
        return self.name.partition(".")[0]

    def at(self, line: int) -> str:
        return f"{self.path.relative_to(ROOT)}:{line}"


def modules() -> list[Module]:
    """All of the product's source files, without the copies that ``pip install`` leaves."""
    found = []
    for floor in FLOORS:
        for path in sorted((ROOT / floor).rglob("*.py")):
            parts = path.relative_to(ROOT / floor).with_suffix("").parts
            if parts[0] == "build":
                continue
            name = ".".join(p for p in parts if p != "__init__")
            found.append(Module(path, name))
    return found


def private_names(found: list[Module]) -> list[str]:
    """Names of ours with an underscore in front that another module imports."""
    return [
        f"{m.at(i.line)}: {i.name}"
        for m in found
        for i in m.imports
        if i.top.startswith("tactix")
        and (name := i.name.rpartition(".")[2]).startswith("_")
        and not name.startswith("__")
    ]


def same_names(found: list[Module]) -> list[str]:
    """Names that two public classes have.

    A module of the lean runtime that takes another's place must have its names, and what programs
    of other engines import has these engines' names.
    """
    places: dict[str, list[str]] = defaultdict(list)
    faces = ("tactix_tensorrt", "tactix_bridges")
    own = (m for m in found if m.name not in STANDS_FOR.values() and m.pack not in faces)
    for m in own:
        for node in m.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(m.at(node.lineno))
    return [f"{name}: {', '.join(at)}" for name, at in sorted(places.items()) if len(at) > 1]


def any_in_contracts(found: list[Module]) -> list[str]:
    """Uses of Any in what plugins see."""
    return [
        m.at(node.lineno)
        for m in found
        if m.name.startswith("tactix.contracts")
        for node in ast.walk(m.tree)
        if isinstance(node, ast.Name) and node.id == "Any"
    ]


ANALYSES = ("variants", "cost", "compile")
"""Methods of a tactic that are handed what its ``match`` found."""


def analysed_twice(found: list[Module]) -> list[str]:
    """Tactics that read the same off a node in two of their methods."""
    return [
        f"{m.at(node.lineno)}: {node.name}: {', '.join(again)}"
        for m in found
        for node in ast.walk(m.tree)
        if isinstance(node, ast.ClassDef) and (again := _repeated(node))
    ]


def _repeated(tactic: ast.ClassDef) -> list[str]:
    """Functions that two of a tactic's methods call with the node first, or with what was read off
    it and nothing that depends on the variant.
    """
    seen: Counter[str] = Counter()
    for method in tactic.body:
        if isinstance(method, ast.FunctionDef) and method.name in ANALYSES:
            subject = method.args.args[1]
            is_node = subject.annotation is not None and ast.unparse(subject.annotation) == "Node"
            apart = set() if is_node else _own_names(method) - {subject.arg}
            calls = _calls_with(method, subject.arg)
            seen.update({ast.unparse(c.func) for c in calls if not _given(c) & apart})
    return sorted(name for name, count in seen.items() if count > 1 and name != "super")


def _calls_with(method: ast.FunctionDef, subject: str) -> Iterator[ast.Call]:
    for call in ast.walk(method):
        if isinstance(call, ast.Call) and call.args and ast.unparse(call.args[0]) == subject:
            yield call


def _own_names(method: ast.FunctionDef) -> set[str]:
    """Names of a method's parameters and variables."""
    nodes = list(ast.walk(method))
    bound = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return bound | {n.arg for n in nodes if isinstance(n, ast.arg)} - {"self"}


def _given(call: ast.Call) -> set[str]:
    """Names in a call's arguments behind the first, but for the device, which ``match`` has too."""
    rest = [*call.args[1:], *(k.value for k in call.keywords)]
    others = [a for a in rest if ast.unparse(a) not in ("device", "ctx.device")]
    return {n.id for a in others for n in ast.walk(a) if isinstance(n, ast.Name)}


def matching(pattern: str) -> Callable[[list[Module]], list[str]]:
    """Lines in which the pattern is."""
    seek = re.compile(pattern).search

    def count(found: list[Module]) -> list[str]:
        return [m.at(i) for m in found for i, t in enumerate(m.text.splitlines(), 1) if seek(t)]

    return count


def parameters(found: list[Module]) -> list[str]:
    """Functions of more than seven parameters."""
    return [
        f"{m.at(node.lineno)}: {node.name}"
        for m in found
        for node in ast.walk(m.tree)
        if isinstance(node, ast.FunctionDef) and len(node.args.args + node.args.kwonlyargs) > 7
    ]


ZERO: dict[str, Callable[[list[Module]], list[str]]] = {
    "private-names": private_names,
    "same-names": same_names,
    "any-in-contracts": any_in_contracts,
    "analysed-twice": analysed_twice,
    "long-lines": matching(f"^.{{{WIDTH + 1},}}$"),
}
"""What must come to zero."""

LOOK: dict[str, Callable[[list[Module]], list[str]]] = {
    "fmt-skip": matching(r"# fmt: skip"),
    "type-ignore": matching(r"# type: ignore"),
    "parameters": parameters,
    "comments": matching(r"^\s*#"),
    "lines": matching(r""),
}
"""What is worth a look."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--list", choices=[*ZERO, *LOOK], help="the places that this one counts")
    asked, found = parser.parse_args().list, modules()
    if asked:
        print("\n".join((ZERO | LOOK)[asked](found)))
        return
    for title, counts in (("must be zero", ZERO), ("worth a look", LOOK)):
        print(title)
        for name, places in counts.items():
            print(f"  {name:18}{len(places(found)):7,}")


if __name__ == "__main__":
    main()
