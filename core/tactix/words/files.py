"""Files that others may read or write at the same time."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: str | Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """A file to write that takes the place of ``path`` when the block ends: readers see the old one or the whole new
    one. After an error the old one stays, and nothing is left beside it. ``mode``: as of ``os.open``. Raises OSError
    that names ``path``.
    """
    path = Path(path)
    if path.exists() and not path.is_file():  # a device would be replaced by a file
        raise FileExistsError(errno.EEXIST, "that is no regular file", str(path))
    scratch = path.with_name(f".tactix-{os.urandom(8).hex()}")  # short, as names may be as long as can be
    try:
        with open(scratch, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as f:
            yield f
            f.flush()
            os.fsync(f.fileno())
        os.replace(scratch, path)
    except OSError as e:
        raise OSError(e.errno, e.strerror or str(e), str(path)) from e
    finally:
        scratch.unlink(missing_ok=True)
