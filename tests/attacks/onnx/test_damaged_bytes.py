"""Damaged files: cut, flipped, mixed up. They import or are refused; nothing else may come out."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx_mutations import MUTATIONS, flipped

import tactix

MODELS = sorted((Path(__file__).parents[2] / "models").glob("*.onnx"))
FLIPS = 100
CHANGES = 150
BUILDS = 20

Refusal = Callable[[Any], tactix.TactixError]
Outcome = Callable[[Any], Any]


def test_an_empty_file_is_no_model(tmp_path: Path, refusal: Refusal) -> None:
    path = tmp_path / "empty.onnx"
    path.write_bytes(b"")
    for given in (path, b""):
        assert refusal(given).what == "that is empty"


@pytest.mark.parametrize(
    "content", [b"hello, world\n" * 50, b"\x89PNG\r\n\x1a\n", b"\0" * 4096, b"\xff" * 4096, b"{}"]
)
def test_other_formats_are_told(content: bytes, tmp_path: Path, refusal: Refusal) -> None:
    path = tmp_path / "other.onnx"
    path.write_bytes(content)
    e = refusal(path)
    assert "not an ONNX model" in e.what
    assert str(path) in e.who


@pytest.mark.parametrize("name", ["folder.onnx", "absent.onnx", "a" * 300 + ".onnx", "a\0b.onnx"])
def test_what_is_no_file_is_told(name: str, tmp_path: Path, refusal: Refusal) -> None:
    (tmp_path / "folder.onnx").mkdir()
    assert name in refusal(tmp_path / name).who


def test_a_file_beyond_the_format_is_not_read(tmp_path: Path, refusal: Refusal) -> None:
    path = tmp_path / "large.onnx"
    with path.open("wb") as f:
        f.truncate(1 << 40)
    e = refusal(path)
    assert "too large" in e.what
    assert "external data" in e.do


@pytest.mark.parametrize(
    "claim", [b"\x3a\xff\xff\xff\xff\x07", b"\x3a\x80\x80\x80\x80\x08", b"\x3a\xff\xff\xff\xff\x0f"]
)
def test_a_claim_of_gigabytes_allocates_nothing(claim: bytes, refusal: Refusal) -> None:
    refusal(b"\x08\x08" + claim + b"\x0a\x00")


@pytest.mark.parametrize("path", MODELS[::3], ids=lambda p: p.stem)
def test_every_truncation_is_refused(path: Path, refusal: Refusal) -> None:
    data = path.read_bytes()
    ends = {
        *range(1, 40),
        *range(len(data) // 60 or 1, len(data), max(1, len(data) // 60)),
        *range(len(data) - 30, len(data)),
    }
    for end in sorted(ends):
        cut = data[:end]
        text = str(refusal(cut))
        assert any(
            told in text
            for told in ("not an ONNX model", "no importer", "operator set", "made by nothing")
        )


@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_flipped_bytes_import_or_are_refused(path: Path, outcome: Outcome) -> None:
    rng = random.Random(path.stem)
    data = path.read_bytes()
    for _ in range(FLIPS):
        outcome(flipped(data, rng))


@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_changed_fields_import_or_are_refused(path: Path, outcome: Outcome) -> None:
    """Well-formed messages with wrong contents come further than flipped bytes."""
    rng = random.Random(path.stem)
    sound = onnx.load(str(path))
    refused = 0
    for _ in range(CHANGES):
        changed = onnx.ModelProto()
        changed.CopyFrom(sound)
        rng.choice(MUTATIONS)(changed, rng)
        refused += outcome(changed) is None
    assert 0 < refused < CHANGES


@pytest.mark.parametrize(
    "path", [p for p in MODELS if p.stem in ("lenet", "mlp", "gru")], ids=lambda p: p.stem
)
def test_what_still_imports_is_built_or_refused(
    path: Path, outcome: Outcome, builder: tactix.Builder
) -> None:
    rng = random.Random(path.stem)
    sound = onnx.load(str(path))
    built = 0
    for _ in range(BUILDS):
        changed = onnx.ModelProto()
        changed.CopyFrom(sound)
        rng.choice(MUTATIONS)(changed, rng)
        network = outcome(changed)
        config = tactix.BuilderConfig(
            builder_optimization_level=0, tactic_sources={"numpy"}, timing_cache=False
        )
        if network is not None:
            with contextlib.suppress(tactix.TactixError):
                builder.build_plan(network, config)
                built += 1
    assert built
