"""What a tensor is, apart from its bytes: dtype, symbolic shape, format."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tactix.base.dims import Dim, Shape, ceildiv, evaluate_shape, prod, show
from tactix.base.dtypes import DType
from tactix.base.errors import InvalidArgument

if TYPE_CHECKING:
    import numpy as np

_FORMAT = re.compile(r"linear|nhwc|c([2-9]|[1-9]\d{1,3})")


@dataclass(frozen=True, order=True)
class Format:
    """How elements lie in memory.

    ``linear``: row-major. ``nhwc``: channels (axis 1) last. ``cB`` (``c16``, ``c8``): channels
    split in blocks of B, stored ``(N, ceil(C/B), *spatial, B)``; lanes past C hold zero.
    """

    name: str = "linear"

    @classmethod
    def named(cls, name: object) -> Format:
        """The format of that name. Raises ValueError for what is none."""
        if not isinstance(name, str) or not _FORMAT.fullmatch(name):
            raise ValueError(f"{name!r:.80} is no format")
        return cls(name)

    @property
    def lanes(self) -> int:
        """Block length of a blocked format, else 1."""
        return int(self.name[1:]) if self.name[0] == "c" else 1

    @property
    def is_linear(self) -> bool:
        return self.name == "linear"

    def fits(self, rank: int) -> bool:
        """Whether a tensor of that rank can have this format."""
        return self.is_linear or rank >= 2

    def storage_shape(self, shape: Shape) -> Shape:
        """The shape of the row-major array that holds the elements."""
        if self.is_linear:
            return tuple(shape)
        n, c, *spatial = shape
        if self.name == "nhwc":
            return (n, *spatial, c)
        return (n, ceildiv(c, self.lanes), *spatial, self.lanes)

    def lies_as(self, other: Format, shape: Shape) -> bool:
        """Whether each element of a tensor of that shape lies at the same place in both formats:
        axes of one element lie anywhere.
        """
        return self == other or self._order(shape) == other._order(shape)

    def _order(self, shape: Shape) -> tuple[object, ...]:
        """What lies outside of what: axes of more than one element. Blocks that stand for
        themselves are one name.
        """
        if self.lanes > 1:
            whole = isinstance(shape[1], int) and shape[1] % self.lanes == 0
            if not whole or any(d != 1 for d in shape[2:]):
                return (self.name,)
        axes = range(len(shape)) if self.is_linear else (0, *range(2, len(shape)), 1)
        return tuple(i for i in axes if shape[i] != 1)

    def pack(self, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """A linear array in this format's storage."""
        import numpy as np

        if self.is_linear:
            return x if x.shape and x.flags.c_contiguous else x.reshape(x.shape or 1).copy()
        if self.name == "nhwc":
            return np.moveaxis(x, 1, -1).copy()
        n, c, *spatial = x.shape
        blocks = -(-c // self.lanes)
        wide = np.pad(x, [(0, 0), (0, blocks * self.lanes - c), *[(0, 0)] * len(spatial)])
        return np.moveaxis(wide.reshape(n, blocks, self.lanes, *spatial), 2, -1).copy()

    def unpack(self, x: np.ndarray[Any, Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        """The linear array of ``shape`` from this format's storage."""
        import numpy as np

        if self.is_linear:
            return x.reshape(shape)
        if self.name == "nhwc":
            return np.moveaxis(x, -1, 1)
        n, c, *spatial = shape
        return np.moveaxis(x, -1, 2).reshape(n, x.shape[1] * self.lanes, *spatial)[:, :c]


LINEAR = Format("linear")
NHWC = Format("nhwc")


def blocked(lanes: int) -> Format:
    """The channel-blocked format of that block length."""
    if lanes < 2:
        raise InvalidArgument(f"a block of {lanes} lanes")
    return Format(f"c{lanes}")


@dataclass(frozen=True)
class Element:
    """What a sequence, an optional or a map holds: tensors, or what again holds ``of`` something.

    A map (dict) is from labels, integers or text, to numbers; the element is that of the numbers.

    A dim that differs between elements is None; so is the shape, if ranks differ or are not known.
    ``none``: there is no element yet that could tell.
    """

    dtype: DType
    shape: tuple[Dim | None, ...] | None = None
    of: Element | None = None
    none: bool = False

    def __str__(self) -> str:
        if self.of is not None:
            return f"{self.dtype.value}<{self.of}>"
        dims = (
            "..."
            if self.shape is None
            else ", ".join("?" if d is None else str(d) for d in self.shape)
        )
        return f"{self.dtype.value}({dims})"


@dataclass(frozen=True)
class TensorSpec:
    """dtype and shape of a tensor, and its content where that is known before running.

    A sequence, optional or map is one value of shape (), with an ``element``.

    ``value``: the elements in row-major order as dims, for integer shape tensors. ``const``: the
    array of a constant.
    """

    dtype: DType
    shape: Shape
    value: tuple[Dim, ...] | None = None
    const: Any = None
    element: Element | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def numel(self) -> Dim:
        return prod(self.shape)

    @property
    def is_const(self) -> bool:
        return self.const is not None

    def known(self) -> tuple[Dim, ...] | None:
        """``value``, or the elements of a small integer constant; None if unknown."""
        if (
            self.value is None
            and self.const is not None
            and self.const.dtype.kind in "iub"
            and self.const.size <= 1024
        ):
            return tuple(int(v) for v in self.const.ravel())
        return self.value

    def nbytes(self, fmt: Format = LINEAR) -> Dim:
        """Bytes in storage of that format."""
        return prod(fmt.storage_shape(self.shape)) * self.dtype.itemsize

    def at(self, env: dict[str, int]) -> tuple[int, ...]:
        """The shape with the symbols replaced."""
        return evaluate_shape(self.shape, env)

    def plain(self) -> TensorSpec:
        """Without content; itself where it has none."""
        if self.value is None and self.const is None:
            return self
        return replace(self, value=None, const=None)

    def __str__(self) -> str:
        content = show(self.shape) if self.element is None else f"<{self.element}>"
        return f"{self.dtype.value}{content}"
