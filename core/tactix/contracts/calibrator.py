"""Calibrator: gives quantisation ranges from sample data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from tactix.base.arrays import Array


class Calibrator(Protocol):
    """``key``: name in config. A hook gives a new one each time, which has seen nothing.

    The same values give the same ranges, in any process; however they are split into batches, to
    one percent.
    """

    key: str

    def batches(self) -> Iterator[Mapping[str, Array]]:
        """An iterator over input arrays by name; over nothing where it was given no data."""

    def observe(self, tensor: str, values: Array) -> None:
        """Called with every activation of every batch: floats of any dtype and shape, or none. It
        keeps no array.

        What is not finite is left out; or the array is refused, by InvalidArgument.
        """

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """Lowest and highest value to represent, by tensor name; tensors without a finite value are
        left out.

        Both are finite, and at least half of the values lie between them. Values that are all
        further from zero by the same factor get a range that reaches no less far. Observing may go
        on.
        """
