"""Anchors of grids and pyramids, and the proposals and detections of Mask R-CNN."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tactix.contracts.graph import Value
from tactix_onnx.ai_onnx_ml.classical import two
from tactix_onnx.convert import Context
from tactix_trtops.operator import Field, Operators, columns, need_weights, number

OPERATORS = Operators()

# -- GridAnchor ------------------------------------------------------------------------------------

GRID = {
    "minSize": "float", "maxSize": "float", "aspectRatios": "floats", "featureMapShapes": "ints",
    "variance": "floats", "numLayers": "int",
}  # fmt: skip
SMALLEST = 0.1
"""Scale of the first box of the first map, as in TensorFlow's SSD."""
FIRST = 3
"""Ratios of the first map."""


def _sides(fields: Mapping[str, Field]) -> list[int]:
    found = fields.get("featureMapShapes", ())
    return [int(n) for n in np.atleast_1d(np.asarray(found)).tolist()]


@OPERATORS("GridAnchor_TRT", fields=GRID, outputs=lambda fields: len(_sides(fields)))
def grid_anchors(ctx: Context) -> list[Value]:
    """Boxes x y x y in every cell of square maps, whose sides are `featureMapShapes`, and their
    variances (1, 2, h w boxes 4, 1), constants: an output for each map. Inputs are not read.
    """
    return _grids(ctx, [(n, n) for n in _sides({"featureMapShapes": ctx.attr("featureMapShapes")})])


