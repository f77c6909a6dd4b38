"""Models that are loaded first, given weights of the program's, and parsed or refitted after."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from trt_logger import Kept
from trt_runs import built, run

from tactix_tensorrt import api as trt

X = np.ones((1, 2), np.float32)


def model(outside: bool = False) -> bytes:
    """y: f32(1, 3), x: f32(1, 2) times w, twos, which lie in a file that is not there if they lie
    ``outside``.
    """
    w = numpy_helper.from_array(np.full((2, 3), 2, np.float32), "w")
    if outside:
        w.ClearField("raw_data")
        w.data_location = TensorProto.EXTERNAL
        w.external_data.add(key="location", value="nowhere.bin")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 2))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 3))
    node = helper.make_node("MatMul", ["x", "w"], ["y"], "product")
    opset = [helper.make_opsetid("", 17)]
    graph = helper.make_graph([node], "net", [x], [y], [w])
    made: onnx.ModelProto = helper.make_model(graph, opset_imports=opset, ir_version=8)
    return made.SerializeToString()


def test_weights_that_lie_elsewhere_are_given(
    network: trt.INetworkDefinition, config: trt.IBuilderConfig, logger: Kept
) -> None:
    own, parser = np.full((2, 3), 5, np.float32), trt.OnnxParser(network, logger)
    assert not parser.parse_model_proto()
    assert "load_model_proto first" in logger.errors[-1]
    assert parser.load_model_proto(model(outside=True))
    assert not parser.load_model_proto(model())
    assert not parser.load_initializer("v", own.ctypes.data, own.nbytes)
    assert not parser.load_initializer("w", own.ctypes.data, own.nbytes - 4)
    assert "20 bytes for 'w': the model has 24" in logger.errors[-1]
    assert not parser.parse_model_proto()
    assert "weights are missing" in logger.errors[-1]
    assert parser.load_initializer("w", own.ctypes.data, own.nbytes)
    assert parser.parse_model_proto(), logger.errors
    assert parser.get_layer_output_tensor("product", 0) is network.get_output(0)
    assert parser.get_layer_output_tensor("none", 0) is None
    assert run(built(network, config, logger), {"x": X})["y"].tolist() == [[10, 10, 10]]


def test_a_refit_takes_them_as_well(
    network: trt.INetworkDefinition, config: trt.IBuilderConfig, logger: Kept
) -> None:
    assert trt.OnnxParser(network, logger).parse(model())
    config.set_flag(trt.BuilderFlag.REFIT)
    engine = built(network, config, logger)
    refitter = trt.Refitter(engine, logger)
    parser, own = trt.OnnxParserRefitter(refitter, logger), np.full((2, 3), 7, np.float32)
    assert parser.load_model_proto(model())
    assert parser.load_initializer("w", own.ctypes.data, own.nbytes)
    assert parser.refit_model_proto()
    assert refitter.refit_cuda_engine()
    assert run(engine, {"x": X})["y"].tolist() == [[14, 14, 14]]


def test_what_is_no_model_is_not_loaded(network: trt.INetworkDefinition, logger: Kept) -> None:
    parser = trt.OnnxParser(network, logger)
    assert not parser.load_model_proto(b"none")
    assert parser.num_errors == 1
