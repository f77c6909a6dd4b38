"""Weights of few bits in blocks: what they are, and files that ONNX Runtime and tactix read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tactix
from tactix.base.arrays import Array
from tactix_quantize.weight_blocks import FewBits, in_blocks
from tactix_quantize.weights_only import turns
from tactix_tools import cli

RNG = np.random.default_rng(8)
KINDS = [
    FewBits(bits, block, sym) for bits in (4, 8) for block in (32, 128) for sym in (True, False)
]


def unpacked(packed: Array, bits: int) -> Array:
    if bits == 8:
        return packed.astype(np.float64)
    return np.stack([packed & 15, packed >> 4], -1).reshape(*packed.shape[:-1], -1).astype(float)


def numbers(w: Array, kind: FewBits) -> Array:
    """The weights (K, N) that blocks stand for."""
    made = in_blocks(w, kind)
    whole, blocks = unpacked(made.packed, kind.bits), made.scales.shape[1]
    middle = np.full(made.scales.shape, 1 << kind.bits - 1, np.float64)
    zeros = middle if made.zeros is None else unpacked(made.zeros, kind.bits)[:, :blocks]
    out = (whole - zeros[..., None]) * made.scales[..., None]
    return out.reshape(w.shape[1], -1)[:, : w.shape[0]].T


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("k", [32, 160, 200])
def test_every_weight_is_as_near_as_its_block_allows(kind: FewBits, k: int) -> None:
    w = RNG.standard_normal((k, 5)).astype(np.float32)
    w[:, 3] = np.abs(w[:, 3])
    scales = np.repeat(np.abs(in_blocks(w, kind).scales), kind.block, axis=1)[:, :k].T
    error = np.abs(numbers(w, kind) - w)
    # the number opposite to the furthest may be one step out of range, as may a rounded zero point
    assert (error <= scales * 1.01).all()
    assert np.median(error / scales) <= 0.3


def test_zeros_stay_zeros() -> None:
    for kind in KINDS:
        assert not numbers(np.zeros((64, 2), np.float32), kind).any()


@pytest.fixture
def model(tmp_path: Path) -> str:
    """Two products with a Relu between them, and one of two activations."""
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["a"], "first"),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("MatMul", ["b", "w1"], ["y"], "head"),
    ]
    stored = [
        numpy_helper.from_array(RNG.standard_normal(s).astype(np.float32) / 8, name)
        for name, s in (("w0", (64, 96)), ("w1", (96, 32)))
    ]
    ends = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size])]
        for name, size in (("x", 64), ("y", 32))
    ]
    graph = helper.make_graph(nodes, "two", *ends, stored)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(made, tmp_path / "m.onnx")
    return str(tmp_path / "m.onnx")


@pytest.mark.parametrize("zero_points", [[], ["--zero-points"]])
@pytest.mark.parametrize(("weights", "most"), [("int4", 0.2), ("int8", 0.02)])
def test_a_file_is_read_by_onnxruntime_and_by_tactix(
    model: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    weights: str,
    most: float,
    zero_points: list[str],
) -> None:
    ort = pytest.importorskip("onnxruntime")
    out = str(tmp_path / "q.onnx")
    words = ["quantize", model, "-o", out, "--weights", weights, "--json", *zero_points]
    assert cli.main(words) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["layers"], facts["quantized"]) == (2, 2)
    assert facts["bytes"] < facts["float_bytes"] / (3 if weights == "int4" else 2)
    x = RNG.standard_normal((3, 64)).astype(np.float32)
    wanted, found = (ort.InferenceSession(p).run(None, {"x": x})[0] for p in (model, out))
    ours = tactix.build(out, level=0, timing_cache=False)(x)
    assert 0 < np.abs(found - wanted).max() < most * np.abs(wanted).max()
    assert np.abs(found - ours).max() < 0.02 * np.abs(wanted).max()


@pytest.mark.parametrize(
    ("words", "activations"),
    [
        (["int4"], "int8"),
        (["int8"], "float"),
        (["int4", "--activations", "float"], "float"),
        (["int8", "--activations", "int8"], "int8"),
    ],
)
def test_the_file_says_whether_activations_may_be_int8(
    model: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    activations: str,
) -> None:
    """And results are as near to those of floats as rounding them is."""
    out, floats = str(tmp_path / "q.onnx"), str(tmp_path / "floats.onnx")
    assert cli.main(["quantize", model, "-o", out, "--json", "--weights", *words]) == 0
    assert json.loads(capsys.readouterr().out)["activations"] == activations
    products = [n for n in onnx.load(out).graph.node if n.op_type == "MatMulNBits"]
    levels = [a.i for n in products for a in n.attribute if a.name == "accuracy_level"]
    assert levels == ([4, 4] if activations == "int8" else [])
    floating = ["--weights", words[0], "--activations", "float"]
    assert cli.main(["quantize", model, "-o", floats, *floating]) == 0
    x = RNG.standard_normal((5, 64)).astype(np.float32)
    y, exact = (tactix.build(p, level=0, timing_cache=False)(x) for p in (out, floats))
    assert np.square(exact - y).sum() < 1e-4 * np.square(exact).sum()  # 40 dB


def test_activations_are_for_weights(model: str, tmp_path: Path) -> None:
    words = ["quantize", model, "-o", str(tmp_path / "q.onnx"), "--random", "1"]
    assert cli.main([*words, "--activations", "int8"]) == cli.USAGE


def test_excluded_products_stay(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "q.onnx")
    words = ["quantize", model, "-o", out, "--weights", "int4", "--exclude", "head"]
    assert cli.main(words) == 0
    assert "1 of 2 layers with constant weights have them in int4" in capsys.readouterr().out
    assert [n.op_type for n in onnx.load(out).graph.node] == ["MatMulNBits", "Relu", "MatMul"]
    assert cli.main([*words, "--exclude", "hed"]) == cli.USAGE


def decoder(
    folder: Path, columns: int = 64, angles: bool = False, dtype: type[np.floating] = np.float32
) -> str:
    """A table of embeddings, one of angles looked up by positions, a Gemm with a bias, a product
    that is tied to the table; its weights lie beside it.
    """
    rng = np.random.default_rng(4)
    table = rng.standard_normal((48, columns)).astype(dtype)
    turned = np.arange(32)[:, None] * 10000.0 ** (-np.arange(columns) / columns)
    stored = {
        "table": table,
        "cos": (np.cos(turned) if angles else rng.standard_normal((32, columns))).astype(dtype),
        "w": rng.standard_normal((80, columns)).astype(dtype) / 8,
        "b": rng.standard_normal(80).astype(dtype),
        "flat": np.array([-1, columns]),
        "v": rng.standard_normal((80, columns)).astype(dtype) / 8,
    }
    nodes = [
        helper.make_node("Cast", ["ids"], ["wide"], "wide", to=TensorProto.INT64),
        helper.make_node("Gather", ["table", "wide"], ["x0"], "embed"),
        helper.make_node("Gather", ["cos", "positions"], ["p"], "where"),
        helper.make_node("Add", ["x0", "p"], ["x1"], "sum"),
        helper.make_node("Reshape", ["x1", "flat"], ["x2"], "rows"),
        helper.make_node("Gemm", ["x2", "w", "b"], ["h"], "up", transB=1),
        helper.make_node("MatMul", ["h", "v"], ["x3"], "down"),
        helper.make_node("Transpose", ["table"], ["tied"], "turn"),
        helper.make_node("MatMul", ["x3", "tied"], ["y"], "head"),
    ]
    inputs = [
        helper.make_tensor_value_info("ids", TensorProto.INT32, [1, "n"]),
        helper.make_tensor_value_info("positions", TensorProto.INT64, [1, "n"]),
    ]
    y = helper.make_tensor_value_info(
        "y", helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), ["n", 48]
    )
    graph = helper.make_graph(
        nodes, "decoder", inputs, [y], [numpy_helper.from_array(x, k) for k, x in stored.items()]
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path = folder / "decoder.onnx"
    onnx.save(made, path, save_as_external_data=True, location="w.bin", size_threshold=99)
    return str(path)


FEEDS = {"ids": np.array([[3, 0, 47]], np.int32), "positions": np.array([[0, 1, 2]])}


@pytest.mark.parametrize(
    ("columns", "dtype", "options"),
    [
        (64, np.float32, []),
        (64, np.float32, ["--zero-points"]),
        (64, np.float32, ["--weights", "int8"]),
        (72, np.float32, []),
        (72, np.float16, ["--zero-points"]),
        (72, np.float32, ["--weights", "int8"]),
    ],
)
def test_tables_and_gemms_are_read_by_onnxruntime_and_by_tactix(
    tmp_path: Path, options: list[str], columns: int, dtype: type[np.floating]
) -> None:
    ort = pytest.importorskip("onnxruntime")
    path, out = decoder(tmp_path, columns, dtype=dtype), str(tmp_path / "q.onnx")
    assert cli.main(["quantize", path, "-o", out, "--weights", "int4", *options]) == 0
    kinds = [n.op_type for n in onnx.load(out).graph.node]
    assert kinds.count("GatherBlockQuantized") == 2
    assert kinds.count("MatMulNBits") == 3
    wanted, found = (ort.InferenceSession(p).run(None, FEEDS)[0] for p in (path, out))
    ours = tactix.build(out, level=0, timing_cache=False)(**FEEDS)
    assert found.dtype == ours.dtype == dtype
    assert 0 < np.abs(found - wanted).max() < 0.3 * np.abs(wanted).max()
    # Either may round the activations of three products, one behind the other, to int8 beside int4.
    apart = 0.01 if "int8" in options else 0.02
    assert np.abs(found - ours).max() < apart * np.abs(wanted).max()


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_tables_of_angles_stay(tmp_path: Path, dtype: type[np.floating]) -> None:
    path, out = decoder(tmp_path, angles=True, dtype=dtype), str(tmp_path / "q.onnx")
    assert cli.main(["quantize", path, "-o", out, "--weights", "int4"]) == 0
    where = next(n for n in onnx.load(out).graph.node if n.name == "where")
    assert where.op_type == "Gather"


def test_halves_are_refused_where_activations_become_integers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["quantize", decoder(tmp_path, dtype=np.float16), "--random", "1"]
    assert cli.main([*words, "-o", str(tmp_path / "q.onnx")]) == cli.USAGE
    assert "It has float16 weights: give the model in float32" in capsys.readouterr().err


def test_angles_are_told_by_their_neighbours() -> None:
    at = np.arange(9)[:, None] * np.array([1.0, 0.1, 1e-4])
    assert turns(np.cos(at).astype(np.float32))
    assert turns(np.concatenate([np.sin(at), np.cos(at)], 1).astype(np.float32))
    assert not turns(RNG.standard_normal((9, 3)).astype(np.float32))
    assert not turns(np.cos(at)[:3])


@pytest.mark.parametrize("size", [1e-9, 1e-6, 1e-3, 1.0, 1e3])
def test_scales_are_those_of_float16_and_small_ones_are_rounded_up(size: float) -> None:
    w = size * RNG.standard_normal((64, 7)).astype(np.float32)
    for kind in KINDS:
        scales = in_blocks(w, kind).scales
        assert (scales.astype(np.float16).astype(np.float32) == scales).all()
        steps = np.repeat(np.abs(scales), kind.block, axis=1)[:, :64].T
        assert (np.abs(numbers(w, kind) - w) <= 1.01 * steps).all()


def test_scales_beyond_float16_stay_as_they_are() -> None:
    w = np.full((32, 1), 1e7, np.float32)
    assert np.allclose(numbers(w, FewBits()), w)


def test_a_plan_has_less_than_six_tenths_of_a_byte_for_a_weight(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    table, w = rng.standard_normal((4096, 256)), rng.standard_normal((256, 4096))
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["x"], "embed"),
        helper.make_node("MatMul", ["x", "w"], ["y"], "head"),
    ]
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["n"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4096])
    stored = [
        numpy_helper.from_array(a.astype(np.float32), k) for k, a in (("table", table), ("w", w))
    ]
    graph = helper.make_graph(nodes, "lookup", [ids], [y], stored)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(made, tmp_path / "m.onnx")
    out = str(tmp_path / "q.onnx")
    assert cli.main(["quantize", str(tmp_path / "m.onnx"), "-o", out, "--weights", "int4"]) == 0
    plan = tactix.build(out, level=0, timing_cache=False).plan
    weights = [b for b in plan.buffers if b.kind == "weight"]
    held = sum(len(memoryview(plan.blobs[b.blob]).cast("B")) for b in weights)
    assert held <= 0.57 * (table.size + w.size)