@OPERATORS("GridAnchorRect_TRT", fields=GRID, outputs=lambda fields: len(_sides(fields)) // 2)
def rectangular_grid_anchors(ctx: Context) -> list[Value]:
    """As GridAnchor, with height and width of each map in `featureMapShapes`; cells are squares
    whose side is one by the height.
    """
    sides = _sides({"featureMapShapes": ctx.attr("featureMapShapes")})
    return _grids(ctx, list(zip(sides[::2], sides[1::2], strict=True)))


def _grids(ctx: Context, maps: Sequence[tuple[int, int]]) -> list[Value]:
    if ctx.attr("numLayers", len(maps)) != len(maps):
        ctx.fail(f"it has featureMapShapes of {len(maps)} maps", do="Set numLayers to that")
    ratios = need_weights(ctx, "aspectRatios").astype(np.float64)
    variance = need_weights(ctx, "variance")
    least, most = ctx.attr("minSize", 0.2), ctx.attr("maxSize", 0.95)
    scales = [least + (most - least) * i / max(1, len(maps) - 1) for i in range(len(maps))]
    out = []
    for i, (height, width) in enumerate(maps):
        following = [*scales, 1.0][i + 1]
        sizes = _anchor_sizes(ratios, scales[i], None if i == 0 else following)
        out.append(ctx.constant(_grid(height, width, sizes, variance)))
    return out


def _anchor_sizes(ratios: Any, scale: float, following: float | None) -> Any:
    """Widths and heights (n, 2) of a cell's boxes: one of each ratio, and a square between the
    scale and the following one; of the first map, which has no following, the first ratios alone.
    """
    if following is None:
        ratios = ratios[:FIRST]
        scales = np.array([SMALLEST, scale, scale])[: len(ratios)]
    else:
        scales = np.array([scale] * len(ratios) + [np.sqrt(scale * following)])
        ratios = np.append(ratios, 1.0)
    return np.stack([scales * np.sqrt(ratios), scales / np.sqrt(ratios)], axis=1)


def _grid(height: int, width: int, sizes: Any, variance: Any) -> Any:
    y, x = np.meshgrid(*((np.arange(n) + 0.5) / height for n in (height, width)), indexing="ij")
    centres = np.stack([x, y], axis=-1)[:, :, None]
    boxes = np.concatenate([centres - sizes / 2, centres + sizes / 2], axis=-1)
    both = np.stack([boxes, np.broadcast_to(variance, boxes.shape)])
    return both.astype(np.float32).reshape(1, 2, -1, 1)


# -- Mask R-CNN ------------------------------------------------------------------------------------

SCALES, RATIOS, STRIDES = (32, 64, 128, 256, 512), (0.5, 1.0, 2.0), (4, 8, 16, 32, 64)
"""Of the anchors of a pyramid, in pixels, as Mask R-CNN was released."""
IMAGE = (3, 1024, 1024)
MOVED, GROWN = 0.1, 0.2
"""What corrections of centres and of logarithms of sizes are times."""
VALID = float(np.nextafter(np.float32(0.01), np.float32(1)))
"""The least score that is given: what is not above 0.01 counts as nothing."""


def _pyramid_anchors(height: int, width: int) -> Any:
    """y x y x (n, 4) by the image's last row and column, level by level."""
    last = np.array([height - 1, width - 1] * 2, np.float32)
    out = []
    for scale, stride in zip(SCALES, STRIDES, strict=True):
        y, x = np.meshgrid(np.arange(0, height, stride), np.arange(0, width, stride), indexing="ij")
        roots = np.sqrt(np.array(RATIOS))
        half = np.stack([scale / roots, scale * roots], axis=1) / 2
        centres = np.stack([y, x], axis=-1)[:, :, None]
        out.append(np.concatenate([centres - half, centres + half - 1], axis=-1).reshape(-1, 4))
    return (np.concatenate(out).astype(np.float32) / last).astype(np.float32)


def _corrected(ctx: Context, boxes: Value, corrections: Value) -> Value:
    """Boxes y x y x (..., n, 4), moved and grown, within 0 and 1."""
    low, high = columns(ctx, boxes, 2, 2)
    moved, grown = columns(ctx, corrections, 2, 2)
    size = two(ctx, "Sub", high, low)
    middle = two(ctx, "Mul", two(ctx, "Add", low, high), 0.5)
    middle = two(ctx, "Add", middle, two(ctx, "Mul", two(ctx, "Mul", moved, MOVED), size))
    factor = ctx.layer("tactix.Exp", [two(ctx, "Mul", grown, GROWN)])
    size = two(ctx, "Mul", size, factor)
    first = two(ctx, "Sub", middle, two(ctx, "Mul", size, 0.5))
    ends = [first, two(ctx, "Add", first, size)]
    found = ctx.layer("tactix.Concat", ends, axis=boxes.spec.rank - 1)
    return ctx.layer("tactix.Clip", [found], min=0.0, max=1.0)


@OPERATORS(
    "ProposalLayer_TRT",
    fields={"prenms_topk": "int", "keep_topk": "int", "iou_threshold": "float",
            "image_size": "ints"},
)  # fmt: skip
def proposals(ctx: Context) -> Value:
    """Inputs scores of nothing and something (b, n, 2, 1) and corrections (b, n, 4, 1) of all
    anchors of a pyramid of strides from 4 to 64. The best `keep_topk` regions as y x y x between 0
    and 1 (b, `keep_topk`, 4), zeros where there are fewer.
    """
    _, height, width = ctx.attr("image_size", IMAGE)
    anchors = _pyramid_anchors(int(height), int(width))
    scores, corrections = ctx.tensor(), ctx.tensor(1)
    batch, n = scores.spec.shape[:2]
    if number(ctx, n, "number of anchors") != len(anchors):
        do = f"An image of {height} by {width} has {len(anchors)}; set image_size"
        ctx.fail(f"it has {n} anchors", do=do)
    _, score = columns(ctx, ctx.reshape(scores, (batch, n, 2)), 1, 1)
    boxes = _corrected(ctx, ctx.constant(anchors[None]), ctx.reshape(corrections, (batch, n, 4)))
    _, found, *_ = ctx.layers(
        "tactix.CombinedSuppression",
        [ctx.reshape(boxes, (batch, n, 1, 4)), score],
        rows=ctx.attr("keep_topk"),
        score_threshold=VALID,
        overlap_threshold=ctx.attr("iou_threshold"),
        inclusive=True,
        candidates=ctx.attr("prenms_topk"),
    )
    return found


@OPERATORS(
    "DetectionLayer_TRT",
    fields={"num_classes": "int", "keep_topk": "int", "score_threshold": "float",
            "iou_threshold": "float"},
)  # fmt: skip
def detections(ctx: Context) -> Value:
    """Inputs corrections (b, n, `num_classes` 4, 1, 1), scores (b, n, `num_classes`, 1, 1) and
    regions y x y x (b, n, 4). Box, class and score (b, `keep_topk`, 6) of the best regions, each of
    its likeliest class, 0 being none; zeros and class -1 where there are fewer.
    """
    batch, n = ctx.tensor(2).spec.shape[:2]
    classes = ctx.attr("num_classes")
    scores = ctx.reshape(ctx.tensor(1), (batch, n, classes))
    corrections = ctx.reshape(ctx.tensor(), (batch, n, classes, 4))
    likeliest = ctx.layer("tactix.ArgMax", [scores], axis=2, keepdims=True)
    own = two(ctx, "Equal", likeliest, np.arange(classes).reshape(1, 1, classes))
    none = ctx.scalar(0.0, scores)
    scores = ctx.layer("tactix.Where", [own, scores, none])
    chosen = ctx.layer(
        "tactix.Where", [ctx.reshape(own, (batch, n, classes, 1)), corrections, none]
    )
    chosen = ctx.layer("tactix.ReduceSum", [chosen], axes=(2,), keepdims=False)
    boxes = _corrected(ctx, ctx.tensor(2), chosen)
    _, found, best, labels, _ = ctx.layers(
        "tactix.CombinedSuppression",
        [ctx.reshape(boxes, (batch, n, 1, 4)), scores],
        rows=ctx.attr("keep_topk"),
        score_threshold=max(VALID, float(np.float32(ctx.attr("score_threshold")))),
        overlap_threshold=ctx.attr("iou_threshold"),
        inclusive=True,
        background=0,
    )
    rows = (*best.spec.shape, 1)
    parts = [found, ctx.reshape(ctx.cast(labels, best.spec.dtype), rows), ctx.reshape(best, rows)]
    return ctx.layer("tactix.Concat", parts, axis=2)
