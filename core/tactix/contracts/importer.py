"""Importer: turns a model file into layers of a network. Converter: one operator of such a format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol


class Importer(Protocol):
    """``key``: ``namespace.name@version``; ``format``: the word that converters and
    ``Layer.imports`` use.

    ``files(path)``, if there is one, names the files that a model is made of beside that one, and
    is cheap.
    """

    key: str
    format: str

    def claims(self, source: Any) -> bool:
        """Whether this looks like its format: a path, bytes, or an object in memory. Must be cheap."""

    def load(self, source: Any, network: Any, converters: Any) -> None:
        """Fill the network. ``converters``: op name to Converters. Raises ModelImportError,
        UnsupportedOperator.
        """


@dataclass(frozen=True)
class Converter:
    """How one operator becomes layers. ``convert(ctx, node)`` is called by the importer of
    ``format``.

    ``op``: ``domain::Name``. ``since``: lowest operator-set version it is for; the highest one that
    fits is taken.
    """

    format: str
    op: str
    convert: Callable[..., Any]
    since: int = 1

    @property
    def key(self) -> str:
        return f"{self.format}:{self.op}@{self.since}"
