"""Tests sign and trust plans in a folder of their own, and cache objects in pytest's: neither is the user's."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

import pytest


def _folder(variable: str) -> None:
    """Name a new folder, which ends with this process, in the environment: child processes see it, too."""
    os.environ[variable] = tempfile.mkdtemp(prefix="tactix-")
    atexit.register(shutil.rmtree, os.environ[variable], ignore_errors=True)


if "TACTIX_HOME" not in os.environ:  # before any test module loads a plan
    _folder("TACTIX_HOME")


def pytest_configure(config: pytest.Config) -> None:
    if "TACTIX_CACHE_DIR" in os.environ:
        return
    cache = getattr(config, "cache", None)  # there is none under `-p no:cacheprovider`
    if cache is None:
        _folder("TACTIX_CACHE_DIR")
    else:
        os.environ["TACTIX_CACHE_DIR"] = str(cache.mkdir("tactix-objects"))
