"""Scalar expressions as C: vectors of float32 (``emit_vector``) or single elements of any dtype
(``emit_scalar``).

``emit_vector(results, leaves, dtypes)`` gives statements that compute the results from named
leaves, and the results'
names: ``const vf t0 = x0 * 2.0f; const vf t1 = tx_exp(t0);``. Common subexpressions are computed
once. Inside, floats are ``vf``, int32 and narrower ``vi``, bool ``vm``: what ``c_text.load`` gives
and ``c_text.store`` takes. The statements need the preludes ``c_text.vector_preludes()``.

``emit_scalar`` does the same for C numbers: ``float`` for 16- and 32-bit floats, ``uint8_t`` 0 or 1
for bool, else the dtype's own type.

Both raise CannotEmit with a reason for what they do not know; ``why_not_vector`` and
``why_not_scalar`` give that reason.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tactix.base.dtypes import DType
from tactix.base.errors import InvalidArgument
from tactix.contracts import expr
from tactix.contracts.expr import Scalar
from tactix_codegen.c import text as c_text
from tactix_codegen.numerics import evaluate, numpy_table

WIDE = {DType.FP16: DType.FP32, DType.BF16: DType.FP32}
VECTOR_INTS = (DType.INT32, DType.INT16, DType.UINT16, DType.INT8, DType.UINT8)
LIBM = frozenset(
    [
        "exp",
        "expm1",
        "log",
        "log1p",
        "sqrt",
        "erf",
        "tanh",
        "sin",
        "cos",
        "floor",
        "ceil",
        "trunc",
        "tan",
        "asin",
        "acos",
        "atan",
        "sinh",
        "cosh",
        "asinh",
        "acosh",
        "atanh",
    ]
)


class CannotEmit(InvalidArgument):
    """An expression that this C emitter does not know; the message says what and why."""


@dataclass(frozen=True)
class Code:
    """``statements`` in order; ``results``: a C name or literal per result; ``dtypes``: of the
    results as stored.
    """

    statements: tuple[str, ...]
    results: tuple[str, ...]
    dtypes: tuple[DType, ...]


def emit_vector(
    results: Sequence[Scalar], leaves: Sequence[str], dtypes: Sequence[DType], tag: str = "t"
) -> Code:
    """Statements over vectors of ``TX_LANES`` elements. ``leaves[i]``, a C expression, is variable
    i, of ``dtypes[i]``.

    Names start with ``tag``. Raises CannotEmit for dtypes other than f32, f16, bf16, bool and up to
    32-bit integers, or for operations of those that vectors lack.
    """
    from tactix_codegen.c.rounding import in_floats
    from tactix_codegen.c.vector_ops import VectorEmitter

    return emitted(VectorEmitter(leaves, dtypes, tag), in_floats(results), dtypes)


def emit_scalar(
    results: Sequence[Scalar], leaves: Sequence[str], dtypes: Sequence[DType], tag: str = "t"
) -> Code:
    """Statements over single elements of any C dtype, mixed ones too; see ``element`` for leaves.
    Raises CannotEmit.
    """
    from tactix_codegen.c.rounding import in_floats
    from tactix_codegen.c.scalar_ops import ScalarEmitter

    return emitted(ScalarEmitter(leaves, dtypes, tag), in_floats(results), dtypes)


def why_not_vector(results: Sequence[Scalar], dtypes: Sequence[DType]) -> str:
    """Empty if ``emit_vector`` can do it, else the reason."""
    return _why_not(emit_vector, results, dtypes)


def why_not_scalar(results: Sequence[Scalar], dtypes: Sequence[DType]) -> str:
    """Empty if ``emit_scalar`` can do it, else the reason."""
    return _why_not(emit_scalar, results, dtypes)


def _why_not(emit: Callable[..., Code], results: Sequence[Scalar], dtypes: Sequence[DType]) -> str:
    try:
        emit(results, [f"x{i}" for i in range(len(dtypes))], dtypes)
    except CannotEmit as e:
        return e.what
    return ""


def element(dtype: DType, place: str) -> str:
    """The stored element at an lvalue as the C number that ``emit_scalar`` works on."""
    return f"tx_from_{dtype.value}({place})" if dtype in WIDE else place


def stored(dtype: DType, value: str) -> str:
    """A C number of ``emit_scalar`` as the stored element."""
    return f"tx_to_{dtype.value}({value})" if dtype in WIDE else value


def keeps_zero(results: Sequence[Scalar], dtypes: Sequence[DType]) -> bool:
    """Whether every result is zero where all variables are: then zero padding lanes stay zero by
    themselves.
    """
    import numpy as np

    zeros = [np.zeros((), t.numpy) for t in dtypes]
    return all(evaluate(r, zeros).astype(np.float64) == 0 for r in results)


class Emitter:
    """Walks the expressions and names every node; subclasses know the target's types and texts.

    ``types``: the dtype each node is computed in, None for constants, which take their sibling's.
    ``values``: the numbers of constants and of operations on constants alone.
    """

    c_names: dict[DType, str]

    def __init__(self, leaves: Sequence[str], dtypes: Sequence[DType], tag: str) -> None:
        self.leaves, self.dtypes, self.tag = leaves, dtypes, tag
        self.statements: list[str] = []
        self.types: dict[int, DType | None] = {}
        self.names: dict[int, str] = {}
        self.values: dict[int, float] = {}

    def variable_type(self, dtype: DType) -> DType:
        """The type that a leaf is computed in. Raises CannotEmit."""
        raise NotImplementedError

    def c_type(self, dtype: DType) -> str:
        """The C type of a computed value."""
        raise NotImplementedError

    def literal(self, value: float, dtype: DType) -> str:
        """A constant of that dtype."""
        raise NotImplementedError

    def convert(self, text: str, source: DType, target: DType) -> str:
        """A value in another dtype."""
        raise NotImplementedError

    def operation(self, node: Scalar, dtype: DType) -> str:
        """The text of an operation whose result has that dtype."""
        raise NotImplementedError

    def visit(self, node: Scalar) -> None:
        """Name a node whose arguments have names."""
        value = self._constant(node)
        self.types[id(node)] = None if value is not None else self.type_of(node)
        dtype = self.types[id(node)]
        if value is not None:
            self.values[id(node)] = value
        elif node.op == "var":
            self.names[id(node)] = self.leaves[node.index]
        elif dtype is not None:
            name = f"{self.tag}{len(self.statements)}"
            self.statements.append(
                f"const {self.c_type(dtype)} {name} = {self.operation(node, dtype)};"
            )
            self.names[id(node)] = name

    def _constant(self, node: Scalar) -> float | None:
        if node.op == "const":
            number = node.number
            return float(number) if isinstance(number, int) and abs(number) < 1 << 53 else number
        if (
            not node.args
            or node.op in ("cast", "primitive")
            or any(id(a) not in self.values for a in node.args)
        ):
            return None
        import numpy as np

        with np.errstate(all="ignore"):
            return float(numpy_table()[node.op](*(self.values[id(a)] for a in node.args)))

    def value(self, node: Scalar) -> float | None:
        """The number that a constant argument stands for."""
        return self.values.get(id(node))

    def type_of(self, node: Scalar) -> DType:
        """As ``expr.result_dtype``, with 16-bit floats computed in float32."""
        if node.op == "var":
            return self.variable_type(self.dtypes[node.index])
        if node.op == "cast":
            return self.variable_type(node.dtype)
        if node.op in expr.BOOLEAN:
            return DType.BOOL
        args = (
            node.args[1:]
            if node.op == "select"
            else node.args[:1]
            if node.op in ("pow", "shl", "shr")
            else node.args
        )
        solid = [t for t in (self.types[id(a)] for a in args) if t is not None]
        return solid[0] if solid else DType.FP32

    def common_type(self, args: Sequence[Scalar]) -> DType:
        """The type to compare arguments in: the widest; float64 if an integer meets a fraction."""
        solid = [t for t in (self.types[id(a)] for a in args) if t is not None]
        best = max(solid, key=_rank, default=DType.FP32)
        constants = [v for a in args if (v := self.value(a)) is not None]
        if best.is_int and not all(fits(v, best) for v in constants):
            return DType.FP64
        return best

    def arg(self, node: Scalar, dtype: DType) -> str:
        """An argument in that dtype."""
        have = self.types[id(node)]
        if have is None:
            return self.literal(self.values[id(node)], dtype)
        name = self.names[id(node)]
        return name if have == dtype else self.convert(name, have, dtype)

    def result(self, node: Scalar, dtype: DType) -> str:
        """A result, computed for storing as ``dtype``."""
        return self.arg(node, WIDE.get(dtype, dtype))


def _rank(dtype: DType) -> tuple[int, int, bool]:
    return (
        0 if dtype is DType.BOOL else 2 if dtype.is_float else 1,
        dtype.bits,
        dtype.is_signed_int,
    )


def emitted(emitter: Emitter, results: Sequence[Scalar], dtypes: Sequence[DType]) -> Code:
    for node in expr.walk(results):
        emitter.visit(node)
    types = tuple(expr.result_dtype(r, list(dtypes)) for r in results)
    names = tuple(emitter.result(r, t) for r, t in zip(results, types, strict=True))
    used = _drop_unused(emitter.statements, names)
    return Code(tuple(used), names, types)


def _drop_unused(statements: list[str], results: tuple[str, ...]) -> list[str]:
    """Statements that no result needs (arguments of a node that a shorter form replaced) are left
    out.
    """
    text, kept = " ".join(results), []
    for s in reversed(statements):
        name = s.split(" = ", 1)[0].rsplit(" ", 1)[1]
        if _mentions(text, name):
            kept.append(s)
            text += " " + s.split(" = ", 1)[1]
    return kept[::-1]


def _mentions(text: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", text) is not None


def float_literal(value: float, double: bool = False) -> str:
    """A C literal of float32 (rounded) or float64, exact; infinities and NaN as builtins."""
    suffix = "" if double else "f"
    try:
        x = value if double else struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        x = math.copysign(math.inf, value)
    if math.isnan(x):
        return f'__builtin_nan{suffix}("")'
    if math.isinf(x):
        return f"{'-' if x < 0 else ''}__builtin_inf{suffix}()"
    short = repr(x)
    exact = len(short) <= 9 and "e" not in short
    text = short if exact else float(x).hex()
    return f"{text}{suffix}" if x >= 0 and text[0] != "-" else f"({text}{suffix})"


def int_range(dtype: DType) -> tuple[int, int]:
    """Lowest and highest value of an integer dtype, or bool."""
    if dtype is DType.BOOL:
        return 0, 1
    return (
        (-(1 << dtype.bits - 1), (1 << dtype.bits - 1) - 1)
        if dtype.is_signed_int
        else (0, (1 << dtype.bits) - 1)
    )


def fits(value: float, dtype: DType) -> bool:
    """Whether a number is a value of an integer dtype."""
    low, high = int_range(dtype)
    return math.isfinite(value) and int(value) == value and low <= value <= high


def int_literal(value: float, dtype: DType, saturate: bool = False) -> str:
    """A C literal of an integer dtype; ``saturate``: of the nearest in range. Raises CannotEmit for
    other numbers.
    """
    low, high = int_range(dtype)
    if saturate and (value < low or value > high):
        value = low if value < low else high
    if not fits(value, dtype):
        raise CannotEmit(f"the constant {value!r} is no {dtype.value}")
    number = int(value)
    if number == -(1 << 63):
        return "INT64_MIN"
    wide = (
        "LL"
        if dtype is DType.INT64
        else "ULL"
        if dtype is DType.UINT64
        else "U"
        if number > 2147483647
        else ""
    )
    return f"({number}{wide})" if number < 0 else f"{number}{wide}"


def unknown(node: Scalar, dtype: DType) -> CannotEmit:
    """The error for an operation without C text."""
    return CannotEmit(f"no C text for {node.op} of {dtype.value}")


def known_dtype(dtype: DType) -> DType:
    """The type to compute a stored dtype in. Raises CannotEmit."""
    if not c_text.has_ctype(dtype):
        raise CannotEmit(f"no C type for {dtype.value}")
    return WIDE.get(dtype, dtype)


def primitive_text(node: Scalar, names: Sequence[str]) -> str:
    """The "c" text of a primitive over those names. Raises CannotEmit if it has none."""
    text = dict(node.primitive.texts).get("c")
    if text is None:
        raise CannotEmit(f"primitive {node.primitive.name} has no C text")
    return str(text.format(*names))
