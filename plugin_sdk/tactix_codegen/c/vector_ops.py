"""The C vector table of the scalar vocabulary: float32 in ``vf``, int32 and narrower in ``vi``,
bool in ``vm``.
"""

from __future__ import annotations

import math

from tactix.base.dtypes import DType
from tactix.contracts.expr import Scalar
from tactix_codegen.c import scalar as c_scalar
from tactix_codegen.c.scalar import (
    VECTOR_INTS,
    CannotEmit,
    Emitter,
    float_literal,
    int_literal,
    unknown,
)

_KINDS = {DType.FP32: "vf", DType.BOOL: "vm", **dict.fromkeys(VECTOR_INTS, "vi")}
_FLOAT_CALLS = c_scalar.LIBM | {"rsqrt", "round", "abs", "neg", "fmod", "mod", "pow", "min", "max"}
_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_BITS = {"bitand": "&", "bitor": "|", "bitxor": "^"}
_LOGIC = {
    "and": "&",
    "or": "|",
    "xor": "^",
    "add": "|",
    "mul": "&",
    "min": "&",
    "max": "|",
    **_BITS,
}
_COMPARE = {"lt": "tx_lt", "le": "tx_le", "eq": "tx_eq"}
_POWERS = {
    0.0: "tx_splat(1.0f)", 1.0: "{x}", 2.0: "{x} * {x}", 3.0: "{x} * {x} * {x}",
    4.0: "({x} * {x}) * ({x} * {x})", 0.5: "tx_sqrt({x})", -0.5: "tx_rsqrt({x})",
    -1.0: "1.0f / {x}", -2.0: "1.0f / ({x} * {x})",
}  # fmt: skip


