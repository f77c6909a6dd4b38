"""Sizes of plugins' outputs: expressions over sizes of inputs, and what only a run tells."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tactix.base import dims
from tactix.base.dims import Dim, Expr
from tactix_tensorrt.api.enums import DimensionOperation

UNKNOWN = -(1 << 31)
"""What a size that is no constant gives as its constant value."""


class IDimensionExpr:
    """A size. ``size``: tactix's; ``tells``: whether a size tensor gives it."""

    def __init__(self, size: Dim, tells: bool = False) -> None:
        self.size, self._tells = size, tells

    def is_constant(self) -> bool:
        return not isinstance(self.size, Expr)

    def get_constant_value(self) -> int:
        """The lowest 32-bit number where it is no constant."""
        return UNKNOWN if isinstance(self.size, Expr) else self.size

    def is_size_tensor(self) -> bool:
        return self._tells

    def __repr__(self) -> str:
        return f"IDimensionExpr({self.size})"


class DimsExprs(list[IDimensionExpr]):
    """Sizes of a tensor: of that many axes, to be filled in, or those that are given."""

    def __init__(self, sizes: int | Iterable[IDimensionExpr] = ()) -> None:
        super().__init__([IDimensionExpr(0)] * sizes if isinstance(sizes, int) else sizes)


@dataclass(frozen=True)
class SizeTensor:
    """An output, without axes, that tells a size. ``opt``, ``upper``: what is expected, and what it
    is at most.
    """

    output: int
    symbol: str
    opt: Dim
    upper: Dim


def _less(a: Dim, b: Dim) -> Dim:
    """1 or 0; over symbols by arithmetic."""
    return dims.dmin(dims.dmax(b - a, 0), 1)


def _equal(a: Dim, b: Dim) -> Dim:
    return 1 - dims.dmin(dims.dmax(a - b, b - a), 1)


OPERATIONS: dict[DimensionOperation, Callable[[Dim, Dim], Dim]] = {
    DimensionOperation.SUM: lambda a, b: a + b,
    DimensionOperation.PROD: lambda a, b: a * b,
    DimensionOperation.MAX: dims.dmax,
    DimensionOperation.MIN: dims.dmin,
    DimensionOperation.SUB: lambda a, b: a - b,
    DimensionOperation.EQUAL: _equal,
    DimensionOperation.LESS: _less,
    DimensionOperation.FLOOR_DIV: dims.floordiv,
    DimensionOperation.CEIL_DIV: dims.ceildiv,
}


class IExprBuilder:
    """Makes sizes of sizes. ``declared``: size tensors; ``who``: the layer, for their symbols."""

    def __init__(self, who: str = "") -> None:
        self._who = who
        self.declared: list[SizeTensor] = []

    def constant(self, value: int) -> IDimensionExpr:
        return IDimensionExpr(int(value))

    def operation(
        self, op: DimensionOperation, first: IDimensionExpr, second: IDimensionExpr
    ) -> IDimensionExpr:
        return IDimensionExpr(OPERATIONS[op](first.size, second.size))

    def declare_size_tensor(
        self, output_index: int, opt: IDimensionExpr, upper: IDimensionExpr
    ) -> IDimensionExpr:
        """A size that an output tells, a tensor without axes; asked again for one, the same."""
        symbol = f"size_{output_index}_{self._who}"
        if all(s.output != output_index for s in self.declared):
            self.declared.append(SizeTensor(output_index, symbol, opt.size, upper.size))
        return IDimensionExpr(dims.sym(symbol), tells=True)
