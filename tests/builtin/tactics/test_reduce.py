"""c_reduce: axes, dtypes, formats, epilogues, special values, symbolic dims."""

from __future__ import annotations

import itertools
from dataclasses import replace

import asked
import numpy as np
import pytest
from harness import Case, check, check_all, devices, fused, node, spec

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.base.tensor import NHWC, TensorSpec, blocked
from tactix.contracts.tactic import Reject
from tactix_cpu.tactics.reduce.tactic import CpuReduceTactic

TACTIC = CpuReduceTactic()
FLOAT_OPS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd")


def _f32(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("rank", [1, 2, 3, 4])
def test_every_choice_of_axes(rank):
    shape = (3, 5, 2, 37)[-rank:] if rank < 4 else (3, 5, 2, 7)
    x = _f32(*shape)
    axes = [a for k in range(rank + 1) for a in itertools.combinations(range(rank), k)]
    check_all(
        [
            Case(node("ReduceSum", [x], axes=a, keepdims=bool(i % 2)), TACTIC, [x])
            for i, a in enumerate(axes)
        ]
    )


@pytest.mark.parametrize("device", devices(), ids=lambda d: d.name)
def test_every_operation_along_rows_and_columns(device):
    cases = []
    for op, (shape, axes) in itertools.product(
        FLOAT_OPS,
        [
            ((7, 100), (1,)),
            ((7, 100), (0,)),
            ((2, 3, 130), (1,)),
            ((5, 1), (1,)),
            ((1, 5), (0,)),
            ((9, 64), (-1,)),
            ((33, 3), (0,)),
        ],
    ):
        x = 1 + _f32(*shape) * np.float32(0.1)
        cases.append(Case(node(op, [x], axes=axes), TACTIC, [x], device=device, nt=(1, 3)))
    check_all(cases)


@pytest.mark.parametrize("device", devices(), ids=lambda d: d.name)
def test_short_rows(device):
    """More and fewer rows than a vector has lanes; what stands before and behind; NaN."""
    cases = []
    for (op, n), rows in itertools.product(zip(FLOAT_OPS, (2, 3, 5, 7, 8), strict=True), (3, 50)):
        x = 1 + _f32(2, rows, n) * np.float32(0.1)
        x[1, 2, 1] = np.nan
        cases += [Case(node(op, [y], axes=(-1,)), TACTIC, [y]) for y in (x, x.astype(np.float16))]
    x, b = _f32(37, 3), _f32(37, 1, seed=1)
    steps = [("Exp", (0,), {}), ("ReduceSum", (2,), {"axes": (1,)}), ("Add", (3, 1), {})]
    cases.append(Case(fused([x, b], steps, anchor=1), TACTIC, [x, b]))
    check_all([replace(c, device=device, nt=(1, 3)) for c in cases])


def test_nan_infinity_and_nothing_to_reduce():
    x = _f32(6, 40)
    x[1, 3], x[2, 39], x[3, 5], x[4, 20] = np.nan, np.inf, -np.inf, np.nan
    empty = _f32(4, 0)
    cases = [Case(node(op, [x], axes=(a,)), TACTIC, [x]) for op in FLOAT_OPS for a in (0, 1)]
    with np.errstate(all="ignore"):
        cases += [
            Case(node(op, [empty], axes=(1,)), TACTIC, [empty])
            for op in FLOAT_OPS
            if op != "ReduceMean"
        ]
        cases += [Case(node("ReduceSum", [empty.T], axes=(1,)), TACTIC, [empty.T.copy()])]
        check_all(cases)


@pytest.mark.parametrize("code", ["f64", "f16", "bf16", "i64", "i32", "i8", "u8", "u64"])
def test_other_dtypes(code):
    t = DType(code)
    x = (
        np.random.default_rng(0)
        .integers(0 if code[0] == "u" else -9, 9, (4, 6, 19))
        .astype(t.numpy)
    )
    ops = [op for op in FLOAT_OPS if op != "ReduceProd" or not t.is_float]
    check_all([Case(node(op, [x], axes=a), TACTIC, [x]) for op in ops for a in ((1,), (0, 2))])


@pytest.mark.parametrize("code", ["f64", "i64", "i32", "i8", "u8", "u64"])
def test_other_dtypes_side_by_side(code):
    """More neighbours than one chunk has, one, and none; several axes around them."""
    t, low = DType(code), 0 if code[0] == "u" else -9
    drawn = np.random.default_rng(0).integers
    shapes = [((3, 5, 600), (1,)), ((2, 3, 4, 257), (0, 2)), ((4, 1), (0,)), ((2, 3, 0), (1,))]
    arrays = [(drawn(low, 9, shape).astype(t.numpy), axes) for shape, axes in shapes]
    ops = [op for op in FLOAT_OPS if op != "ReduceProd" or not t.is_float]
    check_all(
        [Case(node(op, [x], axes=a), TACTIC, [x], nt=(1, 3)) for op in ops for x, a in arrays]
    )


def test_neighbours_of_which_only_running_tells_how_many():
    x = TensorSpec(DType.INT32, (3, dims.sym("n"), dims.sym("s")))
    for s in (1, 300):
        check(node("ReduceMax", [x], axes=(1,)), TACTIC, env={"n": 4, "s": s})


@pytest.mark.parametrize("device", devices(), ids=lambda d: d.name)
@pytest.mark.parametrize("channels", [32, 5, 35])
def test_global_pooling_in_every_format(device, channels):
    x = _f32(2, channels, 5, 7)
    cases = [
        Case(node(op, [x]), TACTIC, [x], device=device)
        for op in ("GlobalAveragePool", "GlobalMaxPool")
    ]
    cases.append(
        Case(node("ReduceMean", [x], axes=(2, 3), keepdims=False), TACTIC, [x], device=device)
    )
    half = x.astype(DType.BF16.numpy)
    cases.append(Case(node("WideGlobalAveragePool", [half]), TACTIC, [half], device=device))
    found = check_all(cases)
    lanes = blocked(device.lanes)
    made = {(v.input_format(0), v.output_format(0)) for v in found[0]}
    assert {(lanes, lanes), (NHWC, NHWC)} <= made
    assert len(made) == 5


@pytest.mark.parametrize("channels", [16, 20])
def test_epilogues(channels):
    x, b, s = (
        _f32(2, channels, 4, 9),
        _f32(1, channels, 1, 1, seed=1),
        _f32(2, channels, 1, 1, seed=2),
    )
    pool = fused(
        [x, b, s], [("GlobalAveragePool", [0], {}), ("Add", [3, 1], {}), ("Sigmoid", [4], {}), ("Mul", [5, 2], {})],
        results=(6, 5), anchor=0,
    )  # fmt: skip
    y, c, d = _f32(6, 50), _f32(6, 1, seed=3), np.float32(0.5)
    rows = fused([y, c, np.asarray(d)], [("ReduceSum", [0], {"axes": (1,)}), ("Mul", [3, 1], {}), ("Exp", [4], {}),
                                         ("Add", [5, 2], {})], anchor=0)  # fmt: skip
    e = _f32(50, seed=4)
    columns = fused(
        [y, e],
        [("ReduceMax", [0], {"axes": (0,), "keepdims": False}), ("Sub", [2, 1], {})],
        anchor=0,
    )
    everything = fused(
        [y, c[:1]], [("ReduceMean", [0], {"axes": (0, 1)}), ("Mul", [2, 1], {})], anchor=0
    )
    check_all(
        [
            Case(pool, TACTIC, [x, b, s], nt=(1, 2, 3)),
            Case(rows, TACTIC, [y, c, np.asarray(d)]),
            Case(columns, TACTIC, [y, e]),
            Case(everything, TACTIC, [y, c[:1]]),
        ]
    )


def test_epilogue_that_changes_the_dtype():
    x = _f32(5, 40)
    to64 = fused(
        [x], [("ReduceSum", [0], {"axes": (1,)}), ("Cast", [1], {"to": DType.FP64})], anchor=0
    )
    to16 = fused(
        [x], [("ReduceSum", [0], {"axes": (0,)}), ("Cast", [1], {"to": DType.FP16})], anchor=0
    )
    less = fused([x], [("ReduceSum", [0], {"axes": (0,)}), ("IsNaN", [1], {})], anchor=0)
    check_all(
        [Case(to64, TACTIC, [x], budget=1e-6), Case(to16, TACTIC, [x]), Case(less, TACTIC, [x])]
    )


@pytest.mark.parametrize("env", [{"n": 1, "s": 1}, {"n": 3, "s": 50}, {"n": 0, "s": 5}])
def test_symbolic_dims(env):
    n, s = dims.sym("n"), dims.sym("s")
    a, b = TensorSpec(DType.FP32, (n, s, 24)), TensorSpec(DType.FP32, (n, 20, s, 4))
    cases = [
        Case(node("ReduceMean", [a], axes=axes), TACTIC, env=env)
        for axes in ((1,), (2,), (1, 2), (0,))
    ]
    cases[3].node = node("ReduceSum", [a], axes=(0,))
    check_all([*cases, Case(node("GlobalAveragePool", [b]), TACTIC, env=env)])


def test_long_sums_keep_their_accuracy():
    x = _f32(3, 100000) + 1
    check(node("ReduceMean", [x], axes=(1,)), TACTIC, [x], budget=1e-6)
    y = np.ascontiguousarray(x[:, :20000].T)
    check(node("ReduceMean", [y], axes=(0,)), TACTIC, [y], budget=1e-5)


def test_what_it_rejects():
    x = _f32(4, 6)
    wide = fused(
        [x, _f32(4, 6)], [("ReduceSum", [0], {"axes": (1,)}), ("Add", [2, 1], {})], anchor=0
    )
    found = asked.variants(TACTIC, wide, devices()[0])
    assert isinstance(found, Reject)
    assert "another shape" in found.reason
    flags = asked.variants(TACTIC, node("ReduceMax", [x > 0], axes=(0,)), devices()[0])
    assert isinstance(flags, Reject)


BEFORE = {
    "Exp": [("Exp", (0,), {})],
    "square": [("Mul", (0, 0), {})],
    "square of the size": [("Abs", (0,), {}), ("Mul", (1, 1), {})],
}


@pytest.mark.parametrize("device", devices(), ids=lambda d: d.name)
@pytest.mark.parametrize("before", sorted(BEFORE))
def test_what_stands_before_is_passed_through_while_loading(device, before):
    """Lanes past an end must not count, though what is computed of nothing is not nothing."""
    cases = []
    steps = BEFORE[before]
    shapes = [
        ((7, 101), (1,)),
        ((7, 101), (0,)),
        ((2, 3, 5, 7), (2, 3)),
        ((1, 5), (0, 1)),
        ((3, 0), (1,)),
    ]
    for (shape, axes), op in itertools.product(shapes, ("ReduceSum", "ReduceMean", "ReduceMax")):
        if op != "ReduceSum" and 0 in shape:
            continue
        x = _f32(*shape)
        own = len(steps)
        nodes = [*steps, (op, (own,), {"axes": axes}), ("Relu", (own + 1,), {})]
        n = fused([x], nodes, anchor=own)
        cases.append(Case(n, TACTIC, [x], device=device, nt=(1, 3)))
    check_all(cases)


@pytest.mark.parametrize("code", ["f16", "bf16"])
def test_halves_are_passed_through_wide(code):
    x = _f32(6, 37).astype(DType(code).numpy)
    check(
        fused([x], [("Abs", (0,), {}), ("ReduceSum", (1,), {"axes": (1,)})], anchor=1), TACTIC, [x]
    )


@pytest.mark.parametrize("device", devices(), ids=lambda d: d.name)
def test_what_stands_before_may_read_a_number_for_each_result(device):
    """As the variance reads the mean."""
    cases = []
    shapes = [
        ((7, 101), (1,)),
        ((7, 101), (0,)),
        ((7, 150), (0,)),
        ((2, 3, 5, 7), (2, 3)),
        ((2, 19, 5, 3), (0, 2)),
        ((3, 4, 37), (0, 2)),
        ((1, 5), (0, 1)),
        ((3, 0), (1,)),
    ]
    for (shape, axes), keepdims in itertools.product(shapes, (False, True)):
        x = _f32(*shape)
        mean = _f32(*(1 if i in axes else d for i, d in enumerate(shape)))
        own = ("ReduceSum", (3,), {"axes": axes, "keepdims": keepdims})
        nodes = [("Sub", (0, 1), {}), ("Mul", (2, 2), {}), own, ("Sqrt", (4,), {})]
        n = fused([x, mean], nodes, anchor=2)
        cases.append(Case(n, TACTIC, [x, mean], device=device, nt=(1, 3)))
    check_all(cases)


def test_sizes_of_what_is_read_before_may_be_told_later():
    for shape, axes in (((7, 101), (1,)), ((7, 101), (0,)), ((0, 5), (1,))):
        x = _f32(*shape)
        mean = _f32(*(1 if i in axes else d for i, d in enumerate(shape)))
        specs = [
            spec(x, ("n", "m")),
            spec(mean, tuple(1 if i in axes else s for i, s in enumerate("nm"))),
        ]
        own = ("ReduceMean", (3,), {"axes": axes, "keepdims": False})
        n = fused(specs, [("Sub", (0, 1), {}), ("Mul", (2, 2), {}), own], anchor=2)
        check(n, TACTIC, [x, mean], env=dict(zip("nm", shape, strict=True)))


def test_what_reads_more_before_is_refused():
    x = _f32(6, 37)
    two = fused([x, x], [("Mul", (0, 1), {}), ("ReduceSum", (2,), {"axes": (1,)})], anchor=1)
    wide = x.astype(np.float64)
    elements = fused([wide], [("Abs", (0,), {}), ("ReduceSum", (1,), {"axes": (1,)})], anchor=1)
    for n in (two, elements):
        assert isinstance(TACTIC.match(n, devices()[0]), Reject)
