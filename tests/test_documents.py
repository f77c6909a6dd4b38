"""What the documents promise: their Python runs, their links lead somewhere, the demo succeeds."""

from __future__ import annotations

import asyncio
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
DOCUMENTS = sorted(
    path
    for pattern in (
        "*.md",
        "docs/**/*.md",
        "examples/*/*.md",
        "plugin_sdk/*/README.md",
        "plugins_builtin/*/README.md",
    )
    for path in ROOT.glob(pattern)
)
ROOTS = ("", "core/tactix", "plugins_builtin", "plugin_sdk")
"""Where paths in documents may begin; beside the folder that the document lies in."""
FILE = re.compile(r"[\w.-]+\.(py|c|h|cu|cuh|md|j2)")
PATH = re.compile(r"[a-z][\w.-]*(/[\w.-]+)+/?|[a-z][\w.-]*/|[\w.-]+\.(py|c|h|cu|cuh|md|j2)")
OF_OTHERS = ("acme_", "tests/test_pack.py", "layer/index/name", "image/", "onnx/")
"""How paths begin that are no files of this tree: those of new packs, names of tensors."""


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def paths_in(text: str) -> list[tuple[str, str]]:
    """Paths in spans of code outside of blocks, each with the name that a colon puts behind it
    (``file.py: name``).
    """
    text = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    spans = (m.partition(": ")[::2] for m in re.findall(r"`([^`\n]+)`", text))
    return [
        (path, name)
        for path, name in spans
        if PATH.fullmatch(path) and not path.startswith(OF_OTHERS)
    ]


def found(path: str, document: Path) -> list[Path]:
    """The files and folders that a path in a document may mean; a bare name of a file means any of
    that name.
    """
    bases = [*(ROOT / root for root in ROOTS), document.parent]
    there = [base / path for base in bases if (base / path).exists()]
    if not there and FILE.fullmatch(path):
        own = [ROOT / root for root in ("core", "plugins_builtin", "plugin_sdk", "tests")]
        there = [f for root in (*own, document.parent) for f in root.rglob(path)]
    return there


def anchors(text: str) -> set[str]:
    """What links to headings of a page may say, as GitHub and mkdocs make it of them."""
    headings = re.findall(
        r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), flags=re.M
    )
    return {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in headings}


def blocks(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, re.S)


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_python_in_documents_parses(path: Path) -> None:
    for block in blocks(path.read_text()):
        compile(block, str(path), "exec")


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_links_lead_somewhere(path: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", path.read_text())
    local = [t for t in targets if not t.startswith("http")]
    assert [t for t in local if not (path.parent / t).exists()] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_links_to_headings_lead_somewhere(path: Path) -> None:
    targets = [
        m
        for m in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", path.read_text())
        if not m[0].startswith("http")
    ]
    pages = ((path.parent / file if file else path, heading) for file, heading in targets)
    assert [
        (page.name, heading) for page, heading in pages if heading not in anchors(page.read_text())
    ] == []


@pytest.mark.parametrize("path", [p for p in DOCUMENTS if p.name != "CHANGELOG.md"], ids=name_of)
def test_paths_are_there(path: Path) -> None:
    missing = []
    for file, name in paths_in(path.read_text()):
        there, words = found(file, path), re.findall(r"\w+", name.partition("(")[0])
        if not there or (
            words and not any(all(w in f.read_text() for w in words) for f in there if f.is_file())
        ):
            missing.append(f"{file}: {name}" if name else file)
    assert missing == []


def test_the_checks_of_paths_see() -> None:
    here = ROOT / "docs" / "architecture.md"
    assert paths_in("see `run/context.py: close` and `lib/`\n```\n`gone.py`\n```\n`x + y`") == [
        ("run/context.py", "close"),
        ("lib/", ""),
    ]
    assert found("run/context.py", here)
    assert not found("tactix_cpu/order_of_nothing.py", here)
    assert anchors("# One `code`: two\n## Three") == {"one-code-two", "three"}


def test_readme_example_runs(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    code = blocks((ROOT / "README.md").read_text())[0]
    env = {**os.environ, "TACTIX_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "digits.plan").exists()
    assert re.match(r"\[\d \d \d ", done.stdout)


@pytest.mark.skipif(os.name != "posix", reason="the README's shell is bash")
def test_readme_quantises_the_example(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (commands,) = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "TACTIX_CACHE_DIR": str(tmp_path / "cache"), "PATH": path}
    done = subprocess.run(
        ["bash", "-ec", commands], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("7 of 7 layers") == 2
    assert (tmp_path / "digits.int8.onnx").exists()
    assert (tmp_path / "digits.int8.plan").exists()


def test_user_guide_network_and_context_run() -> None:
    found = blocks((ROOT / "docs" / "user-guide.md").read_text())
    by_word = {word: b for b in found for word in ("add_layer", "execute_v2") if f".{word}(" in b}
    rng = np.random.default_rng(2)
    builder = tactix.Builder()
    names: dict[str, Any] = {
        "builder": builder,
        "weights": rng.standard_normal((64, 10), np.float32),
    }
    exec(by_word["add_layer"], names)
    engine = builder.build(
        names["network"], tactix.BuilderConfig(builder_optimization_level=0, timing_cache=False)
    )
    x, out = rng.standard_normal((3, 64), np.float32), np.zeros((3, 10), np.float32)
    exec(by_word["execute_v2"], {"engine": engine, "x": x, "out": out, "stream": 0})
    np.testing.assert_allclose(out, np.maximum(x @ names["weights"], 0), rtol=1e-4, atol=1e-5)


def test_user_guide_serves(tmp_path: Path) -> None:
    found = blocks((ROOT / "docs" / "user-guide.md").read_text())
    (block,) = (b for b in found if "run_async" in b)
    builder = tactix.Builder()
    network = builder.create_network("doubled")
    x = network.add_input("x", "f32", ("batch", 4))
    (y,) = network.add_layer("tactix.Add", [x, x])
    network.mark_output(y, "y")
    config = tactix.BuilderConfig(builder_optimization_level=0, timing_cache=False)
    builder.build(network, config).save(tmp_path / "doubled.plan")
    names: dict[str, Any] = {"tactix": tactix}
    exec(block, names)
    given, out = np.ones((2, 4), np.float32), np.zeros((2, 4), np.float32)
    outputs, stats = asyncio.run(names["served"](tmp_path / "doubled.plan", given, out))
    assert np.array_equal(out, given * 2)
    assert np.array_equal(outputs["y"], out)
    assert stats.answered == 2


def test_readme_begins_with_the_two_commands() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert [line.split("#")[0].strip() for line in lines[2:4]] == ["make demo", "make test"]


def test_demo_succeeds(tmp_path: Path) -> None:
    env = {**os.environ, "TACTIX_CACHE_DIR": str(tmp_path)}
    demo = ROOT / "examples" / "digits" / "demo.py"
    done = subprocess.run([sys.executable, str(demo)], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for text in (
        "accuracy: 0.99",
        "agree with ONNX Runtime",
        "Median latency",
        "conv2d_1",
        "Rules that fired",
    ):
        assert text in done.stdout, done.stdout
