"""Scalar expressions: what a pointwise layer does to one element.

Hash-consed nodes over a small closed vocabulary. One table per target turns them into code: that of
numpy is the SDK's, those of C and CUDA live with their tactic sources. A new ``Primitive`` carries
its own text per target. 16-bit floats are evaluated in float32. Integer division truncates toward
zero; ``mod`` takes the divisor's sign, ``fmod`` the dividend's, as in ONNX.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from numbers import Number
from typing import NoReturn, ParamSpec, Union

from tactix.base.arrays import Array
from tactix.base.dtypes import DType
from tactix.base.errors import InvalidArgument

Given = ParamSpec("Given")
ScalarLike = Union["Scalar", float, int, bool]
ScalarValue = Union[float, DType, "Primitive", None]
"""What a node holds beside its arguments: a constant, a variable's index, a dtype, a primitive."""


@dataclass(frozen=True)
class Primitive:
    """A scalar function beyond the vocabulary. ``texts``: per target ("c", "cuda"), ``{0}``,
    ``{1}`` are arguments.
    """

    name: str
    arity: int
    numpy: Callable[..., Array] = field(compare=False)
    texts: tuple[tuple[str, str], ...] = ()

    def __call__(self, *args: ScalarLike) -> Scalar:
        if len(args) != self.arity:
            raise InvalidArgument(
                f"primitive {self.name} takes {self.arity} arguments, not {len(args)}"
            )
        return _make("primitive", tuple(_lift(a) for a in args), self)


def _infix(op: str) -> Callable[[Scalar, ScalarLike], Scalar]:
    return lambda a, b: _op(op, a, b)


def _swapped(op: str) -> Callable[[Scalar, ScalarLike], Scalar]:
    return lambda a, b: _op(op, b, a)


class Scalar:
    """One node: ``op``, its argument nodes, and a ``value`` (constant, variable index, cast dtype,
    primitive).
    """

    __slots__ = ("args", "op", "value")

    def __init__(self, op: str, args: tuple[Scalar, ...], value: ScalarValue) -> None:
        self.op, self.args, self.value = op, args, value

    @property
    def index(self) -> int:
        """Of a variable. Raises InvalidArgument for another node."""
        return self.value if isinstance(self.value, int) else self._without("index")

    @property
    def number(self) -> float:
        """Of a constant, as it was given. Raises InvalidArgument for a node that holds none."""
        if self.value is None or isinstance(self.value, (DType, Primitive)):
            return self._without("number")
        return self.value

    @property
    def dtype(self) -> DType:
        """What a cast leads to. Raises InvalidArgument for another node."""
        return self.value if isinstance(self.value, DType) else self._without("dtype")

    @property
    def primitive(self) -> Primitive:
        """What is called. Raises InvalidArgument for a node of the vocabulary."""
        return self.value if isinstance(self.value, Primitive) else self._without("primitive")

    def _without(self, what: str) -> NoReturn:
        raise InvalidArgument(f"{self.op} holds no {what}")

    __add__, __sub__, __mul__, __truediv__, __lt__, __le__ = map(
        _infix, ("add", "sub", "mul", "div", "lt", "le")
    )
    __radd__, __rsub__, __rmul__, __rtruediv__, __gt__, __ge__ = map(
        _swapped, ("add", "sub", "mul", "div", "lt", "le")
    )
    __eq__ = _infix("eq")  # type: ignore[assignment]
    __hash__ = object.__hash__

    def __ne__(self, o: ScalarLike) -> Scalar:  # type: ignore[override]
        return not_(self == o)

    def __neg__(self) -> Scalar:
        return _op("neg", self)

    def __bool__(self) -> bool:
        what = "an expression of elements is neither true nor false"
        raise InvalidArgument(
            what,
            do="Write select, and_, or_, not_, minimum, maximum for if, and, or, not, min, max",
        )

    def __str__(self) -> str:
        if self.op == "var":
            return f"x{self.value}"
        if self.op == "const":
            return repr(self.value)
        name = self.primitive.name if self.op == "primitive" else self.op
        tail = f", {self.dtype.value}" if self.op == "cast" else ""
        return f"{name}({', '.join(map(str, self.args))}{tail})"

    def __repr__(self) -> str:
        return f"Scalar({self})"


