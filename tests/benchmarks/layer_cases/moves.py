"""Layers that move or make elements."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from layer_cases.case import IMAGE, ODD, WORDS, Case, halved, longs, scalar


def moves() -> Iterator[Case]:
    yield from halved(
        [
            Case("Transpose", ("f32[8,128,12,64]",), {"perm": [0, 2, 1, 3]}, "heads"),
            Case("Transpose", ("f32[512,512]",), {"perm": [1, 0]}, "matrix"),
            Case("Transpose", ("f32[127,129]",), {"perm": [1, 0]}, "odd matrix"),
            Case("Transpose", (IMAGE,), {"perm": [0, 2, 3, 1]}, "channels last"),
            Case("Transpose", ("f32[1,56,56,64]",), {"perm": [0, 3, 1, 2]}, "channels first"),
            Case("Transpose", ("f32[17,18,19,20]",), {"perm": [3, 2, 1, 0]}, "reverse"),
        ]
    )
    yield Case("Transpose", ("u8[1,112,112,3]",), {"perm": [0, 3, 1, 2]}, "pixels")
    yield Case("Transpose", ("i64[256,256]",), {"perm": [1, 0]}, "matrix")
    yield from halved([Case("Concat", (IMAGE, IMAGE), {"axis": 1}, "channels")])
    yield Case("Concat", (WORDS, WORDS), {"axis": -1}, "last axis")
    yield Case("Concat", (ODD,) * 5, {"axis": 0}, "five")
    yield Case("Concat", ("f32[33,127]", "f32[33,1]"), {"axis": 1}, "odd")
    yield from halved([Case("Split", (WORDS,), {"axis": -1, "num_outputs": 3}, "last axis", 3)])
    yield Case("Split", (IMAGE,), {"axis": 1, "num_outputs": 2}, "channels", 2)
    yield from halved([Case("Slice", (WORDS, longs(16), longs(100), longs(1)), {}, "middle axis")])
    yield Case("Slice", (WORDS, longs(64), longs(704), longs(2)), {}, "last axis")
    yield Case("Slice", (WORDS, longs(2), longs(7), longs(0)), {}, "first axis")
    yield Case("Slice", (IMAGE, longs(0, 0), longs(56, 56), longs(2, 3), longs(2, 2)), {}, "steps")
    yield Case("Slice", (WORDS, longs(-1), longs(-1000), longs(1), longs(-1)), {}, "backwards")
    yield Case("Slice", (WORDS, "i64[1] 16:17", "i64[1] 100:101", longs(1)), {}, "by inputs")
    yield from halved([Case("Reshape", (WORDS, longs(8, 128, 12, 64)))])
    sizes = "i64[2] 1024:1025"
    yield Case("Reshape", ("f32[8,128,1024]", sizes), note="by an input")
    for op, more in (("Flatten", ()), ("Squeeze", (longs(0),)), ("Unsqueeze", (longs(0),))):
        yield Case(op, (IMAGE, *more))
    yield from halved([Case("Expand", ("f32[8,1,768]", longs(8, 128, 768)), note="middle axis")])
    yield Case("Expand", ("f32[512,1]", longs(512, 512)), note="last axis")
    yield Case("Expand", ("f32[1,129]", longs(7, 33, 129)), note="rows")
    yield from halved([Case("Tile", ("f32[64,129]", longs(4, 3)))])
    yield Case("Tile", ("f32[1,64,28,28]", longs(8, 1, 1, 1)), note="first axis")
    for mode in ("constant", "edge", "reflect", "wrap"):
        yield from halved(
            [Case("Pad", (IMAGE, longs(0, 0, 1, 1, 0, 0, 1, 1)), {"mode": mode}, mode)]
        )
        yield Case("Pad", (ODD, longs(0, 1, 2, 0, 2, 3)), {"mode": mode}, mode)
    for a, b in (("f32", "f16"), ("f16", "f32"), ("f32", "i64"), ("i64", "f32"), ("f32", "u8"), ("u8", "f32"),
                 ("f32", "f64"), ("f64", "f32"), ("bool", "f32"), ("f32", "bool"), ("i32", "i64")):  # fmt: skip
        to = {"f32": 1, "f16": 10, "f64": 11, "i64": 7, "i32": 6, "u8": 2, "bool": 9}[b]
        low = " 0:200" if b == "u8" else ""
        yield Case("Cast", (f"{a}[1,64,56,56]{low}",), {"to": to}, f"to {b}")
    yield Case("BitCast", (IMAGE,), {"to": 6}, opset=26)
    yield from halved(
        [
            Case(
                "ReverseSequence",
                ("f32[128,16,256]", "i64[16] 1:129"),
                {"time_axis": 0, "batch_axis": 1},
            )
        ]
    )
    yield Case(
        "ReverseSequence",
        ("f32[16,128,64]", "i64[16] 1:129"),
        {"time_axis": 1, "batch_axis": 0},
        "batch first",
    )
    yield from halved([Case("Trilu", ("f32[12,128,128]", scalar(0, np.int64)), {"upper": 0})])
    yield Case(
        "com.microsoft::Trilu", ("f32[12,128,128]", scalar(0, np.int64)), {"upper": 1}, "upper"
    )
    yield Case("EyeLike", ("f32[512,512]",))
    yield Case("ConstantOfShape", ("i64[2] 512:513",))
    yield Case(
        "Range", (scalar(0, np.int64), "i64[] 65536:65537", scalar(1, np.int64)), note="integers"
    )
    yield Case("Dropout", (IMAGE,))
