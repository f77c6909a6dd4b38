"""Suppression of boxes: EfficientNMS, BatchedNMS, NMS, and what makes boxes for them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tactix.base.dims import floordiv
from tactix.base.dtypes import DType
from tactix.contracts.graph import Value
from tactix_onnx.ai_onnx.index import counting
from tactix_onnx.ai_onnx_ml.classical import two
from tactix_onnx.convert import Context
from tactix_trtops.operator import ANY, Operators, columns, need_weights, number, weights

OPERATORS = Operators()

CANDIDATES = 4096
"""Scores of a sample that EfficientNMS looks at, the best ones: its ``numSelectedBoxes``."""
LOWEST = -(1 << 15)
"""The raw score that stands for a threshold of 0 or less where scores are activated."""


def _boxes(ctx: Context) -> Value:
    """Input 0 as (batch, n, 1 or classes, 4)."""
    x = ctx.tensor()
    if x.spec.rank != 3:
        return x
    batch, n, four = x.spec.shape
    return ctx.reshape(x, (batch, n, 1, four))


def _scores(ctx: Context) -> Value:
    """Input 1 as (batch, n, classes); a last axis of one element more is allowed."""
    x = ctx.tensor(1)
    return ctx.reshape(x, x.spec.shape[:3]) if x.spec.rank == 4 else x


def _column(ctx: Context, count: Value) -> Value:
    """(batch,) as (batch, 1)."""
    return ctx.reshape(count, (*count.spec.shape, 1))


def corners(ctx: Context, boxes: Value) -> Value:
    """Centres and sizes as two corners."""
    centre, size = columns(ctx, boxes, 2, 2)
    half = two(ctx, "Mul", size, 0.5)
    ends = [two(ctx, "Sub", centre, half), two(ctx, "Add", centre, half)]
    return ctx.layer("tactix.Concat", ends, axis=boxes.spec.rank - 1)


def _ordered(ctx: Context, boxes: Value) -> Value:
    """Corners, the lower one first."""
    ends = columns(ctx, boxes, 2, 2)
    sorted_ends = [ctx.layer(f"tactix.{f}", ends) for f in ("Min", "Max")]
    return ctx.layer("tactix.Concat", sorted_ends, axis=boxes.spec.rank - 1)


def _decoded(ctx: Context, boxes: Value, anchors: Value, centred: bool) -> Value:
    """Corners of what corrections (b, n, 1 or classes, 4) make of anchors (1 or b, n, 4)."""
    batch, n, four = anchors.spec.shape
    wide = ctx.reshape(anchors, (batch, n, 1, four))
    if not centred:
        return two(ctx, "Add", _ordered(ctx, boxes), _ordered(ctx, wide))
    moved, grown = columns(ctx, boxes, 2, 2)
    centre, size = columns(ctx, wide, 2, 2)
    parts = [
        two(ctx, "Add", two(ctx, "Mul", moved, size), centre),
        two(ctx, "Mul", ctx.layer("tactix.Exp", [grown]), size),
    ]
    return corners(ctx, ctx.layer("tactix.Concat", parts, axis=3))


def _efficient_boxes(ctx: Context, coding: str) -> Value:
    boxes, centred = _boxes(ctx), bool(ctx.attr(coding, 0))
    if ctx.input(2) is not None:
        return _decoded(ctx, boxes, ctx.tensor(2), centred)
    return corners(ctx, boxes) if centred else boxes


def _raw(threshold: float) -> float:
    """The score whose sigmoid is a threshold."""
    if threshold <= 0:
        return LOWEST
    return math.log(threshold / (1 - threshold)) if threshold < 1 else float(np.finfo("f4").max)


@OPERATORS(
    "EfficientNMS_TRT",
    fields={
        "score_threshold": "float", "iou_threshold": "float", "max_output_boxes": "int",
        "background_class": "int", "score_activation": "int", "class_agnostic": "int",
        "box_coding": "int",
    },
    outputs=4,
)  # fmt: skip
def efficient_nms(ctx: Context) -> list[Value]:
    """Inputs boxes (b, n, 4) or (b, n, classes, 4), scores (b, n, classes), and anchors (1 or b, n,
    4) where boxes are corrections. Counts (b, 1), boxes, scores and classes of the best
    `max_output_boxes`; zeros where there are fewer.
    """
    activated, threshold = bool(ctx.attr("score_activation", 0)), ctx.attr("score_threshold", 0.5)
    count, boxes, scores, classes, places = ctx.layers(
        "tactix.CombinedSuppression",
        [_efficient_boxes(ctx, "box_coding"), _scores(ctx)],
        rows=ctx.attr("max_output_boxes", 100),
        score_threshold=_raw(threshold) if activated else threshold,
        overlap_threshold=ctx.attr("iou_threshold", 0.5),
        inclusive=True,
        class_agnostic=bool(ctx.attr("class_agnostic", 0)),
        background=ctx.attr("background_class", -1),
        candidates=CANDIDATES,
    )
    if activated:
        none = [two(ctx, "Less", places, 0), ctx.scalar(0.0, scores)]
        scores = ctx.layer("tactix.Where", [*none, ctx.layer("tactix.Sigmoid", [scores])])
    return [_column(ctx, count), boxes, scores, two(ctx, "Max", classes, 0)]


@OPERATORS(
    "EfficientNMS_ONNX_TRT",
    fields={
        "score_threshold": "float", "iou_threshold": "float", "max_output_boxes_per_class": "int",
        "center_point_box": "int",
    },
)  # fmt: skip
def efficient_nms_indices(ctx: Context) -> Value:
    """Inputs as those of EfficientNMS. Sample, class and box (b k, 3) int32 of at most
    `max_output_boxes_per_class` boxes a sample, k; the last one is repeated where there are fewer,
    -1 where there is none.

    As in TensorRT that number is that of all classes of a sample. It leaves open which sample
    comes first; here it is the first.
    """
    most = ctx.attr("max_output_boxes_per_class", -1)
    if most < 1:
        ctx.fail(f"its max_output_boxes_per_class is {most}", do="Set it to 1 or more")
    _, _, _, classes, places = ctx.layers(
        "tactix.CombinedSuppression",
        [_efficient_boxes(ctx, "center_point_box"), _scores(ctx)],
        rows=most,
        score_threshold=ctx.attr("score_threshold", 0.5),
        overlap_threshold=ctx.attr("iou_threshold", 0.5),
        inclusive=True,
        candidates=CANDIDATES,
        class_rows=most,
    )
    batch = classes.spec.shape[0]
    samples = ctx.cast(counting(ctx, batch, 0, 2), DType.INT32)
    filled = two(ctx, "Less", ctx.scalar(-1, places), places)
    samples = ctx.layer("tactix.Where", [filled, samples, ctx.scalar(-1, places)])
    listed = [ctx.reshape(x, (batch * most, 1)) for x in (samples, classes, places)]
    rows = ctx.layer("tactix.Concat", listed, axis=1)
    return ctx.layer(
        "tactix.Gather", [rows, _filled_first(ctx, ctx.reshape(filled, (batch * most,)))], axis=0
    )


def _filled_first(ctx: Context, filled: Value) -> Value:
    """Places of what is filled, in order; then the last of them again and again."""
    (n,) = filled.spec.shape
    number = ctx.cast(filled, DType.INT64)
    # What is filled ranks above all else, and TopK takes equals as they come.
    _, order = ctx.layers("tactix.TopK", [number], k=n, axis=0)
    total = ctx.layer("tactix.ReduceSum", [number], axes=(0,), keepdims=True)
    last = two(ctx, "Max", two(ctx, "Sub", total, 1), 0)
    return ctx.layer(
        "tactix.Gather", [order, ctx.layer("tactix.Min", [counting(ctx, n, 0, 1), last])], axis=0
    )


# -- BatchedNMS ------------------------------------------------------------------------------------

BATCHED = {
    "shareLocation": "int", "backgroundLabelId": "int", "numClasses": "int", "topK": "int",
    "keepTopK": "int", "scoreThreshold": "float", "iouThreshold": "float", "isNormalized": "int",
    "clipBoxes": "int", "scoreBits": "int", "caffeSemantics": "int",
}  # fmt: skip


@OPERATORS("BatchedNMS_TRT", "BatchedNMSDynamic_TRT", fields=BATCHED, outputs=4)
def batched_nms(ctx: Context) -> list[Value]:
    """Inputs boxes (b, n, 1 or classes, 4), scores (b, n, classes). Counts (b, 1) int32, boxes,
    scores and classes, as floats, of the best `keepTopK`; 0 and class -1 where there are fewer.
    """
    ctx.ignore("shareLocation", "numClasses", "scoreBits")
    normalized = bool(ctx.attr("isNormalized", 1))
    if not ctx.attr("caffeSemantics", 1) and not normalized:
        ctx.fail("caffeSemantics 0 with pixels is not supported", do="Give normalized boxes")
    fields = {
        "rows": ctx.attr("keepTopK", 0),
        "score_threshold": ctx.attr("scoreThreshold", 0.0),
        "overlap_threshold": ctx.attr("iouThreshold", 0.0),
        "background": ctx.attr("backgroundLabelId", -1),
        "class_candidates": max(ctx.attr("topK", 0), 0),
    }
    clips = bool(ctx.attr("clipBoxes", 1))
    count, boxes, scores, classes = _batched(ctx, normalized, clips, fields)
    return [_column(ctx, count), boxes, scores, ctx.cast(classes, boxes.spec.dtype)]


def _by_class(
    ctx: Context, boxes: Value, scores: Value, normalized: bool, fields: dict[str, Any]
) -> tuple[Value, ...]:
    """Suppression among the best of each class, as BatchedNMS and NMS do it."""
    unit = 0.0 if normalized else 1.0
    inputs = [boxes, scores]
    return ctx.layers("tactix.CombinedSuppression", inputs, unit=unit, classes_first=True, **fields)


def _batched(
    ctx: Context, normalized: bool, clips: bool, fields: dict[str, Any]
) -> tuple[Value, Value, Value, Value]:
    """Counts, boxes, scores and classes of a BatchedNMS, whatever names its attributes have."""
    count, boxes, scores, classes, _ = _by_class(ctx, _boxes(ctx), _scores(ctx), normalized, fields)
    if clips:
        boxes = ctx.layer("tactix.Clip", [boxes], min=0.0, max=1.0)
    return count, boxes, scores, classes


MMDEPLOY = {
    "background_label_id": "int", "num_classes": "int", "topk": "int", "keep_topk": "int",
    "score_threshold": "float", "iou_threshold": "float", "is_normalized": "int",
    "clip_boxes": "int", "return_index": "int",
}  # fmt: skip


@OPERATORS(also=("TRTBatchedNMS",), fields=MMDEPLOY, domains=(*ANY, "mmcv"), outputs=2)
def batched_nms_of_mmdeploy(ctx: Context) -> list[Value]:
    """BatchedNMS as mmdeploy writes it: boxes with their scores (b, `keep_topk`, 5) and classes
    int32.
    """
    ctx.ignore("num_classes")
    if ctx.attr("return_index", 0):
        ctx.fail("return_index is not supported", do="Export without indices")
    fields = {
        "rows": ctx.attr("keep_topk", 0),
        "score_threshold": ctx.attr("score_threshold", 0.0),
        "overlap_threshold": ctx.attr("iou_threshold", 0.0),
        "background": ctx.attr("background_label_id", -1),
        "class_candidates": max(ctx.attr("topk", 0), 0),
    }
    normalized = bool(ctx.attr("is_normalized", 1))
    clips = bool(ctx.attr("clip_boxes", 0))
    _, boxes, scores, classes = _batched(ctx, normalized, clips, fields)
    column = ctx.reshape(ctx.cast(scores, boxes.spec.dtype), (*scores.spec.shape, 1))
    return [ctx.layer("tactix.Concat", [boxes, column], axis=2), classes]


# -- NMS -------------------------------------------------------------------------------------------

CORNER, CENTER_SIZE, CORNER_SIZE, TF_CENTER = range(4)
"""How corrections of boxes are coded: TensorRT's CodeTypeSSD."""

