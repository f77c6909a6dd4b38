"""Reshapes, fills and one-hot vectors whose shapes are the content of tensors; Shape, BitCast."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from harness import COMPILER, NATIVE, Case, Run, _compile, _library, check, check_all, node, opened
from select_cases import drawn

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix.contracts.tactic import Reject
from tactix_cpu.tactics.move.generate import CpuGenerateTactic
from tactix_cpu.tactics.move.move import CpuMoveTactic
from tactix_cpu.tactics.move.told_shapes import (
    CategoriesTactic,
    ToldFillTactic,
    ToldOneHotTactic,
    ToldRangeTactic,
    ToldReshapeTactic,
)

RESHAPE, FILL, ONE_HOT, CATEGORIES = (
    ToldReshapeTactic(), ToldFillTactic(), ToldOneHotTactic(), CategoriesTactic(),
)  # fmt: skip


@pytest.mark.parametrize("code", ["f16", "f64", "bool"])
def test_reshapes(code):
    x, cases = drawn(code, 3, 1, 20), []
    for shape in ((60,), (0, -1), (-1, 5, 3), (2, 30), (1, 0, -1)):
        arrays = [x, np.array(shape, np.int32)]
        cases.append(Case(node("DynamicReshape", arrays), RESHAPE, arrays, nt=(1, 3)))
    for layer, axes in (
        ("DynamicSqueeze", [1]),
        ("DynamicSqueeze", [-2]),
        ("DynamicUnsqueeze", [0, -1]),
    ):
        arrays = [x, np.array(axes)]
        cases.append(Case(node(layer, arrays), RESHAPE, arrays))
    empty = [drawn(code, 0, 4), np.array([0, 7])]
    check_all([*cases, Case(node("DynamicReshape", empty, allowzero=True), RESHAPE, empty)])


def test_a_symbolic_reshape():
    x = TensorSpec(DType.FP32, (dims.sym("n"), 6))
    shape = np.array([0, 2, -1])
    made = node("DynamicReshape", [x, shape])
    check(made, RESHAPE, [drawn("f32", 5, 6), shape], env={"n": 5})


@pytest.mark.parametrize(
    ("layer", "numbers"),
    [
        ("DynamicReshape", [-1, -1]), ("DynamicReshape", [7]), ("DynamicReshape", [-2, 3]),
        ("DynamicReshape", [1, 1, 0]), ("DynamicReshape", [-1, 4]), ("DynamicSqueeze", [1]),
        ("DynamicSqueeze", [0, 0]), ("DynamicUnsqueeze", [5]), ("DynamicUnsqueeze", [-4]),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(layer, numbers):
    arrays = [drawn("f32", 1, 3), np.array(numbers)]
    case = Case(node(layer, arrays), RESHAPE, arrays)
    assert reported(case, arrays)


def reported(case, arrays):
    """Whether the launch that tells sizes refuses the inputs."""
    ((variant, artifact),) = _compile(case)
    (binary,) = COMPILER.compile([artifact.code], NATIVE)
    shapes = [d for v in case.node.outputs for d in v.spec.shape]
    sizes = {n: 0 for d in shapes if (n := dims.symbol_name(d))}
    telling = replace(artifact, launches=artifact.launches[:1])
    run = Run(case.node, variant, telling, sizes)
    run(getattr(_library(binary), binary.symbol), arrays, 1)
    return run.reported


def ranges(code, *numbers):
    """Start, limit and step as scalars that only running tells."""
    arrays = [np.array(n, DType(code).numpy) for n in numbers]
    made = node("Range", [TensorSpec(DType(code), ()) for _ in arrays], symbol="count")
    return Case(made, ToldRangeTactic(), arrays, nt=(1, 3))


@pytest.mark.parametrize("code", ["f64", "f32", "f16", "i64", "i32", "i16", "i8", "u8"])
def test_ranges(code):
    numbers = [(0, 7, 1), (3, 100, 9), (5, 5, 1), (7, 2, 1), (2, 2, 3)]
    if code[0] != "u":
        numbers += [(9, -70, -4), (-3, 4, 2), (0, 5, -1)]
    if code[0] == "f":
        numbers += [(0.5, 3, 0.25), (1, -1.5, -0.5)]
    check_all([ranges(code, *n) for n in numbers])


@pytest.mark.parametrize(
    ("code", "numbers"),
    [
        ("i64", (0, 5, 0)), ("f32", (0, 5, 0)), ("f32", (0, np.inf, 1)), ("f64", (0, np.nan, 1)),
        ("f64", (0, 1e30, 1e-3)), ("i64", (-(2**63), 2**63 - 1, 1)),
    ],
)  # fmt: skip
def test_ranges_that_lead_nowhere_are_refused(code, numbers):
    case = ranges(code, *numbers)
    assert reported(case, case.arrays)


def test_a_range_whose_size_is_known_is_another_tactics():
    made = node("Range", [np.array(n) for n in (0, 5, 1)], constants=(0, 1, 2))
    why = ToldRangeTactic().match(made, NATIVE)
    assert isinstance(why, Reject)
    assert "known before running" in why.reason


@pytest.mark.parametrize("code", ["f32", "f16", "i64", "u8", "bool"])
def test_fills(code):
    cases = []
    for shape in ((3, 70), (), (0, 4), (9,)):
        numbers = np.array(shape, np.int64)
        made = node("DynamicFill", [numbers], value=1.0, dtype=DType(code))
        cases.append(Case(made, FILL, [numbers], nt=(1, 3)))
    check_all(cases)
    negative = np.array([3, -1])
    assert reported(Case(node("DynamicFill", [negative]), FILL, [negative]), [negative])


@pytest.mark.parametrize("axis", [0, 1, -1, -2])
def test_one_hot_vectors(axis):
    indices, cases = np.random.default_rng(1).integers(-9, 9, (6, 50)).astype(np.int32), []
    for depth in (0, 1, 7):
        arrays = [indices, np.array(depth), np.array([2, 5], np.float16)]
        cases.append(Case(node("DynamicOneHot", arrays, axis=axis), ONE_HOT, arrays, nt=(1, 3)))
    for code, depth_code in (("f32", "f32"), ("f16", "i32"), ("f64", "bf16"), ("i64", "f64")):
        given = (indices + 0.5).astype(DType(code).numpy)
        depth = np.array(7.9).astype(DType(depth_code).numpy)
        arrays = [given, depth, np.array([2, 5], np.float32)]
        specs, env = opened(*arrays)
        cases.append(
            Case(node("DynamicOneHot", specs, axis=axis), ONE_HOT, arrays, env=env, nt=(1, 3))
        )
    check_all(cases)
    wrong = [indices, np.array(-1), np.array([0, 1.0])]
    assert reported(Case(node("DynamicOneHot", wrong, axis=axis), ONE_HOT, wrong), wrong)


@pytest.mark.parametrize("code", ["i64", "f32", "f16"])
def test_categories(code):
    x = np.random.default_rng(1).integers(-9, 9, (6, 50)).astype(DType(code).numpy)
    arrays = [x, np.array([3, -1, 0, 3, 40], x.dtype)]
    check(node("OneHotCategories", arrays), CATEGORIES, arrays, nt=(1, 3))


def test_shapes_and_bits():
    x = TensorSpec(DType.FP32, (dims.sym("n"), 3, 5))
    for fields in ({}, {"start": 1}, {"start": -3, "end": -1}):
        check(node("Shape", [x], **fields), CpuGenerateTactic(), env={"n": 4})
    y = drawn("f32", 7, 30)
    check(node("BitCast", [y], to=DType.INT32), CpuMoveTactic(), [y])
