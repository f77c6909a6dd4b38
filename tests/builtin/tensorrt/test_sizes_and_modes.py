"""Sizes that each run tells layers of a program's own network, and modes of layers that take
several of tactix's.
"""

from __future__ import annotations

import numpy as np
import pytest
from trt_logger import Kept
from trt_runs import built, run

from tactix_tensorrt import api as trt

Array = np.ndarray
Net = trt.INetworkDefinition
Config = trt.IBuilderConfig
RNG = np.random.default_rng(5)


def marked(network: Net, tensor: trt.ITensor) -> None:
    tensor.name = "y"
    network.mark_output(tensor)


def constant(network: Net, array: Array) -> trt.ITensor:
    return network.add_constant(array.shape, trt.Weights(array)).get_output(0)


def test_a_resize_by_scales_rounds_sizes_down(network: Net, config: Config, logger: Kept) -> None:
    x = network.add_input("x", trt.float32, (-1, 1, 3, 5))
    layer = network.add_resize(x)
    layer.scales = (1, 1, 2, 0.5)
    assert layer.get_output(0).shape == (-1, 1, 6, 2)
    marked(network, layer.get_output(0))
    profile = network.builder.create_optimization_profile()
    profile.set_shape("x", (1, 1, 3, 5), (2, 1, 3, 5), (4, 1, 3, 5))
    config.add_optimization_profile(profile)
    feed = RNG.standard_normal((2, 1, 3, 5)).astype(np.float32)
    found = run(built(network, config, logger), {"x": feed})["y"]
    assert np.array_equal(found, feed.repeat(2, 2)[..., [0, 2]])


def test_a_resize_has_a_scale_for_each_axis(network: Net, config: Config, logger: Kept) -> None:
    layer = network.add_resize(network.add_input("x", trt.float32, (1, 1, 3, 5)))
    layer.scales = (2, 2)
    marked(network, layer.get_output(0))
    assert network.builder.build_serialized_network(network, config) is None
    assert "2 scales" in logger.errors[-1]


def test_a_resize_takes_its_sizes_from_each_run(network: Net, config: Config, logger: Kept) -> None:
    layer = network.add_resize(network.add_input("x", trt.float32, (1, 2, 2)))
    layer.set_input(1, network.add_input("sizes", trt.int32, (3,)))
    assert layer.get_output(0).shape == (-1, -1, -1)
    marked(network, layer.get_output(0))
    engine = built(network, config, logger)
    feed = np.arange(4, dtype=np.float32).reshape(1, 2, 2)
    for down, right in ((2, 1), (1, 3)):
        sizes = np.array([1, 2 * down, 2 * right], np.int32)
        found = run(engine, {"x": feed, "sizes": sizes})["y"]
        assert np.array_equal(found, feed.repeat(down, 1).repeat(right, 2))


def test_a_plan_shows_itself_in_short(network: Net, config: Config) -> None:
    x = network.add_input("x", trt.float32, (2,))
    marked(network, network.add_identity(x).get_output(0))
    plan = network.builder.build_serialized_network(network, config)
    assert len(repr(plan)) < 100
    assert str(plan) == repr(plan)
    assert "IHostMemory" in repr(plan)


def test_an_engine_tells_indices_of_names_before_10(
    network: Net, config: Config, logger: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = network.add_input("x", trt.float32, (2,))
    marked(network, network.add_identity(x).get_output(0))
    engine = built(network, config, logger)
    with pytest.raises(TypeError, match="by numbers"):
        engine["y"]
    monkeypatch.setenv("TACTIX_TENSORRT_LEVEL", "8.6")
    assert (engine["x"], engine["y"], engine["z"], engine[1]) == (0, 1, -1, "y")
