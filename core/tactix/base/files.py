"""Files that others may read or write at the same time, and those that nobody but their user may
write.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

ABSENT = "no such file"
NO_FILE = "that is no regular file"
EMPTY = "that is empty"
"""What every reader says of a file, or of bytes, with nothing in it."""


NO_ROOM = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))
FULL = "free space there, or name another folder"
"""The cure for a disk, or a user's share of it, that is full."""


def why_no_file(path: str | Path) -> str:
    """What is wrong with a path at which a regular file should be; empty if there is one."""
    if not os.fspath(path):
        return "the path is empty"
    if os.path.isdir(path):
        return "that is a folder"
    if not os.path.exists(path):
        return ABSENT
    return "" if os.path.isfile(path) else NO_FILE


@contextmanager
def replacing(path: str | Path, mode: int = 0o666, durable: bool = True) -> Iterator[BinaryIO]:
    """A file to write that takes the place of ``path`` when the block ends: readers see the old one
    or the whole new one. After an error the old one stays, and nothing is left beside it. ``mode``:
    as of ``os.open``. ``durable``: wait until the disk has the content; else a machine that stops
    may leave a file of less. Raises OSError that names ``path``, and the cure if the disk is full.
    """
    path = Path(path)
    if path.exists() and not path.is_file():  # a device would be replaced by a file
        raise FileExistsError(errno.EEXIST, why_no_file(path), str(path))
    scratch = path.with_name(
        f".tactix-{os.urandom(8).hex()}"
    )  # short, as names may be as long as can be
    try:
        with open(scratch, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as f:
            yield f
            f.flush()
            if durable:
                os.fsync(f.fileno())
        os.replace(scratch, path)
    except OSError as e:
        what = e.strerror or str(e)
        raise OSError(e.errno, f"{what}; {FULL}" if e.errno in NO_ROOM else what, str(path)) from e
    finally:
        scratch.unlink(missing_ok=True)


def is_private(found: os.stat_result) -> bool:
    """Whether nobody but this user, or root, can write what has this status. Always, where users
    have no numbers.
    """
    return os.name != "posix" or (found.st_uid in (os.geteuid(), 0) and not found.st_mode & 0o022)


def private_folder(path: Path) -> Path:
    """The folder; it and what is missing above it are made for this user alone.

    Raises PermissionError for one that others own or can write, OSError.
    """
    make_private(path)
    _check_private(path, os.stat(path))
    return path


def make_private(path: Path) -> None:
    """Make a folder, and what is missing above it, for this user alone. Raises OSError."""
    for folder in (*reversed([p for p in path.parents if not p.exists()]), path):
        folder.mkdir(mode=0o700, exist_ok=True)


def tighten(path: Path) -> None:
    """Take from others what they may write of a folder, if it is there and of this user. Raises
    OSError.
    """
    if os.name != "posix" or not path.is_dir() or path.is_symlink():
        return
    found = os.stat(path)
    if found.st_uid == os.geteuid() and found.st_mode & 0o022:
        path.chmod(stat.S_IMODE(found.st_mode) & ~0o022)


def read_own(path: Path) -> bytes:
    """The content of a regular file. Raises PermissionError for one that others own or can write,
    OSError.
    """
    with _opened(path) as f:
        _check_private(path, os.fstat(f.fileno()))
        return f.read()


def read_regular(path: Path) -> bytes:
    """The content of a regular file, as pipes and devices may have no end. Raises OSError."""
    with _opened(path) as f:
        return f.read()


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    with open(
        path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0))
    ) as f:
        if not stat.S_ISREG(os.fstat(f.fileno()).st_mode):
            raise FileExistsError(errno.EEXIST, NO_FILE, str(path))
        yield f


def _check_private(path: Path, found: os.stat_result) -> None:
    if not is_private(found):
        do = "others own it or can write it; chown it, chmod go-w it, or remove it"
        raise PermissionError(errno.EPERM, do, str(path))
