#!/usr/bin/env python3
"""What fusions are worth on a processor: small networks, built with them and without.

    python tests/benchmarks/fusions.py [--only PART] [--rounds 60] [--level 2]
        [--write docs/fusions.md]
    python tests/benchmarks/fusions.py --plans
    python tests/benchmarks/fusions.py --model FILE --without KEYS [--threads 4]

Each case is a part of a network as models spell it, and the keys of the rules and tactics that fuse
it. Its network is built for one thread with everything, and without those keys; both take turns, and the
figure is the median over the rounds of the quotient of their times: below 1 the fusion pays. A case
without keys is fused by what is everywhere (epilogues) or by nothing, and is only counted: its
steps, and the bytes that they read and write. ``--plans`` builds by estimates and prints the steps.
``--model`` compares a whole model with itself without rules and tactics; at several threads by wall
time, each round with new contexts, whose first runs decide what threads share.
Prints Markdown; ``--write`` puts the table into a document, between its marks.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import tactix
from tactix.api import configure
from tactix.base import dims
from tactix.contracts.rule import Rule
from tactix.contracts.tactic import Tactic
from tactix.plan.schema import Plan
from tactix.plugins.session import Session

CONTEXTS, WARM = 8, 50
"""Contexts of each engine of a model, and calls before and while they are timed."""
SECONDS = 0.004
"""Of calls in each half of a round, about."""
BEGIN, END = (
    "<!-- fusions: written by python tests/benchmarks/fusions.py -->",
    "<!-- end of fusions -->",
)


class Part:
    """A network in the making: nodes by operator, weights from a fixed seed."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.inputs: list[Any] = []
        self.weights: list[Any] = []
        self._random = np.random.default_rng(11)

    def input(self, *shape: int) -> str:
        name = f"x{len(self.inputs)}"
        made = helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        self.inputs.append(made)
        return name

    def constant(self, array: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def ints(self, *numbers: int) -> str:
        return self.constant(np.asarray(numbers, np.int64))

    def number(self, value: float) -> str:
        return self.constant(np.float32(value))

    def weight(self, *shape: int) -> str:
        scale = np.float32(1 / np.sqrt(max(1, np.prod(shape[1:]) if len(shape) > 2 else shape[0])))
        return self.constant(self._random.standard_normal(shape, dtype=np.float32) * scale)

    def op(self, operator: str, *inputs: str, **attributes: Any) -> str:
        return self.ops(operator, 1, *inputs, **attributes)[0]

    def ops(self, operator: str, outputs: int, *inputs: str, **attributes: Any) -> list[str]:
        made = [f"v{len(self.nodes)}_{k}" for k in range(outputs)]
        self.nodes.append(helper.make_node(operator, inputs, made, **attributes))
        return made

    def reshape(self, x: str, *shape: int) -> str:
        return self.op("Reshape", x, self.ints(*shape))

    def slice(self, x: str, axis: int, begin: int, end: int) -> str:
        numbers = [self.ints(n) for n in (begin, end, axis)]
        return self.op("Slice", x, *numbers)

    def dense(self, x: str, inside: int, outside: int) -> str:
        product = self.op("MatMul", x, self.weight(inside, outside))
        return self.op("Add", product, self.weight(outside))

    def conv(self, x: str, inside: int, outside: int, kernel: int, **attributes: Any) -> str:
        group = attributes.get("group", 1)
        w = self.weight(outside, inside // group, kernel, kernel)
        pad = attributes.pop("pad", kernel // 2)
        return self.op("Conv", x, w, self.weight(outside), pads=[pad] * 4, **attributes)

    def model(self, *outputs: str) -> onnx.ModelProto:
        results = [helper.make_empty_tensor_value_info(y) for y in outputs]
        graph = helper.make_graph(self.nodes, "part", self.inputs, results, self.weights)
        opset = [helper.make_opsetid("", 18)]
        return helper.make_model(graph, opset_imports=opset, ir_version=9)


# -- the parts -------------------------------------------------------------------------------------


def reduced(
    pointwise: Callable[[Part, str], str], operator: str, finish: str = ""
) -> onnx.ModelProto:
    """Something pointwise, a reduction of rows, and something behind it."""
    p = Part()
    y = p.op(operator, pointwise(p, p.input(64, 128, 256)), p.ints(-1), keepdims=0)
    return p.model(p.op(finish, y) if finish else y)


def reduction(operator: str) -> onnx.ModelProto:
    p = Part()
    return p.model(p.op(operator, p.input(64, 128, 256), p.ints(-1), keepdims=0))


def variance() -> onnx.ModelProto:
    """Mean of squared distances from the mean."""
    p = Part()
    x = p.input(64, 128, 256)
    d = p.op("Sub", x, p.op("ReduceMean", x, p.ints(-1), keepdims=1))
    return p.model(p.op("ReduceMean", p.op("Mul", d, d), p.ints(-1), keepdims=0))


def conv_pool(kind: str) -> onnx.ModelProto:
    p = Part()
    y = p.op("Relu", p.conv(p.input(1, 32, 112, 112), 32, 64, 3))
    return p.model(p.op(kind, y, kernel_shape=[2, 2], strides=[2, 2]))


def stem(size: int, channels: int, kernel: int, stride: int, pool: int) -> onnx.ModelProto:
    """The first layers of a network of images: a convolution, and pooling by 2."""
    p = Part()
    x = p.conv(p.input(1, 3, size, size), 3, channels, kernel, strides=[stride] * 2)
    return p.model(p.op("MaxPool", p.op("Relu", x), kernel_shape=[pool] * 2, strides=[2, 2]))


def depthwise_pointwise(channels: int, size: int) -> onnx.ModelProto:
    p = Part()
    y = p.op(
        "Relu", p.conv(p.input(1, channels, size, size), channels, channels, 3, group=channels)
    )
    return p.model(p.conv(y, channels, 2 * channels, 1))


def pointwise_depthwise(inside: int, channels: int, size: int, stride: int) -> onnx.ModelProto:
    """The first two thirds of a block of MobileNet."""
    p = Part()
    y = p.op("Relu", p.conv(p.input(1, inside, size, size), inside, channels, 1))
    y = p.conv(y, channels, channels, 3, group=channels, strides=[stride] * 2)
    return p.model(p.op("Relu", y))


def padded(then: str) -> onnx.ModelProto:
    """Zeros around an image by a layer of their own."""
    p = Part()
    x = p.op("Relu", p.conv(p.input(1, 32, 56, 56), 32, 32, 1))
    y = p.op("Pad", x, p.ints(0, 0, 1, 1, 0, 0, 1, 1))
    if then == "Conv":
        return p.model(p.conv(y, 32, 32, 3, pad=0))
    if then == "ConvTranspose":
        return p.model(p.op("ConvTranspose", y, p.weight(32, 32, 2, 2), strides=[2, 2]))
    return p.model(p.op(then, y, kernel_shape=[3, 3], strides=[2, 2]))


def shuffled_reduce() -> onnx.ModelProto:
    """The mean over the pixels of an image that was made tokens."""
    p = Part()
    x = p.op("Relu", p.input(8, 128, 28, 28))
    y = p.op("Transpose", p.reshape(x, 8, 128, 784), perm=[0, 2, 1])
    return p.model(p.op("ReduceMean", y, p.ints(1), keepdims=0))


def softmax_topk() -> onnx.ModelProto:
    p = Part()
    y = p.op("Softmax", p.dense(p.input(512, 256), 256, 64), axis=-1)
    return p.model(*p.ops("TopK", 2, y, p.ints(2), axis=-1))


def heads(tokens: int, width: int, count: int, shared: int, rotary: str = "") -> onnx.ModelProto:
    """Attention of a text, with ``shared`` heads of keys and values."""
    p = Part()
    dim = width // count
    x = p.input(1, tokens, width)

    def head(n: int) -> str:
        return p.reshape(p.op("MatMul", x, p.weight(width, n * dim)), 1, tokens, n, dim)

    q, k, v = (p.op("Transpose", head(n), perm=[0, 2, 1, 3]) for n in (count, shared, shared))
    if rotary:
        q, k = (rotated(p, y, n, tokens, dim, rotary) for y, n in ((q, count), (k, shared)))
    if shared < count:
        k, v = (repeated(p, y, shared, count // shared, tokens, dim) for y in (k, v))
    scores = p.op("MatMul", q, p.op("Transpose", k, perm=[0, 1, 3, 2]))
    weights = p.op("Softmax", p.op("Mul", scores, p.number(dim**-0.5)), axis=-1)
    y = p.op("Transpose", p.op("MatMul", weights, v), perm=[0, 2, 1, 3])
    return p.model(p.op("MatMul", p.reshape(y, 1, tokens, width), p.weight(width, width)))


def repeated(p: Part, x: str, shared: int, times: int, tokens: int, dim: int) -> str:
    y = p.op("Unsqueeze", x, p.ints(2))
    y = p.op("Expand", y, p.ints(1, shared, times, tokens, dim))
    return p.reshape(y, 1, shared * times, tokens, dim)


def rotated(p: Part, x: str, count: int, tokens: int, dim: int, kind: str) -> str:
    """As transformers spells it: halves, or neighbours that are interleaved."""
    angle = np.outer(np.arange(tokens), 1e4 ** (-np.arange(0, dim, 2) / dim))
    if kind == "halves":
        wide = np.concatenate([angle, angle], -1)
        low, high = p.slice(x, -1, 0, dim // 2), p.slice(x, -1, dim // 2, dim)
        turned = p.op("Concat", p.op("Neg", high), low, axis=-1)
    else:
        wide = np.repeat(angle, 2, -1)
        pairs = p.reshape(x, 1, count, tokens, dim // 2, 2)
        low, high = p.ops("Split", 2, pairs, axis=-1, num_outputs=2)
        turned = p.reshape(p.op("Concat", p.op("Neg", high), low, axis=-1), 1, count, tokens, dim)
    cos, sin = (p.constant(f(wide).astype(np.float32)[None, None]) for f in (np.cos, np.sin))
    return p.op("Add", p.op("Mul", x, cos), p.op("Mul", turned, sin))


def rotary(tokens: int, count: int, dim: int, kind: str) -> onnx.ModelProto:
    p = Part()
    x = p.input(1, tokens, count * dim)
    y = p.op("Transpose", p.reshape(x, 1, tokens, count, dim), perm=[0, 2, 1, 3])
    return p.model(rotated(p, y, count, tokens, dim, kind))


def gated(tokens: int, width: int, inside: int, activation: str = "silu") -> onnx.ModelProto:
    """A(x Wg) * (x Wu) Wd."""
    p = Part()
    x = p.input(tokens, width)
    gate, up = (p.op("MatMul", x, p.weight(width, inside)) for _ in range(2))
    gate = p.op("Mul", gate, p.op("Sigmoid", gate))
    return p.model(p.op("MatMul", p.op("Mul", gate, up), p.weight(inside, width)))


def chunked(tokens: int, width: int, inside: int) -> onnx.ModelProto:
    """The same with one product, whose columns are split."""
    p = Part()
    y = p.op("MatMul", p.input(tokens, width), p.weight(width, 2 * inside))
    gate, up = p.ops("Split", 2, y, axis=-1, num_outputs=2)
    gate = p.op("Mul", gate, p.op("Sigmoid", gate))
    return p.model(p.op("MatMul", p.op("Mul", gate, up), p.weight(inside, width)))


def siblings(tokens: int, width: int, widths: Sequence[int]) -> onnx.ModelProto:
    """Products of one tensor, each with an activation."""
    p = Part()
    x = p.input(tokens, width)
    return p.model(*(p.op("Relu", p.dense(x, width, n)) for n in widths))


def inception(channels: int, size: int, widths: Sequence[int]) -> onnx.ModelProto:
    """Convolutions by one pixel that read the same image; further ones behind two of them."""
    p = Part()
    x = p.op("Relu", p.conv(p.input(1, channels, size, size), channels, channels, 1))
    a, b, c = (p.op("Relu", p.conv(x, channels, n, 1)) for n in widths)
    b = p.op("Relu", p.conv(b, widths[1], widths[1], 3))
    c = p.op("Relu", p.conv(c, widths[2], widths[2], 3))
    return p.model(p.op("Concat", a, b, c, axis=1))


def dense_block(channels: int, size: int, growth: int) -> onnx.ModelProto:
    """Each convolution reads all before it, joined."""
    p = Part()
    x = p.conv(p.input(1, channels, size, size), channels, channels, 1)
    for k in range(4):
        y = p.op("Relu", p.conv(x, channels + k * growth, growth, 3))
        x = p.op("Concat", x, y, axis=1)
    return p.model(x)


def dense_layers(channels: int, size: int, growth: int) -> onnx.ModelProto:
    """The same as DenseNet has it: scale, shift and clip what is joined, then single pixels."""
    p = Part()
    x = p.conv(p.input(1, channels, size, size), channels, channels, 1)
    for k in range(4):
        wide = channels + k * growth
        y = p.op("Mul", x, p.weight(wide, 1, 1))
        y = p.op("Relu", p.op("Add", y, p.weight(wide, 1, 1)))
        y = p.op("Relu", p.conv(y, wide, 4 * growth, 1))
        x = p.op("Concat", x, p.conv(y, 4 * growth, growth, 3), axis=1)
    return p.model(x)


def split_block(channels: int, size: int) -> onnx.ModelProto:
    """A half of the channels goes by (ShuffleNet, YOLO)."""
    p = Part()
    x = p.op("Relu", p.conv(p.input(1, channels, size, size), channels, channels, 1))
    a, b = p.ops("Split", 2, x, axis=1, num_outputs=2)
    b = p.op("Relu", p.conv(b, channels // 2, channels // 2, 3))
    return p.model(p.conv(p.op("Concat", a, b, axis=1), channels, channels, 1))


def windows(size: int, window: int, width: int, count: int, shift: int) -> onnx.ModelProto:
    """Swin's attention: windows are cut from an image of tokens, and put back."""
    p = Part()
    n, dim, area = (size // window) ** 2, width // count, window * window
    x = p.input(1, size, size, width)
    y = rolled(p, x, size, shift)
    y = p.reshape(y, 1, size // window, window, size // window, window, width)
    y = p.reshape(p.op("Transpose", y, perm=[0, 1, 3, 2, 4, 5]), n, area, width)
    parts = [p.reshape(p.dense(y, width, width), n, area, count, dim) for _ in range(3)]
    q, k, v = (p.op("Transpose", a, perm=[0, 2, 1, 3]) for a in parts)
    scores = p.op("MatMul", q, p.op("Transpose", k, perm=[0, 1, 3, 2]))
    weights = p.op("Softmax", p.op("Mul", scores, p.number(dim**-0.5)), axis=-1)
    y = p.op("Transpose", p.op("MatMul", weights, v), perm=[0, 2, 1, 3])
    y = p.dense(p.reshape(y, n, area, width), width, width)
    y = p.reshape(y, 1, size // window, size // window, window, window, width)
    y = p.op("Transpose", y, perm=[0, 1, 3, 2, 4, 5])
    return p.model(p.op("Add", x, rolled(p, p.reshape(y, 1, size, size, width), size, -shift)))


def rolled(p: Part, x: str, size: int, shift: int) -> str:
    """As torch.roll is exported."""
    for axis in (1, 2) if shift else ():
        at = shift % size
        x = p.op("Concat", p.slice(x, axis, at, size), p.slice(x, axis, 0, at), axis=axis)
    return x


def excitation(channels: int, size: int, inside: int, behind: str = "") -> onnx.ModelProto:
    """A convolution whose channels are weighed by what the whole image tells; ``behind``: an
    activation behind that (MobileNetV3).
    """
    p = Part()
    x = p.conv(p.input(1, channels, size, size), channels, channels, 3, group=channels)
    x = p.op("Relu", x)
    s = p.op("Relu", p.conv(p.op("GlobalAveragePool", x), channels, inside, 1))
    s = p.op("Sigmoid", p.conv(s, inside, channels, 1))
    y = p.op("Mul", x, s)
    return p.model(p.conv(p.op(behind, y) if behind else y, channels, channels // 4, 1))


def layer_norm(p: Part, x: str, width: int) -> str:
    return p.op("LayerNormalization", x, p.weight(width), p.weight(width), axis=-1)


def residual(tokens: int, width: int) -> onnx.ModelProto:
    """Product, term, sum with what went by, normalisation, product."""
    p = Part()
    x = p.input(tokens, width)
    y = layer_norm(p, p.op("Add", p.dense(x, width, width), x), width)
    return p.model(p.op("Add", p.op("Relu", p.dense(y, width, width)), y))


def norm_of_sum(tokens: int, width: int) -> onnx.ModelProto:
    """Pre-norm: the sum goes on, and its normalisation, too."""
    p = Part()
    x, y = p.input(tokens, width), p.input(tokens, width)
    s = p.op("Add", x, y)
    return p.model(s, p.dense(layer_norm(p, s, width), width, width))


def embeddings(tokens: int, width: int) -> onnx.ModelProto:
    """Words, places and segments, their sum normalised."""
    p = Part()
    ids = [p.input(1, tokens) for _ in range(2)]
    words, kinds = (p.op("Cast", i, to=onnx.TensorProto.INT64) for i in ids)
    rows = p.op("Gather", p.weight(30000, width), words)
    rows = p.op("Add", rows, p.op("Gather", p.weight(2, width), kinds))
    return p.model(layer_norm(p, p.op("Add", rows, p.weight(1, tokens, width)), width))


def tokens_of_image(channels: int, size: int, spelled: str) -> onnx.ModelProto:
    """A convolution, its pixels as tokens that are normalised and multiplied, and back."""
    p = Part()
    x = p.conv(p.input(1, channels, size, size), channels, channels, 7, group=channels)
    if spelled == "rank 4":  # ConvNeXt
        y = layer_norm(p, p.op("Transpose", x, perm=[0, 2, 3, 1]), channels)
        y = p.op("Transpose", p.dense(y, channels, channels), perm=[0, 3, 1, 2])
    else:  # SegFormer
        y = p.op("Transpose", p.reshape(x, 1, channels, size * size), perm=[0, 2, 1])
        y = p.dense(layer_norm(p, y, channels), channels, channels)
        y = p.reshape(p.op("Transpose", y, perm=[0, 2, 1]), 1, channels, size, size)
    return p.model(p.conv(y, channels, channels, 3, group=channels))


def activation_of_tokens(channels: int, size: int) -> onnx.ModelProto:
    """SegFormer's Mix-FFN: a depthwise convolution of tokens, and an activation behind it."""
    p = Part()
    x = p.dense(p.input(1, size * size, channels), channels, channels)
    y = p.reshape(p.op("Transpose", x, perm=[0, 2, 1]), 1, channels, size, size)
    y = p.conv(y, channels, channels, 3, group=channels)
    y = p.op("Transpose", p.reshape(y, 1, channels, size * size), perm=[0, 2, 1])
    y = p.op("Mul", y, p.op("Sigmoid", y))
    return p.model(p.dense(y, channels, channels))


def enlarged(p: Part, x: str, times: int) -> str:
    """An image with so many times the pixels along each axis, by linear interpolation."""
    scales = p.constant(np.array([1, 1, times, times], np.float32))
    return p.op("Resize", x, "", scales, mode="linear")


def upsampled(channels: int, size: int) -> onnx.ModelProto:
    """Twice as large, then a convolution of single pixels: DPT, feature pyramids."""
    p = Part()
    y = enlarged(p, p.input(1, channels, size, size), 2)
    return p.model(p.conv(y, channels, channels, 1))


def pyramid(channels: int, size: int) -> onnx.ModelProto:
    """Maps of three sizes, joined and mixed: SegFormer, UPerNet."""
    p = Part()
    maps = [p.input(1, channels, size // s, size // s) for s in (1, 2, 4)]
    grown = [x if s == 1 else enlarged(p, x, s) for x, s in zip(maps, (1, 2, 4), strict=True)]
    joined = p.op("Concat", *grown, axis=1)
    return p.model(p.op("Relu", p.conv(joined, 3 * channels, channels, 1)))


def image_of_tokens(tokens: int, width: int, channels: int) -> onnx.ModelProto:
    """Normalised tokens as an image, then a convolution of single pixels: DPT, hybrid networks."""
    p = Part()
    y = layer_norm(p, p.input(1, tokens * tokens, width), width)
    y = p.reshape(p.op("Transpose", y, perm=[0, 2, 1]), 1, width, tokens, tokens)
    return p.model(p.conv(y, width, channels, 1))


@dataclass(frozen=True)
class Case:
    """``parts``: keys of rules and tactics that fuse it."""

    name: str
    make: Callable[[], onnx.ModelProto]
    parts: Collection[str] = ()


ABOVE = ("tactix.activation_above_transpose",)
BEFORE = ("tactix.prologue_of_reduction",)
ROTARY = ("tactix.rotary",)
VIEWS = ("tactix.view@1",)
PREPARED = ("tactix.prologue_of_convolution",)
POOLED = ("tactix.pooling_of_convolution",)
DEEP = ("tactix.depthwise_of_pointwise",)
EXCITED = (*PREPARED, "tactix.mean_of_depthwise")
TOKENS = ("tactix.pixels_of_tokens",)
SMALLER = ("tactix.pixels_before_resize", "tactix.pixels_of_joined_sizes")
CASES = [
    Case("L1", lambda: reduction("ReduceL1"), BEFORE),
    Case("sum of squares", lambda: reduction("ReduceSumSquare"), BEFORE),
    Case("L2", lambda: reduction("ReduceL2"), BEFORE),
    Case("L2, spelled out", lambda: reduced(lambda p, x: p.op("Mul", x, x), "ReduceSum", "Sqrt"), BEFORE),
    Case("log-sum-exp", lambda: reduction("ReduceLogSumExp")),
    Case("activation before a mean", lambda: reduced(lambda p, x: p.op("Relu", x), "ReduceMean"), BEFORE),
    Case("variance", variance, BEFORE),
    Case("convolution, max pooling", lambda: conv_pool("MaxPool"), POOLED),
    Case("stem 224, 3 x 3, 64 channels, pooling 2 x 2", lambda: stem(224, 64, 3, 1, 2), POOLED),
    Case("stem 416, 3 x 3, 16 channels, pooling 2 x 2", lambda: stem(416, 16, 3, 1, 2), POOLED),
    Case("stem 224, 7 x 7 by 2, 64 channels, pooling 3 x 3", lambda: stem(224, 64, 7, 2, 3), POOLED),
    Case("convolution, mean pooling", lambda: conv_pool("AveragePool")),
    Case("pointwise, depthwise 16 to 96 x 112 by 2", lambda: pointwise_depthwise(16, 96, 112, 2), DEEP),
    Case("pointwise, depthwise 24 to 144 x 56", lambda: pointwise_depthwise(24, 144, 56, 1), DEEP),
    Case("pointwise, depthwise 64 to 384 x 14", lambda: pointwise_depthwise(64, 384, 14, 1), DEEP),
    Case("depthwise, pointwise 64 x 56", lambda: depthwise_pointwise(64, 56)),
    Case("depthwise, pointwise 256 x 14", lambda: depthwise_pointwise(256, 14)),
    Case("pad, convolution", lambda: padded("Conv"), ("tactix.pad_into_conv",)),
    Case("pad, transposed convolution", lambda: padded("ConvTranspose")),
    Case("pad, max pooling", lambda: padded("MaxPool"), ("tactix.pad_into_max_pool",)),
    Case("pad, mean pooling", lambda: padded("AveragePool"), ("tactix.pad_into_mean_pool",)),
    Case("shuffle, mean", shuffled_reduce, ("tactix.reduction_of_transpose",)),
    Case("softmax, top 2", softmax_topk),
    Case("q, k, v", lambda: heads(128, 512, 8, 8), ("tactix.attention_products",)),
    Case("q, k, v with 2 shared heads", lambda: heads(128, 512, 8, 2)),
    Case("sibling products, 1 row", lambda: siblings(1, 512, (512, 256, 256))),
    Case("sibling products, 128 rows", lambda: siblings(128, 512, (512, 256, 256))),
    Case("sibling products, 512 rows by 64", lambda: siblings(512, 64, (64, 32, 32))),
    Case("sibling convolutions 256 x 28", lambda: inception(256, 28, (128, 128, 32))),
    Case("sibling convolutions 192 x 14", lambda: inception(192, 14, (64, 96, 16))),
    Case("rotary halves", lambda: rotary(128, 12, 64, "halves"), ROTARY),
    Case("rotary neighbours", lambda: rotary(128, 12, 64, "neighbours")),
    Case("attention with rotary halves", lambda: heads(128, 512, 8, 8, "halves"), ROTARY),
    Case("windows 56, 7 x 7", lambda: windows(56, 7, 96, 3, 0)),
    Case("shifted windows 56, 7 x 7", lambda: windows(56, 7, 96, 3, 3), ("tactix.roll",)),
    Case("concatenated channels", lambda: dense_block(64, 28, 32)),
    Case("split channels", lambda: split_block(128, 28)),
    Case("gated products, 1 row", lambda: gated(1, 512, 1408)),
    Case("gated products, 128 rows", lambda: gated(128, 512, 1408)),
    Case("gated columns, 128 rows", lambda: chunked(128, 512, 1408)),
    Case("squeeze, excitation 96 x 28", lambda: excitation(96, 28, 24), EXCITED),
    Case("squeeze, excitation 144 x 56", lambda: excitation(144, 56, 6), EXCITED),
    Case("squeeze, excitation 672 x 14", lambda: excitation(672, 14, 28), EXCITED),
    Case("excitation, HardSwish 120 x 28", lambda: excitation(120, 28, 32, "HardSwish"), EXCITED),
    Case("normalisation before 1 x 1 convolutions", lambda: dense_layers(64, 28, 32), PREPARED),
    Case("sum, normalisation", lambda: norm_of_sum(128, 768)),
    Case("residual, normalisation", lambda: residual(128, 768)),
    Case("sum of embeddings", lambda: embeddings(128, 768)),
    Case("image to tokens and back, rank 4", lambda: tokens_of_image(96, 56, "rank 4"), VIEWS),
    Case("image to tokens and back, rank 3", lambda: tokens_of_image(64, 64, "rank 3"), VIEWS),
    Case("activation behind moved tokens", lambda: activation_of_tokens(256, 32), ABOVE),
    Case("enlarged image, 1 x 1 convolution", lambda: upsampled(128, 24), SMALLER),
    Case("joined maps of three sizes, 1 x 1 convolution", lambda: pyramid(128, 48), SMALLER),
    Case("image of tokens, 1 x 1 convolution", lambda: image_of_tokens(24, 768, 96), TOKENS),
]  # fmt: skip


# -- building and timing ---------------------------------------------------------------------------


class Without(Session):
    """All plugins, without some rules and tactics."""

    left_out: Collection[str] = ()

    def active_rules(self) -> list[Rule]:
        return [r for r in super().active_rules() if r.key not in self.left_out]

    def active_tactics(self) -> list[Tactic]:
        return [t for t in super().active_tactics() if t.key not in self.left_out]


def built(
    model: onnx.ModelProto | Path, level: int, without: Collection[str] = (), threads: int = 1
) -> tactix.Engine:
    """An engine of so many threads."""
    session = Without()
    session.left_out = without
    builder = tactix.Builder(session=session)
    config = configure(level=level, threads=threads)
    return builder.build(builder.import_model(model), config)


def moved(plan: Plan) -> int:
    """Bytes that all steps read and write, weights included."""
    sizes = [b.nbytes for b in plan.buffers]
    touched = [o.buffer for s in plan.steps for o in (*s.inputs, *s.outputs) if o.buffer >= 0]
    return sum(dims.evaluate(sizes[b], {}) for b in touched)


def caller(engine: tactix.Engine) -> Callable[[], None]:
    """A call by addresses, whose arrays live as long as it."""
    context, rng = engine.create_execution_context(), np.random.default_rng(0)
    shapes = [[d if isinstance(d, int) else 1 for d in i.shape] for i in engine.inputs]
    given = [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]
    held = [*given, *context.infer(given)]
    bindings = [a.__array_interface__["data"][0] for a in held]
    return lambda held=held: context.execute_v2(bindings)


def seconds(call: Callable[[], None], times: int) -> float:
    """Of the calling thread, so that others who use the core do not count."""
    start = time.thread_time()
    for _ in range(times):
        call()
    return time.thread_time() - start


@dataclass(frozen=True)
class Outcome:
    """``quotients``: fused over not fused, by round; ``call``: seconds of a fused call."""

    quotients: list[float]
    call: float


def raced(fused: Callable[[], None], plain: Callable[[], None], rounds: int) -> Outcome:
    call = min(seconds(fused, 1) for _ in range(20))
    times = max(1, int(SECONDS / call))
    found = []
    for k in range(rounds):
        pair = [(fused, plain), (plain, fused)][k % 2]
        took = {id(f): seconds(f, times) for f in pair}
        found.append(took[id(fused)] / took[id(plain)])
    return Outcome(found, call)


def row(case: Case, options: argparse.Namespace) -> str:
    model = case.make()
    fused = built(model, options.level)
    cells = [case.name, f"{len(fused.plan.steps)}", f"{moved(fused.plan) / 1e6:.2f}"]
    if not case.parts:
        return f"| {' | '.join((*cells, '', '', '', ''))} |"
    plain = built(model, options.level, case.parts)
    outcome = raced(caller(fused), caller(plain), options.rounds)
    low, middle, high = statistics.quantiles(outcome.quotients, n=4)
    cells += [f"{len(plain.plan.steps)}", f"{moved(plain.plan) / 1e6:.2f}"]
    cells += [f"{outcome.call * 1e6:.0f} us", f"{middle:.2f} ({low:.2f} to {high:.2f})"]
    return f"| {' | '.join(cells)} |"


def wall(call: Callable[[], None], times: int) -> float:
    """Of the middle one of some calls, whichever threads they take."""
    took = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        took.append(time.perf_counter() - start)
    return statistics.median(took)


def of_model(options: argparse.Namespace) -> str:
    """Steps with and without, and the quotients of new contexts of both."""
    left_out = options.without.split(",")
    fused, plain = (built(options.model, options.level, w, options.threads) for w in ((), left_out))
    clock, quotients = (wall if options.threads > 1 else seconds), []
    for k in range(CONTEXTS):
        calls = caller(fused), caller(plain)
        for call in calls:
            clock(call, WARM)
        pairs = [[clock(c, 1) for c in calls[:: 1 - 2 * (k % 2)]] for _ in range(WARM)]
        first, second = (statistics.median(side) for side in zip(*pairs, strict=True))
        quotients.append(first / second if k % 2 == 0 else second / first)
    low, middle, high = statistics.quantiles(quotients, n=4)
    counts = f"{len(fused.plan.steps)} steps, {len(plain.plan.steps)} without"
    return f"{counts}: {middle:.2f} ({low:.2f} to {high:.2f})"


HEAD = """\
| part of a network | steps | MB moved | steps without | MB without | call | fused over not fused: median (quartiles) |
|---|---|---|---|---|---|---|"""


def steps(case: Case) -> str:
    plan = built(case.make(), 0).plan
    lines = [f"{case.name}: {len(plan.steps)} steps, {moved(plan) / 1e6:.2f} MB"]
    for s in plan.steps:
        layers = " + ".join(key.split(".")[-1].split("@")[0] for key in s.info["layers"])
        lines.append(f"  {s.info['tactic']:24} {s.info['variant']:24.24} {layers}")
    return "\n".join(lines)


def written(path: Path, table: str) -> None:
    before, _, rest = path.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    path.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--only", default="", help="cases with this in their names")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--level", type=int, default=2, help="of the builds, 0 by estimates")
    parser.add_argument(
        "--plans", action="store_true", help="print steps by estimates, time nothing"
    )
    parser.add_argument("--model", type=Path, help="a whole model in place of the parts")
    parser.add_argument("--without", default="", help="keys of rules and tactics, for --model")
    parser.add_argument("--threads", type=int, default=1, help="for --model")
    parser.add_argument("--write", type=Path, help="a document with marks for the table")
    options = parser.parse_args()
    if options.model:
        print(of_model(options))
        return
    cases = [c for c in CASES if options.only in c.name]
    if options.plans:
        for c in cases:
            print(steps(c), flush=True)
        return
    lines = [HEAD]
    print(HEAD)
    for c in cases:
        lines.append(row(c, options))
        print(lines[-1], flush=True)
    if options.write:
        written(options.write, "\n".join(lines))


if __name__ == "__main__":
    main()
