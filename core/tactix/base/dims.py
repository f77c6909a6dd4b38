"""Symbolic dimensions: integer polynomials over named symbols and a closed set of operations.

A ``Dim`` is an ``int`` or an ``Expr``. Expressions are kept as sorted polynomials, so equal ones
compare equal; what is not a polynomial (``//``, ``%``, ``max``, ``min``, ``bcast``) is an opaque
atom with simplified arguments. Dimensions are never negative: that is used to decide comparisons.
The JSON form is an s-expression; nothing is eval-ed.
"""

from __future__ import annotations

import functools
import operator
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Union

from tactix.base.errors import InvalidArgument, ShapeError

Dim = Union[int, "Expr"]
Shape = tuple[Dim, ...]
Env = Mapping[str, int]


def _bcast(a: int, b: int) -> int:
    if a != b and 1 not in (a, b):
        raise ShapeError(
            f"dimensions {a} and {b} do not broadcast", do="They must be equal, or one of them 1"
        )
    return b if a == 1 else a


OPS: dict[str, Callable[[int, int], int]] = {
    "//": operator.floordiv,
    "%": operator.mod,
    "max": max,
    "min": min,
    "bcast": _bcast,
}


@dataclass(frozen=True)
class Atom:
    """A symbol (no ``args``) or an operation that is no polynomial."""

    op: str
    args: tuple[Dim, ...] = ()

    def __str__(self) -> str:
        if not self.args:
            return self.op
        a, b = (f"({x})" if isinstance(x, Expr) and len(x.terms) > 1 else str(x) for x in self.args)
        return f"({a} {self.op} {b})" if self.op in ("//", "%") else f"{self.op}({a}, {b})"


Monomial = tuple[Atom, ...]


LARGEST = 4096
"""Most atoms of an expression: arithmetic on shapes may double it with every layer."""

DEEPEST, FACTORS = 50, 64
"""Deepest nesting of operations that are no polynomial; most entries of a product in JSON."""


class Expr:
    """A polynomial: sorted ``((atoms, coefficient), ...)``. Make one with ``sym`` and arithmetic.

    Raises ShapeError for one that is too large to be of use.
    """

    __slots__ = ("_hash", "depth", "size", "terms")

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]) -> None:
        inside = [x for atoms, _ in terms for a in atoms for x in a.args if isinstance(x, Expr)]
        self.size: int = sum(1 + len(atoms) for atoms, _ in terms) + sum(x.size for x in inside)
        self.depth: int = 1 + max((x.depth for x in inside), default=0)
        if self.depth > DEEPEST or self.size > LARGEST or any(abs(c) >> 63 for _, c in terms):
            raise ShapeError(
                "the formula of a dimension grows too large", do="Give the inputs fixed shapes"
            )
        self.terms = terms
        self._hash = hash(terms)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expr) and self._hash == other._hash and self.terms == other.terms

    def __add__(self, other: Dim) -> Dim:
        return _normal(_terms(self) + _terms(other))

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return self * -1

    def __sub__(self, other: Dim) -> Dim:
        return self + other * -1

    def __rsub__(self, other: Dim) -> Dim:
        return self * -1 + other

    def __mul__(self, other: Dim) -> Dim:
        if isinstance(other, Expr) and len(self.terms) * len(other.terms) > LARGEST:
            raise ShapeError(
                "the formula of a dimension grows too large", do="Give the inputs fixed shapes"
            )
        return _normal(
            tuple((ma + mb, ca * cb) for ma, ca in _terms(self) for mb, cb in _terms(other))
        )

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return floordiv(self, other)

    def __rfloordiv__(self, other: Dim) -> Dim:
        return floordiv(other, self)

    def __mod__(self, other: Dim) -> Dim:
        return mod(self, other)

    def __rmod__(self, other: Dim) -> Dim:
        return mod(other, self)

    def __str__(self) -> str:
        return " + ".join(_term_text(m, c) for m, c in self.terms).replace("+ -", "- ")

    def __repr__(self) -> str:
        return f"Dim({self})"


