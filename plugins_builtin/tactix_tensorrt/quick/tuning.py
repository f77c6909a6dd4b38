"""AutoTuneCombination: dtypes, formats and tactics that a plugin has."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tactix_tensorrt.api.enums import DataType, TensorFormat

SHORT = {"FP32": "FLOAT", "FP16": "HALF"}
"""Names of dtypes beside those of the enumeration."""


@dataclass(frozen=True)
class Combination:
    """Of inputs and outputs in order: dtypes and formats, and how they can be computed."""

    types: tuple[DataType, ...]
    formats: tuple[TensorFormat, ...]
    tactics: tuple[int, ...] = ()


class AutoTuneCombination:
    """Dtypes and formats of inputs and outputs: for each its choices, separated by ``|`` where all
    choose alike, and by ``*`` where it chooses alone. ``tactics``: numbers from 1 on.
    """

    def __init__(
        self,
        io_types: str | None = None,
        layouts: str | None = None,
        tactics: Iterable[int] | None = None,
    ) -> None:
        self.io_types = _parts(io_types) if io_types else []
        self.layouts = _parts(layouts) if layouts else ["LINEAR"]
        if len(self.layouts) == 1:
            self.layouts = self.layouts * len(self.io_types)
        if len(self.layouts) != len(self.io_types):
            raise ValueError(f"{len(self.io_types)} dtypes, but {len(self.layouts)} formats")
        self._tactics = tuple(tactics or ())

    def pos(self, pos: int | Iterable[int], io_types: str, layouts: str = "LINEAR") -> None:
        """The choices of some. Raises ValueError for those that have some already."""
        places = [pos] if isinstance(pos, int) else list(pos)
        missing = max(places) + 1 - len(self.io_types)
        self.io_types += [""] * missing
        self.layouts += [""] * missing
        for p in places:
            if self.io_types[p]:
                raise ValueError(f"Type(s) for position {p} already specified")
            self.io_types[p], self.layouts[p] = io_types, layouts

    def tactics(self, tactics: Iterable[int]) -> None:
        self._tactics = tuple(tactics)

    def combinations(self) -> list[Combination]:
        """All of them. Raises ValueError for what is no such text, and for names that are none."""
        types = [tuple(map(_dtype, row)) for row in _rows(self.io_types)]
        formats = [tuple(map(_format, row)) for row in _rows(self.layouts)]
        tactics = self._tactics
        return [Combination(t, f, tactics) for t, f in itertools.product(types, formats)]


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")]


def _rows(texts: Sequence[str]) -> list[list[str]]:
    """One choice for each."""
    if any("|" in t and "*" in t for t in texts):
        raise ValueError(f"{', '.join(texts)}: one position has both '|' and '*'")
    together = [t.split("|") for t in texts]
    lengths = {len(t) for t in together} - {1}
    if len(lengths) > 1:
        raise ValueError(f"{', '.join(texts)}: choices that are made alike differ in number")
    rows: list[list[str]] = []
    for i in range(lengths.pop() if lengths else 1):
        chosen = [t[i if len(t) > 1 else 0] for t in together]
        rows += map(list, itertools.product(*(c.split("*") for c in chosen)))
    return rows


def _dtype(name: str) -> DataType:
    found = DataType.__members__.get(SHORT.get(name.strip(), name.strip()))
    if found is None:
        raise ValueError(f"{name!r} is no dtype")
    return found


def _format(name: str) -> TensorFormat:
    found = TensorFormat.__members__.get(name.strip())
    if found is None:
        raise ValueError(f"{name!r} is no format")
    return found
