"""c_pointwise: broadcast patterns, formats, dtypes, special values, symbolic dims."""

from __future__ import annotations

import functools
import itertools

import asked
import numpy as np
import pytest
from harness import NATIVE, Case, check, check_all, devices, fused, node, quotients, spec

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.base.tensor import NHWC, TensorSpec, blocked
from tactix.contracts import expr
from tactix.contracts.expr import Primitive
from tactix.contracts.tactic import Reject
from tactix_codegen.numerics import numpy_table
from tactix_cpu.compiler import CCompiler
from tactix_cpu.tactics.pointwise.tactic import CpuPointwiseTactic
from tactix_sdk.scalar_layer import PointwiseLayer, pointwise

TACTIC = CpuPointwiseTactic()
SPECIAL = np.array(
    [
        0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        1e-40,
        -1e-40,
        1e-30,
        3e38,
        -3e38,
        88.7,
        89,
        -87.5,
        -104.5,
        1,
        -1,
        0.5,
        -0.5,
        2.5,
    ],
    np.float32,
)


def _rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def _f32(*shape: int, seed: int = 0) -> np.ndarray:
    return (_rng(seed).standard_normal(shape) * 3).astype(np.float32)


def _unary(op: str) -> PointwiseLayer:
    def function(x: expr.Scalar) -> expr.Scalar:
        return expr._op(op, x)

    return pointwise(f"test.{op.capitalize()}@1")(function)


UNARY_F32 = sorted(set(expr.UNARY) - {"bitnot", "not"})


@pytest.mark.parametrize("device", devices(), ids=lambda d: d.name)
def test_every_unary_function_on_special_and_ordinary_values(device):
    cases = []
    for op in UNARY_F32:
        x = np.concatenate([SPECIAL, _f32(100), _f32(30) * 30])
        if op in ("log", "sqrt", "rsqrt", "acosh", "log1p"):
            x = np.concatenate([x, np.abs(x)])
        if op in ("asin", "acos", "atanh"):
            x = np.concatenate([SPECIAL, np.tanh(_f32(100))])
        if op in ("sinh", "cosh", "tan", "exp", "expm1"):
            x = x[~(np.abs(x) > 80) | ~np.isfinite(x) | (x < -80)]
        cases.append(Case(node(_unary(op), [x]), TACTIC, [x], device=device, nt=(1,)))
    check_all(cases)


@pytest.mark.parametrize(
    "op",
    [
        "exp", "expm1", "log", "log1p", "tanh", "sin", "cos", "rsqrt", "sqrt",
        "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh",
    ],
)  # fmt: skip
def test_vector_functions_are_within_a_few_units_in_the_last_place(op):
    """As builds compile them that measure nothing."""
    from harness import Run, _compile, _library

    x = np.concatenate([_rng().uniform(-5, 5, 20000), _rng(1).uniform(-1, 1, 20000) * 1e-3]).astype(
        np.float32
    )
    if op in ("log", "rsqrt", "sqrt"):
        x = np.abs(x) + np.float32(1e-6)
    if op == "log1p":
        x = np.maximum(x, np.float32(-0.99))
    if op in ("asin", "acos", "atanh"):
        x = np.tanh(x)
    if op == "acosh":
        x = 1 + np.abs(x)
    if op in ("atan", "asinh", "sinh", "cosh"):
        x = np.concatenate([x, x * 17])
    if op == "tanh":
        x = np.concatenate([x, x * 2])  # up to where it is 1
    case = Case(node(_unary(op), [x]), TACTIC, [x])
    ((variant, artifact),) = _compile(case)
    (binary,) = CCompiler().quick().compile([artifact.code], NATIVE)
    (y,) = Run(case.node, variant, artifact, {})(getattr(_library(binary), binary.symbol), [x], 1)
    wide = x.astype(np.float64)
    exact = numpy_table()[op](wide)
    units = np.abs(y - exact) / np.spacing(np.abs(exact).astype(np.float32))
    near_zero_of_a_wave = (np.abs(exact) < 1e-2) if op in ("sin", "cos") else np.zeros(len(x), bool)
    assert units[~near_zero_of_a_wave].max() < 4


def test_gelu_keeps_its_digits_in_the_negative_tail():
    x = np.linspace(-6, 6, 4001, dtype=np.float32)
    check(node("Gelu", [x]), TACTIC, [x], budget=1e-7)
    check(node("Gelu", [x], approximate="tanh"), TACTIC, [x], budget=3e-7)


