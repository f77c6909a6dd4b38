"""One convolution as cuDNN takes it: ``y = relu(conv(x, w) + residual + bias)``, all channels last;
the last three parts where asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tactix.base.dtypes import DType
from tactix_cudnn import library as dnn
from tactix_cudnn.graph import CudnnWork, Operations
from tactix_cudnn.library import Descriptor
from tactix_cudnn.plan import Binding

X, W, RESIDUAL, BIAS, Y = range(1, 6)
"""Ids of tensors."""


@dataclass(frozen=True)
class CudnnConvolution(CudnnWork):
    """Sizes of x (n, c, rows, columns) and y (n, k, rows, columns), of w (k, c of a group, rows,
    columns).
    """

    kind = "convolution"

    dtype: str
    x: tuple[int, ...]
    w: tuple[int, ...]
    y: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]
    bias: bool = False
    residual: bool = False
    relu: bool = False

    @property
    def binding(self) -> Binding:
        """x, w, the bias, the residual, y."""
        ids = (X, W, *((BIAS,) * self.bias), *((RESIDUAL,) * self.residual), Y)
        return Binding(tuple((uid, 0) for uid in ids))

    def operations(self, make: Operations) -> None:
        """Raises LibraryFailure."""
        steps = 1 + self.residual + self.bias + self.relu
        stages = [self._sum(make) for _ in range(steps - 1)]
        stages.append(self._stored(make, Y, self.y))
        self._convolve(make, stages[0])
        terms = [(RESIDUAL, self.y)] * self.residual + [(BIAS, (1, self.y[1], 1, 1))] * self.bias
        for (uid, shape), before, after in zip(terms, stages, stages[1:], strict=False):
            make.pointwise(dnn.ADD, after, before, self._stored(make, uid, shape))
        if self.relu:
            make.pointwise(dnn.RELU, stages[-1], stages[-2])

    def _stored(self, make: Operations, uid: int, shape: Sequence[int]) -> Descriptor:
        return make.tensor(DType(self.dtype), shape, channels_last(shape), uid)

    def _sum(self, make: Operations) -> Descriptor:
        return make.tensor(DType.FP32, self.y, channels_last(self.y))

    def _convolve(self, make: Operations, y: Descriptor) -> None:
        kind = Descriptor(make.library, dnn.CONVOLUTION).set(
            100, dnn.DATA_TYPE, dnn.TYPES[DType.FP32]
        )
        kind.set(101, dnn.CONVOLUTION_MODE, dnn.CROSS_CORRELATION).set(
            102, dnn.INT64, *self.dilations
        )
        kind.set(103, dnn.INT64, *self.strides).set(104, dnn.INT64, *self.ends).set(
            105, dnn.INT64, *self.begins
        )
        kind.set(106, dnn.INT64, 2).finalize()
        x, w = self._stored(make, X, self.x), self._stored(make, W, self.w)
        made = Descriptor(make.library, dnn.OPERATION_CONVOLUTION)
        made.set(700, dnn.FLOAT, 1.0).set(701, dnn.FLOAT, 0.0).set(702, dnn.DESCRIPTOR, kind)
        made.set(703, dnn.DESCRIPTOR, w).set(704, dnn.DESCRIPTOR, x)
        make.add(made.set(705, dnn.DESCRIPTOR, y), y)


def channels_last(shape: Sequence[int]) -> tuple[int, int, int, int]:
    """Strides of (n, c, rows, columns)."""
    _, c, rows, columns = shape
    return c * rows * columns, 1, columns * c, c
