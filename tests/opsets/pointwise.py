"""Operators element by element: dtypes by version, broadcasting before 7 by attributes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from forms import Form, dtypes_of, forms, normal, numbers, positive, whole

FLOATS = ("float", "double", "float16")
SOME = (*FLOATS, "int32", "int64", "int8", "uint8", "uint32", "uint64")
SHAPES = ((3, 5), (2, 1, 4), (7,), ())

DOMAINS: dict[str, Any] = {
    "Acos": lambda x: np.tanh(x), "Asin": lambda x: np.tanh(x), "Atanh": lambda x: 0.9 * np.tanh(x),
    "Acosh": lambda x: 1 + np.abs(x), "Log": np.abs, "Sqrt": np.abs, "Reciprocal": lambda x: x + np.sign(x),
    "Tan": np.tanh,
}  # fmt: skip
PLAIN = (
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor", "HardSwish",
    "Log", "Mish", "Neg", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign",
    "Sqrt", "Tan", "Tanh",
)  # fmt: skip


@forms(*PLAIN)
def unary(op: str, version: int) -> Iterator[Form]:
    for dtype in dtypes_of(
        op, version, FLOATS if op == "Erf" else SOME
    ):  # of integers all but 0 rounds either way
        for shape in SHAPES if dtype == np.float32 else SHAPES[:1]:
            x = numbers(dtype, *shape)
            x = DOMAINS[op](x).astype(dtype) if op in DOMAINS and dtype.kind == "f" else x
            yield Form(f"{dtype} {shape}", [x], tolerance=1e-3 if dtype.itemsize == 2 else 1e-5)
    if version < 6 and op in ("Abs", "Exp", "Relu", "Tanh", "Neg", "Sqrt", "Floor"):
        yield Form("consumed", [np.abs(normal(3, 5))], {"consumed_inputs": [0]})


PARAMETERS: dict[str, tuple[dict[str, float], ...]] = {
    "Elu": ({"alpha": 1.5},),
    "Selu": ({"alpha": 1.5, "gamma": 1.2},),
    "HardSigmoid": ({"alpha": 0.3, "beta": 0.4},),
    "LeakyRelu": ({"alpha": 0.2},),
    "ThresholdedRelu": ({"alpha": 0.5},),
    "Celu": ({"alpha": 2.0},),
}


@forms(*PARAMETERS)
def parametrized(op: str, version: int) -> Iterator[Form]:
    """Defaults changed, too: Selu's in 6."""
    for dtype in dtypes_of(op, version, FLOATS):
        for shape in SHAPES[:2]:
            x = normal(*shape).astype(dtype) * 2
            tolerance = 2e-3 if dtype.itemsize == 2 else 1e-5
            for given in PARAMETERS[op]:
                yield Form(f"{dtype} {shape} given", [x], given, tolerance=tolerance)
            if not (op == "Selu" and version < 6):
                yield Form(f"{dtype} {shape} default", [x], tolerance=tolerance)


@forms("Clip")
def clip(op: str, version: int) -> Iterator[Form]:
    bounds = {"both": (-0.5, 1.0), "least": (-0.5, None), "most": (None, 1.0), "none": (None, None)}
    for dtype in dtypes_of(
        op, version, ("float", "double", "float16", "int32", "int64", "uint8", "int8")
    ):
        for name, (low, high) in bounds.items():
            x = numbers(dtype, 4, 5)
            if dtype.kind != "f":
                low, high = (None if v is None else round(2 * abs(v) + 1) for v in (low, high))
            if version < 11:
                attrs = {k: float(v) for k, v in (("min", low), ("max", high)) if v is not None}
                yield Form(f"{dtype} {name}", [x], attrs)
            else:
                ends = [None if v is None else np.array(v, dtype) for v in (low, high)]
                given = [x, *ends] if high is not None else [x, ends[0]] if low is not None else [x]
                yield Form(f"{dtype} {name}", given)


ARITHMETIC = ("Add", "Sub", "Mul", "Div", "Pow")
ORDER = ("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual")
LOGIC = ("And", "Or", "Xor")
PAIRS: dict[str, tuple[tuple[int, ...], tuple[int, ...], int | None]] = {
    "same": ((3, 4), (3, 4), None), "last": ((2, 3, 4), (4,), None), "scalar": ((3, 4), (), None),
    "channel": ((2, 3, 4), (3,), 1), "first": ((2, 3, 4), (2, 3), 0), "ones": ((2, 3, 4), (3, 1), 1),
}  # fmt: skip
"""Shapes of both operands, and the axis that versions before 7 say."""


@forms(*ARITHMETIC, *ORDER, *LOGIC)
def binary(op: str, version: int) -> Iterator[Form]:
    for dtype in dtypes_of(
        op, version, ("float", "double", "float16", "int32", "int64", "int8", "uint8", "bool")
    ):
        for name, (left, right, axis) in PAIRS.items():
            if dtype != np.float32 and name not in ("same", "channel") and op not in LOGIC:
                continue
            a, b = _operands(op, dtype, left, right)
            tolerance = 4e-3 if dtype.itemsize == 2 else 1e-5
            if version < 7:
                attrs = (
                    {}
                    if left == right
                    else {"broadcast": 1, **({} if axis is None else {"axis": axis})}
                )
                yield Form(f"{dtype} {name}", [a, b], attrs, tolerance=tolerance)
            else:
                behind = 0 if axis is None else len(left) - axis - len(right)
                yield Form(
                    f"{dtype} {name}", [a, b.reshape((*right, *(1,) * behind))], tolerance=tolerance
                )
        if version >= 7:
            a, b = _operands(op, dtype, (2, 1, 4), (3, 1))
            yield Form(
                f"{dtype} both ways", [a, b], tolerance=4e-3 if dtype.itemsize == 2 else 1e-5
            )