@pytest.mark.parametrize(
    "shapes",
    [
        [(7, 33), (7, 33)], [(7, 33), (33,)], [(7, 33), (7, 1)], [(33,), (7, 1)], [(7, 33), ()], [(1,), (5,)], [(), ()],
        [(2, 5, 3, 7), (1, 5, 1, 1)], [(2, 5, 3, 7), (2, 1, 3, 1)], [(2, 5, 3, 7), (7,)], [(2, 5, 3, 7), (2, 5, 1, 1)],
        [(2, 1, 3, 1), (5, 1, 7)], [(3, 1000), (1, 1000)], [(1000, 3), (1000, 1)], [(0, 5), (5,)], [(4, 0), (4, 1)],
        [(3, 64), (64,)], [(40, 16), (16,)], [(1, 1, 1), (1, 1)], [(2, 3, 200), (2, 1, 1)], [(2, 130), (2, 1)],
    ],
    ids=str,
)  # fmt: skip
def test_broadcast_patterns(shapes):
    a, b = (_f32(*s, seed=i) for i, s in enumerate(shapes))
    check_all([Case(node(op, [a, b]), TACTIC, [a, b], nt=(1, 2, 3)) for op in ("Add", "Sub")])


@pytest.mark.parametrize("device", devices(), ids=lambda d: d.name)
@pytest.mark.parametrize("channels", [16, 5, 35])
def test_blocked_and_nhwc_formats(device, channels):
    x = _f32(2, channels, 3, 7)
    cases = []
    for shape in [
        (1, channels, 1, 1),
        (2, channels, 1, 1),
        (2, channels, 3, 7),
        (1,),
        (2, 1, 3, 7),
        (1, channels, 3, 7),
    ]:
        b = _f32(*shape, seed=1)
        n = fused(
            [x, b], [("Add", [0, 1], {}), ("Sigmoid", [2], {}), ("Mul", [3, 0], {})], results=(4, 3)
        )
        cases.append(Case(n, TACTIC, [x, b], device=device))
    cases.append(Case(node("Relu", [x]), TACTIC, [x], device=device))
    cases.append(Case(node("Exp", [x]), TACTIC, [x], device=device))
    for variants in check_all(cases)[:3]:
        assert {blocked(device.lanes), NHWC} <= {v.output_format(0) for v in variants}


def test_a_per_channel_operand_may_stay_linear_or_be_blocked():
    x, s = _f32(2, 20, 3, 7), _f32(2, 20, 1, 1)
    variants = check(node("Mul", [x, s]), TACTIC, [x, s])
    lanes = blocked(NATIVE.lanes)
    assert {v.inputs for v in variants if v.outputs == (lanes,)} == {
        (lanes, variants[0].input_format(1)),
        (lanes, lanes),
    }


DTYPES = ["f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8"]


@pytest.mark.parametrize("code", DTYPES)
def test_arithmetic_in_every_dtype(code):
    t = DType(code)
    low = 0 if code[0] == "u" else -100
    a, b = (_rng(s).integers(low, 100, (5, 37)).astype(t.numpy) for s in (0, 1))
    ops = ["Add", "Sub", "Mul", "Div", "Min", "Max", "Equal", "Less", "GreaterOrEqual", "Mod"]
    cases = [
        Case(node(op, [a, b]), TACTIC, [a, b]) for op in ops if not (op == "Mod" and t.is_float)
    ]
    cases += [
        Case(node(op, [a]), TACTIC, [a]) for op in ("Abs", *(["Neg"] if code[0] != "u" else []))
    ]
    if t.is_float:
        cases = [c for c in cases if c.node.layer.name != "Div"]
        d = np.where(np.asarray(b, np.float32) == 0, 1, b).astype(t.numpy)
        cases += [
            Case(node("Div", [a, d]), TACTIC, [a, d]),
            Case(node("Exp", [a / 50]), TACTIC, [(a / 50).astype(t.numpy)]),
        ]
    check_all(cases)


def test_integer_edges_do_not_trap():
    a = np.array([-(2**31), 2**31 - 1, -7, 7, 0, 5], np.int32)
    b = np.array([-1, 0, 2, -2, 0, -1], np.int32)
    with np.errstate(all="ignore"):
        check_all(
            [Case(node(op, [a[2:4], b[2:4]]), TACTIC, [a[2:4], b[2:4]]) for op in ("Div", "Mod")]
        )
        check(node("Div", [a, b]), TACTIC, [a, b])
        check(node("Mod", [a, b], fmod=True), TACTIC, [a, b])


