"""Weights from checkpoints, files of safetensors: by name, and by a map that content tells."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16
from onnx import helper
from refit_models import model
from safetensors.numpy import save_file

from tactix.base.dtypes import DType
from tactix.base.errors import DTypeError, InvalidArgument, ShapeError
from tactix.builder import Builder
from tactix_refit.recipe import constants_of
from tactix_refit.refitter import Refitter
from tactix_refit.tensor_file import TensorFile
from tactix_refit.weight_map import Constant, WeightMap, map_of
from tactix_tools.cli import main

from .conftest import Feeds, assert_same, built, run

FEEDS: Feeds = {"x": np.random.default_rng(0).standard_normal((3, 4, 8)).astype(np.float32)}


def checkpoint(seed: int) -> Feeds:
    """Parameters as torch has them: a table of places, a layer, a normalisation, and a head that
    the model does not have.
    """
    rng = np.random.default_rng(seed)
    shapes = {"places.weight": (9, 8), "layer.weight": (6, 8), "layer.bias": (6,)}
    shapes |= {"square.weight": (6, 6), "norm.weight": (6,), "pooler.bias": (6,)}
    return {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}


def exported(p: Mapping[str, np.ndarray]) -> bytes:
    """The model as torch exports it: products have matrices turned around, under new names, and
    what a table gives for a fixed length is a constant.
    """
    nodes = [
        helper.make_node("Add", ["x", "embedding_1"], ["a"]),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("MatMul", ["r", "onnx::MatMul_7"], ["b"]),
        helper.make_node("Add", ["b", "layer.bias"], ["c"]),
        helper.make_node("Mul", ["c", "scale"], ["d"]),
        helper.make_node("MatMul", ["d", "onnx::MatMul_9"], ["e"]),
        helper.make_node("Mul", ["e", "norm.weight"], ["y"]),
    ]
    weights = {
        "embedding_1": p["places.weight"][2:6][None],
        "onnx::MatMul_7": p["layer.weight"].T,
        "layer.bias": p["layer.bias"],
        "scale": np.array(0.25, np.float32),
        "onnx::MatMul_9": p["square.weight"].T,
        "norm.weight": p["norm.weight"],
    }
    copies = {n: np.ascontiguousarray(w, np.float32) for n, w in weights.items()}
    return model(nodes, {"x": ["n", 4, 8]}, ["y"], copies)


@pytest.fixture
def given(tmp_path: Path) -> Path:
    """Two checkpoints, the model of the first, and its map."""
    for seed in (1, 2):
        save_file(checkpoint(seed), tmp_path / f"{seed}.safetensors")
    (tmp_path / "model.onnx").write_bytes(exported(checkpoint(1)))
    made(tmp_path).save(tmp_path / "map.json")
    return tmp_path


def made(folder: Path, file: str = "1.safetensors") -> WeightMap:
    constants = dict(constants_of(Builder().import_model(folder / "model.onnx")))
    with TensorFile(folder / file) as opened:
        return map_of(constants, opened)


def test_a_map_of_content_refits_as_a_build_does(given: Path) -> None:
    engine, fresh = built(exported(checkpoint(1))), built(exported(checkpoint(2)))
    Refitter(engine).refit_from_safetensors(given / "2.safetensors", given / "map.json")
    assert_same(run(engine, FEEDS), run(fresh, FEEDS))


def test_what_a_map_tells(given: Path) -> None:
    found = WeightMap.load(given / "map.json")
    assert found == made(given)
    assert found.weights["onnx::MatMul_9"].axes == (1, 0)
    assert found.weights["embedding_1"].rows == (2, 3, 4, 5)
    assert list(found.constants) == ["scale"]
    assert list(found.unused) == ["pooler.bias"]


def test_names_alone_where_they_are_the_same(tmp_path: Path) -> None:
    node = helper.make_node("Mul", ["x", "w"], ["y"])
    rng = np.random.default_rng(3)
    one, two = (rng.standard_normal((4, 8)).astype(np.float32) for _ in range(2))
    save_file({"w": two.astype(bfloat16)}, tmp_path / "w.safetensors")
    engine, fresh = (
        built(model([node], {"x": ["n", 4, 8]}, ["y"], {"w": w}))
        for w in (one, two.astype(bfloat16).astype(np.float32))
    )
    Refitter(engine).refit_from_safetensors(tmp_path / "w.safetensors")
    assert_same(run(engine, FEEDS), run(fresh, FEEDS))


@pytest.mark.parametrize("dtype", [bfloat16, np.float16], ids=["bf16", "f16"])
def test_wider_weights_take_narrow_checkpoints(dtype: Any, given: Path) -> None:
    narrow = {n: a.astype(dtype) for n, a in checkpoint(2).items()}
    save_file(narrow, given / "narrow.safetensors")
    engine = built(exported(checkpoint(1)))
    fresh = built(exported({n: a.astype(np.float32) for n, a in narrow.items()}))
    Refitter(engine).refit_from_safetensors(given / "narrow.safetensors", given / "map.json")
    assert_same(run(engine, FEEDS), run(fresh, FEEDS))


BAD: dict[str, tuple[Any, type[Exception], str]] = {
    "missing": (lambda p: p.pop("layer.weight"), InvalidArgument, "no tensor 'layer.weight'"),
    "shape": (
        lambda p: p.update({"layer.bias": np.zeros(7, np.float32)}),
        ShapeError,
        r"'layer.bias' is \(7\) in the checkpoint, \(6\)",
    ),
    "dtype": (
        lambda p: p.update({"layer.bias": np.zeros(6, np.int32)}),
        DTypeError,
        "no floating-point",
    ),
    "loses": (
        lambda p: p.update({"layer.bias": np.zeros(6, np.float64)}),
        DTypeError,
        "f64 in the checkpoint, f32",
    ),
    "new": (
        lambda p: p.update({"head.weight": np.zeros(6, np.float32)}),
        InvalidArgument,
        "no tensor 'head.weight'",
    ),
    "not finite": (
        lambda p: p.update({"layer.bias": np.full(6, np.nan, np.float32)}),
        InvalidArgument,
        "not finite",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_other_checkpoints_are_refused_whole(case: str, given: Path) -> None:
    change, error, said = BAD[case]
    tensors = checkpoint(2)
    change(tensors)
    save_file(tensors, given / "bad.safetensors")
    engine = built(exported(checkpoint(1)))
    before = run(engine, FEEDS)
    with pytest.raises(error, match=said) as caught:
        Refitter(engine).refit_from_safetensors(given / "bad.safetensors", given / "map.json")
    assert "bad.safetensors" in str(caught.value)
    assert_same(run(engine, FEEDS), before)


def test_without_the_map_the_cure_is_told(given: Path) -> None:
    engine = built(exported(checkpoint(1)))
    with pytest.raises(InvalidArgument, match=r"no tensors of the checkpoint.*refit-map"):
        Refitter(engine).refit_from_safetensors(given / "2.safetensors")


def test_what_may_be_in_a_constant_must_stay(given: Path) -> None:
    """A sum that an export has folded: no tensor is it, and the tensor that it is of is unused."""
    known = made(given)
    content = zlib.compress(np.arange(4, dtype=np.float32).tobytes())
    folded = Constant(DType.FP32, (4,), content)
    suspicious = WeightMap(known.weights, {**known.constants, "sum": folded}, known.unused)
    engine = built(exported(checkpoint(1)))
    with pytest.raises(InvalidArgument, match=r"'pooler.bias' differs.*'sum'"):
        Refitter(engine).refit_from_safetensors(given / "2.safetensors", suspicious)


def test_content_that_two_tensors_have_is_told_by_name(given: Path) -> None:
    tensors = checkpoint(1)
    tensors["copy.bias"] = tensors["layer.bias"]
    save_file(tensors, given / "two.safetensors")
    assert made(given, "two.safetensors").weights["layer.bias"].tensor == "layer.bias"
    tensors["copy.weight"] = tensors["layer.weight"]
    save_file(tensors, given / "two.safetensors")
    with pytest.raises(InvalidArgument, match=r"copy.weight, layer.weight have its content"):
        made(given, "two.safetensors")


def test_a_symmetric_matrix_does_not_tell_how_it_lies(given: Path) -> None:
    tensors = checkpoint(1)
    tensors["square.weight"] = tensors["square.weight"] + tensors["square.weight"].T
    save_file(tensors, given / "1.safetensors")
    (given / "model.onnx").write_bytes(exported(tensors))
    with pytest.raises(InvalidArgument, match="it is not clear how"):
        made(given)


def header(entries: str, body: bytes = b"") -> bytes:
    return struct.pack("<Q", len(entries)) + entries.encode() + body


ONE = '"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
FILES = {
    "empty": b"",
    "length": struct.pack("<Q", 1 << 60),
    "json": header("{"),
    "twice": header(f"{{{ONE},{ONE}}}", bytes(4)),
    "large": header('{"a":{"dtype":"F32","shape":[1099511627776,1099511627776],"data_offsets":[0,4]}}', bytes(4)),
    "short": header('{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}', bytes(8)),
    "negative": header('{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}', bytes(4)),
}  # fmt: skip


@pytest.mark.parametrize("case", FILES)
def test_damaged_files_are_refused(case: str, tmp_path: Path) -> None:
    (tmp_path / "x.safetensors").write_bytes(FILES[case])
    with pytest.raises(InvalidArgument, match=r"x\.safetensors"):
        TensorFile(tmp_path / "x.safetensors")


CHANGES: dict[str, Any] = {
    "axes": lambda m: m["weights"]["onnx::MatMul_7"].update(axes=[0, 0]),
    "rows": lambda m: m["weights"]["embedding_1"].update(rows=[99]),
    "dtype": lambda m: m["weights"]["embedding_1"].update(dtype="i64"),
    "field": lambda m: m.update(more=1),
    "base64": lambda m: m["constants"]["scale"].update(content="?"),
}


@pytest.mark.parametrize("case", CHANGES)
def test_damaged_maps_are_refused(case: str, given: Path) -> None:
    text = json.loads((given / "map.json").read_text())
    CHANGES[case](text)
    (given / "map.json").write_text(json.dumps(text))
    with pytest.raises(InvalidArgument, match="no map of weights"):
        WeightMap.load(given / "map.json")


def test_a_constant_is_no_larger_than_its_shape(given: Path) -> None:
    text = json.loads((given / "map.json").read_text())
    text["constants"]["scale"]["shape"] = [2]
    (given / "map.json").write_text(json.dumps(text))
    with pytest.raises(InvalidArgument, match="another size"):
        WeightMap.load(given / "map.json").constants["scale"].array()


def test_the_commands(given: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan, new = given / "model.plan", given / "new.plan"
    built(exported(checkpoint(1))).save(plan)
    first, second, known = (str(given / n) for n in ("1.safetensors", "2.safetensors", "m.json"))
    assert main(["refit-map", str(given / "model.onnx"), first, "-o", known, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["unused"] == ["pooler.bias"]
    assert main(["refit", str(plan), second, "--map", known, "-o", str(new)]) == 0
    wanted = built(exported(checkpoint(2)))
    again = Refitter(new).plan
    assert {b.blob for b in again.buffers} == {b.blob for b in wanted.plan.buffers}
    assert main(["refit", str(plan), str(given / "model.onnx"), "--map", known]) == 2
