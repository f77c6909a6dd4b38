"""Weights in other files: only files in the model's folder are read, and only what lies in them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.helper import make_node
from onnx_hostile import model

import tactix

Refusal = Callable[[Any], tactix.TactixError]
ELEMENTS = 6


def saved(folder: Path, dims: list[int] | None = None, **entries: str) -> Path:
    """A model whose weight lies in ``w.bin`` beside it, unless entries say something else."""
    folder.mkdir(exist_ok=True)
    (folder / "w.bin").write_bytes(np.arange(ELEMENTS, dtype=np.float32).tobytes())
    m = model([make_node("Add", ["x", "w"], ["y"])], {"x": ["n", ELEMENTS]})
    t = m.graph.initializer.add(
        name="w", dims=[ELEMENTS] if dims is None else dims, data_type=1, data_location=1
    )
    for key, value in {"location": "w.bin", **entries}.items():
        t.external_data.add(key=key, value=value)
    path = folder / "model.onnx"
    path.write_bytes(m.SerializeToString())
    return path


def test_a_file_beside_the_model_is_read(tmp_path: Path, builder: tactix.Builder) -> None:
    net = builder.import_model(saved(tmp_path / "model", offset="0", length=str(4 * ELEMENTS)))
    assert np.array_equal(net.constants[0].spec.const, np.arange(ELEMENTS))


@pytest.mark.parametrize(
    ("entries", "told"),
    [
        ({"location": "absent.bin"}, "missing"),
        ({"location": ""}, "outside the model's folder"),
        ({"location": "."}, "missing"),
        ({"location": "../secret"}, "outside the model's folder"),
        ({"location": "a/../../secret"}, "outside the model's folder"),
        ({"location": "/etc/passwd"}, "outside the model's folder"),
        ({"location": "w\0.bin"}, "null byte"),
        ({"location": "a" * 5000}, "cannot read"),
        ({"offset": "-4"}, "beyond the end"),
        ({"offset": "4"}, "beyond the end"),
        ({"offset": str(1 << 62)}, "beyond the end"),
        ({"offset": "four"}, "no number"),
        ({"offset": "1e3"}, "no number"),
        ({"offset": "9" * 10000}, "no number"),
        ({"length": "-24"}, "needs 24"),
        ({"length": "20"}, "needs 24"),
        ({"length": str(1 << 62)}, "needs 24"),
        ({"length": "nan"}, "no number"),
    ],
)
def test_what_does_not_lie_in_the_file_is_refused(
    entries: dict[str, str], told: str, tmp_path: Path, refusal: Refusal
) -> None:
    (tmp_path / "secret").write_bytes(b"\0" * 4 * ELEMENTS)
    e = refusal(saved(tmp_path / "model", **entries))
    assert told in str(e)
    assert "'w'" in e.who


@pytest.mark.parametrize("dims", [[1 << 40], [1 << 62], [1 << 40, 1 << 40], [-6]])
def test_a_shape_beyond_the_file_is_refused(
    dims: list[int], tmp_path: Path, refusal: Refusal
) -> None:
    refusal(saved(tmp_path / "model", dims))


def test_links_do_not_lead_out_of_the_folder(tmp_path: Path, refusal: Refusal) -> None:
    (tmp_path / "secret").write_bytes(b"\0" * 4 * ELEMENTS)
    path = saved(tmp_path / "model", location="link")
    (path.parent / "link").symlink_to(tmp_path / "secret")
    assert "outside the model's folder" in refusal(path).what


def test_a_linked_folder_does_not_lead_out(tmp_path: Path, refusal: Refusal) -> None:
    (tmp_path / "secret").write_bytes(b"\0" * 4 * ELEMENTS)
    path = saved(tmp_path / "model", location="up/secret")
    (path.parent / "up").symlink_to(tmp_path)
    assert "outside the model's folder" in refusal(path).what


def test_a_loop_of_links_is_told(tmp_path: Path, refusal: Refusal) -> None:
    path = saved(tmp_path / "model", location="loop")
    (path.parent / "loop").symlink_to(path.parent / "loop")
    assert "'w'" in refusal(path).who


def test_a_pipe_is_not_waited_for(tmp_path: Path, refusal: Refusal) -> None:
    path = saved(tmp_path / "model", location="pipe")
    os.mkfifo(path.parent / "pipe")
    assert "missing" in refusal(path).what


def test_an_empty_file_is_too_short(tmp_path: Path, refusal: Refusal) -> None:
    path = saved(tmp_path / "model")
    (path.parent / "w.bin").write_bytes(b"")
    assert "beyond the end" in refusal(path).what


def test_a_model_in_memory_has_no_other_files(tmp_path: Path, refusal: Refusal) -> None:
    path = saved(tmp_path / "model")
    for source in (path.read_bytes(), onnx.load(str(path), load_external_data=False)):
        assert "by its path" in refusal(source).do
