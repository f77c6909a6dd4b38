"""Reductions, running sums, softmax and norms."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from layer_cases.case import IMAGE, ODD, OPSET, WORDS, Case, halved, longs, scalar


def reductions() -> Iterator[Case]:
    names = "Sum Mean Max Min Prod L1 L2 LogSum LogSumExp SumSquare"
    for op in (f"Reduce{n}" for n in names.split()):
        low = " 0.5:1.5" if op in ("ReduceProd", "ReduceLogSum") else ""
        last = Case(op, (WORDS + low, longs(-1)), note="last axis", slack=4)
        yield from halved([last])
        yield Case(op, (IMAGE + low, longs(2, 3)), note="plane", slack=4)
    for op in ("ReduceSum", "ReduceMean", "ReduceMax"):
        yield Case(op, (WORDS, longs(1)), note="middle axis", slack=4)
        yield Case(op, (WORDS, longs(0)), note="first axis", slack=4)
        yield Case(op, (ODD, longs(0, 2)), note="outer axes", slack=4)
        yield Case(op, (IMAGE,), note="all", slack=16)
    for op in ("ReduceSum", "ReduceMax"):
        yield Case(op, ("i64[8,128,768]", longs(-1)), note="last axis")
        yield Case(op, ("i32[8,128,768]", longs(1)), note="middle axis")
    for op in ("ArgMax", "ArgMin"):
        yield from halved([Case(op, ("f32[64,1000]",), {"axis": 1}, "last axis")])
        yield Case(op, (IMAGE,), {"axis": 1}, "channels")
    yield Case("ArgMax", ("f32[1,21,128,128]",), {"axis": 1}, "classes")
    for op in ("CumSum", "CumProd"):
        low, opset = ("", OPSET) if op == "CumSum" else (" 0.9:1.1", 26)
        last, middle = scalar(2, np.int64), scalar(1, np.int64)
        yield from halved(
            [Case(op, (f"{WORDS}{low}", last), {}, "last axis", opset=opset, slack=64)]
        )
        yield Case(op, (f"{WORDS}{low}", middle), {}, "middle axis", opset=opset, slack=64)
    yield Case("CumSum", ("i64[64,1000]", scalar(1, np.int64)), note="integers")
    yield Case(
        "CumSum", (ODD, scalar(0, np.int64)), {"reverse": 1, "exclusive": 1}, "reverse", slack=8
    )


def norms() -> Iterator[Case]:
    for op in ("Softmax", "LogSoftmax", "Hardmax"):
        yield from halved([Case(op, ("f32[12,128,128]",), {"axis": -1}, "last axis")])
        yield Case(op, ("f32[1,21,64,64]",), {"axis": 1}, "channels")
        yield Case(op, ("f32[8,1000]",), {"axis": -1}, "classes")
        yield Case(op, (ODD,), {"axis": -1})
    yield from halved(
        [Case("LayerNormalization", (WORDS, "= f32[768]", "= f32[768]"), {"axis": -1}, slack=4)]
    )
    yield Case("LayerNormalization", (ODD, "= f32[129]", "= f32[129]"), {"axis": -1}, slack=4)
    yield from halved([Case("RMSNormalization", (WORDS, "= f32[768]"), {"axis": -1}, slack=4)])
    simplified = Case("SimplifiedLayerNormalization", (WORDS, "= f32[768]"), {"axis": -1}, slack=4)
    yield simplified
    channels = ("= f32[64]",) * 2
    yield from halved(
        [
            Case("InstanceNormalization", (IMAGE, *channels), slack=4),
            Case("BatchNormalization", (IMAGE, *channels, "= f32[64]", "= f32[64] 0.5:2"), slack=4),
            Case("GroupNormalization", (IMAGE, *channels), {"num_groups": 8}, slack=4),
            Case("LRN", (IMAGE,), {"size": 5}),
            Case("LpNormalization", (WORDS,), {"axis": -1, "p": 2}, slack=4),
            Case("MeanVarianceNormalization", (IMAGE,), slack=4),
        ]
    )
    yield Case(
        "BatchNormalization",
        ("f32[8,256,14,14]", *("= f32[256]",) * 3, "= f32[256] 0.5:2"),
        slack=4,
    )
    yield Case("InstanceNormalization", ("f32[2,33,27,29]", "= f32[33]", "= f32[33]"), slack=4)
    yield Case("LRN", ("f32[1,96,27,27]",), {"size": 5})
    yield Case("LpNormalization", (IMAGE,), {"axis": 1, "p": 1}, "channels", slack=4)
    skip = (WORDS, WORDS, "= f32[768]")
    yield Case("com.microsoft::SkipLayerNormalization", (*skip, "= f32[768]"), slack=4)
    yield Case("com.microsoft::SkipSimplifiedLayerNormalization", skip, slack=4)
