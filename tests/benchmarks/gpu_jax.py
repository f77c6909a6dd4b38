"""ResNet-50 and BERT in JAX, as XLA runs them best: float16, channels last, batch norms folded, q,
k and v at once.

Weights are random and of JAX's own; those of convolutions lie as cuDNN reads them (OHWI), so that
none are transposed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

REPEATS = 20
STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
"""Channels inside, blocks, stride of the first."""
BERTS = {"bert_base": (12, 768, 12), "bert_large": (24, 1024, 16)}
"""Layers, width, heads."""
SEQUENCE, WORDS = 128, 30522
Array = Any
RNG = np.random.default_rng(0)


def normal(*shape: int, scale: float) -> Array:
    return (RNG.standard_normal(shape, dtype=np.float32) * scale).astype(np.float32)


# -- ResNet-50 -----------------------------------------------------------------------------------


def kernel(size: int, inputs: int, outputs: int, scale: float = 1.0) -> tuple[Array, Array]:
    return normal(
        outputs, size, size, inputs, scale=scale * math.sqrt(2 / (size * size * inputs))
    ), np.zeros(outputs, "f4")


def resnet_weights() -> Any:
    blocks, inputs = [], 64
    for width, count, _ in STAGES:
        for i in range(count):
            inner = (
                kernel(1, inputs, width),
                kernel(3, width, width),
                kernel(1, width, 4 * width, 0.3),
            )
            blocks.append((inner, kernel(1, inputs, 4 * width, 0.7) if not i else None))
            inputs = 4 * width
    return kernel(7, 3, 64), blocks, (normal(2048, 1000, scale=0.02), np.zeros(1000, "f4"))


def convolve(
    x: Array, weights: Any, stride: int = 1, add: Array | None = None, relu: bool = True
) -> Array:
    w, b = weights
    pads = [(w.shape[1] // 2,) * 2] * 2
    y = (
        lax.conv_general_dilated(
            x, w, (stride, stride), pads, dimension_numbers=("NHWC", "OHWI", "NHWC")
        )
        + b
    )
    y = y if add is None else y + add
    return jnp.maximum(y, 0) if relu else y


def resnet(weights: Any, x: Array) -> Array:
    stem, blocks, (w, b) = weights
    x = convolve(x, stem, 2)
    x = lax.reduce_window(
        x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), ((0, 0), (1, 1), (1, 1), (0, 0))
    )
    strides = [stride if not i else 1 for _, count, stride in STAGES for i in range(count)]
    for ((first, second, third), beside), stride in zip(blocks, strides, strict=True):
        same = x if beside is None else convolve(x, beside, stride, relu=False)
        x = convolve(convolve(convolve(x, first), second, stride), third, add=same)
    return x.mean((1, 2), dtype=jnp.float32).astype(w.dtype) @ w + b


# -- BERT ----------------------------------------------------------------------------------------


def linear(inputs: int, outputs: int) -> tuple[Array, Array]:
    return normal(inputs, outputs, scale=inputs**-0.5), np.zeros(outputs, "f4")


def bert_weights(layers: int, width: int) -> Any:
    norm = np.ones(width, "f4"), np.zeros(width, "f4")
    parts = ((width, 3 * width), (width, width), (width, 4 * width), (4 * width, width))
    blocks = [(*(linear(*p) for p in parts), norm, norm) for _ in range(layers)]
    tables = normal(WORDS, width, scale=1.0), normal(SEQUENCE, width, scale=1.0)
    return tables, norm, blocks, linear(width, width)


def normalize(x: Array, weights: Any) -> Array:
    wide = x.astype(jnp.float32)
    mean, square = wide.mean(-1, keepdims=True), (wide * wide).mean(-1, keepdims=True)
    y = (wide - mean) * lax.rsqrt(square - mean * mean + 1e-5)
    return (y * weights[0] + weights[1]).astype(x.dtype)


def apply(x: Array, weights: Any) -> Array:
    return x @ weights[0] + weights[1]


def bert(weights: Any, ids: Array, heads: int) -> Any:
    (words, places), norm, blocks, pooler = weights
    x = normalize(words[ids] + places, norm)
    attend = "cudnn" if x.dtype == jnp.float16 else "xla"
    for qkv, out, up, down, first, second in blocks:
        parts = apply(x, qkv).reshape(*x.shape[:2], 3, heads, -1)
        y = jax.nn.dot_product_attention(
            parts[:, :, 0], parts[:, :, 1], parts[:, :, 2], implementation=attend
        )
        x = normalize(x + apply(y.reshape(x.shape), out), first)
        x = normalize(x + apply(jax.nn.gelu(apply(x, up), approximate=False), down), second)
    return x, jnp.tanh(apply(x[:, 0], pooler))


# -- timing --------------------------------------------------------------------------------------


def made(name: str, batch: int) -> tuple[Callable[[Any, Array], Any], Any, Array]:
    """A network as a function of weights and input, its weights in float32, and an input."""
    if name == "resnet50":
        return resnet, resnet_weights(), normal(batch, 224, 224, 3, scale=1.0)
    layers, width, heads = BERTS[name]
    ids = RNG.integers(0, WORDS, (batch, SEQUENCE), np.int32)
    return lambda weights, x: bert(weights, x, heads), bert_weights(layers, width), ids


def error(outputs: Any, want: Any) -> float:
    """Largest difference, relative to each output's largest magnitude."""
    pairs = zip(jax.tree.leaves(outputs), jax.tree.leaves(want), strict=True)
    return max(float(jnp.abs(y.astype(jnp.float32) - w).max() / jnp.abs(w).max()) for y, w in pairs)


def again_and_again(network: Callable[[Any, Array], Any]) -> Callable[[Any, Array], Any]:
    """REPEATS inferences in one call, each after the one before: Python has no part in it."""

    def loop(weights: Any, x: Array) -> Any:
        def body(_: int, last: Any) -> Any:
            given, _ = lax.optimization_barrier((x, last))
            return network(weights, given)

        return lax.fori_loop(0, REPEATS, body, network(weights, x))

    return jax.jit(loop)


def build(name: str, batch: int) -> tuple[Callable[[], float], dict[str, Any]]:
    """What gives the seconds of one inference: of calls that are queued, or in a loop on the
    device, if faster.
    """
    network, weights, x = made(name, batch)
    with jax.default_matmul_precision("highest"):
        want = jax.jit(network)(jax.tree.map(jnp.asarray, weights), jnp.asarray(x))
    half = jax.tree.map(lambda w: jnp.asarray(w, jnp.float16), weights)
    x = jnp.asarray(x, jnp.float16) if x.dtype == np.float32 else jnp.asarray(x)
    one, many = jax.jit(network), again_and_again(network)

    def queued() -> float:
        start = time.perf_counter()
        for _ in range(REPEATS):
            y = one(half, x)
        jax.block_until_ready(y)
        return (time.perf_counter() - start) / REPEATS

    def looped() -> float:
        start = time.perf_counter()
        jax.block_until_ready(many(half, x))
        return (time.perf_counter() - start) / (REPEATS + 1)

    facts = {"error": error(one(half, x), want)}
    ways = {
        way: min(call() for _ in range(4)) for way, call in (("queued", queued), ("looped", looped))
    }
    facts["way"] = min(ways, key=ways.__getitem__)
    return {"queued": queued, "looped": looped}[facts["way"]], facts
