"""Convolutions and pools."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from layer_cases.case import IMAGE, Case, halved


def _conv(note: str, x: str, w: str, **attrs: Any) -> Case:
    bias = f"= f32[{w.partition('[')[2].partition(',')[0]}]"
    return Case("Conv", (x, f"= {w}", bias), attrs, note, slack=16)


def convolutions() -> Iterator[Case]:
    same, wide = {"pads": [1] * 4}, {"pads": [2] * 4, "dilations": [2, 2]}
    yield from halved(
        [
            _conv("3x3", IMAGE, "f32[64,64,3,3]", **same),
            _conv("1x1", IMAGE, "f32[256,64,1,1]"),
        ]
    )
    yield _conv("1x1 in f16", "f16[1,64,56,56]", "f16[64,64,1,1]").in_half()
    yield _conv("1x1 stride 2", "f32[1,256,56,56]", "f32[128,256,1,1]", strides=[2, 2])
    yield _conv("3x3 stride 2", IMAGE, "f32[128,64,3,3]", strides=[2, 2], **same)
    yield _conv("3x3 small planes", "f32[1,512,7,7]", "f32[512,512,3,3]", **same)
    yield _conv("3x3 batch 8", "f32[8,64,14,14]", "f32[64,64,3,3]", **same)
    yield _conv("3x3 odd", "f32[1,33,27,29]", "f32[35,33,3,3]", **same)
    yield _conv("3x3 dilated", "f32[1,64,28,28]", "f32[64,64,3,3]", **wide)
    yield _conv("5x5", "f32[1,32,28,28]", "f32[32,32,5,5]", pads=[2] * 4)
    yield _conv("7x7 stem", "f32[1,3,112,112]", "f32[64,3,7,7]", pads=[3] * 4, strides=[2, 2])
    yield _conv("16x16 patches", "f32[1,3,112,112]", "f32[192,3,16,16]", strides=[16, 16])
    yield _conv("1x7", "f32[1,64,17,17]", "f32[64,64,1,7]", pads=[0, 3, 0, 3])
    yield _conv("groups of 4", "f32[1,64,28,28]", "f32[64,16,3,3]", group=4, **same)
    yield _conv("groups of 32", "f32[1,128,28,28]", "f32[128,4,3,3]", group=32, **same)
    for note, x, c, k, attrs in (
        ("3x3", "f32[1,96,56,56]", 96, 3, {}), ("3x3 stride 2", "f32[1,96,56,56]", 96, 3, {"strides": [2, 2]}),
        ("5x5", "f32[1,96,28,28]", 96, 5, {}), ("7x7", "f32[1,96,28,28]", 96, 7, {}),
        ("3x3 odd", "f32[1,37,29,31]", 37, 3, {}), ("3x3 dilated", "f32[1,64,28,28]", 64, 3, {"dilations": [2, 2]}),
    ):  # fmt: skip
        pad = k // 2 * attrs.get("dilations", [1])[0]
        yield _conv(f"depthwise {note}", x, f"f32[{c},1,{k},{k}]", group=c, pads=[pad] * 4, **attrs)
    yield _conv("depthwise x2", "f32[1,32,56,56]", "f32[64,1,3,3]", group=32, **same)
    yield _conv("1-D", "f32[1,64,512]", "f32[64,64,3]", pads=[1, 1])
    yield _conv("1-D 1x1", "f32[1,64,512]", "f32[128,64,1]")
    yield _conv("1-D dilated", "f32[1,64,512]", "f32[64,64,3]", pads=[4, 4], dilations=[4])
    yield _conv("1-D depthwise", "f32[1,256,512]", "f32[256,1,5]", group=256, pads=[2, 2])
    yield _conv("1-D stem", "f32[1,1,16000]", "f32[64,1,10]", strides=[5])
    yield _conv("3-D", "f32[1,16,8,28,28]", "f32[16,16,3,3,3]", pads=[1] * 6)
    yield _conv("3-D 1x1", "f32[1,32,8,28,28]", "f32[32,32,1,1,1]")
    yield _conv("3-D depthwise", "f32[1,16,8,28,28]", "f32[16,1,3,3,3]", group=16, pads=[1] * 6)
    yield Case("Conv", ("f32[1,32,28,28]", "f32[32,32,3,3]"), same, "computed weights", slack=16)
    for note, x, w, attrs in (
        ("2x2 stride 2", "f32[1,64,28,28]", "f32[64,32,2,2]", {"strides": [2, 2]}),
        ("4x4 stride 2", "f32[1,64,28,28]", "f32[64,32,4,4]", {"strides": [2, 2], "pads": [1] * 4}),
        ("3x3", "f32[1,64,28,28]", "f32[64,32,3,3]", {"pads": [1] * 4}),
        ("3x3 stride 2 odd", "f32[1,33,15,17]", "f32[33,17,3,3]", {"strides": [2, 2], "output_padding": [1, 1]}),
        ("groups", "f32[1,64,28,28]", "f32[64,16,4,4]", {"strides": [2, 2], "group": 2}),
        ("depthwise", "f32[1,64,28,28]", "f32[64,1,4,4]", {"strides": [2, 2], "pads": [1] * 4, "group": 64}),
        ("1-D", "f32[1,64,256]", "f32[64,32,16]", {"strides": [8], "pads": [4, 4]}),
        ("3-D", "f32[1,16,8,14,14]", "f32[16,16,2,2,2]", {"strides": [2, 2, 2]}),
    ):  # fmt: skip
        yield from halved([Case("ConvTranspose", (x, f"= {w}"), attrs, note, slack=16)])
    offsets = "f32[1,18,28,28] -1:1"
    yield from halved(
        [Case("DeformConv", ("f32[1,32,28,28]", "= f32[32,32,3,3]", offsets), same, slack=16)]
    )
    fused = (IMAGE, "= f32[64,64,3,3]", "= f32[64]")
    yield Case("com.microsoft::FusedConv", fused, {"activation": "Relu", **same}, slack=16)


def pools() -> Iterator[Case]:
    for op in ("MaxPool", "AveragePool", "LpPool"):
        yield from halved(
            [Case(op, (IMAGE,), {"kernel_shape": [2, 2], "strides": [2, 2]}, "2x2", slack=4)]
        )
        yield Case(op, (IMAGE,), {"kernel_shape": [3, 3], "pads": [1] * 4}, "3x3", slack=4)
        yield Case(
            op,
            (IMAGE,),
            {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4},
            "3x3 stride 2",
            slack=4,
        )
        yield Case(
            op, ("f32[1,33,27,29]",), {"kernel_shape": [3, 2], "strides": [2, 1]}, "odd", slack=4
        )
        yield Case(op, ("f32[1,64,512]",), {"kernel_shape": [4], "strides": [4]}, "1-D", slack=4)
        yield Case(
            op,
            ("f32[1,16,8,28,28]",),
            {"kernel_shape": [2] * 3, "strides": [2] * 3},
            "3-D",
            slack=4,
        )
    yield Case(
        "AveragePool",
        ("f32[1,64,28,28]",),
        {"kernel_shape": [7, 7], "strides": [7, 7]},
        "7x7",
        slack=4,
    )
    yield Case(
        "AveragePool",
        (IMAGE,),
        {"kernel_shape": [3, 3], "pads": [1] * 4, "count_include_pad": 1},
        "padded",
    )
    yield Case(
        "MaxPool", ("f32[1,64,28,28]",), {"kernel_shape": [13, 13], "pads": [6] * 4}, "13x13"
    )
    yield Case("MaxPool", (IMAGE,), {"kernel_shape": [3, 3], "dilations": [2, 2]}, "dilated")
    yield Case("MaxPool", (IMAGE,), {"kernel_shape": [2, 2], "strides": [2, 2]}, "indices", 2)
    yield Case("MaxPool", ("u8[1,64,56,56]",), {"kernel_shape": [2, 2], "strides": [2, 2]}, "2x2")
    for op in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"):
        shapes = (IMAGE, "f32[1,2048,7,7]")
        yield from halved(Case(op, (x,), opset=21, slack=8) for x in shapes)
    places = np.arange(64 * 28 * 28, dtype=np.int64).reshape(1, 64, 28, 28) * 4
    yield Case(
        "MaxUnpool", ("f32[1,64,28,28]", places), {"kernel_shape": [2, 2], "strides": [2, 2]}
    )
    boxes = np.array([[0, i, i, i + 20, i + 25] for i in range(16)], np.float32)
    yield Case("MaxRoiPool", (IMAGE, boxes), {"pooled_shape": [7, 7]}, opset=21)
