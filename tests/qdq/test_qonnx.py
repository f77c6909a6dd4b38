"""QONNX's Quant nodes against their formula, and what of them is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tactix
from tactix.base.arrays import Array
from tactix.base.errors import UnsupportedOperator
from tactix_onnx.qonnx.quant import DOMAIN

RNG = np.random.default_rng(33)
CHANNELS = 16


def quantised(x: Array, scale: Any, zero: Any, bits: int, signed: int, narrow: int) -> Array:
    """As the specification of QONNX has it."""
    low = (-(1 << bits - 1) + narrow) if signed else 0
    high = (1 << bits - 1) - 1 if signed else (1 << bits) - 1 - narrow
    return ((np.clip(np.rint(x / scale + zero), low, high) - zero) * scale).astype(np.float32)


def model(nodes: list[onnx.NodeProto], shape: list[Any], **stored: Any) -> bytes:
    ends = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)]
        for name, dims in (("x", shape), ("y", None))
    ]
    arrays = [numpy_helper.from_array(np.asarray(v), k) for k, v in stored.items()]
    graph = helper.make_graph(nodes, "trained", *ends, arrays)
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid(DOMAIN, 1)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString())


def quant(x: str, y: str, suffix: str = "", **attrs: Any) -> onnx.NodeProto:
    names = [x, *(f"{k}{suffix}" for k in ("scale", "zero", "bits"))]
    return helper.make_node("Quant", names, [y], f"q_{y}", domain=DOMAIN, **attrs)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("narrow", [0, 1])
@pytest.mark.parametrize(("signed", "zero"), [(1, 0.0), (0, 0.0), (0, 2.0)])
def test_an_activation(bits: int, narrow: int, signed: int, zero: float) -> None:
    node = quant("x", "y", signed=signed, narrow=narrow, rounding_mode="ROUND")
    made = model(
        [node], [3, 40], scale=np.float32(0.11), zero=np.float32(zero), bits=np.float32(bits)
    )
    x = (4 * RNG.standard_normal((3, 40))).astype(np.float32)
    got = tactix.build(made, level=0, timing_cache=False)(x)
    want = quantised(x, np.float32(0.11), zero, bits, signed, narrow)
    np.testing.assert_allclose(got, want, atol=1e-6)


@pytest.mark.compiler
def test_a_convolution_of_trained_bits_runs_in_integers() -> None:
    """As Brevitas writes it: weights of 4 bits with a scale for each channel, activations of 8."""
    w = RNG.normal(0, 0.1, (CHANNELS, CHANNELS, 3, 3)).astype(np.float32)
    scales = RNG.uniform(0.01, 0.03, (CHANNELS, 1, 1, 1)).astype(np.float32)
    nodes = [
        quant("x", "a", signed=1, narrow=0),
        quant("w", "b", "_w", signed=1, narrow=1),
        helper.make_node("Conv", ["a", "b"], ["c"], "conv", pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        quant("r", "y", "_y", signed=0, narrow=0),
    ]
    one, none = np.float32(1), np.float32(0)
    made = model(
        nodes, [1, CHANNELS, 6, 6], w=w, scale=0.03 * one, zero=none, bits=8 * one,
        scale_w=scales, zero_w=none, bits_w=4 * one, scale_y=0.02 * one, zero_y=none, bits_y=8 * one,
    )  # fmt: skip
    engine = tactix.build(made, level=0, timing_cache=False)
    assert "tactix.IntegerConvolution@1" in {s.info["kind"] for s in engine.plan.steps}
    x = RNG.standard_normal((1, CHANNELS, 6, 6)).astype(np.float32)
    a, b = quantised(x, 0.03 * one, 0, 8, 1, 0), quantised(w, scales, 0, 4, 1, 1)
    padded = np.pad(a.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    want = np.maximum(np.einsum("nchwij,ocij->nohw", windows, b), 0)
    steps = np.abs(engine(x) - quantised(want, 0.02 * one, 0, 8, 0, 0)) / 0.02
    assert steps.max() < 1.01
    assert (steps > 0.01).mean() < 0.01


FORMS = {"FLOOR": np.floor, "CEIL": np.ceil, "DOWN": np.fix, "ROUND": np.rint,
         "round_to_zero": np.fix,
         "HALF_UP": lambda v: np.sign(v) * np.floor(abs(v) + 0.5)}  # fmt: skip


@pytest.mark.parametrize(("bits", "mode"), [(4, m) for m in FORMS] + [(16, "ROUND")])
def test_what_no_byte_holds_stays_floats(bits: int, mode: str) -> None:
    """Other modes of rounding, more bits, a scale that is computed."""
    made = model(
        [
            helper.make_node("Abs", ["s"], ["scale"]),
            quant("x", "y", rounding_mode=mode, signed=1, narrow=1),
        ],
        [3, 40], s=np.float32(-0.25), zero=np.float32(1), bits=np.float32(bits),
    )  # fmt: skip
    x = (2 * RNG.standard_normal((3, 40))).astype(np.float32)
    end = (1 << bits - 1) - 1
    want = (FORMS[mode](np.clip(x / 0.25 + 1, -end, end)) - 1) * 0.25
    got = tactix.build(made, level=0, timing_cache=False)(x)
    np.testing.assert_allclose(got, want, atol=1e-6)


def test_signs_and_fewer_bits() -> None:
    def node(op: str, *names: str) -> onnx.NodeProto:
        return helper.make_node(op, names[:-1], names[-1:], domain=DOMAIN)

    x = np.round(RNG.standard_normal((3, 40)) * 40).astype(np.float32) * np.float32(0.5)
    numbers = {"s": 0.5, "z": 0.0, "eight": 8.0, "six": 6.0, "wide": 2.0}
    stored = {k: np.float32(v) for k, v in numbers.items()}
    for nodes, want in (
        ([node("BipolarQuant", "x", "s", "y")], np.where(x >= 0, 0.5, -0.5)),
        ([node("Trunc", "x", "s", "z", "eight", "six", "y")], np.floor(x / 2) * 0.5),
        (
            [node("Trunc", "x", "s", "z", "eight", "wide", "z", "six", "y")],
            np.clip(np.floor(x / 2), -32, 31) * 2,
        ),
    ):
        got = tactix.build(model(nodes, [3, 40], **stored), level=0, timing_cache=False)(x)
        np.testing.assert_allclose(got, want, atol=1e-6)


def test_bits_that_are_no_whole_number_are_refused() -> None:
    one = np.float32(1)
    made = model([quant("x", "y")], [3], scale=one, zero=one, bits=np.float32(2.5))
    with pytest.raises(UnsupportedOperator, match=r"2\.5 bits"):
        tactix.build(made, level=0, timing_cache=False)
