"""Decoders as ONNX files, with random weights: a small GPT-2 and a small Llama whose caches of keys
and values grow, with the names that exporters of transformers give.

Inputs: ``input_ids`` (1, new), and for each layer ``past_key_values.N.key`` and ``.value``
(1, heads, past, size). Outputs: ``logits`` (1, new, vocabulary), ``present.N.key`` and ``.value``
(1, heads, past + new, size).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import TensorProto, checker, helper, numpy_helper, save_model

OPSET = 20
MASKED = np.float32(-1e9)
"""Added to the scores of tokens that are yet to come."""


@dataclass(frozen=True)
class Decoder:
    """Sizes. ``kv_heads``: of keys and values; several heads of queries share one of them."""

    kind: str
    layers: int = 6
    width: int = 384
    heads: int = 6
    kv_heads: int = 6
    hidden: int = 1536
    vocabulary: int = 4096
    context: int = 1024

    @property
    def size(self) -> int:
        """Of a head."""
        return self.width // self.heads


DECODERS = {
    "gpt2": Decoder("gpt2"),
    "llama": Decoder("llama", kv_heads=2, hidden=1024),
    "llama-850m": Decoder(
        "llama", layers=16, width=2048, heads=16, kv_heads=4, hidden=5632, vocabulary=32000
    ),
}
"""By name. The large one has 853 million weights, and is what engines are compared by whose time is
that of reading them."""


class Graph:
    """Nodes and weights as they are added; every value has a name of its own."""

    def __init__(self, seed: int = 0) -> None:
        self.nodes: list[object] = []
        self.weights: list[object] = []
        self._random = np.random.default_rng(seed)

    def op(self, kind: str, *inputs: str, **attributes: object) -> str:
        """The name of the node's output."""
        name = f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name, **attributes))
        return name

    def constant(self, value: object, dtype: type = np.int64) -> str:
        name = f"constant_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def weight(self, *shape: int, scale: float | None = None) -> str:
        """Normal values; by default such that a product keeps the scale of its input."""
        scale = shape[0] ** -0.5 if scale is None else scale
        return self.constant(self._random.standard_normal(shape) * scale, np.float32)

    def linear(self, x: str, inputs: int, outputs: int) -> str:
        return self.op("MatMul", x, self.weight(inputs, outputs))


@dataclass(frozen=True)
class Positions:
    """Of the tokens that are new, and what is added to scores: (new,) and (new, past + new)."""

    new: str
    mask: str


