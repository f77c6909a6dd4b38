"""Whole numbers that follow from sizes of tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Generic, Self, TypeVar

from tactix.base import dims
from tactix.base.dims import Dim, Expr
from tactix_tensorrt.api.enums import DimensionOperation
from tactix_tensorrt.api.plugin_sizes import OPERATIONS, IDimensionExpr
from tactix_tensorrt.api.values import Dims

FAKE = "A fake expression has no value: look at is_fake first"


class SymExpr:
    """Something that is known when shapes are."""


class SymIntExpr(SymExpr):
    """A whole number. ``size``: tactix's; None while there are no sizes to compute with."""

    is_size_tensor = False

    def __init__(self, value: int | IDimensionExpr | SymIntExpr | None = None) -> None:
        self.size: Dim | None = None
        if isinstance(value, IDimensionExpr | SymIntExpr):
            self.size = value.size
        elif value is not None:
            self.size = int(value)

    @classmethod
    def of(cls, size: Dim | None) -> Self:
        out = cls.__new__(cls)
        out.size = size
        return out

    def operated(self, op: DimensionOperation, other: int | SymIntExpr) -> Self:
        """What an operation gives of both."""
        second = other.size if isinstance(other, SymIntExpr) else int(other)
        if getattr(other, "is_size_tensor", False):
            raise ValueError(NO_ARITHMETIC)
        if self.size is None or second is None:
            return self.of(None)
        return self.of(OPERATIONS[op](self.size, second))

    def __add__(self, other: int | SymIntExpr) -> Self:
        return self.operated(DimensionOperation.SUM, other)

    def __sub__(self, other: int | SymIntExpr) -> Self:
        return self.operated(DimensionOperation.SUB, other)

    def __mul__(self, other: int | SymIntExpr) -> Self:
        return self.operated(DimensionOperation.PROD, other)

    def __floordiv__(self, other: int | SymIntExpr) -> Self:
        return self.operated(DimensionOperation.FLOOR_DIV, other)

    def __eq__(self, other: object) -> Any:
        if not isinstance(other, int | SymIntExpr):
            return NotImplemented
        return self.operated(DimensionOperation.EQUAL, other)

    def __lt__(self, other: int | SymIntExpr) -> Self:
        return self.operated(DimensionOperation.LESS, other)

    __hash__ = SymExpr.__hash__

    @property
    def is_fake(self) -> bool:
        """Whether there are no sizes to compute with yet."""
        return self.size is None

    @property
    def is_constant(self) -> bool:
        """Raises RuntimeError for a fake one."""
        if self.size is None:
            raise RuntimeError(FAKE)
        return not isinstance(self.size, Expr)

    def constant_value(self) -> int:
        """Raises RuntimeError for what is no constant."""
        if not self.is_constant:
            raise RuntimeError("The expression is no constant: look at is_constant first")
        assert self.size is not None
        return dims.evaluate(self.size, {})

    def __repr__(self) -> str:
        return f"{type(self).__name__}[{'fake' if self.size is None else self.size}]"


class SymInt8(SymIntExpr): ...


class SymInt16(SymIntExpr): ...


class SymInt32(SymIntExpr): ...


class ShapeExpr(SymInt32):
    """The size of an axis."""


NO_ARITHMETIC = "It is not permitted to compute with what a size tensor tells"


class SizeTensorShapeExpr(ShapeExpr):
    """The size that a size tensor tells."""

    is_size_tensor = True

    def operated(self, op: DimensionOperation, other: int | SymIntExpr) -> Self:
        """Raises ValueError."""
        raise ValueError(NO_ARITHMETIC)


E = TypeVar("E", bound=SymExpr)


class SymExprs(Generic[E]):
    """Several expressions: of that length, to be filled in."""

    def __init__(self, length: int) -> None:
        self._exprs: list[E] = [self.made(0) for _ in range(length)]

    @classmethod
    def made(cls, value: object) -> E:
        """An element of what is given. Raises ValueError."""
        if isinstance(value, SymExpr):
            return value  # type: ignore[return-value]
        if not isinstance(value, int):
            raise ValueError(f"{value!r} is no whole number and no expression of any")
        return SymInt32(value)  # type: ignore[return-value]

    @classmethod
    def from_tuple(cls, shape_exprs: Iterable[object]) -> Self:
        out = cls(0)
        out._exprs = [cls.made(e) for e in shape_exprs]
        return out

    def __iter__(self) -> Iterator[E]:
        return iter(self._exprs)

    def __len__(self) -> int:
        return len(self._exprs)

    def __getitem__(self, index: int) -> E:
        return self._exprs[index]

    def __setitem__(self, index: int, expr: object) -> None:
        self._exprs[index] = self.made(expr)

    def __repr__(self) -> str:
        return f"{type(self).__name__}[{', '.join(map(repr, self._exprs))}]"


class SymIntExprs(SymExprs[SymIntExpr]):
    """Whole numbers."""


class ShapeExprs(SymExprs[ShapeExpr]):
    """The sizes of a tensor. Raises ValueError for more axes than there may be."""

    def __init__(self, length: int) -> None:
        if length > Dims.MAX_DIMS:
            raise ValueError(f"A tensor has {Dims.MAX_DIMS} axes at most, not {length}")
        super().__init__(length)

    @classmethod
    def made(cls, value: object) -> ShapeExpr:
        if isinstance(value, ShapeExpr):
            return value
        if not isinstance(value, int | SymIntExpr):
            raise ValueError(f"{value!r} is no size")
        return ShapeExpr(value)

    def numel(self) -> ShapeExpr:
        """How many elements there are."""
        out = ShapeExpr(1)
        for e in self:
            out = out * e
        return out


def cdiv(first: int | SymIntExpr, second: int | SymIntExpr) -> SymIntExpr:
    """Divided and rounded up. Raises ValueError for two numbers."""
    return _of_two(DimensionOperation.CEIL_DIV, first, second)


def max(first: int | SymIntExpr, second: int | SymIntExpr) -> SymIntExpr:
    """The larger one. Raises ValueError for two numbers."""
    return _of_two(DimensionOperation.MAX, first, second)


def min(first: int | SymIntExpr, second: int | SymIntExpr) -> SymIntExpr:
    """The smaller one. Raises ValueError for two numbers."""
    return _of_two(DimensionOperation.MIN, first, second)


def _of_two(
    op: DimensionOperation, first: int | SymIntExpr, second: int | SymIntExpr
) -> SymIntExpr:
    if not isinstance(first, SymIntExpr):
        if not isinstance(second, SymIntExpr):
            raise ValueError("Both arguments are numbers: compute with Python's operators")
        first = ShapeExpr(first)
    return first.operated(op, second)
