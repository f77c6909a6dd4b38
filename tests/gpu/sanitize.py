"""Kernels under NVIDIA's compute-sanitizer: ``python tests/gpu/sanitize.py [--tools a,b] [-k
EXPRESSION]``.

Each tool runs the tests of every kernel, or those of them that ``-k`` chooses as pytest does, over
plain launches and not graphs, so that a finding names its kernel. Each file's tests are a process
of their own, all at once. The exit status is 0 if no tool found anything, 1 if one did, or a test
failed, and 2 if compute-sanitizer is not installed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

FOUND = 86
"""The exit status that compute-sanitizer is told to give when it finds something."""
PYTEST = "import sys, pytest; status = int(pytest.main(sys.argv[1:])); print('pytest:', status); sys.exit(status)"
NONE_CHOSEN = "pytest: 5"
"""Where ``-k`` chooses nothing of a file, which the tools themselves take for a failure."""
FILES = tuple(
    Path(__file__).with_name(f"test_{name}.py")
    for name in ("tactics", "breadth", "gemm", "conv", "attention", "hopper", "cublaslt", "cudnn")
)


def sanitizer() -> str:
    """Where it is; empty if nowhere."""
    toolkit = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin")
    return (
        shutil.which("compute-sanitizer")
        or shutil.which("compute-sanitizer", path=str(toolkit))
        or ""
    )


def run(program: str, tool: str, kernels: str, tests: Path) -> subprocess.CompletedProcess[str]:
    """One file's tests under a tool."""
    command = [
        program, "--tool", tool, "--error-exitcode", str(FOUND), "--target-processes", "all",
        sys.executable, "-c", PYTEST, "-q", "-p", "no:xdist", str(tests), "-k", kernels,
    ]  # fmt: skip
    env = {**os.environ, "TACTIX_CUDA_GRAPH": "0"}
    return subprocess.run(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def check(program: str, tool: str, kernels: str) -> bool:
    """Whether a tool finds nothing, and the tests pass."""
    with ThreadPoolExecutor(len(FILES)) as pool:
        done = list(pool.map(partial(run, program, tool, kernels), FILES))
    ran = {
        path: made for path, made in zip(FILES, done, strict=True) if NONE_CHOSEN not in made.stdout
    }
    for path, made in ran.items():
        print(f"{path.name}:\n{made.stdout}")
    statuses = {made.returncode for made in ran.values()}
    worst = FOUND if FOUND in statuses else max(statuses, key=abs, default=0)
    said = (
        "errors found" if worst == FOUND else f"exit status {worst}" if worst else "nothing found"
    )
    print(f"{tool}: {said if ran else 'no test chosen'}", flush=True)
    return bool(ran) and not worst


def main(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0] if __doc__ else "")
    parser.add_argument(
        "--tools", default="memcheck", help="some of memcheck, racecheck, initcheck, synccheck"
    )
    parser.add_argument("-k", dest="kernels", default="", help="which tests, as for pytest; all")
    options = parser.parse_args(given)
    program = sanitizer()
    if not program:
        print("compute-sanitizer is not installed: it comes with the CUDA toolkit", file=sys.stderr)
        return 2
    clean = [check(program, tool, options.kernels) for tool in options.tools.split(",")]
    return 0 if all(clean) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
