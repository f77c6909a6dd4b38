"""Parts of networks as models spell them, that run in fewer steps than they have nodes."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest
from onnx import helper
from small_models import agree, engine, model

RNG = np.random.default_rng(29)
make = helper.make_node


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, dtype=np.float32)


def tactics_of(m: onnx.ModelProto) -> Counter[str]:
    return Counter(s.info["tactic"] for s in engine(m).plan.steps)


@pytest.mark.compiler
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("channels", [20, 32])
def test_pixels_become_tokens_and_pixels_again_in_one_pass_each(batch, channels):
    size, shape = 6, np.asarray
    nodes = [
        make("Conv", ["x", "k"], ["image"], pads=[1, 1, 1, 1]),
        make("Reshape", ["image", "flat"], ["plane"]),
        make("Transpose", ["plane"], ["tokens"], perm=[0, 2, 1]),
        make("MatMul", ["tokens", "w"], ["t"]),
        make("Transpose", ["t"], ["p"], perm=[0, 2, 1]),
        make("Reshape", ["p", "wide"], ["i"]),
        make("Conv", ["i", "k"], ["y"], pads=[1, 1, 1, 1]),
    ]
    constants = {
        "k": floats(channels, channels, 3, 3),
        "w": floats(channels, channels),
        "flat": shape([batch, channels, size * size]),
        "wide": shape([batch, channels, size, size]),
    }
    x = floats(batch, channels, size, size)
    m = model(nodes, {"x": (np.float32, x.shape)}, ["y"], constants)
    agree(m, {"x": x}, tolerance=2e-3)
    used = tactics_of(m)
    assert used["tactix.c_move@1"] == 0
    assert used["tactix.c_reformat@1"] == 4, "of input and output, and of tokens: channels last"
