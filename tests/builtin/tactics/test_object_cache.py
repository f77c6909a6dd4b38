"""The cache of compiled kernels belongs to one user, whoever else can write where it lies."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import NATIVE

from tactix.contracts.artifact import Source
from tactix_cpu.compiler import CCompiler
from tactix_trust import object_cache

posix = pytest.mark.skipif(os.name != "posix", reason="users have no numbers here")
KERNEL = Source("c", "void TX_ENTRY(const int64_t* a, int tid, int nt) { *(int64_t*)a[0] = 1; }\n")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TACTIX_CACHE_DIR", str(tmp_path / "deep" / "cache"))
    object_cache._warn.cache_clear()
    return tmp_path / "deep" / "cache"


def entry(cache: Path) -> Path:
    (found,) = (cache / "objects").glob("*/*")
    return found


@posix
def test_what_is_put_is_found_by_its_user_alone(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert object_cache.find("a.so") is None
    object_cache.put("a.so", b"code")
    assert object_cache.find("a.so") == b"code"
    made = entry(cache)
    assert made.suffix == ".so"
    folders = [made.parent, *made.parents[1:3]]
    assert [stat.S_IMODE(p.stat().st_mode) for p in (made, *folders)] == [
        0o600,
        0o700,
        0o700,
        0o700,
    ]
    monkeypatch.setenv("TACTIX_HOME", str(tmp_path / "another"))
    assert object_cache.find("a.so") is None
    object_cache.put("a.so", b"theirs")
    monkeypatch.undo()
    monkeypatch.setenv("TACTIX_CACHE_DIR", str(cache))
    assert object_cache.find("a.so") == b"code"


@pytest.mark.parametrize(
    "spoil",
    [lambda b: b[:-1] + b"!", lambda b: b[32:], lambda b: b"", lambda b: bytes(32) + b[32:]],
)
def test_what_is_not_sealed_is_none(cache: Path, spoil: Callable[[bytes], bytes]) -> None:
    object_cache.put("a.so", b"code")
    entry(cache).write_bytes(spoil(entry(cache).read_bytes()))
    assert object_cache.find("a.so") is None


def test_an_entry_is_of_its_name_alone(cache: Path) -> None:
    """Whoever may write the folder cannot give one kernel the place of another."""
    object_cache.put("a.so", b"code")
    object_cache.put("b.so", b"other")
    one, other = sorted((cache / "objects").glob("*/*"))
    one.write_bytes(other.read_bytes())
    assert list(filter(None, (object_cache.find("a.so"), object_cache.find("b.so")))) in (
        [b"code"],
        [b"other"],
    )


def test_a_foreign_object_is_never_linked(cache: Path) -> None:
    (want,) = CCompiler().compile([KERNEL], NATIVE)
    for place in (cache / "objects").glob("*/*"):
        place.write_bytes(b"\x7fELF of somebody else")
    (got,) = CCompiler().compile([KERNEL], NATIVE)
    assert got.blob == want.blob


@posix
@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_an_entry_that_others_can_write_is_none(
    cache: Path, mode: int, capsys: pytest.CaptureFixture[str]
) -> None:
    object_cache.put("a.so", b"code")
    entry(cache).chmod(mode)
    assert object_cache.find("a.so") is None
    assert "others own it or can write it" in capsys.readouterr().err


def _foreign(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """As if paths that end so were of another user, who is not root."""
    real, user = os.stat, os.geteuid() + 1

    def seen(path: Any, **more: Any) -> os.stat_result:
        found = list(real(path, **more))
        found[stat.ST_UID] = user if str(path).endswith(name) else found[stat.ST_UID]
        return os.stat_result(found)

    monkeypatch.setattr(os, "stat", seen)


def test_a_full_disk_is_told_once_with_the_cure_and_leaves_nothing(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*places: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    for name in ("a.so", "b.so", "c.o"):
        object_cache.put(name, b"code")
        assert object_cache.find(name) is None
    told = capsys.readouterr().err
    assert told.count("compiled kernels are not kept in") == 1
    assert "free space there, or name another folder" in told
    assert "TACTIX_CACHE_DIR" in told
    assert not [p for p in cache.rglob("*") if p.is_file()]


@posix
@pytest.mark.parametrize("how", ["owner", "group", "world", "file"])
def test_without_a_folder_of_ones_own_objects_last_as_long_as_the_process(
    cache: Path, how: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if how == "file":
        cache.parent.mkdir()
        cache.write_bytes(b"")
    else:
        (cache / "objects").mkdir(parents=True)
        (cache / "objects").chmod({"owner": 0o700, "group": 0o770, "world": 0o777}[how])
    if how == "owner":
        _foreign(monkeypatch, "cache/objects")
    scratch = cache.with_name("scratch")
    monkeypatch.setattr(object_cache, "_scratch", lambda: scratch)
    object_cache.put("a.so", b"code")
    told = capsys.readouterr().err
    assert told.count("compiled kernels are not kept from one process to the next") == 1
    assert "TACTIX_CACHE_DIR" in told
    assert object_cache.find("a.so") == b"code"
    assert list((scratch / "objects").glob("*/*.so"))
    assert how == "file" or not list((cache / "objects").iterdir())


@posix
@pytest.mark.parametrize("mode", [0o775, 0o777])
def test_folders_that_a_umask_left_open_are_closed_in_the_users_own_place(
    tmp_path: Path, mode: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "tactix"
    monkeypatch.delenv("TACTIX_CACHE_DIR", raising=False)
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: str(place))
    object_cache._warn.cache_clear()
    object_cache.put("a.so", b"code")
    folders = [entry(place).parent, place / "objects"]
    for folder in folders:
        folder.chmod(mode)
    object_cache.put("a.so", b"other")
    assert object_cache.find("a.so") == b"other"
    assert [stat.S_IMODE(f.stat().st_mode) for f in folders] == [0o755, 0o755]
    assert capsys.readouterr().err == ""


def test_without_a_key_nothing_is_left_behind(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("TACTIX_HOME", str(tmp_path / "file" / "below"))
    monkeypatch.setattr(object_cache, "_scratch", lambda: tmp_path / "scratch")
    object_cache.put("a.so", b"code")
    assert object_cache.find("a.so") == b"code"
    assert not cache.exists()
    assert "cannot write the trust store" in capsys.readouterr().err


def test_the_oldest_objects_are_dropped_when_the_cache_is_full(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    object_cache.put("old.o", b"x" * 1000)
    os.utime(entry(cache), (1, 1))
    monkeypatch.setattr(object_cache, "LIMIT", 500)
    object_cache._prune_once.cache_clear()
    object_cache.put("new.o", b"y")
    assert object_cache.find("old.o") is None
    assert object_cache.find("new.o") == b"y"