def _operands(
    op: str, dtype: Any, left: tuple[int, ...], right: tuple[int, ...]
) -> tuple[Any, Any]:
    a, b = numbers(dtype, *left), numbers(dtype, *right, salt=1)
    if op == "Pow":
        return (positive(*left).astype(dtype) if dtype.kind == "f" else np.abs(a)), (
            np.abs(b) % 3
        ).astype(dtype)
    if op == "Div" and dtype.kind != "f":
        return np.abs(a), (np.abs(b) + 1).astype(dtype)
    return a, (b + np.sign(b)).astype(dtype) if op == "Div" else b


@forms("PRelu")
def prelu(op: str, version: int) -> Iterator[Form]:
    slopes = {"one": (1,), "channels": (3,), "all": (3, 4)}
    for dtype in dtypes_of(op, version, ("float", "double", "float16")):
        for name, shape in slopes.items():
            if version < 7 and name == "all":
                continue
            slope = positive(*shape).astype(dtype)
            slope = slope.reshape(3, 1) if version >= 7 and name == "channels" else slope
            tolerance = 2e-3 if dtype.itemsize == 2 else 1e-5
            yield Form(
                f"{dtype} {name}", [normal(2, 3, 4).astype(dtype), slope], tolerance=tolerance
            )


@forms("Max", "Min", "Sum", "Mean")
def variadic(op: str, version: int) -> Iterator[Form]:
    for dtype in dtypes_of(
        op, version, ("float", "double", "float16", "int32", "int64", "int8", "uint8")
    ):
        for count in (1, 2, 4):
            parts = [numbers(dtype, 3, 4, salt=i) for i in range(count)]
            yield Form(f"{dtype} {count}", parts, tolerance=4e-3 if dtype.itemsize == 2 else 1e-5)
        if version >= 8:
            parts = [numbers(dtype, *s, salt=9) for s in ((2, 1, 4), (3, 1), (4,))]
            yield Form(f"{dtype} broadcast", parts, tolerance=4e-3 if dtype.itemsize == 2 else 1e-5)


@forms("Mod")
def mod(op: str, version: int) -> Iterator[Form]:
    for dtype in dtypes_of(
        op, version, ("float", "double", "float16", "int32", "int64", "int8", "uint8")
    ):
        a, b = numbers(dtype, 3, 4), (np.abs(numbers(dtype, 3, 4, salt=1)) + 1).astype(dtype)
        for fmod in (0, 1) if dtype.kind != "f" else (1,):
            yield Form(
                f"{dtype} {fmod}",
                [a, b],
                {"fmod": fmod},
                tolerance=2e-3 if dtype.itemsize == 2 else 1e-5,
            )


@forms("BitShift")
def shift(op: str, version: int) -> Iterator[Form]:
    for dtype in dtypes_of(op, version, ("uint8", "uint32", "uint64", "uint16")):
        for way in ("LEFT", "RIGHT"):
            a, b = numbers(dtype, 3, 4, high=200), numbers(dtype, 4, salt=1, high=7)
            yield Form(f"{dtype} {way}", [a, b], {"direction": way})


@forms("IsNaN", "IsInf")
def classes(op: str, version: int) -> Iterator[Form]:
    for dtype in dtypes_of(op, version, ("float", "double", "float16")):
        x = normal(3, 4).astype(dtype)
        x[0, 0], x[1, 1], x[2, 2] = np.nan, np.inf, -np.inf
        yield Form(f"{dtype}", [x])
        if op == "IsInf":
            yield Form(f"{dtype} positive", [x], {"detect_negative": 0})
            yield Form(f"{dtype} negative", [x], {"detect_positive": 0})


@forms("Where")
def where(op: str, version: int) -> Iterator[Form]:
    for dtype in dtypes_of(
        op, version, ("float", "double", "float16", "int32", "int64", "uint8", "bool"), 1
    ):
        for a, b in (((3, 4), (3, 4)), ((4,), (3, 1)), ((), (2, 3, 4))):
            given = [whole(0, 2, 3, 4).astype(bool), numbers(dtype, *a), numbers(dtype, *b, salt=1)]
            yield Form(f"{dtype} {a} {b}", given)


CASTS = ("float", "double", "float16", "int64", "int32", "int8", "uint8", "bool")
CODES = {
    "float": 1,
    "uint8": 2,
    "int8": 3,
    "int32": 6,
    "int64": 7,
    "bool": 9,
    "float16": 10,
    "double": 11,
}


@forms("Cast")
def cast(op: str, version: int) -> Iterator[Form]:
    """Version 1 names the type as text."""
    for source in dtypes_of(
        op, version, ("float", "double", "int64", "int32", "uint8", "bool", "float16")
    ):
        for to in CASTS:
            x = np.abs(numbers(source, 3, 4, low=0))
            name = {"float": "FLOAT", "double": "DOUBLE"}.get(to, to.upper())
            yield Form(f"{source} {to}", [x], {"to": name if version < 6 else CODES[to]})


@forms("CastLike")
def cast_like(op: str, version: int) -> Iterator[Form]:
    for source in dtypes_of(op, version, ("float", "int64", "bool")):
        for to in dtypes_of(op, version, ("float", "double", "float16", "int32", "uint8", "bool")):
            yield Form(f"{source} {to}", [np.abs(numbers(source, 3, 4)), numbers(to, 1)])
