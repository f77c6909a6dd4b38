"""c_dynamic_topk, c_unique and c_suppression, which tell the sizes of their outputs."""

from __future__ import annotations

import itertools

import asked
import numpy as np
import pytest
from harness import COMPILER, NATIVE, Case, Run, _compile, _library, check, check_all, node
from select_cases import CODES, drawn, wild

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix.contracts.tactic import Reject
from tactix_cpu.tactics.select.suppression import SuppressionTactic
from tactix_cpu.tactics.select.topk import DynamicTopKTactic
from tactix_cpu.tactics.select.unique import UniqueTactic
from tactix_cpu.tactics.select.unique_slices import UniqueSlicesTactic

TOPK, UNIQUE, SUPPRESSION = DynamicTopKTactic(), UniqueTactic(), SuppressionTactic()
SLICES = UniqueSlicesTactic()


@pytest.mark.parametrize("code", ["f32", "f16", "i64", "u8"])
def test_top_of_lines_with_k_in_a_tensor(code):
    x, cases = drawn(code, 3, 300, 5), []
    for axis in (0, 1, -1):
        for k in (0, 1, x.shape[axis]):
            arrays = [x, np.array([k])]
            cases.append(Case(node("DynamicTopK", arrays, axis=axis), TOPK, arrays, nt=(1, 3)))
    check_all(cases)


@pytest.mark.parametrize("k", [-1, 6])
def test_a_k_that_the_axis_has_not_is_refused(k):
    arrays = [drawn("f32", 2, 5), np.array(k)]
    case = Case(node("DynamicTopK", arrays), TOPK, arrays)
    ((variant, artifact),) = _compile(case)
    (binary,) = COMPILER.compile([artifact.code], NATIVE)
    run = Run(case.node, variant, artifact, {"dynamic_0": 0})
    run(getattr(_library(binary), binary.symbol), arrays, 1)
    assert run.fault.array(np.int64, (5,)).tolist()[:3] == [2, k, 5]


@pytest.mark.parametrize("code", CODES)
def test_distinct_elements(code):
    few = (np.random.default_rng(1).integers(0, 9, (7, 200)) - 4 * (code[0] in "fi")) % 120
    cases = []
    for x in (few.astype(DType(code).numpy), drawn(code, 50), drawn(code, 0), drawn(code, 1)):
        made = [node("Unique", [x], sorted=way) for way in (True, False)]
        cases += [Case(n, UNIQUE, [x]) for n in made]
    check_all(cases)


@pytest.mark.parametrize("code", ["f64", "f32", "f16"])
def test_distinct_floats_that_are_hard(code):
    x = wild(code)
    check_all([Case(node("Unique", [x], sorted=way), UNIQUE, [x]) for way in (True, False)])


def test_elements_and_slices_have_a_kernel_each():
    slices, elements = (node("Unique", [drawn("f32", 3, 4)], axis=a) for a in (0, None))
    assert isinstance(asked.variants(UNIQUE, slices, NATIVE), Reject)
    assert isinstance(asked.variants(SLICES, elements, NATIVE), Reject)
    halves = node("Unique", [drawn("f16", 3, 4)], axis=0)
    assert isinstance(asked.variants(SLICES, halves, NATIVE), Reject)


@pytest.mark.parametrize("code", [c for c in CODES if c not in ("f16", "bf16")])
def test_distinct_slices(code):
    """Along every axis; slices of one number, and none at all."""
    few, cases = np.random.default_rng(1).integers(0, 2, (5, 6, 3)).astype(DType(code).numpy), []
    arrays = [(few, axis) for axis in (0, 1, -1)]
    arrays += [(drawn(code, 9, 1), 0), (drawn(code, 0, 4), 0), (drawn(code, 4, 0), 1)]
    for (x, axis), way in itertools.product(arrays, (True, False)):
        cases.append(Case(node("Unique", [x], axis=axis, sorted=way), SLICES, [x]))
    check_all(cases)


@pytest.mark.parametrize("code", ["f64", "f32"])
def test_distinct_slices_of_floats_that_are_hard(code):
    """NaN is like nothing; -0 is 0."""
    rows = [(0.0, 1.0), (-0.0, 1.0), (np.nan, 2.0), (np.nan, 2.0), (np.inf, -1.0), (-np.inf, 0.0)]
    x = np.array(rows * 2, DType(code).numpy)
    ways = [node("Unique", [x], axis=0, sorted=way) for way in (True, False)]
    check_all([Case(n, SLICES, [x]) for n in ways])


