"""EfficientNMS, BatchedNMS, NMS and PriorBox against loops."""

from __future__ import annotations

import math
from typing import Any

import detection_loops
import numpy as np
import pytest
from one_plugin import imported, model, run, same

import tactix
from tactix.base.errors import UnsupportedOperator
from tactix_trtops.operator import ANY

F32, I32 = np.float32, np.int32


def drawn(seed: int, b: int = 2, n: int = 30, classes: int = 3, shared: bool = True) -> list[Any]:
    """Boxes on a coarse grid and scores many of which are equal."""
    rng = np.random.default_rng(seed)
    boxes = np.sort(rng.integers(0, 9, (b, n, 1 if shared else classes, 2, 2)), axis=3) / 8
    scores = rng.integers(1, 16, (b, n, classes)) / 16
    return [boxes.reshape(*boxes.shape[:3], 4).astype(F32), scores.astype(F32)]


def efficient(boxes: Any, scores: Any, **options: Any) -> list[Any]:
    """What EfficientNMS_TRT gives, by loops."""
    fields = {"inclusive": True, "candidates": 4096, **options}
    count, found, best, classes, _ = detection_loops.tables(boxes, scores, **fields)
    return [count[:, None], found, best, np.maximum(classes, 0)]


NMS = {"score_threshold": 0.25, "iou_threshold": 0.5, "max_output_boxes": 12}
ROWS = {"rows": 12, "score_threshold": 0.25, "overlap_threshold": 0.5}


@pytest.mark.parametrize("domain", [d for d in ANY if d != "ai.onnx"] + [""])
def test_efficient_nms_in_every_domain(domain: str) -> None:
    boxes, scores = drawn(1)
    asked = {**NMS, "box_coding": 0, "background_class": -1, "score_activation": 0,
             "plugin_version": "1", "plugin_namespace": ""}  # fmt: skip
    got = run("EfficientNMS_TRT", [boxes[:, :, 0], scores], 4, domain=domain, **asked)
    same(got, efficient(boxes, scores, **ROWS))


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("symbols", [{}, {2: "b", 30: "n"}])
def test_efficient_nms_of_boxes_of_classes_and_a_background(shared: bool, symbols: Any) -> None:
    arrays = drawn(2, shared=shared)
    got = run("EfficientNMS_TRT", arrays, 4, symbols=symbols, background_class=1, **NMS)
    same(got, efficient(*arrays, background=1, **ROWS))


def test_efficient_nms_of_all_classes_together() -> None:
    arrays = drawn(3)
    asked, rows = {**NMS, "max_output_boxes": 90}, {**ROWS, "rows": 90}
    got = run("EfficientNMS_TRT", arrays, 4, class_agnostic=1, **asked)
    same(got, efficient(*arrays, class_agnostic=True, **rows))
    assert got[0].sum() < run("EfficientNMS_TRT", arrays, 4, **asked)[0].sum()


def test_efficient_nms_of_raw_scores() -> None:
    """Thresholds are those of activated scores, and what is not filled has score 0."""
    boxes, scores = drawn(4)
    raw = (8 * scores - 4).astype(F32)
    got = run("EfficientNMS_TRT", [boxes, raw], 4, score_activation=1, **NMS)
    options = {**ROWS, "rows": 12, "score_threshold": math.log(0.25 / 0.75)}
    count, found, best, classes = efficient(boxes, raw, **options)
    filled = np.arange(12) < count
    sigmoid = np.where(filled, 1 / (1 + np.exp(-best)), 0).astype(F32)
    same(got, [count, found, sigmoid, classes])
    for threshold, most in ((0.0, 2 * 12), (1.0, 0)):
        asked = {**NMS, "score_threshold": threshold, "iou_threshold": 1.1, "score_activation": 1}
        assert run("EfficientNMS_TRT", [boxes, raw], 4, **asked)[0].sum() == most


