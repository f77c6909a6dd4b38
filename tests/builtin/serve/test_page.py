"""docs/serving.md does what it says: its Python, its command, its configuration."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tactix_serve.config import ModelConfig, read_config

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "serving.md").read_text()
X = np.ones((2, 4), np.float32)


def block(name: str) -> dict[str, Any]:
    """What a block of Python defines."""
    (text,) = re.findall(rf"```python\n# python: {name}\n(.*?)```", PAGE, re.S)
    names: dict[str, Any] = {}
    exec(text, names)
    return names


def test_the_engine(plans: Any, expected: Callable[..., Any]) -> None:
    y = np.zeros((2, 3), np.float32)
    outputs, stats = asyncio.run(block("engine")["serve"](plans.path("scaled"), X, y))
    np.testing.assert_allclose(y, expected(X), rtol=1e-5)
    assert np.array_equal(outputs["y"], y)
    assert (stats.answered, stats.contexts) == (2, 2)


def test_the_batches(plans: Any, expected: Callable[..., Any]) -> None:
    requests = [{"x": X * i} for i in range(4)]
    answers, stats = asyncio.run(block("batches")["batched"](plans.path("scaled"), requests))
    for i, answer in enumerate(answers):
        np.testing.assert_allclose(answer["y"], expected(X * i), rtol=1e-5)
    assert (stats.requests, stats.batches) == (4, 1)


def test_the_configuration(tmp_path: Path) -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE, re.S)
    (tmp_path / "config.toml").write_text(text)
    found = read_config(tmp_path)
    assert found.batching is not None
    assert found.batching.pad == {"ids": {1: 0}}
    assert (found.level, found.max_queue) == (ModelConfig().level, ModelConfig().max_queue)


COMMANDS = re.findall(r"^    tactix (serve .*)$", PAGE, re.M)


def test_the_readme_has_the_first_command() -> None:
    assert f"tactix {COMMANDS[0]}   #" in (ROOT / "README.md").read_text()


@pytest.mark.skipif(os.name != "posix", reason="needs SIGTERM")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_and_a_client(command: str, tmp_path: Path) -> None:
    pytest.importorskip("tritonclient.http")
    if "--front-ends" in command and sys.platform != "linux":
        pytest.skip("front ends share ports on Linux")
    words = re.sub(r"80\d\d", "0", command).split()
    folder = tmp_path / "models" / "digits" / "1"
    folder.mkdir(parents=True)
    model = ROOT / "examples" / "digits" / "digits.onnx"
    (folder / "model.onnx").write_bytes(model.read_bytes())
    (folder.parent / "config.toml").write_text("level = 0\n")
    code = "import sys; from tactix_tools.cli import main; sys.exit(main(sys.argv[1:]))"
    args = [sys.executable, "-c", code, *words, "--cache", str(tmp_path / "cache")]
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen(
            args, cwd=tmp_path, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        try:
            assert process.stdout is not None
            found = re.search(r"http://127.0.0.1:(\d+)", process.stdout.readline())
            assert found, (tmp_path / "log").read_text()
            with np.load(ROOT / "examples" / "digits" / "digits_test.npz") as f:
                images, labels = f["images"][:50], f["labels"][:50]
            assert (block("client")["ask"](int(found[1]), images) == labels).mean() > 0.9
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
