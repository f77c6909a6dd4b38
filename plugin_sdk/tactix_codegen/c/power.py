"""The p-norm in C and CUDA C: what an element adds to a sum, and the root of that."""

from __future__ import annotations

from dataclasses import dataclass

from tactix.base.dtypes import DType
from tactix_codegen.c.scalar import float_literal

MULTIPLIED = 8
"""The highest power that is a product."""


def product(value: str, size: str, p: int) -> str:
    """``size`` to the power of p, where ``value`` has that size."""
    return " * ".join([value] * (p - p % 2) + [size] * (p % 2))


@dataclass(frozen=True)
class Power:
    """Of order ``p`` over numbers of a float dtype."""

    p: int
    dtype: DType

    @property
    def _suffix(self) -> str:
        return "" if self.dtype is DType.FP64 else "f"

    def term(self, v: str) -> str:
        """What an element adds to the sum."""
        size = f"fabs{self._suffix}({v})"
        if self.p <= MULTIPLIED:
            return product(v, size, self.p)
        order = float_literal(self.p, double=self.dtype is DType.FP64)
        return f"pow{self._suffix}({size}, {order})"

    def root(self, total: str) -> str:
        """The norm."""
        if self.p == 1:
            return total
        if self.p == 2:
            return f"sqrt{self._suffix}({total})"
        order = float_literal(1 / self.p, double=self.dtype is DType.FP64)
        return f"pow{self._suffix}({total}, {order})"

    def roots(self, totals: str) -> str:
        """The norms of a vector of float32."""
        if self.p <= 2:
            return totals if self.p == 1 else f"tx_sqrt({totals})"
        return f"tx_exp(tx_log({totals}) * {float_literal(1 / self.p)})"
