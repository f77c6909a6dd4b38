"""The cache of compiled kernels, and of the lean runtime: a folder of this user's, whose files are
sealed with the key that signs his plans.

What is in it goes into plans that are signed afterwards, so an entry counts only if this user's
tactix wrote it: the folder and the file are his, nobody else may write them, and the seal fits name
and content. Other entries are as good as none. Where there is no such folder, objects are kept
until the process ends, and a warning says so.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import hmac
import os
from pathlib import Path

from tactix.base.cache_folder import cache_folder
from tactix.base.errors import ConfigError, punctuated
from tactix.base.files import private_folder, read_own, replacing, tighten
from tactix.base.logger import Logger
from tactix.base.scratch import ScratchFolder
from tactix_trust import trust_file
from tactix_trust.store import local_key

DOMAIN = b"tactix object cache 1\n"
"""Stands before what the key is used for here, so that no seal is a signature."""

SEAL = 32
"""Bytes of a seal, an HMAC-SHA256, which stands in front of the content."""

LIMIT = 1 << 30
"""Bytes in the cache, about."""


def find(name: str) -> bytes | None:
    """What was put under that name; it then counts as new: no process drops it now."""
    place = _place(name)
    try:
        sealed = read_own(place)
        os.utime(place)
    except FileNotFoundError:
        return None
    except OSError as e:
        told = f"a compiled kernel is not taken from the cache: {e}"
        _warn(punctuated((told, "Name another folder with TACTIX_CACHE_DIR")))
        return None
    content = sealed[SEAL:]
    return content if hmac.compare_digest(sealed[:SEAL], _seal(name, content)) else None


def put(name: str, content: bytes) -> None:
    """Keep content: whole or not at all, whoever else writes it; if that fails, warn. What a
    machine that stops leaves of it has no seal that fits.
    """
    place = _place(name)
    try:
        _private(place.parent)
        with replacing(place, 0o600, durable=False) as f:
            f.write(_seal(name, content) + content)
    except OSError as e:  # one text for all of them: the folder is what can be mended
        told = f"compiled kernels are not kept in {cache_folder()}: {e.strerror or e}"
        _warn(punctuated((told, "Name another folder with TACTIX_CACHE_DIR")))
    _prune_once()


def keep_failed(text: str, suffix: str = ".c") -> Path:
    """Write a source that does not compile beside the cache, for the user to look at."""
    path = _folder("failed") / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}{suffix}"
    with replacing(path, 0o600) as f:
        f.write(text.encode())
    return path


def _folder(name: str) -> Path:
    try:
        return _private(cache_folder() / name)
    except OSError as e:
        do = "Set TACTIX_CACHE_DIR to a folder of your own"
        _warn(punctuated((f"compiled kernels are not kept from one process to the next: {e}", do)))
        return private_folder(_scratch() / name)


def _private(folder: Path) -> Path:
    """In the user's own place one that the umask left open is closed: what is in it is sealed.
    Raises OSError.
    """
    if not os.environ.get("TACTIX_CACHE_DIR"):
        tighten(folder)
    return private_folder(folder)


@functools.cache
def _scratch() -> Path:
    folder = ScratchFolder()
    atexit.register(folder.cleanup)
    return Path(folder.name)


@functools.cache
def _warn(text: str) -> None:
    """Each text once per process."""
    Logger().warning(text)


def _place(name: str) -> Path:
    """Of each user another one, so that users of one folder do not replace each other's."""
    digest = hmac.digest(_key(), name.encode(), "sha256").hex()
    return _objects() / digest[:2] / (digest + Path(name).suffix)


def _objects() -> Path:
    """What is sealed with a key that ends with the process ends with it, too."""
    return (
        _folder("objects")
        if _lasting_key(trust_file.place())
        else private_folder(_scratch() / "objects")
    )


def _seal(name: str, content: bytes) -> bytes:
    sealing = hmac.new(_key(), name.encode() + b"\0", "sha256")
    sealing.update(content)
    return sealing.digest()


def _key() -> bytes:
    return _lasting_key(trust_file.place()) or _passing_key()


@functools.cache
def _lasting_key(place: Path) -> bytes:
    """Made of the secret that signs what is built here, in that trust store; empty where there can
    be none.
    """
    try:
        return hmac.digest(local_key().secret, DOMAIN, "sha256")
    except ConfigError as e:
        _warn(f"compiled kernels are not kept from one process to the next: {e}")
        return b""


@functools.cache
def _passing_key() -> bytes:
    return os.urandom(SEAL)


@functools.cache
def _prune_once() -> None:
    """Once per process: drop the oldest files while the cache holds more than LIMIT."""
    with contextlib.suppress(OSError):
        found = [(f.stat(), f) for f in _objects().glob("*/*") if f.is_file()]
        total = sum(s.st_size for s, _ in found)
        for s, f in sorted(found, key=lambda x: x[0].st_mtime):
            if total <= LIMIT:
                return
            f.unlink(missing_ok=True)
            total -= s.st_size
