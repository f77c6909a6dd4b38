"""Files that take the place of others whole or not at all."""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path

import pytest

from tactix.base.files import replacing


@pytest.mark.parametrize("name", ["a.txt", "ein Plan ☃.txt", "n" * 255])
def test_readers_see_the_old_file_until_the_block_ends(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"old")
    with open(path, "rb") as held, replacing(path) as f:
        f.write(b"new")
        assert path.read_bytes() == b"old"
        assert held.read() == b"old"
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), ValueError("no"), OSError(errno.ENOSPC, "disk full")]
)
def test_an_error_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, error: BaseException
) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"old")

    def write() -> None:
        with replacing(path) as f:
            f.write(b"half")
            raise error

    with pytest.raises(type(error)):
        write()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_errors_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as lost, replacing(tmp_path / "no" / "a.txt"):
        pass
    assert (lost.value.filename, lost.value.errno) == (str(tmp_path / "no" / "a.txt"), errno.ENOENT)
    with pytest.raises(OSError, match="disk full") as full, replacing(tmp_path / "a.txt"):
        raise OSError(errno.ENOSPC, "disk full")
    assert full.value.filename == str(tmp_path / "a.txt")
    assert full.value.strerror == "disk full; free space there, or name another folder"
    for place in (tmp_path, Path(os.devnull)):
        with pytest.raises(OSError, match=re.escape(str(place))), replacing(place):
            pass
    assert os.listdir(tmp_path) == []


def test_modes(tmp_path: Path) -> None:
    for mode in (0o600, 0o644):
        with replacing(tmp_path / "a.txt", mode) as f:
            f.write(b"x")
        assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == mode & ~_umask()


def _umask() -> int:
    now = os.umask(0)
    os.umask(now)
    return now
