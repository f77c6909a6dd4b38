"""Small models whose weights follow from a seed, and what compares a refitted engine with one built anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import tactix
from tactix import BuilderFlag

Feeds = dict[str, np.ndarray]
Model = Callable[[int], bytes]
REFIT = {BuilderFlag.REFIT}


def model(nodes: Sequence[Any], inputs: dict[str, Sequence[Any]], outputs: Sequence[str], weights: Feeds) -> bytes:
    """An ONNX model of float32 tensors."""
    given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, list(s)) for n, s in inputs.items()]
    made = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs]
    held = [numpy_helper.from_array(np.asarray(a), n) for n, a in weights.items()]
    graph = helper.make_graph(list(nodes), "made", given, made, held)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    proto.ir_version = 8
    return proto.SerializeToString()  # type: ignore[no-any-return]


def normal(seed: int, **shapes: Sequence[int]) -> Feeds:
    rng = np.random.default_rng(seed)
    return {n: rng.standard_normal(s, dtype=np.float32) for n, s in shapes.items()}


def built(content: bytes, flags: set[BuilderFlag] = REFIT, **options: Any) -> tactix.Engine:
    return tactix.build(content, flags=flags, level=0, timing_cache=False, threads=1, **options)


def constants(engine: tactix.Engine) -> dict[str, bytes]:
    """What the plan stores, by name."""
    return {b.blob: bytes(engine.plan.blobs[b.blob]) for b in engine.plan.buffers if b.blob}


def run(engine: tactix.Engine, feeds: Feeds) -> Feeds:
    return engine.create_execution_context().run(feeds)


def assert_same(got: Feeds, want: Feeds) -> None:
    assert got.keys() == want.keys()
    for name in want:
        np.testing.assert_array_equal(got[name], want[name], name)


def conv_bn(seed: int) -> bytes:
    """Two convolutions with normalisations that are folded into them; odd channels, so that blocks are padded."""
    w = normal(seed, w1=(5, 3, 3, 3), b1=(5,), w2=(7, 5, 1, 1), s1=(5,), t1=(5,), m1=(5,), s2=(7,), t2=(7,), m2=(7,))
    w |= {
        n: np.random.default_rng(seed + 100).random(k, np.float32) + np.float32(0.5) for n, k in (("v1", 5), ("v2", 7))
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["a", "s1", "t1", "m1", "v1"], ["b"]),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("Conv", ["c", "w2"], ["d"]),
        helper.make_node("BatchNormalization", ["d", "s2", "t2", "m2", "v2"], ["y"]),
    ]
    return model(nodes, {"x": ["n", 3, 9, 8]}, ["y"], w)
