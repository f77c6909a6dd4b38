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
from tactix_quantize.weights_only import FewBits, in_blocks
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


def test_excluded_products_stay(model: str, tmp_path: Path) -> None:
    out = str(tmp_path / "q.onnx")
    words = ["quantize", model, "-o", out, "--weights", "int4", "--exclude", "head"]
    assert cli.main(words) == 0
    assert [n.op_type for n in onnx.load(out).graph.node] == ["MatMulNBits", "Relu", "MatMul"]
    assert cli.main([*words, "--exclude", "hed"]) == cli.USAGE