def _term_text(atoms: Monomial, coefficient: int) -> str:
    parts = [str(a) for a in atoms]
    if coefficient != 1 or not parts:
        parts.insert(0, str(coefficient))
    return "*".join(parts)


def _terms(d: Dim) -> tuple[tuple[Monomial, int], ...]:
    return d.terms if isinstance(d, Expr) else (((), int(d)),) if d else ()


def _normal(terms: Iterable[tuple[Monomial, int]]) -> Dim:
    total: dict[Monomial, int] = {}
    for atoms, c in terms:
        key = tuple(sorted(atoms, key=str))
        total[key] = total.get(key, 0) + c
    kept = tuple(
        sorted(((m, c) for m, c in total.items() if c), key=lambda t: (-len(t[0]), str(t[0])))
    )
    if not kept:
        return 0
    return kept[0][1] if len(kept) == 1 and not kept[0][0] else Expr(kept)


@functools.cache
def sym(name: str) -> Expr:
    """The symbol of that name, a non-negative integer known when shapes are set."""
    if not name:
        raise InvalidArgument("a symbol needs a name")
    return Expr((((Atom(name),), 1),))


DIVISIONS = frozenset({"//", "%"})


def _call(op: str, a: Dim, b: Dim) -> Dim:
    if op in DIVISIONS and b == 0:
        raise ShapeError("a dimension is divided by zero", why=f"{a} {op} {b}")
    if isinstance(a, int) and isinstance(b, int):
        return OPS[op](a, b)
    return Expr((((Atom(op, (a, b)),), 1),))


