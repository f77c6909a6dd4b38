"""Shapes and attributes that no model of the benchmarks has: prime sizes, short and long rows, high
ranks, axes in the middle, duplicate indices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from layer_cases.case import Case, floats, longs, scalar


def odd_shapes() -> Iterator[Case]:
    made = (_convolutions, _pools, _moves, _broadcasts, _resizes, _selections, _indices)
    more = (_products, _recurrent, _norms, _reductions)
    yield from chain.from_iterable(cases() for cases in made + more)


def _both(case: Case) -> Iterator[Case]:
    yield case
    yield case.in_half()


def _convolutions() -> Iterator[Case]:
    for note, x, w, attrs in (
        ("prime channels", "f32[1,31,23,19]", "f32[37,31,3,3]", {"pads": [1] * 4}),
        ("prime channels 1x1", "f32[2,61,13,17]", "f32[67,61,1,1]", {}),
        ("one pixel", "f32[1,128,1,1]", "f32[131,128,1,1]", {}),
        ("tiny plane", "f32[1,256,3,3]", "f32[256,256,3,3]", {"pads": [1] * 4}),
        ("tiny plane to one", "f32[1,192,4,5]", "f32[96,192,4,5]", {}),
        ("two channels", "f32[1,2,128,128]", "f32[2,2,5,5]", {"pads": [2] * 4}),
        ("to one channel", "f32[1,48,64,64]", "f32[1,48,3,3]", {"pads": [1] * 4}),
        ("grouped stride dilated", "f32[1,60,31,29]", "f32[90,12,3,3]",
         {"group": 5, "strides": [2, 2], "dilations": [2, 2], "pads": [2] * 4}),
        ("stride 3 and 1", "f32[1,24,33,65]", "f32[40,24,4,3]", {"strides": [3, 1]}),
        ("long row", "f32[1,8,20011]", "f32[16,8,9]", {"pads": [4, 4]}),
        ("long row wide window", "f32[1,4,16384]", "f32[4,4,129]", {"pads": [64, 64]}),
        ("long depthwise row", "f32[1,37,4099]", "f32[37,1,31]", {"group": 37, "pads": [15, 15]}),
        ("depthwise stride 3", "f32[1,53,40,40]", "f32[53,1,5,5]", {"group": 53, "strides": [3, 3]}),
        ("depthwise 11x11", "f32[1,40,27,27]", "f32[40,1,11,11]", {"group": 40, "pads": [5] * 4}),
        ("planes stride 2", "f32[1,12,9,21,21]", "f32[20,12,3,3,3]", {"strides": [2, 2, 2], "pads": [1] * 6}),
    ):  # fmt: skip
        yield from _both(_conv(note, x, w, attrs))
    for note, x, w, attrs in (
        ("stride 3", "f32[1,31,17,13]", "f32[31,23,5,5]", {"strides": [3, 3]}),
        ("groups dilated", "f32[1,48,15,15]", "f32[48,8,3,3]", {"group": 3, "dilations": [2, 2]}),
        ("stride 2 and 1", "f32[1,40,12,40]", "f32[40,24,4,3]", {"strides": [2, 1], "pads": [1] * 4}),
        ("long row", "f32[1,16,2003]", "f32[16,8,7]", {"strides": [4]}),
    ):  # fmt: skip
        yield from _both(Case("ConvTranspose", (x, f"= {w}"), attrs, f"odd {note}", slack=16))


def _conv(note: str, x: str, w: str, attrs: dict[str, Any]) -> Case:
    return Case("Conv", (x, f"= {w}"), attrs, f"odd {note}", slack=16)


def _pools() -> Iterator[Case]:
    for op in ("MaxPool", "AveragePool"):
        for note, x, attrs in (
            ("5x3 stride 3", "f32[1,29,61,47]", {"kernel_shape": [5, 3], "strides": [3, 2], "pads": [2, 1, 2, 1]}),
            ("long row", "f32[1,7,30011]", {"kernel_shape": [5], "strides": [1], "pads": [2, 2]}),
            ("ceil", "f32[1,31,30,30]", {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
        ):  # fmt: skip
            yield from _both(Case(op, (x,), attrs, note, slack=4))


def _moves() -> Iterator[Case]:
    for x, perm in (
        ("f32[3,5,7,11,13]", [4, 2, 0, 3, 1]),
        ("f32[2,3,4,5,6,7]", [5, 3, 1, 4, 2, 0]),
        ("f32[4,6,8,10,12,14]", [0, 2, 4, 1, 3, 5]),
        ("f32[16,9,31,33]", [2, 0, 3, 1]),
        ("f32[100003,3]", [1, 0]),
        ("f32[3,100003]", [1, 0]),
        ("f32[64,3,3,65]", [3, 0, 1, 2]),
    ):
        yield from _both(Case("Transpose", (x,), {"perm": perm}, "odd"))
    yield Case("Transpose", ("u8[31,17,64]",), {"perm": [1, 2, 0]}, "odd")
    yield Case("Transpose", ("i64[7,9,11,13,5]",), {"perm": [3, 0, 4, 1, 2]}, "odd")
    ends = longs(-1, -1), longs(-1000, -1000)
    for note, x, bounds in (
        ("both backwards", "f32[31,63,65]", (*ends, longs(1, 2), longs(-1, -1))),
        ("last by -3", "f32[64,1001]", (longs(-1), longs(-10000), longs(1), longs(-3))),
        ("last by 3", "f32[64,1001]", (longs(1), longs(1000), longs(1), longs(3))),
        ("middle by -2", "f32[16,65,127]", (longs(-1), longs(-1000), longs(1), longs(-2))),
        ("five axes", "f32[5,6,7,8,9]", (longs(1, 1, 1, 1, 1), longs(5, 6, 7, 8, 9), longs(0, 1, 2, 3, 4))),
    ):  # fmt: skip
        yield from _both(Case("Slice", (x, *bounds), {}, note))
    yield from _both(
        Case("Concat", ("f32[31,3,17]", "f32[31,1,17]", "f32[31,5,17]"), {"axis": 1}, "middle")
    )
    yield from _both(Case("Concat", ("f32[4099,1]",) * 7, {"axis": 1}, "columns"))
    yield from _both(Case("Split", ("f32[63,11,31]", longs(2, 7, 1, 1)), {"axis": 1}, "uneven", 4))
    yield from _both(Case("Tile", ("f32[7,5,3,2]", longs(2, 3, 5, 7)), {}, "four axes"))
    yield from _both(Case("Expand", ("f32[3,1,5,1,7]", longs(3, 11, 5, 13, 7)), {}, "two axes"))
    yield from _both(Case("Pad", ("f32[7,9,11,13]", longs(1, 2, 3, 4, 4, 3, 2, 1)), {}, "all axes"))
    yield Case("Pad", ("f32[31,33,35]", longs(-1, 3, -2, 2, -4, 5)), {}, "cuts")
    blocks = {"blocksize": 3}
    yield from _both(Case("DepthToSpace", ("f32[1,63,19,23]",), blocks, "3"))
    yield from _both(Case("SpaceToDepth", ("f32[1,7,57,69]",), blocks, "3"))


def _broadcasts() -> Iterator[Case]:
    for op, note, a, b in (
        ("Add", "middle", "f32[17,31,65]", "f32[17,1,65]"),
        ("Mul", "both ways", "f32[19,1,7,33]", "f32[1,23,7,1]"),
        ("Sub", "column", "f32[513,129]", "f32[513,1]"),
        ("Div", "outer", "f32[1023,1]", "f32[1,511]"),
        ("Add", "rank 6", "f32[3,1,5,1,7,16]", "f32[1,4,1,6,7,1]"),
        ("Max", "channels", "f32[2,37,29,31]", "f32[37,1,1]"),
        ("Pow", "rows", "f32[65,127] 0.1:2", "f32[127] -2:2"),
    ):
        yield from _both(Case(op, (a, b), {}, f"odd {note}", slack=2))
    for dtype in ("f32", "f16"):
        given = ("bool[31,1,33]", f"{dtype}[1,29,33]", f"{dtype}[31,29,1]")
        yield Case("Where", given, {}, f"odd {dtype}")


def _resizes() -> Iterator[Case]:
    for mode in ("nearest", "linear", "cubic"):
        for note, x, scales in (
            ("x1.3 /1.7", "f32[1,13,41,37]", floats(1, 1, 1.3, 1 / 1.7)),
            ("x3 x0.3", "f32[2,5,19,64]", floats(1, 1, 3, 0.3)),
        ):
            attrs = {"mode": mode, "coordinate_transformation_mode": "half_pixel"}
            # At x1.3 places lie 2e-7 past the middle between two elements. ONNX's reference works
            # them out in float64, as tactix does; in ONNX Runtime's float32 they lie before it.
            tied = mode == "nearest" and note == "x1.3 /1.7"
            made = Case("Resize", (x, "", scales), attrs, f"{mode} {note}", slack=16)
            yield from _both(replace(made, by_reference=tied))
    row = ("f32[3,29,1003]", "", floats(1, 1, 2.37))
    yield from _both(Case("Resize", row, {"mode": "linear"}, "linear row", slack=16))


def _selections() -> Iterator[Case]:
    for note, x, k, axis in (
        ("7 of the first axis", "f32[257,63]", 7, 0),
        ("3 of the middle", "f32[5,31,7,129]", 3, 1),
        ("33 of the middle", "f32[16,67,65]", 33, 1),
        ("1 of the first axis", "f32[1001,31]", 1, 0),
    ):
        yield from _both(Case("TopK", (x, longs(k)), {"axis": axis}, note, 2))
    yield from _both(
        Case("ArgMax", ("f32[31,129,17]",), {"axis": 1, "select_last_index": 1}, "odd")
    )
    yield from _both(Case("ArgMin", ("f32[127,65]",), {"axis": 0}, "odd"))


def _indices() -> Iterator[Case]:
    yield from _both(Case("Gather", ("f32[31,67,5]", "i64[129] -67:67"), {"axis": 1}, "duplicates"))
    yield from _both(Case("Gather", ("f32[33,5,2]", "i64[7,31] 0:33"), {"axis": 0}, "short rows"))
    yield from _both(
        Case("GatherElements", ("f32[17,33,19]", "i64[17,65,19] -33:33"), {"axis": 1}, "middle")
    )
    yield from _both(
        Case("GatherND", ("f32[5,31,33,3]", "i64[5,301,1] 0:31"), {"batch_dims": 1}, "batch")
    )
    for reduction in ("add", "mul", "min"):
        attrs = {"axis": 1, "reduction": reduction}
        given = ("f32[17,33,19]", "i64[17,65,19] -33:33", "f32[17,65,19] 0.9:1.1")
        yield Case("ScatterElements", given, attrs, f"{reduction} duplicates", slack=16)
        given = ("f32[63,65,7]", "i64[513,2] 0:63", "f32[513,7] 0.9:1.1")
        yield Case(
            "ScatterND", given, {"reduction": reduction}, f"{reduction} duplicates", slack=16
        )
    places = np.argsort(np.random.default_rng(3).random((31, 65)), axis=1).astype(np.int64)
    yield from _both(
        Case("ScatterElements", ("f32[31,65]", places, "f32[31,65]"), {"axis": 1}, "last axis")
    )


def _products() -> Iterator[Case]:
    for equation, *given in (
        ("ij,jk,kl->il", "f32[67,31]", "f32[31,129]", "f32[129,17]"),
        ("bi,bj,bk->bijk", "f32[5,13]", "f32[5,17]", "f32[5,19]"),
        ("abc,cd,bd->ad", "f32[11,13,37]", "f32[37,29]", "f32[13,29]"),
        ("bi,oij,bj->bo", "f32[7,33]", "f32[19,33,31]", "f32[7,31]"),
        ("abcd,cdef->abef", "f32[3,5,7,11]", "f32[7,11,13,4]"),
        ("bhwi,hwij->bhwj", "f32[2,7,9,33]", "f32[7,9,33,17]"),
        ("ijk,kji->j", "f32[13,31,37]", "f32[37,31,13]"),
    ):
        yield from _both(Case("Einsum", tuple(given), {"equation": equation}, equation, slack=32))
    yield Case("Einsum", ("f32[63,63]",), {"equation": "ii->i"}, "ii->i")
    for note, a, b in (
        ("prime", "f32[61,67]", "f32[67,71]"), ("thin", "f32[3,1021]", "f32[1021,5]"),
        ("many tiny", "f32[127,5,7]", "f32[127,7,3]"), ("broadcast", "f32[7,1,13,31]", "f32[1,5,31,17]"),
        ("short depth", "f32[257,3]", "f32[3,255]"),
    ):  # fmt: skip
        yield from _both(Case("MatMul", (a, b), {}, f"odd {note}", slack=16))
    bias = ("f32[253,67]", "f32[71,253]", "f32[67,1]")
    yield from _both(Case("Gemm", bias, {"transA": 1, "transB": 1, "beta": 0.5}, "odd", slack=32))


def _recurrent() -> Iterator[Case]:
    for op, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        for note, steps, batch, size, hidden, way in (
            ("hidden 17", 21, 1, 13, 17, "reverse"), ("hidden 101", 11, 5, 29, 101, "bidirectional"),
        ):  # fmt: skip
            ways = 2 if way == "bidirectional" else 1
            weights = (f"= f32[{ways},{gates * hidden},{n}] -0.1:0.1" for n in (size, hidden))
            given = (f"f32[{steps},{batch},{size}]", *weights)
            attrs = {"hidden_size": hidden, "direction": way}
            yield Case(op, given, attrs, note, 2, slack=16)


def _norms() -> Iterator[Case]:
    for op in ("Softmax", "LogSoftmax", "Hardmax"):
        for x, axis in (
            ("f32[7,31,65]", 1),
            ("f32[257,33]", 0),
            ("f32[5,13,11,7]", 2),
            ("f32[3,20011]", 1),
        ):
            yield from _both(Case(op, (x,), {"axis": axis}, f"axis {axis}", slack=4))
    scale = "= f32[31,17]"
    yield from _both(
        Case(
            "LayerNormalization", ("f32[29,31,17]", scale, scale), {"axis": 1}, "two axes", slack=8
        )
    )
    yield from _both(
        Case("LpNormalization", ("f32[17,65,31]",), {"axis": 1, "p": 2}, "middle", slack=8)
    )
    yield from _both(
        Case(
            "InstanceNormalization",
            ("f32[3,13,1009]", "= f32[13]", "= f32[13]"),
            {},
            "rows",
            slack=8,
        )
    )
    yield from _both(
        Case(
            "GroupNormalization",
            ("f32[2,35,11,13]", "= f32[35]", "= f32[35]"),
            {"num_groups": 5},
            "odd",
            slack=8,
        )
    )


def _reductions() -> Iterator[Case]:
    for op in ("ReduceSum", "ReduceMax", "ReduceL2", "ReduceLogSumExp"):
        for x, axes in (
            ("f32[5,7,11,13,17]", (0, 2, 4)), ("f32[5,7,11,13,17]", (1, 3)), ("f32[13,1,17,19,3]", (2, 4)),
            ("f32[20011,3]", (0,)), ("f32[20011,3]", (1,)), ("f32[3,5,7,9,11,2]", (0, 1, 3)),
        ):  # fmt: skip
            note = "axes " + ",".join(map(str, axes))
            yield from _both(Case(op, (x, longs(*axes)), {}, note, slack=8))
    yield from _both(
        Case("CumSum", ("f32[31,33,35]", scalar(1, np.int64)), {"reverse": 1}, "middle", slack=32)
    )
