"""Dims as a straight line of operations on integers: made once, run for each shape.

Walking expressions costs about a microsecond for each term; a network whose shapes change from run
to run (a text that grows) has hundreds of terms. What is computed twice is one operation here. A
device may run such a line in machine code; ``python`` makes a function of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tactix.base.dims import OPS, Atom, Dim, Expr, Monomial
from tactix.base.errors import ShapeError

Evaluator = Callable[[Sequence[int]], Sequence[int] | None]
"""From values of symbols to results; None where an operation has no value."""

BROADCAST = "broadcast"
"""The name that the operation ``bcast`` of dims has in a function."""

OPERATIONS: tuple[str, ...] = ("+", "*", "//", "%", "max", "min", "bcast", ">=", "==", "!=")
"""Their places are the numbers in which machine code knows them. The last three compare: they have
no value where they do not hold.
"""
COMPARISONS = (">=", "==", "!=")


@dataclass(frozen=True)
class IntegerOperation:
    """``left kind right``, written to ``to``: places among the values. ``kind``: of OPERATIONS."""

    kind: str
    left: int
    right: int
    to: int


@dataclass(frozen=True)
class IntegerArithmetic:
    """``values``: in their places at the beginning: first the symbols, which are given for each
    evaluation, then constants, and zeros that operations replace. ``results``: their places.
    """

    symbols: tuple[str, ...]
    values: tuple[int, ...]
    operations: tuple[IntegerOperation, ...]
    results: tuple[int, ...]


class ArithmeticWriter:
    """Collects operations; each gives the place of its value."""

    def __init__(self, symbols: Sequence[str]) -> None:
        self._symbols = tuple(symbols)
        self._places = {name: i for i, name in enumerate(symbols)}
        self._values = [0] * len(symbols)
        self._operations: dict[tuple[str, int, int], IntegerOperation] = {}
        self._constants: dict[int, int] = {}
        self._atoms: dict[Atom, int] = {}

    def arithmetic(self, results: Sequence[int]) -> IntegerArithmetic:
        """All that was collected; ``results``: places."""
        operations = tuple(self._operations.values())
        return IntegerArithmetic(self._symbols, tuple(self._values), operations, tuple(results))

    def constant(self, value: int) -> int:
        if value not in self._constants:
            self._constants[value] = self._place(value)
        return self._constants[value]

    def operation(self, kind: str, left: int, right: int) -> int:
        """Of two places. A comparison gives a place that nothing is written to."""
        key = (kind, left, right)
        if key not in self._operations:
            self._operations[key] = IntegerOperation(kind, left, right, self._place(0))
        return self._operations[key].to

    def dim(self, d: Dim) -> int:
        if not isinstance(d, Expr):
            return self.constant(int(d))
        found: int | None = None
        for atoms, c in d.terms:
            term = self._term(atoms, c)
            found = term if found is None else self.operation("+", found, term)
        return self.constant(0) if found is None else found

    def _term(self, atoms: Monomial, coefficient: int) -> int:
        factors = [self._atom(a) for a in atoms]
        if coefficient != 1 or not factors:
            factors.append(self.constant(coefficient))
        found = factors[0]
        for factor in factors[1:]:
            found = self.operation("*", found, factor)
        return found

    def _atom(self, a: Atom) -> int:
        if not a.args:
            return self._places[a.op]
        if a not in self._atoms:
            left, right = (self.dim(d) for d in a.args)
            self._atoms[a] = self.operation(a.op, left, right)
        return self._atoms[a]

    def _place(self, value: int) -> int:
        self._values.append(value)
        return len(self._values) - 1


_TEXT = {
    **{kind: f"{{}} {kind} {{}}" for kind in ("+", "*", "//", "%")},
    **{kind: f"{kind}({{}}, {{}})" for kind in ("max", "min")},
    "bcast": f"{BROADCAST}({{}}, {{}})",
}


def python(arithmetic: IntegerArithmetic) -> Evaluator:
    """As a function of Python. Names of symbols, which come from files, are not in its text."""
    count = len(arithmetic.symbols)
    written = {o.to for o in arithmetic.operations}
    names = [
        f"v{i}" if i < count or i in written else f"({value})"
        for i, value in enumerate(arithmetic.values)
    ]
    lines = [f"def evaluate({', '.join(names[:count])}):"]
    lines += [f"    {_line(o, names)}" for o in arithmetic.operations]
    lines.append(f"    return ({''.join(f'{names[i]}, ' for i in arithmetic.results)})")
    scope: dict[str, Callable[..., Any]] = {BROADCAST: OPS["bcast"]}
    exec(compile("\n".join(lines), "<formulas of dims>", "exec"), scope)
    function: Callable[..., tuple[int, ...] | None] = scope["evaluate"]

    def evaluate(values: Sequence[int]) -> tuple[int, ...] | None:
        try:
            return function(*values)
        except (ZeroDivisionError, ShapeError):
            return None

    return evaluate


def _line(o: IntegerOperation, names: Sequence[str]) -> str:
    left, right = names[o.left], names[o.right]
    if o.kind in COMPARISONS:
        return f"if not {left} {o.kind} {right}: return None"
    return f"{names[o.to]} = {_TEXT[o.kind].format(left, right)}"
