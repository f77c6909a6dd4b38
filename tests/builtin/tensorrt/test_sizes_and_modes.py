"""Sizes that each run tells layers of a program's own network, and modes of layers that take
several of tactix's.
"""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
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


PLACES = {
    "CLAMP": lambda i, n: np.clip(i, 0, n - 1),
    "FILL": lambda i, n: np.where((i < 0) | (i >= n), n, i),
    "WRAP": lambda i, n: i % n,
    "REFLECT": lambda i, n: n - 1 - abs(i % (2 * n - 2) - (n - 1)),
}
"""Of numpy: the element at n is what FILL fills with."""

START, SHAPE, STRIDE = (0, -3, 4), (2, 8, 5), (1, 1, -2)


def beyond(x: Array, mode: str, fill: float) -> Array:
    for axis, (begin, size, step) in enumerate(zip(START, SHAPE, STRIDE)):
        n = x.shape[axis]
        more = np.concatenate([x, np.full_like(x.take([0], axis), fill)], axis)
        x = more.take(PLACES[mode](begin + step * np.arange(size), n), axis)
    return x


@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("mode", PLACES)
def test_a_slice_reaches_beyond_its_tensor(
    network: Net, config: Config, logger: Kept, mode: str, told: bool
) -> None:
    x = network.add_input("x", trt.float32, (2, 3, 4))
    layer = network.add_slice(x, START, SHAPE, STRIDE)
    layer.mode = trt.SampleMode[mode]
    feed = {"x": RNG.standard_normal((2, 3, 4)).astype(np.float32)}
    if mode == "FILL":
        layer.set_input(4, constant(network, np.float32([7])))
    if told:
        for i, (name, numbers) in enumerate((("start", START), ("size", SHAPE), ("step", STRIDE))):
            layer.set_input(i + 1, network.add_input(name, trt.int32, (3,)))
            feed[name] = np.array(numbers, np.int32)
    assert layer.get_output(0).shape == ((-1, -1, -1) if told else SHAPE)
    marked(network, layer.get_output(0))
    found = run(built(network, config, logger), feed)["y"]
    assert np.array_equal(found, beyond(feed["x"], mode, 7))


def test_a_slice_of_an_open_size_is_filled_with_zeros(
    network: Net, config: Config, logger: Kept
) -> None:
    x = network.add_input("x", trt.int32, (-1,))
    layer = network.add_slice(x, (-1,), (4,), (1,))
    layer.mode = trt.SampleMode.FILL
    marked(network, layer.get_output(0))
    profile = network.builder.create_optimization_profile()
    profile.set_shape("x", (1,), (2,), (8,))
    config.add_optimization_profile(profile)
    engine = built(network, config, logger)
    assert run(engine, {"x": np.int32([5, 6])})["y"].tolist() == [0, 5, 6, 0]


def test_a_slice_takes_its_bounds_from_each_run(network: Net, config: Config, logger: Kept) -> None:
    layer = network.add_slice(network.add_input("x", trt.float32, (5,)), (0,), (1,), (1,))
    for i, name in enumerate(("start", "size", "step")):
        layer.set_input(i + 1, network.add_input(name, trt.int32, (1,)))
    marked(network, layer.get_output(0))
    engine = built(network, config, logger)
    feed = np.arange(5, dtype=np.float32)

    def found(*bounds: int) -> Array:
        told = {n: np.int32([b]) for n, b in zip(("start", "size", "step"), bounds)}
        return run(engine, {"x": feed, **told})["y"]

    assert found(1, 2, 2).tolist() == [1, 3]
    assert found(4, 5, -1).tolist() == [4, 3, 2, 1, 0]
    assert found(2, 0, 1).tolist() == []
    for outside in ((-1, 5, -1), (-3, 2, 1), (4, 2, 1), (6, 3, -1)):
        with pytest.raises(AssertionError):
            found(*outside)


def test_a_ramp_takes_its_sizes_start_and_steps_from_each_run(
    network: Net, config: Config, logger: Kept
) -> None:
    layer = network.add_fill((2, 3), trt.FillOperation.LINSPACE)
    told = {"sizes": np.int32([2, 4]), "start": np.float32(1), "delta": np.float32([10, 0.5])}
    for i, (name, array) in enumerate(told.items()):
        dtype = trt.int32 if name == "sizes" else trt.float32
        layer.set_input(i, network.add_input(name, dtype, array.shape))
    marked(network, layer.get_output(0))
    found = run(built(network, config, logger), {n: np.asarray(a) for n, a in told.items()})["y"]
    assert np.array_equal(found, 1 + 10 * np.arange(2)[:, None] + 0.5 * np.arange(4))


def test_a_ramp_of_constants_over_two_axes(network: Net, config: Config, logger: Kept) -> None:
    layer = network.add_fill((2, 3), trt.FillOperation.LINSPACE)
    layer.set_input(1, constant(network, np.float32(2)))
    layer.set_input(2, constant(network, np.float32([3, 1])))
    x = network.add_input("x", trt.float32, (1, 1))
    total = network.add_elementwise(x, layer.get_output(0), trt.ElementWiseOperation.SUM)
    marked(network, total.get_output(0))
    found = run(built(network, config, logger), {"x": np.float32([[1]])})["y"]
    assert found.tolist() == [[3, 4, 5], [6, 7, 8]]