@pytest.mark.parametrize("fmod", [True, False])
def test_remainders_are_exact(fmod):
    """Of any bits, of numbers at the edges, and of small whole ones."""
    rng = _rng(5)
    ends = [0, np.inf, np.nan, 1e-45, 1.17e-38, 3.4e38, 1, 3, 2**28, 2**28 + 32]
    edges = np.array([*ends, *(-e for e in ends)], np.float32)
    a, b = (
        np.concatenate(
            [
                rng.integers(0, 1 << 32, 500, dtype=np.uint32).view(np.float32),
                rng.choice(edges, 200),
                rng.integers(-99, 99, 50).astype(np.float32),
            ]
        )
        for _ in range(2)
    )
    with np.errstate(all="ignore"):
        check(node("Mod", [a, b], fmod=fmod), TACTIC, [a, b], budget=0.0)


CASTS = ["f64", "f32", "f16", "bf16", "i64", "i32", "i8", "u8", "bool"]


@pytest.mark.parametrize("source", CASTS)
def test_casts(source):
    x = _rng().integers(0, 100, 77).astype(DType(source).numpy)
    cases = [Case(node("Cast", [x], to=DType(t)), TACTIC, [x]) for t in CASTS]
    if source.startswith(("f", "b")) and source != "bool":
        y = (_f32(77) * 20).astype(DType(source).numpy)
        cases += [
            Case(node("Cast", [y], to=DType(t)), TACTIC, [y])
            for t in ("f64", "f32", "f16", "bf16", "i32", "bool")
        ]
    check_all(cases)


def test_narrowing_floats_rounds_to_even_and_keeps_special_values():
    x = np.concatenate(
        [
            SPECIAL,
            [65504, 65519, 65520, 6e-8, 2.9e-8, 3.1e-5, 1 + 2**-11, 1 + 3 * 2**-11, 1 + 2**-8],
        ]
    )
    x = x.astype(np.float32)
    with np.errstate(all="ignore"):
        check_all(
            [
                Case(node("Cast", [x], to=t), TACTIC, [x], budget=0, device=d)
                for t in (DType.FP16, DType.BF16)
                for d in devices()
            ]
        )