_TABLE: dict[object, Scalar] = {}


def _make(op: str, args: tuple[Scalar, ...], value: ScalarValue = None) -> Scalar:
    key = (op, tuple(map(id, args)), type(value), repr(value) if op == "const" else value)
    found = _TABLE.get(key)
    return found if found is not None else _TABLE.setdefault(key, Scalar(op, args, value))


def _lift(x: ScalarLike) -> Scalar:
    return x if isinstance(x, Scalar) else const(x)


def _op(op: str, *args: ScalarLike) -> Scalar:
    return _make(op, tuple(_lift(a) for a in args))


def var(index: int) -> Scalar:
    """The element of input ``index``."""
    return _make("var", (), index)


def const(value: float) -> Scalar:
    """A number; it takes the dtype of what it meets. Raises InvalidArgument for anything else."""
    if not isinstance(value, Number):
        raise InvalidArgument(
            f"{value!r} is no number, nor made of the parameters by functions of tactix_sdk.scalar"
        )
    return _make("const", (), value)


def cast(x: ScalarLike, dtype: DType) -> Scalar:
    """``x`` in another dtype."""
    return _make("cast", (_lift(x),), dtype)


def select(condition: ScalarLike, a: ScalarLike, b: ScalarLike) -> Scalar:
    """``a`` where the condition holds, else ``b``."""
    return _op("select", condition, a, b)


def _named(make: Callable[Given, Scalar], name: str) -> Callable[Given, Scalar]:
    make.__name__, make.__doc__ = name, f"The scalar function ``{name}``."
    return make


def _unary(name: str) -> Callable[[ScalarLike], Scalar]:
    return _named(lambda x: _op(name, x), name)


def _binary(name: str) -> Callable[[ScalarLike, ScalarLike], Scalar]:
    return _named(lambda a, b: _op(name, a, b), name)


UNARY = (
    "neg", "abs", "exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "erf", "tanh", "sin", "cos",
    "floor", "ceil", "round", "trunc", "isnan", "isinf", "not", "tan", "asin", "acos", "atan",
    "sinh", "cosh", "asinh", "acosh", "atanh", "bitnot",
)  # fmt: skip
BINARY = (
    "add", "sub", "mul", "div", "pow", "min", "max", "mod", "fmod", "lt", "le", "eq",
    "and", "or", "xor", "bitand", "bitor", "bitxor", "shl", "shr",
)  # fmt: skip
BOOLEAN = frozenset({"lt", "le", "eq", "and", "or", "xor", "not", "isnan", "isinf"})
_OWN_DTYPE = BOOLEAN | {"var", "cast", "const"}
OPS = frozenset({*UNARY, *BINARY, "select", "cast", "var", "const", "primitive"})
JUMPS = frozenset(
    {
        "floor",
        "ceil",
        "round",
        "trunc",
        "mod",
        "fmod",
        "lt",
        "le",
        "eq",
        "isnan",
        "isinf",
        "primitive",
    }
)
"""Operations whose result may jump where an argument hardly changes; of a primitive that is not
known.
"""

abs_, exp, expm1, log, log1p, sqrt, rsqrt = map(
    _unary, ("abs", "exp", "expm1", "log", "log1p", "sqrt", "rsqrt")
)
erf, tanh, sin, cos, floor, ceil, trunc = map(
    _unary, ("erf", "tanh", "sin", "cos", "floor", "ceil", "trunc")
)
round_, isnan, isinf, not_, bitnot, tan = map(
    _unary, ("round", "isnan", "isinf", "not", "bitnot", "tan")
)
asin, acos, atan, sinh, cosh = map(_unary, ("asin", "acos", "atan", "sinh", "cosh"))
asinh, acosh, atanh = map(_unary, ("asinh", "acosh", "atanh"))
minimum, maximum, pow_, mod, fmod, eq, and_ = map(
    _binary, ("min", "max", "pow", "mod", "fmod", "eq", "and")
)
or_, xor, bitand, bitor, bitxor, shl, shr = map(
    _binary, ("or", "xor", "bitand", "bitor", "bitxor", "shl", "shr")
)