def test_a_top_k_takes_k_from_each_run(network: Net, config: Config, logger: Kept) -> None:
    layer = network.add_topk(network.add_input("x", trt.float32, (5,)), trt.TopKOperation.MAX, 1, 1)
    layer.set_input(1, network.add_input("k", trt.int32, ()))
    marked(network, layer.get_output(1))
    engine = built(network, config, logger)
    for k in (1, 3):
        found = run(engine, {"x": np.float32([1, 5, 3, 4, 2]), "k": np.array(k, np.int32)})["y"]
        assert found.tolist() == [1, 3, 2][:k]


def test_a_gather_of_each_row(network: Net, config: Config, logger: Kept) -> None:
    x = RNG.standard_normal((2, 3, 4)).astype(np.float32)
    where = np.array([[0, 3, 1], [2, 2, 0]], np.int32)
    indices = network.add_input("where", trt.int32, (2, 3))
    layer = network.add_gather(network.add_input("x", trt.float32, x.shape), indices, 2)
    layer.num_elementwise_dims = 1
    assert layer.get_output(0).shape == (2, 3, 3)
    marked(network, layer.get_output(0))
    found = run(built(network, config, logger), {"x": x, "where": where})["y"]
    assert np.array_equal(found, np.stack([a[:, i] for a, i in zip(x, where)]))


def test_a_pooling_blends_maximum_and_average(network: Net, config: Config, logger: Kept) -> None:
    x = RNG.standard_normal((1, 2, 4, 6)).astype(np.float32)
    kind = trt.PoolingType.MAX_AVERAGE_BLEND
    layer = network.add_pooling_nd(network.add_input("x", trt.float32, x.shape), kind, (2, 2))
    layer.stride_nd = (2, 2)
    layer.blend_factor = 0.25
    marked(network, layer.get_output(0))
    found = run(built(network, config, logger), {"x": x})["y"]
    parts = x.reshape(1, 2, 2, 2, 3, 2)
    wanted = 0.75 * parts.max((3, 5)) + 0.25 * parts.mean((3, 5))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_groups_have_one_scale_each(network: Net, config: Config, logger: Kept) -> None:
    x = RNG.standard_normal((2, 4, 3, 3)).astype(np.float32)
    scale, bias = (RNG.standard_normal((1, 2, 1, 1)).astype(np.float32) for _ in range(2))
    given = network.add_input("x", trt.float32, x.shape)
    layer = network.add_normalization(
        given, constant(network, scale), constant(network, bias), 1 << 2 | 1 << 3
    )
    layer.num_groups = 2
    marked(network, layer.get_output(0))
    found = run(built(network, config, logger), {"x": x})["y"]
    parts = x.reshape(2, 2, 18)
    flat = (parts - parts.mean(2, keepdims=True)) / np.sqrt(parts.var(2, keepdims=True) + 1e-5)
    wanted = (flat * scale[:, :, 0] + bias[:, :, 0]).reshape(x.shape)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_the_most_that_a_search_finds_is_known(network: Net, config: Config, logger: Kept) -> None:
    layer = network.add_non_zero(network.add_input("x", trt.float32, (-1, 4)))
    marked(network, layer.get_output(0))
    profile = network.builder.create_optimization_profile()
    profile.set_shape("x", (1, 4), (2, 4), (8, 4))
    config.add_optimization_profile(profile)
    context = built(network, config, logger).create_execution_context()
    assert context.get_max_output_size("y") == -1
    context.set_input_shape("x", (3, 4))
    assert context.get_tensor_shape("y") == (2, -1)
    assert context.get_max_output_size("y") == 2 * 12 * np.dtype(np.int32).itemsize
    feed, found = np.float32([[1, 0, 2, 0]] * 3), np.zeros((2, 12), np.int32)
    context.set_tensor_address("x", feed.ctypes.data)
    context.set_tensor_address("y", found.ctypes.data)
    assert context.execute_async_v3(0), logger.errors
    assert context.get_tensor_shape("y") == (2, 6)
    assert context.get_max_output_size("y") == found.nbytes
    assert found.ravel()[:12].tolist() == [*np.argwhere(feed).T.ravel()]


def test_an_input_that_tells_sizes_is_a_shape_tensor(network: Net, logger: Kept) -> None:
    names = {"x": trt.float32, "sizes": trt.int32, "numbers": trt.int32}
    x, sizes, numbers = (network.add_input(n, t, (2,)) for n, t in names.items())
    cast = network.add_cast(sizes, trt.int64).get_output(0)
    network.add_shuffle(x).set_input(1, cast)
    network.add_elementwise(numbers, numbers, trt.ElementWiseOperation.SUM)
    assert [t.is_shape_tensor for t in (x, sizes, numbers)] == [False, True, False]


def test_an_input_that_tells_a_model_sizes_is_a_shape_tensor(network: Net, logger: Kept) -> None:
    given = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3]),
        helper.make_tensor_value_info("sizes", TensorProto.INT64, [2]),
    ]
    made = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    node = helper.make_node("Reshape", ["x", "sizes"], ["y"])
    graph = helper.make_graph([node], "net", given, made)
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    assert trt.OnnxParser(network, logger).parse(model.SerializeToString())
    assert [network.get_input(i).is_shape_tensor for i in range(2)] == [False, True]
