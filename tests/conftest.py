"""Tests sign and trust plans in a folder of their own, and cache objects in pytest's: neither is
the user's.

The key is always the same, as it seals what is in the cache.
"""

from __future__ import annotations

import atexit
import gc
import hashlib
import json
import os
import shutil
import sys
import tempfile
import zlib

import pytest

sys.path.insert(
    0, os.path.join(os.path.dirname(__file__), "shared")
)  # what several folders of tests import


def _folder(variable: str) -> None:
    """Name a new folder, which ends with this process, in the environment: child processes see it,
    too.
    """
    os.environ[variable] = tempfile.mkdtemp(prefix="tactix-")
    atexit.register(shutil.rmtree, os.environ[variable], ignore_errors=True)


def _trust_store(folder: str) -> None:
    secret = hashlib.sha256(b"of tactix's tests").digest()
    name = hashlib.sha256(b"hmac-sha256\0" + secret).hexdigest()[:32]
    key = {"algorithm": "hmac-sha256", "secret": secret.hex(), "public": "", "name": "local"}
    with open(
        os.path.join(folder, "trust.json"), "x", opener=lambda path, how: os.open(path, how, 0o600)
    ) as f:
        json.dump({"version": 1, "local": name, "keys": [key], "digests": {}}, f)


if "TACTIX_HOME" not in os.environ:  # before any test module loads a plan
    _folder("TACTIX_HOME")
    _trust_store(os.environ["TACTIX_HOME"])


def pytest_configure(config: pytest.Config) -> None:
    if "TACTIX_CACHE_DIR" in os.environ:
        return
    cache = getattr(config, "cache", None)  # there is none under `-p no:cacheprovider`
    if cache is None:
        _folder("TACTIX_CACHE_DIR")
    else:
        os.environ["TACTIX_CACHE_DIR"] = str(cache.mkdir("tactix-objects"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A share of the tests, the same ones each time, where tests/masks.py asks for that."""
    share = os.environ.get("TACTIX_TESTS_SHARE")
    if share is None:
        return
    which, of = map(int, share.split("/"))
    kept: list[pytest.Item] = []
    others: list[pytest.Item] = []
    for item in items:
        (kept if zlib.crc32(item.nodeid.encode()) % of == which else others).append(item)
    config.hook.pytest_deselected(items=others)
    items[:] = kept


def pytest_collection_finish() -> None:
    """Tests that were collected, are not looked through again by
    every collection of garbage.
    """
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    from tactix_cpu.compiler import CCompiler

    if item.get_closest_marker("compiler") and (why := CCompiler().available()):
        pytest.skip(why)
