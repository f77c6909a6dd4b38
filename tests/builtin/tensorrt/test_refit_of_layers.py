"""Refits of layers that a program added, and of a parser's, by layers, roles and names."""

from __future__ import annotations

import numpy as np
from trt_logger import Kept
from trt_runs import built, run

from tactix_tensorrt import api as trt

KERNEL, BIAS = trt.WeightsRole.KERNEL, trt.WeightsRole.BIAS


def filled(net: trt.INetworkDefinition) -> trt.IConvolutionLayer:
    """x: f32(1, 2, 4, 4); y: f32(1, 3, 4, 4), a convolution by ones, a Relu and a scale by 2, 3, 4."""
    x = net.add_input("x", trt.float32, (1, 2, 4, 4))
    ones, zeros = np.ones((3, 2, 1, 1), np.float32), np.zeros(3, np.float32)
    conv = net.add_convolution_nd(x, 3, (1, 1), ones, zeros)
    conv.name = "conv"
    scales = trt.Weights(np.array([2, 3, 4], np.float32))
    relu = net.add_activation(conv.get_output(0), trt.ActivationType.RELU)
    scale = net.add_scale(relu.get_output(0), trt.ScaleMode.CHANNEL, trt.Weights(), scales)
    scale.name = "scale"
    y = scale.get_output(0)
    y.name = "y"
    net.mark_output(y)
    return conv


def fed(engine: trt.ICudaEngine) -> np.ndarray:
    return run(engine, {"x": np.ones((1, 2, 4, 4), np.float32)})["y"][0, :, 0, 0]


def test_weights_of_layers_are_refitted_by_role_and_by_name(
    network: trt.INetworkDefinition, config: trt.IBuilderConfig, logger: Kept
) -> None:
    conv = filled(network)
    assert network.set_weights_name(conv.kernel, "w")
    config.set_flag(trt.BuilderFlag.REFIT)
    engine = built(network, config, logger)
    refitter = trt.Refitter(engine, logger)
    assert refitter.get_all_weights() == ["conv.bias", "scale.scale", "w"]
    layers, roles = refitter.get_all()
    assert dict(zip(layers, roles)).keys() == {"conv", "scale"}
    assert {("conv", KERNEL), ("conv", BIAS)} <= set(zip(layers, roles))
    assert refitter.set_weights("conv", KERNEL, np.full((3, 2, 1, 1), 3, np.float32))
    for name in refitter.get_missing()[0]:
        assert name in ("conv", "scale")
    assert refitter.set_weights("conv", BIAS, trt.Weights(np.ones(3, np.float32)))
    assert refitter.set_weights("scale", trt.WeightsRole.SCALE, np.full(3, 2, np.float32))
    assert refitter.get_missing() == ([], [])
    assert refitter.refit_cuda_engine()
    assert fed(engine).tolist() == [14, 14, 14]
    assert not refitter.set_weights("conv", trt.WeightsRole.SHIFT, np.ones(3, np.float32))
    assert "WeightsRole.SHIFT of layer 'conv'" in logger.errors[-1]
    assert not refitter.set_named_weights("w", np.ones((3, 2, 1, 1)))


def test_names_are_of_one_layers_weights(network: trt.INetworkDefinition, logger: Kept) -> None:
    conv = filled(network)
    assert not network.set_weights_name(np.ones(3, np.float32), "w")
    assert "0 layers have these weights" in logger.errors[-1]
    assert network.set_weights_name(conv.kernel, "w")
    assert not network.set_weights_name(conv.bias, "w")
    assert "'w' is the name of others" in logger.errors[-1]
    conv.stride_nd = (1, 1)  # makes it anew
    assert network.lowered().constants[0].name == "w"


def test_weights_of_a_parsers_layers_have_roles(
    builder: trt.Builder,
    parsed: trt.INetworkDefinition,
    profiled: trt.IBuilderConfig,
    logger: Kept,
) -> None:
    profiled.set_flag(trt.BuilderFlag.REFIT)
    refitter = trt.Refitter(built(parsed, profiled, logger), logger)
    assert refitter.get_all() == (["conv"], [KERNEL])
    assert refitter.set_weights("conv", KERNEL, np.ones((5, 3, 3, 3), np.float32))
    assert refitter.get_named_weights("w").size == 135


def test_a_plan_is_stripped_by_its_flag_alone(
    network: trt.INetworkDefinition, config: trt.IBuilderConfig, logger: Kept
) -> None:
    filled(network)
    config.set_flag(trt.BuilderFlag.STRIP_PLAN)
    refitter = trt.Refitter(built(network, config, logger), logger)
    assert ("conv", KERNEL) in set(zip(*refitter.get_missing()))


def test_marked_weights_alone_are_refitted(
    network: trt.INetworkDefinition, config: trt.IBuilderConfig, logger: Kept
) -> None:
    filled(network)
    assert not network.mark_weights_refittable("conv.kernal")
    assert "'conv.kernel'" in logger.errors[-1]
    for name in ("conv.kernel", "conv.bias"):
        assert network.mark_weights_refittable(name)
    assert network.unmark_weights_refittable("conv.bias")
    assert network.are_weights_marked_refittable("conv.kernel")
    assert not network.are_weights_marked_refittable("conv.bias")
    config.set_flag(trt.BuilderFlag.REFIT_INDIVIDUAL)
    engine = built(network, config, logger)
    refitter = trt.Refitter(engine, logger)
    assert refitter.get_all_weights() == ["conv.kernel"]
    assert not refitter.set_weights("conv", BIAS, np.ones(3, np.float32))
    assert "mark_weights_refittable" in logger.errors[-1]
    assert refitter.set_weights("conv", KERNEL, np.full((3, 2, 1, 1), 3, np.float32))
    assert refitter.refit_cuda_engine()
    assert fed(engine).tolist() == [12, 18, 24]
