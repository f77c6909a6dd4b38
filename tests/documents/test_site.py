"""The site of the documents has every contract, and is built without a warning where mkdocs is
installed.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("mkdocs", "material", "mkdocstrings")


def test_every_contract_that_hooks_name_is_on_the_page() -> None:
    hooks = (ROOT / "core" / "tactix" / "plugins" / "hookspecs.py").read_text()
    named = set(re.findall(r"^    from (tactix\.contracts\.\w+) import", hooks, flags=re.M))
    assert named
    assert named <= set(
        re.findall(r"^::: (\S+)$", (ROOT / "docs" / "contracts.md").read_text(), flags=re.M)
    )


@pytest.mark.skipif(not all(map(importlib.util.find_spec, TOOLS)), reason="needs the extra `docs`")
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path]
    done = subprocess.run(
        command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    assert done.returncode == 0, done.stdout
    assert 'class="mermaid"' in (tmp_path / "architecture.html").read_text()
