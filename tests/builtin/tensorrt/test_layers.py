"""Each ``add_*`` of a network that gives a layer, against numpy; and those that give None."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from trt_logger import Kept
from trt_runs import built
from trt_runs import run as open_run

from tactix_tensorrt import api as trt

Array = np.ndarray
Net = trt.INetworkDefinition
RNG = np.random.default_rng(3)
X = RNG.standard_normal((2, 3, 4, 5)).astype(np.float32)


def run(net: Net, outputs: list[trt.ITensor], feeds: dict[str, Array], logger: Kept) -> list[Array]:
    """What the network's engine gives at fixed shapes."""
    for tensor in outputs:
        net.mark_output(tensor)
    config = net.builder.create_builder_config()
    config.builder_optimization_level = 0
    engine = net.builder.build_engine_with_config(net, config)
    assert engine is not None, logger.errors
    context = engine.create_execution_context()
    arrays = {}
    for name in engine:
        shape, dtype = context.get_tensor_shape(name), trt.nptype(engine.get_tensor_dtype(name))
        arrays[name] = feeds[name] if name in feeds else np.empty(shape, dtype)
        assert arrays[name].dtype == dtype
        context.set_tensor_address(name, arrays[name].ctypes.data)
    assert context.execute_async_v3(0), logger.errors
    return [arrays[t.name] for t in outputs]


def constant(net: Net, array: Array) -> trt.ITensor:
    return net.add_constant(array.shape, trt.Weights(array)).get_output(0)


def erf(x: Array) -> Array:
    from math import erf

    return np.vectorize(erf)(x).astype(np.float32)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "RELU": lambda x: np.maximum(x, 0),
    "SIGMOID": lambda x: 1 / (1 + np.exp(-x)),
    "TANH": np.tanh,
    "LEAKY_RELU": lambda x: np.where(x > 0, x, 0.3 * x),
    "ELU": lambda x: np.where(x > 0, x, 0.3 * (np.exp(x) - 1)),
    "SELU": lambda x: 0.8 * np.where(x > 0, x, 0.3 * (np.exp(x) - 1)),
    "SOFTSIGN": lambda x: x / (1 + abs(x)),
    "SOFTPLUS": lambda x: 0.3 * np.log(np.exp(0.8 * x) + 1),
    "CLIP": lambda x: np.clip(x, 0.3, 0.8),
    "HARD_SIGMOID": lambda x: np.clip(0.3 * x + 0.8, 0, 1),
    "SCALED_TANH": lambda x: 0.3 * np.tanh(0.8 * x),
    "THRESHOLDED_RELU": lambda x: np.where(x > 0.3, x, 0),
    "GELU_ERF": lambda x: 0.5 * x * (1 + erf(x / np.sqrt(2))),
    "GELU_TANH": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
}


def test_operands_have_one_type(network: Net, logger: Kept) -> None:
    """A float beside an integer would be cut; the wider of two floats or integers takes both."""
    x = network.add_input("x", trt.float32, (2, 2))
    half, whole, long = (
        network.add_cast(x, t).get_output(0) for t in (trt.float16, trt.int32, trt.int64)
    )
    total, none = trt.ElementWiseOperation.SUM, trt.MatrixOperation.NONE
    sums = [
        network.add_elementwise(a, b, total).get_output(0) for a, b in ((half, x), (whole, long))
    ]
    product = network.add_matrix_multiply(half, none, x, none).get_output(0)
    assert [t.dtype for t in (*sums, product)] == [trt.float32, trt.int64, trt.float32]
    given = np.array([[1.5, -2.5], [3, 0.25]], np.float32)
    added, _, multiplied = run(network, [*sums, product], {"x": given}, logger)
    assert np.array_equal(added, 2 * given)
    assert np.array_equal(multiplied, given @ given)
    assert network.add_elementwise(whole, x, total).get_output(0).shape == ()
    assert "inputs of INT32 and FLOAT: both must have one type" in logger.errors[-1]
    typed = network.builder.create_network(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED.mask)
    x, half = (typed.add_input(n, t, (2, 2)) for n, t in (("x", trt.float32), ("h", trt.float16)))
    assert typed.add_matrix_multiply(half, none, x, none).get_output(0).shape == ()
    assert "HALF and FLOAT" in logger.errors[-1]


