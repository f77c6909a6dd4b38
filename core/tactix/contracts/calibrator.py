"""Calibrator: gives quantisation ranges from sample data; and what a build is told about them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from tactix.base.arrays import Array


@runtime_checkable
class Calibrator(Protocol):
    """``key``: name in config. A hook gives a new one each time, which has seen nothing; a
    build that names it copies it (``copy.deepcopy``), and shows the copy its tensors.

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


@dataclass(frozen=True)
class Calibration:
    """What a build in int8 learns the ranges of tensors from.

    ``data``: a folder of ``.npy`` or ``.npz`` files, one such file, arrays by input name with all
    samples, or an iterable of batches: arrays by input name; where the network has one input, an
    array in place of arrays by name. None: the calibrator has its own. ``calibrator``: an object,
    or the key of one that a pack provides, which for tactix's own needs no namespace; empty for the
    default. ``cache``: a file of scales in TensorRT's form: read if it is there, and then nothing
    is observed; written if not. It knows symmetric ranges only, so that these are used with one.
    ``ranges``: lowest and highest value by tensor name, which count before what is found.
    ``symmetric``: integers are as far from 0 as numbers from zero, as in TensorRT; otherwise the
    ends of a range are the ends of the integers.
    """

    data: object = None
    calibrator: str | Calibrator = ""
    cache: str | Path | None = None
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    symmetric: bool = False

    def files(self) -> list[Path]:
        """Files that the ranges hang on, as far as they are there."""
        named = [Path(p) for p in (self.cache, self.data) if isinstance(p, (str, Path))]
        inside = [sorted(p.iterdir()) if p.is_dir() else [p] for p in named]
        return [p for group in inside for p in group if p.is_file()]
