"""Sorting, selecting, gathering, scattering."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from layer_cases.case import Case, floats, halved, longs, scalar


def selection() -> Iterator[Case]:
    for note, x, k, attrs in (
        ("5 of 1000", "f32[64,1000]", 5, {}), ("100 of 1000", "f32[64,1000]", 100, {}),
        ("1 of 32000", "f32[4,32000]", 1, {}), ("50 of 32000", "f32[4,32000]", 50, {}),
        ("8 along the middle", "f32[8,64,129]", 8, {"axis": 1}), ("smallest", "f32[64,1000]", 5, {"largest": 0}),
        ("many short lines", "f32[512,64]", 5, {}),
    ):  # fmt: skip
        yield from halved([Case("TopK", (x, longs(k)), attrs, note, 2)])
    yield Case("TopK", ("i64[64,1000] 0:99999", longs(10)), {}, "integers", 2)
    yield Case("TopK", ("f32[64,1000]", longs(1000)), {}, "sort", 2)
    yield from halved([Case("NonZero", ("f32[256,256]",)), Case("NonZero", ("bool[256,256]",))])
    yield from halved([Case("Compress", ("f32[512,256]", "bool[512]"), {"axis": 0})])
    yield Case("Compress", ("f32[64,512]", "bool[512]"), {"axis": 1}, "last axis")
    yield Case("Unique", ("i64[16384] 0:1000",), {}, "integers", 4)
    yield Case("Unique", ("f32[4096]",), {}, "floats", 4)
    yield Case("Unique", ("i64[512,8] 0:3",), {"axis": 0}, "rows", 4)
    yield Case("com.microsoft::Unique", ("f32[4096]",), {}, "", 3)
    boxes, scores = "f32[1,1000,4] 0:1", "f32[1,4,1000] 0:1"
    limits = (longs(20), floats(0.5), floats(0.4))
    yield Case("NonMaxSuppression", (boxes, scores, *limits), {"center_point_box": 1})
    yield Case("OneHot", ("i64[512] 0:512", scalar(512, np.int64), floats(0, 1)))
    yield Case(
        "OneHot",
        ("i64[64,64] 0:32", scalar(32, np.int64), floats(0, 1)),
        {"axis": 1},
        "middle axis",
    )


def gathers() -> Iterator[Case]:
    yield from halved([Case("Gather", ("f32[4096,256]", "i64[512] 0:4096"), {}, "rows")])
    yield Case("Gather", ("= f32[8192,768]", "i64[1,128] 0:8192"), {}, "table")
    yield Case("Gather", ("f32[256,1024]", "i64[512] 0:1024"), {"axis": 1}, "last axis")
    yield Case("Gather", ("f32[8,64,129]", "i64[33] 0:64"), {"axis": 1}, "middle axis")
    yield Case("Gather", ("i64[4096,16]", "i32[2048] 0:4096"), {}, "integers")
    places = "i64[256,512] 0:256"
    for axis in (0, 1):
        yield from halved(
            [Case("GatherElements", ("f32[256,512]", places), {"axis": axis}, f"axis {axis}")]
        )
    yield from halved([Case("GatherND", ("f32[64,64,128]", "i64[1024,2] 0:64"), {}, "rows")])
    yield Case("GatherND", ("f32[256,256]", "i64[8192,2] 0:256"), {}, "numbers")
    rows = "i64[256,512] 0:256"
    for reduction in ("none", "add", "max"):
        attrs = {"axis": 0, "reduction": reduction}
        unique = (
            np.tile(np.arange(256)[:, None], (1, 512)).astype(np.int64)
            if reduction == "none"
            else rows
        )
        yield from halved(
            [
                Case(
                    "ScatterElements",
                    ("f32[256,512]", unique, "f32[256,512]"),
                    attrs,
                    reduction,
                    slack=8,
                )
            ]
        )
        spots = np.random.default_rng(1).permutation(4096)[:512, None].astype(np.int64)
        scattered = (
            "f32[4096,256]",
            spots if reduction == "none" else "i64[512,1] 0:4096",
            "f32[512,256]",
        )
        yield from halved(
            [Case("ScatterND", scattered, {"reduction": reduction}, reduction, slack=8)]
        )
    ordered = np.tile(np.arange(256)[:, None], (1, 512)).astype(np.int64)
    yield Case("Scatter", ("f32[256,512]", ordered, "f32[256,512]"), {"axis": 0}, opset=10)
    yield Case("TensorScatter", ("f32[4,8,256,64]", "f32[4,8,16,64]", "i64[4] 0:200"))
    yield Case("ai.onnx.ml::ArrayFeatureExtractor", ("f32[512,256]", "i64[1,32] 0:256"))
