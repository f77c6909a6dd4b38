"""Nodes and artifacts as bytes for a process on this machine, where large arrays go by files that
both map.

An array goes by its number, so that one that several candidates have is one there, too. Numbers and
files are those of one node's race.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tactix.contracts.artifact import Packed
from tactix.contracts.graph import Node
from tactix.plugins.session import Session
from tactix.select.contest_pickle import GraphPickler, GraphUnpickler

LARGE = 1 << 14
"""Bytes from which on an array has a file: some pages, less are written as quickly into a pipe."""
ARRAY = "array"


class GraphWriter:
    """For the race of one node. ``folder``: of the files, which ``close`` removes."""

    def __init__(self, folder: Path, node: Node) -> None:
        self.folder = folder
        self._given = [v.spec.const for v in node.given]
        self._schemas: dict[type, str] = {}
        self._files: dict[int, tuple[Any, Path]] = {}
        self._made: dict[int, tuple[Any, Any]] = {}

    def written(self, x: object) -> bytes:
        """Raises whatever pickling it raises, and OSError."""
        file = io.BytesIO()
        _Pickler(file, self._schemas, self._path, self._packed).dump(x)
        return file.getvalue()

    def close(self) -> None:
        """What was written cannot be read any more."""
        for _, path in self._files.values():
            path.unlink(missing_ok=True)
        self._files.clear()

    def _path(self, array: Any) -> str:
        """The file of an array, which is kept, so that its number is no other one's."""
        import numpy as np

        if id(array) not in self._files:
            path = self.folder / f"{id(self):x}-{len(self._files)}"
            content = np.ascontiguousarray(np.asarray(array))
            content.reshape(-1).view(np.uint8).tofile(path)
            self._files[id(array)] = array, path
        return str(self._files[id(array)][1])

    def _packed(self, p: Packed) -> Any:
        """What a function packs, as it may be any; of one function always the same array."""
        assert callable(p.array)
        if id(p.array) not in self._made:
            self._made[id(p.array)] = p.array, p.array(self._given)
        return self._made[id(p.array)][1]


class _Pickler(GraphPickler):
    def __init__(
        self,
        file: io.BytesIO,
        schemas: dict[type, str],
        path: Callable[[Any], str],
        packed: Callable[[Packed], Any],
    ) -> None:
        super().__init__(file, schemas)
        self._path, self._packed = path, packed

    def persistent_id(self, x: object) -> tuple[Any, ...] | None:
        array: Any = x
        if _is_large(array):
            return ARRAY, self._path(array), array.dtype, array.shape
        return super().persistent_id(x)

    def reducer_override(self, x: object) -> Any:
        if isinstance(x, Packed) and callable(x.array):
            return Packed, (x.index, x.steps, self._packed(x))
        return super().reducer_override(x)


def _is_large(x: Any) -> bool:
    """Whether it is an array, or what stands for one, that goes by a file."""
    if not hasattr(type(x), "__array_function__"):
        return False
    return not x.dtype.hasobject and math.prod(x.shape) * x.dtype.itemsize >= LARGE


class GraphReader(GraphUnpickler):
    """``arrays``: those that were read so far in the node's race, by file."""

    def __init__(self, content: bytes, session: Session, arrays: dict[str, Any]) -> None:
        super().__init__(io.BytesIO(content), session)
        self._arrays = arrays

    def persistent_load(self, pid: tuple[Any, ...]) -> object:
        if pid[0] != ARRAY:
            return super().persistent_load(pid)
        _, path, dtype, shape = pid
        if path not in self._arrays:
            self._arrays[path] = _mapped(path, dtype, shape)
        return self._arrays[path]


def _mapped(path: str, dtype: Any, shape: Sequence[int]) -> Any:
    """What is written to it stays in this process."""
    import numpy as np

    return np.asarray(np.memmap(path, np.uint8, "c")).view(dtype).reshape(shape)
