"""Layers of transformers, of choices and of blocks that a network adds, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from test_layers import constant, run
from trt_logger import Kept

from tactix_tensorrt import api as trt

Array = np.ndarray
Net = trt.INetworkDefinition
RNG = np.random.default_rng(5)
SOFTMAX = trt.AttentionNormalizationOp.SOFTMAX


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def refusal(net: Net, output: trt.ITensor, logger: Kept) -> str:
    """What a build says that cannot be."""
    net.mark_output(output)
    assert net.builder.build_serialized_network(net, net.builder.create_builder_config()) is None
    return logger.errors[-1]


# -- choices --------------------------------------------------------------------------------------


def one_hot(indices: Array, depth: int, axis: int) -> Array:
    wrapped = np.where(indices < 0, indices + depth, indices)
    hit = np.expand_dims(wrapped, axis)
    count = np.moveaxis(np.arange(depth).reshape(-1, *[1] * indices.ndim), 0, axis)
    return np.where(hit == count, np.float32(7), np.float32(-1))


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_one_hot_counts_negative_indices_from_the_end(
    axis: int, network: Net, logger: Kept
) -> None:
    indices = np.array([[0, 3, 4], [-1, -4, -5]], np.int32)
    x = network.add_input("x", trt.int32, indices.shape)
    values = constant(network, np.array([-1, 7], np.float32))
    depth = constant(network, np.array(4, np.int32))
    layer = network.add_one_hot(x, values, depth, axis)
    assert layer.type is trt.LayerType.ONE_HOT
    (got,) = run(network, [layer.get_output(0)], {"x": indices}, logger)
    np.testing.assert_array_equal(got, one_hot(indices, 4, axis))


def test_one_hot_takes_a_depth_from_an_input(network: Net, logger: Kept) -> None:
    x = network.add_input("x", trt.int32, (3,))
    depth = network.add_input("depth", trt.int32, ())
    values = constant(network, np.array([-1, 7], np.float32))
    layer = network.add_one_hot(x, values, depth, -1)
    total = network.add_reduce(layer.get_output(0), trt.ReduceOperation.SUM, 3, False)
    feeds = {"x": np.array([0, 5, 2], np.int32), "depth": np.array(3, np.int32)}
    (got,) = run(network, [total.get_output(0)], feeds, logger)
    assert got == one_hot(feeds["x"], 3, -1).sum()


def test_a_ragged_softmax_leaves_out_what_is_beyond_the_bounds(network: Net, logger: Kept) -> None:
    x, bounds = normal(2, 3, 5), np.array([[5, 3, 0], [1, 2, 4]], np.int32).reshape(2, 3, 1)
    given = [network.add_input("x", trt.float32, x.shape)]
    given.append(network.add_input("bounds", trt.int32, bounds.shape))
    layer = network.add_ragged_softmax(*given)
    (got,) = run(network, [layer.get_output(0)], {"x": x, "bounds": bounds}, logger)
    wanted = np.zeros_like(x)
    for b, r in np.ndindex(2, 3):
        n = int(bounds[b, r, 0])
        if n:
            wanted[b, r, :n] = softmax(x[b, r, :n])
    np.testing.assert_allclose(got, wanted, atol=1e-6)


def overlap(a: Array, b: Array) -> float:
    low, high = np.maximum(a[:2], b[:2]), np.minimum(a[2:], b[2:])
    shared = np.prod(np.maximum(high - low, 0))
    return float(shared / (np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - shared))


def suppressed(boxes: Array, scores: Array, most: int, iou: float, floor: float, best: int) -> list:
    """boxes (batch, n, classes, 4), scores (batch, n, classes)."""
    out = []
    for b in range(len(scores)):
        limit = np.sort(scores[b].ravel())[::-1][:best][-1]
        for c in range(scores.shape[2]):
            kept: list[int] = []
            for i in np.argsort(-scores[b, :, c]):
                if scores[b, i, c] <= floor or scores[b, i, c] < limit or len(kept) == most:
                    continue
                if all(overlap(boxes[b, i, c], boxes[b, k, c]) <= iou for k in kept):
                    kept.append(int(i))
            out += [[b, c, i] for i in kept]
    return out


def corners(*shape: int) -> Array:
    low = RNG.random((*shape, 2))
    return np.concatenate([low, low + 0.3 + RNG.random((*shape, 2))], -1).astype(np.float32)


@pytest.mark.parametrize("per_class", [False, True])
@pytest.mark.parametrize("best", [5000, 9])
def test_suppression_of_boxes(per_class: bool, best: int, network: Net, logger: Kept) -> None:
    boxes = corners(2, 11, 3) if per_class else corners(2, 11)
    scores = (RNG.permutation(66).reshape(2, 11, 3) / 66 - 0.2).astype(np.float32)
    given = [network.add_input("boxes", trt.float32, boxes.shape)]
    given.append(network.add_input("scores", trt.float32, scores.shape))
    layer = network.add_nms(*given, constant(network, np.array(4, np.int32)))
    layer.topk_box_limit = best
    assert layer.bounding_box_format is trt.BoundingBoxFormat.CORNER_PAIRS
    layer.set_input(3, constant(network, np.array(0.25, np.float32)))
    found, count = layer.get_output(0), layer.get_output(1)
    padded = network.add_concatenation([found, constant(network, np.zeros((66, 3), np.int32))])
    head = network.add_slice(padded.get_output(0), (0, 0), (66, 3), (1, 1)).get_output(0)
    feeds = {"boxes": boxes, "scores": scores}
    got, n = run(network, [head, count], feeds, logger)
    each = boxes if per_class else np.repeat(boxes[:, :, None], 3, 2)
    wanted = suppressed(each, scores, 4, 0.25, 0.0, best)
    assert n.shape == ()
    assert got[: int(n)].tolist() == wanted
    assert 3 < len(wanted) < 24


def test_boxes_by_centre_and_indices_of_64_bits(network: Net, logger: Kept) -> None:
    boxes = np.array([[[0, 0, 2, 2], [0.1, 0, 2, 2], [5, 5, 1, 1]]], np.float32)
    scores = np.array([[[0.5], [0.9], [0.1]]], np.float32)
    given = [constant(network, x) for x in (boxes, scores, np.array(9, np.int32))]
    layer = network.add_nms(*given, trt.int64)
    layer.bounding_box_format = trt.BoundingBoxFormat.CENTER_SIZES
    assert layer.get_output(0).dtype is trt.int64
    assert layer.get_output(1).dtype is trt.int32
    last = network.add_slice(layer.get_output(0), (0, 0), (1, 3), (1, 1)).get_output(0)
    got, n = run(network, [last, layer.get_output(1)], {}, logger)
    assert got.tolist() == [[0, 0, 1]]
    assert n == 2


# -- blocks ---------------------------------------------------------------------------------------


def test_blocks_are_quantized_by_scales_of_their_own(network: Net, logger: Kept) -> None:
    import ml_dtypes

    x = normal(3, 32)
    given = network.add_input("x", trt.float32, x.shape)
    four = network.add_dynamic_quantize(given, 1, 16, trt.fp4, trt.fp8)
    four.set_input(1, constant(network, np.array([0.5], np.float32)))
    eight = network.add_dynamic_quantize_v2(given, (1, 32), trt.fp8, trt.DataType.E8M0)
    whole = network.add_dynamic_quantize_v2(given, (-1, 16), trt.fp8, trt.float32)
    layers = (four, eight, whole)
    assert [list(y.get_output(1).shape) for y in layers] == [[3, 2], [3, 1], [1, 2]]
    assert four.get_output(0).dtype is trt.fp4
    assert eight.get_output(1).dtype is trt.DataType.E8M0
    wide = [
        network.add_cast(y.get_output(i), trt.float32).get_output(0) for y in layers for i in (0, 1)
    ]
    got = run(network, wide, {"x": x}, logger)
    high = abs(x.reshape(3, 2, 16)).max(2)
    scale = (high / 6 / 0.5).astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
    np.testing.assert_array_equal(got[1], scale)
    y = x / np.repeat(scale * 0.5, 16, 1)
    np.testing.assert_array_equal(
        got[0], np.clip(y, -6, 6).astype(ml_dtypes.float4_e2m1fn).astype(np.float32)
    )
    power = 2 ** np.ceil(np.log2(abs(x).max(1, keepdims=True) / 448))
    np.testing.assert_array_equal(got[3], power)
    np.testing.assert_array_equal(
        got[2], (x / power).astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
    )
    np.testing.assert_allclose(got[5], abs(x.reshape(3, 2, 16)).max((0, 2))[None] / 448, rtol=1e-6)


def test_a_block_that_does_not_divide_its_axis_is_refused(network: Net, logger: Kept) -> None:
    x = network.add_input("x", trt.float32, (3, 30))
    layer = network.add_dynamic_quantize(x, 1, 16, trt.fp4, trt.fp8)
    said = refusal(network, layer.get_output(0), logger)
    assert layer.name in said
    assert "no whole blocks of 16" in said


# -- transformers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("dim", [0, 4])
def test_rotary_embeddings(interleaved: bool, dim: int, network: Net, logger: Kept) -> None:
    x, n = normal(2, 3, 5, 6), (dim or 6) // 2
    angles, places = normal(7, n), RNG.integers(0, 7, (2, 5))
    given = network.add_input("x", trt.float32, x.shape)
    tables = [constant(network, f(angles)) for f in (np.cos, np.sin)]
    layer = network.add_rotary_embedding(given, *tables, interleaved, dim)
    layer.set_input(3, constant(network, places))
    (got,) = run(network, [layer.get_output(0)], {"x": x}, logger)
    c, s = (f(angles)[places][:, None] for f in (np.cos, np.sin))
    own, wanted = x[..., : 2 * n], x.copy()
    a, b = (own[..., 0::2], own[..., 1::2]) if interleaved else (own[..., :n], own[..., n:])
    turned = [a * c - b * s, a * s + b * c]
    wanted[..., : 2 * n] = (
        np.stack(turned, -1).reshape(own.shape) if interleaved else np.concatenate(turned, -1)
    )
    np.testing.assert_allclose(got, wanted, atol=1e-5)


def test_a_cache_is_written_from_places_of_each_sample_on(network: Net, logger: Kept) -> None:
    cache, rows = normal(2, 3, 7, 4), normal(2, 3, 2, 4)
    given = [network.add_input("cache", trt.float32, cache.shape)]
    given.append(network.add_input("rows", trt.float32, rows.shape))
    given.append(network.add_input("places", trt.int32, (2,)))
    layer = network.add_kv_cache_update(*given, trt.KVCacheMode.LINEAR)
    feeds = {"cache": cache, "rows": rows, "places": np.array([5, 1], np.int32)}
    (got,) = run(network, [layer.get_output(0)], feeds, logger)
    wanted = cache.copy()
    wanted[0, :, 5:7], wanted[1, :, 1:3] = rows[0], rows[1]
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.compiler
def test_a_cache_may_be_written_in_place(network: Net, config: trt.IBuilderConfig) -> None:
    cache, row = np.zeros((1, 2, 4, 3), np.float32), normal(1, 2, 1, 3)
    given = [network.add_input("cache", trt.float32, cache.shape)]
    given.append(network.add_input("row", trt.float32, row.shape))
    given.append(network.add_input("place", trt.int32, (1,)))
    layer = network.add_kv_cache_update(*given, trt.KVCacheMode.LINEAR)
    network.mark_output(layer.get_output(0))
    engine = network.builder.build_engine_with_config(network, config)
    assert engine.get_aliased_input_tensor(layer.get_output(0).name) == "cache"
    context = engine.create_execution_context()
    place = np.array([2], np.int32)
    for name, x in zip(engine, (cache, row, place, cache), strict=True):
        context.set_tensor_address(name, x.ctypes.data)
    assert context.execute_async_v3(0)
    np.testing.assert_array_equal(cache[:, :, 2:3], row)
    assert not cache[:, :, [0, 1, 3]].any()


def experts(x: Array, chosen: Array, scores: Array, weights: list[Array], biases: list) -> Array:
    out = np.zeros_like(x)
    for b, s, k in np.ndindex(chosen.shape):
        e = chosen[b, s, k]
        gate, up = (x[b, s] @ weights[i][e] + biases[i][e] for i in range(2))
        inner = gate / (1 + np.exp(-gate)) * up
        out[b, s] += scores[b, s, k] * (inner @ weights[2][e] + biases[2][e])
    return out


def test_a_mixture_of_experts(network: Net, logger: Kept) -> None:
    x, scores = normal(2, 3, 4), RNG.random((2, 3, 2)).astype(np.float32)
    chosen = np.stack([RNG.permutation(5)[:2] for _ in range(6)]).reshape(2, 3, 2)
    weights = [normal(5, 4, 7), normal(5, 4, 7), normal(5, 7, 4)]
    biases = [normal(5, 7), normal(5, 7), normal(5, 4)]
    given = [network.add_input("x", trt.float32, x.shape)]
    given += [constant(network, chosen.astype(np.int32)), constant(network, scores)]
    layer = network.add_moe(*given)
    layer.set_gated_weights(*(constant(network, w) for w in weights), trt.MoEActType.SILU)
    layer.set_gated_biases(*(constant(network, b) for b in biases))
    (got,) = run(network, [layer.get_output(0)], {"x": x}, logger)
    wanted = experts(x, chosen, scores, weights, biases)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


def test_parameters_that_experts_cannot_have_are_refused(network: Net, logger: Kept) -> None:
    given = [network.add_input("x", trt.float32, (1, 2, 4))]
    given.append(constant(network, np.zeros((1, 2, 1), np.int32)))
    given.append(constant(network, np.ones((1, 2, 1), np.float32)))
    layer = network.add_moe(*given)
    weights = (constant(network, normal(3, 4, 4)) for _ in range(3))
    layer.set_gated_weights(*weights, trt.MoEActType.NONE)
    layer.set_swiglu_params(7.0, 1.7, 1.0)
    said = refusal(network, layer.get_output(0), logger)
    assert layer.name in said
    assert "SwiGLU" in said


def attended(q: Array, k: Array, v: Array, bias: Array | float = 0.0) -> Array:
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
    with np.errstate(invalid="ignore"):
        weights = softmax(q @ k.swapaxes(-1, -2) + bias)
    return np.nan_to_num(weights) @ v


def qkv(network: Net, keys: int = 7) -> tuple[list[trt.ITensor], dict[str, Array]]:
    feeds = {"q": normal(2, 4, 5, 3), "k": normal(2, 2, keys, 3), "v": normal(2, 2, keys, 6)}
    return [network.add_input(n, trt.float32, x.shape) for n, x in feeds.items()], feeds


@pytest.mark.parametrize("causal", [False, True])
def test_attention_shares_heads_and_does_not_scale(
    causal: bool, network: Net, logger: Kept
) -> None:
    inputs, feeds = qkv(network)
    attention = network.add_attention(*inputs, SOFTMAX, causal)
    attention.decomposable = True
    assert attention.causal is causal
    assert attention.num_inputs == 3
    (got,) = run(network, [attention.get_output(0)], feeds, logger)
    seen = np.tri(5, 7, dtype=bool) if causal else np.ones((5, 7), bool)
    bias = np.where(seen, 0, -np.inf).astype(np.float32)
    np.testing.assert_allclose(got, attended(*feeds.values(), bias), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("boolean", [False, True])
def test_attention_takes_masks(boolean: bool, network: Net, logger: Kept) -> None:
    inputs, feeds = qkv(network)
    mask = RNG.random((2, 1, 5, 7)) < 0.7 if boolean else normal(1, 4, 5, 7)
    attention = network.add_attention(*inputs, trt.AttentionNormalizationOp.NONE, False)
    attention.norm_op = SOFTMAX
    attention.mask = network.add_input("mask", trt.bool if boolean else trt.float32, mask.shape)
    if boolean:
        mask[0, 0, 1] = False
    (got,) = run(network, [attention.get_output(0)], {**feeds, "mask": mask}, logger)
    bias = np.where(mask, 0, -np.inf).astype(np.float32) if boolean else mask
    wanted = attended(*feeds.values(), bias)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_attention_without_a_norm_and_with_rounded_weights(network: Net, logger: Kept) -> None:
    inputs, feeds = qkv(network)
    plain = network.add_attention(*inputs, trt.AttentionNormalizationOp.NONE, False)
    rounded = network.add_attention(*inputs, SOFTMAX, False)
    rounded.normalization_quantize_to_type = trt.int8
    rounded.normalization_quantize_scale = constant(network, np.array(1 / 127, np.float32))
    got = run(network, [plain.get_output(0), rounded.get_output(0)], feeds, logger)
    q, k, v = feeds.values()
    k, v = (np.repeat(x, 2, 1) for x in (k, v))
    np.testing.assert_allclose(got[0], q @ k.swapaxes(-1, -2) @ v, rtol=1e-4, atol=1e-4)
    weights = np.rint(softmax(q @ k.swapaxes(-1, -2)) * 127) / 127
    np.testing.assert_allclose(got[1], weights @ v, atol=0.02)


def test_bounds_of_attention_stand_in_order_and_have_their_classes(network: Net) -> None:
    inputs, _ = qkv(network)
    attention = network.add_attention(*inputs, SOFTMAX, True)
    attention.name = "mine"
    first, last = network.get_layer(0), network.get_layer(1)
    assert first.type is trt.LayerType.ATTENTION_INPUT
    assert last.name == "mine"
    last.__class__ = trt.IAttentionOutputLayer
    first.__class__ = trt.IAttentionInputLayer
    assert last.attention is attention is first.attention
    assert list(attention.get_output(0).shape) == [2, 4, 5, 6]


def test_a_mask_beside_a_causal_one_is_refused(network: Net, logger: Kept) -> None:
    inputs, _ = qkv(network)
    attention = network.add_attention(*inputs, SOFTMAX, True)
    attention.mask = constant(network, np.ones((1, 1, 5, 7), bool))
    said = refusal(network, attention.get_output(0), logger)
    assert network.get_layer(1).name in said
    assert "Make one mask of both" in said


DYNAMIC = """
import numpy as np
from trt_logger import Kept
from tactix_tensorrt import api as trt