DETECTIONS = {
    "shareLocation": "int", "varianceEncodedInTarget": "int", "backgroundLabelId": "int",
    "numClasses": "int", "topK": "int", "keepTopK": "int", "confidenceThreshold": "float",
    "nmsThreshold": "float", "inputOrder": "ints", "confSigmoid": "int", "isNormalized": "int",
    "codeType": "int", "scoreBits": "int", "isBatchAgnostic": "int",
}  # fmt: skip


@OPERATORS("NMS_TRT", "NMSDynamic_TRT", fields=DETECTIONS, outputs=2)
def detection_output(ctx: Context) -> list[Value]:
    """Inputs corrections (b, n q 4, 1, 1), scores (b, n classes, 1, 1), priors and their variances
    (b, 2, n 4, 1), in `inputOrder`. Sample, class, score and box (b, 1, `keepTopK`, 7), class -1
    where there are fewer; counts (b, 1, 1, 1), the bits of an int32 in a float32.
    """
    ctx.ignore("scoreBits")
    corrections, scores, priors = (ctx.tensor(i) for i in ctx.attr("inputOrder", (0, 1, 2)))
    classes, batch = ctx.attr("numClasses"), corrections.spec.shape[0]
    shared = 1 if ctx.attr("shareLocation", 1) else classes
    n = floordiv(priors.spec.shape[2], 4)
    boxes = _from_priors(ctx, ctx.reshape(corrections, (batch, n, shared, 4)), priors)
    scores = ctx.reshape(scores, (batch, n, classes))
    if ctx.attr("confSigmoid", 0):
        scores = ctx.layer("tactix.Sigmoid", [scores])
    fields = {
        "rows": ctx.attr("keepTopK", 0),
        "score_threshold": ctx.attr("confidenceThreshold", 0.0),
        "overlap_threshold": ctx.attr("nmsThreshold", 0.0),
        "background": ctx.attr("backgroundLabelId", -1),
        "class_candidates": max(ctx.attr("topK", 0), 0),
    }
    found = _by_class(ctx, boxes, scores, bool(ctx.attr("isNormalized", 1)), fields)
    return [_table(ctx, *found[1:4]), _bits(ctx, found[0])]


