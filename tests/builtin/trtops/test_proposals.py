"""GridAnchor, ProposalLayer and DetectionLayer against loops."""

from __future__ import annotations

import math
from typing import Any

import detection_loops
import numpy as np
import pytest
from one_plugin import run, same

from tactix.base.errors import UnsupportedOperator

F32 = np.float32


def grid(height: int, width: int, sizes: list[tuple[float, float]]) -> Any:
    boxes = []
    for row in range(height):
        for column in range(width):
            y, x = (row + 0.5) / height, (column + 0.5) / height
            boxes += [[x - w / 2, y - h / 2, x + w / 2, y + h / 2] for w, h in sizes]
    variances = [[0.1, 0.1, 0.2, 0.3]] * len(boxes)
    return np.array([boxes, variances], F32).reshape(1, 2, -1, 1)


@pytest.mark.parametrize(
    ("op", "shapes"), [("GridAnchor_TRT", [4, 2, 1]), ("GridAnchorRect_TRT", [4, 5, 2, 3, 1, 2])]
)
def test_anchors_of_grids(op: str, shapes: list[int]) -> None:
    ratios = [1.0, 2.0, 0.5, 3.0]
    asked = {"minSize": 0.2, "maxSize": 0.9, "aspectRatios": ratios, "numLayers": 3,
             "featureMapShapes": shapes, "variance": [0.1, 0.1, 0.2, 0.3]}  # fmt: skip
    got = run(op, [np.zeros((2, 3, 4, 4), F32)], 3, **asked)
    maps = list(zip(shapes[::2], shapes[1::2])) if "Rect" in op else [(n, n) for n in shapes]
    first = [(s * math.sqrt(r), s / math.sqrt(r)) for s, r in zip((0.1, 0.2, 0.2), ratios)]
    want = [grid(*maps[0], first)]
    for shape, scale, following in zip(maps[1:], (0.55, 0.9), (0.9, 1.0)):
        sizes = [(scale * math.sqrt(r), scale / math.sqrt(r)) for r in ratios]
        want.append(grid(*shape, [*sizes, (math.sqrt(scale * following),) * 2]))
    same(got, want)


def test_a_number_of_maps_that_is_another_is_refused() -> None:
    with pytest.raises(UnsupportedOperator, match="of 2 maps"):
        run("GridAnchor_TRT", [], 2, featureMapShapes=[2, 1], numLayers=3, aspectRatios=[1.0],
            variance=[0.1] * 4)  # fmt: skip


def corrected(box: Any, d: Any) -> list[float]:
    y1, x1, y2, x2 = (float(v) for v in box)
    h, w = y2 - y1, x2 - x1
    y, x = (y1 + y2) / 2 + d[0] * 0.1 * h, (x1 + x2) / 2 + d[1] * 0.1 * w
    h, w = h * math.exp(d[2] * 0.2), w * math.exp(d[3] * 0.2)
    return [min(max(v, 0.0), 1.0) for v in (y - h / 2, x - w / 2, y + h / 2, x + w / 2)]


def pyramid(height: int, width: int) -> list[list[float]]:
    out = []
    for scale, stride in zip((32, 64, 128, 256, 512), (4, 8, 16, 32, 64)):
        for y in range(0, height, stride):
            for x in range(0, width, stride):
                for r in (0.5, 1.0, 2.0):
                    h, w = scale / math.sqrt(r), scale * math.sqrt(r)
                    ends = (y - h / 2, x - w / 2, y + h / 2 - 1, x + w / 2 - 1)
                    out.append([e / s for e, s in zip(ends, (height - 1, width - 1) * 2)])
    return out


def test_proposals() -> None:
    rng, size = np.random.default_rng(3), (16, 32)
    anchors = np.array(pyramid(*size))
    b, n = 2, len(anchors)
    scores, deltas = rng.random((b, n, 2, 1)).astype(F32), rng.normal(size=(b, n, 4, 1)).astype(F32)
    scores[1, 4:] = 0.005
    boxes = np.array([[corrected(a, deltas[s, i, :, 0]) for i, a in enumerate(anchors)]
                      for s in range(b)], F32)[:, :, None]  # fmt: skip
    fields = {"rows": 9, "candidates": 40, "overlap_threshold": 0.7, "score_threshold": 0.0100001,
              "inclusive": True}  # fmt: skip
    _, want, *_ = detection_loops.tables(boxes, scores[:, :, 1], **fields)
    asked = {"prenms_topk": 40, "keep_topk": 9, "iou_threshold": 0.7, "image_size": [3, *size]}
    same(run("ProposalLayer_TRT", [scores, deltas], **asked), [want], 1e-4)
    with pytest.raises(UnsupportedOperator, match=f"it has {n} anchors"):
        run("ProposalLayer_TRT", [scores, deltas], **{**asked, "image_size": [3, 64, 64]})


def test_detections() -> None:
    rng = np.random.default_rng(4)
    b, n, classes, rows = 2, 30, 4, 7
    low = rng.random((b, n, 2)) / 2
    regions = np.concatenate([low, low + 0.1 + rng.random((b, n, 2)) / 3], axis=2).astype(F32)
    deltas = rng.normal(size=(b, n, classes * 4, 1, 1)).astype(F32)
    scores = rng.random((b, n, classes, 1, 1)).astype(F32)
    scores[1, 2:] = 0
    flat = scores.reshape(b, n, classes)
    best = flat.argmax(axis=2)
    own = np.where(best[..., None] == np.arange(classes), flat, 0).astype(F32)
    each = deltas.reshape(b, n, classes, 4)
    boxes = np.array([[corrected(regions[s, i], each[s, i, best[s, i]]) for i in range(n)]
                      for s in range(b)], F32)[:, :, None]  # fmt: skip
    fields = {"rows": rows, "overlap_threshold": 0.3, "score_threshold": 0.5, "inclusive": True,
              "background": 0}  # fmt: skip
    _, found, top, labels, _ = detection_loops.tables(boxes, own, **fields)
    want = np.concatenate([found, labels[..., None], top[..., None]], axis=2).astype(F32)
    asked = {"num_classes": classes, "keep_topk": rows, "score_threshold": 0.5,
             "iou_threshold": 0.3}  # fmt: skip
    same(run("DetectionLayer_TRT", [deltas, scores, regions], **asked), [want], 1e-4)
