"""c_move: every layer over ranks, dtypes, formats, symbolic dims."""

from __future__ import annotations

import itertools

import asked
import numpy as np
import pytest
from harness import NATIVE, Case, check, check_all, devices, fused, node

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.base.tensor import NHWC, TensorSpec, blocked
from tactix.contracts.tactic import Reject
from tactix_cpu.tactics.move.move import CpuMoveTactic

TACTIC = CpuMoveTactic()
CODES = ["f64", "f32", "f16", "bf16", "i64", "i8", "bool", "c64", "f8e4m3"]


def _f32(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _formats(variants) -> set[str]:
    return {v.output_format(0).name for v in variants}


@pytest.mark.parametrize("device", devices(), ids=lambda d: d.name)
@pytest.mark.parametrize("shape", [(3, 5, 2, 37), (2, 16, 3, 32), (1, 33, 1, 17)])
def test_every_order_of_four_axes(device, shape):
    x = _f32(*shape)
    orders = list(itertools.permutations(range(4)))
    check_all(
        [
            Case(node("Transpose", [x], perm=p), TACTIC, [x], device=device, nt=(1, 3))
            for p in orders
        ]
    )


@pytest.mark.parametrize("code", CODES)
def test_transpose_in_every_width(code):
    x = np.random.default_rng(0).integers(0, 2, (3, 40, 19)).astype(DType(code).numpy)
    check_all(
        [
            Case(node("Transpose", [x], perm=p), TACTIC, [x])
            for p in ((0, 2, 1), (2, 1, 0), (1, 0, 2))
        ]
    )


@pytest.mark.parametrize("code", CODES)
def test_other_layers_in_every_width(code):
    x = np.random.default_rng(0).integers(0, 2, (3, 6, 5)).astype(DType(code).numpy)
    cases = [
        node("Reshape", [x], shape=(9, 10)), node("Concat", [x, x[:, :1].copy()], axis=1),
        node("Split", [x], axis=1, sizes=(1, 5)),
        node("Slice", [x], begins=(1, 4), sizes=(2, 3), axes=(0, 2), steps=(1, -2)),
        node("Expand", [x], shape=(2, 3, 6, 5)), node("Tile", [x], repeats=(2, 1, 3)),
        node("Pad", [x], pads=(0, 1, 2, 3, 0, 1), value=1.0),
    ]  # fmt: skip
    inputs = [[x], [x, x[:, :1].copy()], [x], [x], [x], [x], [x]]
    check_all([Case(n, TACTIC, a, nt=(1, 2, 3)) for n, a in zip(cases, inputs, strict=True)])


@pytest.mark.parametrize("axis", [0, 1, 2, 3, -1])
def test_concat_and_split_along_every_axis(axis):
    parts = []
    for i, size in enumerate((16, 32, 1 if axis != 1 else 48)):
        shape = [2, 16, 4, 6]
        shape[axis] = size
        parts.append(_f32(*shape, seed=i))
    found = check(node("Concat", parts, axis=axis), TACTIC, parts)
    assert len(found) == 3
    whole = np.concatenate(parts, axis=axis)
    sizes = tuple(p.shape[axis] for p in parts)
    assert len(check(node("Split", [whole], axis=axis, sizes=sizes), TACTIC, [whole])) == 3


def test_concat_along_channels_is_blocked_only_if_no_block_is_torn():
    a, b = _f32(2, 6, 3, 3), _f32(2, 26, 3, 3)
    assert _formats(check(node("Concat", [a, b], axis=1), TACTIC, [a, b])) == {"linear", "nhwc"}
    c = _f32(2, 6, 5, 3)
    assert len(check(node("Concat", [a, c], axis=2), TACTIC, [a, c])) == 3


def test_concat_of_one_of_none_and_of_many():
    x, empty = _f32(3, 4), _f32(3, 0)
    many = [_f32(3, i % 4, seed=i) for i in range(20)]
    cases = [[x], [x, empty, x], [empty], many]
    check_all([Case(node("Concat", parts, axis=1), TACTIC, parts) for parts in cases])


@pytest.mark.parametrize(("begins", "sizes", "axes", "steps"), [
    ((1,), (2,), (0,), (1,)), ((0, 2), (3, 5), (1, 3), (2, 3)), ((4,), (5,), (3,), (-1,)), ((16,), (16,), (1,), (1,)),
    ((3, 6, 0), (4, 2, 0), (1, 2, 3), (1, -4, 1)), ((31,), (32,), (1,), (-1,)), ((1, 1), (1, 30), (2, 1), (1, 1)),
])  # fmt: skip
def test_slices(begins, sizes, axes, steps):
    x = _f32(3, 32, 8, 20)
    check(node("Slice", [x], begins=begins, sizes=sizes, axes=axes, steps=steps), TACTIC, [x])


@pytest.mark.parametrize(("axes", "begins"), [
    ((1,), (16,)), ((2, -1), (3, 7)), ((0, 1, 2, 3), (1, 2, 3, 4)), ((3,), (0,)), ((2,), (8,)), ((), ()),
])  # fmt: skip
def test_rolls(axes, begins):
    x = _f32(3, 32, 8, 20)
    check(node("Roll", [x], axes=axes, begins=begins), TACTIC, [x])


@pytest.mark.parametrize(("shape", "blocks"), [
    ((2, 64, 3, 5), (2, 2)), ((1, 96, 4, 2), (3, 2)), ((2, 12, 3, 4), (2, 1)), ((3, 32, 7), (2,)),
    ((1, 128, 2, 3, 2), (2, 2, 2)),    ((0, 16, 3, 5), (2, 2)), ((2, 64, 0, 5), (2, 2)), ((1, 16, 1, 1), (4, 4)),
])  # fmt: skip
def test_channels_become_pixels(shape, blocks):
    x = _f32(*shape)
    check(node("DepthToSpace", [x], blocks=blocks), TACTIC, [x])


@pytest.mark.parametrize("env", [{"n": 1, "h": 3}, {"n": 2, "h": 0}])
def test_channels_become_pixels_of_open_sizes(env):
    x = TensorSpec(DType.FP32, (dims.sym("n"), 64, dims.sym("h"), 5))
    check(node("DepthToSpace", [x], blocks=(2, 2)), TACTIC, env=env)


@pytest.mark.parametrize("env", [{"n": 5, "b": 0}, {"n": 5, "b": 3}, {"n": 5, "b": 5}])
def test_rolls_by_an_open_number(env):
    x = TensorSpec(DType.FP32, (2, dims.sym("n"), 6))
    check(node("Roll", [x], axes=(1, 2), begins=(dims.sym("b"), 2)), TACTIC, env=env)


@pytest.mark.parametrize("pads", [
    (0, 0, 1, 2, 0, 0, 3, 4), (1, 0, 0, 0, 0, 0, 0, 0), (0, 16, 0, 0, 0, 32, 0, 0), (0, 1, 0, 0, 0, 2, 0, 0),
    (0, 0, -1, 2, 0, 0, 1, -3), (0, -16, 0, 0, 0, 0, 0, 0), (0,) * 8,
])  # fmt: skip
@pytest.mark.parametrize("value", [0.0, -1.5])
def test_pads(pads, value):
    x = _f32(2, 32, 5, 6)
    assert len(check(node("Pad", [x], pads=pads, value=value), TACTIC, [x])) >= 2


def test_pads_around_partial_blocks_are_blocked_only_if_zero():
    x = _f32(2, 5, 4, 4)
    pads = (0, 0, 1, 1, 0, 0, 1, 1)
    assert blocked(NATIVE.lanes).name in _formats(check(node("Pad", [x], pads=pads), TACTIC, [x]))
    assert _formats(check(node("Pad", [x], pads=pads, value=2.0), TACTIC, [x])) == {
        "linear",
        NHWC.name,
    }


@pytest.mark.parametrize(
    "shapes",
    [((3, 1, 5), (3, 4, 5)), ((5,), (3, 4, 5)), ((1,), (300,)), ((), (2, 3)), ((3, 1), (1, 70))],
)
def test_expand(shapes):
    x = np.asarray(_f32(*shapes[0]))
    check(node("Expand", [x], shape=shapes[1]), TACTIC, [x])


@pytest.mark.parametrize("env", [{"n": 1, "s": 1}, {"n": 3, "s": 20}, {"n": 0, "s": 4}])
def test_symbolic_dims(env):
    n, s = dims.sym("n"), dims.sym("s")
    x = TensorSpec(DType.FP32, (n, s, 12, 8))
    cases = [
        node("Transpose", [x], perm=(0, 2, 1, 3)), node("Transpose", [x], perm=(0, 2, 3, 1)),
        node("Reshape", [x], shape=(n, s, 96)), node("Concat", [x, x], axis=1), node("Concat", [x, x], axis=2),
        node("Split", [x], axis=2, sizes=(4, 8)), node("Slice", [x], begins=(0,), sizes=(s,), axes=(1,), steps=(1,)),
        node("Expand", [TensorSpec(DType.FP32, (n, 1, 12, 8))], shape=(n, s, 12, 8)),
        node("Tile", [x], repeats=(1, 2, 1, s)),
        node("Pad", [x], pads=(0, s, 0, 0, 0, 0, 1, 1)),
    ]  # fmt: skip
    check_all([Case(c, TACTIC, env=env) for c in cases])


def test_what_it_rejects():
    x = _f32(3, 4)
    epilogue = fused([x], [("Transpose", [0], {"perm": (1, 0)}), ("Relu", [1], {})], anchor=0)
    assert "epilogue" in _reason(epilogue)
    assert "reflect" in _reason(node("Pad", [x], pads=(1, 0, 0, 0), mode="reflect"))
    assert "str" in _reason(node("Transpose", [TensorSpec(DType.STRING, (2, 3))], perm=(1, 0)))


def _reason(n) -> str:
    found = asked.variants(TACTIC, n, NATIVE)
    assert isinstance(found, Reject)
    return found.reason


@pytest.mark.parametrize("size", [0, 1, 2, 5])
def test_pads_that_cut_past_the_input(size: int) -> None:
    x = np.random.default_rng(size).standard_normal((3, size), np.float32)
    pads = [(b, a) for b in (-3, -1, 0, 2, 4) for a in (-4, -1, 0, 3) if size + b + a >= 0]
    check_all([Case(node("Pad", [x], pads=(0, b, 0, a), value=0.5), TACTIC, [x]) for b, a in pads])
