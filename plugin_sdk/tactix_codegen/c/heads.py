"""What an Attention or TokenAttention node computes, apart from how: where the matrices of each
head lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tactix.base.dims import Dim, Shape, broadcast_shapes
from tactix.base.dtypes import DType
from tactix.base.errors import ShapeError
from tactix.base.tensor import TensorSpec
from tactix.contracts.graph import Node
from tactix.contracts.tactic import Reject
from tactix_codegen.c.epilogue import Epilogue, epilogue
from tactix_codegen.c.text import Args, broadcast_strides, contiguous_strides
from tactix_codegen.c.tile import row_offset

LAYERS = ("tactix.Attention@1", "tactix.TokenAttention@1")


@dataclass(frozen=True)
class Matrices:
    """One matrix for each of ``count`` = (batch, heads): its element (row, column) of batch b and
    head h is, in given input ``index``, at ``start + b strides[0] + h strides[1] + row pitch +
    column``. It may have fewer heads than the node: as many of those, side by side, share each.
    """

    index: int
    count: Shape
    strides: Shape
    pitch: Dim
    start: int = 0

    def pointer(self, args: Args, item: str, count: Shape) -> str:
        """C text of where the matrix of the row-major ``item`` over ``count``, which share these,
        begins.
        """
        place = self.offset(args, item if item.isidentifier() else f"({item})", count, self.strides)
        return args.sum(args.input(self.index), str(self.start), place)

    def offset(self, args: Args, item: str, count: Shape, strides: Shape) -> str:
        """C text of where that matrix begins among matrices with those strides of batch and
        head.
        """
        own = tuple(0 if n == 1 else s for n, s in zip(self.count, strides, strict=True))
        sharing = self.sharing(count)
        if sharing == 1:
            return row_offset(item, count, own, args)
        return row_offset(item, (count[0], self.count[1], sharing), (*own, 0), args)

    def sharing(self, count: Shape) -> int:
        """Heads of ``count``, side by side, that share one of several here."""
        heads, own = count[1], self.count[1]
        if own in (1, heads):
            return 1
        assert isinstance(heads, int)
        assert isinstance(own, int)
        return heads // own


@dataclass(frozen=True)
class Heads:
    """q: s rows of d, k: t rows of d, v: t rows of e, for each of ``lead`` = (batch, heads), which
    may share those of k and v.

    ``mask``: given input, or -1, with its strides along (batch, heads, s, t). ``tokens``: results
    lie in rows of all heads, (batch, s, heads e), not in matrices (batch, heads, s, e).
    """

    node: Node
    q: Matrices
    k: Matrices
    v: Matrices
    mask: int
    mask_strides: Shape
    lead: Shape
    s: Dim
    t: Dim
    d: int
    e: int
    scale: float
    nan_to_zero: bool
    tokens: bool
    dtype: DType
    epi: Epilogue

    @property
    def rows(self) -> Shape:
        """Axes that rows of results flatten."""
        return (self.lead[0], self.s) if self.tokens else (*self.lead, self.s)

    @property
    def width(self) -> int:
        """Elements of a row of results."""
        return int(self.lead[1]) * self.e if self.tokens else self.e  # type: ignore[arg-type]

    def place(self, args: Args, item: str, row: str) -> tuple[str, str]:
        """C text of the row of results, and of the first column, of a head's query ``row``."""
        s = args.size("S", self.s)
        if not self.tokens:
            return f"{item} * {s} + {row}", "0"
        heads = args.size("HEADS", self.lead[1])
        return f"{item} / {heads} * {s} + {row}", f"{item} % {heads} * {self.e}"


