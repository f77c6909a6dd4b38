"""Epilogues that libraries know: ``activation(alpha y + bias + beta c)``, seen in a node's
expression.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tactix.base.dtypes import DType
from tactix.contracts import expr
from tactix.contracts.attrs import decode_fields
from tactix.contracts.expr import Scalar
from tactix_codegen.c.epilogue import Epilogue, EpilogueOperand


@dataclass(frozen=True)
class FoldedEpilogue:
    """``bias``: an operand with one element for each column; ``residual``: one with the shape of
    the result.

    ``activation``: empty, ``relu``, or ``gelu`` by tanh.
    """

    alpha: float = 1.0
    beta: float = 0.0
    bias: EpilogueOperand | None = None
    residual: EpilogueOperand | None = None
    activation: str = ""


def folded(epi: Epilogue, out: DType) -> FoldedEpilogue | str:
    """The epilogue in these terms for a single result of dtype ``out``, or why it is none.

    What is computed between is not rounded to 16 bits, as libraries do not.
    """
    if len(epi.results) != 1:
        return "there are several results"
    activation, inner = _activation(_plain(epi.results[0], out))
    sums = _terms(inner)
    if sums is None:
        return "it is no sum followed by relu or gelu by tanh"
    found = FoldedEpilogue(activation=activation)
    for variable, factor in sums.items():
        added = _with(found, epi, variable, factor, out)
        if isinstance(added, str):
            return added
        found = added
    return found if any(v in epi.accumulators for v in sums) else "the product is not part of it"


def _with(
    f: FoldedEpilogue, epi: Epilogue, variable: int, factor: float, out: DType
) -> FoldedEpilogue | str:
    if variable in epi.accumulators:
        return FoldedEpilogue(factor, f.beta, f.bias, f.residual, f.activation)
    o = epi.operands[variable]
    if o.is_full and o.dtype is out and f.residual is None:
        return FoldedEpilogue(f.alpha, factor, f.bias, o, f.activation)
    is_row = o.strides[-1:] == (1,) and not any(o.strides[:-1]) and factor == 1.0
    if is_row and f.bias is None and o.dtype.is_float:
        return FoldedEpilogue(f.alpha, f.beta, o, f.residual, f.activation)
    return "it adds more than a row and a tensor of the result's shape and dtype"


def _plain(s: Scalar, out: DType) -> Scalar:
    while s.op == "cast" and s.dtype is out:
        s = s.args[0]
    return s


def _activation(s: Scalar) -> tuple[str, Scalar]:
    """The name of what is done last, and to what."""
    from tactix_ops.layers.activation import gelu

    if s.op == "max":
        a, b = s.args
        for zero, inner in ((a, b), (b, a)):
            if zero.op == "const" and zero.value == 0:
                return "relu", inner
    by_tanh = gelu.scalar(decode_fields(gelu.Attrs, {"approximate": "tanh"}), 1)
    inside = (t for t in expr.walk([s]) if expr.replace_vars(by_tanh, {0: t}) is s)
    return next((("gelu", t) for t in inside), ("", s))


def _terms(s: Scalar) -> Mapping[int, float] | None:
    """Factors by variable of a sum of variables; None if it is something else."""
    if s.op == "var":
        return {s.index: 1.0}
    if s.op == "cast" and s.dtype.is_float:
        return _terms(s.args[0])
    if s.op in ("add", "sub"):
        a, b = (_terms(x) for x in s.args)
        sign = 1.0 if s.op == "add" else -1.0
        return (
            None
            if a is None or b is None or a.keys() & b.keys()
            else {**a, **{v: sign * f for v, f in b.items()}}
        )
    if s.op in ("mul", "div"):
        return _scaled(s)
    return None


def _scaled(s: Scalar) -> Mapping[int, float] | None:
    a, b = s.args
    if a.op == "const" and s.op == "mul":
        a, b = b, a
    inner = _terms(a)
    if b.op != "const" or inner is None:
        return None
    factor = 1.0 / float(b.number) if s.op == "div" else float(b.number)
    return {v: f * factor for v, f in inner.items()}