def test_scales_of_blocks(network: Net, logger: Kept) -> None:
    """Four bits with a scale for each four rows: as weights of language models come."""
    numbers = RNG.integers(-8, 8, (8, 6))
    nibbles = (numbers & 15).ravel().astype(np.uint8)
    packed, scales = (
        nibbles[::2] | nibbles[1::2] << 4,
        np.float32([[0.5], [2]]) * np.ones((2, 6), "f"),
    )
    weights = trt.Weights(trt.int4, packed.ctypes.data, numbers.size)
    w = network.add_constant(numbers.shape, weights).get_output(0)
    x = network.add_input("x", trt.float32, (8, 6))
    by = constant(network, scales)
    back = network.add_dequantize(w, by, trt.float32).get_output(0)
    there = network.add_quantize(x, by, trt.int8).get_output(0)
    wide, spread = network.add_identity(back).get_output(0), np.repeat(scales, 4, 0)
    given = (spread * numbers).astype(np.float32)
    y, z = run(network, [wide, there], {"x": given}, logger)
    assert np.array_equal(y, given)
    assert np.array_equal(z, numbers)


def test_limits_of_random_numbers_are_tensors_too(network: Net, logger: Kept) -> None:
    high = network.add_input("high", trt.float32, ())
    fills = [
        network.add_fill((500,), kind, trt.float32)
        for kind in (trt.FillOperation.RANDOM_UNIFORM, trt.FillOperation.RANDOM_NORMAL)
    ]
    for fill in fills:
        fill.set_input(1, constant(network, np.array(2, np.float32)))
    fills[0].set_input(2, high)
    fills[1].set_input(2, constant(network, np.array(0.01, np.float32)))
    outputs = [fill.get_output(0) for fill in fills]
    uniform, normal = run(network, outputs, {"high": np.array(5, np.float32)}, logger)
    assert 2 <= uniform.min() < 2.5 < 4.5 < uniform.max() <= 5
    assert 1.9 < normal.min() < normal.max() < 2.1


def test_activations(network: Net, logger: Kept) -> None:
    x, made = network.add_input("x", trt.float32, X.shape), []
    for name in ACTIVATIONS:
        layer = network.add_activation(x, trt.ActivationType[name])
        layer.alpha, layer.beta = 0.3, 0.8
        made.append(layer.get_output(0))
    for got, (name, wanted) in zip(run(network, made, {"x": X}, logger), ACTIVATIONS.items()):
        np.testing.assert_allclose(got, wanted(X), rtol=1e-4, atol=1e-5, err_msg=name)
    assert set(ACTIVATIONS) == set(trt.ActivationType.__members__)


BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "SUM": np.add,
    "PROD": np.multiply,
    "MAX": np.maximum,
    "MIN": np.minimum,
    "SUB": np.subtract,
    "DIV": np.divide,
    "POW": lambda a, b: np.power(abs(a), b),
    "FLOOR_DIV": np.floor_divide,
    "EQUAL": np.equal,
    "GREATER": np.greater,
    "LESS": np.less,
}


def test_elementwise_layers_broadcast(network: Net, logger: Kept) -> None:
    b = RNG.standard_normal((1, 3, 1, 1)).astype(np.float32)
    x = network.add_input("x", trt.float32, X.shape)
    y = constant(network, b)
    positive = network.add_unary(x, trt.UnaryOperation.ABS).get_output(0)
    made = [
        network.add_elementwise(
            positive if name == "POW" else x, y, trt.ElementWiseOperation[name]
        ).get_output(0)
        for name in BINARY
    ]
    for got, (name, wanted) in zip(run(network, made, {"x": X}, logger), BINARY.items()):
        np.testing.assert_allclose(got, wanted(X, b), rtol=1e-4, atol=1e-5, err_msg=name)


