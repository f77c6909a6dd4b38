"""Scalar expressions: what a pointwise layer does to one element.

Hash-consed nodes over a small closed vocabulary. One table per target turns them into code; the numpy table is here,
the C and CUDA tables live with their tactic sources. A new ``Primitive`` carries its own text per target.
16-bit floats are evaluated in float32. Integer division truncates toward zero; ``mod`` takes the divisor's sign,
``fmod`` the dividend's, as in ONNX.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Union

from tactix.words.dtypes import DType
from tactix.words.errors import InvalidArgument

ScalarLike = Union["Scalar", float, int, bool]


@dataclass(frozen=True)
class Primitive:
    """A scalar function beyond the vocabulary. ``texts``: per target ("c", "cuda"), ``{0}``, ``{1}`` are arguments."""

    name: str
    arity: int
    numpy: Callable[..., Any] = field(compare=False)
    texts: tuple[tuple[str, str], ...] = ()

    def __call__(self, *args: ScalarLike) -> Scalar:
        if len(args) != self.arity:
            raise InvalidArgument(f"primitive {self.name} takes {self.arity} arguments, not {len(args)}")
        return _make("primitive", tuple(_lift(a) for a in args), self)


class Scalar:
    """One node: ``op``, its argument nodes, and a ``value`` (constant, variable index, cast dtype, primitive)."""

    __slots__ = ("args", "op", "value")

    def __init__(self, op: str, args: tuple[Scalar, ...], value: Any) -> None:
        self.op, self.args, self.value = op, args, value

    def __add__(self, o: ScalarLike) -> Scalar:
        return _op("add", self, o)

    def __radd__(self, o: ScalarLike) -> Scalar:
        return _op("add", o, self)

    def __sub__(self, o: ScalarLike) -> Scalar:
        return _op("sub", self, o)

    def __rsub__(self, o: ScalarLike) -> Scalar:
        return _op("sub", o, self)

    def __mul__(self, o: ScalarLike) -> Scalar:
        return _op("mul", self, o)

    def __rmul__(self, o: ScalarLike) -> Scalar:
        return _op("mul", o, self)

    def __truediv__(self, o: ScalarLike) -> Scalar:
        return _op("div", self, o)

    def __rtruediv__(self, o: ScalarLike) -> Scalar:
        return _op("div", o, self)

    def __neg__(self) -> Scalar:
        return _op("neg", self)

    def __lt__(self, o: ScalarLike) -> Scalar:
        return _op("lt", self, o)

    def __le__(self, o: ScalarLike) -> Scalar:
        return _op("le", self, o)

    def __gt__(self, o: ScalarLike) -> Scalar:
        return _op("lt", o, self)

    def __ge__(self, o: ScalarLike) -> Scalar:
        return _op("le", o, self)

    def __str__(self) -> str:
        if self.op == "var":
            return f"x{self.value}"
        if self.op == "const":
            return repr(self.value)
        name = self.value.name if self.op == "primitive" else self.op
        tail = f", {self.value.value}" if self.op == "cast" else ""
        return f"{name}({', '.join(map(str, self.args))}{tail})"

    def __repr__(self) -> str:
        return f"Scalar({self})"


_TABLE: dict[Any, Scalar] = {}


def _make(op: str, args: tuple[Scalar, ...], value: Any = None) -> Scalar:
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
    """A number; it takes the dtype of what it meets."""
    return _make("const", (), value)


def cast(x: ScalarLike, dtype: DType) -> Scalar:
    """``x`` in another dtype."""
    return _make("cast", (_lift(x),), dtype)


def select(condition: ScalarLike, a: ScalarLike, b: ScalarLike) -> Scalar:
    """``a`` where the condition holds, else ``b``."""
    return _op("select", condition, a, b)


def _named(make: Any, name: str) -> Any:
    make.__name__, make.__doc__ = name, f"The scalar function ``{name}``."
    return make


def _unary(name: str) -> Callable[[ScalarLike], Scalar]:
    def make(x: ScalarLike) -> Scalar:
        return _op(name, x)

    return _named(make, name)  # type: ignore[no-any-return]


def _binary(name: str) -> Callable[[ScalarLike, ScalarLike], Scalar]:
    def make(a: ScalarLike, b: ScalarLike) -> Scalar:
        return _op(name, a, b)

    return _named(make, name)  # type: ignore[no-any-return]


UNARY = (
    "neg", "abs", "exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "erf", "tanh", "sin", "cos", "floor", "ceil",
    "round", "trunc", "isnan", "isinf", "not", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh",
    "bitnot",
)  # fmt: skip
BINARY = (
    "add", "sub", "mul", "div", "pow", "min", "max", "mod", "fmod", "lt", "le", "eq", "and", "or", "xor",
    "bitand", "bitor", "bitxor", "shl", "shr",
)  # fmt: skip
BOOLEAN = frozenset({"lt", "le", "eq", "and", "or", "xor", "not", "isnan", "isinf"})
OPS = frozenset({*UNARY, *BINARY, "select", "cast", "var", "const", "primitive"})

abs_, exp, expm1, log, log1p, sqrt, rsqrt, erf, tanh, sin, cos = map(
    _unary, ("abs", "exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "erf", "tanh", "sin", "cos")
)
floor, ceil, round_, trunc, isnan, isinf, not_, bitnot = map(
    _unary, ("floor", "ceil", "round", "trunc", "isnan", "isinf", "not", "bitnot")
)
tan, asin, acos, atan, sinh, cosh, asinh, acosh, atanh = map(
    _unary, ("tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh")
)
minimum, maximum, pow_, mod, fmod, eq, and_, or_, xor = map(
    _binary, ("min", "max", "pow", "mod", "fmod", "eq", "and", "or", "xor")
)
bitand, bitor, bitxor, shl, shr = map(_binary, ("bitand", "bitor", "bitxor", "shl", "shr"))


def walk(roots: Sequence[Scalar]) -> list[Scalar]:
    """Every distinct node below the roots, arguments first."""
    seen: dict[int, Scalar] = {}

    def visit(s: Scalar) -> None:
        if id(s) not in seen:
            for a in s.args:
                visit(a)
            seen[id(s)] = s

    for r in roots:
        visit(r)
    return list(seen.values())


def replace_vars(s: Scalar, by: dict[int, Scalar]) -> Scalar:
    """The expression with variables replaced: composition."""

    @functools.cache
    def go(x: Scalar) -> Scalar:
        if x.op == "var":
            return by.get(x.value, x)
        return _make(x.op, tuple(go(a) for a in x.args), x.value) if x.args else x

    return go(s)


def result_dtype(s: Scalar, inputs: Sequence[DType]) -> DType:
    """The dtype of the result; ``const`` nodes take their sibling's."""
    if s.op == "var":
        return inputs[int(s.value)]
    if s.op == "cast":
        to: DType = s.value
        return to
    if s.op in BOOLEAN:
        return DType.BOOL
    if s.op == "const":
        return DType.BOOL if isinstance(s.value, bool) else DType.FP32
    args = s.args[1:] if s.op == "select" else s.args[:1] if s.op in ("pow", "shl", "shr") else s.args
    solid = [a for a in args if a.op != "const"] or list(args)
    return result_dtype(solid[0], inputs)


