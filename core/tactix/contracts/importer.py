"""Importer: a model file into layers of a network. Converter: one operator of such a format."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from tactix.base.errors import ModelImportError
from tactix.base.files import EMPTY, why_no_file

Network = TypeVar("Network", contravariant=True)

ANY_DOMAIN = "*"
"""The domain of a converter that takes an operator's name wherever nobody else has it."""

GIVE = "Give the path of a model's file, its bytes, or an object that an importer knows"


def check_source(source: object) -> None:
    """Raises ModelImportError for a path without a file, and for nothing in a file or in bytes."""
    if isinstance(source, (str, Path)):
        who = str(source)
        what = why_no_file(source) or ("" if os.path.getsize(source) else EMPTY)
    else:
        who = type(source).__name__
        nothing = isinstance(source, (bytes, bytearray, memoryview)) and not source
        what = EMPTY if nothing else ""
    if what:
        raise ModelImportError(what, who=who, do=GIVE)


class Importer(ABC, Generic[Network]):
    """``key``: ``namespace.name@version``; ``format``: the word that converters and
    ``Layer.imports`` use.
    """

    key: str
    format: str

    @abstractmethod
    def claims(self, source: object) -> bool:
        """Whether this looks like its format: a path, bytes, or an object in memory, whatever it
        is. Must be cheap, raise nothing and change nothing.
        """

    @abstractmethod
    def load(self, source: object, network: Network, converters: Sequence[Converter]) -> None:
        """Fill the network. ``converters``: all that are in use. Raises ModelImportError,
        UnsupportedOperator, whatever the content; what lies beside the model stays as it is.
        """

    def files(self, source: str | Path) -> Sequence[Path]:
        """Those that a model is made of beside the one at this path, which it claims; none, unless
        a format has such. Must be cheap. Raises ModelImportError.
        """
        return ()

    @property
    def examples(self) -> Sequence[object]:
        """For the checks of packs: small models, each a file's name and bytes, or an object in
        memory.
        """
        return ()


@dataclass(frozen=True)
class Converter:
    """How one operator becomes layers. ``convert(ctx, node)`` is called by the importer of
    ``format``.

    ``op``: ``domain::Name``; the domain may be ANY_DOMAIN. ``since``: lowest operator-set version
    it is for; the highest one that fits is taken.
    """

    format: str
    op: str
    convert: Callable[..., object]
    since: int = 1

    @property
    def key(self) -> str:
        return f"{self.format}:{self.op}@{self.since}"