def test_efficient_nms_of_centres_and_of_corrections() -> None:
    rng = np.random.default_rng(5)
    _, scores = drawn(5)
    centred = rng.random((2, 30, 4)).astype(F32)
    corners = np.zeros((2, 30, 1, 4), F32)
    for b, i in np.ndindex(2, 30):
        y, x, h, w = centred[b, i]
        corners[b, i, 0] = y - h / 2, x - w / 2, y + h / 2, x + w / 2
    got = run("EfficientNMS_TRT", [centred, scores], 4, box_coding=1, **NMS)
    same(got, efficient(corners, scores, **ROWS))
    anchors = rng.random((1, 30, 4)).astype(F32)
    for b, i in np.ndindex(2, 30):
        (dy, dx, dh, dw), (y, x, h, w) = centred[b, i], anchors[0, i]
        cy, cx, hh, ww = dy * h + y, dx * w + x, np.exp(dh) * h, np.exp(dw) * w
        corners[b, i, 0] = cy - hh / 2, cx - ww / 2, cy + hh / 2, cx + ww / 2
    got = run("EfficientNMS_TRT", [centred, scores, anchors], 4, box_coding=1, **NMS)
    same(got, efficient(corners, scores, **ROWS))
    for b, i in np.ndindex(2, 30):
        (p, q, r, s), (t, u, v, w) = centred[b, i], anchors[0, i]
        corners[b, i, 0] = (
            min(p, r) + min(t, v),
            min(q, s) + min(u, w),
            max(p, r) + max(t, v),
            max(q, s) + max(u, w),
        )
    got = run("EfficientNMS_TRT", [centred, scores, anchors], 4, **NMS)
    same(got, efficient(corners, scores, **ROWS))


@pytest.mark.parametrize("sizes", [(1, 0, 2), (0, 4, 2), (3, 1, 1)])
def test_no_boxes_no_samples_and_none_above_the_threshold(sizes: tuple[int, int, int]) -> None:
    boxes, scores = drawn(6, *sizes)
    got = run("EfficientNMS_TRT", [boxes, scores], 4, **{**NMS, "score_threshold": 2.0})
    batch = sizes[0]
    same(got, [np.zeros((batch, 1), I32), np.zeros((batch, 12, 4), F32), np.zeros((batch, 12), F32),
               np.zeros((batch, 12), I32)])  # fmt: skip


def test_efficient_nms_in_float16() -> None:
    arrays = [a.astype(np.float16) for a in drawn(7)]
    same(run("EfficientNMS_TRT", arrays, 4, **NMS), efficient(*arrays, **ROWS))


def test_an_engine_runs_efficient_nms() -> None:
    """By the entry points, with a batch that only running tells."""
    arrays = drawn(8)
    proto = model("EfficientNMS_TRT", arrays, NMS, 4, domain="TRT", symbols={2: "b"})
    config = tactix.BuilderConfig(timing_cache=False, builder_optimization_level=0)
    engine = tactix.build(proto.SerializeToString(), config=config)
    for batch in (2, 1):
        given = [a[:batch] for a in arrays]
        same(list(engine(*given).values()), efficient(*given, **ROWS))


def test_indices_of_efficient_nms() -> None:
    boxes, scores = drawn(9, b=3)
    scores[1] = 0.0
    asked = {"score_threshold": 0.25, "iou_threshold": 0.5, "max_output_boxes_per_class": 5}
    for symbols in ({}, {3: "b"}):
        (got,) = run("EfficientNMS_ONNX_TRT", [boxes, scores], symbols=symbols, **asked)
        listed = []
        for b in range(3):
            found = detection_loops.detections(
                boxes[b], scores[b], **{**ROWS, "rows": 5, "inclusive": True}
            )
            listed += [(b, c, i) for i, c in found]
        listed += [listed[-1]] * (15 - len(listed))
        same([got], [np.array(listed, I32)])
    (none,) = run("EfficientNMS_ONNX_TRT", [boxes, scores - 2], **asked)
    same([none], [np.full((15, 3), -1, I32)])
    with pytest.raises(UnsupportedOperator, match="max_output_boxes_per_class is -1"):
        run("EfficientNMS_ONNX_TRT", [boxes, scores], iou_threshold=0.5)


# -- BatchedNMS ------------------------------------------------------------------------------------

BATCHED = {"shareLocation": 1, "backgroundLabelId": -1, "numClasses": 3, "topK": 20, "keepTopK": 9,
           "scoreThreshold": 0.3, "iouThreshold": 0.4, "isNormalized": 1, "clipBoxes": 1}  # fmt: skip


def batched(boxes: Any, scores: Any, clip: bool = True, **options: Any) -> list[Any]:
    fields = {"rows": 9, "class_candidates": 20, "score_threshold": F32(0.3), "classes_first": True,
              "overlap_threshold": 0.4, **options}  # fmt: skip
    count, found, best, classes, _ = detection_loops.tables(boxes, scores, **fields)
    return [count[:, None], found.clip(0, 1) if clip else found, best, classes.astype(F32)]


