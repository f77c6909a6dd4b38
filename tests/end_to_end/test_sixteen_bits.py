"""Networks of 16-bit floats whose roundings show: they build at every level, and give what the
network says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from strategies import builder

import tactix
from tactix.base.dtypes import DType
from tactix.base.errors import ConfigError
from tactix.select.accuracy import departure
from tactix_cpu.features import MASK
from tactix_sdk.evaluate import evaluate

LEVELS = (0, 1, 3)
KINDS = {"f16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}
FLOAT = TensorProto.FLOAT
WIDTH = 96


def node(op: str, inputs: Sequence[str], output: str, **attrs: Any) -> onnx.NodeProto:
    return helper.make_node(op, list(inputs), [output], **attrs)


def constant(name: str, array: Any, kind: int) -> onnx.TensorProto:
    return helper.make_tensor(name, kind, array.shape, array.astype(np.float32).ravel().tolist())


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[str],
    kind: int,
    outputs: dict[str, int],
    constants: Sequence[onnx.TensorProto] = (),
) -> bytes:
    """Inputs of ``kind`` and outputs of those types, all of shape (batch, WIDTH)."""
    shape = ["batch", WIDTH]
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info(x, kind, shape) for x in inputs],
        [helper.make_tensor_value_info(y, t, shape) for y, t in outputs.items()],
        list(constants),
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString())


def jump(kind: int) -> bytes:
    return model([node("Mul", "ab", "m"), node("Floor", "m", "y")], "ab", kind, {"y": kind})


def both_widths(op: str) -> Callable[[int], bytes]:
    def make(kind: int) -> bytes:
        nodes = [node(op, "ab", "m"), node("Cast", "m", "w", to=FLOAT), node("Relu", "m", "r")]
        return model(nodes, "ab", kind, {"w": FLOAT, "r": kind})

    return make


def decided(kind: int) -> bytes:
    nodes = [node("Add", "ab", "s"), node("Less", "sa", "c"), node("Where", ["c", "a", "s"], "y")]
    return model(nodes, "ab", kind, {"y": kind})


SHOWN = {
    "floor": jump,
    **{op.lower(): both_widths(op) for op in ("Add", "Mul", "Sub")},
    "where": decided,
}


def residual(kind: int) -> bytes:
    """Two blocks on a 16-bit stream, each behind a LayerNormalization that is exported in float32."""
    rng = np.random.default_rng(5)
    nodes, constants, x = [node("Add", "ab", "e")], [], "e"
    for k in range(2):
        constants += [
            constant(f"s{k}", rng.uniform(0.5, 1.5, WIDTH), FLOAT),
            constant(f"b{k}", np.zeros(WIDTH), FLOAT),
        ]
        constants.append(constant(f"m{k}", rng.standard_normal((WIDTH, WIDTH)) / 10, kind))
        nodes += [
            node("Cast", [x], f"w{k}", to=FLOAT),
            node("LayerNormalization", [f"w{k}", f"s{k}", f"b{k}"], f"n{k}"),
            node("Cast", [f"n{k}"], f"h{k}", to=kind),
            node("MatMul", [f"h{k}", f"m{k}"], f"p{k}"),
            node("Tanh", [f"p{k}"], f"t{k}"),
            node("Add", [x, f"t{k}"], f"r{k}"),
        ]
        x = f"r{k}"
    nodes.append(node("Cast", [x], "w", to=FLOAT))
    return model(nodes, "ab", kind, {x: kind, "w": FLOAT}, constants)


def built(data: bytes, level: int) -> tuple[Any, Any]:
    config = tactix.BuilderConfig(builder_optimization_level=level, timing_cache=False)
    net = builder().import_model(data)
    return builder().build(net, config), net


def answers(engine: Any, feed: dict[str, Any]) -> dict[str, Any]:
    y = engine(feed)
    return y if isinstance(y, dict) else {engine.outputs[0].name: y}


def feeds(names: Sequence[str], dtype: DType, rows: int = 37) -> dict[str, Any]:
    rng = np.random.default_rng(rows)
    return {n: (rng.standard_normal((rows, WIDTH)) * 3).astype(dtype.numpy) for n in names}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SHOWN)
def test_what_shows_is_the_networks_own_bits(name: str, kind: str, level: int) -> None:
    engine, net = built(SHOWN[name](KINDS[kind]), level)
    feed = feeds("ab", DType(kind))
    got = answers(engine, feed)
    for k, y in evaluate(net, feed).items():
        np.testing.assert_array_equal(
            np.asarray(got[k]).astype(np.float32), y.astype(np.float32), err_msg=k
        )


@pytest.mark.parametrize("mask", ["-avx512*", "-f16c", "-avx512_bf16", "-avx2"])
@pytest.mark.parametrize("kind", KINDS)
def test_processors_without_the_instructions_round_alike(
    kind: str, mask: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        monkeypatch.setenv(MASK, mask)
        builder().session.devices["tactix.cpu@1"].properties()
    except ConfigError as e:
        pytest.skip(str(e))
    for name in SHOWN:
        engine, net = built(SHOWN[name](KINDS[kind]), 1)
        feed = feeds("ab", DType(kind))
        got = answers(engine, feed)
        for k, y in evaluate(net, feed).items():
            np.testing.assert_array_equal(
                np.asarray(got[k]).astype(np.float32), y.astype(np.float32), err_msg=name
            )


def with_all_outputs(data: bytes) -> bytes:
    """Each 16-bit value in between is an output, too: ONNX Runtime leaves out the roundings of
    others on a CPU.
    """
    made = onnx.load_from_string(data)
    outputs = {y.name for y in made.graph.output}
    for n in made.graph.node[:1]:
        made.graph.output.extend(
            y for y in [helper.make_empty_tensor_value_info(n.output[0])] if y.name not in outputs
        )
    return bytes(onnx.shape_inference.infer_shapes(made).SerializeToString())


def session_of(data: bytes) -> Any:
    onnxruntime = pytest.importorskip("onnxruntime")
    return onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("name", ["add", "mul", "sub"])
def test_casts_are_those_of_onnxruntime(name: str) -> None:
    data = with_all_outputs(SHOWN[name](KINDS["f16"]))
    session = session_of(data)
    feed = feeds("ab", DType.FP16)
    engine, _ = built(data, 1)
    got = answers(engine, feed)
    for out, y in zip(session.get_outputs(), session.run(None, feed), strict=True):
        np.testing.assert_array_equal(np.asarray(got[out.name]), y, err_msg=out.name)


@pytest.mark.parametrize("name", SHOWN)
def test_it_is_what_onnx_says(name: str) -> None:
    """ONNX Runtime has the jumps in float32, as one kernel with what is before them."""
    data = SHOWN[name](KINDS["f16"])
    feed = feeds("ab", DType.FP16)
    engine, _ = built(data, 1)
    got = answers(engine, feed)
    reference = ReferenceEvaluator(onnx.load_from_string(data))
    for k, y in zip(reference.output_names, reference.run(None, feed), strict=True):
        np.testing.assert_array_equal(np.asarray(got[k]), y, err_msg=k)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_in_16_bits_with_its_normalization_in_float32(kind: str, level: int) -> None:
    data = residual(KINDS[kind])
    engine, net = built(data, level)
    feed = feeds("ab", DType(kind))
    got = answers(engine, feed)
    want = evaluate(net, feed)
    narrow, wide = want
    assert departure(np.asarray(got[narrow]), want[narrow], DType(kind)) <= 1
    assert departure(np.asarray(got[wide]), want[wide], DType(kind)) <= 1
    np.testing.assert_array_equal(np.asarray(got[wide]), np.asarray(got[narrow]).astype(np.float32))
    if kind == "f16":
        for name, y in zip(want, session_of(data).run(list(want), feed), strict=True):
            assert departure(np.asarray(got[name]), y.astype(got[name].dtype), DType.FP16) <= 1


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("names", [("Tan", "Sin"), ("Tan", "Cos"), ("Exp", "Sin")], ids="".join)
def test_steep_float32_functions_have_a_kernel(names: Sequence[str], level: int) -> None:
    net = builder().create_network("steep")
    x = net.add_input("x", "f32", [160, 640])
    y = x
    for name in names:
        (y,) = net.add_layer(f"tactix.{name}", [y])
    net.mark_output(y, "y")
    engine = builder().build(
        net, tactix.BuilderConfig(builder_optimization_level=level, timing_cache=False)
    )
    assert [s["tactic"] for s in engine.inspect()["steps"]] == ["tactix.c_pointwise@1"]