def evaluate(s: Scalar, inputs: Sequence[Any]) -> Any:
    """The numpy meaning over broadcast arrays; the result has ``result_dtype``."""
    import numpy as np

    dtypes = [DType.of(x.dtype) for x in inputs]
    wide = [
        np.asarray(x).astype(np.float32) if t.is_float and t.bits < 32 else x
        for x, t in zip(inputs, dtypes, strict=True)
    ]
    table = numpy_table()
    memo: dict[int, Any] = {}
    with np.errstate(all="ignore"):
        for n in walk([s]):
            memo[id(n)] = _evaluate_node(n, [memo[id(a)] for a in n.args], wide, table)
    return np.asarray(memo[id(s)]).astype(result_dtype(s, dtypes).numpy)


def _evaluate_node(n: Scalar, args: list[Any], inputs: Sequence[Any], table: dict[str, Callable[..., Any]]) -> Any:
    if n.op == "var":
        return inputs[n.value]
    if n.op == "const":
        return n.value
    if n.op == "primitive":
        return n.value.numpy(*args)
    if n.op == "cast":
        return _cast(args[0], n.value)
    return table[n.op](*args)


def _cast(x: Any, dtype: DType) -> Any:
    import numpy as np

    y = np.asarray(x).astype(dtype.numpy)
    return y.astype(np.float32) if dtype.is_float and dtype.bits < 32 else y