def test_floor_division_of_integers_rounds_down(network: Net, logger: Kept) -> None:
    a, b = np.array([-7, 7, -8, 8], np.int32), np.array([2, 2, 2, -3], np.int32)
    x = network.add_input("x", trt.int32, (4,))
    op = trt.ElementWiseOperation.FLOOR_DIV
    made = network.add_elementwise(x, constant(network, b), op).get_output(0)
    (got,) = run(network, [made], {"x": a}, logger)
    assert got.tolist() == (a // b).tolist()


def windows(net: Net, x: trt.ITensor) -> tuple[trt.ITensor, Callable[[Array], Array]]:
    """A 1x1 convolution with two groups of padding."""
    w = RNG.standard_normal((4, 3, 1, 1)).astype(np.float32)
    b = RNG.standard_normal(4).astype(np.float32)
    conv = net.add_convolution_nd(x, 4, (1, 1), trt.Weights(w), trt.Weights(b))
    conv.stride_nd = (1, 2)
    conv.padding_nd = (1, 0)

    def wanted(x: Array) -> Array:
        y = np.einsum("nchw,mc->nmhw", x, w[..., 0, 0])
        y = np.pad(y, ((0, 0), (0, 0), (1, 1), (0, 0)))[..., ::2]
        return y + b[:, None, None]

    return conv.get_output(0), wanted


def scaled(net: Net, x: trt.ITensor) -> tuple[trt.ITensor, Callable[[Array], Array]]:
    shift, scale = (RNG.standard_normal(3).astype(np.float32) for _ in range(2))
    layer = net.add_scale(x, trt.ScaleMode.CHANNEL, trt.Weights(shift), trt.Weights(scale))
    return layer.get_output(0), lambda x: x * scale[:, None, None] + shift[:, None, None]


def pooled(net: Net, x: trt.ITensor) -> tuple[trt.ITensor, Callable[[Array], Array]]:
    layer = net.add_pooling_nd(x, trt.PoolingType.MAX, (2, 2))
    layer.stride_nd = (2, 2)
    return layer.get_output(0), lambda x: x[..., :4].reshape(2, 3, 2, 2, 2, 2).max((3, 5))


def reduced(net: Net, x: trt.ITensor) -> tuple[trt.ITensor, Callable[[Array], Array]]:
    layer = net.add_reduce(x, trt.ReduceOperation.AVG, 1 << 2 | 1 << 3, keep_dims=True)
    return layer.get_output(0), lambda x: x.mean((2, 3), keepdims=True)


def largest(net: Net, x: trt.ITensor) -> tuple[trt.ITensor, Callable[[Array], Array]]:
    layer = net.add_topk(x, trt.TopKOperation.MAX, 2, 1 << 3)
    assert layer.get_output(1).dtype == trt.int32
    return layer.get_output(0), lambda x: -np.sort(-x, 3)[..., :2]


def shuffled(net: Net, x: trt.ITensor) -> tuple[trt.ITensor, Callable[[Array], Array]]:
    layer = net.add_shuffle(x)
    layer.first_transpose = (0, 2, 3, 1)
    layer.reshape_dims = (0, -1, 3)
    layer.second_transpose = (0, 2, 1)
    return layer.get_output(0), lambda x: x.reshape(2, 3, 20)


def sliced(net: Net, x: trt.ITensor) -> tuple[trt.ITensor, Callable[[Array], Array]]:
    layer = net.add_slice(x, (0, 1, 0, 1), (2, 2, 4, 2), (1, 1, 1, 2))
    return layer.get_output(0), lambda x: x[:, 1:3, :, 1:4:2]


def softmaxed(net: Net, x: trt.ITensor) -> tuple[trt.ITensor, Callable[[Array], Array]]:
    layer = net.add_softmax(x)
    layer.axes = 1 << 3
    return layer.get_output(0), lambda x: np.exp(x) / np.exp(x).sum(3, keepdims=True)


def softmaxed_channels(net: Net, x: trt.ITensor) -> tuple[trt.ITensor, Callable[[Array], Array]]:
    layer = net.add_softmax(x)
    return layer.get_output(0), lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True)


