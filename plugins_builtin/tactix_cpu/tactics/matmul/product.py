"""What a MatMul or Gemm node computes, apart from how: sizes, batch axes, operands, and where
results go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tactix.base.dims import Dim, Shape, broadcast_shapes, ceildiv, prod
from tactix.base.dtypes import DType
from tactix.base.errors import ShapeError
from tactix.contracts.artifact import Packed
from tactix.contracts.expr import Scalar
from tactix.contracts.graph import Node
from tactix.contracts.tactic import Reject
from tactix_codegen.c.epilogue import Epilogue, EpilogueOperand, epilogue
from tactix_codegen.c.text import Args, broadcast_strides, load, running_strides, splat, store
from tactix_codegen.c.tile import mapped, row_offset, with_term

_NAMES = {DType.FP32: "float32", DType.FP64: "float64"}


@dataclass(frozen=True)
class CpuProduct:
    """``y[i, m, n] = epilogue(sum over k of a[i, m, k] b[i, k, n])`` for every index i over
    ``batch``.

    ``a``, ``b``: given inputs. ``a_batch``, ``b_batch``: their strides along ``batch``, in
    matrices. ``b_count``: matrices in b. ``transposed_a``: a is stored (k, m); ``transposed_b``: b
    is stored (n, k). ``lead``: the axes that the rows of y flatten, batch first; ``epi`` has
    operand strides along ``(*lead, n)``.
    """

    node: Node
    a: int
    b: int
    batch: Shape
    a_batch: Shape
    b_batch: Shape
    b_count: Dim
    m: Dim
    n: Dim
    k: Dim
    lead: Shape
    transposed_a: bool
    transposed_b: bool
    constant_b: bool
    epi: Epilogue

    @property
    def rows(self) -> Dim:
        """Rows of y, batch included."""
        return prod(self.lead)

    def pack_b(self, width: int, depth: int = 0) -> Packed:
        """A constant b as panels: (matrices, panels, k or ``depth``, width), zero past column n and
        past row k.

        A tile reads its panel front to back, so that the processor fetches ahead, and needs one
        pointer; zeros spare it borders.
        """
        n, k, count = (int(d) for d in (self.n, self.k, self.b_count))  # type: ignore[arg-type]
        panels, deep = int(ceildiv(n, width)), max(depth, k)  # type: ignore[arg-type]
        wide, high = (0, panels * width - n), (0, deep - k)
        if self.transposed_b:
            steps: tuple[tuple[str, Any], ...] = (
                ("reshape", (count, n, k)),
                ("pad", ((0, 0), wide, high)),
                ("reshape", (count, panels, width, deep)),
                ("transpose", (0, 1, 3, 2)),
            )
        else:
            steps = (
                ("reshape", (count, k, n)),
                ("pad", ((0, 0), high, wide)),
                ("reshape", (count, deep, panels, width)),
                ("transpose", (0, 2, 1, 3)),
            )
        return Packed(self.b, steps)


def product(
    node: Node, dtypes: Sequence[DType] = (DType.FP32,), vector: bool = True
) -> CpuProduct | Reject:
    """The product that a MatMul or Gemm node, fused or not, is; or why kernels cannot take it.

    ``dtypes``: those that all operands may have; ``vector``: as ``epilogue`` takes it.
    """
    epi = epilogue(node, vector)
    if isinstance(epi, Reject):
        return epi
    anchor = node.anchor
    assert anchor is not None
    inputs = (*anchor.inputs, -1)[:3]
    a, b, bias = (node.given[i].spec if i >= 0 else None for i in inputs)
    assert a is not None
    assert b is not None
    if any(
        s is not None and (s.dtype not in dtypes or s.dtype is not a.dtype) for s in (a, b, bias)
    ):
        return Reject(f"these kernels take {' or '.join(_NAMES.get(t, t.value) for t in dtypes)}")
    try:
        if anchor.layer.key.startswith("tactix.Gemm@"):
            c = (
                EpilogueOperand(inputs[2], bias.dtype, bias.shape, (), False)
                if bias is not None
                else None
            )
            return _gemm(node, anchor.attrs, inputs, _scaled(epi, anchor.attrs, c))
        return matrix_product(node, inputs, epi)
    except ShapeError as e:
        return Reject(str(e))


def _scaled(epi: Epilogue, attrs: Any, c: EpilogueOperand | None) -> Epilogue:
    """The epilogue of ``alpha y + beta c``."""
    if c is not None:
        term = replace(c, strides=broadcast_strides(c.shape, epi.shape))

        def combine(y: Scalar, t: Scalar) -> Scalar:
            scaled = y if attrs.alpha == 1 else y * attrs.alpha
            return scaled + (t if attrs.beta == 1 else t * attrs.beta)

        return with_term(epi, term, combine)
    if attrs.alpha == 1:
        return epi
    return mapped(epi, lambda y: y * attrs.alpha)


def _gemm(node: Node, attrs: Any, inputs: Sequence[int], epi: Epilogue) -> CpuProduct:
    a, b = (node.given[i].spec for i in inputs[:2])
    m, k = a.shape[::-1] if attrs.transA else a.shape
    depth, n = b.shape[::-1] if attrs.transB else b.shape
    return CpuProduct(
        node,
        inputs[0],
        inputs[1],
        (),
        (),
        (),
        1,
        m,
        n,
        _known(k, depth),
        (m,),
        bool(attrs.transA),
        bool(attrs.transB),
        b.is_const,
        epi,
    )


def matrix_product(node: Node, inputs: Sequence[int], epi: Epilogue) -> CpuProduct:
    """The product ``a @ b`` of given inputs, of whatever dtypes. Raises ShapeError."""
    a, b = (node.given[i].spec for i in inputs[:2])
    left: Shape = a.shape if a.rank > 1 else (1, *a.shape)
    right: Shape = b.shape if b.rank > 1 else (*b.shape, 1)
    epi = _with_axes(epi, a.rank == 1, b.rank == 1)
    m, n, k = left[-2], right[-1], _known(left[-1], right[-2])
    batch = broadcast_shapes(left[:-2], right[:-2])
    a_batch, b_batch = running_strides(left[:-2], batch), running_strides(right[:-2], batch)
    lead, count = (*batch, m), prod(right[:-2])
    if (
        all(s == 0 for s in b_batch) and left[:-2] == batch
    ):  # one b for all: the rows of a are one matrix
        batch, a_batch, b_batch, m = (), (), (), prod(lead)
    return CpuProduct(
        node,
        inputs[0],
        inputs[1],
        batch,
        a_batch,
        b_batch,
        count,
        m,
        n,
        k,
        lead,
        False,
        False,
        b.is_const,
        epi,
    )


def _known(k: Dim, depth: Dim) -> Dim:
    return k if isinstance(k, int) else depth


def _with_axes(epi: Epilogue, row: bool, column: bool) -> Epilogue:
    """Operand strides along the axes that vectors lack."""
    if not row and not column:
        return epi

    def full(strides: Shape) -> Shape:
        inner = strides if column else strides[:-1]
        outer = () if column else strides[-1:]
        return (*inner, *((0,) * row), *outer, *((0,) * column))

    return replace(
        epi, operands={v: replace(o, strides=full(o.strides)) for v, o in epi.operands.items()}
    )


@dataclass(frozen=True)
class RowSite:
    """Results in rows of n elements, ``lead`` the axes that rows flatten. Implements
    c_tile.TileSite.

    The tile starts at the C variables ``row`` and ``col``.
    """

    args: Args
    lead: Shape
    n: Dim
    lanes: int
    left: str

    def place(self, operand: EpilogueOperand, row: str, vector: int, count: str) -> str:
        lead, last = operand.strides[:-1], operand.strides[-1]
        pointer = self.args.sum(
            self.args.input(operand.index), row_offset(self._row(row), self.lead, lead, self.args)
        )
        if last == 0:
            return splat(operand.dtype, pointer)
        return load(operand.dtype, self.args.sum(pointer, "col", str(vector * self.lanes)), count)

    def put(self, output: int, dtype: DType, value: str, row: str, vector: int, count: str) -> str:
        start = f"{self._row(row)} * {self.args.size('N', self.n)}"
        place = self.args.sum(self.args.output(output), start, "col", str(vector * self.lanes))
        return store(dtype, place, value, count)

    def _row(self, row: str) -> str:
        return "row" if row == "0" else f"(row + {row})"
