"""``tensorrt.plugin``: plugins that are a few functions, on the host."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import types
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper
from trt_logger import Kept
from trt_quick import trtp
from trt_runs import built, run

from tactix_tensorrt import api as trt
from tactix_tensorrt.installing import FOLDER
from tactix_tensorrt.quick import signatures

Net = trt.INetworkDefinition
X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def output(net: Net, layer: trt.ILayer, index: int = 0) -> None:
    layer.get_output(index).name = f"y{index}"
    net.mark_output(layer.get_output(index))


def input_of(net: Net, shape: tuple[int, ...] = X.shape) -> trt.ITensor:
    return net.add_input("x", trt.float32, shape)


def test_a_function_is_a_plugin(network: Net, config: trt.IBuilderConfig, logger: Kept) -> None:
    layer = network.add_plugin(trtp.op.t.add(input_of(network), amount=3))
    assert layer.get_output(0).shape == X.shape
    output(network, layer)
    assert np.array_equal(run(built(network, config, logger), {"x": X})["y0"], X + 3)


def test_sizes_that_are_open(network: Net, config: trt.IBuilderConfig, logger: Kept) -> None:
    pads = np.array([1, 0], np.int32)
    layer = network.add_plugin(trtp.op.t.circ_pad(input_of(network, (-1, -1)), pads=pads))
    output(network, layer)
    profile = network.builder.create_optimization_profile()
    profile.set_shape("x", (1, 1), (2, 3), (4, 9))
    config.add_optimization_profile(profile)
    engine = built(network, config, logger)
    for shape in ((2, 3), (4, 9)):
        x = np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape)
        assert np.array_equal(run(engine, {"x": x})["y0"], np.pad(x, [(0, 0), (1, 0)], "wrap"))


def test_tactics_are_timed(network: Net, config: trt.IBuilderConfig, logger: Kept) -> None:
    config.builder_optimization_level = 3
    pads = np.array([1, 1], np.int32)
    output(network, network.add_plugin(trtp.op.t.circ_pad(input_of(network), pads=pads)))
    engine = built(network, config, logger)
    (step,) = engine.native.plan.steps
    assert step.artifact.params["tactic"] == 2
    got = run(engine, {"x": X})["y0"]
    assert np.array_equal(got, np.pad(X, [(0, 0), (0, 0), (1, 1)], "wrap"))


def test_a_size_that_the_run_tells(network: Net, config: trt.IBuilderConfig, logger: Kept) -> None:
    x = np.array([[0, 1, 0], [2, 0, 3]], np.float32)
    layer = network.add_plugin(trtp.op.t.non_zero(input_of(network, x.shape)))
    for i in range(2):
        output(network, layer, i)
    got = run(built(network, config, logger), {"x": x})
    assert np.array_equal(got["y0"], np.argwhere(x))
    assert got["y1"] == 3


def test_in_place(network: Net, config: trt.IBuilderConfig, logger: Kept) -> None:
    first = network.add_plugin(trtp.op.t.add_(input_of(network), amount=2.0))
    output(network, network.add_plugin(trtp.op.t.add_(first.get_output(0), amount=4.0)))
    context, x = built(network, config, logger).create_execution_context(), X.copy()
    for name in ("x", "y0"):
        assert context.set_tensor_address(name, x.ctypes.data)
    assert context.execute_async_v3(0), logger.errors
    assert np.array_equal(x, X + 6)


def test_a_node_of_a_model(network: Net, config: trt.IBuilderConfig, logger: Kept) -> None:
    attributes = {"pads": [1, 2], "plugin_namespace": "t", "aot": 0}
    node = helper.make_node("circ_pad", ["x"], ["y"], "pad", **attributes)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "net", [x], [y])
    made: onnx.ModelProto = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8
    )
    assert trt.OnnxParser(network, logger).parse(made.SerializeToString()), logger.errors
    got = run(built(network, config, logger), {"x": X})["y"]
    assert np.array_equal(got, np.pad(X, [(0, 0), (0, 0), (1, 2)], "wrap"))


@pytest.mark.parametrize("aot", [True, False])
def test_without_a_gpu_the_function_runs_and_not_the_kernel(
    network: Net, config: trt.IBuilderConfig, logger: Kept, aot: bool
) -> None:
    output(network, network.add_plugin(trtp.op.t.both(input_of(network)), aot=aot))
    assert np.array_equal(run(built(network, config, logger), {"x": X})["y0"], 2 * X)


def test_without_a_gpu_a_kernel_alone_is_refused(network: Net, logger: Kept) -> None:
    assert network.add_plugin(trtp.op.t.kernel(input_of(network))) is None
    (line,) = logger.errors
    assert "there is no GPU" in line
    assert "t::kernel" in line


def test_two_implementations_need_a_choice(builder: trt.Builder, logger: Kept) -> None:
    network = builder.create_network(0)
    assert network.add_plugin(trtp.op.t.both(input_of(network))) is None
    assert "PREFER_JIT_PYTHON_PLUGINS" in logger.errors[0]
    flag = trt.NetworkDefinitionCreationFlag.PREFER_JIT_PYTHON_PLUGINS
    network = builder.create_network(1 << int(flag))
    assert network.add_plugin(trtp.op.t.both(input_of(network))) is not None


def test_wrong_calls_and_definitions_are_errors_of_python(network: Net) -> None:
    x = input_of(network)
    with pytest.raises(ValueError, match="Expected int"):
        trtp.op.t.add(x, amount=1.5)
    with pytest.raises(ValueError, match="Expected \\(x, amount=\\)"):
        trtp.op.t.add(x)
    with pytest.raises(ValueError, match="array of int32"):
        trtp.op.t.circ_pad(x, pads=np.array([1, 1]))
    with pytest.raises(ValueError, match="defined already"):
        trtp.register("t::add")(_plain)
    with pytest.raises(ValueError, match="none of these"):
        trtp.register("tensorrt::add")(_plain)
    with pytest.raises(ValueError, match="not registered"):
        trtp.impl("t::nobody")(_plain)
    with pytest.raises(AttributeError, match="nobody"):
        _ = trtp.op.t.nobody


class Alias:
    """As typing.TypeAliasType: what numpy.typing.NDArray is from numpy 2.5 on, on any Python."""

    def __init__(self, value: object) -> None:
        self.__value__ = value

    def __getitem__(self, parameters: object) -> types.GenericAlias:
        return types.GenericAlias(self, parameters)


Scalar = TypeVar("Scalar", bound=np.generic)
BEFORE = np.ndarray[tuple[int, ...], np.dtype[np.int32]]
SINCE = Alias(np.ndarray[Alias(tuple[int, ...]), np.dtype[Scalar]])


@pytest.mark.parametrize(
    ("annotation", "wanted"),
    [
        (npt.NDArray[np.float16], "array of float16"),
        ("npt.NDArray[np.bool_]", "array of bool"),
        (BEFORE, "array of int32"),
        (SINCE[np.int32], "array of int32"),
        (Alias(SINCE[np.int8]), "array of int8"),
        (SINCE[Alias(np.int64)], "array of int64"),
        (Alias(bytes), "bytes"),
    ],
)
def test_an_attribute_is_what_its_annotation_stands_for(annotation: object, wanted: str) -> None:
    def desc(x: trtp.TensorDesc, own) -> trtp.TensorDesc: ...

    desc.__annotations__["own"] = annotation
    assert str(signatures.registered(desc).attributes["own"]) == wanted


@pytest.mark.parametrize(
    "annotation", [SINCE, SINCE[np.complex64], Alias(complex), np.ndarray, npt.NDArray[Any], list]
)
def test_an_attribute_of_another_type_is_refused(annotation: object) -> None:
    def desc(x: trtp.TensorDesc, own) -> trtp.TensorDesc: ...

    desc.__annotations__["own"] = annotation
    with pytest.raises(ValueError, match=r"'own' of type .*: annotate it as int"):
        signatures.registered(desc)


def _plain(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()


def test_choices_that_depend_on_each_other_and_choices_that_do_not() -> None:
    choice = trtp.AutoTuneCombination("FP32*FP16, FP32|FP16, FP32|FP16", "LINEAR", [1])
    names = {tuple(t.name for t in row.types) for row in choice.combinations()}
    both = {("FLOAT", "FLOAT"), ("HALF", "HALF")}
    assert names == {(first, *rest) for first in ("FLOAT", "HALF") for rest in both}


PROGRAM = """
import tensorrt as trt
import tensorrt.plugin as trtp

@trtp.register("p::same")
def same(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()

assert trt.plugin.op.p.same is trtp.op.p.same
assert trt.get_plugin_registry().get_creator("same", "1", "p") is not None
print("found")
"""


@pytest.mark.parametrize("way", ["run", "folder", "api"])
def test_the_module_is_there_in_all_ways_in(tmp_path: Path, way: str) -> None:
    script = tmp_path / "program.py"
    text = PROGRAM.replace("import tensorrt as", "from tactix_tensorrt import api as")
    text = text.replace("import tensorrt.plugin as", "import tactix_tensorrt.api.plugin as")
    script.write_text(text if way == "api" else textwrap.dedent(PROGRAM))
    command = ["-m", "tactix_tensorrt", str(script)] if way == "run" else [str(script)]
    env = {**os.environ, **({"PYTHONPATH": str(FOLDER)} if way == "folder" else {})}
    made = subprocess.run(
        [sys.executable, *command], env=env, capture_output=True, text=True, check=False
    )
    assert made.stdout == "found\n", made.stderr
