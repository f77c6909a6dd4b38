"""c_scaling and c_small_cast: every dtype and form of scales, edges of rounding and range."""

from __future__ import annotations

import numpy as np
import pytest
from harness import Case, check_all, node, spec

from tactix.base.dtypes import DType
from tactix_cpu.tactics.scaling import ScalingTactic, SmallCastTactic

SCALING, CAST = ScalingTactic(), SmallCastTactic()
INTS = ["i4", "u4", "i2", "u2", "i8", "u8", "i16", "u16"]
SMALL = ["f8e4m3", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz", "f4e2m1"]
SHAPE = (3, 10, 7)
FORMS = {
    "tensor": ((), {}),
    "first axis": ((3,), {"axis": 0}),
    "middle axis": ((10,), {"axis": 1}),
    "last axis": ((7,), {"axis": -1}),
    "blocks in the middle": ((3, 3, 7), {"axis": 1, "block_size": 4}),
    "blocks at the end": ((3, 10, 3), {"axis": 2, "block_size": 3}),
}


def codes(code, *shape):
    rng = np.random.default_rng(2)
    t = DType(code)
    if t.is_float:
        return (rng.standard_normal(shape) * 4).astype(np.float32).astype(t.numpy)
    return rng.integers(0, 1 << min(16, t.bits), shape).astype(np.int32).astype(t.numpy)


def numbers(code, *shape, factor=1.0):
    return (np.random.default_rng(1).standard_normal(shape) * factor).astype(DType(code).numpy)


def quantized(form, to, zero, real="f32", **more):
    shape, attrs = FORMS[form]
    x, scale = (
        numbers(real, *SHAPE, factor=20),
        np.abs(numbers(real, *shape)) + DType(real).numpy.type(0.5),
    )
    given = [x, np.asarray(scale, DType(real).numpy), *([codes(to, *shape)] if zero else [])]
    made = node("QuantizeLinear", given, dtype=DType(to), **attrs, **more)
    return Case(made, SCALING, given)


def dequantized(form, source, zero, real="f32"):
    shape, attrs = FORMS[form]
    scale = np.asarray(np.abs(numbers(real, *shape)), DType(real).numpy)
    given = [codes(source, *SHAPE), scale, *([codes(source, *shape)] if zero else [])]
    made = node("DequantizeLinear", given, dtype=DType(real), **attrs)
    return Case(made, SCALING, given)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("make", [quantized, dequantized])
def test_every_form_and_integer(form, make):
    check_all([make(form, code, zero) for code in INTS for zero in (False, True)])


@pytest.mark.parametrize("make", [quantized, dequantized])
@pytest.mark.parametrize("real", ["f64", "f16", "bf16"])
def test_every_number(make, real):
    check_all([make(form, code, True, real) for form in FORMS for code in ("i8", "u4")])


@pytest.mark.parametrize("code", SMALL)
def test_small_floats(code):
    cases = [make(form, code, False) for form in FORMS for make in (quantized, dequantized)]
    check_all([*cases, quantized("tensor", code, False, saturate=False)])


def test_wide_integers_are_numbers():
    check_all([dequantized(form, "i32", True) for form in FORMS])


@pytest.mark.parametrize("env", [{"n": 0, "s": 5}, {"n": 3, "s": 0}, {"n": 4, "s": 9}])
def test_symbolic_sizes(env):
    x = codes("i4", env["n"], env["s"], 6)
    for shape, named, attrs in (
        ((), (), {}),
        ((env["s"],), ("s",), {"axis": 1}),
        ((env["n"], env["s"], 2), ("n", "s", 2), {"axis": 2, "block_size": 4}),
    ):
        scale = np.abs(numbers("f32", *shape))
        scale = np.asarray(scale, np.float32)
        made = node("DequantizeLinear", [spec(x, ("n", "s", 6)), spec(scale, named)], **attrs)
        check_all([Case(made, SCALING, [x, scale], env=env)])


EDGES = np.array(
    [
        0.0, -0.0, 1, -1, 0.25, 0.75, 1.75, 2.5, 3.5, 5, -5, 6, 7, 240, 248, 256, 448, 464, 465, 480, 500,
        57344, 61440, 61441, 65536, 2.0**-6, 2.0**-9, 2.0**-10, 2.0**-10 * 1.01, 3 * 2.0**-10, 2.0**-16, 2.0**-17,
        3 * 2.0**-17, 1e-12, -1e-12, 1.0625, 1.1875, 1.125, 1.375, np.inf, -np.inf, np.nan,
    ],
    np.float32,
)  # fmt: skip


@pytest.mark.parametrize("to", SMALL)
@pytest.mark.parametrize("saturate", [True, False])
def test_edges_of_small_floats(to, saturate):
    rng = np.random.default_rng(0)
    more = rng.integers(0, 1 << 32, 4000, np.uint32, endpoint=False).view(np.float32)
    near = (rng.standard_normal(4000) * 100).astype(np.float32)
    for x in (EDGES, more, near):
        with np.errstate(invalid="ignore"):
            made = node("Cast", [x], to=DType(to), saturate=saturate)
            check_all([Case(made, CAST, [x], budget=0)])


@pytest.mark.parametrize("source", [*SMALL, "f8e8m0", "i4", "u4", "i2", "u2"])
def test_every_code_is_a_number(source):
    bits = 1 << DType(source).bits
    x = np.arange(bits, dtype=np.uint8).view(DType(source).numpy)
    targets = (
        ["f32", "f16", "bf16"]
        if DType(source).is_float
        else ["f32", "f16", "i8", "i32", "u8", "bool"]
    )
    with np.errstate(over="ignore"):
        check_all([Case(node("Cast", [x], to=DType(t)), CAST, [x], budget=0) for t in targets])


@pytest.mark.parametrize("to", ["i4", "u4", "i2", "u2"])
def test_numbers_to_small_integers(to):
    x = np.array([0, 1, -1, 3.7, -3.7, 7, -8, 9.9, 17, 300, -300], np.float32)
    given = [x, x.astype(np.float16), x.astype(np.int32), x.astype(np.int8)]
    check_all([Case(node("Cast", [v], to=DType(to)), CAST, [v]) for v in given])


@pytest.mark.parametrize("code", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("rounding", ["up", "down", "nearest"])
def test_exponents(code, rounding):
    bits = np.random.default_rng(0).integers(0, 1 << 32, 3000, np.uint32, endpoint=False)
    with np.errstate(over="ignore", invalid="ignore"):
        x = np.concatenate([EDGES, bits.view(np.float32)]).astype(DType(code).numpy)
        nodes = [node("CastToExponent", [x], rounding=rounding, saturate=s) for s in (True, False)]
        check_all([Case(n, CAST, [x], budget=0) for n in nodes])
