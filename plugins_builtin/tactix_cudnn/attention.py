"""Attention as cuDNN takes it: ``softmax(scale q k' + mask) v``, composed so that its fused engines
know it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from tactix.base.dtypes import DType
from tactix_cudnn import library as dnn
from tactix_cudnn.graph import CudnnWork, Operations
from tactix_cudnn.library import Descriptor
from tactix_cudnn.plan import Binding

Q, K, V, MASK, Y, SCALE, HIDDEN, KEYS, QUERIES = range(1, 10)
"""Ids of tensors; the last four are numbers."""


@dataclass(frozen=True)
class CudnnAttention(CudnnWork):
    """``size``: batch, heads, s queries, t keys, d and e columns of keys and values.

    ``q``, ``k``, ``v``: where matrices lie: strides of batch, heads and rows, and the first
    element. ``shared``: heads that k and v have, all or one. ``tokens``: results lie in rows of all
    heads. ``mask``: its shape, empty if there is none. ``causal``: row i sees keys up to i + t - s.
    """

    kind = "attention"

    dtype: str
    size: tuple[int, ...]
    q: tuple[int, ...]
    k: tuple[int, ...]
    v: tuple[int, ...]
    shared: tuple[int, ...]
    scale: float
    tokens: bool = False
    mask: tuple[int, ...] = ()
    mask_dtype: str = "f32"
    causal: bool = False

    @property
    def binding(self) -> Binding:
        """q, k, v, the mask, y."""
        size = DType(self.dtype).itemsize
        given = [(uid, lies[3] * size) for uid, lies in ((Q, self.q), (K, self.k), (V, self.v))]
        *_, s, t, _, _ = self.size
        scalars = [(SCALE, struct.pack("<f", self.scale))]
        if self.causal:
            scalars.append((HIDDEN, struct.pack("<f", float("-inf"))))
            scalars += (
                [(KEYS, struct.pack("<i", t)), (QUERIES, struct.pack("<i", s))] if s != t else []
            )
        return Binding((*given, *(((MASK, 0),) if self.mask else ()), (Y, 0)), tuple(scalars))

    def operations(self, make: Operations) -> None:
        """Raises LibraryFailure."""
        dtype, (b, h, s, t, d, e) = DType(self.dtype), self.size
        of_k, of_v = self.shared
        q = make.tensor(dtype, (b, h, s, d), (*self.q[:3], 1), Q)
        k = make.tensor(dtype, (b, of_k, d, t), (*self.k[:2], 1, self.k[2]), K)
        v = make.tensor(dtype, (b, of_v, t, e), (*self.v[:3], 1), V)
        x = make.matmul(self._scores(make), q, k)
        x = make.pointwise(dnn.MUL, self._scores(make), x, make.scalar(DType.FP32, SCALE))
        if self.mask:
            mask = make.tensor(DType(self.mask_dtype), self.mask, uid=MASK)
            x = make.pointwise(dnn.ADD, self._scores(make), x, mask)
        x = self._softmax(make, self._behind(make, x) if self.causal else x)
        strides = (s * h * e, e, h * e, 1) if self.tokens else ()
        make.matmul(make.tensor(dtype, (b, h, s, e), strides, Y), x, v)

    def _scores(self, make: Operations, dtype: DType = DType.FP32) -> Descriptor:
        return make.tensor(dtype, self.size[:4])

    def _behind(self, make: Operations, x: Descriptor) -> Descriptor:
        """Scores without those of later keys."""
        s, t = self.size[2:4]
        integer = DType.INT32
        row = make.pointwise(dnn.INDEX, self._scores(make, integer), x, axis=2)
        column = make.pointwise(dnn.INDEX, self._scores(make, integer), x, axis=3)
        for mode, uid in ((dnn.ADD, KEYS), (dnn.SUB, QUERIES)) if s != t else ():
            number = make.scalar(integer, uid)
            row = make.pointwise(mode, self._scores(make, integer), row, number, compute=integer)
        seen = make.pointwise(
            dnn.NOT_LESS, self._scores(make, DType.BOOL), row, column, compute=DType.BOOL
        )
        return make.pointwise(
            dnn.SELECT, self._scores(make), x, make.scalar(DType.FP32, HIDDEN), seen
        )

    def _softmax(self, make: Operations, x: Descriptor) -> Descriptor:
        """The sum's logarithm, which nobody reads, is part of what the engines know."""
        rows = (*self.size[:3], 1)
        largest = make.reduction(dnn.LARGEST, make.tensor(DType.FP32, rows), x)
        power = make.pointwise(
            dnn.EXP, self._scores(make), make.pointwise(dnn.SUB, self._scores(make), x, largest)
        )
        total = make.reduction(dnn.SUMS, make.tensor(DType.FP32, rows), power)
        logarithm = make.pointwise(dnn.LOG, make.tensor(DType.FP32, rows), total)
        make.pointwise(dnn.ADD, make.tensor(DType.FP32, rows), largest, logarithm)
        return make.pointwise(dnn.DIV, self._scores(make, DType(self.dtype)), power, total)