@pytest.mark.parametrize("op", ["BatchedNMS_TRT", "BatchedNMSDynamic_TRT"])
def test_batched_nms(op: str) -> None:
    boxes, scores = drawn(10)
    wide = 2 * boxes - 0.5
    same(run(op, [wide, scores], 4, **BATCHED), batched(wide, scores))
    loose = {**BATCHED, "clipBoxes": 0, "topK": 3, "backgroundLabelId": 2, "scoreBits": 16}
    got = run(op, [wide, scores[..., None]], 4, symbols={2: "b"}, **loose)
    same(got, batched(wide, scores, False, class_candidates=3, background=2))


def test_batched_nms_of_pixels_of_classes() -> None:
    boxes, scores = drawn(11, shared=False)
    pixels = np.round(boxes * 16)
    asked = {**BATCHED, "isNormalized": 0, "clipBoxes": 0, "shareLocation": 0}
    got = run("BatchedNMS_TRT", [pixels, scores], 4, **asked)
    same(got, batched(pixels, scores, False, unit=1.0))
    with pytest.raises(UnsupportedOperator, match="caffeSemantics 0"):
        run("BatchedNMS_TRT", [pixels, scores], 4, **asked, caffeSemantics=0)


def test_batched_nms_of_mmdeploy() -> None:
    boxes, scores = drawn(14)
    asked = {"background_label_id": -1, "num_classes": 3, "topk": 20, "keep_topk": 9,
             "score_threshold": 0.3, "iou_threshold": 0.4, "is_normalized": 1, "clip_boxes": 0}  # fmt: skip
    got = run("TRTBatchedNMS", [boxes, scores], 2, domain="mmdeploy", **asked)
    _, found, best, classes = batched(boxes, scores, False)
    same(got, [np.concatenate([found, best[..., None]], axis=2), classes.astype(I32)])
    with pytest.raises(UnsupportedOperator, match="return_index"):
        run("TRTBatchedNMS", [boxes, scores], 2, domain="mmdeploy", **asked, return_index=1)


# -- NMS -------------------------------------------------------------------------------------------


def from_prior(code: int, d: Any, p: Any, v: Any, encoded: int) -> list[float]:
    """One box of a correction, a prior and its variances."""
    if code == 3:
        d = [d[1], d[0], d[3], d[2]]
    if not encoded or code == 3:
        d = [a * b for a, b in zip(d, v)]
    w, h = p[2] - p[0], p[3] - p[1]
    if code == 0:
        return [a + b for a, b in zip(p, d)]
    if code == 2:
        return [p[k] + d[k] * (w, h)[k % 2] for k in range(4)]
    x, y = d[0] * w + (p[0] + p[2]) / 2, d[1] * h + (p[1] + p[3]) / 2
    w, h = w * math.exp(d[2]), h * math.exp(d[3])
    return [x - w / 2, y - h / 2, x + w / 2, y + h / 2]


@pytest.mark.parametrize("code", range(4))
@pytest.mark.parametrize("encoded", [0, 1])
def test_detection_output(code: int, encoded: int) -> None:
    rng = np.random.default_rng(12)
    b, n, classes = 2, 11, 3
    deltas = rng.normal(0, 0.5, (b, n, 4)).astype(F32)
    raw = rng.normal(0, 2, (b, n, classes)).astype(F32)
    low = rng.random((n, 2))
    priors = np.concatenate([low, low + 0.1 + rng.random((n, 2)) / 2], axis=1)
    variances = np.tile([0.1, 0.1, 0.2, 0.2], (n, 1))
    both = np.stack([priors, variances]).astype(F32).reshape(1, 2, n * 4, 1)
    boxes = np.array([[from_prior(code, deltas[s, i], both[0, 0].reshape(n, 4)[i], variances[i], encoded)
                       for i in range(n)] for s in range(b)], F32)[:, :, None]  # fmt: skip
    scores = (1 / (1 + np.exp(-raw))).astype(F32)
    fields = {"rows": 7, "class_candidates": 9, "score_threshold": 0.2, "overlap_threshold": 0.45,
              "background": 0, "classes_first": True}  # fmt: skip
    count, found, best, labels, _ = detection_loops.tables(boxes, scores, **fields)
    table = np.zeros((b, 1, 7, 7), F32)
    for s, r in np.ndindex(b, 7):
        table[s, 0, r] = [s, labels[s, r], best[s, r], *found[s, r].clip(0, 1)]
    arrays = [deltas.reshape(b, -1, 1, 1), np.tile(both, (b, 1, 1, 1)), raw.reshape(b, -1, 1, 1)]
    got = run(
        "NMS_TRT", arrays, 2, inputOrder=[0, 2, 1], shareLocation=1, numClasses=classes, topK=9,
        varianceEncodedInTarget=encoded, backgroundLabelId=0, keepTopK=7, confidenceThreshold=0.2,
        nmsThreshold=0.45, codeType=code, confSigmoid=1, isNormalized=1,
    )  # fmt: skip
    same([got[0], got[1].view(I32)], [table, count.reshape(b, 1, 1, 1)])