@pytest.mark.parametrize("dtype", ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"])
def test_integers_divided_by_zero_give_zero_and_end_no_process(dtype: str):
    a, vector = quotients(dtype)
    low, zero = np.iinfo(a.dtype).min, np.zeros((), a.dtype)
    less = np.array(-1 if low else np.iinfo(a.dtype).max, a.dtype)
    cases = []
    for op, attrs in (("Div", {}), ("Mod", {}), ("Mod", {"fmod": True})):
        group = [("Add", [0, 0], {}), ("Sub", [2, 0], {}), (op, [3, 1], attrs), ("Mul", [4, 0], {})]
        for b, constants in itertools.product((vector, zero, less), ((), (1,))):
            cases.append(Case(node(op, [a, b], constants, **attrs), TACTIC, [a, b]))
            cases.append(Case(fused([a, b], group, constants=constants), TACTIC, [a, b]))
    check_all(cases)


def test_logic_and_select_over_mixed_dtypes():
    c, d = (_rng(s).integers(0, 2, (5, 37)).astype(bool) for s in (0, 1))
    a, b, i = _f32(5, 37), _f32(37, seed=1), _rng().integers(-9, 9, (5, 37))
    cases = [Case(node(op, [c, d]), TACTIC, [c, d]) for op in ("And", "Or", "Xor", "Equal")]
    cases += [
        Case(node("Not", [c]), TACTIC, [c]),
        Case(node("Where", [c, a, b]), TACTIC, [c, a, b]),
    ]
    cases += [Case(node("Where", [c, i, i[::-1].copy()]), TACTIC, [c, i, i[::-1].copy()])]
    cases += [Case(node("Where", [c, d, ~d]), TACTIC, [c, d, ~d])]
    n = fused([i, a], [("Cast", [0], {"to": DType.FP32}), ("Mul", [2, 1], {})])
    check_all([*cases, Case(n, TACTIC, [i, a])])


def test_quantise_and_dequantise_in_one_group():
    x = _f32(3, 50) * 40
    s = np.float32(0.3)
    clip, to8, to32 = {"min": -128.0, "max": 127.0}, {"to": DType.INT8}, {"to": DType.FP32}
    steps = [
        ("Div", [0, 1], {}),
        ("Round", [2], {}),
        ("Clip", [3], clip),
        ("Cast", [4], to8),
        ("Cast", [5], to32),
    ]
    n = fused([x, np.asarray(s)], [*steps, ("Mul", [6, 1], {})], results=(5, 7))
    check(n, TACTIC, [x, np.asarray(s)])


def test_nan_and_infinity_survive_min_max_clip_and_relu():
    x, y = np.tile(SPECIAL, 19), np.repeat(SPECIAL, 19)
    cases = [
        Case(node(op, [x, y]), TACTIC, [x, y], device=d) for op in ("Min", "Max") for d in devices()
    ]
    cases += [
        Case(node("Relu", [x]), TACTIC, [x]),
        Case(node("Clip", [x], min=-1.0, max=6.0), TACTIC, [x]),
    ]
    check_all(
        [*cases, Case(node("Sigmoid", [x]), TACTIC, [x]), Case(node("Tanh", [x]), TACTIC, [x])]
    )


@pytest.mark.parametrize("batch", [0, 1, 5])
def test_symbolic_dims(batch):
    n, s = dims.sym("n"), dims.sym("s")
    a = TensorSpec(DType.FP32, (n, s, 24))
    specs = [
        [a, TensorSpec(DType.FP32, shape)]
        for shape in [(24,), (n, 1, 24), (n, s, 1), (1, s, 24), (n, s, 24)]
    ]
    env = {"n": batch, "s": 3}
    check_all([Case(node("Add", pair), TACTIC, env=env) for pair in specs])


@pytest.mark.parametrize("channels", [16, 20])
def test_symbolic_dims_in_blocked_format(channels):
    n, h = dims.sym("n"), dims.sym("h")
    x, b = TensorSpec(DType.FP32, (n, channels, h, 5)), TensorSpec(DType.FP32, (1, channels, 1, 1))
    variants = check(
        fused([x, b], [("Add", [0, 1], {}), ("Exp", [2], {})]), TACTIC, env={"n": 3, "h": 2}
    )
    assert {v.output_format(0).name for v in variants} == {"linear", "nhwc", f"c{NATIVE.lanes}"}


def test_symbolic_channels_in_blocked_format():
    c = dims.sym("c")
    x, b = TensorSpec(DType.FP32, (2, c, 5, 3)), TensorSpec(DType.FP32, (c, 1, 1))
    for channels in (1, 16, 40):
        assert (
            len(
                check(
                    fused([x, b], [("Add", [0, 1], {}), ("Exp", [2], {})]),
                    TACTIC,
                    env={"c": channels},
                )
            )
            == 3
        )


def test_a_primitive_uses_its_own_text():
    cube = Primitive("cube", 1, lambda x: x * x * x, (("c", "{0} * {0} * {0}"),))
    lay = pointwise("test.Cube@1")(lambda x: cube(x) + 1.0)
    x, wide = _f32(50), _f32(50).astype(np.float64)
    check_all([Case(node(lay, [x]), TACTIC, [x]), Case(node(lay, [wide]), TACTIC, [wide])])


def test_power_forms():
    x = np.abs(_f32(50)) + 1
    powers = (0.0, 0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 3.0, 4.0, 1.7)
    layers = [
        pointwise(f"test.Power{i}@1")(functools.partial(expr.pow_, b=p))
        for i, p in enumerate(powers)
    ]
    y = np.float32([1.7])
    check_all(
        [
            *(Case(node(op, [x]), TACTIC, [x]) for op in layers),
            Case(node("Pow", [x, y]), TACTIC, [x, y]),
        ]
    )


@pytest.mark.parametrize("device", devices(), ids=lambda d: d.name)
def test_powers_of_integers(device):
    """Those of doubles, as far as int32 holds them, and of exponents of other dtypes."""
    low, high = np.iinfo(np.int32).min, np.iinfo(np.int32).max
    bases = [0, 1, -1, 2, -2, 3, -3, 5, 7, 10, 46340, -46341, 65536, high, low, low + 1]
    exponents = [
        0,
        1,
        2,
        3,
        4,
        5,
        6,
        7,
        9,
        13,
        19,
        30,
        31,
        62,
        63,
        64,
        65,
        1000,
        high,
        low,
        -1,
        -2,
        -3,
        -64,
        low + 1,
    ]
    x, y = (a.ravel() for a in np.meshgrid(np.int32(bases), np.int32(exponents)))
    with np.errstate(all="ignore"):
        size = np.power(x.astype(np.float64), y)
    x, y = (
        x[abs(size) <= high],
        y[abs(size) <= high],
    )  # what lies beyond, processors convert as they like
    few, three = (abs(x[:33]) % 9).astype(np.int32), np.int32([3])
    check_all(
        [
            Case(node("Pow", [x, y]), TACTIC, [x, y], device=device),
            Case(node("Pow", [few, three]), TACTIC, [few, three], device=device),
            *(
                Case(node("Pow", [few, e]), TACTIC, [few, e], device=device)
                for e in (np.int64([3]), np.int8([3]), np.uint8([2]), np.float32([2.5]))
            ),
            *(
                Case(node(op, [few]), TACTIC, [few], device=device)
                for op in (
                    pointwise(f"test.WholePower{i}@1")(functools.partial(expr.pow_, b=p))
                    for i, p in enumerate((5.0, 2.5))
                )
            ),
        ]
    )


@pytest.mark.parametrize("device", devices(), ids=lambda d: d.name)
def test_powers_of_any_numbers(device):
    """Those of C: infinities, NaN, zeros with a sign, numbers below normal ones."""
    special = [0, -0.0, 1, -1, 2, -2, 3, 0.5, -0.5, 1.5, 2.5e38, -3e38, 1e-40, -1e-40, 126, -149]
    special += [np.inf, -np.inf, np.nan, 16777215, -16777216, 1.0000001, 0.99999994]
    x, y = (a.ravel() for a in np.meshgrid(np.float32(special), np.float32(special)))
    high, near = (
        np.exp(_rng().uniform(-87, 88, 400)).astype(np.float32),
        _rng(1).uniform(-3, 3, 400),
    )
    to_near = (near / np.log(high.astype(np.float64))).astype(np.float32)
    with np.errstate(all="ignore"):
        cases = [Case(node("Pow", [x, y]), TACTIC, [x, y], device=device)]
        for few in (x, y):  # one exponent for all, and squares
            number = np.float32([2.0])
            cases.append(Case(node("Pow", [few, number]), TACTIC, [few, number], device=device))
        cases.append(
            Case(node("Pow", [high, to_near]), TACTIC, [high, to_near], device=device, budget=3e-7)
        )
        check_all(cases)


@pytest.mark.parametrize("device", devices(), ids=lambda d: d.name)
def test_whether_an_axis_broadcasts_may_be_told_by_running_alone(device):
    a, b = dims.sym("a"), dims.sym("b")
    shapes = [
        ((a,), (b,)), ((3, a), (1, b)), ((a, 4), (b, 4)), ((a, 2, b), (b, 1, a)), ((b, a), (5,)), ((a, 1), (b, 7)),
    ]  # fmt: skip
    pairs = [[TensorSpec(t, s) for s in pair] for pair in shapes for t in (DType.FP32, DType.INT64)]
    sizes = ((1, 5), (5, 1), (5, 5), (1, 1))
    check_all(
        [
            Case(node("Sub", pair), TACTIC, env={"a": m, "b": n}, device=device)
            for pair in pairs
            for m, n in sizes
        ]
    )
    check_all(
        [Case(node("Sub", pair), TACTIC, env={"a": 0, "b": 1}, device=device) for pair in pairs[:6]]
    )
    long = [
        {"a": 3, "b": m, "c": c, "d": n} for c in (1, 3) for m, n in ((70, 70), (70, 1), (1, 70))
    ]
    open_ = [
        [TensorSpec(t, tuple(map(dims.sym, s))) for s in ("ab", "cd")]
        for t in (DType.FP32, DType.INT64)
    ]
    check_all(
        [Case(node("Sub", pair), TACTIC, env=e, device=device) for pair in open_ for e in long]
    )


def test_what_it_rejects_and_why():
    primitive = Primitive("odd", 1, lambda x: x)
    x = _f32(4)
    assert "has no C text" in _reason(node(pointwise("test.Odd@1")(lambda v: primitive(v)), [x]))
    assert "no C type" in _reason(
        node("Add", [spec(x.astype(np.complex64)), spec(x.astype(np.complex64))])
    )
    two = fused([x, _f32(3, 4)], [("Relu", [0], {}), ("Add", [2, 1], {})], results=(2, 3))
    assert "different shapes" in _reason(two)


def _reason(n) -> str:
    found = asked.variants(TACTIC, n, NATIVE)
    assert isinstance(found, Reject)
    return found.reason


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int16, np.uint8])
def test_quotients_of_whole_numbers_are_exact(dtype):
    """Those next to whole numbers, too, which a rounded quotient could reach."""
    info, rng = np.iinfo(dtype), _rng(9)
    b = rng.integers(info.min, info.max, 4000, endpoint=True)
    b[::3] = rng.integers(1, min(info.max, 100), len(b[::3]))
    b[::50] = 0
    whole = b * (info.max // np.maximum(np.abs(b), 1))
    a = np.concatenate([whole - 1, whole, whole + 1, rng.integers(info.min, info.max, 4000)])
    a, b = np.clip(a, info.min, info.max).astype(dtype), np.tile(b, 4).astype(dtype)
    layers = (("Div", {}), ("Mod", {}), ("Mod", {"fmod": True}))
    check_all([Case(node(op, [a, b], **attrs), TACTIC, [a, b]) for op, attrs in layers])
