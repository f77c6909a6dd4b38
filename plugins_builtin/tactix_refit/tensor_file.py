"""Files of safetensors: weights by name, beside which nothing is read.

The library `safetensors` reads them. It compares every size in the header with the bytes that are
there before it uses one. That no name is there twice, which it takes for granted, is seen to here.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tactix.base.dtypes import DType
from tactix.base.errors import ConfigError, InvalidArgument

Array = Any

FLOATS = {"F64": DType.FP64, "F32": DType.FP32, "F16": DType.FP16, "BF16": DType.BF16}
"""Types of elements that weights have, by their names in the file."""

LENGTH = struct.Struct("<Q")
"""What a file begins with: the bytes of the header behind it."""


METADATA = "__metadata__"
"""The one entry of the header that is no tensor."""


@dataclass(frozen=True)
class StoredTensor:
    """``dtype``: None for elements that are no floating-point numbers of 16 bits or more."""

    dtype: DType | None
    shape: tuple[int, ...]


class TensorFile:
    """A file that is open, and whose header is sound. Use it in a ``with`` statement.

    ``tensors``: what is in it, by name. Raises InvalidArgument for another or a damaged file,
    ConfigError where the library is not installed.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        try:
            import safetensors
        except ImportError as e:
            do = "pip install 'tactix[safetensors]'"
            raise ConfigError("the library safetensors is needed", why=str(e), do=do) from None
        try:
            self._file: Any = safetensors.safe_open(self.path, framework="numpy")
        except (OSError, safetensors.SafetensorError) as e:
            what = "that is no file of safetensors, or it is damaged"
            raise InvalidArgument(what, who=self.path, why=str(e)) from None
        names = self._names()
        self.tensors: Mapping[str, StoredTensor] = {name: self._told(name) for name in names}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self._file.__exit__(kind, error, where)

    def _names(self) -> list[str]:
        """Of tensors. Raises InvalidArgument for one that is there twice; the library keeps the
        last.
        """

        def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
            found = dict(pairs)
            if len(found) < len(pairs):
                names = [name for name, _ in pairs]
                twice = next(name for name in names if names.count(name) > 1)
                raise InvalidArgument(f"{twice!r} is there twice", who=self.path)
            return found

        with open(self.path, "rb") as f:
            (length,) = LENGTH.unpack(f.read(LENGTH.size))
            header = json.loads(f.read(length), object_pairs_hook=unique)
        return sorted(header.keys() - {METADATA})

    def _told(self, name: str) -> StoredTensor:
        part = self._file.get_slice(name)
        return StoredTensor(FLOATS.get(part.get_dtype()), tuple(part.get_shape()))

    def array(self, name: str) -> Array:
        """A tensor of floating-point numbers, in memory of its own. Raises KeyError."""
        assert self.tensors[name].dtype is not None
        return self._file.get_tensor(name)
