"""Formats of inputs and outputs that are not linear: how their elements lie, and there and back.

Engines have linear tensors; contexts of the host's memory convert at each run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tactix_tensorrt.api.enums import TensorFormat

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Layout:
    """``lanes``: channels that lie together, and of which there are whole groups. ``spatial``: axes
    after the channels. ``last``: whether all channels lie together.
    """

    lanes: int
    spatial: int
    last: bool

    def fits(self, rank: int) -> bool:
        return rank > self.spatial

    def axis(self, rank: int) -> int:
        """Of the channels."""
        return rank - self.spatial - 1

    def groups(self, channels: int) -> int:
        return -(-channels // self.lanes)

    def storage_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Of the row-major array that has the elements."""
        c = self.axis(len(shape))
        before, after = tuple(shape[:c]), tuple(shape[c + 1 :])
        count = self.groups(shape[c])
        if self.last:
            return (*before, *after, count * self.lanes)
        return (*before, count, *after, self.lanes)

    def strides(self, shape: Sequence[int]) -> list[int]:
        """Of each axis, in groups of channels."""
        c = self.axis(len(shape))
        axes = [*range(c), *range(c + 1, len(shape)), c] if self.last else [*range(len(shape))]
        out, step = [0] * len(shape), 1
        for axis in reversed(axes):
            out[axis] = step
            step *= self.groups(shape[axis]) if axis == c else shape[axis]
        return out

    def pack(self, x: np.ndarray) -> np.ndarray:
        """A linear array as it is stored; what fills groups is zero."""
        import numpy as np

        c = self.axis(x.ndim)
        width = [(0, 0)] * x.ndim
        width[c] = (0, self.groups(x.shape[c]) * self.lanes - x.shape[c])
        whole = np.pad(x, width)
        if not self.last:
            grouped = (*x.shape[:c], self.groups(x.shape[c]), self.lanes, *x.shape[c + 1 :])
            whole, c = whole.reshape(grouped), c + 1
        return np.ascontiguousarray(np.moveaxis(whole, c, -1))

    def unpack(self, stored: np.ndarray, shape: Sequence[int]) -> np.ndarray:
        """The linear array of that shape."""
        import numpy as np

        c = self.axis(len(shape))
        if self.last:
            whole = np.moveaxis(stored, -1, c)
        else:
            whole = np.moveaxis(stored, -1, c + 1)
            whole = whole.reshape(*shape[:c], -1, *shape[c + 1 :])
        return np.ascontiguousarray(np.take(whole, range(shape[c]), axis=c))


LAYOUTS = {
    TensorFormat.CHW2: Layout(2, 2, last=False),
    TensorFormat.CHW4: Layout(4, 2, last=False),
    TensorFormat.CHW16: Layout(16, 2, last=False),
    TensorFormat.CHW32: Layout(32, 2, last=False),
    TensorFormat.CDHW32: Layout(32, 3, last=False),
    TensorFormat.HWC: Layout(1, 2, last=True),
    TensorFormat.HWC8: Layout(8, 2, last=True),
    TensorFormat.HWC16: Layout(16, 2, last=True),
    TensorFormat.DHWC: Layout(1, 3, last=True),
    TensorFormat.DHWC8: Layout(8, 3, last=True),
}
"""Of formats that are there; those of a DLA are not."""


def chosen(allowed: int, rank: int) -> TensorFormat | None:
    """What of a mask of formats a tensor gets: linear if it may, else the first that it can have;
    None if there is none.
    """
    if allowed & TensorFormat.LINEAR.mask:
        return TensorFormat.LINEAR
    fitting = (f for f, layout in LAYOUTS.items() if allowed & f.mask and layout.fits(rank))
    return next(fitting, None)
