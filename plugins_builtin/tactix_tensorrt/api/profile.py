"""Optimization profiles: ranges of shapes, and of the values of shape tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tactix.base.errors import TactixError
from tactix_tensorrt.api.logger import ILogger, Reporting
from tactix_tensorrt.api.plan_facts import Ranges
from tactix_tensorrt.api.values import Dims

if TYPE_CHECKING:
    from tactix.config import OptimizationProfile


@dataclass(frozen=True)
class ShapeRange:
    """Lowest, the one to tune for, highest."""

    min: Dims
    opt: Dims
    max: Dims

    def listed(self) -> list[Dims]:
        return [self.min, self.opt, self.max]


class IOptimizationProfile(Reporting):
    """Made by ``Builder.create_optimization_profile``."""

    extra_memory_target = 1.0

    def __init__(self, logger: ILogger) -> None:
        super().__init__(logger)
        self.shapes: dict[str, ShapeRange] = {}
        self.values: dict[str, Ranges] = {}

    def set_shape(
        self, input: str, min: Sequence[int], opt: Sequence[int], max: Sequence[int]
    ) -> None:
        """The range of an input's shape. Raises ValueError for one that is not in order."""
        self.shapes[input] = self._range(input, min, opt, max)

    def get_shape(self, input: str) -> list[Dims]:
        """Lowest, tuned for, highest. Empty for an input that has none."""
        found = self.shapes.get(input)
        return found.listed() if found else []

    def set_shape_input(
        self, input: str, min: Sequence[int], opt: Sequence[int], max: Sequence[int]
    ) -> bool:
        """The range of a shape tensor's values, which engines tell; False for one that is not in
        order. Shapes are tuned for as they come: any values may be given to a run.
        """
        rows = [tuple(int(n) for n in row) for row in (min, opt, max)]
        if len({len(row) for row in rows}) != 1 or any(
            not a <= b <= c for a, b, c in zip(*rows, strict=True)
        ):
            self.fail(f"values of {input!r}: min {rows[0]}, opt {rows[1]}, max {rows[2]}")
            return False
        self.values[input] = (rows[0], rows[1], rows[2])
        return True

    def get_shape_input(self, input: str) -> list[list[int]]:
        """As ``get_shape``, of values."""
        return [list(row) for row in self.values.get(input, ())]

    def value_rows(self) -> dict[str, Ranges]:
        """Of all shape tensors."""
        return dict(self.values)

    def _range(
        self, name: str, low: Sequence[int], opt: Sequence[int], high: Sequence[int]
    ) -> ShapeRange:
        from tactix.config import OptimizationProfile

        try:
            OptimizationProfile().set_shape(name, tuple(low), tuple(opt), tuple(high))
        except TactixError as e:
            self.fail(e)
            raise ValueError(
                f"Shape provided for min is inconsistent with other shapes: {e}"
            ) from e
        return ShapeRange(Dims(low), Dims(opt), Dims(high))

    def __bool__(self) -> bool:
        return bool(self.shapes) or bool(self.values)

    def native(self, inputs: Sequence[str]) -> OptimizationProfile:
        """tactix's, of the inputs whose shape is open."""
        from tactix.config import OptimizationProfile

        out = OptimizationProfile()
        for name in inputs:
            r = self.shapes.get(name)
            if r is not None:
                out.set_shape(name, tuple(r.min), tuple(r.opt), tuple(r.max))
        return out
