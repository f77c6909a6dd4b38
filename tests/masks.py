"""The tests that depend on the processor, as older ones run them: once for each of MASKS that takes
features away.

``python tests/masks.py [--whole] [pytest's arguments]``, or ``make masks``. Ends at the first mask
under which a test fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from tactix_cpu.device import CpuDevice
from tactix_cpu.features import MASK
from tactix_cpu.mask import masked

SHARE = "TACTIX_TESTS_SHARE"
"""The variable that tells tests/conftest.py which tests run: ``0/12`` is the first of twelve
shares.
"""
FULL = "TACTIX_TESTS_FULL"
"""The variable that has tests/builtin/tactics compile as measured builds do, with every
optimization: without it the shapes beside those of test_targets.py would never be compiled so.
"""

ROOT = Path(__file__).parents[1]
PARTS = (
    "tests/builtin/tactics",
    "tests/builtin/test_references.py",
    "tests/end_to_end/test_random_networks.py",
    "tests/end_to_end/test_builder.py",
    "tests/end_to_end/test_models.py",
)
"""What asks the processor which kernels to make, and runs them."""
ONCE = (
    "tests/builtin/tactics/test_targets.py",
    "tests/builtin/tactics/test_cc.py",
    "tests/builtin/tactics/test_object_cache.py",
)
"""What would find nothing new: it names its targets itself, or is about the compiler and its cache.
"""
MASKS = {"x86-64-v4": "0/12", "x86-64-v3": "1/3", "x86-64-v2": "2/12"}
"""Which of PARTS' tests run under each: test_targets.py runs every kind of kernel on every level
already. The first is AVX-512 without bfloat16, VNNI or AMX; the second is what most processors
without AVX-512 are.
"""
WHOLE = "--whole"
"""Before pytest's arguments: all of PARTS under each mask."""


def main(arguments: list[str]) -> int:
    """Pytest's exit status under the first mask that fails, else 0."""
    if os.environ.get(MASK):
        print(f"{MASK} is set: the masks would be laid over it", file=sys.stderr)
        return 2
    whole = arguments[:1] == [WHOLE]
    here, seen = CpuDevice().properties().features, set[frozenset[str]]()
    command = [
        sys.executable,
        "-m",
        "pytest",
        *arguments[whole:],
        *PARTS,
        *(f"--ignore={path}" for path in ONCE),
    ]
    for mask, share in MASKS.items():
        left = masked(here, mask)
        if left == here or left in seen:
            print(
                f"{MASK}={mask}: it takes nothing away from this processor that was not away before: skipped"
            )
            continue
        seen.add(left)
        print(f"{MASK}={mask}: without {', '.join(sorted(here - left))}", flush=True)
        begin, environment = time.monotonic(), {**os.environ, MASK: mask, FULL: "1"}
        if not whole:
            environment[SHARE] = share
        status = subprocess.run(command, cwd=ROOT, env=environment).returncode
        print(f"{MASK}={mask}: {time.monotonic() - begin:.0f} s", flush=True)
        if status:
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
