"""Networks that were trained with fake quantisation, in the forms in which frameworks export them:
they run in integers, without a reference among their steps, and give what ONNX Runtime gives.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import tactix
from tactix.base.arrays import Array
from tactix_quantize import fates

RNG = np.random.default_rng(21)
CHANNELS, SIDE = 16, 6
STEP = 0.03
"""Scale of activations."""
FIRST = np.uint8(0)


class Graph:
    """A model that grows, with Q/DQ as exports write it."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, x: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(x), name))
        return name

    def add(self, op: str, *inputs: str, **attrs: Any) -> str:
        name = f"{op}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name, **attrs))
        return name

    def back(self, x: str, scale: Any, zero: Any, **attrs: Any) -> str:
        point = (self.constant(np.float32(scale)), self.constant(zero))
        return self.add("DequantizeLinear", x, *point, **attrs)

    def through(self, x: str, zero: Any = FIRST, scale: Any = STEP, **attrs: Any) -> str:
        """``x`` quantised and back: fake quantisation."""
        point = (self.constant(np.float32(scale)), self.constant(zero))
        return self.back(self.add("QuantizeLinear", x, *point, **attrs), scale, zero, **attrs)

    def weights(self, *shape: int, axis: int | None = 0) -> str:
        """int8 with a scale for each place along ``axis``; one for all without."""
        whole = self.constant(RNG.integers(-127, 128, shape).astype(np.int8))
        if axis is None:
            return self.back(whole, 0.002, np.int8(0))
        scale = RNG.uniform(0.001, 0.002, shape[axis])
        return self.back(whole, scale, np.zeros(shape[axis], np.int8), axis=axis)

    def channels(self, low: float, high: float) -> Array:
        return RNG.uniform(low, high, CHANNELS).astype(np.float32)

    def norm(self, x: str, *scale: str) -> str:
        given = [self.constant(self.channels(0.5, 1.5)) for _ in range(4)]
        return self.add("BatchNormalization", x, *scale, *given[len(scale) :])

    def conv(self, x: str, w: str, **attrs: Any) -> str:
        return self.add("Conv", x, w, pads=[1] * 4, **attrs)

    def model(self, y: str, shape: list[Any]) -> bytes:
        ends = [
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)]
            for name, dims in (("x", shape), (y, None))
        ]
        graph = helper.make_graph(self.nodes, "trained", *ends, self.constants)
        opset = [helper.make_opsetid("", 17)]
        made = helper.make_model(graph, opset_imports=opset, ir_version=9)
        return bytes(made.SerializeToString())


def norm_behind(g: Graph, x: str) -> str:
    return g.norm(g.conv(x, g.weights(CHANNELS, CHANNELS, 3, 3)))


def norm_with_a_dequantised_scale(g: Graph, x: str) -> str:
    scale = g.back(g.constant(RNG.integers(30, 99, CHANNELS).astype(np.int8)), 0.015, np.int8(0))
    return g.norm(g.conv(x, g.weights(CHANNELS, CHANNELS, 3, 3)), scale)


def norm_behind_there_and_back(g: Graph, x: str) -> str:
    y = g.conv(x, g.weights(CHANNELS, CHANNELS, 3, 3))
    return g.norm(g.through(y, np.uint8(128), 0.05))


def norm_in_front(g: Graph, x: str) -> str:
    y = g.through(g.norm(x), np.uint8(128), 0.04)
    return g.conv(y, g.weights(CHANNELS, CHANNELS, 3, 3))


def scaled_and_back(g: Graph, x: str) -> str:
    """PyTorch's fused module in training: weights times the factor of the normalisation are
    quantised, and the sums are divided by it again.
    """
    y = g.conv(x, g.weights(CHANNELS, CHANNELS, 3, 3))
    shape = (1, CHANNELS, 1, 1)
    y = g.add("Div", y, g.constant(g.channels(0.5, 1.5).reshape(shape)))
    return g.norm(g.add("Add", y, g.constant(g.channels(-1, 1).reshape(shape))))


def factors_behind_the_weights(g: Graph, x: str) -> str:
    """The factor of the normalisation is multiplied by the dequantised weights."""
    factor = g.constant(g.channels(0.5, 1.5).reshape(CHANNELS, 1, 1, 1))
    return g.conv(x, g.add("Mul", g.weights(CHANNELS, CHANNELS, 3, 3), factor))


def weights_quantised_in_the_graph(g: Graph, x: str) -> str:
    """PyTorch's: float weights stand behind QuantizeLinear."""
    w = g.constant(RNG.normal(0, 0.1, (CHANNELS, 1, 3, 3)).astype(np.float32))
    w = g.through(w, np.zeros(CHANNELS, np.int8), g.channels(0.001, 0.002), axis=0)
    return g.conv(x, w, group=CHANNELS)


