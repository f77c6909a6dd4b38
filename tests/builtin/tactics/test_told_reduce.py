"""Reductions over axes that are the content of a tensor, in C: all of them, all dtypes."""

from __future__ import annotations

import numpy as np
import pytest
from harness import Case, check_all, node
from select_cases import CODES, drawn
from test_told_shapes import reported

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix_cpu.tactics.reduce.told import ToldReduceTactic

REDUCE = ToldReduceTactic()
NAMES = ("ReduceSum", "ReduceMean", "ReduceProd", "ReduceMax", "ReduceMin", "ReduceLogSumExp")


def case(x, axes, name="ReduceSum", **attrs):
    arrays = [x, np.array(axes, np.int64)]
    made = node("DynamicReduce", arrays, reduction=name, **attrs)
    return Case(made, REDUCE, arrays, nt=(1, 3))


@pytest.mark.parametrize("name", NAMES)
def test_any_axes(name):
    rng, cases = np.random.default_rng(0), []
    for shape in ((3, 5, 1, 37), (2, 300), (4, 1, 7, 2, 3), (700,), ()):
        x = (rng.random(shape) + 0.5).astype(np.float32)
        rank = len(shape)
        for axes in ([0], [-1], [0, -1], list(range(rank)), [], [rank // 2]):
            if rank or not axes:
                found = list(dict.fromkeys(a % rank for a in axes)) if rank else []
                for keepdims in (True, False):
                    cases.append(case(x, found, name, keepdims=keepdims))
    check_all(cases)


@pytest.mark.parametrize("code", CODES)
def test_every_dtype(code):
    float_ = DType(code).is_float
    names = NAMES if float_ else NAMES[3:5] if code == "bool" else NAMES[:5]
    x = drawn(code, 6, 40, seed=3)
    if float_:
        x = (x.astype(np.float32) / 9).astype(x.dtype)
    elif DType(code).bits == 64:
        x //= 2**20  # a mean is summed in float64, whose sums are exact up to 2**53
    cases = [case(x, axes, name) for name in names for axes in ([0], [1], [1, 0])]
    check_all(cases)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_no_number_and_of_nothing(name):
    x = drawn("f32", 5, 40)
    x[0, 3], x[1, 7], x[2, 1], x[3] = np.nan, np.inf, -np.inf, -np.inf
    cases = [case(x, [axis], name) for axis in (0, 1)]
    for shape in ((0, 4), (4, 0), (0, 0)):
        cases += [case(np.zeros(shape, np.float32), axes, name) for axes in ([0], [1], [0, 1])]
    check_all(cases)


def test_no_axes_may_mean_none():
    large = np.array([[2**62 + 1, -5]])
    noop = {"noop_with_empty_axes": True}
    cases = [case(drawn("f32", 3, 4), [], name, **noop) for name in NAMES]
    check_all([*cases, case(large, [], "ReduceMean", **noop)])


def test_symbolic_sizes():
    x = TensorSpec(DType.FP32, (dims.sym("n"), 4, dims.sym("m")))
    for axes in ([1], [0, 2]):
        made = node("DynamicReduce", [x, np.array(axes)], keepdims=False)
        arrays = [drawn("f32", 3, 4, 5), np.array(axes)]
        check_all([Case(made, REDUCE, arrays, env={"n": 3, "m": 5})])


@pytest.mark.parametrize("axes", [[2], [-3], [0, 0], [1, -1]])
def test_axes_that_are_none_are_refused(axes):
    made = case(drawn("f32", 2, 3), axes)
    assert reported(made, made.arrays)