def test_detection_output_of_boxes_of_classes_and_priors_of_samples() -> None:
    rng = np.random.default_rng(13)
    b, n, classes = 2, 5, 2
    deltas = rng.normal(0, 0.5, (b, n, classes, 4)).astype(F32)
    scores = rng.random((b, n, classes)).astype(F32)
    priors = np.sort(rng.random((b, 2, n, 2, 2)), axis=3).reshape(b, 2, n, 4).astype(F32)
    boxes = np.zeros((b, n, classes, 4), F32)
    for s, i, c in np.ndindex(b, n, classes):
        boxes[s, i, c] = from_prior(1, deltas[s, i, c], priors[s, 0, i], priors[s, 1, i], 0)
    fields = {"rows": 6, "score_threshold": 0.1, "overlap_threshold": 0.3, "classes_first": True}
    count, found, best, labels, _ = detection_loops.tables(boxes, scores, **fields)
    arrays = [deltas.reshape(b, -1, 1, 1), scores.reshape(b, -1, 1, 1), priors.reshape(b, 2, -1, 1)]
    asked = {"shareLocation": 0, "numClasses": classes, "topK": 50, "keepTopK": 6, "codeType": 1,
             "confidenceThreshold": 0.1, "nmsThreshold": 0.3, "backgroundLabelId": -1,
             "varianceEncodedInTarget": 0, "isBatchAgnostic": 0}  # fmt: skip
    got = run("NMSDynamic_TRT", arrays, 2, symbols={2: "b"} if classes != 2 else {}, **asked)
    np.testing.assert_array_equal(got[1].view(I32).ravel(), count)
    same([got[0][:, 0, :, 2], got[0][:, 0, :, 1]], [best, labels.astype(F32)])
    same([got[0][:, 0, :, 3:]], [found.clip(0, 1)])


# -- priors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("image", [(0, 0), (60, 40)])
def test_prior_boxes(image: tuple[int, int]) -> None:
    feature, picture = np.zeros((2, 3, 4, 5), F32), np.zeros((2, 3, 32, 48), F32)
    asked = {"minSize": [8.0, 12.0], "maxSize": [16.0, 20.0], "aspectRatios": [1.0, 2.0, 3.0],
             "flip": 1, "clip": 1, "variance": [0.1, 0.1, 0.2, 0.2], "imgH": image[0],
             "imgW": image[1], "stepH": 0.0, "stepW": 9.0, "offset": 0.5}  # fmt: skip
    (got,) = run("PriorBox_TRT", [feature, picture], **asked)
    high, wide = image if image[0] else (32, 48)
    boxes = []
    for row in range(4):
        for column in range(5):
            y, x = (row + 0.5) * high / 4, (column + 0.5) * 9.0
            for least, most in ((8, 16), (12, 20)):
                sizes = [(least, least), (math.sqrt(least * most),) * 2]
                for r in (2, 1 / 2, 3, 1 / 3):
                    sizes.append((least * math.sqrt(r), least / math.sqrt(r)))
                for w, h in sizes:
                    box = (
                        (x - w / 2) / wide,
                        (y - h / 2) / high,
                        (x + w / 2) / wide,
                        (y + h / 2) / high,
                    )
                    boxes.append([min(max(v, 0), 1) for v in box])
    want = np.array([boxes, [[0.1, 0.1, 0.2, 0.2]] * len(boxes)], F32).reshape(1, 2, -1, 1)
    same([got], [np.tile(want, (2, 1, 1, 1))])
    dynamic = model("PriorBox_TRT", [feature], asked, symbols={4: "h"})
    with pytest.raises(UnsupportedOperator, match="feature map is h"):
        imported(dynamic)


def test_a_field_that_is_not_known_is_refused() -> None:
    with pytest.raises(UnsupportedOperator, match="'max_boxes' = 7"):
        run("EfficientNMS_TRT", drawn(1), 4, max_boxes=7)