def transposed_weights(g: Graph, x: str, axis: int | None) -> str:
    """TensorFlow's (height, width, in, out), as its exporter turns them."""
    w = g.weights(3, 3, CHANNELS, CHANNELS, axis=axis)
    return g.conv(x, g.add("Transpose", w, perm=[3, 2, 0, 1]))


def reshaped_weights(g: Graph, x: str) -> str:
    """TensorFlow's depthwise weights (height, width, in, 1)."""
    w = g.add("Transpose", g.weights(3, 3, CHANNELS, 1, axis=2), perm=[3, 2, 0, 1])
    w = g.add("Reshape", w, g.constant(np.array([CHANNELS, 1, 3, 3])))
    return g.conv(x, w, group=CHANNELS)


def far_zero_points(g: Graph, x: str, group: int = 1) -> str:
    """TensorFlow's weights of a range that is not symmetric: less the zero point they leave int8."""
    shape = (CHANNELS, 1, 3, 3) if group > 1 else (CHANNELS, CHANNELS, 1, 1)
    whole = RNG.integers(0, 256, shape).astype(np.uint8)
    whole.flat[:2] = 0, 255
    w = g.back(g.constant(whole), 0.001, np.uint8(90))
    return g.add("Conv", x, w, group=group, pads=[shape[2] // 2] * 4)


FORMS: dict[str, Callable[[Graph, str], str]] = {
    **{f.__name__: f for f in (
        norm_behind, norm_with_a_dequantised_scale, norm_behind_there_and_back, norm_in_front,
        scaled_and_back, factors_behind_the_weights, weights_quantised_in_the_graph,
        reshaped_weights, far_zero_points,
    )},
    "transposed_weights": lambda g, x: transposed_weights(g, x, 3),
    "transposed_weights_with_one_scale": lambda g, x: transposed_weights(g, x, None),
    "far_zero_points_of_channels": lambda g, x: far_zero_points(g, x, CHANNELS),
}  # fmt: skip


def check(model: bytes, x: Array, products: int) -> None:
    """So many products of integers, no reference among the steps, and results as ONNX Runtime's but
    for the next integer here and there.
    """
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    want = ort.InferenceSession(model, options).run(None, {"x": x})[0]
    engine = tactix.build(model, level=0, timing_cache=False)
    got = engine(x)
    steps = np.abs(got - want) / np.float32(STEP)
    assert steps.max() < 1.01
    assert (steps > 0.01).mean() < 0.02
    kinds = [s.info["kind"] for s in engine.plan.steps]
    assert sum(k.startswith("tactix.Integer") for k in kinds) == products
    told = fates.of_plan(engine.plan)
    assert not [(f.node, f.why) for f in told if f.became == "constant" and f.why]
    assert not engine.plan.ledger["fell_short"].get("references")


@pytest.mark.compiler
@pytest.mark.parametrize("form", FORMS)
def test_convolutions(form: str) -> None:
    g = Graph()
    y = FORMS[form](g, g.through("x", np.uint8(120)))
    y = g.through(g.add("Relu", y))
    shape = [2, CHANNELS, SIDE, SIDE]
    products = 2 if form.startswith("far") else 1
    check(g.model(y, shape), RNG.standard_normal(shape).astype(np.float32), products)


def test_far_zero_points_of_windows_stay_float_with_a_reason(tmp_path: Path) -> None:
    g = Graph()
    whole = RNG.integers(0, 256, (CHANNELS, CHANNELS, 3, 3)).astype(np.uint8)
    whole.flat[:2] = 0, 255
    w = g.back(g.constant(whole), 0.001, np.uint8(90))
    y = g.through(g.conv(g.through("x", np.uint8(120)), w))
    engine = tactix.build(g.model(y, [2, CHANNELS, SIDE, SIDE]), level=0, timing_cache=False)
    told = " ".join(why for f in fates.of_plan(engine.plan) for why in f.why)
    assert "zero points near the middle" in told


@pytest.mark.compiler
@pytest.mark.parametrize("zero", [121, 60])
def test_dense_layers_behind_moves(zero: int) -> None:
    """Q/DQ stand behind Transpose and Reshape, too, and weights are turned."""
    g = Graph()
    y = g.through(g.add("Transpose", "x", perm=[0, 2, 1]), np.uint8(120))
    y = g.through(g.add("Reshape", y, g.constant(np.array([-1, 32]))), np.uint8(120))
    whole = RNG.integers(0, 256, (32, 8)).astype(np.uint8)
    whole.flat[:2] = 0, 255
    w = g.add("Transpose", g.back(g.constant(whole), 0.001, np.uint8(zero)), perm=[1, 0])
    y = g.add("Gemm", y, w, transB=1)
    y = g.add("Add", y, g.constant(np.ones(8, np.float32)))
    model = g.model(g.through(y, np.uint8(128)), [2, 4, 8])
    check(model, RNG.standard_normal((2, 4, 8)).astype(np.float32), 2)
