"""The example packs, each installed by pip into a folder of its own, pass their own tests; what
they skip, they say.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sdk_site import own_cache, pip_install

from tactix_cuda.device import the_device

EXAMPLES = Path(__file__).parents[2] / "examples"
PACKS = sorted(p.parent.name for p in EXAMPLES.glob("*/pyproject.toml"))
NOTHING_TO_DO = (
    "the pack has no",
    "no layer of the pack has a primitive",
    "no classes that derive from contracts",
    "running its tactics needs nothing of the pack",
    "its tactics run Python of the pack",
)
MISSING = (
    "NVRTC",
    "cuda-python is not installed",
    "Triton is not installed",
    "no oneDNN was found",
    the_device().available() or "no CUDA device",
    "Triton is installed",
    "a GPU is here",
)
"""What packs say where what they are over is not there, or where it is and a test is about its
absence.
"""


@pytest.mark.parametrize("pack", PACKS)
def test_a_pack_passes_its_tests(pack: str, tmp_path: Path) -> None:
    site = pip_install(EXAMPLES / pack, tmp_path)
    path = os.pathsep.join([str(site), *filter(None, sys.path)])
    env = {**os.environ, "PYTHONPATH": path, "TACTIX_CACHE_DIR": own_cache(tmp_path / "cache")}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-rs",
        "-p",
        "no:cacheprovider",
        str(tmp_path / "source" / "tests"),
    ]
    done = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    skipped = [line for line in done.stdout.splitlines() if line.startswith("SKIPPED")]
    assert [
        line for line in skipped if not any(k in line for k in (*NOTHING_TO_DO, *MISSING))
    ] == []


def test_every_example_pack_is_listed() -> None:
    text = (EXAMPLES.parent / "docs" / "plugins" / "README.md").read_text(encoding="utf-8")
    assert [p for p in PACKS if f"](../../examples/{p})" not in text] == []
