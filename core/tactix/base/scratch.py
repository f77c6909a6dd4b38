"""Temporary folders that go with their process, however it ends.

A process that is killed cleans nothing. So each folder holds a file that its owner keeps locked:
who next needs such a folder removes those beside it whose file nobody holds. A lock, unlike a
number of a process, means the same in every container that shares the folder.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import tempfile
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

PREFIX = "tactix-"
OWNER = ".owner"
"""Of the file in each folder that its owner keeps locked."""


class ScratchFolder(tempfile.TemporaryDirectory[str]):
    """A new folder in ``where`` (by default the system's for temporary files), until ``cleanup`` or
    the block's end.

    Those beside it whose processes are gone are removed, once in a process. Raises OSError.
    """

    def __init__(self, where: str | os.PathLike[str] | None = None) -> None:
        _sweep_once(os.fspath(where or tempfile.gettempdir()))
        super().__init__(prefix=PREFIX, dir=where)
        self._owner = _own(Path(self.name))

    def cleanup(self) -> None:
        super().cleanup()
        if self._owner is not None:
            self._owner.close()


def _own(folder: Path) -> BinaryIO | None:
    """The locked file; it has its name only when it is locked, so that nobody takes the folder for
    abandoned.
    """
    if fcntl is None:
        return None
    owner = open(folder / f"{OWNER}-new", "xb")  # noqa: SIM115 - closed with the folder
    with contextlib.suppress(OSError):  # a file system without locks: its folders are never swept
        fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(folder / f"{OWNER}-new", folder / OWNER)
    return owner


@functools.cache
def _sweep_once(where: str) -> None:
    sweep(Path(where))


def sweep(where: Path) -> None:
    """Remove this user's scratch folders in ``where`` whose owners are gone."""
    if fcntl is None:
        return
    with contextlib.suppress(OSError):
        for folder in where.glob(f"{PREFIX}*"):
            with contextlib.suppress(OSError):  # of others, or gone meanwhile
                _remove_abandoned(folder)


def _remove_abandoned(folder: Path) -> None:
    if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
        return
    with open(
        folder / OWNER, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW)
    ) as owner:
        fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError: its owner lives
        shutil.rmtree(folder)