def joined(net: Net, x: trt.ITensor) -> tuple[trt.ITensor, Callable[[Array], Array]]:
    layer = net.add_concatenation([x, x])
    layer.axis = 2
    return layer.get_output(0), lambda x: np.concatenate([x, x], 2)


def multiplied(net: Net, x: trt.ITensor) -> tuple[trt.ITensor, Callable[[Array], Array]]:
    none, turned = trt.MatrixOperation.NONE, trt.MatrixOperation.TRANSPOSE
    layer = net.add_matrix_multiply(x, none, x, turned)
    return layer.get_output(0), lambda x: x @ x.swapaxes(2, 3)


def by_a_vector(net: Net, x: trt.ITensor) -> tuple[trt.ITensor, Callable[[Array], Array]]:
    v = RNG.standard_normal((2, 3, 5)).astype(np.float32)
    none, vector = trt.MatrixOperation.NONE, trt.MatrixOperation.VECTOR
    layer = net.add_matrix_multiply(x, none, constant(net, v), vector)
    return layer.get_output(0), lambda x: np.einsum("abij,abj->abi", x, v)


def summed(net: Net, x: trt.ITensor) -> tuple[trt.ITensor, Callable[[Array], Array]]:
    layer = net.add_einsum([x, x], "nchw,nchw->nc")
    return layer.get_output(0), lambda x: (x * x).sum((2, 3))


def gathered(net: Net, x: trt.ITensor) -> tuple[trt.ITensor, Callable[[Array], Array]]:
    where = constant(net, np.array([2, 0], np.int32))
    return net.add_gather(x, where, 1).get_output(0), lambda x: x[:, [2, 0]]


def selected(net: Net, x: trt.ITensor) -> tuple[trt.ITensor, Callable[[Array], Array]]:
    zero = constant(net, np.zeros((1, 1, 1, 1), np.float32))
    above = net.add_elementwise(x, zero, trt.ElementWiseOperation.GREATER).get_output(0)
    return net.add_select(above, x, zero).get_output(0), lambda x: np.maximum(x, 0)


def resized(net: Net, x: trt.ITensor) -> tuple[trt.ITensor, Callable[[Array], Array]]:
    layer = net.add_resize(x)
    layer.shape = (2, 3, 8, 10)
    return layer.get_output(0), lambda x: x.repeat(2, 2).repeat(2, 3)


def padded(net: Net, x: trt.ITensor) -> tuple[trt.ITensor, Callable[[Array], Array]]:
    layer = net.add_padding_nd(x, (1, 0), (0, 2))
    return layer.get_output(0), lambda x: np.pad(x, ((0, 0), (0, 0), (1, 0), (0, 2)))


def normalized(net: Net, x: trt.ITensor) -> tuple[trt.ITensor, Callable[[Array], Array]]:
    s, b = (RNG.standard_normal((1, 3, 1, 1)).astype(np.float32) for _ in range(2))
    layer = net.add_normalization(x, constant(net, s), constant(net, b), 1 << 2 | 1 << 3)

    def wanted(x: Array) -> Array:
        mean, var = x.mean((2, 3), keepdims=True), x.var((2, 3), keepdims=True)
        return (x - mean) / np.sqrt(var + 1e-5) * s + b

    return layer.get_output(0), wanted


def quantized(net: Net, x: trt.ITensor) -> tuple[trt.ITensor, Callable[[Array], Array]]:
    scale = constant(net, np.array(0.1, np.float32))
    q = net.add_quantize(x, scale).get_output(0)
    assert q.dtype == trt.int8

    def wanted(x: Array) -> Array:
        return np.clip(np.rint(x / np.float32(0.1)), -128, 127) * 0.1

    return net.add_dequantize(q, scale).get_output(0), wanted


def cast(net: Net, x: trt.ITensor) -> tuple[trt.ITensor, Callable[[Array], Array]]:
    return net.add_cast(x, trt.int32).get_output(0), lambda x: x.astype(np.int32)


def typed(net: Net, x: trt.ITensor) -> tuple[trt.ITensor, Callable[[Array], Array]]:
    layer = net.add_identity(x)
    layer.set_output_type(0, trt.float16)
    return layer.get_output(0), lambda x: x.astype(np.float16)


