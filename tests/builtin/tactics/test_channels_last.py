"""c_channels_last: images in blocks of channels to tokens and back; and what it leaves to others."""

from __future__ import annotations

import numpy as np
import pytest
from harness import NATIVE, Case, check_all, devices, fused, node

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.base.tensor import LINEAR, TensorSpec, blocked
from tactix.contracts.tactic import Reject
from tactix_cpu.tactics.move.channels_last import ChannelsLastTactic

TACTIC = ChannelsLastTactic()
LAST = {3: (0, 2, 1), 4: (0, 2, 3, 1), 5: (0, 2, 3, 4, 1)}
BACK = {3: (0, 2, 1), 4: (0, 3, 1, 2), 5: (0, 4, 1, 2, 3)}
SHAPES = [(2, 32, 5, 7), (1, 3, 4, 9), (2, 35, 1, 1), (1, 20, 40), (0, 4, 3), (1, 17, 2, 3, 2)]


def _numbers(shape: tuple[int, ...], code: str = "f32") -> np.ndarray:
    return np.random.default_rng(0).integers(-9, 9, shape).astype(DType(code).numpy)


@pytest.mark.parametrize("device", devices(), ids=lambda d: d.name)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_to_tokens_and_back(device, shape):
    x = _numbers(shape)
    back = x.transpose(LAST[x.ndim]).copy()
    nodes = [(x, LAST[x.ndim]), (back, BACK[x.ndim])]
    turns = [(node("Transpose", [a], perm=perm), a) for a, perm in nodes]
    check_all([Case(n, TACTIC, [a], device=device, nt=(1, 3)) for n, a in turns])


@pytest.mark.parametrize("code", ["f64", "f16", "bf16", "i8", "bool"])
def test_other_widths(code):
    x = _numbers((2, 20, 3, 7), code)
    check_all([Case(node("Transpose", [x], perm=p[4]), TACTIC, [x]) for p in (LAST, BACK)])


@pytest.mark.parametrize("env", [{"n": 1, "c": 1, "s": 1}, {"n": 2, "c": 35, "s": 6}])
def test_symbolic_dims(env):
    x = TensorSpec(DType.FP32, tuple(dims.sym(s) for s in ("n", "c", "s", "s")))
    check_all([Case(node("Transpose", [x], perm=p[4]), TACTIC, env=env) for p in (LAST, BACK)])


def test_blocks_lie_on_the_side_of_the_image():
    x = _numbers((1, 4, 3, 5))
    image = blocked(NATIVE.lanes)
    for perm, formats in ((LAST[4], (image, LINEAR)), (BACK[4], (LINEAR, image))):
        (variant,) = TACTIC.variants(node("Transpose", [x], perm=perm), NATIVE)
        assert (variant.input_format(0), variant.output_format(0)) == formats


def test_other_orders_and_epilogues_are_refused():
    x = _numbers((2, 4, 3, 5))
    assert isinstance(TACTIC.match(node("Transpose", [x], perm=(0, 2, 1, 3)), NATIVE), Reject)
    assert isinstance(TACTIC.match(node("Transpose", [x[0, 0]], perm=(1, 0)), NATIVE), Reject)
    texts = DType.STRING
    names = TensorSpec(texts, (2, 3, 4))
    assert isinstance(TACTIC.match(node("Transpose", [names], perm=(0, 2, 1)), NATIVE), Reject)
    group = fused([x], [("Transpose", (0,), {"perm": LAST[4]}), ("Relu", (1,), {})])
    assert isinstance(TACTIC.match(group, NATIVE), Reject)
