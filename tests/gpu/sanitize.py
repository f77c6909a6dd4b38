"""Kernels under NVIDIA's compute-sanitizer: ``python tests/gpu/sanitize.py [--tools a,b] [-k EXPRESSION]``.

Each tool runs a few tests of ``tests/gpu/test_tactics.py``, which ``-k`` chooses as pytest does, over plain launches
and not graphs, so that a finding names its kernel. The exit status is 0 if no tool found anything, 1 if one did, and 2
if compute-sanitizer is not installed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

TOOLS = ("memcheck", "racecheck", "initcheck")
FOUND = 86
"""The exit status that compute-sanitizer is told to give when it finds something."""
KERNELS = "rows_softmax or pools or move_transpose"
TESTS = Path(__file__).with_name("test_tactics.py")


def sanitizer() -> str:
    """Where it is; empty if nowhere."""
    toolkit = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin")
    return shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path=str(toolkit)) or ""


def check(program: str, tool: str, kernels: str) -> bool:
    """Whether a tool finds nothing, and the tests pass."""
    command = [
        program, "--tool", tool, "--error-exitcode", str(FOUND), "--target-processes", "all",
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(TESTS), "-k", kernels,
    ]  # fmt: skip
    status = subprocess.run(command, env={**os.environ, "TACTIX_CUDA_GRAPH": "0"}).returncode
    said = "nothing found" if not status else "errors found" if status == FOUND else f"exit status {status}"
    print(f"{tool}: {said}", flush=True)
    return status == 0


def main(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--tools", default=",".join(TOOLS), help="some of memcheck, racecheck, initcheck, synccheck")
    parser.add_argument("-k", dest="kernels", default=KERNELS, help="which tests, as for pytest")
    options = parser.parse_args(given)
    program = sanitizer()
    if not program:
        print("compute-sanitizer is not installed: it comes with the CUDA toolkit", file=sys.stderr)
        return 2
    clean = [check(program, tool, options.kernels) for tool in options.tools.split(",")]
    return 0 if all(clean) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
