"""Methods that look like overrides of a contract's and that nothing calls: under a name that the
contract had once, or one that is spelled almost like one of its own.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import ModuleType

from tactix.base.spelling import near
from tactix.contracts.trust import TrustStore
from tactix.select.bench import Bench

RENAMED: Mapping[type, Mapping[str, str]] = {
    Bench: {"final": "fastest"},
    TrustStore: {"vouches": "trusted_by"},
}
"""By contract, what its methods were called before, and what they are called now."""

CONTRACTS = ("tactix", "tactix_sdk")
"""Packages whose classes are contracts."""

NEAR = 0.8
"""Share of letters in common from which a name is taken for another one: ``variant`` and
``variants`` have 0.93. Of 245 classes in tactix's own packs none has a method above it, five have
one from 0.75 on (``most`` for ``cost``).
"""


def imported(packages: frozenset[str]) -> list[ModuleType]:
    """The modules of packages that this process has imported."""
    found = sorted(sys.modules.items())
    return [
        m for name, m in found if name.partition(".")[0] in packages and isinstance(m, ModuleType)
    ]


def derived(modules: Iterable[ModuleType]) -> list[type]:
    """The classes that are written in modules and derive from one of the core or the SDK."""
    return [
        c
        for m in modules
        for c in vars(m).values()
        if inspect.isclass(c)
        and c.__module__ == m.__name__
        and any(_top(b) in CONTRACTS for b in c.__mro__[1:])
    ]


def forgotten(modules: Sequence[ModuleType]) -> Iterator[str]:
    """What is wrong with methods of the classes in modules."""
    called = _Called(modules)
    for made in derived(modules):
        for name, told in _unknown(made):
            if name not in called:
                where = f"{made.__module__}.{made.__qualname__}.{name}"
                yield f"{where}: nothing calls it; {told}"


def _top(made: type) -> str:
    return made.__module__.partition(".")[0]


def _unknown(made: type) -> Iterator[tuple[str, str]]:
    """Public methods that no base has, and which of a contract's may have been meant."""
    inherited = {name for base in made.__mro__[1:] for name in vars(base)}
    for name, value in vars(made).items():
        public = not name.startswith("_") and name not in inherited and _is_method(value)
        if public and (told := _meant(made, name)):
            yield name, told


def _meant(made: type, name: str) -> str:
    """In words; empty where no method is like it."""
    for base in made.__mro__[1:]:
        if now := RENAMED.get(base, {}).get(name):
            return f"{base.__name__}.{name} is called {now!r} now"
    for base in (b for b in made.__mro__[1:] if _top(b) in CONTRACTS):
        methods = [n for n, v in vars(base).items() if not n.startswith("_") and _is_method(v)]
        if found := near(name, methods, least=NEAR):
            return f"did you mean {found[0]!r} of {base.__name__}?"
    return ""


def _is_method(value: object) -> bool:
    return inspect.isroutine(value) or isinstance(value, (property, staticmethod, classmethod))


class _Called:
    """Names that code of the modules looks up on objects, but for ``super()``, which hands on what
    an override did; read when first asked.
    """

    def __init__(self, modules: Sequence[ModuleType]) -> None:
        self._modules = modules
        self._names: set[str] | None = None

    def __contains__(self, name: str) -> bool:
        if self._names is None:
            self._names = {n for m in self._modules for n in _looked_up(m)}
        return name in self._names


def _looked_up(module: ModuleType) -> Iterator[str]:
    try:
        tree = ast.parse(inspect.getsource(module))
    except (OSError, TypeError):  # one that is compiled has no source
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and not _is_super(node.value):
            yield node.attr


def _is_super(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"
    )