def _from_priors(ctx: Context, corrections: Value, priors: Value) -> Value:
    """Boxes (b, n, q, 4) by corners."""
    batch, _, four_n, *_ = priors.spec.shape
    both = ctx.reshape(priors, (batch, 2, floordiv(four_n, 4), 1, 4))
    if ctx.attr("isBatchAgnostic", 1):
        both = ctx.layer("tactix.Slice", [both], begins=(0,), sizes=(1,), axes=(0,), steps=(1,))
    prior, variance = (
        ctx.reshape(x, (both.spec.shape[0], floordiv(four_n, 4), 1, 4))
        for x in ctx.layers("tactix.Split", [both], axis=1, sizes=(1, 1))
    )
    coding = ctx.attr("codeType", CORNER)
    if coding == TF_CENTER:  # y before x, and variances always
        swapped = ctx.constant(np.array([1, 0, 3, 2]))
        corrections = ctx.layer("tactix.Gather", [corrections, swapped], axis=3)
    if not ctx.attr("varianceEncodedInTarget", 0) or coding == TF_CENTER:
        corrections = two(ctx, "Mul", corrections, variance)
    low, high = columns(ctx, prior, 2, 2)
    size = two(ctx, "Sub", high, low)
    if coding == CORNER:
        return two(ctx, "Add", prior, corrections)
    if coding == CORNER_SIZE:
        both_sizes = ctx.layer("tactix.Concat", [size, size], axis=3)
        return two(ctx, "Add", prior, two(ctx, "Mul", corrections, both_sizes))
    if coding not in (CENTER_SIZE, TF_CENTER):
        ctx.fail(f"its codeType {coding} is not supported", do="Give one from 0 to 3")
    moved, grown = columns(ctx, corrections, 2, 2)
    centre = two(ctx, "Mul", two(ctx, "Add", low, high), 0.5)
    parts = [
        two(ctx, "Add", two(ctx, "Mul", moved, size), centre),
        two(ctx, "Mul", ctx.layer("tactix.Exp", [grown]), size),
    ]
    return corners(ctx, ctx.layer("tactix.Concat", parts, axis=3))