@pytest.mark.parametrize("n", [0, 1, 40])
def test_slices_of_which_only_running_tells_how_many(n):
    x = TensorSpec(DType.INT32, (dims.sym("n"), 2))
    check(node("Unique", [x], axis=0), SLICES, env={"n": n})


def _detections(seed, samples=2, classes=3, boxes=150, dtype=np.float32):
    rng = np.random.default_rng(seed)
    corners = rng.random((samples, boxes, 4)) * 4
    scores = rng.integers(0, 50, (samples, classes, boxes)) / 50
    return corners.astype(dtype), scores.astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("centred", [False, True])
def test_suppressed_boxes(centred, dtype):
    corners, scores = _detections(4, dtype=dtype)
    most, overlap, lowest = np.array([20]), np.array([0.4], np.float32), np.array([0.3], dtype)
    cases = []
    for extra in ((most, overlap, lowest), (most, overlap), (most,), (), (most, None, lowest),
                  (np.array([1000]), np.array([0.0], np.float32))):  # fmt: skip
        given = [corners, scores, *extra]
        made = node("NonMaxSuppression", given, center_point_box=centred)
        arrays = [a for a in given if a is not None]
        cases.append(Case(made, SUPPRESSION, arrays, nt=(1, 3)))
    check_all(cases)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_boxes_by_centre_whose_sizes_have_any_sign(dtype):
    rng = np.random.default_rng(9)
    boxes = (rng.integers(-6, 7, (2, 150, 4)) / 2).astype(dtype)
    scores = rng.random((2, 3, 150)).astype(dtype)
    cases = []
    for overlap in (0.0, 0.3, 0.9):
        arrays = [boxes, scores, np.array([150]), np.array([overlap], np.float32)]
        made = node("NonMaxSuppression", arrays, center_point_box=True)
        cases.append(Case(made, SUPPRESSION, arrays, nt=(1, 3)))
    check_all(cases)
    kept = set(map(tuple, cases[1].node.layer.reference(cases[1].node.attrs, *arrays)[0]))
    turned = np.argwhere((boxes[..., 2:] <= 0).any(axis=-1))
    assert all((b, c, i) in kept for b, i in turned for c in range(3))


def test_scores_and_boxes_that_are_no_numbers_and_many_boxes():
    corners, scores = _detections(5, 1, 2, 700)
    corners[0, 5] = np.nan
    scores[0, 0, ::7] = np.nan
    most, overlap = np.array([700]), np.array([0.5], np.float32)
    arrays = [corners, scores, most, overlap]
    check(node("NonMaxSuppression", arrays), SUPPRESSION, arrays)


def test_boxes_behind_many_that_overlap_the_first():
    """Few are asked for, and those with the lowest scores are among them."""
    rng = np.random.default_rng(8)
    corners = np.tile(np.array([0, 0, 1, 1], np.float32), (1, 400, 1))
    corners[0, [7, 250, 399]] += np.array([[2], [4], [6]], np.float32)
    scores = rng.integers(5, 90, (1, 2, 400)).astype(np.float32)  # many are equal
    scores[0, :, [7, 250, 399]] = np.array([[1, 2], [3, 1], [2, 3]])
    arrays = [corners, scores, np.array([3]), np.array([0.5], np.float32)]
    check(node("NonMaxSuppression", arrays), SUPPRESSION, arrays)


@pytest.mark.parametrize("n", [0, 1, 60])
def test_symbolic_sizes(n):
    s = dims.sym("n")
    corners, scores = _detections(6, 2, 2, n)
    specs = [TensorSpec(DType.FP32, (2, s, 4)), TensorSpec(DType.FP32, (2, 2, s))]
    most, overlap = np.array([9]), np.array([0.5], np.float32)
    made = node("NonMaxSuppression", [*specs, most, overlap])
    check(made, SUPPRESSION, [corners, scores, most, overlap], env={"n": n})
    axes = {"a": 2, "n": n, "four": 4, "c": 2}
    a, m, four, c = (dims.sym(name) for name in axes)
    specs = [TensorSpec(DType.FP32, (a, m, four)), TensorSpec(DType.FP32, (a, c, m))]
    made = node("NonMaxSuppression", [*specs, most, overlap])
    check(made, SUPPRESSION, [corners, scores, most, overlap], env=axes)
    x = TensorSpec(DType.INT32, (s,))
    check(node("Unique", [x]), UNIQUE, env={"n": n})
