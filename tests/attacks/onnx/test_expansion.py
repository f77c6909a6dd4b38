"""Small files that ask for much: memory, time, depth. Each is imported in a child process, whose
memory is measured.
"""

from __future__ import annotations

import functools
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from onnx_hostile import EXPANSIONS, LONG, MANY

HANGS = 300
"""Seconds after which a child process hangs."""

EXTRA = 500
"""Most MiB that an import may add to the process."""

ADDRESSES = 16 << 30
"""Bytes of address space of a child process, so that a failure does not take the machine along."""


@functools.cache
def rows(table: str) -> dict[str, tuple[str, int]]:
    """Error and MiB by case."""
    program = Path(__file__).with_name("onnx_hostile.py")
    done = subprocess.run(
        [sys.executable, str(program), table],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        capture_output=True,
        text=True,
        timeout=HANGS,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES)),
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return {name: (error, grown) for name, error, grown, _ in found}


@pytest.mark.parametrize("name", EXPANSIONS)
def test_what_would_be_huge_is_refused_or_left_to_running(name: str) -> None:
    error, grown = rows("expansions")[name]
    told = EXPANSIONS[name][1]
    assert (told.lower() in error.lower()) if told else not error
    assert "MemoryError" not in error
    assert "RecursionError" not in error
    assert grown < EXTRA


@pytest.mark.parametrize("name", MANY)
def test_a_file_of_many_empty_parts_is_refused_or_small(name: str) -> None:
    error, grown = rows("many")[name]
    told = MANY[name][1]
    assert told in error if told else "LEAKED" not in error
    assert "MemoryError" not in error
    assert grown < EXTRA


@pytest.mark.parametrize("name", LONG)
def test_a_long_chain_is_no_deep_recursion(name: str) -> None:
    error, grown = rows("long")[name]
    assert not error
    assert grown < EXTRA
