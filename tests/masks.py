"""The tests of the CPU's kernels, as older processors run them: once for each of MASKS that takes something away here.

``python tests/masks.py [pytest's arguments]``, or ``make masks``. Ends at the first mask under which a test fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from tactix_builtin.devices.cpu import CpuDevice
from tactix_builtin.devices.features import MASK
from tactix_builtin.devices.mask import masked

ROOT = Path(__file__).parents[1]
KERNELS = ("tests/builtin/tactics", "tests/builtin/test_references.py", "tests/end_to_end/test_random_networks.py")
FEWER = ("tests/builtin/test_references.py", "tests/end_to_end/test_random_networks.py")
MASKS = {
    "x86-64-v4": (*KERNELS, "tests/end_to_end/test_builder.py"),
    "x86-64-v3": (*KERNELS, "tests/end_to_end/test_models.py"),
    "x86-64-v2": FEWER,
}
"""What runs under each; the first is AVX-512 without bfloat16, VNNI or AMX."""


def main(arguments: list[str]) -> int:
    """Pytest's exit status under the first mask that fails, else 0."""
    if os.environ.get(MASK):
        print(f"{MASK} is set: the masks would be laid over it", file=sys.stderr)
        return 2
    here, seen = CpuDevice().properties().features, set[frozenset[str]]()
    for mask, paths in MASKS.items():
        left = masked(here, mask)
        if left == here or left in seen:
            print(f"{MASK}={mask}: it takes nothing away from this processor that was not away before: skipped")
            continue
        seen.add(left)
        print(f"{MASK}={mask}: without {', '.join(sorted(here - left))}", flush=True)
        begin, environment = time.monotonic(), {**os.environ, MASK: mask}
        status = subprocess.run(
            [sys.executable, "-m", "pytest", *arguments, *paths], cwd=ROOT, env=environment
        ).returncode
        print(f"{MASK}={mask}: {time.monotonic() - begin:.0f} s", flush=True)
        if status:
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
