"""Tensors of a model: every element type in every storage, external files, and what must not be
read.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto

from tactix.base.errors import ModelImportError
from tactix_onnx.importer import OnnxImporter
from tactix_onnx.weights import WeightReader
from tactix_onnx.wire import OWN, without_weights
from tactix_sdk.evaluate import evaluate

VALUES = np.array([[0, 1, 2], [5, 6, 7]])
DTYPES = [
    np.float32, np.float64, np.float16, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32,
    np.uint64, np.bool_, np.complex64, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2,
    ml_dtypes.int4, ml_dtypes.uint4,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda t: np.dtype(t).name)
@pytest.mark.parametrize("raw", [True, False])
def test_every_element_type(dtype: Any, raw: bool) -> None:
    want = VALUES.astype(dtype)
    code = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    if raw:
        t = onnx.numpy_helper.from_array(want, "t")
    else:
        t = onnx.helper.make_tensor("t", code, want.shape, want.ravel().tolist())
    got = WeightReader(None).array(t)
    assert got.dtype == want.dtype
    assert np.array_equal(got, want)


@pytest.mark.parametrize("value", [-8, -1, 0, 7])
def test_signed_nibbles(value: int) -> None:
    t = onnx.helper.make_tensor("t", TensorProto.INT4, [3], [value, 1, value])
    assert WeightReader(None).array(t).astype(int).tolist() == [value, 1, value]


def test_small_floats_of_four_bits() -> None:
    t = onnx.TensorProto(
        name="t", data_type=TensorProto.FLOAT4E2M1, dims=[4], raw_data=bytes([0x72, 0xF9])
    )
    assert WeightReader(None).array(t).astype(np.float32).tolist() == [1.0, 6.0, -0.5, -6.0]


def test_strings_become_objects() -> None:
    t = onnx.helper.make_tensor("t", TensorProto.STRING, [2], ["a", "b"])
    assert WeightReader(None).array(t).tolist() == ["a", "b"]


def test_an_initializer_leaves_a_model_that_is_the_importers_own() -> None:
    t = onnx.numpy_helper.from_array(np.arange(9, dtype=np.float32), "t")
    kept = WeightReader(None).initializer(t)
    assert t.HasField("raw_data")
    taken = WeightReader(None, owned=True).initializer(t)
    assert np.array_equal(kept, taken)
    assert not t.HasField("raw_data")


def test_a_sparse_tensor_is_written_out() -> None:
    values = onnx.helper.make_tensor("v", TensorProto.FLOAT, [2], [5.0, 6.0])
    for where in ([1, 5], [[0, 1], [1, 2]]):
        indices = onnx.numpy_helper.from_array(np.array(where), "i")
        t = onnx.helper.make_sparse_tensor(values, indices, [2, 3])
        assert WeightReader(None).sparse(t).tolist() == [[0, 5, 0], [0, 0, 6]]


@pytest.mark.parametrize("where", [[1, 6], [-1, 0], [1]])
def test_a_sparse_tensor_with_bad_indices(where: list[int]) -> None:
    values = onnx.helper.make_tensor("v", TensorProto.FLOAT, [2], [5.0, 6.0])
    t = onnx.helper.make_sparse_tensor(
        values, onnx.numpy_helper.from_array(np.array(where), "i"), [2, 3]
    )
    with pytest.raises(ModelImportError, match="'v': its indices do not fit"):
        WeightReader(None).sparse(t)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"raw_data": b"123"}, "3 bytes"),
        ({"dims": [-1, 6]}, "negative"),
        ({"data_type": 99}, "element type 99"),
        ({"data_type": TensorProto.FLOAT8E8M0}, "8 bytes"),
    ],
)
def test_a_damaged_tensor_is_told(change: dict[str, Any], words: str) -> None:
    fields = {"name": "t", "data_type": TensorProto.FLOAT, "dims": [2], "raw_data": b"12345678"}
    with pytest.raises(ModelImportError, match=f"'t'.*{words}"):
        WeightReader(None).array(onnx.TensorProto(**{**fields, **change}))


def test_a_typed_tensor_with_too_few_elements() -> None:
    t = onnx.TensorProto(name="t", data_type=TensorProto.FLOAT, dims=[3], float_data=[1.0])
    with pytest.raises(ModelImportError, match="1 elements"):
        WeightReader(None).array(t)


# -- external files ------------------------------------------------------------------------------


def external(**entries: Any) -> onnx.TensorProto:
    t = onnx.TensorProto(
        name="t", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL
    )
    for key, value in entries.items():
        t.external_data.add(key=key, value=str(value))
    return t


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inside = tmp_path / "model"
    inside.mkdir()
    (inside / "data").write_bytes(np.arange(10, dtype=np.float32).tobytes())
    (tmp_path / "secret").write_bytes(bytes(64))
    return inside


def test_files_of_a_model(folder: Path) -> None:
    """Wherever tensors stand, and whatever a name is: those that are files."""
    inner = onnx.helper.make_graph([], "inner", [], [], [external(location="data")])
    nodes = [
        onnx.helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner),
        onnx.helper.make_node("Constant", [], ["k"], value=external(location="odd")),
    ]
    listed = [external(location=name) for name in ("nowhere", "x" * 300, "a\0b", "", "data")]
    path = folder / "m.onnx"
    (folder / "odd").touch()
    path.write_bytes(
        onnx.helper.make_model(
            onnx.helper.make_graph(nodes, "g", [], [], listed)
        ).SerializeToString()
    )
    assert OnnxImporter().files(path) == [folder / "data", folder / "odd"]
    path.write_bytes(b"\n\x08location\x12\xff")  # cut off
    assert OnnxImporter().files(path) == []
    with pytest.raises(ModelImportError, match="cannot read the file"):
        OnnxImporter().files(folder / "none.onnx")


def test_an_external_tensor_is_a_view_of_the_file(folder: Path) -> None:
    weights = WeightReader(folder)
    a, b = (
        weights.array(external(location="data")),
        weights.array(external(location="data", offset=8, length=16)),
    )
    assert a.tolist() == [0, 1, 2, 3]
    assert b.tolist() == [2, 3, 4, 5]
    assert np.shares_memory(a, b)
    assert not a.flags.writeable


def test_an_offset_that_is_not_aligned_is_read_too(folder: Path) -> None:
    (folder / "odd").write_bytes(b"x" + np.arange(4, dtype=np.float32).tobytes())
    assert WeightReader(folder).array(external(location="odd", offset=1)).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"location": "missing"}, "missing"),
        ({"location": "../secret"}, "outside"),
        ({"location": "sub/../../secret"}, "outside"),
        ({}, "outside"),
        ({"location": "."}, "missing"),
        ({"location": "data", "offset": 32}, "beyond the end"),
        ({"location": "data", "offset": -4}, "beyond the end"),
        ({"location": "data", "length": 8}, "its shape needs 16"),
        ({"location": "data", "offset": "x"}, "no number"),
    ],
)
def test_an_external_tensor_that_cannot_be_read(
    entries: dict[str, Any], words: str, folder: Path
) -> None:
    with pytest.raises(ModelImportError, match=words):
        WeightReader(folder).array(external(**entries))


def test_absolute_paths_and_links_out_of_the_folder_are_refused(folder: Path) -> None:
    os.symlink(folder.parent / "secret", folder / "link")
    for location in (str(folder / "data"), "link"):
        with pytest.raises(ModelImportError, match="outside the model's folder"):
            WeightReader(folder).array(external(location=location))


def test_a_model_in_memory_has_no_other_files() -> None:
    with pytest.raises(ModelImportError, match="Import the model by its path"):
        WeightReader(None).array(external(location="data"))


def test_a_model_with_external_data_by_path(tmp_path: Path, imported: Any, model: Any) -> None:
    w = np.random.default_rng(0).standard_normal((64, 32), np.float32)
    m = model(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])],
        {"x": (np.float32, [3, 64])},
        ["y"],
        {"w": w},
    )
    path = tmp_path / "m.onnx"
    onnx.save_model(m, str(path), save_as_external_data=True, location="m.data", size_threshold=0)
    x = np.ones((3, 64), np.float32)
    net = imported(path)
    assert np.allclose(evaluate(net, {"x": x})["y"], x @ w, atol=1e-5)
    (tmp_path / "m.data").unlink()
    with pytest.raises(ModelImportError, match=r"'m\.data' with its data is missing"):
        imported(path)


def test_a_model_whose_external_data_were_put_into_it(
    tmp_path: Path, imported: Any, model: Any
) -> None:
    """onnx.load then leaves a location that says so; it stands behind the data."""
    w = np.random.default_rng(0).standard_normal((160, 128), np.float32)
    m = model(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])],
        {"x": (np.float32, [3, 160])},
        ["y"],
        {"w": w},
    )
    path = tmp_path / "m.onnx"
    onnx.save_model(m, str(path), save_as_external_data=True, location="m.data", size_threshold=0)
    whole = onnx.load(path)
    assert whole.graph.initializer[0].HasField("data_location")
    path.write_bytes(whole.SerializeToString())
    x = np.ones((3, 160), np.float32)
    assert np.allclose(evaluate(imported(path), {"x": x})["y"], x @ w, atol=1e-4)


def test_large_weights_stay_in_the_models_own_file(
    tmp_path: Path, imported: Any, model: Any
) -> None:
    rng = np.random.default_rng(1)
    w, b = rng.standard_normal((160, 128), np.float32), rng.standard_normal(128, np.float32)
    nodes = [
        onnx.helper.make_node("MatMul", ["x", "w"], ["p"]),
        onnx.helper.make_node("Add", ["p", "b"], ["y"]),
    ]
    m = model(nodes, {"x": (np.float32, [3, 160])}, ["y"], {"w": w, "b": b})
    (tmp_path / "real").mkdir()
    path = tmp_path / "real" / "m.bin"
    path.write_bytes(m.SerializeToString())
    (tmp_path / "m.onnx").symlink_to(path)

    small = onnx.ModelProto.FromString(without_weights(path.read_bytes()))
    big = small.graph.initializer[0]
    assert not big.HasField("raw_data")
    where = {e.key: e.value for e in big.external_data}
    begin = int(where["offset"])
    assert path.read_bytes()[begin : begin + int(where["length"])] == w.tobytes()
    big.CopyFrom(m.graph.initializer[0])
    assert small == m, "nothing else is changed"

    x = rng.standard_normal((3, 160), np.float32)
    for source in (path, tmp_path / "m.onnx", path.read_bytes()):
        assert np.allclose(evaluate(imported(source), {"x": x})["y"], x @ w + b, atol=1e-4)


@pytest.mark.parametrize("cut", [1, 100, 50_000, 81_000])
def test_a_file_that_ends_within_a_large_weight(
    cut: int, tmp_path: Path, imported: Any, model: Any
) -> None:
    w = np.ones((160, 128), np.float32)
    m = model(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])],
        {"x": (np.float32, [3, 160])},
        ["y"],
        {"w": w},
    )
    path = tmp_path / "m.onnx"
    path.write_bytes(m.SerializeToString()[:-cut])
    with pytest.raises(ModelImportError):
        imported(path)


@pytest.mark.parametrize(
    "entries", [{}, {"offset": "0"}, {"offset": "-9", "length": "24"}, {"length": "1e9"}]
)
def test_a_file_that_claims_to_hold_its_own_data(
    entries: dict[str, str], tmp_path: Path, imported: Any, model: Any
) -> None:
    m = model(
        [onnx.helper.make_node("Add", ["x", "w"], ["y"])],
        {"x": (np.float32, [6])},
        ["y"],
        {"w": np.ones(6)},
    )
    t = m.graph.initializer[0]
    t.ClearField("raw_data")
    t.data_type, t.data_location = TensorProto.FLOAT, TensorProto.EXTERNAL
    for key, value in {"location": OWN, **entries}.items():
        t.external_data.add(key=key, value=value)
    path = tmp_path / "m.onnx"
    path.write_bytes(m.SerializeToString())
    with pytest.raises(ModelImportError):
        imported(path)
