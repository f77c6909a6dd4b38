"""Layers, dtypes and sizes that no other family has: integers of all widths where floats are usual,
five and six axes, steps backwards, nothing at all, sizes that data tells, and one large tensor.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import numpy as np

from layer_cases.case import Case, floats, longs, scalar


def rare() -> Iterator[Case]:
    made = (_elements, _moves, _reductions, _products, _planes, _selections, _told)
    yield from chain.from_iterable(cases() for cases in made)


def _elements() -> Iterator[Case]:
    yield Case("Add", ("i64[33,1,129]", "i64[33,65,1]"), {}, "rare integers")
    yield Case("Mul", ("i8[64,1009]", "i8[1009]"), {}, "rare bytes")
    yield Case("Div", ("i32[257,131]", "i32[257,131] 1:50"), {}, "rare integers")
    yield Case("Div", ("i64[257,131]", "i64[131] 1:50"), {}, "rare integers")
    yield Case("Mod", ("i32[257,131]", "i32[131] 1:50"), {}, "rare integers")
    yield Case("Mod", ("f32[257,131]", "f32[131] 1:50"), {"fmod": 1}, "rare fmod")
    yield Case("Abs", ("i8[7,33,1031]",), {}, "rare bytes")
    yield Case("Sign", ("i64[131,257]",), {}, "rare integers")
    yield Case("Less", ("f16[13,1,257]", "f16[1,31,257]"), {}, "rare halves")
    yield Case("Equal", ("i64[509,1]", "i64[1,129]"), {}, "rare all pairs")
    yield Case("And", ("bool[31,65,33]", "bool[65,1]"), {}, "rare column")
    yield Case("Xor", ("bool[100003]", "bool[100003]"), {}, "rare long")
    yield Case("Where", ("bool[129,257]", "i64[129,1]", "i64[257]"), {}, "rare integers")
    yield Case("BitShift", ("u8[333,333]", "u8[333,333] 0:8"), {"direction": "LEFT"}, "rare")
    yield Case("Clip", ("i32[333,333]", scalar(-9, np.int32), scalar(33, np.int32)), {}, "rare")
    yield Case("Cast", ("f16[37,1009]",), {"to": 7}, "rare f16 to i64")
    yield Case("Cast", ("i8[37,1009]",), {"to": 1}, "rare i8 to f32")
    yield Case("Cast", ("i64[37,1009]",), {"to": 9}, "rare i64 to bool")
    yield Case("Add", ("f32[0,129]", "f32[129]"), {}, "rare nothing")
    yield Case("Relu", ("f32[4099,1021]",), {}, "rare large", slack=1)
    yield Case("CumSum", ("i64[65,1003]", scalar(1, np.int64)), {}, "rare rows")
    yield Case("CumSum", ("f32[65,31,33]", scalar(0, np.int64)), {"reverse": 1}, "rare first", slack=8)  # fmt: skip


def _moves() -> Iterator[Case]:
    yield Case("Transpose", ("i64[7,11,13,17,3]",), {"perm": [4, 2, 0, 3, 1]}, "rare five axes")
    yield Case("Transpose", ("bool[129,65,31]",), {"perm": [2, 1, 0]}, "rare bools")
    yield Case("Transpose", ("i8[1,33,57,59]",), {"perm": [0, 2, 3, 1]}, "rare bytes")
    yield Case("Transpose", ("f16[3,5,7,11,2,13]",), {"perm": [5, 3, 1, 0, 2, 4]}, "rare six axes")
    back = (longs(-1, -1), longs(-10000, -10000), longs(1, 2), longs(-2, -3))
    yield Case("Slice", ("f32[33,65,131]", *back), {}, "rare two steps back")
    rows = (longs(-1), longs(-10000), longs(0), longs(-1))
    yield Case("Slice", ("i8[1021,333]", *rows), {}, "rare rows back")
    yield Case("Slice", ("i64[5,9,1001]", longs(3), longs(999), longs(2), longs(7)), {}, "rare step 7")  # fmt: skip
    yield Case("Concat", ("i8[33,1]", "i8[33,2]", "i8[33,127]"), {"axis": 1}, "rare bytes")
    yield Case("Concat", ("i64[7,3,65]", "i64[7,5,65]", "i64[7,1,65]"), {"axis": 1}, "rare middle")
    yield Case("Split", ("i32[65,333]", longs(1, 31, 33)), {"axis": 0}, "rare uneven", 3)
    yield Case("Split", ("f16[65,333]", longs(1, 299, 33)), {"axis": 1}, "rare uneven", 3)
    yield Case("Pad", ("i64[33,65]", longs(1, 3, 2, 5)), {}, "rare integers")
    yield Case("Pad", ("f32[5,7,33,31]", longs(0, 0, -3, -5, 0, 0, 2, 4)), {}, "rare cut")
    yield Case("Tile", ("i8[7,1,13]", longs(3, 65, 5)), {}, "rare bytes")
    yield Case("Expand", ("i64[7,1,1,5]", longs(7, 31, 17, 5)), {}, "rare middle")
    yield Case("DepthToSpace", ("i8[1,48,31,33]",), {"blocksize": 4}, "rare bytes")
    yield Case("SpaceToDepth", ("f16[2,5,34,62]",), {"blocksize": 2}, "rare halves")
    yield Case("GatherElements", ("i64[65,333]", "i64[65,333] -333:333"), {"axis": 1}, "rare negative")  # fmt: skip
    yield Case("Gather", ("bool[333,65]", "i32[513] -65:65"), {"axis": 1}, "rare bools")
    yield Case("Trilu", ("i64[7,129,131]", scalar(-3, np.int64)), {"upper": 0}, "rare integers")


def _reductions() -> Iterator[Case]:
    for op, x, axes in (
        ("ReduceSum", "i64[65,33,31]", (0, 2)),
        ("ReduceSum", "i32[1021,7]", (1,)),
        ("ReduceMax", "i8[333,333]", (1,)),
        ("ReduceMin", "i64[65,1003]", (1,)),
        ("ReduceMean", "f16[7,5,31,3,33]", (1, 3)),
        ("ReduceProd", "f32[513,5]", (1,)),
        ("ReduceL2", "f32[5,65,7,31]", (0, 2)),
        ("ReduceMax", "f32[20011,5]", (1,)),
        ("ReduceSum", "f32[20011,2]", (1,)),
    ):
        words = f"rare axes {' '.join(map(str, axes))}"
        yield Case(op, (x, longs(*axes)), {"keepdims": 0}, words, slack=16)
    yield Case("ArgMax", ("i8[129,1021]",), {"axis": 1}, "rare bytes")
    yield Case("ArgMin", ("i64[65,33,31]",), {"axis": 1}, "rare integers")
    yield Case("Softmax", ("f32[20011,5]",), {"axis": 1}, "rare short rows", slack=4)
    yield Case("LogSoftmax", ("f32[33,7,129]",), {"axis": 1}, "rare middle", slack=4)
    yield Case(
        "LayerNormalization", ("f32[4099,3]", "f32[3]", "f32[3]"), {}, "rare three", slack=16
    )


def _products() -> Iterator[Case]:
    yield Case("MatMul", ("i32[65,129]", "i32[129,33]"), {}, "rare integers")
    yield Case("MatMul", ("f32[7,1,5,33]", "f32[1,11,33,3]"), {}, "rare batches", slack=16)
    yield Case("MatMul", ("f32[1031]", "f32[1031,257]"), {}, "rare vector", slack=16)
    turned = {"transA": 1, "alpha": 0.5}
    given = "f32[257,65]", "f32[257,131]", "f32[131]"
    yield Case("Gemm", given, turned, "rare turned", slack=16)
    terms = {"equation": "bij,bjk->kbi"}
    yield Case("Einsum", ("f32[7,33,65]", "f32[7,65,5]"), terms, "rare turned", slack=16)


def _planes() -> Iterator[Case]:
    pads = [1, 0, 1, 0]
    yield Case("MaxPool", ("i8[1,37,33,31]",), {"kernel_shape": [3, 2], "pads": pads}, "rare bytes")
    window = {"kernel_shape": [2, 3, 3], "strides": [1, 2, 3]}
    yield Case("AveragePool", ("f32[1,5,9,21,33]",), window, "rare planes", slack=4)
    yield Case("GlobalMaxPool", ("f16[3,67,13,17]",), {}, "rare halves")
    yield Case(
        "Resize", ("u8[1,3,67,129]", "", floats(1, 1, 2, 3)), {"mode": "nearest"}, "rare bytes"
    )
    grid = "f32[2,33,31,2] -1:1"
    yield Case("GridSample", ("f32[2,5,17,19]", grid), {"mode": "nearest"}, "rare nearest")


def _selections() -> Iterator[Case]:
    yield Case("TopK", ("i8[129,1021]", longs(9)), {}, "rare bytes", 2)
    yield Case("TopK", ("i64[33,129,5] -99999:99999", longs(3)), {"axis": 1}, "rare integers", 2)
    yield Case("TopK", ("i32[7,5003] -99999:99999", longs(200)), {}, "rare many", 2)
    yield Case("Unique", ("i32[9001] -5000:5000",), {}, "rare integers", 4)
    yield Case("Unique", ("f32[9001]",), {"sorted": 0}, "rare as they come", 4)
    yield Case(
        "OneHot", ("i32[33,31] -7:7", scalar(7, np.int64), floats(-1, 2)), {"axis": 1}, "rare"
    )
    yield Case(
        "ScatterND", ("i64[333,7]", "i64[99,1] 0:333", "i64[99,7]"), {"reduction": "add"}, "rare"
    )


def _told() -> Iterator[Case]:
    """Sizes that are content."""
    yield Case("NonZero", ("i8[129,257] 0:2",), {}, "rare bytes")
    yield Case("Compress", ("i64[9001]", "bool[9001]"), {}, "rare integers")
    yield Case("Expand", ("f32[1,1]", "i64[2] 131:132"), {}, "rare by an input")
    yield Case("Tile", ("f32[33,31]", "i64[2] 3:4"), {}, "rare by an input")
    yield Case("Range", (scalar(0.5), "f32[] 5000:5001", scalar(0.25)), {}, "rare floats")
    yield Case(
        "Slice", ("i64[33,65,31]", "i64[2] 1:2", "i64[2] 29:30", longs(0, 2)), {}, "rare by inputs"
    )
    yield Case("Pad", ("f32[33,65]", "i64[4] 2:3"), {}, "rare by an input")
    yield Case("OneHot", ("i64[257] 0:33", "i64[] 33:34", floats(0, 1)), {}, "rare by an input")