def shaped(net: Net, x: trt.ITensor) -> tuple[trt.ITensor, Callable[[Array], Array]]:
    return net.add_shape(x).get_output(0), lambda x: np.array(x.shape)


def squeezed(net: Net, x: trt.ITensor) -> tuple[trt.ITensor, Callable[[Array], Array]]:
    axes = constant(net, np.array([1, -1], np.int64))
    wider = net.add_unsqueeze(x, axes).get_output(0)
    assert wider.shape == (2, 1, 3, 4, 5, 1)
    first = constant(net, np.array([1], np.int64))
    return net.add_squeeze(wider, first).get_output(0), lambda x: x[..., None]


def counted(net: Net, x: trt.ITensor) -> tuple[trt.ITensor, Callable[[Array], Array]]:
    layer = net.add_fill((4,), trt.FillOperation.LINSPACE)
    layer.alpha, layer.beta = 1.0, 0.5
    ramp = layer.get_output(0)
    tall = net.add_shuffle(ramp)
    tall.reshape_dims = (1, 1, 4, 1)
    total = net.add_elementwise(x, tall.get_output(0), trt.ElementWiseOperation.SUM)
    return total.get_output(0), lambda x: x + np.linspace(1, 2.5, 4)[:, None]


def cumulated(net: Net, x: trt.ITensor) -> tuple[trt.ITensor, Callable[[Array], Array]]:
    axis = constant(net, np.array(3, np.int32))
    layer = net.add_cumulative(x, axis, trt.CumulativeOperation.SUM, False, False)
    return layer.get_output(0), lambda x: x.cumsum(3)


def deconvolved(net: Net, x: trt.ITensor) -> tuple[trt.ITensor, Callable[[Array], Array]]:
    w = RNG.standard_normal((3, 4, 2, 2)).astype(np.float32)
    layer = net.add_deconvolution_nd(x, 4, (2, 2), trt.Weights(w))
    layer.stride_nd = (2, 2)
    return layer.get_output(0), lambda x: np.einsum("nchw,cmij->nmhiwj", x, w).reshape(2, 4, 8, 10)


CASES = [
    windows, scaled, pooled, reduced, largest, shuffled, sliced, softmaxed, softmaxed_channels,
    joined, multiplied, by_a_vector, summed, gathered, selected, resized, padded, normalized,
    quantized, cast, typed, shaped, squeezed, counted, cumulated, deconvolved,
]  # fmt: skip


def test_layers(network: Net, logger: Kept) -> None:
    x = network.add_input("x", trt.float32, X.shape)
    made = [case(network, x) for case in CASES]
    found = run(network, [t for t, _ in made], {"x": X}, logger)
    for case, got, (tensor, wanted) in zip(CASES, found, made):
        answer = wanted(X)
        assert tensor.shape == got.shape == answer.shape, case.__name__
        np.testing.assert_allclose(got, answer, rtol=1e-3, atol=1e-4, err_msg=case.__name__)


def test_a_shape_is_asked_for_before_and_after_an_attribute_changes(network: Net) -> None:
    x = network.add_input("x", trt.float32, X.shape)
    conv = network.add_convolution_nd(x, 2, (3, 3), trt.Weights(np.ones((2, 3, 3, 3), np.float32)))
    act = network.add_activation(conv.get_output(0), trt.ActivationType.RELU)
    assert act.get_output(0).shape == (2, 2, 2, 3)
    conv.padding_nd = (1, 1)
    assert act.get_output(0).shape == (2, 2, 4, 5)
    conv.padding_mode = trt.PaddingMode.SAME_UPPER
    conv.stride_nd = (2, 2)
    assert act.get_output(0).shape == (2, 2, 2, 3)
    x.shape = (1, 3, 8, 8)
    assert act.get_output(0).shape == (1, 2, 4, 4)