@functools.cache
def numpy_table() -> dict[str, Callable[..., Any]]:
    """Vocabulary to numpy functions."""
    import numpy as np

    def div(a: Any, b: Any) -> Any:
        kind = np.result_type(a, b).kind
        if kind not in "iu":
            return a / b
        q = np.floor_divide(a, b)
        return q + ((np.remainder(a, b) != 0) & ((a < 0) != (b < 0))).astype(q.dtype) if kind == "i" else q

    def power(a: Any, b: Any) -> Any:
        wide = np.power(np.asarray(a, np.float64), b) if np.asarray(a).dtype.kind in "iu" else np.power(a, b)
        return wide.astype(np.asarray(a).dtype)

    return {
        "neg": np.negative, "abs": np.abs, "exp": np.exp, "expm1": np.expm1, "log": np.log, "log1p": np.log1p,
        "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "erf": _erf, "tanh": np.tanh, "sin": np.sin, "cos": np.cos,
        "floor": np.floor, "ceil": np.ceil, "round": np.rint, "trunc": np.trunc, "isnan": np.isnan, "isinf": np.isinf,
        "not": np.logical_not, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh,
        "cosh": np.cosh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "bitnot": np.invert,
        "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": div, "pow": power, "min": np.minimum,
        "max": np.maximum, "mod": np.mod, "fmod": np.fmod, "lt": np.less, "le": np.less_equal, "eq": np.equal,
        "and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor, "bitand": np.bitwise_and,
        "bitor": np.bitwise_or, "bitxor": np.bitwise_xor, "shl": np.left_shift, "shr": np.right_shift,
        "select": np.where,
    }  # fmt: skip


def _erf(x: Any) -> Any:
    """erf by W. J. Cody's rational approximations (Math. Comp. 23, 1969), within 1e-15 in float64."""
    import numpy as np

    a = np.asarray(x)
    t = np.abs(a.astype(np.float64))
    small, large = np.minimum(t, 0.5), np.maximum(t, 4.0)
    y = small * _ratio(small**2, _ERF_SMALL)
    mid = np.clip(t, 0.46875, 4.0)
    tail = 1 - np.exp(-mid * mid) * _ratio(mid, _ERF_MID)
    z = 1 / large**2
    far = 1 - np.exp(-large * large) / large * (0.5641895835477563 - z * _ratio(z, _ERF_FAR))
    out = np.where(t <= 0.46875, y, np.where(t <= 4.0, tail, far))
    return np.where(np.isnan(t), np.nan, np.copysign(out, a)).astype(a.dtype if a.dtype.kind == "f" else np.float64)


def _ratio(x: Any, coefficients: tuple[tuple[float, ...], tuple[float, ...]]) -> Any:
    import numpy as np

    top, bottom = coefficients
    return np.polyval(top, x) / np.polyval(bottom, x)


_ERF_SMALL = (
    (1.85777706184603153e-1, 3.16112374387056560, 1.13864154151050156e2, 3.77485237685302021e2, 3.20937758913846947e3),
    (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3),
)
_ERF_MID = (
    (2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594, 6.61191906371416295e1, 2.98635138197400131e2,
     8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3, 1.23033935479799725e3),
    (1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2, 1.62138957456669019e3,
     3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3, 1.23033935480374942e3),
)  # fmt: skip
_ERF_FAR = (
    (1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1, 1.25781726111229246e-1,
     1.60837851487422766e-2, 6.58749161529837803e-4),
    (1.0, 2.56852019228982242, 1.87295284992346725, 5.27905102951428412e-1, 6.05183413124413191e-2,
     2.33520497626869185e-3),
)  # fmt: skip