def walk(roots: Sequence[Scalar]) -> list[Scalar]:
    """Every distinct node below the roots, arguments first."""
    seen: dict[Scalar, None] = {}
    stack = list(reversed(roots))
    while stack:
        s = stack[-1]
        waits = [a for a in reversed(s.args) if a not in seen] if s not in seen else ()
        if waits:
            stack += waits
        else:
            seen[stack.pop()] = None
    return list(seen)


def replace_vars(s: Scalar, by: dict[int, Scalar]) -> Scalar:
    """The expression with variables replaced: composition."""
    made: dict[Scalar, Scalar] = {}
    for x in walk([s]):
        if x.op == "var":
            made[x] = by.get(x.index, x)
        else:
            made[x] = _make(x.op, tuple(made[a] for a in x.args), x.value) if x.args else x
    return made[s]


def rebuilt(
    roots: Sequence[Scalar], other: Callable[[Scalar], Scalar | None]
) -> tuple[Scalar, ...]:
    """The roots with what ``other`` gives in the place of nodes, arguments first; it sees nodes
    whose arguments are replaced already, and gives None for those that stay.
    """
    done: dict[Scalar, Scalar] = {}
    for node in walk(roots):
        args = tuple(done[a] for a in node.args)
        made = _make(node.op, args, node.value) if args else node
        instead = other(made)
        done[node] = made if instead is None else instead
    return tuple(done[r] for r in roots)


def variables(roots: Sequence[Scalar]) -> frozenset[int]:
    """The variables that the expressions read."""
    return frozenset(n.index for n in walk(roots) if n.op == "var")


def jumps_on(s: Scalar) -> frozenset[int]:
    """The variables on which the expression may jump: those that decide a comparison, a rounding to
    whole numbers.
    """
    deciding: list[Scalar] = []
    for n in walk([s]):
        if n.op in JUMPS or (n.op == "cast" and not n.dtype.is_float):
            deciding += n.args
        elif n.op == "pow":  # of a negative number there are whole powers only
            deciding.append(n.args[1])
    return variables(deciding)


def on_grid(s: Scalar, dtype: DType, inputs: Sequence[DType]) -> bool:
    """Whether the expression, computed more exactly, surely gives numbers of a 16-bit dtype."""
    if s.op == "var":
        return inputs[s.index] is dtype
    if s.op == "cast":
        widened = s.dtype.is_float and s.dtype.bits > dtype.bits
        return s.dtype is dtype or (widened and on_grid(s.args[0], dtype, inputs))
    if s.op == "const":  # whole numbers that 8 bits hold are in every float dtype
        return abs(s.number) <= 256 and float(s.number).is_integer()
    chosen = s.args[1:] if s.op == "select" else s.args
    return s.op in ("neg", "abs", "min", "max", "select") and all(
        on_grid(a, dtype, inputs) for a in chosen
    )


def result_dtypes(roots: Sequence[Scalar], inputs: Sequence[DType]) -> dict[Scalar, DType]:
    """Every distinct node below the roots, arguments first, with the dtype of its result as in
    ``result_dtype``.
    """
    out: dict[Scalar, DType] = {}
    for s in walk(roots):
        of = _takes_dtype_of(s)
        out[s] = result_dtype(s, inputs) if of is None else out[of]
    return out


def result_dtype(s: Scalar, inputs: Sequence[DType]) -> DType:
    """The dtype of the result; ``const`` nodes take their sibling's."""
    while (of := _takes_dtype_of(s)) is not None:
        s = of
    if s.op == "var":
        return inputs[s.index]
    if s.op == "cast":
        return s.dtype
    if s.op in BOOLEAN:
        return DType.BOOL
    return DType.BOOL if isinstance(s.value, bool) else DType.FP32


def _takes_dtype_of(s: Scalar) -> Scalar | None:
    """The argument whose dtype the result has, if it is that of one."""
    if s.op in _OWN_DTYPE:
        return None
    args = (
        s.args[1:] if s.op == "select" else s.args[:1] if s.op in ("pow", "shl", "shr") else s.args
    )
    solid = [a for a in args if a.op != "const"] or list(args)
    return solid[0]
