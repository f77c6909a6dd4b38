"""CombinedSuppression: the layer's reference against loops, and c_combined_suppression against the
reference.
"""

from __future__ import annotations

import asked
import detection_loops
import numpy as np
import pytest
from harness import NATIVE, Case, check, check_all, node

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.base.errors import InvalidArgument, ShapeError
from tactix.base.tensor import TensorSpec
from tactix.contracts.graph import run_node
from tactix.contracts.tactic import Reject
from tactix_cpu.tactics.select.combined_suppression import CombinedSuppressionTactic

TACTIC = CombinedSuppressionTactic()


def drawn(seed, batch=2, boxes=40, classes=3, shared=True, dtype=np.float32):
    """Boxes on a coarse grid, some with corners swapped, and scores many of which are equal."""
    rng = np.random.default_rng(seed)
    corners = rng.integers(0, 12, (batch, boxes, 1 if shared else classes, 4)) / 4
    return corners.astype(dtype), (rng.integers(0, 20, (batch, boxes, classes)) / 20).astype(dtype)


OPTIONS = [
    {"rows": 10, "score_threshold": 0.3},
    {"rows": 10, "score_threshold": 0.3, "inclusive": True, "overlap_threshold": 0.25},
    {"rows": 200, "overlap_threshold": 0.0},
    {"rows": 30, "class_agnostic": True, "background": 1},
    {"rows": 30, "class_agnostic": True, "class_rows": 3, "inclusive": True},
    {"rows": 30, "class_rows": 3, "classes_first": True, "overlap_threshold": 0.2},
    {"rows": 30, "class_candidates": 5, "classes_first": True, "background": 0},
    {"rows": 30, "candidates": 12, "unit": 1.0, "inclusive": True},
    {"rows": 5, "score_threshold": 2.0},
    {"rows": 0},
    {"rows": 4, "background": 7, "overlap_threshold": 1.0},
]


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_reference_is_what_loops_give(options, shared):
    arrays = drawn(3, shared=shared)
    got = run_node(node("CombinedSuppression", list(arrays), **options), list(arrays), {})
    for a, b in zip(got, detection_loops.tables(*arrays, **options), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_the_kernel_is_the_reference(dtype):
    cases = []
    for options in OPTIONS:
        for shared in (True, False):
            arrays = list(drawn(5, 3, shared=shared, dtype=dtype))
            made = node("CombinedSuppression", arrays, **options)
            cases.append(Case(made, TACTIC, arrays, nt=(1, 2)))
    check_all(cases)


def test_many_scores_few_of_which_are_needed():
    """Those behind the first ones are put in order once these are used up."""
    boxes, scores = drawn(7, 1, 900, 2)
    boxes[:, ::2] = boxes[:, :1]
    check(node("CombinedSuppression", [boxes, scores], rows=4), TACTIC, [boxes, scores])


def test_what_is_no_number_passes_no_threshold_and_overlaps_nothing():
    boxes, scores = drawn(9)
    scores[0, ::3] = np.nan
    boxes[1, ::4] = np.nan
    arrays = [boxes, scores]
    check(node("CombinedSuppression", arrays, rows=40), TACTIC, arrays)


@pytest.mark.parametrize("sizes", [(0, 5, 2), (2, 0, 2), (2, 5, 0), (1, 40, 3)])
def test_sizes_that_only_running_tells(sizes):
    names = [dims.sym(n) for n in ("b", "n", "c")]
    boxes = TensorSpec(DType.FP32, (*names[:2], 1, 4))
    made = node("CombinedSuppression", [boxes, TensorSpec(DType.FP32, tuple(names))], rows=6)
    arrays = drawn(2, *sizes)
    check(made, TACTIC, list(arrays), env=dict(zip("bnc", sizes, strict=True)))


def test_what_is_no_boxes_and_scores_is_refused():
    def asking(*shapes, **options):
        return node("CombinedSuppression", [np.zeros(s, np.float32) for s in shapes], **options)

    for shapes in [((1, 5, 4), (1, 5, 2)), ((1, 5, 1, 5), (1, 5, 2)), ((1, 5, 1, 4), (1, 6, 2)),
                   ((1, 5, 3, 4), (1, 5, 2))]:  # fmt: skip
        with pytest.raises(ShapeError):
            asking(*shapes)
    with pytest.raises(InvalidArgument, match="-1 rows"):
        asking((1, 5, 1, 4), (1, 5, 2), rows=-1)
    wide = [np.zeros((1, 5, 1, 4)), np.zeros((1, 5, 2))]
    assert isinstance(asked.variants(TACTIC, node("CombinedSuppression", wide), NATIVE), Reject)
