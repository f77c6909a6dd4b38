"""c_grid_sample: modes, paddings, axes, dtypes, places far outside, symbolic dims."""

from __future__ import annotations

from typing import Any

import asked
import numpy as np
import pytest
from harness import NATIVE, Case, check, check_all, node

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.base.errors import ShapeError
from tactix.base.tensor import TensorSpec
from tactix.contracts.tactic import CompileContext, Reject
from tactix_cpu.tactics.sample.grid import CpuGridSampleTactic

TACTIC = CpuGridSampleTactic()
PADDINGS = ("zeros", "border", "reflection")


def _x(*shape: int, code: str = "f32") -> Any:
    made = np.random.default_rng(1).standard_normal(shape) * 9
    return made.astype(DType(code).numpy)


def _grid(*shape: int, code: str = "f32", reach: float = 1.3) -> Any:
    made = np.random.default_rng(2).uniform(-reach, reach, shape)
    return made.astype(DType(code).numpy)


def _case(x: Any, grid: Any, **attrs: Any) -> Case:
    return Case(node("GridSample", [x, grid], **attrs), TACTIC, [x, grid], nt=(1, 3))


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_modes_and_paddings(mode, padding, align):
    attrs = {"mode": mode, "padding_mode": padding, "align_corners": align}
    cases = [
        _case(_x(2, 3, 7, 9), _grid(2, 11, 13, 2), **attrs),
        _case(_x(1, 2, 1, 5), _grid(1, 3, 50, 2, reach=4.0), **attrs),
        _case(_x(2, 2, 6), _grid(2, 37, 1), **attrs),
        _case(_x(1, 2, 3, 4, 5), _grid(1, 2, 5, 9, 3), **attrs),
    ]
    check_all(cases)


@pytest.mark.parametrize("grid", ["f32", "f16", "f64"])
@pytest.mark.parametrize("code", ["f16", "bf16", "f64"])
def test_dtypes(code, grid):
    x, places = _x(2, 3, 7, 9, code=code), _grid(2, 5, 21, 2, code=grid)
    check_all([_case(x, places, mode=m) for m in ("linear", "cubic", "nearest")])


@pytest.mark.parametrize("code", ["i32", "u8", "bool", "i16"])
def test_the_nearest_of_other_numbers(code):
    x = _x(2, 3, 7, 9, code="i32").astype(DType(code).numpy)
    check(node("GridSample", [x, _grid(2, 5, 21, 2)], mode="nearest"), TACTIC)


def test_between_two_elements_the_even_one_is_nearest():
    x = np.arange(8, dtype=np.float32).reshape(1, 1, 1, 8)
    ties = (np.arange(9) * 2.0 - 8.0) / 8.0  # places -0.5, 0.5, ... 7.5
    grid = np.stack([ties, np.zeros(9)], axis=-1).astype(np.float32).reshape(1, 1, 9, 2)
    check_all([_case(x, grid, mode="nearest", padding_mode=p) for p in PADDINGS])


def test_wild_places_read_nothing_outside():
    x, grid = _x(1, 2, 7, 9), _grid(1, 5, 21, 2)
    grid[0, 0, :4, 0] = [np.inf, -np.inf, 3e38, -1e30]
    check_all([_case(x, grid, mode=m) for m in ("linear", "nearest", "cubic")])
    check_all([_case(x, grid, mode=m, padding_mode="border") for m in ("linear", "nearest")])


def test_what_lies_outside_has_no_share_in_nan():
    x = _x(1, 2, 7, 9)
    x[0, 0, 0, 0], x[0, 1, 6, 8] = np.nan, np.inf
    check(node("GridSample", [x, _grid(1, 20, 21, 2)]), TACTIC, [x, _grid(1, 20, 21, 2)])


@pytest.mark.parametrize("env", [{"n": 2, "h": 5, "k": 30}, {"n": 0, "h": 3, "k": 2}])
def test_symbolic_dims(env):
    n, h, k = (dims.sym(s) for s in "nhk")
    x = TensorSpec(DType.FP32, (n, 3, h, h))
    grid = TensorSpec(DType.FP32, (n, k, 7, 2))
    pairs = [(x, grid)]
    # all axes are open, those of volumes and the one of coordinates, too
    sizes = {"b": 2, "c": 3, "d": 4, "e": 5, "f": 6, "p": 7, "q": 1, "r": 9, "two": 2, "three": 3}
    b, c, d, e, f, p, q, r, two, three = (dims.sym(s) for s in sizes)
    for image, places in (((b, c, d, e), (b, p, q, two)), ((b, c, d, e, f), (b, p, q, r, three))):
        pairs.append((TensorSpec(DType.FP32, image), TensorSpec(DType.FP32, places)))
    check_all(
        [
            Case(node("GridSample", pair, mode=m), TACTIC, env=env | sizes)
            for m in ("nearest", "linear")
            for pair in pairs
        ]
    )


def test_another_number_of_coordinates_than_axes_is_refused():
    x, last = TensorSpec(DType.FP32, (1, 2, 5, 5)), dims.sym("last")
    with pytest.raises(ShapeError):
        node("GridSample", [x, TensorSpec(DType.FP32, (1, 3, 3, 3))])
    with dims.assumptions() as noted:
        node("GridSample", [x, TensorSpec(DType.FP32, (1, 3, 3, last))])
    assert not all(a.holds({"last": 3}) for a in noted)


def test_it_is_thought_faster_than_numpy():
    made = node("GridSample", [_x(1, 64, 32, 32), _grid(1, 32, 32, 2)])
    (variant,) = asked.variants(TACTIC, made, NATIVE)
    cost = asked.cost(TACTIC, made, variant, CompileContext(NATIVE))
    assert cost is not None
    assert cost < 20e-9 * 64 * 32 * 32


@pytest.mark.parametrize(
    ("code", "mode", "shape", "why"),
    [
        ("i32", "linear", (1, 2, 3, 4), "no linear samples of i32"),
        ("i64", "nearest", (1, 2, 3, 4), "no nearest samples of i64"),
        ("f32", "linear", (1, 2, 0, 4), "planes of 0 elements"),
    ],
)
def test_what_it_rejects(code, mode, shape, why):
    x, grid = TensorSpec(DType(code), shape), TensorSpec(DType.FP32, (1, 3, 3, 2))
    found = TACTIC.match(node("GridSample", [x, grid], mode=mode), NATIVE)
    assert isinstance(found, Reject)
    assert why in found.reason