def _table(ctx: Context, boxes: Value, scores: Value, classes: Value) -> Value:
    """Rows (b, 1, k, 7) of sample, class, score and box, which is kept within 0 and 1."""
    batch, rows, _ = boxes.spec.shape
    dtype, shape = boxes.spec.dtype, (batch, 1, rows, 1)
    sample = ctx.cast(counting(ctx, batch, 0, 4), dtype)
    parts = [
        ctx.layer("tactix.Expand", [sample], shape=shape),
        ctx.reshape(ctx.cast(classes, dtype), shape),
        ctx.reshape(ctx.cast(scores, dtype), shape),
        ctx.reshape(ctx.layer("tactix.Clip", [boxes], min=0.0, max=1.0), (batch, 1, rows, 4)),
    ]
    return ctx.layer("tactix.Concat", parts, axis=3)


def _bits(ctx: Context, count: Value) -> Value:
    """An int32 (b,) as float32 (b, 1, 1, 1) of the same bits."""
    wide = ctx.reshape(count, (count.spec.shape[0], 1, 1, 1))
    return ctx.layer("tactix.BitCast", [wide], to=DType.FP32)


# -- priors ----------------------------------------------------------------------------------------

PRIORS = {
    "minSize": "floats", "maxSize": "floats", "aspectRatios": "floats", "flip": "int",
    "clip": "int", "variance": "floats", "imgH": "int", "imgW": "int", "stepH": "float",
    "stepW": "float", "offset": "float",
}  # fmt: skip