log = Kept()
builder = trt.Builder(log)
net = builder.create_network(0)
q = net.add_input("q", trt.float32, (-1, 2, -1, 4))
kv = [net.add_input(n, trt.float32, (-1, 2, 6, 4)) for n in "kv"]
lengths = net.add_input("lengths", trt.int32, (-1,))
kind = trt.CausalMaskKind.LOWER_RIGHT
attention = net.add_attention_v2(q, *kv, trt.AttentionNormalizationOp.SOFTMAX, kind)
attention.key_value_lengths = lengths
attention.query_form = trt.AttentionIOForm.PADDED_BHND
net.mark_output(attention.get_output(0))
config = builder.create_builder_config()
config.builder_optimization_level = 0
profile = builder.create_optimization_profile()
profile.set_shape("q", (1, 2, 1, 4), (2, 2, 2, 4), (3, 2, 6, 4))
for n in "kv":
    profile.set_shape(n, (1, 2, 6, 4), (2, 2, 6, 4), (3, 2, 6, 4))
profile.set_shape("lengths", (1,), (2,), (3,))
config.add_optimization_profile(profile)
engine = builder.build_engine_with_config(net, config)
assert engine is not None, log.errors
context = engine.create_execution_context()
rng = np.random.default_rng(0)
feeds = {"q": rng.standard_normal((2, 2, 3, 4)), "k": rng.standard_normal((2, 2, 6, 4))}
feeds["v"] = rng.standard_normal((2, 2, 6, 4))
feeds = {n: x.astype(np.float32) for n, x in feeds.items()}
feeds["lengths"] = np.array([4, 6], np.int32)
got = np.empty((2, 2, 3, 4), np.float32)
for name in engine:
    if name in feeds:
        context.set_input_shape(name, feeds[name].shape)
    context.set_tensor_address(name, feeds.get(name, got).ctypes.data)
