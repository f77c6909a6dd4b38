"""Matrix products: MatMul, Gemm, Einsum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tactix.base.dims import Dim, Shape, broadcast, broadcast_shapes
from tactix.base.errors import InvalidArgument, ShapeError
from tactix.base.tensor import TensorSpec
from tactix.contracts.layer import Layer
from tactix_ops.layers import work
from tactix_ops.layers.common import (
    Array,
    Specs,
    one_dtype,
    optional,
    pick,
    required,
    same_dim,
    wide,
)


class MatMul(Layer):
    """``a @ b`` as numpy: (..., m, k) times (..., k, n), batch axes broadcast, a vector is a row or
    a column.
    """

    key = "tactix.MatMul@1"
    takes_epilogue = True
    imports = ("onnx:ai.onnx::MatMul",)

    def infer(self, attrs: Any, inputs: Specs) -> list[TensorSpec]:
        a, b = required(self, inputs, 2)
        one_dtype(self.key, a, b)
        return [TensorSpec(a.dtype, self.shape(a, b))]

    def shape(self, a: TensorSpec, b: TensorSpec) -> Shape:
        """Of the product, for operands of any dtypes. Raises ShapeError."""
        if not a.rank or not b.rank:
            raise ShapeError(f"{self.key} takes no scalars: {a} and {b}")
        left: Shape = a.shape if a.rank > 1 else (1, *a.shape)
        right: Shape = b.shape if b.rank > 1 else (*b.shape, 1)
        same_dim(left[-1], right[-2], self.key, f"the summed axis of {a} and {b}")
        rows, columns = left[-2:-1] * (a.rank > 1), right[-1:] * (b.rank > 1)
        return (*broadcast_shapes(left[:-2], right[:-2]), *rows, *columns)

    def operations(self, attrs: Any, inputs: Specs, outputs: list[TensorSpec]) -> Dim:
        return work.product(inputs, outputs)

    def reference(self, attrs: Any, *inputs: Array) -> tuple[Array, ...]:
        y = np.matmul(wide(inputs[0]), wide(inputs[1]))
        return (np.asarray(y).astype(inputs[0].dtype, copy=False),)


@dataclass(frozen=True)
class GemmAttrs:
    """Factors of the product and of ``c``; whether ``a`` and ``b`` are transposed first."""

    alpha: float = 1.0
    beta: float = 1.0
    transA: bool = False
    transB: bool = False


class Gemm(Layer):
    """``alpha a' b' + beta c``: a' (m, k), b' (k, n), c broadcast to (m, n) or absent."""

    key = "tactix.Gemm@1"
    takes_epilogue = True
    Attrs = GemmAttrs
    imports = ("onnx:ai.onnx::Gemm",)

    def infer(self, attrs: GemmAttrs, inputs: Specs) -> list[TensorSpec]:
        a, b = required(self, inputs, 2)
        one_dtype(self.key, a, b, optional(inputs, 2))
        if a.rank != 2 or b.rank != 2:
            raise ShapeError(f"{self.key} takes matrices, not {a} and {b}")
        m, k = a.shape[::-1] if attrs.transA else a.shape
        depth, n = b.shape[::-1] if attrs.transB else b.shape
        same_dim(k, depth, self.key, f"the summed axis of {a} and {b}")
        c = optional(inputs, 2)
        if c is not None:
            shape = broadcast_shapes((m, n), c.shape)
            if len(shape) != 2 or any(
                isinstance(p, int) and p != q for p, q in zip((m, n), shape, strict=True)
            ):
                raise ShapeError(f"{self.key}: c {c} does not broadcast to ({m}, {n})")
        return [TensorSpec(a.dtype, (m, n))]

    def operations(self, attrs: GemmAttrs, inputs: Specs, outputs: list[TensorSpec]) -> Dim:
        return work.product(inputs, outputs, 0 if attrs.transA else -1)

    def reference(self, attrs: GemmAttrs, *inputs: Array) -> tuple[Array, ...]:
        a, b, c = wide(inputs[0]), wide(inputs[1]), pick(inputs, 2)
        y = np.matmul(a.T if attrs.transA else a, b.T if attrs.transB else b)
        y = y * y.dtype.type(attrs.alpha) if attrs.alpha != 1 else y
        if c is not None:
            y = y + wide(c) * y.dtype.type(attrs.beta)
        return (y.astype(inputs[0].dtype, copy=False),)


@dataclass(frozen=True)
class EinsumAttrs:
    """``equation``: as numpy.einsum, ``...`` included; without ``->`` the letters that occur once,
    sorted.
    """

    equation: str = ""


class Einsum(Layer):
    """Einstein's summation over any number of tensors."""

    key = "tactix.Einsum@1"
    Attrs = EinsumAttrs
    imports = ("onnx:ai.onnx::Einsum",)

    def infer(self, attrs: EinsumAttrs, inputs: Specs) -> list[TensorSpec]:
        given = required(self, inputs, len(inputs))
        terms, out = parse_equation(attrs.equation)
        if len(terms) != len(given):
            raise InvalidArgument(f"{self.key}: {len(given)} tensors for {attrs.equation!r}")
        sizes: dict[str, Dim] = {}
        batch: Shape = ()
        for term, s in zip(terms, given, strict=True):
            before, after = _split(term)
            inner = s.rank - len(before) - len(after)
            if inner < 0 or (inner and "." not in term):
                raise ShapeError(f"{self.key}: {term!r} does not fit {s}")
            batch = broadcast_shapes(batch, s.shape[len(before) : len(before) + inner])
            axes = (*s.shape[: len(before)], *s.shape[len(before) + inner :])
            for letter, d in zip(before + after, axes, strict=True):
                sizes[letter] = broadcast(sizes.get(letter, 1), d)
        head, tail = _split(out)
        middle = batch if "." in out else ()
        return [
            TensorSpec(
                given[0].dtype, (*(sizes[c] for c in head), *middle, *(sizes[c] for c in tail))
            )
        ]

    def reference(self, attrs: EinsumAttrs, *inputs: Array) -> tuple[Array, ...]:
        terms, out = parse_equation(attrs.equation)
        equation = f"{','.join(terms)}->{out}".replace(".", "...")
        y = np.einsum(equation, *map(wide, inputs), optimize=len(inputs) > 1)
        return (np.asarray(y).astype(inputs[0].dtype, copy=False),)


def parse_equation(equation: str) -> tuple[list[str], str]:
    """Terms and result with ``...`` shortened to one dot. Raises InvalidArgument."""
    text = equation.replace(" ", "").replace("...", ".")
    left, arrow, out = text.partition("->")
    letters = left.replace(",", "").replace(".", "")
    if not arrow:
        out = "." * ("." in left) + "".join(
            sorted(c for c in set(letters) if letters.count(c) == 1)
        )
    if not all(c.isalpha() for c in letters) or not set(out) <= {*letters, "."}:
        do = "Write terms of letters, and a result of letters that they have"
        raise InvalidArgument(f"not an einsum equation: {equation!r}", do=do)
    if len(set(out)) != len(out):
        do = "Name each axis of the result once"
        raise InvalidArgument(f"not an einsum equation: {equation!r}", do=do)
    return left.split(","), out


def _split(term: str) -> tuple[str, str]:
    before, _, after = term.partition(".")
    return before, after


LAYERS: tuple[Layer, ...] = (MatMul(), Gemm(), Einsum())
