"""The C table of the scalar vocabulary for single elements of every dtype."""

from __future__ import annotations

from tactix.base.dtypes import DType
from tactix.contracts.expr import Scalar
from tactix_codegen.c import scalar as c_scalar
from tactix_codegen.c import text as c_text
from tactix_codegen.c.scalar import Emitter, float_literal, int_literal, unknown

_INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "bitand": "&",
    "bitor": "|",
    "bitxor": "^",
}
_LOGIC = {
    "and": "&", "or": "|", "xor": "^", "add": "|", "mul": "&", "min": "&", "max": "|",
    "bitand": "&", "bitor": "|", "bitxor": "^",
}  # fmt: skip
_COMPARE = {"lt": "<", "le": "<=", "eq": "=="}
_WHOLE = ("floor", "ceil", "round", "trunc")


class ScalarEmitter(Emitter):
    """C numbers: float for floats up to 32 bits, uint8_t for bool, else the stored type."""

    def variable_type(self, dtype: DType) -> DType:
        return c_scalar.known_dtype(dtype)

    def c_type(self, dtype: DType) -> str:
        return c_text.ctype(dtype)

    def literal(self, value: float, dtype: DType) -> str:
        if dtype.is_float:
            return float_literal(value, double=dtype is DType.FP64)
        if dtype is DType.BOOL:
            return str(int(bool(value)))
        return int_literal(value, dtype)

    def convert(self, text: str, source: DType, target: DType) -> str:
        if target is DType.BOOL:
            return f"({text} != 0)"
        if source is DType.BOOL and target.is_float:
            # no conversion of the byte: of a comparison GCC 12 makes no vectors then, and a loop
            # over it took 3 to 7 times as long on a Xeon with AMX
            one, zero = (self.literal(v, target) for v in (1, 0))
            return f"({text} ? {one} : {zero})"
        if source.is_float and target in (DType.UINT32, DType.UINT64):
            return f"tx_{target.value}_of({text})"
        return f"({c_text.ctype(target)}){text}"

    def operation(self, node: Scalar, dtype: DType) -> str:
        if node.op == "cast":
            text = self.arg(node.args[0], dtype)
            narrow = node.dtype.value
            return (
                f"tx_from_{narrow}(tx_to_{narrow}({text}))" if node.dtype in c_scalar.WIDE else text
            )
        if node.op in _COMPARE:
            t = self.common_type(node.args)
            return f"{self.arg(node.args[0], t)} {_COMPARE[node.op]} {self.arg(node.args[1], t)}"
        if node.op in ("isnan", "isinf"):
            return self._special(node)
        if node.op == "not":
            return f"!{self.arg(node.args[0], DType.BOOL)}"
        if node.op == "select":
            c, a, b = (
                self.arg(node.args[0], DType.BOOL),
                self.arg(node.args[1], dtype),
                self.arg(node.args[2], dtype),
            )
            return f"{c} ? {a} : {b}"
        if node.op == "primitive":
            return c_scalar.primitive_text(node, [self.arg(a, dtype) for a in node.args])
        return self._float(node, dtype) if dtype.is_float else self._whole(node, dtype)

    def _special(self, node: Scalar) -> str:
        t = self.common_type(node.args)
        if not t.is_float:
            return "0"
        x = self.arg(node.args[0], t)
        return f"{x} != {x}" if node.op == "isnan" else f"__builtin_isinf({x}) != 0"

    def _float(self, node: Scalar, dtype: DType) -> str:
        args = [self.arg(a, dtype) for a in node.args]
        suffix = "" if dtype is DType.FP64 else "f"
        if node.op in ("add", "sub", "mul", "div"):
            return f"{args[0]} {_INFIX[node.op]} {args[1]}"
        if node.op in c_scalar.LIBM or node.op in ("pow", "fmod"):
            return f"{node.op}{suffix}({', '.join(args)})"
        text = {
            "neg": "-{0}",
            "abs": f"fabs{suffix}({{0}})",
            "rsqrt": f"1.0{suffix} / sqrt{suffix}({{0}})",
            "round": f"rint{suffix}({{0}})",
            "min": "TX_MIN({0}, {1})",
            "max": "TX_MAX({0}, {1})",
            "mod": f"tx_mod_{'double' if dtype is DType.FP64 else 'float'}({{0}}, {{1}})",
        }.get(node.op)
        if text is None:
            raise unknown(node, dtype)
        return text.format(*args)

    def _whole(self, node: Scalar, dtype: DType) -> str:
        if dtype is DType.BOOL:
            if node.op not in _LOGIC:
                raise unknown(node, dtype)
            return (
                f"{self.arg(node.args[0], dtype)} {_LOGIC[node.op]} {self.arg(node.args[1], dtype)}"
            )
        own = c_text.ctype(dtype)
        if node.op == "pow":
            base, power = (self.arg(a, DType.FP64) for a in node.args)
            return f"({own})pow({base}, {power})"
        if node.op in ("min", "max"):
            a, b = (self._bound(x, dtype) for x in node.args)
            return f"TX_{node.op.upper()}({a}, {b})"
        return self._int(node, dtype, [self.arg(a, dtype) for a in node.args])

    def _int(self, node: Scalar, dtype: DType, args: list[str]) -> str:
        own = c_text.ctype(dtype)
        if node.op in ("div", "mod", "fmod", "shl", "shr"):
            return f"tx_{node.op}_{dtype.value}({args[0]}, {args[1]})"
        if node.op in _INFIX:
            return f"({own})({args[0]} {_INFIX[node.op]} {args[1]})"
        if node.op in _WHOLE:
            return args[0]
        text = {
            "neg": "({1})(0 - {0})",
            "abs": "({1})({0} < 0 ? 0 - {0} : {0})",
            "bitnot": "({1})~{0}",
        }.get(node.op)
        if text is None:
            raise unknown(node, dtype)
        return text.format(args[0], own)

    def _bound(self, node: Scalar, dtype: DType) -> str:
        """An argument of min or max: a constant out of the dtype's range is the range's end."""
        value = self.value(node)
        return self.arg(node, dtype) if value is None else int_literal(value, dtype, saturate=True)
