"""The guide does what it says: every page's Python and shell runs, page by page, with the output that it shows."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import guide
import pytest

from tactix_sdk.testing import CHECKS, ordered

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "plugins").glob("*.md"))
RUNNING = [p for p in PAGES if any(b.runs for b in guide.blocks(p.read_text()))]


@pytest.mark.parametrize("page", RUNNING, ids=lambda p: p.stem)
def test_the_page_runs(page: Path, tmp_path: Path) -> None:
    env = guide.environment(tmp_path / "env")
    (tmp_path / "work").mkdir()
    command = ["python", str(Path(guide.__file__)), str(page)]
    done = subprocess.run(
        command, cwd=tmp_path / "work", env=env, executable=tmp_path / "env" / "bin" / "python", text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:]
