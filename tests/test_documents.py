"""What the documents promise: their Python runs, their links lead somewhere, the demo succeeds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tactix

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*/*.md")])


def blocks(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, re.S)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_python_in_documents_parses(path: Path) -> None:
    for block in blocks(path.read_text()):
        compile(block, str(path), "exec")


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_links_lead_somewhere(path: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", path.read_text())
    local = [t for t in targets if not t.startswith("http")]
    assert [t for t in local if not (path.parent / t).exists()] == []


def test_readme_example_runs(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    code = blocks((ROOT / "README.md").read_text())[0]
    env = {**os.environ, "TACTIX_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "digits.plan").exists()
    assert re.match(r"\[\d \d \d ", done.stdout)


def test_user_guide_network_and_context_run() -> None:
    found = blocks((ROOT / "docs" / "user-guide.md").read_text())
    by_word = {word: b for b in found for word in ("add_layer", "execute_v2") if f".{word}(" in b}
    rng = np.random.default_rng(2)
    builder = tactix.Builder()
    names: dict[str, Any] = {"builder": builder, "weights": rng.standard_normal((64, 10), np.float32)}
    exec(by_word["add_layer"], names)
    engine = builder.build(names["network"], tactix.BuilderConfig(builder_optimization_level=0, timing_cache=False))
    x, out = rng.standard_normal((3, 64), np.float32), np.zeros((3, 10), np.float32)
    exec(by_word["execute_v2"], {"engine": engine, "x": x, "out": out, "stream": 0})
    np.testing.assert_allclose(out, np.maximum(x @ names["weights"], 0), rtol=1e-4, atol=1e-5)


def test_readme_begins_with_the_two_commands() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert [line.split("#")[0].strip() for line in lines[2:4]] == ["make demo", "make test"]


def test_demo_succeeds(tmp_path: Path) -> None:
    env = {**os.environ, "TACTIX_CACHE_DIR": str(tmp_path)}
    demo = ROOT / "examples" / "digits" / "demo.py"
    done = subprocess.run([sys.executable, str(demo)], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for text in ("accuracy: 0.99", "agree with ONNX Runtime", "Median latency", "conv2d_1", "Rules that fired"):
        assert text in done.stdout, done.stdout