def exact_div(a: Dim, b: Dim) -> Dim | None:
    """``a / b`` if it divides for all values of the symbols (``b`` one term), else None."""
    bt = _terms(b)
    if len(bt) != 1:
        return 1 if a == b and bt else None
    divisor, k = bt[0]
    out = []
    for atoms, c in _terms(a):
        rest = list(atoms)
        for atom in divisor:
            if atom not in rest:
                return None
            rest.remove(atom)
        if c % k:
            return None
        out.append((tuple(rest), c // k))
    return _normal(out)


def floordiv(a: Dim, b: Dim) -> Dim:
    """Floor division, simplified where it is exact."""
    exact = exact_div(a, b)
    if exact is not None:
        return exact
    if b == 0:
        return _call("//", a, b)
    if isinstance(a, Expr) and isinstance(b, int):  # (b*q + r) // b == q + r // b
        whole = _normal((m, c // b) for m, c in a.terms if c % b == 0)
        rest = _normal((m, c) for m, c in a.terms if c % b)
        if whole != 0:
            return whole + floordiv(rest, b)
    return _call("//", a, b)


def mod(a: Dim, b: Dim) -> Dim:
    return 0 if exact_div(a, b) is not None else _call("%", a, b)


def ceildiv(a: Dim, b: Dim) -> Dim:
    """Division rounded up."""
    exact = exact_div(a, b)
    return exact if exact is not None else floordiv(a + (b - 1), b)


def dmax(a: Dim, b: Dim) -> Dim:
    return (
        a
        if compare(a, b) in (">", ">=", "==")
        else b
        if compare(a, b) in ("<", "<=")
        else _call("max", a, b)
    )


def dmin(a: Dim, b: Dim) -> Dim:
    return (
        b
        if compare(a, b) in (">", ">=", "==")
        else a
        if compare(a, b) in ("<", "<=")
        else _call("min", a, b)
    )


def broadcast(a: Dim, b: Dim) -> Dim:
    """The dimension of two broadcast ones; an unknown pair is resolved when shapes are set. Raises
    ShapeError.
    """
    if a == b or b == 1:
        return a
    if a == 1:
        return b
    if isinstance(a, int) and isinstance(b, int):
        return _bcast(a, b)
    if isinstance(a, int) or isinstance(b, int):
        assume(a, "bcast", b)
        return a if isinstance(a, int) else b
    if _joined(b) <= _joined(a):
        return a
    return b if _joined(a) <= _joined(b) else _call("bcast", a, b)


def _joined(d: Dim) -> frozenset[Dim]:
    """The dims that a broadcast one is of: itself, where it is none."""
    if isinstance(d, Expr) and len(d.terms) == 1:
        atoms, c = d.terms[0]
        if c == 1 and len(atoms) == 1 and atoms[0].op == "bcast":
            return _joined(atoms[0].args[0]) | _joined(atoms[0].args[1])
    return frozenset({d})


def broadcast_shapes(*shapes: Shape) -> Shape:
    """numpy's broadcasting over symbolic shapes. Raises ShapeError."""
    if shapes and all(s == shapes[0] for s in shapes):  # most, and then nothing is assumed
        return tuple(shapes[0])
    rank = max((len(s) for s in shapes), default=0)
    out: Shape = (1,) * rank
    for s in shapes:
        padded = (1,) * (rank - len(s)) + tuple(s)
        try:
            out = tuple(broadcast(a, b) for a, b in zip(out, padded, strict=True))
        except ShapeError as e:
            raise ShapeError(
                f"shapes {' and '.join(show(x) for x in shapes)} do not broadcast", why=str(e)
            ) from None
    return out


def along(a: Dim, b: Dim) -> Dim:
    """1 where an axis of ``a`` elements goes along one of ``b`` that it broadcasts to, 0 where its
    one element stays.

    Evaluating it raises ShapeError where it does not broadcast.
    """
    if a == 1:
        return 0
    return 1 if a == b else dmin(_call("bcast", a, b) * (a - 1), 1)


def prod(dims: Iterable[Dim]) -> Dim:
    out: Dim = 1
    for d in dims:
        out = out * d
    return out


def bounds(
    d: Dim, ranges: Mapping[str, tuple[int, int | None]] | None = None
) -> tuple[int | None, int | None]:
    """Lower and upper bound; symbols lie in ``ranges`` or in [0, inf). None: unknown."""
    low: int | None = 0
    high: int | None = 0
    for atoms, c in _terms(d):
        lo, hi = _monomial_bounds(atoms, ranges or {})
        first, last = (lo, hi) if c > 0 else (hi, lo)
        low = None if low is None or first is None else low + c * first
        high = None if high is None or last is None else high + c * last
    return low, high


def _monomial_bounds(
    atoms: Monomial, ranges: Mapping[str, tuple[int, int | None]]
) -> tuple[int, int | None]:
    low: int = 1
    high: int | None = 1
    for a in atoms:
        alo, ahi = _atom_bounds(a, ranges)
        low, high = low * alo, None if high is None or ahi is None else high * ahi
    return low, high


def _atom_bounds(a: Atom, ranges: Mapping[str, tuple[int, int | None]]) -> tuple[int, int | None]:
    if not a.args:
        return ranges.get(a.op, (0, None))
    (alo, ahi), (blo, bhi) = (bounds(x, ranges) for x in a.args)
    if a.op == "//" and blo and blo > 0 and bhi and alo is not None:
        return max(0, alo // bhi), None if ahi is None else ahi // blo
    if a.op == "%":
        return 0, None if bhi is None else bhi - 1
    if a.op == "max":
        return max(alo or 0, blo or 0), None if ahi is None or bhi is None else max(ahi, bhi)
    if a.op == "min":
        known = [x for x in (ahi, bhi) if x is not None]
        return max(0, min(alo or 0, blo or 0)), min(known) if known else None
    return 0, None


def compare(a: Dim, b: Dim) -> str | None:
    """How ``a`` stands to ``b`` for every value of the symbols: ``==  <  <=  >  >=``, or None if it
    depends.
    """
    lo, hi = bounds(a - b) if isinstance(a, Expr) else bounds(-(b - a))
    if lo is not None and lo == hi == 0:
        return "=="
    if lo is not None and lo >= 0:
        return ">" if lo > 0 else ">="
    if hi is not None and hi <= 0:
        return "<" if hi < 0 else "<="
    return None


def symbols(d: Dim) -> frozenset[str]:
    """Names of the symbols in an expression."""
    out: set[str] = set()
    for atoms, _ in _terms(d):
        for a in atoms:
            out |= frozenset({a.op}) if not a.args else symbols(a.args[0]) | symbols(a.args[1])
    return frozenset(out)


def operations(d: Dim, op: str) -> list[tuple[Dim, Dim]]:
    """Arguments of every operation of that kind in an expression, inner ones first."""
    out: list[tuple[Dim, Dim]] = []
    for a in (a for atoms, _ in _terms(d) for a in atoms if a.args):
        out += [*operations(a.args[0], op), *operations(a.args[1], op)]
        out += [(a.args[0], a.args[1])] if a.op == op else []
    return out


RELATIONS: Mapping[str, str] = {
    "==": "{} must be {}",
    "!=": "{} must not be {}",
    ">=": "{} must be at least {}",
    "bcast": "{} and {} must be equal, or one of them 1",
}


def related(left: int, relation: str, right: int) -> bool:
    """Whether a relation of assumptions holds between two values."""
    if relation == ">=":
        return left >= right
    if relation == "!=":
        return left != right
    return left == right or (relation == "bcast" and 1 in (left, right))


@dataclass(frozen=True)
class Assumption:
    """What must hold for a shape to make sense, and only running tells.

    ``relation``: ``==``, ``!=``, ``>=``, or ``bcast``, to broadcast. ``broken``: what an error says
    of it, where the relation of the dims would not tell a user much.
    """

    left: Dim
    relation: str
    right: Dim
    broken: str = field(default="", compare=False)

    def __str__(self) -> str:
        return RELATIONS[self.relation].format(self.left, self.right)

    def error(self, env: Env, who: str) -> ShapeError:
        """What is said where it does not hold, with the values of its dims and symbols."""
        named = [d for d in (self.left, self.right) if isinstance(d, Expr) and not symbol_name(d)]
        values = {s: str(env[s]) for s in sorted(self.symbols)}
        for d in named if self.broken else ():
            with suppress(ShapeError):
                values[str(d)] = str(evaluate(d, env))
        told = ", ".join(f"{d} is {value}" for d, value in values.items())
        do = "Give inputs of other shapes"
        if self.broken:
            return ShapeError(self.broken, who=who, why=told, do=do)
        return ShapeError(f"{self}, and {told}", who=who, do=do)

    @property
    def symbols(self) -> frozenset[str]:
        return symbols(self.left) | symbols(self.right)

    def holds(self, env: Env) -> bool:
        """Whether it does for these values; not where a side makes no sense itself."""
        try:
            left, right = evaluate(self.left, env), evaluate(self.right, env)
        except ShapeError:
            return False
        return related(left, self.relation, right)

    @property
    def certain(self) -> bool:
        """Whether it holds for all values of the symbols."""
        order = compare(self.left, self.right)
        if self.relation == ">=":
            return order in ("==", ">", ">=")
        if self.relation == "!=":
            return order in ("<", ">")
        return order == "==" or (self.relation == "bcast" and 1 in (self.left, self.right))


_noted: ContextVar[list[Assumption] | None] = ContextVar("noted", default=None)


@contextmanager
def assumptions() -> Iterator[list[Assumption]]:
    """Collect what is assumed inside."""
    found: list[Assumption] = []
    token = _noted.set(found)
    try:
        yield found
    finally:
        _noted.reset(token)


def assume(left: Dim, relation: str, right: Dim, broken: str = "") -> None:
    """Tell whoever collects it that something is taken for granted about symbols."""
    if (noted := _noted.get()) is not None and (isinstance(left, Expr) or isinstance(right, Expr)):
        noted.append(Assumption(left, relation, right, broken))


def symbol_name(d: Dim) -> str | None:
    """The name of a dim that is one bare symbol, else None."""
    if isinstance(d, Expr) and len(d.terms) == 1:
        atoms, c = d.terms[0]
        if c == 1 and len(atoms) == 1 and not atoms[0].args:
            return atoms[0].op
    return None


def substitute(d: Dim, env: Mapping[str, Dim]) -> Dim:
    """Replace symbols by dims; the result is simplified."""
    if not isinstance(d, Expr):
        return d
    out: Dim = 0
    for atoms, c in d.terms:
        out = out + prod([c, *(_substitute_atom(a, env) for a in atoms)])
    return out


_BUILD: dict[str, Callable[[Dim, Dim], Dim]] = {
    "//": floordiv,
    "%": mod,
    "max": dmax,
    "min": dmin,
    "bcast": broadcast,
}


def _substitute_atom(a: Atom, env: Mapping[str, Dim]) -> Dim:
    if not a.args:
        return env.get(a.op, sym(a.op))
    x, y = (substitute(v, env) for v in a.args)
    return _BUILD[a.op](x, y)


def evaluate(d: Dim, env: Env) -> int:
    """The integer value. Raises ShapeError when a symbol is not bound, and where something is
    divided by zero.
    """
    if not isinstance(d, Expr):
        return int(d)
    total = 0
    for atoms, c in d.terms:
        for a in atoms:
            c *= _evaluate_atom(a, env)
        total += c
    return total


def _evaluate_atom(a: Atom, env: Env) -> int:
    if a.args:
        left, right = (evaluate(x, env) for x in a.args)
        if right == 0 and a.op in DIVISIONS:
            at = ", ".join(f"{name!r} is {env[name]}" for name in sorted(symbols(a.args[1])))
            raise ShapeError(f"{a} divides by zero", why=at, do="Give sizes for which it does not")
        return OPS[a.op](left, right)
    if a.op not in env:
        raise ShapeError(f"dimension {a.op!r} has no value yet", do="Set the input shapes first")
    return env[a.op]


def evaluate_shape(shape: Iterable[Dim], env: Env) -> tuple[int, ...]:
    # a list first: runs ask for many small shapes, and a generator takes twice as long for these
    return tuple([d if type(d) is int else evaluate(d, env) for d in shape])


def learn(shape: Iterable[Dim], sizes: Iterable[int], env: dict[str, int]) -> None:
    """Bind the bare symbols of a shape that have no value yet."""
    for d, n in zip(shape, sizes, strict=True):
        if name := symbol_name(d):
            env.setdefault(name, n)


def show(shape: Iterable[Dim]) -> str:
    """``(batch, 3, 224)``: for messages."""
    return "(" + ", ".join(str(d) for d in shape) + ")"


def to_json(d: Dim) -> Any:
    """An int, a symbol's name, or ``[op, ...]``."""
    if not isinstance(d, Expr):
        return int(d)
    terms = [_term_json(m, c) for m, c in d.terms]
    return terms[0] if len(terms) == 1 else ["+", *terms]


def _term_json(atoms: Monomial, c: int) -> Any:
    parts: list[Any] = [
        a.op if not a.args else [a.op, *(to_json(x) for x in a.args)] for a in atoms
    ]
    if c != 1 or not parts:
        parts.insert(0, c)
    return parts[0] if len(parts) == 1 else ["*", *parts]


def from_json(j: Any, depth: int = 0, inside: str = "") -> Dim:
    """Inverse of ``to_json``; raises InvalidArgument on anything else, and on what might grow when
    it is multiplied.
    """
    if type(j) is int and not abs(j) >> 63:
        return j
    if isinstance(j, str) and j:
        return sym(j)
    flat = (
        isinstance(j, list)
        and 2 <= len(j) <= (FACTORS if j[0] == "*" else LARGEST)
        and isinstance(j[0], str)
    )
    if flat and depth < 64 and (inside != "*" or j[0] in _BUILD):
        args = [from_json(x, depth + 1, j[0]) for x in j[1:]]
        if j[0] == "+":
            return _normal(t for a in args for t in _terms(a))
        if j[0] == "*":
            return prod(args)
        if j[0] in _BUILD and len(args) == 2:
            return _BUILD[j[0]](*args)
    raise InvalidArgument(f"not a dimension expression: {reprlib.repr(j)}")