@OPERATORS("PriorBox_TRT", fields=PRIORS)
def prior_boxes(ctx: Context) -> Value:
    """Input a feature map (b, c, h, w), and perhaps the image. Prior boxes of every cell and their
    variances (b, 2, h w priors 4, 1), constants.
    """
    cells = [number(ctx, d, "feature map") for d in ctx.spec().shape[2:]]
    image = [float(ctx.attr(name, 0)) for name in ("imgH", "imgW")]
    if not all(image):
        image = [
            float(number(ctx, d, "image")) for d in ctx.spec(min(1, len(ctx.inputs) - 1)).shape[2:]
        ]
    steps = [
        ctx.attr(name, 0.0) or size / n
        for name, size, n in zip(("stepH", "stepW"), image, cells, strict=True)
    ]
    offset = ctx.attr("offset", 0.5)
    centres = [(np.arange(n) + offset) * step for n, step in zip(cells, steps, strict=True)]
    y, x = (a[..., None] for a in np.meshgrid(*centres, indexing="ij"))
    width, height = _prior_sizes(ctx)
    ends = [x - width / 2, y - height / 2, x + width / 2, y + height / 2]
    scales = (image[1], image[0]) * 2
    boxes = np.stack([e / s for e, s in zip(ends, scales, strict=True)], axis=-1)
    if ctx.attr("clip", 0):
        boxes = boxes.clip(0, 1)
    variance = np.broadcast_to(need_weights(ctx, "variance"), boxes.shape)
    both = np.stack([boxes, variance]).astype(np.float32).reshape(1, 2, -1, 1)
    made = ctx.constant(both)
    return ctx.layer("tactix.Expand", [made], shape=(ctx.spec().shape[0], *both.shape[1:]))


def _prior_sizes(ctx: Context) -> tuple[Any, Any]:
    """Widths and heights of a cell's priors: of every least size a square, one between it and the
    largest, and one of each ratio.
    """
    least, most, given = (weights(ctx, f) for f in ("minSize", "maxSize", "aspectRatios"))
    ratios = [1.0]
    for r in [] if given is None else given.tolist():
        if all(abs(r - known) >= 1e-6 for known in ratios):
            ratios += [r, 1 / r] if ctx.attr("flip", 1) else [r]
    ctx.ignore("flip")
    sizes: list[tuple[float, float]] = []
    for k, side in enumerate(
        need_weights(ctx, "minSize").tolist() if least is None else least.tolist()
    ):
        sizes.append((side, side))
        if most is not None and len(most):
            sizes.append((math.sqrt(side * most[k]),) * 2)
        sizes += [(side * math.sqrt(r), side / math.sqrt(r)) for r in ratios[1:]]
    width, height = np.array(sizes).T
    return width, height
