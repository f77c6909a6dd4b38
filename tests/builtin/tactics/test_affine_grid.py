"""AffineGrid in C: images of two and three axes whose sizes are content."""

from __future__ import annotations

import asked
import numpy as np
import pytest
from harness import NATIVE, Case, check_all, node, opened
from select_cases import drawn
from test_told_shapes import reported

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.base.errors import ShapeError
from tactix.base.tensor import TensorSpec
from tactix.contracts.tactic import Reject
from tactix_cpu.tactics.sample.affine import ToldAffineGridTactic

TOLD = ToldAffineGridTactic()
SIZES = ((2, 3, 5, 7), (1, 1, 1, 1), (2, 3, 4, 2, 9), (0, 3, 2, 2), (3, 1, 0, 4), (2, 1, 1, 1, 6))


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("code", ["f32", "f16", "bf16", "f64"])
def test_places_along_rows(code, align_corners):
    cases = []
    for size in SIZES:
        axes = len(size) - 2
        arrays = [drawn(code, size[0], axes, axes + 1, seed=axes), np.array(size)]
        made = node("AffineGrid", arrays, align_corners=align_corners)
        cases.append(Case(made, TOLD, arrays, nt=(1, 3)))
    check_all(cases)


def test_a_symbolic_batch():
    theta = TensorSpec(DType.FP32, (dims.sym("n"), 2, 3))
    size = np.array([4, 1, 6, 8], np.int32)
    arrays = [drawn("f32", 4, 2, 3), size]
    made = node("AffineGrid", [theta, size])
    check_all([Case(made, TOLD, arrays, env={"n": 4})])
    (each,), env = opened(arrays[0])
    check_all([Case(node("AffineGrid", [each, size]), TOLD, arrays, env=env)])


def test_what_it_does_not_take_is_told():
    arrays = [drawn("f32", 1, 2, 3), np.array([1, 1, -1, 4])]
    assert reported(Case(node("AffineGrid", arrays), TOLD, arrays), arrays)
    with pytest.raises(ShapeError):
        node("AffineGrid", [drawn("f32", 1, 2, 2), np.array([1, 1, 2, 4])])
    assert isinstance(asked.variants(TOLD, node("AffineGrid", arrays, [1]), NATIVE), Reject)