def write(decoder: Decoder, path: Path) -> Path:
    """The decoder as a file, with its large weights in a second one beside it: a file of protobuf
    ends at 2 GB.
    """
    g = Graph()
    pasts = [[f"past_key_values.{n}.{k}" for k in ("key", "value")] for n in range(decoder.layers)]
    presents = [[f"present.{n}.{k}" for k in ("key", "value")] for n in range(decoder.layers)]
    positions = _positions(g, pasts[0][0])
    x = g.op("Gather", g.weight(decoder.vocabulary, decoder.width, scale=1.0), "input_ids")
    if decoder.kind == "gpt2":
        table = g.weight(decoder.context, decoder.width, scale=0.1)
        x = g.op("Add", x, g.op("Gather", table, positions.new))
    for past, present in zip(pasts, presents, strict=True):
        y = _attention(g, decoder, _normed(g, decoder, x), positions, past, present)
        x = g.op("Add", x, y)
        x = g.op("Add", x, _feed_forward(g, decoder, _normed(g, decoder, x)))
    logits = g.linear(_normed(g, decoder, x), decoder.width, decoder.vocabulary)
    g.nodes.append(helper.make_node("Identity", [logits], ["logits"]))
    inputs = [helper.make_tensor_value_info("input_ids", TensorProto.INT64, [1, "new"])]
    outputs = [_tensor("logits", [1, "new", decoder.vocabulary])]
    for names, tensors, length in ((pasts, inputs, "past"), (presents, outputs, "total")):
        shape = [1, decoder.kv_heads, length, decoder.size]
        tensors += [_tensor(name, shape) for pair in names for name in pair]
    graph = helper.make_graph(g.nodes, decoder.kind, inputs, outputs, g.weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
    beside = path.with_suffix(".weights").name
    save_model(model, str(path), save_as_external_data=True, location=beside)
    checker.check_model(str(path))
    return path


def _tensor(name: str, shape: Sequence[int | str]) -> object:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _positions(g: Graph, past: str) -> Positions:
    """Token i of the new ones stands behind all that is past, and sees what is not behind it."""
    zero, one = g.constant(0), g.constant(1)
    length = g.op("Squeeze", g.op("Shape", past, start=2, end=3))
    count = g.op("Squeeze", g.op("Shape", "input_ids", start=1, end=2))
    total = g.op("Add", length, count)
    new, every = g.op("Range", length, total, one), g.op("Range", zero, total, one)
    later = g.op("Greater", every, g.op("Unsqueeze", new, g.constant([1])))
    mask = g.op("Where", later, g.constant(MASKED, np.float32), g.constant(0.0, np.float32))
    return Positions(new, mask)


def _normed(g: Graph, decoder: Decoder, x: str) -> str:
    ones = g.constant(np.ones(decoder.width), np.float32)
    if decoder.kind == "gpt2":
        zeros = g.constant(np.zeros(decoder.width), np.float32)
        return g.op("LayerNormalization", x, ones, zeros, axis=-1, epsilon=1e-5)
    squares = g.op("Pow", x, g.constant(2.0, np.float32))
    mean = g.op("ReduceMean", squares, g.constant([-1]))
    root = g.op("Sqrt", g.op("Add", mean, g.constant(1e-6, np.float32)))
    return g.op("Mul", g.op("Div", x, root), ones)


def _attention(
    g: Graph, decoder: Decoder, x: str, at: Positions, past: Sequence[str], present: Sequence[str]
) -> str:
    """New queries beside all keys and values; those of the new tokens go behind the past ones."""
    queries = _heads(g, decoder, x, decoder.heads)
    keys, values = (_heads(g, decoder, x, decoder.kv_heads) for _ in range(2))
    if decoder.kind == "llama":
        queries, keys = (_rotated(g, decoder, y, at.new) for y in (queries, keys))
    for name, new, old in zip(present, (keys, values), past, strict=True):
        g.nodes.append(helper.make_node("Concat", [old, new], [name], axis=2))
    keys, values = (_repeated(g, decoder, name) for name in present)
    scores = g.op("MatMul", queries, g.op("Transpose", keys, perm=[0, 1, 3, 2]))
    scores = g.op("Mul", scores, g.constant(decoder.size**-0.5, np.float32))
    weights = g.op("Softmax", g.op("Add", scores, at.mask), axis=-1)
    y = g.op("Transpose", g.op("MatMul", weights, values), perm=[0, 2, 1, 3])
    y = g.op("Reshape", y, g.constant([1, -1, decoder.width]))
    return g.linear(y, decoder.width, decoder.width)


def _heads(g: Graph, decoder: Decoder, x: str, heads: int) -> str:
    """A product of x as (1, heads, new, size)."""
    y = g.linear(x, decoder.width, heads * decoder.size)
    return g.op(
        "Transpose",
        g.op("Reshape", y, g.constant([1, -1, heads, decoder.size])),
        perm=[0, 2, 1, 3],
    )


def _rotated(g: Graph, decoder: Decoder, x: str, positions: str) -> str:
    """Rotary embedding (Su et al., "RoFormer", 2021): halves turned by angles of the position."""
    half = decoder.size // 2
    frequencies = 10000.0 ** (-np.arange(half) / half)
    angles = np.arange(decoder.context)[:, None] * np.concatenate([frequencies, frequencies])
    cosine, sine = (
        g.op("Gather", g.constant(f(angles), np.float32), positions) for f in (np.cos, np.sin)
    )
    low = g.op("Slice", x, g.constant([0]), g.constant([half]), g.constant([3]))
    high = g.op("Slice", x, g.constant([half]), g.constant([decoder.size]), g.constant([3]))
    turned = g.op("Concat", g.op("Neg", high), low, axis=3)
    return g.op("Add", g.op("Mul", x, cosine), g.op("Mul", turned, sine))


def _repeated(g: Graph, decoder: Decoder, x: str) -> str:
    """Keys or values once for each head of queries."""
    times = decoder.heads // decoder.kv_heads
    if times == 1:
        return x
    wide = g.op("Unsqueeze", x, g.constant([2]))
    wide = g.op("Expand", wide, g.constant([1, 1, times, 1, 1]))
    return g.op("Reshape", wide, g.constant([1, decoder.heads, -1, decoder.size]))


def _feed_forward(g: Graph, decoder: Decoder, x: str) -> str:
    up = g.linear(x, decoder.width, decoder.hidden)
    if decoder.kind == "gpt2":
        return g.linear(g.op("Gelu", up, approximate="tanh"), decoder.hidden, decoder.width)
    gate = g.linear(x, decoder.width, decoder.hidden)
    gate = g.op("Mul", gate, g.op("Sigmoid", gate))
    return g.linear(g.op("Mul", gate, up), decoder.hidden, decoder.width)
