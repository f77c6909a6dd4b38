"""Nodes for the generated CUDA tactics: every layer, odd shapes, symbolic dims, each dtype, special
values.

``TABLE``: groups of cases by name, made when asked. The same table is compiled, run on the host,
and run on a GPU.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import harness as h
import numpy as np
from simt import Case

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.base.tensor import LINEAR, NHWC, TensorSpec
from tactix.contracts.graph import Node
from tactix_cuda.tactics import all_tactics

TACTICS = {t.key.split(".")[1].removesuffix("@1").removeprefix("cuda_"): t for t in all_tactics()}
FLOATS = ("f32", "f16", "bf16")
N, S = dims.sym("n"), dims.sym("s")
ENVS: tuple[dict[str, int], ...] = ({"n": 1, "s": 1}, {"n": 3, "s": 37}, {"n": 0, "s": 4})


def real(*shape: int, dtype: str = "f32", seed: int = 0) -> Any:
    """Normal numbers of a float dtype."""
    return (
        np.random.default_rng(seed)
        .standard_normal(shape, dtype=np.float32)
        .astype(DType(dtype).numpy)
    )


def whole(*shape: int, dtype: str = "i32", seed: int = 0) -> Any:
    """Small integers, or truth values."""
    low, high = (0, 2) if dtype == "bool" else (0 if dtype[0] == "u" else -9, 9)
    return np.random.default_rng(seed).integers(low, high, shape).astype(DType(dtype).numpy)


def one(
    name: str, layer: Any, arrays: Sequence[Any], constants: Sequence[int] = (), **attrs: Any
) -> Case:
    """A node over arrays (None: absent)."""
    return Case(
        h.node(layer, arrays, constants, **attrs),
        TACTICS[name],
        [x for x in arrays if x is not None],
    )


def group(
    name: str,
    arrays: Sequence[Any],
    nodes: Sequence[Any],
    constants: Sequence[int] = (),
    **more: Any,
) -> Case:
    """A fused node over arrays; see ``harness.fused``."""
    return Case(h.fused(arrays, nodes, constants=constants, **more), TACTICS[name], list(arrays))


def symbolic(
    name: str, nodes: Sequence[Node], envs: Sequence[Mapping[str, int]] = ENVS
) -> list[Case]:
    """Nodes of symbolic shapes at several values of the symbols."""
    return [Case(n, TACTICS[name], None, env) for env in envs for n in nodes]


def spec(*shape: Any, dtype: str = "f32") -> TensorSpec:
    """A spec."""
    return TensorSpec(DType(dtype), tuple(shape))


def pointwise_broadcasts() -> list[Case]:
    """Every way that two operands meet."""
    shapes = [
        [(7, 33), (7, 33)], [(7, 33), (33,)], [(7, 33), (7, 1)], [(33,), (7, 1)], [(7, 33), ()], [(1,), (5,)], [(), ()],
        [(2, 8, 3, 7), (1, 8, 1, 1)], [(2, 5, 3, 7), (2, 1, 3, 1)], [(2, 5, 3, 7), (7,)], [(2, 1, 3, 1), (5, 1, 7)],
        [(3, 1000), (1, 1000)], [(1000, 3), (1000, 1)], [(0, 5), (5,)], [(4, 0), (4, 1)], [(40, 16), (16,)],
        [(1, 1, 1), (1, 1)], [(2, 3, 200), (2, 1, 1)], [(2, 130), (2, 1)], [(3, 6, 8), (3, 1, 8)],
    ]  # fmt: skip
    made = []
    for (a, b), t in zip(shapes, itertools.cycle(FLOATS), strict=False):
        x, y = np.asarray(real(*a, dtype=t)), np.asarray(real(*b, dtype=t, seed=1))
        chain = [("Sub", [0, 1], {}), ("Sigmoid", [2], {}), ("Mul", [3, 0], {})]
        made.append(group("pointwise", [x, y], chain, results=(4, 2)))
    unsure = [
        h.node("Sub", pair)
        for pair in (
            [spec(N), spec(S)],
            [spec(2, N, dtype="i64"), spec(1, S, dtype="i64")],
            [spec(N, 8), spec(S, 8)],
            [spec(N, 3, S), spec(S, 1, N)],
            [spec(S, N, dtype="f16"), spec(5, dtype="f16")],
        )
    ]
    return made + symbolic(
        "pointwise", unsure, [{"n": i, "s": j} for i, j in ((1, 5), (5, 1), (5, 5), (1, 1))]
    )


def pointwise_dtypes() -> list[Case]:
    """Integers, truth values, mixtures and casts."""
    made = [
        one("pointwise", "Add", [whole(5, 24, dtype=t), whole(24, dtype=t, seed=1)])
        for t in ("i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8")
    ]
    made += [
        one("pointwise", op, [whole(70, dtype=t), whole(70, dtype=t, seed=3) * 2 + 1])
        for op in ("Div", "Mod", "Max", "Min")
        for t in ("i64", "i8", "u32")
    ]
    made += [
        one("pointwise", op, list(h.quotients(t)), constants, **attrs)
        for op, attrs in (("Div", {}), ("Mod", {}), ("Mod", {"fmod": True}))
        for t in ("i64", "i32", "i16", "i8", "u64", "u8")
        for constants in ((), (1,))
    ]
    made.append(
        one("pointwise", "Mul", [real(9, 7).astype(np.float64), real(7).astype(np.float64)])
    )
    made.append(
        one(
            "pointwise",
            "Where",
            [whole(6, 40, dtype="bool"), real(6, 40, dtype="f16"), real(1, dtype="f16")],
        )
    )
    made += [
        one("pointwise", "Less", [real(50, dtype=t), real(50, dtype=t, seed=1)]) for t in FLOATS
    ]
    made += [
        one("pointwise", "Cast", [real(3, 33, dtype=a) * 4], to=DType(b))
        for a, b in itertools.permutations((*FLOATS, "i32"), 2)
        if a != "i32"
    ]
    made += [
        one("pointwise", "Cast", [whole(3, 33, dtype=a)], to=DType(b))
        for a, b in (("i64", "f16"), ("bool", "f32"), ("i32", "bool"), ("i64", "i8"), ("u8", "f64"))
    ]
    quantised = [
        ("Quantize", [0], {"zero": 3, "dtype": DType.INT8}),
        ("Dequantize", [1], {"zero": 3, "scale": 0.5}),
    ]
    made.append(group("pointwise", [real(5, 32) * 50], quantised, results=(1, 2)))
    return made


def pointwise_functions() -> list[Case]:
    """Every function of the layers that have one input, on special values too."""
    special = np.array(
        [0, -0.0, np.inf, -np.inf, np.nan, 1e-30, 1, -1, 0.5, -0.5, 2.5, -2.5, 20, -20], np.float32
    )
    names = (
        "Neg", "Abs", "Exp", "Sqrt", "Erf", "Tanh", "Sigmoid", "Relu", "Gelu", "HardSwish", "Softplus", "Floor", "Ceil",
        "Round", "Sign", "Reciprocal", "Sin", "Cos", "Mish", "Elu", "IsNaN", "IsInf", "Log", "LeakyRelu", "Softsign",
    )  # fmt: skip
    x = np.concatenate([special, real(50)])
    made = [one("pointwise", name, [x]) for name in names]
    made += [one("pointwise", op, [x, x[::-1].copy()]) for op in ("Max", "Min", "Pow", "Mod")]
    made.append(one("pointwise", "Gelu", [real(3, 40, dtype="f16")], approximate="tanh"))
    made.append(one("pointwise", "Clip", [x], min=-1.0, max=float("inf")))
    made += [
        one("pointwise", "Pow", [abs(real(50)), np.asarray(np.float32(p))], (1,))
        for p in (2, -3, 0.5)
    ]
    return made


def pointwise_formats() -> list[Case]:
    """nhwc with operands of every shape, and symbolic sizes."""
    made = []
    for t, channels in (("f16", 16), ("f32", 5), ("bf16", 36)):
        x = real(2, channels, 3, 7, dtype=t)
        for shape in (
            (1, channels, 1, 1),
            (2, channels, 1, 1),
            (2, channels, 3, 7),
            (1,),
            (2, 1, 3, 7),
        ):
            b = real(*shape, dtype=t, seed=1)
            made.append(group("pointwise", [x, b], [("Add", [0, 1], {}), ("Relu", [2], {})]))
    a, b = spec(N, S, 24, dtype="f16"), spec(24, dtype="f16")
    nodes = [
        h.node("Add", [a, b]),
        h.node("Mul", [spec(N, S), spec(N, 1)]),
        h.node("Relu", [spec(N, 3, S, S)]),
    ]
    return made + symbolic("pointwise", nodes)


def rows_softmax() -> list[Case]:
    """Softmax and LogSoftmax over every axis; lengths for threads, parts of warps, warps and
    blocks.
    """
    made = []
    for op, t in itertools.product(("Softmax", "LogSoftmax"), FLOATS):
        made += [one("rows", op, [real(3, n, dtype=t) * 4]) for n in (1, 3, 16, 100, 128)]
        made += [one("rows", op, [real(37, n, dtype=t) * 4]) for n in (32, 40, 96)]
        made += [one("rows", op, [real(2, 3, 4, 9, dtype=t)], axis=a) for a in (0, 1, -2)]
    made += [
        one("rows", "Softmax", [real(2, n, dtype=t)])
        for n, t in ((1000, "f16"), (1024, "f32"), (4500, "f32"))
    ]
    made.append(one("rows", "Softmax", [real(1, 33000, dtype="f16")]))
    x = real(8, 300)
    x[0, 5], x[1], x[2, 7], x[3, 299], x[4, :], x[5, 0] = (
        np.nan,
        -np.inf,
        np.inf,
        -np.inf,
        80.0,
        1e30,
    )
    made += [one("rows", "Softmax", [x]), one("rows", "LogSoftmax", [x.T.copy()], axis=0)]
    y = spec(N, 3, S, S, dtype="f16")
    return made + symbolic("rows", [h.node("Softmax", [y], axis=a) for a in (1, 2, 3)])


def rows_norm() -> list[Case]:
    """Normalisations: axes, parameters that broadcast, groups."""
    made = []
    for (shape, axis), t in zip(
        [
            ((7, 100), -1),
            ((3, 5, 64), 2),
            ((3, 5, 7), 1),
            ((3, 5, 7), 0),
            ((4, 1), -1),
            ((2, 768), -1),
            ((5, 2050), -1),
            ((9, 7, 96), -1),
            ((3, 192), -1),
            ((45, 32), -1),
        ],
        itertools.cycle(FLOATS),
        strict=False,
    ):
        x = real(*shape, dtype=t) * 3 + 1
        s, b = real(*shape[axis:], dtype=t, seed=1), real(*shape[axis:], dtype=t, seed=2)
        made.append(one("rows", "LayerNormalization", [x, s, b], axis=axis))
        made.append(one("rows", "RMSNormalization", [x, s], axis=axis))
    x = real(3, 5, 20)
    for shape in ((1,), (5, 1), (3, 1, 1), (5, 20), ()):
        s = np.asarray(real(*shape, seed=1))
        made.append(one("rows", "LayerNormalization", [x, s, real(20, seed=2)], axis=1))
    for spatial in ((5, 7), (40,), (1, 1), (3, 2, 4)):
        y, s, b = (
            real(2, 6, *spatial, dtype="f16") * 2 + 1,
            real(6, seed=1, dtype="f16"),
            real(6, seed=2, dtype="f16"),
        )
        made.append(one("rows", "InstanceNormalization", [y, s, b]))
        made += [one("rows", "GroupNormalization", [y, s, b], num_groups=g) for g in (1, 3)]
    for t, channels, side in (("f16", 32, 9), ("bf16", 24, 5), ("f32", 16, 3), ("f16", 16, 70)):
        y, s, b = (
            real(2, channels, side, 3, dtype=t) * 2 + 1,
            real(channels, seed=1, dtype=t),
            real(channels, seed=2, dtype=t),
        )
        made.append(one("rows", "GroupNormalization", [y, s, b], num_groups=2))
    big = real(4, 1000) + 1000
    made.append(one("rows", "LayerNormalization", [big, np.ones(1000, np.float32)]))
    p = spec(48, dtype="bf16")
    nodes = [h.node("LayerNormalization", [spec(N, S, 48, dtype="bf16"), p, p]),
             h.node("InstanceNormalization", [spec(N, 6, S, S), spec(6), spec(6)]),
             h.node("GroupNormalization", [spec(N, 16, S, S), spec(16), spec(16)], num_groups=2),
             h.node("LayerNormalization", [spec(N, S), spec(S)])]  # fmt: skip
    return made + symbolic("rows", nodes)


def rows_fused() -> list[Case]:
    """Pointwise layers before and behind; the sum before is a result too."""
    made = []
    for t in FLOATS:
        x, r = real(3, 4, 96, dtype=t), real(3, 4, 96, dtype=t, seed=3)
        s, b = real(96, dtype=t, seed=1), real(96, dtype=t, seed=2)
        chain = [
            ("Add", [0, 1], {}),
            ("LayerNormalization", [4, 2, 3], {}),
            ("Relu", [5], {}),
            ("Add", [6, 4], {}),
        ]
        made.append(group("rows", [x, r, s, b], chain, results=(7, 4), anchor=1))
        bias = real(96, dtype=t, seed=4)
        two = [("Add", [0, 1], {}), ("RMSNormalization", [3, 2], {})]
        made.append(group("rows", [x, bias, s], two, anchor=1))
        for last in (("Cast", [4], {"to": DType.FP8}), ("Quantize", [4], {"dtype": DType.INT8})):
            eights = [("LayerNormalization", [0, 1], {}), ("Mul", [3, 2], {}), last]
            odd = [real(3, 7, 100, dtype=t), real(100, dtype=t), np.asarray(9, DType(t).numpy)]
            made.append(group("rows", odd, eights, results=(3, 5), anchor=0))
        mask = real(1, 4, 1, dtype=t, seed=5)
        to = DType.FP16 if t == "f32" else DType(t)
        scores = [("Mul", [0, 1], {}), ("Softmax", [2], {"axis": -1}), ("Cast", [3], {"to": to})]
        made.append(group("rows", [x, mask], scores, results=(4, 3), anchor=1))
    long = real(2, 40000)
    made.append(
        group(
            "rows",
            [long, long],
            [("Add", [0, 1], {}), ("Softmax", [2], {}), ("Mul", [3, 2], {})],
            anchor=1,
        )
    )
    y, gate = real(2, 6, 5, 7), real(1, 6, 1, 1, seed=1)
    chain = [
        ("GroupNormalization", [0, 2, 2], {"num_groups": 2}),
        ("Mul", [4, 1], {}),
        ("Add", [5, 3], {}),
    ]
    made.append(group("rows", [y, gate, real(6, seed=2), y], chain, anchor=0))
    y, gate = real(2, 8, 5, 7, dtype="f16"), real(1, 8, 1, 1, seed=1, dtype="f16")
    made.append(group("rows", [y, gate, real(8, seed=2, dtype="f16"), y], chain, anchor=0))
    return made


def doubles() -> list[Case]:
    """Rows and windows of float64: every way to keep a row, what is no number, symbols."""

    def double(*shape: int, seed: int = 0) -> Any:
        return real(*shape, seed=seed).astype(np.float64)

    made = [one("rows", "Softmax", [double(3, n) * 4]) for n in (1, 16, 100, 1030)]
    made.append(one("rows", "Softmax", [double(2, 3, 4, 9)], axis=1))
    made.append(one("rows", "LogSoftmax", [double(3, 100) * 4]))
    x = double(6, 300)
    x[0, 5], x[1], x[2, 7], x[3, 299], x[4], x[5, 0] = np.nan, -np.inf, np.inf, -np.inf, 80, 1e300
    made.append(one("rows", "Softmax", [x]))
    for shape, axis in (((7, 100), -1), ((3, 5, 7), 1), ((2, 2050), -1), ((2, 20000), -1)):
        y, s, b = (
            double(*shape) + 1000,
            double(*shape[axis:], seed=1),
            double(*shape[axis:], seed=2),
        )
        made.append(one("rows", "LayerNormalization", [y, s, b], axis=axis))
    made.append(one("rows", "RMSNormalization", [y, s], axis=axis))
    y, s, b = double(2, 6, 5, 7), double(6, seed=1), double(6, seed=2)
    made.append(one("rows", "InstanceNormalization", [y, s, b]))
    made.append(one("rows", "GroupNormalization", [y, s, b], num_groups=3))
    image = double(2, 3, 9, 14)
    image[0, 0, 0, 0] = image[0, 1, 4, 4] = image[1, 2, 8, 13] = np.nan
    for op, g in zip(("MaxPool", "AveragePool", "LpPool"), GEOMETRY, strict=False):
        made.append(one("pool", op, [image], **g))
    p = spec(48, dtype="f64")
    nodes = [h.node("Softmax", [spec(N, 3, S, dtype="f64")], axis=2),
             h.node("LayerNormalization", [spec(N, S, 48, dtype="f64"), p, p])]  # fmt: skip
    made += symbolic("rows", nodes)
    return made + symbolic(
        "pool", [h.node("MaxPool", [spec(N, 4, S, S, dtype="f64")], **GEOMETRY[1])]
    )


def reduce_axes() -> list[Case]:
    """Every choice of axes, in rows and columns of every depth."""
    made = []
    for rank in (1, 2, 3, 4):
        x = real(*(3, 5, 2, 8)[-rank:], dtype="f16")
        axes = [a for k in range(rank + 1) for a in itertools.combinations(range(rank), k)]
        made += [
            one("reduce", "ReduceSum", [x], axes=a, keepdims=bool(i % 2))
            for i, a in enumerate(axes)
        ]
    ops = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd")
    shapes = [
        ((7, 100), (1,)),
        ((100, 24), (0,)),
        ((2, 3, 130), (1,)),
        ((5, 1), (1,)),
        ((1, 5), (0,)),
        ((300, 33), (0,)),
    ]
    for op, ((shape, axes), t) in itertools.product(
        ops, zip(shapes, itertools.cycle(FLOATS), strict=False)
    ):
        made.append(
            one("reduce", op, [(1 + real(*shape) * 0.02).astype(DType(t).numpy)], axes=axes)
        )
    made += [
        one("reduce", "ReduceMean", [real(2, 9000) + 1], axes=(1,)),
        one("reduce", "ReduceSum", [real(0, 4)], axes=(0,)),
    ]
    made.append(one("reduce", "ReduceMax", [real(4, 0)], axes=(1,)))
    x = real(6, 40)
    x[1, 3], x[2, 39], x[3, 5] = np.nan, np.inf, -np.inf
    made += [
        one("reduce", op, [x], axes=(a,))
        for op in ("ReduceMax", "ReduceSum", "ReduceMin")
        for a in (0, 1)
    ]
    return made


def reduce_exponentials() -> list[Case]:
    """Logarithms of sums of exponentials: rows and columns of every depth, several axes, what is not
    finite, nothing, symbols.
    """
    shapes = (
        ((3, 5), (1,)),
        ((7, 100), (1,)),
        ((2, 9000), (1,)),
        ((5, 24), (0,)),
        ((100, 24), (0,)),
        ((300, 33), (0,)),
        ((3, 5, 2, 7), (0, 2)),
        ((3, 5, 7), (0, 1, 2)),
        ((3, 5), ()),
        ((4, 0), (1,)),
        ((0, 4), (0,)),
        ((0, 4), (1,)),
    )
    made = [
        one(
            "reduce",
            "ReduceLogSumExp",
            [real(*shape, dtype=t) * 4],
            axes=axes,
            keepdims=bool(i % 2),
        )
        for i, ((shape, axes), t) in enumerate(zip(shapes, itertools.cycle(FLOATS), strict=False))
    ]
    x = real(6, 40)
    x[1, 3], x[2, 39], x[3, 5], x[4], x[5] = np.nan, np.inf, -np.inf, -np.inf, 3e4
    made += [one("reduce", "ReduceLogSumExp", [y], axes=(a,)) for a, y in ((1, x), (0, x.T.copy()))]
    made.append(one("reduce", "ReduceLogSumExp", [x.astype(np.float64)], axes=(1,)))
    made.append(one("reduce", "ReduceLogSumExp", [real(2, 8, 3, 5, dtype="f16")], axes=(2, 3)))
    y = spec(N, 3, S, dtype="f16")
    nodes = [h.node("ReduceLogSumExp", [y], axes=a) for a in ((0,), (2,), (0, 2))]
    return made + symbolic("reduce", nodes)


def reduce_dtypes() -> list[Case]:
    """Integers and float64, global pooling in nhwc, epilogues, prologues, symbols."""
    made = [
        one("reduce", op, [whole(4, 6, 19, dtype=t)], axes=a)
        for op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd")
        for t, a in (("i64", (1,)), ("i32", (0, 2)), ("i8", (2,)), ("u8", (0,)), ("u64", (2,)))
    ]
    made += [
        one("reduce", "ReduceSum", [real(6, 40).astype(np.float64)], axes=(a,)) for a in (0, 1)
    ]
    for (t, c), op in itertools.product(
        (("f16", 32), ("f32", 5), ("bf16", 36)), ("GlobalAveragePool", "GlobalMaxPool")
    ):
        made.append(one("reduce", op, [real(2, c, 5, 7, dtype=t)]))
    x, b, s = real(2, 20, 4, 9), real(1, 20, 1, 1, seed=1), real(2, 20, 1, 1, seed=2)
    pool = [
        ("GlobalAveragePool", [0], {}),
        ("Add", [3, 1], {}),
        ("Sigmoid", [4], {}),
        ("Mul", [5, 2], {}),
    ]
    made.append(group("reduce", [x, b, s], pool, results=(6, 5), anchor=0))
    y, e = real(6, 50, dtype="f16"), real(50, dtype="f16", seed=4)
    squares = [
        ("Sub", [0, 1], {}),
        ("Mul", [2, 2], {}),
        ("ReduceMean", [3], {"axes": (1,)}),
        ("Sqrt", [4], {}),
    ]
    made.append(group("reduce", [y, e], squares, anchor=2))
    columns = [("ReduceMax", [0], {"axes": (0,), "keepdims": False}), ("Sub", [2, 1], {})]
    made.append(group("reduce", [y, e], columns, anchor=0))
    a, g = spec(N, S, 24, dtype="f16"), spec(N, 20, S, 4)
    nodes = [h.node("ReduceSum", [a], axes=axes) for axes in ((1,), (2,), (1, 2), (0,), (0, 1, 2))]
    positive = [e for e in ENVS if e["n"]]
    return (
        made
        + symbolic("reduce", nodes)
        + symbolic("reduce", [h.node("GlobalAveragePool", [g])], positive)
    )


def move_transpose() -> list[Case]:
    """Every order of four axes, every width."""
    x = real(3, 5, 2, 37)
    made = [one("move", "Transpose", [x], perm=p) for p in itertools.permutations(range(4))]
    for t in ("f64", "f16", "bf16", "i64", "i8", "bool", "f8e4m3"):
        y = whole(3, 70, 40, dtype="i32").astype(DType(t).numpy)
        made += [one("move", "Transpose", [y], perm=p) for p in ((0, 2, 1), (2, 1, 0), (1, 0, 2))]
    z = spec(N, S, 12, 8, dtype="f16")
    return made + symbolic(
        "move",
        [h.node("Transpose", [z], perm=p) for p in ((0, 2, 1, 3), (0, 2, 3, 1), (3, 1, 0, 2))],
    )


def move_others() -> list[Case]:
    """Concat, split, slice, expand, pad, tile, reshape: widths, axes, formats, symbols."""
    made = []
    for t in ("f64", "f32", "f16", "i64", "i8", "bool"):
        x = whole(3, 6, 5, dtype="i32").astype(DType(t).numpy)
        made += [
            one("move", "Reshape", [x], shape=(9, 10)),
            one("move", "Concat", [x, x[:, :1].copy(), x], axis=1),
            one("move", "Split", [x], axis=1, sizes=(1, 5)),
            one("move", "Tile", [x], repeats=(2, 1, 3)),
            one("move", "Slice", [x], begins=(1, 4), sizes=(2, 3), axes=(0, 2), steps=(1, -2)),
            one("move", "Roll", [x], begins=(1, 4), axes=(0, 2)),
            one("move", "Expand", [x], shape=(2, 3, 6, 5)),
            one("move", "DepthToSpace", [x.reshape(1, 6, 3, 5)], blocks=(3, 2)),
            one("move", "Pad", [x], pads=(0, 1, 2, 3, 0, 1), value=1.0),
        ]
    for axis in range(4):
        parts = [
            real(*(16 if i != axis else n for i in range(4)), dtype="f16", seed=n)
            for n in (8, 16, 3)
        ]
        made.append(one("move", "Concat", parts, axis=axis))
        sizes = (8, 16, 3)
        made.append(one("move", "Split", [np.concatenate(parts, axis)], axis=axis, sizes=sizes))
    y = real(2, 32, 5, 6, dtype="bf16")
    for pads in (
        (0, 0, 1, 2, 0, 0, 3, 4),
        (0, 16, 0, 0, 0, 32, 0, 0),
        (0, 0, -1, 2, 0, 0, 1, -3),
        (0,) * 8,
    ):
        made.append(one("move", "Pad", [y], pads=pads, value=-1.5))
    x = real(3, 4)
    made += [
        one("move", "Concat", [x, real(3, 0), x], axis=1),
        one("move", "Concat", [real(3, 0)], axis=1),
    ]
    made.append(one("move", "Concat", [real(3, i % 4 + 1, seed=i) for i in range(20)], axis=1))
    s = spec(N, S, 12, 8)
    nodes = [
        h.node("Concat", [s, s], axis=1), h.node("Split", [s], axis=2, sizes=(4, 8)),
        h.node("Reshape", [s], shape=(N, S, 96)),
        h.node("Slice", [s], begins=(0,), sizes=(S,), axes=(1,), steps=(1,)), h.node("Tile", [s], repeats=(1, 2, 1, S)),
        h.node("Expand", [spec(N, 1, 12, 8)], shape=(N, S, 12, 8)), h.node("Pad", [s], pads=(0, S, 0, 0, 0, 0, 1, 1)),
    ]  # fmt: skip
    unsure = [
        h.node("Expand", [spec(N, 8)], shape=(S, 8)),
        h.node("Expand", [spec(3, N)], shape=(3, S)),
    ]
    made += symbolic("move", unsure, [{"n": i, "s": j} for i, j in ((1, 5), (5, 1), (5, 5))])
    return made + symbolic("move", nodes)


def pads() -> list[Case]:
    """Modes that repeat elements: every width, once and again around, cuts, lonely elements, nhwc,
    symbols.
    """
    made = []
    for mode, t in itertools.product(
        ("reflect", "edge", "wrap"), ("f64", "f32", "f16", "bf16", "i64", "i32", "u8")
    ):
        x = whole(3, 6, 5, dtype="i32").astype(DType(t).numpy)
        made.append(one("pad", "Pad", [x], pads=(0, 1, 2, 3, 0, 4), mode=mode))
    for mode in ("reflect", "edge", "wrap"):
        line, image = real(2, 3, 7), real(2, 16, 4, 5, dtype="f16")
        ways = (
            (0, 0, 17, 0, 0, 20),
            (0, 0, -2, 0, 0, 4),
            (0, 0, 3, 1, 0, -3),
            (0, -1, 2, 2, 0, 0),
            (0,) * 6,
        )
        made += [one("pad", "Pad", [line], pads=p, mode=mode) for p in ways]
        made.append(one("pad", "Pad", [image], pads=(0, 0, 1, 2, 0, 0, 2, 1), mode=mode))
        made.append(one("pad", "Pad", [image], pads=(1, 3, 0, 0, 0, 5, 0, 0), mode=mode))
        made.append(one("pad", "Pad", [real(8)], pads=(1, 30), mode=mode))
        made.append(one("pad", "Pad", [real(2, 1, 8)], pads=(0, 2, 0, 0, 3, 0), mode=mode))
        made.append(one("pad", "Pad", [real(0, 4)], pads=(0, 2, 0, 3), mode=mode))
        nodes = [
            h.node("Pad", [spec(N, S, 12, dtype="f16")], pads=p, mode=mode)
            for p in (
                (0, 2, 0, 0, 40, 0),
                (0, S, 0, 0, 1, 0),
                (0, 0, N, 0, 0, S),
                (0, N - 2, 1, 0, 2 - N, 1),
            )
        ]
        made += symbolic("pad", nodes, [{"n": 1, "s": 4}, {"n": 3, "s": 37}])
    unsure = [h.node("Pad", [spec(N, S, 8)], pads=(0, S - 4, 0, 1, 4 - S, 1), value=1.5)]
    return made + symbolic("pad", unsure, [{"n": 1, "s": 3}, {"n": 3, "s": 9}, {"n": 0, "s": 4}])


def gathers() -> list[Case]:
    """Rows, elements, places; indices from the end; every width."""
    made = []
    for t, i in (("f16", "i64"), ("f32", "i32"), ("bf16", "i64"), ("i64", "i64"), ("bool", "i32")):
        table, ids = whole(11, 24, dtype="i32").astype(DType(t).numpy), whole(4, 7, dtype=i)
        made += [one("gather", "Gather", [table, ids], axis=a) for a in (0, 1)]
        made.append(one("gather", "GatherElements", [table, whole(4, 24, dtype=i)], axis=0))
        made.append(one("gather", "GatherND", [table, whole(5, 2, dtype=i)]))
        made.append(one("gather", "GatherND", [table, whole(5, 1, dtype=i)]))
    x = real(2, 9, 13, 5)
    made += [
        one("gather", "Gather", [x, np.asarray(np.int64(-2))], axis=2),
        one("gather", "Gather", [x, whole(3)], axis=1),
    ]
    made += [
        one("gather", "GatherElements", [real(9, 12, 13), whole(9, 12, 4, dtype="i64")], axis=a)
        for a in (1, 2)
    ]
    made.append(
        one("gather", "GatherND", [real(3, 9, 10, 5), whole(3, 4, 2, dtype="i64")], batch_dims=1)
    )
    table, ids = spec(30, 16, dtype="f16"), spec(N, S, dtype="i64")
    nodes = [
        h.node("Gather", [table, ids], axis=0),
        h.node("Gather", [spec(N, S, 4), spec(3, dtype="i32")], axis=1),
    ]
    return made + symbolic("gather", nodes)


def reversals() -> list[Case]:
    """Both axes in each order, runs of every width, lengths of nothing and of all, symbols."""
    made = []
    for (shape, batch, time), t, i in zip(
        (
            ((7, 3), 1, 0),
            ((3, 7), 0, 1),
            ((7, 3, 24), 1, 0),
            ((3, 7, 4), 0, 1),
            ((7, 2, 3, 5), 2, 0),
            ((2, 3, 5, 7, 2), -4, 3),
            ((4, 0, 3), 2, 0),
        ),
        ("f32", "f16", "f16", "i64", "bool", "u8", "f32"),
        itertools.cycle(("i64", "i32")),
        strict=False,
    ):
        x = whole(*shape, dtype="i32").astype(DType(t).numpy)
        lengths = np.resize([shape[time], 2, 0, 1], shape[batch]).astype(DType(i).numpy)
        made.append(
            one("reverse", "ReverseSequence", [x, lengths], batch_axis=batch, time_axis=time)
        )
    for node, shape in (
        (
            h.node("ReverseSequence", [spec(S, N, 8, dtype="f16"), spec(N, dtype="i64")]),
            ("s", "n", 8),
        ),
        (
            h.node(
                "ReverseSequence", [spec(N, S), spec(N, dtype="i32")], batch_axis=0, time_axis=1
            ),
            ("n", "s"),
        ),
    ):
        for env in ENVS:
            x = real(*(env.get(d, d) for d in shape)).astype(node.given[0].spec.dtype.numpy)
            lengths = np.resize([env["s"], env["s"] // 2, 0], env["n"])
            arrays = [x, lengths.astype(node.given[1].spec.dtype.numpy)]
            made.append(Case(node, TACTICS["reverse"], arrays, env))
    return made


GEOMETRY: tuple[dict[str, Any], ...] = (
    {"kernel_shape": (2, 2), "strides": (2, 2)},
    {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)},
    {"kernel_shape": (3, 2), "strides": (1, 3), "pads": (0, 1, 2, 0)},
    {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (0, 0, 1, 1), "ceil_mode": True},
    {"kernel_shape": (2, 3), "dilations": (2, 2), "pads": (1, 2, 1, 2)},
    {"kernel_shape": (7, 7), "strides": (7, 7), "pads": (3, 3, 3, 3)},
)


def pools() -> list[Case]:
    """Windows of every kind in one to three dimensions."""
    made = []
    for g, (t, c) in itertools.product(GEOMETRY, (("f32", 5), ("f16", 16))):
        x = real(2, c, 9, 14, dtype=t)
        made.append(one("pool", "MaxPool", [x], **g))
        made += [one("pool", "AveragePool", [x], **g, count_include_pad=p) for p in (False, True)]
    x = real(2, 5, 9, 11)
    x[0, 0, 0, 0] = x[0, 1, 4, 4] = x[1, 2, 8, 10] = np.nan  # taken, as in numpy
    made.append(one("pool", "MaxPool", [x], kernel_shape=(3, 3), pads=(1, 1, 1, 1)))
    made.append(one("reduce", "GlobalMaxPool", [x]))
    for op in ("MaxPool", "AveragePool"):
        made.append(
            one(
                "pool",
                op,
                [real(2, 20, 30, dtype="bf16")],
                kernel_shape=(3,),
                strides=(2,),
                pads=(1, 0),
            )
        )
        made.append(
            one("pool", op, [real(1, 8, 5, 6, 7)], kernel_shape=(2, 3, 2), strides=(2, 1, 2))
        )
        made.append(one("pool", op, [real(1, 1, 1, 1)], kernel_shape=(3, 3), pads=(1, 1, 1, 1)))
        x, b = real(2, 16, 8, 10, dtype="f16"), real(16, 1, 1, dtype="f16", seed=1)
        chain = [(op, [0], GEOMETRY[0]), ("Add", [2, 1], {}), ("Sigmoid", [3], {})]
        made.append(group("pool", [x, b], chain, results=(4, 3), anchor=0))
    same = {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}
    for op, t, c in (
        ("AveragePool", "f16", 16),
        ("MaxPool", "f32", 5),
        ("AveragePool", "bf16", 12),
    ):
        x, scale = real(2, c, 7, 9, dtype=t), real(c, 1, 1, dtype=t, seed=1)
        chain = [(op, [0], same), ("Sub", [2, 0], {}), ("Mul", [3, 1], {}), ("Add", [4, 0], {})]
        made.append(group("pool", [x, scale], chain, results=(5, 3), anchor=0))
    x = real(1, 4, 6, 40)
    x[0, 1, 2, 5], x[0, 2, 0, 0], x[0, 3] = np.nan, np.inf, -np.inf
    made.append(one("pool", "MaxPool", [x], **GEOMETRY[1]))
    specs = [spec(N, 24, S, S, dtype="f16"), spec(2, N + 1, S, 8)]
    return made + symbolic(
        "pool", [h.node(op, [s], **GEOMETRY[1]) for op in ("MaxPool", "AveragePool") for s in specs]
    )


def norms_of_windows() -> list[Case]:
    """Orders that are products and that are not, of windows and of whole planes."""
    made = []
    for g, (t, c), p in zip(
        GEOMETRY, (("f32", 5), ("f16", 16), ("bf16", 12), ("f32", 4)), (1, 2, 3, 9), strict=False
    ):
        made.append(one("pool", "LpPool", [real(2, c, 9, 14, dtype=t)], p=p, **g))
        made.append(one("reduce", "GlobalLpPool", [real(2, c, 9, 14, dtype=t)], p=p))
    x = real(2, 3, 30)
    x[0, 0, 4], x[1, 1, 9], x[1, 2] = np.nan, np.inf, 0
    made.append(one("pool", "LpPool", [x], kernel_shape=(3,), strides=(2,), pads=(1, 0)))
    made.append(one("pool", "LpPool", [real(0, 2, 5, 6, 7)], kernel_shape=(2, 3, 2)))
    made += [one("reduce", "GlobalLpPool", [y], p=3) for y in (x, x.astype(np.float64))]
    made += [one("reduce", "GlobalLpPool", [real(*s)]) for s in ((0, 2, 3), (1, 2, 0, 3))]
    image = spec(N, 24, S, S, dtype="f16")
    made += symbolic("pool", [h.node("LpPool", [image], **GEOMETRY[1])])
    return made + symbolic("reduce", [h.node("GlobalLpPool", [image])])


def places_of_the_largest() -> list[Case]:
    """Ties, no numbers, windows of pads alone, integers, both orders of storage, symbols."""
    made = []
    for g, (t, c), order in zip(
        GEOMETRY, itertools.cycle((("f32", 5), ("f16", 3), ("i8", 4))), (0, 1, 1, 0, 0, 1),
        strict=False,
    ):  # fmt: skip
        x = (real(2, c, 9, 14) * 3).astype(DType(t).numpy)
        made.append(one("places", "MaxPoolIndices", [x], storage_order=order, **g))
    x = np.round(real(1, 2, 9, 40))
    x[0, 0, 3, ::5], x[0, 1, 4], x[0, 1, 5, :9] = np.nan, -np.inf, np.inf
    made.append(one("places", "MaxPoolIndices", [x], kernel_shape=(3, 3), pads=(1, 1, 1, 1)))
    for t, shape in (("f64", (1, 2, 4, 5, 9)), ("u8", (2, 3, 4, 4, 4)), ("i64", (0, 2, 5, 5, 5))):
        x = whole(*shape, dtype="i32").astype(DType(t).numpy)
        made.append(one("places", "MaxPoolIndices", [x], kernel_shape=(2, 3, 2)))
    x = real(1, 2, 5)
    made.append(one("places", "MaxPoolIndices", [x], kernel_shape=(2,), pads=(3, 0)))
    nodes = [h.node("MaxPoolIndices", [spec(N, 3, S, S, dtype="f16")], **GEOMETRY[1])]
    return made + symbolic("places", nodes)


def columns() -> list[Case]:
    """Windows that overlap and that leave gaps, pads, dilations, every kind of number, symbols."""
    made = []
    geometry: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
        ((7, 40), (3, 2), {}),
        ((9, 11), (3, 3), {"strides": (2, 3), "pads": (1, 2, 0, 1)}),
        ((12, 31), (2, 3), {"dilations": (3, 2), "pads": (0, 4, 2, 0)}),
        ((20,), (4,), {"strides": (6,)}),
        ((4, 5, 6), (2, 2, 3), {"strides": (1, 2, 1)}),
        ((10,), (2,), {}),
    ]
    for (image, taps, attrs), t in zip(
        geometry, ("f32", "f16", "i8", "f64", "bf16", "i64"), strict=True
    ):
        n = len(image)
        stride, dilation = attrs.get("strides", (1,) * n), attrs.get("dilations", (1,) * n)
        pads = attrs.get("pads", (0,) * 2 * n)
        out = [
            (image[i] + pads[i] + pads[n + i] - dilation[i] * (taps[i] - 1) - 1) // stride[i] + 1
            for i in range(n)
        ]
        x = whole(2, 3 * int(np.prod(taps)), int(np.prod(out))).astype(DType(t).numpy)
        arrays = [x, np.array(image), np.array(taps)]
        made.append(one("columns", "Col2Im", arrays, [1, 2], **attrs))
    size = TensorSpec(DType.INT64, (2,), value=(S + 2, 5))
    node = h.node("Col2Im", [spec(N, 12, (S + 1) * 4, dtype="f16"), size, np.array([2, 2])], (2,))
    for n, s in ((1, 1), (3, 37), (0, 4)):
        arrays = [real(n, 12, 4 * s + 4, dtype="f16"), np.array([s + 2, 5]), np.array([2, 2])]
        made.append(Case(node, TACTICS["columns"], arrays, {"n": n, "s": s}))
    return made


def depthwise() -> list[Case]:
    """Kernels, strides, dilations; bias; what follows; one spatial axis; symbolic sizes."""
    made = []
    kinds: tuple[dict[str, Any], ...] = (
        {"pads": (1, 1, 1, 1)}, {"strides": (2, 2), "pads": (1, 1, 1, 1)}, {"dilations": (2, 3)},
        {"strides": (1, 2), "pads": (0, 2, 1, 0)},
    )  # fmt: skip
    for kind, (t, c) in itertools.product(kinds, (("f16", 16), ("f32", 6), ("bf16", 12))):
        x, w, b = (
            real(2, c, 9, 11, dtype=t),
            real(c, 1, 3, 3, dtype=t, seed=1),
            real(c, dtype=t, seed=2),
        )
        made.append(one("depthwise", "Convolution", [x, w, b], (1, 2), group=c, **kind))
    x, w, b = (
        real(1, 8, 7, 13, dtype="f16"),
        real(8, 1, 5, 5, dtype="f16", seed=1),
        real(8, dtype="f16", seed=2),
    )
    attrs = {"group": 8, "pads": (2, 2, 2, 2)}
    made.append(one("depthwise", "Convolution", [x, w], (1,), **attrs))
    for side, pad in ((7, 3), (13, 4)):
        large = real(8, 1, side, side, dtype="f16", seed=1)
        around = {"group": 8, "pads": (pad,) * 4}
        made.append(one("depthwise", "Convolution", [x, large, b], (1, 2), **around))
    r = real(1, 8, 7, 13, dtype="f16", seed=3)
    chain = [
        ("Convolution", [0, 1, 2], attrs),
        ("Add", [4, 3], {}),
        ("Clip", [5], {"min": 0.0, "max": 6.0}),
    ]
    made.append(group("depthwise", [x, w, b, r], chain, (1, 2), anchor=0))
    line, taps = real(2, 8, 30), real(8, 1, 4, seed=1)
    made.append(one("depthwise", "Convolution", [line, taps, None], (1,), group=8, pads=(1, 2)))
    n = h.node(
        "Convolution", [spec(N, 6, S, S), real(6, 1, 3, 3)], (1,), group=6, pads=(1, 1, 1, 1)
    )
    for env in ({"n": 2, "s": 1}, {"n": 1, "s": 9}, {"n": 0, "s": 4}):
        x = real(env["n"], 6, env["s"], env["s"])
        made.append(Case(n, TACTICS["depthwise"], [x, n.given[1].const], env))
    return made


def generated() -> list[Case]:
    """Numbers from nothing."""
    numbers = (
        (1.5, "f32"),
        (-2.5, "f16"),
        (float("-inf"), "bf16"),
        (7, "i64"),
        (1, "bool"),
        (-3, "i8"),
    )
    made = [one("generate", "Fill", [], shape=(3, 7), value=v, dtype=DType(t)) for v, t in numbers]
    made.append(one("generate", "Dims", [], values=(3, 4), shape=(2,)))
    for t in ("i64", "i32", "f32", "f64"):
        start, limit, step = (np.asarray(v, DType(t).numpy) for v in (2, 50, 3))
        made.append(one("generate", "Range", [start, limit, step], (0, 1, 2)))
    nodes = [h.node("Fill", [], shape=(N, S, 3), value=2.0, dtype=DType.FP16),
             h.node("Dims", [], values=(N, S * 2, 5), shape=(3,))]  # fmt: skip
    return made + symbolic("generate", nodes)


def reformats() -> list[Case]:
    """linear and nhwc, both ways, and plain copies; every width."""
    made = []
    for t, shape in (
        ("f16", (2, 16, 5, 7)),
        ("f32", (1, 3, 40, 33)),
        ("i8", (2, 70, 9)),
        ("i64", (2, 5, 3, 3, 2)),
    ):
        x = whole(*shape, dtype="i32").astype(DType(t).numpy)
        pairs = ((LINEAR, NHWC), (NHWC, LINEAR), (LINEAR, LINEAR), (NHWC, NHWC))
        made += [one("reformat", "tactix.Reformat@1", [x], source=a, target=b) for a, b in pairs]
    n = spec(N, 12, S, S, dtype="f16")
    nodes = [
        h.node("tactix.Reformat@1", [n], source=a, target=b)
        for a, b in ((LINEAR, NHWC), (NHWC, LINEAR))
    ]
    return made + symbolic("reformat", nodes)


def rotaries() -> list[Case]:
    """Tables that broadcast, heads and elements that stay, sizes that no vector divides."""
    parts: list[tuple[Mapping[str, Any], Sequence[tuple[int, ...]]]] = [
        ({}, [(2, 3, 5, 64), (5, 64), (1, 1, 5, 64)]),
        ({"heads": 2}, [(2, 5, 3, 64), (5, 1, 64), (2, 5, 1, 64)]),
        ({"heads": 1}, [(3, 4, 2, 80), (4, 1, 32), (1, 32)]),
        ({}, [(2, 3, 37), (3, 22), (22,)]),
        ({"heads": 0}, [(1, 3, 8), (8,), (8,)]),
        ({}, [(10,), (10,), (10,)]),
        ({}, [(2, 0, 8), (8,), (8,)]),
    ]
    made = [
        one(
            "rotary",
            "RotaryEmbedding",
            [real(*s, dtype=t, seed=i) for i, s in enumerate(of)],
            **attrs,
        )
        for t in FLOATS
        for attrs, of in parts
    ]
    nodes = [
        h.node(
            "RotaryEmbedding", [spec(N, S, 3, 40, dtype=t), *[spec(S, 1, 40, dtype=t)] * 2], heads=e
        )
        for t, e in (("f16", None), ("bf16", 2))
    ]
    return made + symbolic("rotary", nodes)


TABLE: dict[str, Callable[[], list[Case]]] = {
    f.__name__: f
    for f in (
        pointwise_broadcasts,
        pointwise_dtypes,
        pointwise_functions,
        pointwise_formats,
        rows_softmax,
        rows_norm,
        rows_fused,
        doubles,
        reduce_axes,
        reduce_exponentials,
        reduce_dtypes,
        move_transpose,
        move_others,
        pads,
        gathers,
        reversals,
        pools,
        norms_of_windows,
        places_of_the_largest,
        columns,
        depthwise,
        generated,
        reformats,
        rotaries,
    )
}