def test_an_open_batch_goes_through(network: Net, logger: Kept) -> None:
    x = network.add_input("x", trt.float32, (-1, 6))
    layer = network.add_shuffle(x)
    layer.reshape_dims = (0, 2, 3)
    assert layer.get_output(0).shape == (-1, 2, 3)
    network.mark_output(layer.get_output(0))
    config, profile = (
        network.builder.create_builder_config(),
        network.builder.create_optimization_profile(),
    )
    config.builder_optimization_level = 0
    profile.set_shape("x", (1, 6), (2, 6), (8, 6))
    config.add_optimization_profile(profile)
    assert network.builder.build_serialized_network(network, config), logger.errors


@pytest.mark.parametrize("dtype", [trt.int32, trt.int64])
def test_a_shuffle_takes_its_sizes_from_each_run(
    network: Net, config: trt.IBuilderConfig, logger: Kept, dtype: trt.DataType
) -> None:
    x = network.add_input("x", trt.float32, (-1, 6))
    sizes = network.add_input("sizes", dtype, (3,))
    layer = network.add_shuffle(x)
    layer.set_input(1, sizes)
    layer.second_transpose = (2, 0, 1)
    assert layer.get_output(0).shape == (-1, -1, -1)
    layer.get_output(0).name = "y"
    network.mark_output(layer.get_output(0))
    profile = network.builder.create_optimization_profile()
    profile.set_shape("x", (1, 6), (4, 6), (8, 6))
    config.add_optimization_profile(profile)
    engine = built(network, config, logger)
    feed = RNG.standard_normal((4, 6)).astype(np.float32)
    for told, shape in (((0, 2, -1), (4, 2, 3)), ((2, 3, 4), (2, 3, 4)), ((-1, 1, 1), (24, 1, 1))):
        found = open_run(engine, {"x": feed, "sizes": np.array(told, trt.nptype(dtype))})["y"]
        assert np.array_equal(found, feed.reshape(shape).transpose(2, 0, 1))


@pytest.mark.parametrize("placeholder", [True, False])
def test_a_zero_among_the_sizes_of_a_run_is_a_size_only_if_it_is_no_placeholder(
    network: Net, config: trt.IBuilderConfig, logger: Kept, placeholder: bool
) -> None:
    x = network.add_input("x", trt.float32, (2, 3))
    layer = network.add_shuffle(x)
    layer.set_input(1, network.add_input("sizes", trt.int32, (2,)))
    layer.zero_is_placeholder = placeholder
    layer.get_output(0).name = "y"
    network.mark_output(layer.get_output(0))
    context = built(network, config, logger).create_execution_context()
    feed, sizes = np.ones((2, 3), np.float32), np.array([0, 3], np.int32)
    found = np.zeros((2, 3), np.float32)
    for name, array in (("x", feed), ("sizes", sizes), ("y", found)):
        assert context.set_tensor_address(name, array.ctypes.data)
    assert context.execute_async_v3(0) is placeholder
    if placeholder:
        assert np.array_equal(found, feed)
    else:
        assert "6 elements" in logger.errors[-1]


def test_layers_that_make_no_sense_build_nothing(network: Net, logger: Kept) -> None:
    x = network.add_input("x", trt.float32, X.shape)
    conv = network.add_convolution_nd(x, 2, (3, 3), trt.Weights(np.ones((2, 3, 3, 3), np.float32)))
    conv.num_groups = 2
    network.mark_output(conv.get_output(0))
    config = network.builder.create_builder_config()
    assert network.builder.build_serialized_network(network, config) is None
    assert "54 weights do not fill (2, 1, 3, 3)" in logger.errors[-1]


def test_strides_and_dilations_are_one_and_paddings_none_before_they_are_set(
    network: trt.INetworkDefinition,
) -> None:
    x = network.add_input("x", trt.float32, (1, 2, 8, 8))
    conv = network.add_convolution_nd(x, 3, (3, 3), np.ones((3, 2, 3, 3), np.float32))
    pool = network.add_pooling_nd(x, trt.PoolingType.MAX, (2, 2))
    for layer in (conv, pool):
        assert layer.stride_nd == layer.stride == (1, 1)
        assert layer.padding_nd == layer.padding == (0, 0)
    assert conv.dilation_nd == (1, 1)
