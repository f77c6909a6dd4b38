"""Pointwise layers of packs and compositions: their scalar expressions as ONNX operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tactix.base.dtypes import DType
from tactix.contracts import expr
from tactix.contracts.expr import Scalar
from tactix_inspect.onnx_export.call import LayerCall, NoWayBack
from tactix_inspect.onnx_export.graph import Graph

OPERATORS: Mapping[str, str] = {
    "neg": "Neg", "abs": "Abs", "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "erf": "Erf",
    "tanh": "Tanh", "sin": "Sin", "cos": "Cos", "floor": "Floor", "ceil": "Ceil", "round": "Round",
    "isnan": "IsNaN", "isinf": "IsInf", "not": "Not", "tan": "Tan", "asin": "Asin", "acos": "Acos",
    "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh", "asinh": "Asinh", "acosh": "Acosh",
    "atanh": "Atanh", "bitnot": "BitwiseNot", "add": "Add", "sub": "Sub", "mul": "Mul",
    "div": "Div", "pow": "Pow", "min": "Min", "max": "Max", "lt": "Less", "le": "LessOrEqual",
    "eq": "Equal", "and": "And", "or": "Or", "xor": "Xor", "bitand": "BitwiseAnd",
    "bitor": "BitwiseOr", "bitxor": "BitwiseXor", "select": "Where", "mod": "Mod",
}  # fmt: skip
"""Operations that ONNX has one operator for."""

Composed = Callable[[Graph, list[str], str], str]
"""Of the graph, the arguments and a one of their dtype."""

COMPOSED: Mapping[str, Composed] = {
    "expm1": lambda g, x, one: g.one("Sub", g.one("Exp", *x), one),
    "log1p": lambda g, x, one: g.one("Log", g.one("Add", *x, one)),
    "rsqrt": lambda g, x, one: g.one("Reciprocal", g.one("Sqrt", *x)),
    "trunc": lambda g, x, one: g.one("Mul", g.one("Sign", *x), g.one("Floor", g.one("Abs", *x))),
    "fmod": lambda g, x, one: g.one("Mod", *x, fmod=1),
    "shl": lambda g, x, one: g.one("BitShift", *x, direction="LEFT"),
    "shr": lambda g, x, one: g.one("BitShift", *x, direction="RIGHT"),
}


def write_expression(c: LayerCall) -> None:
    """Nodes of a pointwise layer's expression. Raises NoWayBack for what ONNX cannot say."""
    inputs = [s.dtype for s in c.specs if s is not None]
    root = c.layer.scalar(c.attrs, len(inputs))
    written = _Written(c, expr.result_dtypes([root], inputs))
    c.emit("Identity", written.name(root))


class _Written:
    """Names of what the nodes of an expression give; ``dtypes``: of every node."""

    def __init__(self, c: LayerCall, dtypes: Mapping[Scalar, DType]) -> None:
        self._call, self._dtypes = c, dtypes
        self._known: dict[Scalar, str] = {}
        for s in dtypes:
            if s.op != "const":  # which has another dtype wherever it is read
                self._known[s] = self._made(s)

    def name(self, s: Scalar, beside: DType = DType.FP32) -> str:
        """Of a node; a number is of the dtype that it stands beside."""
        if s.op == "const":
            return self._call.scalar(s.number, beside)
        return self._known[s]

    def _made(self, s: Scalar) -> str:
        c, g = self._call, self._call.graph
        if s.op == "var":
            return c.inputs[s.index]
        beside = self._beside(s)
        args = [self.name(a, beside) for a in s.args]
        if s.op == "cast":
            return g.cast(args[0], s.dtype)
        if s.op in COMPOSED:
            return COMPOSED[s.op](g, args, c.scalar(1, beside))
        if s.op not in OPERATORS or (s.op == "mod" and beside.is_float):
            raise NoWayBack(f"{s} is no operator of ONNX")
        return g.one(OPERATORS[s.op], *args)

    def _beside(self, s: Scalar) -> DType:
        """The dtype of a node's arguments, but for a condition."""
        args = s.args[1:] if s.op == "select" else s.args
        solid = [self._dtypes[a] for a in args if a.op != "const"]
        return solid[0] if solid else self._dtypes[s]