class VectorEmitter(Emitter):
    """Vectors of ``TX_LANES`` elements; narrow integers lie widened in 32 bits."""

    def variable_type(self, dtype: DType) -> DType:
        wide = c_scalar.known_dtype(dtype)
        if wide not in _KINDS:
            raise CannotEmit(f"no vectors of {dtype.value}")
        return wide

    def c_type(self, dtype: DType) -> str:
        return _KINDS[dtype]

    def literal(self, value: float, dtype: DType) -> str:
        if dtype is DType.FP32:
            return f"tx_splat({float_literal(value)})"
        if dtype is DType.BOOL:
            return f"tx_splat_m({int(bool(value))})"
        return f"tx_splat_i({int_literal(value, dtype)})"

    def convert(self, text: str, source: DType, target: DType) -> str:
        if DType.FP64 in (source, target):
            raise CannotEmit("no vectors of f64")
        kinds = (_KINDS[source], _KINDS[target])
        if kinds == ("vi", "vi"):
            return _wrap(text, target) if target.bits < 32 else text
        return {
            ("vf", "vi"): f"tx_to_i({text})",
            ("vi", "vf"): f"tx_to_f({text})",
            ("vm", "vf"): f"tx_select({text}, tx_splat(1.0f), tx_zero())",
            ("vm", "vi"): f"tx_mask_i({text})",
            ("vf", "vm"): f"tx_not(tx_eq({text}, tx_zero()))",
            ("vi", "vm"): f"tx_truth({text})",
        }[kinds]

    def result(self, node: Scalar, dtype: DType) -> str:
        """Storing rounds to 16 bits."""
        rounded = node.op == "cast" and node.dtype is dtype and dtype in c_scalar.WIDE
        return super().result(node.args[0] if rounded else node, dtype)

    def operation(self, node: Scalar, dtype: DType) -> str:
        if node.op == "cast":
            return self._cast(node, dtype)
        if node.op in ("lt", "le", "eq", "isnan", "isinf"):
            return self._comparison(node)
        if node.op == "not":
            return f"tx_not({self.arg(node.args[0], DType.BOOL)})"
        if node.op == "select":
            return self._select(node, dtype)
        if node.op == "primitive":
            return self._primitive(node, dtype)
        return {"vf": self._float, "vi": self._int, "vm": self._bool}[_KINDS[dtype]](node, dtype)

    def _cast(self, node: Scalar, dtype: DType) -> str:
        text = self.arg(node.args[0], dtype)
        return f"tx_as_{node.dtype.value}({text})" if node.dtype in c_scalar.WIDE else text

    def _comparison(self, node: Scalar) -> str:
        t = self.common_type(node.args)
        if t not in _KINDS:
            raise CannotEmit(f"no vectors of {t.value}")
        args = ", ".join(self.arg(a, t) for a in node.args)
        kind = _KINDS[t]
        if node.op in ("isnan", "isinf"):
            return f"tx_{node.op}({args})" if kind == "vf" else "tx_splat_m(0)"
        if kind == "vm":
            if node.op != "eq":
                raise unknown(node, t)
            return f"tx_not({args.replace(', ', ' ^ ')})"
        return f"{_COMPARE[node.op]}{'_i' if kind == 'vi' else ''}({args})"

    def _select(self, node: Scalar, dtype: DType) -> str:
        c, a, b = (
            self.arg(node.args[0], DType.BOOL),
            self.arg(node.args[1], dtype),
            self.arg(node.args[2], dtype),
        )
        if dtype is DType.BOOL:
            return f"(vm)(({c} & {a}) | (tx_not({c}) & {b}))"
        return f"tx_select{'' if dtype is DType.FP32 else '_i'}({c}, {a}, {b})"

    def _float(self, node: Scalar, dtype: DType) -> str:
        if node.op in _INFIX:
            return self._infix(node)
        if node.op == "pow" and (form := _POWERS.get(self.values.get(id(node.args[1]), math.nan))):
            return form.format(x=self.arg(node.args[0], dtype))
        if node.op in ("min", "max"):
            return self._extreme(node)
        if node.op not in _FLOAT_CALLS:
            raise unknown(node, dtype)
        return f"tx_{node.op}({', '.join(self.arg(a, dtype) for a in node.args)})"

    def _infix(self, node: Scalar) -> str:
        a, b = node.args
        if (other := self._beside_one(node)) is not None and other.op == "erf":
            return f"tx_erf_plus1({self.arg(other.args[0], DType.FP32)})"
        if node.op == "div" and (other := self._beside_one(b)) is not None and other.op == "exp":
            return self._logistic(a, other.args[0])
        left, right = (
            self.arg(x, DType.FP32) if (v := self.value(x)) is None else float_literal(v)
            for x in (a, b)
        )
        return f"{left} {_INFIX[node.op]} {right}"

    def _beside_one(self, node: Scalar) -> Scalar | None:
        """What is added to one."""
        pairs = (node.args, node.args[::-1]) if node.op == "add" else ()
        return next((other for one, other in pairs if self.value(one) == 1), None)

    def _logistic(self, a: Scalar, exponent: Scalar) -> str:
        """``a / (1 + exp(exponent))`` without a division."""
        negated = exponent.op == "neg"
        y = self.arg(exponent.args[0] if negated else exponent, DType.FP32)
        text = f"tx_sigmoid({y if negated else f'tx_neg({y})'})"
        return text if self.value(a) == 1 else f"{self.arg(a, DType.FP32)} * {text}"

    def _extreme(self, node: Scalar) -> str:
        a, b = node.args
        if self.value(a) is not None:
            a, b = b, a
        bound = not math.isnan(self.values.get(id(b), math.nan))
        args = f"{self.arg(a, DType.FP32)}, {self.arg(b, DType.FP32)}"
        return f"tx_{node.op}{'_c' if bound else ''}({args})"

    def _int(self, node: Scalar, dtype: DType) -> str:
        if node.op in ("min", "max"):
            args = (
                self.arg(a, dtype)
                if (v := self.value(a)) is None
                else f"tx_splat_i({int_literal(v, dtype, True)})"
                for a in node.args
            )
            return f"tx_{node.op}_i({', '.join(args)})"
        if node.op in ("floor", "ceil", "round", "trunc"):
            return self.arg(node.args[0], dtype)
        args_ = [self.arg(a, dtype) for a in node.args]
        if node.op in _BITS:
            return f"{args_[0]} {_BITS[node.op]} {args_[1]}"
        if dtype is not DType.INT32:
            raise unknown(node, dtype)
        if node.op in ("add", "sub", "mul"):
            return f"{args_[0]} {_INFIX[node.op]} {args_[1]}"
        if node.op == "pow" and self._is_whole(node.args[1]):
            return f"tx_pow_i({', '.join(args_)})"
        if node.op in ("neg", "bitnot"):
            return f"{'-' if node.op == 'neg' else '~'}{args_[0]}"
        raise unknown(node, dtype)

    def _is_whole(self, node: Scalar) -> bool:
        """Whether an argument of any dtype is an integer of 32 bits."""
        value = self.value(node)
        if value is None:
            return self.types[id(node)] in VECTOR_INTS
        return c_scalar.fits(value, DType.INT32)

    def _bool(self, node: Scalar, dtype: DType) -> str:
        if node.op not in _LOGIC:
            raise unknown(node, dtype)
        a, b = (self.arg(x, DType.BOOL) for x in node.args)
        return f"(vm)({a} {_LOGIC[node.op]} {b})"

    def _primitive(self, node: Scalar, dtype: DType) -> str:
        if dtype is not DType.FP32:
            raise unknown(node, dtype)
        args = [self.arg(a, dtype) for a in node.args]
        lanes = [f"tx_a{i}[tx_l]" for i in range(len(args))]
        copies = "".join(f" const vf tx_a{i} = {a};" for i, a in enumerate(args))
        each = f"tx_r[tx_l] = {c_scalar.primitive_text(node, lanes)};"
        body = f"for (int tx_l = 0; tx_l < TX_LANES; tx_l++) {each}"
        return f"({{{copies} vf tx_r; {body} tx_r; }})"


def _wrap(text: str, dtype: DType) -> str:
    """The low bits of int32 lanes as a narrower integer."""
    if dtype.is_signed_int:
        return f"(({text} << {32 - dtype.bits}) >> {32 - dtype.bits})"
    return f"({text} & {(1 << dtype.bits) - 1})"
