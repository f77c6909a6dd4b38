"""c_scatter, c_tensor_scatter and c_reverse_sequence against their references."""

from __future__ import annotations

import numpy as np
import pytest
from harness import COMPILER, NATIVE, Case, Run, _compile, _library, check, check_all, node
from select_cases import CODES, drawn

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix_cpu.tactics.scatter.rows import ReverseSequenceTactic, TensorScatterTactic
from tactix_cpu.tactics.scatter.scatter import CpuScatterTactic

SCATTER, TENSOR, REVERSE = CpuScatterTactic(), TensorScatterTactic(), ReverseSequenceTactic()
REDUCTIONS = ("none", "add", "mul", "min", "max")
RNG = np.random.default_rng(7)


def _small(code, *shape):
    """Few different numbers, so that folds stay small."""
    return RNG.integers(0, 2 if code == "bool" else 4, shape).astype(DType(code).numpy)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("code", CODES)
def test_elements_and_slices_of_every_dtype(code, reduction):
    x, i = _small(code, 6, 30, 5), RNG.integers(-30, 30, (6, 40, 5))
    u = _small(code, 6, 40, 5)
    made = node("ScatterElements", [x, i, u], axis=1, reduction=reduction)
    cases = [Case(made, SCATTER, [x, i, u], nt=(1, 3))]
    for depth, inner in ((1, (30, 5)), (2, (5,)), (3, ())):
        where = RNG.integers(-5, 5, (9, depth)).astype(np.int32)
        slices = _small(code, 9, *inner)
        made = node("ScatterND", [x, where, slices], reduction=reduction)
        cases.append(Case(made, SCATTER, [x, where, slices], nt=(1, 3)))
    check_all(cases)


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_indices_smaller_than_the_data(axis):
    x = drawn("f32", 7, 90, 80)
    i = RNG.integers(-x.shape[axis], x.shape[axis], (5, 70, 66))
    u = drawn("f32", 5, 70, 66)
    check(node("ScatterElements", [x, i, u], axis=axis), SCATTER, [x, i, u], nt=(1, 3))


@pytest.mark.parametrize("reduction", ["add", "min", "max"])
def test_nan_stays(reduction):
    x, i = np.array([1, np.nan, 3, np.nan], np.float32), np.array([0, 1, 2, 3, 0])
    u = np.array([np.nan, 5, 4, np.nan, 7], np.float32)
    made = node("ScatterElements", [x, i, u], reduction=reduction)
    check(made, SCATTER, [x, i, u])


def test_sums_of_half_precision_are_rounded_once():
    x, i = np.zeros(3, np.float16), np.zeros(5000, np.int64)
    u = np.full(5000, 0.1, np.float16)
    check(node("ScatterElements", [x, i, u], reduction="add"), SCATTER, [x, i, u])


@pytest.mark.parametrize("env", [{"n": 0, "s": 9}, {"n": 3, "s": 1}, {"n": 7, "s": 70}])
def test_symbolic_sizes(env):
    n, s = dims.sym("n"), dims.sym("s")
    data, index = TensorSpec(DType.FP32, (n, s)), TensorSpec(DType.INT64, (n, s))
    check_all(
        [
            Case(node("ScatterElements", [data, index, data], axis=a), SCATTER, env=env)
            for a in (0, 1)
        ]
    )
    where = TensorSpec(DType.INT64, (n, 1))
    check(node("ScatterND", [data, where, data]), SCATTER, env=env)


def reports(made, tactic, arrays):
    """What the kernel reports of its inputs, and what it wrote."""
    case = Case(made, tactic, arrays)
    ((variant, artifact),) = _compile(case)
    (binary,) = COMPILER.compile([artifact.code], NATIVE)
    run = Run(made, variant, artifact, {})
    (y,) = run(getattr(_library(binary), binary.symbol), arrays, 1)
    return run.fault.array(np.int64, (5,)).tolist()[:3], y


@pytest.mark.parametrize(("name", "wild"), [("ScatterElements", [2, 7, -6, 1]),
                                            ("ScatterND", [[2], [7], [-6], [1]])])  # fmt: skip
def test_wild_indices_are_reported_and_write_nothing(name, wild):
    x, u, i = drawn("f32", 5), drawn("f32", 4, seed=1), np.array(wild)
    found, y = reports(node(name, [x, i, u]), SCATTER, [x, i, u])
    assert found == [1, 7, 5]
    wanted = x.copy()
    wanted[[2, 1]] = u[[0, 3]]
    np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize("mode", ["linear", "circular"])
@pytest.mark.parametrize("axis", [1, 2, -1])
def test_updates_of_a_cache(mode, axis):
    cache, shape = drawn("f16", 4, 9, 8, 7), [4, 9, 8, 7]
    shape[axis] = 3
    update = drawn("f16", *shape, seed=1)
    last = cache.shape[axis] - 3
    places = np.array([0, last, 2, 1]) if mode == "linear" else np.array([0, 5, -2, 100])
    made = node("TensorScatter", [cache, update, places], axis=axis, mode=mode)
    whole = node("TensorScatter", [cache, update, None], axis=axis, mode=mode)
    check(made, TENSOR, [cache, update, places], nt=(1, 3))
    check(whole, TENSOR, [cache, update])
    check(
        node("TensorScatter", [cache, update, None], axis=axis, begin=last), TENSOR, [cache, update]
    )


def test_an_update_behind_the_cache_is_reported():
    cache, update = drawn("f32", 2, 5, 3), drawn("f32", 2, 2, 3)
    arrays = [cache, update, np.array([4, 0])]
    found, _ = reports(node("TensorScatter", arrays, axis=1), TENSOR, arrays)
    assert found == [1, 5, 5]


@pytest.mark.parametrize("axes", [(0, 1), (1, 0), (0, 2), (2, 0), (1, 3), (3, 1), (-1, 0)])
@pytest.mark.parametrize("code", ["f32", "u8"])
def test_reversed_sequences(axes, code):
    x = drawn(code, 6, 5, 7, 4)
    batch, time = axes
    lengths = RNG.integers(0, x.shape[time] + 1, x.shape[batch])
    made = node("ReverseSequence", [x, lengths], batch_axis=batch, time_axis=time)
    check(made, REVERSE, [x, lengths], nt=(1, 3))


@pytest.mark.parametrize("wrong", [-1, 6])
def test_a_length_that_the_axis_has_not_is_refused(wrong):
    x, lengths = drawn("f32", 5, 3), np.array([5, wrong, 0])
    found, _ = reports(node("ReverseSequence", [x, lengths]), REVERSE, [x, lengths])
    assert found == [2, wrong, 5]
