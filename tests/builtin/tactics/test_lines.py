"""c_logsumexp and c_lp_normalization: every dtype and axis, numbers that overflow, empty lines."""

from __future__ import annotations

import numpy as np
import pytest
from harness import Case, check, check_all, node

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix_cpu.tactics.reduce.lines import LogSumExpTactic, LpNormalizationTactic

SUM, NORM = LogSumExpTactic(), LpNormalizationTactic()
CODES = ["f64", "f32", "f16", "bf16"]


def drawn(code, *shape, factor=3.0):
    rng = np.random.default_rng(5)
    return (rng.standard_normal(shape) * factor).astype(DType(code).numpy)


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("keepdims", [True, False])
def test_sums_over_every_axis(code, keepdims):
    x = drawn(code, 3, 5, 37)
    axes = [(0,), (1,), (-1,), (0, 1), (1, 2), (0, 2), (0, 1, 2), ()]
    nodes = [node("ReduceLogSumExp", [x], axes=a, keepdims=keepdims) for a in axes]
    check_all([Case(n, SUM, [x]) for n in nodes])


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("shape", [(1,), (1, 1), (5, 1), (1, 40), (), (16, 16)])
def test_sums_of_small_shapes(code, shape):
    x = drawn(code, *shape)
    axes = [(), tuple(range(len(shape)))]
    check_all([Case(node("ReduceLogSumExp", [x], axes=a), SUM, [x]) for a in axes])


@pytest.mark.parametrize("code", CODES)
def test_sums_that_would_overflow(code):
    inf, nan = np.inf, np.nan
    x = np.array(
        [
            [1000, 999, -1000], [-inf, -inf, -inf], [inf, 1, 2], [nan, 1, 2], [1, nan, inf],
            [-2000, -2001, -2002], [inf, -inf, 0], [-inf, 3, 4],
        ],
        DType(code).numpy,
    )  # fmt: skip
    cases = [Case(node("ReduceLogSumExp", [x], axes=(1,)), SUM, [x])]
    y = x.T.copy()
    check_all([*cases, Case(node("ReduceLogSumExp", [y], axes=(0,)), SUM, [y])])


@pytest.mark.parametrize("env", [{"n": 0, "s": 9}, {"n": 3, "s": 0}, {"n": 70, "s": 33}])
def test_symbolic_sizes(env):
    n, s = dims.sym("n"), dims.sym("s")
    x = TensorSpec(DType.FP32, (n, s, 3))
    for axes in ((0,), (1,), (1, 2), (0, 2)):
        check(node("ReduceLogSumExp", [x], axes=axes), SUM, env=env)
    for axis in (0, 1, 2):
        check(node("LpNormalization", [x], axis=axis), NORM, env=env)


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("p", [1, 2])
def test_norms_along_every_axis(code, p):
    x = drawn(code, 3, 5, 37)
    x[1] = 0
    nodes = [node("LpNormalization", [x], axis=a, p=p) for a in (0, 1, -1)]
    single = drawn(code, 4, 1)
    check_all(
        [
            *(Case(n, NORM, [x]) for n in nodes),
            *(Case(node("LpNormalization", [single], axis=a, p=p), NORM, [single]) for a in (0, 1)),
        ]
    )


def test_norms_of_edges():
    x = np.array([[0, 0, 0], [np.inf, 1, 2], [np.nan, 1, 2], [-0.0, 3, 4]], np.float32)
    cases = [Case(node("LpNormalization", [x], axis=1, p=p), NORM, [x]) for p in (1, 2)]
    with np.errstate(invalid="ignore"):  # infinity by infinity
        check_all(cases)
