"""Resizing, sampling at points and in regions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from layer_cases.case import IMAGE, Case, floats, halved, longs


def sampling() -> Iterator[Case]:
    image = "f32[1,64,28,28]"
    twice, half, odd = floats(1, 1, 2, 2), floats(1, 1, 0.5, 0.5), floats(1, 1, 1.71, 1.37)
    for mode in ("nearest", "linear", "cubic"):
        resize = [
            Case("Resize", (image, "", scales), {"mode": mode, **more}, f"{mode} {note}", slack=8)
            for note, scales, more in (
                ("x2", twice, {}), ("/2", half, {}), ("x1.7", odd, {}),
                ("corners", twice, {"coordinate_transformation_mode": "align_corners"}),
                ("asymmetric", twice, {"coordinate_transformation_mode": "asymmetric"}),
            )
        ]  # fmt: skip
        yield from halved(resize)
        if mode != "nearest":
            yield Case(
                "Resize",
                (image, "", half),
                {"mode": mode, "antialias": 1},
                f"{mode} antialias",
                slack=8,
            )
    yield Case(
        "Resize",
        (image, "", "", longs(1, 64, 45, 37)),
        {"mode": "linear"},
        "linear to sizes",
        slack=8,
    )
    yield Case(
        "Resize",
        ("f32[1,8,8,28,28]", "", floats(1, 1, 2, 2, 2)),
        {"mode": "linear"},
        "trilinear",
        slack=8,
    )
    yield Case(
        "Resize",
        ("f32[1,56,56,64]", "", floats(1, 2, 2, 1)),
        {"mode": "linear"},
        "channels last",
        slack=8,
    )
    yield Case("Resize", ("u8[1,3,112,112]", "", twice), {"mode": "nearest"}, "nearest x2")
    yield Case("Upsample", (image, twice), {"mode": "nearest"}, opset=9)
    for mode, pads in (
        ("linear", "zeros"),
        ("linear", "border"),
        ("nearest", "zeros"),
        ("cubic", "reflection"),
    ):
        attrs = {"mode": mode, "padding_mode": pads}
        points = "f32[1,28,28,2] -1.1:1.1"
        yield from halved([Case("GridSample", (image, points), attrs, f"{mode} {pads}", slack=64)])
    volumes = ("f32[1,8,8,28,28]", "f32[1,8,28,28,3] -1.1:1.1")
    yield Case("GridSample", volumes, {"mode": "linear"}, "volumes", slack=64)
    yield from halved([Case("AffineGrid", ("f32[4,2,3]", longs(4, 3, 112, 112)), slack=8)])
    boxes = np.array([[i, i, i + 20, i + 25] for i in range(32)], np.float32)
    for mode in ("avg", "max"):
        attrs = {"mode": mode, "output_height": 7, "output_width": 7, "sampling_ratio": 2}
        yield Case(
            "RoiAlign", (IMAGE, boxes, np.zeros(32, np.int64)), attrs, mode, opset=21, slack=8
        )
    yield from halved(
        [Case("Col2Im", ("f32[1,576,784]", longs(28, 28), longs(3, 3)), {"pads": [1] * 4}, slack=8)]
    )
    for op in ("DepthToSpace", "SpaceToDepth"):
        yield from halved([Case(op, (IMAGE,), {"blocksize": 2})])
    yield Case("DepthToSpace", (IMAGE,), {"blocksize": 2, "mode": "CRD"}, "CRD")
