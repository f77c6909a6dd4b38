"""DynamicSplit in C, and MelWeightMatrix: sizes are the content of tensors."""

from __future__ import annotations

import numpy as np
import pytest
from harness import Case, check_all, node
from select_cases import CODES, drawn
from test_told_shapes import reported

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix_cpu.tactics.move.told_split import ToldSplitTactic
from tactix_cpu.tactics.signal.mel import MelTactic

SPLIT, MEL = ToldSplitTactic(), MelTactic()


@pytest.mark.parametrize("code", CODES)
def test_parts(code):
    x, cases = drawn(code, 3, 10, 5), []
    for axis, sizes in ((1, [3, 0, 7]), (-2, [10]), (0, [1, 2]), (2, [0, 5, 0])):
        arrays = [x, np.array(sizes, np.int32)]
        made = node("DynamicSplit", arrays, axis=axis, parts=len(sizes))
        cases.append(Case(made, SPLIT, arrays, nt=(1, 3)))
    empty = [drawn(code, 0, 4), np.array([1, 3])]
    cases.append(Case(node("DynamicSplit", empty, axis=1, parts=2), SPLIT, empty))
    check_all(cases)


def test_a_symbolic_axis():
    x = TensorSpec(DType.FP32, (2, dims.sym("n"), 3))
    sizes = np.array([4, 2])
    made = node("DynamicSplit", [x, sizes], axis=1, parts=2)
    check_all([Case(made, SPLIT, [drawn("f32", 2, 6, 3), sizes], env={"n": 6})])


@pytest.mark.parametrize("sizes", [[3, 4], [-1, 7], [6, 1], [0, 0], [1 << 62, 1 << 62]])
def test_parts_that_do_not_make_the_axis_are_refused(sizes):
    arrays = [drawn("f32", 6, 2), np.array(sizes)]
    assert reported(Case(node("DynamicSplit", arrays, parts=2), SPLIT, arrays), arrays)


def mel(filters, samples, rate, low, high, dtype=DType.FP32, numbers=np.int64):
    ints = [np.array(v, numbers) for v in (filters, samples, rate)]
    arrays = [*ints, np.array(low, np.float32), np.array(high, np.float32)]
    return Case(node("MelWeightMatrix", arrays, dtype=dtype), MEL, arrays, nt=(1, 3)), arrays


@pytest.mark.parametrize("dtype", [DType.FP32, DType.FP16, DType.BF16, DType.FP64])
def test_filters_of_the_mel_scale(dtype):
    kinds = (
        (8, 16, 8192, 0, 4096),
        (80, 400, 16000, 20, 7600),
        (1, 1, 8000, 0, 4000),
        (0, 8, 8000, 0, 9),
    )
    cases = [mel(*numbers, dtype)[0] for numbers in kinds]
    cases.append(mel(13, 255, 22050, 133.3, 6855.5, dtype, np.int32)[0])
    check_all(cases)


def test_fewer_than_no_filters_are_refused():
    case, arrays = mel(-1, 16, 8000, 0, 4000)
    assert reported(case, arrays)
