"""Many dims evaluated at once: their arithmetic as one function of Python, made once.

Walking expressions costs about a microsecond for each term; a network whose shapes change from run
to run (a text that grows) has hundreds of terms. The function is made of the dims' own structure;
names of symbols, which come from files, stand in it as numbered arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tactix.base.dims import OPS, Atom, Dim, Env, Expr, Monomial, evaluate, symbols
from tactix.base.errors import ShapeError

PATIENCE = 2
"""Evaluations term by term before a function is made: that takes as long as several of them, and
many plans only ever run at one shape.
"""

BROADCAST = "broadcast"
"""The name that the operation ``bcast`` of dims has in the function."""


class Formulas:
    """Dims in a fixed order. Thread-safe; at worst the function is made twice."""

    def __init__(self, dims: Iterable[Dim]) -> None:
        self.dims = tuple(dims)
        self.symbols = sorted(frozenset[str]().union(*map(symbols, self.dims)))
        self._evaluations = 0
        self._function: Callable[..., tuple[int, ...]] | None = None

    def at(self, env: Env) -> tuple[int, ...]:
        """The values. Raises ShapeError as ``evaluate``: for symbols without a value, divisions by
        zero, and sizes that do not broadcast.
        """
        function = self._function or self._made()
        if function is not None:
            try:
                return function(*[env[s] for s in self.symbols])
            except (KeyError, ZeroDivisionError, ShapeError):
                pass  # term by term, what is wrong has a name
        return tuple([evaluate(d, env) for d in self.dims])

    def _made(self) -> Callable[..., tuple[int, ...]] | None:
        self._evaluations += 1
        if self._evaluations > PATIENCE:
            self._function = _function(self.dims, self.symbols)
        return self._function


def _function(dims: Sequence[Dim], names: Sequence[str]) -> Callable[..., tuple[int, ...]]:
    """Of the symbols' values in the order of ``names``."""
    writer = _Writer({name: f"s{i}" for i, name in enumerate(names)})
    values = [writer.dim(d) for d in dims]
    lines = [f"def formulas({', '.join(writer.arguments.values())}):"]
    lines += [f"    {line}" for line in writer.lines]
    lines.append(f"    return ({''.join(f'{v}, ' for v in values)})")
    scope: dict[str, Callable[..., Any]] = {BROADCAST: OPS["bcast"]}
    exec(compile("\n".join(lines), "<formulas of dims>", "exec"), scope)
    return scope["formulas"]


class _Writer:
    """Text of dims; an operation that several have is computed once, in a line of its own."""

    def __init__(self, arguments: dict[str, str]) -> None:
        self.arguments = arguments
        self.lines: list[str] = []
        self._names: dict[Atom, str] = {}

    def dim(self, d: Dim) -> str:
        if not isinstance(d, Expr):
            return str(int(d))
        return " + ".join(self._term(atoms, c) for atoms, c in d.terms) or "0"

    def _term(self, atoms: Monomial, coefficient: int) -> str:
        factors = [self._atom(a) for a in atoms]
        return "*".join(factors if factors and coefficient == 1 else [str(coefficient), *factors])

    def _atom(self, a: Atom) -> str:
        if not a.args:
            return self.arguments[a.op]
        if a not in self._names:
            x, y = (self.dim(d) for d in a.args)
            self._names[a] = name = f"t{len(self._names)}"
            self.lines.append(f"{name} = {_OPERATIONS[a.op].format(x, y)}")
        return self._names[a]


_OPERATIONS = {
    "//": "({}) // ({})",
    "%": "({}) % ({})",
    "max": "max({}, {})",
    "min": "min({}, {})",
    "bcast": f"{BROADCAST}({{}}, {{}})",
}
