"""Tensors of a model that a parser read are found by the names that the model gives them."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from trt_logger import Kept
from trt_runs import built, run

from tactix_tensorrt import api as trt

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def parsed(logger: Kept) -> trt.INetworkDefinition:
    """Nodes with names of their own; two that become no layer, and one that is computed."""
    make = helper.make_node
    nodes = [
        make("Identity", ["x"], ["same"], name="first"),
        make("Relu", ["same"], ["positive"], name="second"),
        make("Identity", ["positive"], ["again"], name="third"),
        make("Shape", ["x"], ["sizes"], name="fourth"),
        make("ReduceProd", ["sizes"], ["count"], name="fifth"),
        make("Reshape", ["again", "count"], ["flat"], name="sixth"),
        make("Add", ["flat", "one"], ["y"], name="seventh"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None])],
        [numpy_helper.from_array(np.ones(1, np.float32), "one")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    network = trt.Builder(logger).create_network(0)
    assert trt.OnnxParser(network, logger).parse(model.SerializeToString()), logger.errors
    return network


def by_name(network: trt.INetworkDefinition) -> dict[str, trt.ITensor]:
    return {t.name: t for layer in network for t in layer.outputs}


def config_of(network: trt.INetworkDefinition) -> trt.IBuilderConfig:
    config = network.builder.create_builder_config()
    config.builder_optimization_level = 0
    return config


def test_tensors_have_the_models_names(logger: Kept) -> None:
    network = parsed(logger)
    names = {"same", "positive", "again", "sizes", "count", "flat", "y"}
    assert by_name(network).keys() == names
    assert {layer.name for layer in network} == {
        "first", "second", "third", "fourth", "fifth", "sixth", "seventh",
    }  # fmt: skip
    kinds = {layer.name: layer.type for layer in network}
    assert (kinds["first"], kinds["fourth"]) == (trt.LayerType.IDENTITY, trt.LayerType.CONSTANT)


def test_every_tensor_can_be_an_output(logger: Kept) -> None:
    network = parsed(logger)
    for tensor in by_name(network).values():
        network.mark_output(tensor)
    found = run(built(network, config_of(network), logger), {"x": X})
    flat = X.reshape(-1)
    expected = {
        "same": X, "positive": X, "again": X, "sizes": X.shape, "count": [6], "flat": flat,
        "y": flat + 1,
    }  # fmt: skip
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name].reshape(np.shape(array)), array, err_msg=name)


def test_they_stay_where_an_input_changes(logger: Kept) -> None:
    network = parsed(logger)
    tensors = by_name(network)
    network.mark_output(tensors["same"])
    network.mark_output(tensors["count"])
    network.get_input(0).shape = (4, 3)
    assert tensors["same"].shape == (4, 3)
    assert by_name(network)["same"] is tensors["same"]
    found = run(built(network, config_of(network), logger), {"x": np.ones((4, 3), np.float32)})
    assert found["count"].item() == 12
    assert found["same"].shape == (4, 3)
    assert found["y"].shape == (12,)


def test_what_reads_an_identity_can_be_told_apart(logger: Kept) -> None:
    network = parsed(logger)
    added = network.add_unary(by_name(network)["again"], trt.UnaryOperation.NEG).get_output(0)
    added.name = "z"
    network.mark_output(added)
    np.testing.assert_array_equal(
        run(built(network, config_of(network), logger), {"x": X})["z"], -X
    )


def test_what_computes_nothing_has_every_precision(logger: Kept) -> None:
    network = parsed(logger)
    for layer in network:
        if layer.type in (trt.LayerType.IDENTITY, trt.LayerType.CONSTANT):
            layer.precision = trt.bfloat16
    config = config_of(network)
    config.set_flag(trt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS)
    config.set_flag(trt.BuilderFlag.BF16)
    np.testing.assert_array_equal(run(built(network, config, logger), {"x": X})["y"], X.ravel() + 1)
