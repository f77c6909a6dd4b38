"""The example of decoding: tactix and ONNX Runtime write the same tokens, each step at a new length."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "generate" / "generate.py"


@pytest.mark.parametrize("decoder", ["gpt2", "llama"])
def test_both_write_the_same_tokens(decoder: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    options = ["--tokens", "256", "--prompt", "5", "--level", "0"]
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), decoder, *options],
        env={**os.environ, "TACTIX_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line for line in done.stdout.splitlines() if "onnxruntime" in line]
    assert "256 of 256" in rows[0], done.stdout


def test_weights_of_four_bits(tmp_path: Path) -> None:
    """Roundings differ, and with random weights two tokens are soon as likely: all are written."""
    options = ["llama", "--weights", "int4", "--tokens", "4", "--prompt", "3", "--level", "0"]
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), *options],
        env={**os.environ, "TACTIX_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 of 4" in done.stdout


def test_it_tells_how_it_is_called() -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), "--tokens", "0"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "at least 2 tokens" in done.stderr
