"""What a MatMul, WideMatMul or Gemm node computes on a GPU: where matrices lie, how they repeat,
where results go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tactix.base.dims import Dim, Shape, broadcast_shapes, ceildiv, prod
from tactix.base.dtypes import DType
from tactix.base.errors import ShapeError
from tactix.contracts.artifact import Packed
from tactix.contracts.graph import Node
from tactix.contracts.tactic import Reject
from tactix_codegen.c.epilogue import Epilogue, EpilogueOperand, epilogue
from tactix_codegen.c.text import broadcast_strides
from tactix_codegen.c.tile import mapped, with_term


@dataclass(frozen=True)
class Matrix:
    """A given input as matrices: ``strides`` along the batch axes count matrices; ``count`` of them
    are stored.

    ``turned``: stored with the summed axis first (of a), or last (of b): (k, m), or (n, k).
    """

    index: int
    strides: Shape
    count: Dim
    turned: bool
    is_const: bool


@dataclass(frozen=True)
class CudaProduct:
    """``y[i, m, n] = epi(sum over k of a[i, m, k] b[i, k, n])`` for every i over ``batch``; dtype
    of a and b.

    ``lead``: the axes that the rows of y flatten, batch first; ``epi`` has operand strides along
    ``(*lead, n)``.
    """

    node: Node
    a: Matrix
    b: Matrix
    batch: Shape
    m: Dim
    n: Dim
    k: Dim
    lead: Shape
    dtype: DType
    epi: Epilogue

    @property
    def can_pack(self) -> bool:
        """Whether b is constant, so that the build can lay it out."""
        return self.b.is_const and isinstance(self.n, int) and isinstance(self.k, int)

    def pack_b(self, cols: int, depth: int) -> Packed:
        """A constant b as (matrices, panels of ``cols``, stages of ``depth``, cols, depth), zero
        outside.
        """
        n, k, count = (int(d) for d in (self.n, self.k, self.b.count))  # type: ignore[arg-type]
        panels, stages = int(ceildiv(n, cols)), int(ceildiv(k, depth))  # type: ignore[arg-type]
        wide, deep = (0, panels * cols - n), (0, stages * depth - k)
        if self.b.turned:
            steps: tuple[tuple[str, Any], ...] = (
                ("reshape", (count, n, k)),
                ("pad", ((0, 0), wide, deep)),
                ("reshape", (count, panels, cols, stages, depth)),
                ("transpose", (0, 1, 3, 2, 4)),
            )
        else:
            steps = (
                ("reshape", (count, k, n)),
                ("pad", ((0, 0), deep, wide)),
                ("reshape", (count, stages, depth, panels, cols)),
                ("transpose", (0, 3, 1, 4, 2)),
            )
        return Packed(self.b.index, steps)


def product(node: Node) -> CudaProduct | Reject:
    """The product of the node, fused or not; or why these kernels cannot take it."""
    epi, anchor = epilogue(node, vector=False), node.anchor
    if isinstance(epi, Reject):
        return epi
    assert anchor is not None
    indices = (*anchor.inputs, -1)[:3]
    a, b = (node.given[i].spec for i in indices[:2])
    if a.dtype is not b.dtype and anchor.layer.name != "IntegerMatMul":
        return Reject("the matrices have two dtypes")
    if any(d == 0 for d in (*a.shape, *b.shape)):
        return Reject("a matrix is empty")
    try:
        if anchor.layer.name == "Gemm":
            return _gemm(node, indices, _with_c(node, epi, indices[2], anchor.attrs))
        return _matmul(node, indices, _with_c(node, epi, indices[2], None))
    except ShapeError as e:
        return Reject(str(e))


def _with_c(node: Node, epi: Epilogue, index: int, attrs: Any) -> Epilogue:
    """The epilogue of ``alpha y + beta c``. Raises ShapeError where c may or may not broadcast."""
    alpha, beta = (attrs.alpha, attrs.beta) if attrs is not None else (1, 1)
    scaled = epi if alpha == 1 else mapped(epi, lambda y: y * alpha)
    if index < 0:
        return scaled
    c = node.given[index].spec
    term = EpilogueOperand(
        index, c.dtype, c.shape, broadcast_strides(c.shape, epi.shape), c.shape == epi.shape
    )

    def combine(y: Any, t: Any) -> Any:
        return (y if alpha == 1 else y * alpha) + (t if beta == 1 else t * beta)

    return with_term(epi, term, combine)


def _gemm(node: Node, indices: Sequence[int], epi: Epilogue) -> CudaProduct:
    assert node.anchor is not None
    attrs, (a, b) = node.anchor.attrs, (node.given[i].spec for i in indices[:2])
    m, k = a.shape[::-1] if attrs.transA else a.shape
    depth, n = b.shape[::-1] if attrs.transB else b.shape
    left = Matrix(indices[0], (), 1, bool(attrs.transA), a.is_const)
    right = Matrix(indices[1], (), 1, bool(attrs.transB), b.is_const)
    depth = k if isinstance(k, int) else depth
    return CudaProduct(node, left, right, (), m, n, depth, (m,), a.dtype, epi)


def _matmul(node: Node, indices: Sequence[int], epi: Epilogue) -> CudaProduct:
    a, b = (node.given[i].spec for i in indices[:2])
    left: Shape = a.shape if a.rank > 1 else (1, *a.shape)
    right: Shape = b.shape if b.rank > 1 else (*b.shape, 1)
    epi = _with_axes(epi, a.rank == 1, b.rank == 1)
    m, n, k = left[-2], right[-1], left[-1] if isinstance(left[-1], int) else right[-2]
    batch = broadcast_shapes(left[:-2], right[:-2])
    of_a, of_b = broadcast_strides(left[:-2], batch), broadcast_strides(right[:-2], batch)
    lead, turned = (*batch, m), b.rank == 1 or n == 1
    if (
        all(s == 0 for s in of_b) and left[:-2] == batch
    ):  # one b for all: the rows of a are one matrix
        batch, of_a, of_b, m = (), (), (), prod(lead)
    x = Matrix(indices[0], of_a, prod(left[:-2]), False, a.is_const)
    w = Matrix(indices[1], of_b, prod(right[:-2]), turned, b.is_const)
    return CudaProduct(node, x, w, batch, m, n, k, lead, a.dtype, epi)


def _with_axes(epi: Epilogue, row: bool, column: bool) -> Epilogue:
    """Operand strides along the axes that vectors lack."""

    def full(strides: Shape) -> Shape:
        kept, last = (strides, ()) if column else (strides[:-1], strides[-1:])
        return (*kept, *((0,) * row), *last, *((0,) * column))

    if not row and not column:
        return epi
    return replace(
        epi, operands={v: replace(o, strides=full(o.strides)) for v, o in epi.operands.items()}
    )
