"""The script that runs kernels under compute-sanitizer, with a program in its place."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "gpu" / "sanitize.py"


def run(folder: Path, *given: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PATH": str(folder), "CUDA_HOME": str(folder)}
    return subprocess.run(
        [sys.executable, SCRIPT, *given], env=env, capture_output=True, text=True, timeout=60
    )


def test_without_the_program(tmp_path: Path) -> None:
    said = run(tmp_path)
    assert said.returncode == 2
    assert "compute-sanitizer is not installed" in said.stderr


@pytest.mark.parametrize(
    ("status", "words"), [(0, "nothing found"), (86, "errors found"), (3, "exit status 3")]
)
def test_what_it_makes_of_the_programs_status(tmp_path: Path, status: int, words: str) -> None:
    program = tmp_path / "compute-sanitizer"
    program.write_text(f'#!/bin/sh\necho "$@"\n[ "$2" = memcheck ] || exit {status}\n')
    program.chmod(0o755)
    said = run(tmp_path, "--tools", "memcheck,initcheck", "-k", "pool")
    assert said.returncode == bool(status)
    assert "memcheck: nothing found" in said.stdout
    assert f"initcheck: {words}" in said.stdout
    assert "--error-exitcode 86" in said.stdout
    assert "-k pool" in said.stdout


@pytest.mark.parametrize("chosen", ["test_hopper", "test_nothing"])
def test_files_without_a_chosen_test(tmp_path: Path, chosen: str) -> None:
    program = tmp_path / "compute-sanitizer"
    program.write_text(
        f'#!/bin/sh\ncase "$*" in *{chosen}.py*) exit 0 ;; *) echo pytest: 5; exit 255 ;; esac\n'
    )
    program.chmod(0o755)
    said = run(tmp_path, "-k", "stem")
    assert said.returncode == (chosen != "test_hopper")
    words = (
        "test_hopper.py: memcheck: nothing found"
        if chosen == "test_hopper"
        else "memcheck: no test chosen"
    )
    assert " ".join(said.stdout.split()) == words
