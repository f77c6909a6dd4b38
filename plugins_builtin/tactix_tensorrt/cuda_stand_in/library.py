"""libcudart as a file: for what loads it without Python's ``ctypes``, or before ``install()``."""

from __future__ import annotations

import hashlib
import sys
import threading
from importlib import resources
from pathlib import Path

from tactix.base.errors import CompilerError
from tactix.base.scratch import ScratchFolder
from tactix_codegen.compiler_process import run_all
from tactix_codegen.compiling import first_errors
from tactix_cpu.compiler import find_compiler, version
from tactix_trust import object_cache

FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-shared", "-pthread", "-Wl,-soname,libcudart.so.12")
_TIMEOUT = 120.0
"""Seconds: the file takes GCC less than one, ziglang's first run about a minute."""


def library() -> bytes | None:
    """The shared object, from the cache or compiled; None without a C compiler, or where loaders
    look for no such file: Python programs have ``install()`` there. Raises CompilerError.
    """
    command = find_compiler()
    if not command or sys.platform != "linux":
        return None
    text = resources.files(__package__).joinpath("cudart.c").read_text(encoding="utf-8")
    key = "\0".join((version(command), *FLAGS, text))
    name = f"cudart-{hashlib.sha256(key.encode()).hexdigest()}.so"
    found = object_cache.find(name)
    if found is None:
        found = _compile(command, text)
        object_cache.put(name, found)
    return found


def _compile(command: tuple[str, ...], text: str) -> bytes:
    with ScratchFolder() as folder:
        Path(folder, "cudart.c").write_text(text, encoding="utf-8")
        words = [*command, *FLAGS, "cudart.c", "-o", "libcudart.so"]
        (outcome,) = run_all([words], folder, _TIMEOUT, threading.Event())
        if outcome.code == 0:
            return Path(folder, "libcudart.so").read_bytes()
    why = first_errors(outcome.output) if outcome.code else f"no answer within {_TIMEOUT:g} s"
    raise CompilerError(f"{command[0]} failed", who="libcudart's stand-in", why=why, do="Check CC")