assert context.execute_async_v3(0), log.errors
for b, n in enumerate(feeds["lengths"]):
    scores = feeds["q"][b] @ feeds["k"][b, :, :n].swapaxes(-1, -2)
    scores[:, ~np.tri(3, n, n - 3, dtype=bool)] = -np.inf
    e = np.exp(scores)
    wanted = e / e.sum(-1, keepdims=True) @ feeds["v"][b, :, :n]
    np.testing.assert_allclose(got[b], wanted, rtol=1e-4, atol=1e-5)
"""


def test_attention_of_11_counts_keys_and_aligns_to_the_last() -> None:
    import os
    import subprocess
    import sys
    from pathlib import Path

    env = {
        **os.environ,
        "TACTIX_TENSORRT_LEVEL": "11.1",
        "TACTIX_TENSORRT_DEVICE": "cpu",
        "PYTHONPATH": str(Path(__file__).parent),
    }
    done = subprocess.run([sys.executable, "-c", DYNAMIC], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def engine_run(
    network: Net, config: trt.IBuilderConfig, feeds: list[dict[str, Array]], logger: Kept
) -> list[list[Array]]:
    """What an engine for sizes of 1 to 9 gives for each of the feeds."""
    profile = network.builder.create_optimization_profile()
    for i in range(network.num_inputs):
        tensor = network.get_input(i)
        rows = ([n if n >= 0 else size for n in tensor.shape] for size in (1, 4, 9))
        profile.set_shape(tensor.name, *rows)
    config.add_optimization_profile(profile)
    engine = network.builder.build_engine_with_config(network, config)
    assert engine is not None, logger.errors
    context, out = engine.create_execution_context(), []
    for given in feeds:
        for name, x in given.items():
            assert context.set_input_shape(name, x.shape), logger.errors
            context.set_tensor_address(name, x.ctypes.data)
        made = [network.get_output(i).name for i in range(network.num_outputs)]
        arrays = [np.empty(context.get_tensor_shape(n), np.float32) for n in made]
        for name, y in zip(made, arrays, strict=True):
            context.set_tensor_address(name, y.ctypes.data)
        assert context.execute_async_v3(0), logger.errors
        out.append(arrays)
    return out


def test_open_sizes(network: Net, config: trt.IBuilderConfig, logger: Kept) -> None:
    x = network.add_input("x", trt.float32, (-1, 2, -1, 6))
    indices = network.add_input("indices", trt.int32, (-1,))
    angles = network.add_input("angles", trt.float32, (-1, -1, 3))
    rows = network.add_shuffle(x)
    rows.reshape_dims = (0, -1, 6)
    bounds = network.add_constant((1, 1, 1), trt.Weights(np.array([4], np.int32))).get_output(0)
    shape = network.add_shape(rows.get_output(0)).get_output(0)
    one = constant(network, np.array([1, 1, 0], np.int64))
    last = constant(network, np.array([0, 0, 1], np.int64))
    ones = network.add_elementwise(shape, one, trt.ElementWiseOperation.PROD).get_output(0)
    wanted = network.add_elementwise(ones, last, trt.ElementWiseOperation.SUM).get_output(0)
    spread = network.add_slice(bounds, (0, 0, 0), (1, 1, 1), (0, 0, 0))
    spread.set_input(2, wanted)
    made = [
        network.add_one_hot(
            indices,
            constant(network, np.array([-1, 7], np.float32)),
            constant(network, np.array(4, np.int32)),
            0,
        ),
        network.add_ragged_softmax(rows.get_output(0), spread.get_output(0)),
        network.add_rotary_embedding(x, angles, angles, False, 0),
        network.add_attention(x, x, x, SOFTMAX, True),
    ]
    for layer in made:
        network.mark_output(layer.get_output(0))
    feeds = [
        {
            "x": normal(b, 2, s, 6),
            "indices": np.arange(i, dtype=np.int32),
            "angles": normal(b, s, 3),
        }
        for b, s, i in ((2, 3, 5), (1, 7, 2))
    ]
    for given, (hot, ragged, turned, seen) in zip(
        feeds, engine_run(network, config, feeds, logger), strict=True
    ):
        x_, a = given["x"], given["angles"][:, None]
        np.testing.assert_array_equal(hot, one_hot(given["indices"], 4, 0))
        flat = x_.reshape(len(x_), -1, 6)
        np.testing.assert_allclose(ragged[..., :4], softmax(flat[..., :4]), atol=1e-6)
        assert not ragged[..., 4:].any()
        u, v = x_[..., :3], x_[..., 3:]
        both = np.concatenate([u * a - v * a, u * a + v * a], -1)
        np.testing.assert_allclose(turned, both, atol=1e-5)
        bias = np.where(np.tri(x_.shape[2], dtype=bool), 0, -np.inf).astype(np.float32)
        np.testing.assert_allclose(seen, attended(x_, x_, x_, bias), rtol=1e-4, atol=1e-5)


def test_open_batches_of_experts_caches_and_blocks(
    network: Net, config: trt.IBuilderConfig, logger: Kept
) -> None:
    x = network.add_input("x", trt.float32, (-1, -1, 16))
    cache = network.add_input("cache", trt.float32, (-1, 2, 5, 3))
    row = network.add_input("row", trt.float32, (-1, 2, 1, 3))
    places = network.add_input("places", trt.int32, (-1,))
    chosen = network.add_input("chosen", trt.int32, (-1, -1, 2))
    scores = network.add_input("scores", trt.float32, (-1, -1, 2))
    weights = [normal(4, 16, 5), normal(4, 16, 5), normal(4, 5, 16)]
    moe = network.add_moe(x, chosen, scores)
    moe.set_gated_weights(*(constant(network, w) for w in weights), trt.MoEActType.SILU)
    kept = network.add_kv_cache_update(cache, row, places, trt.KVCacheMode.LINEAR)
    blocks = network.add_dynamic_quantize(x, 2, 16, trt.fp4, trt.float32)
    for layer, index in ((moe, 0), (kept, 0), (blocks, 1)):
        network.mark_output(layer.get_output(index))
    feeds = []
    for b, s in ((3, 2), (1, 6)):
        given = {"x": normal(b, s, 16), "cache": normal(b, 2, 5, 3), "row": normal(b, 2, 1, 3)}
        given["places"] = (np.arange(b) % 5).astype(np.int32)
        given["chosen"] = (np.arange(b * s * 2).reshape(b, s, 2) % 4).astype(np.int32)
        feeds.append(given | {"scores": RNG.random((b, s, 2)).astype(np.float32)})
    found = engine_run(network, config, feeds, logger)
    for given, (mixed, written, scale) in zip(feeds, found, strict=True):
        wanted = experts(given["x"], given["chosen"], given["scores"], weights, [np.zeros(4)] * 3)
        np.testing.assert_allclose(mixed, wanted, rtol=1e-3, atol=1e-3)
        for i, place in enumerate(given["places"]):
            np.testing.assert_array_equal(written[i, :, place], given["row"][i, :, 0])
        np.testing.assert_allclose(scale[..., 0], abs(given["x"]).max(-1) / 6, rtol=1e-6)