def heads(
    node: Node, dtypes: Sequence[DType], most: int, vector: bool = True, first_keys: bool = False
) -> Heads | Reject:
    """Of a node, fused or not; or why a kernel for these dtypes and dims up to ``most`` cannot take
    it.

    ``vector``: as for ``epilogue``. ``first_keys``: whether the kernel reads keys and values by
    their strides alone, so that they may have more rows than count.
    """
    epi, anchor = epilogue(node, vector), node.anchor
    if isinstance(epi, Reject):
        return epi
    assert anchor is not None
    q, k, v, *masks = (node.given[i].spec for i in anchor.inputs if i >= 0)
    if len({x.dtype for x in (q, k, v)}) != 1 or q.dtype not in dtypes:
        return Reject(f"this kernel takes {' and '.join(t.value for t in dtypes)}")
    tokens = anchor.layer.key == LAYERS[1]
    if not tokens and anchor.attrs.keys is not None and not first_keys:
        return Reject("this kernel reads all keys")
    found = (_tokens if tokens else _matrices)(anchor, q, k, v)
    if isinstance(found, Reject):
        return found
    lead, s, t, d, e, parts = found
    if not isinstance(d, int) or not isinstance(e, int) or not 0 < d <= most or not 0 < e <= most:
        return Reject(f"this kernel takes known dims up to {most}")
    try:
        mask: Shape = broadcast_strides(masks[0].shape, (*lead, s, t)) if masks else (0, 0, 0, 0)
    except ShapeError as problem:
        return Reject(str(problem))
    a, at = anchor.attrs, anchor.inputs[3] if masks else -1
    return Heads(
        node, *parts, at, mask, lead, s, t, d, e, a.scale, a.nan_to_zero, tokens, q.dtype, epi
    )


Found = tuple[Shape, Dim, Dim, Dim, Dim, tuple[Matrices, Matrices, Matrices]]


def _matrices(anchor: Any, q: TensorSpec, k: TensorSpec, v: TensorSpec) -> Found | Reject:
    """lead, s, t, d, e and q, k, v of (batch, heads, sequence, dim)."""

    def dense(index: int, x: TensorSpec) -> Matrices:
        strides = contiguous_strides(x.shape)
        return Matrices(index, x.shape[:2], strides[:2], strides[2])

    d = q.shape[3] if isinstance(q.shape[3], int) else k.shape[3]
    t = k.shape[2] if isinstance(k.shape[2], int) else v.shape[2]
    t = t if anchor.attrs.keys is None else anchor.attrs.keys
    try:
        (batch,) = broadcast_shapes(*(x.shape[:1] for x in (q, k, v)))
        heads = q.shape[1]
        if not all(_shares(x.shape[1], heads) for x in (k, v)):
            (heads,) = broadcast_shapes(*(x.shape[1:2] for x in (q, k, v)))
            for x in (q, k, v):
                broadcast_strides(x.shape[1:2], (heads,))
        for x in (q, k, v):
            broadcast_strides(x.shape[:1], (batch,))
    except ShapeError as problem:
        return Reject(str(problem))
    of_q, of_k, of_v = (dense(i, x) for i, x in zip(anchor.inputs[:3], (q, k, v), strict=True))
    return (batch, heads), q.shape[2], t, d, v.shape[3], (of_q, of_k, of_v)


def _shares(own: Dim, heads: Dim) -> bool:
    """Whether so many heads of q share each of so many of keys or values."""
    known = isinstance(own, int) and isinstance(heads, int) and own > 0
    return own == heads or (known and heads % own == 0)


def _tokens(anchor: Any, q: TensorSpec, k: TensorSpec, v: TensorSpec) -> Found | Reject:
    """lead, s, t, d, e and q, k, v of heads side by side in rows of tokens."""
    a = anchor.attrs

    def side_by_side(index: int, x: TensorSpec, part: tuple[int, int], start: int) -> Matrices:
        (heads, width), (batch, rows, pitch) = part, x.shape
        return Matrices(index, (batch, heads), (rows * pitch, width), pitch, start)

    t = k.shape[1] if isinstance(k.shape[1], int) else v.shape[1]
    of_q, of_k, of_v = (
        side_by_side(i, x, p, c)
        for i, x, p, c in zip(anchor.inputs[:3], (q, k, v), a.parts, a.columns, strict=True)
    )
    return (q.shape[0], a.heads), q.shape[1], t, a.dim, a.value_dim, (of_q, of_k, of_v)
