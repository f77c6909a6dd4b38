"""Functions and arithmetic of elements."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from layer_cases.case import IMAGE, ODD, WORDS, Case, halved, scalar


def functions() -> Iterator[Case]:
    plain = "Abs Ceil Floor Round Neg Sign Relu LeakyRelu Elu Selu Softplus Softsign Sigmoid HardSigmoid "
    plain += "Tanh Exp Erf Sin Cos Tan Sinh Cosh Asinh Atan Shrink ThresholdedRelu Gelu Identity"
    for op in plain.split():
        yield from halved([Case(op, (IMAGE,))])
    yield Case("Celu", (IMAGE,))
    for op in ("Relu", "Sigmoid", "Tanh", "Exp", "Gelu", "Erf"):
        yield Case(op, (ODD,))
        yield Case(op, (WORDS,))
    for op in ("Sqrt", "Log", "Reciprocal"):
        yield from halved([Case(op, (f"{IMAGE} 0.1:9",))])
    for op in ("Asin", "Acos", "Atanh"):
        yield from halved([Case(op, (f"{IMAGE} -0.9:0.9",))])
    yield from halved([Case("Acosh", (f"{IMAGE} 1:9",))])
    yield Case("Clip", (IMAGE, scalar(-1), scalar(1)))
    yield Case("Clip", ("f16[1,64,56,56]", scalar(-1, np.float16), scalar(1, np.float16)))
    yield from halved([Case("IsNaN", (IMAGE,)), Case("IsInf", (IMAGE,))])
    yield Case("Gelu", (IMAGE,), {"approximate": "tanh"}, "tanh")
    yield Case("Not", ("bool[1,64,56,56]",))
    yield Case("BitwiseNot", ("i32[1,64,56,56]",))
    for name in ("QuickGelu", "FastGelu", "Gelu"):
        yield Case(f"com.microsoft::{name}", (WORDS,), note="ms" if name == "Gelu" else "")
    yield Case("com.microsoft::BiasGelu", (WORDS, "= f32[768]"))
    yield Case("Mod", ("i32[1,64,56,56]", "i32[1,64,56,56] 1:9"))
    yield Case("Mod", ("f32[1,64,56,56]", "f32[1,64,56,56] 1:9"), {"fmod": 1})


def arithmetic() -> Iterator[Case]:
    for op in ("Add", "Sub", "Mul", "Max", "Min", "Mean", "Sum"):
        yield from halved([Case(op, (IMAGE, IMAGE))])
        yield Case(op, (ODD, ODD))
    for op in ("Add", "Mul", "Sub"):
        yield Case(op, (IMAGE, "f32[1,64,1,1]"), note="channels")
        yield Case(op, (WORDS, "f32[768]"), note="rows")
        yield Case(op, ("i64[1,64,56,56]", "i64[1,64,56,56]"))
        yield Case(op, ("f32[64,1,129]", "f32[1,65,1]"), note="outer")
    yield from halved([Case("Div", (IMAGE, f"{IMAGE} 1:9"))])
    yield Case("Div", (ODD, f"{ODD} 1:9"))
    yield Case("Div", ("i32[1,64,56,56]", "i32[1,64,56,56] 1:9"))
    yield from halved([Case("Pow", (f"{IMAGE} 0.1:3", IMAGE))])
    yield Case("Pow", (IMAGE, scalar(2)), note="squares")
    yield Case("Pow", (f"{IMAGE} 0.1:3", scalar(0.5)), note="roots")
    yield from halved([Case("PRelu", (IMAGE, "= f32[64,1,1]"))])
    for op in ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"):
        yield from halved([Case(op, (IMAGE, IMAGE))])
        yield Case(op, ("i64[1,64,56,56]", "i64[1,64,56,56]"))
    for op in ("And", "Or", "Xor"):
        yield Case(op, ("bool[1,64,56,56]", "bool[1,64,56,56]"))
    for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
        yield Case(op, ("i32[1,64,56,56]", "i32[1,64,56,56]"))
    yield Case("BitShift", ("u8[1,64,56,56]", "u8[1,64,56,56] 0:8"), {"direction": "LEFT"})
    where = Case("Where", ("bool[1,64,56,56]", IMAGE, IMAGE))
    yield from (where, replace(where.in_half(), note="f16"))
    yield Case("Where", ("bool[8,1,128,1]", "f32[8,12,128,128]", scalar(-1e9)), note="mask")
