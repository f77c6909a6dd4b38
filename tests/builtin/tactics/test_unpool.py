"""c_unpool and c_columns: places, larger and smaller results, geometry, dtypes, wild places."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from harness import COMPILER, NATIVE, Case, Run, _compile, _library, check_all, node, opened

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.base.errors import ShapeError
from tactix.base.tensor import TensorSpec
from tactix.contracts.tactic import Reject
from tactix_cpu.tactics.pool.told_columns import CpuOpenColumnsTactic, CpuToldColumnsTactic
from tactix_cpu.tactics.pool.unpool import CpuColumnsTactic, CpuToldUnpoolTactic, CpuUnpoolTactic

UNPOOL, TOLD, COLUMNS = CpuUnpoolTactic(), CpuToldUnpoolTactic(), CpuColumnsTactic()
TOLD_COLUMNS, OPEN_COLUMNS = CpuToldColumnsTactic(), CpuOpenColumnsTactic()
RNG = np.random.default_rng(11)


def _x(*shape: int, code: str = "f32") -> Any:
    return (RNG.standard_normal(shape) * 9).astype(DType(code).numpy)


def _unpool(x: Any, small: tuple[int, ...], shape: Any = None, index: str = "i64") -> Case:
    places = RNG.permutation(int(np.prod(small)))[: x.size].reshape(x.shape)
    arrays = [x, places.astype(DType(index).numpy)]
    attrs = {"kernel_shape": (2,) * (x.ndim - 2), "strides": (2,) * (x.ndim - 2)}
    if shape is None:
        return Case(node("MaxUnpool", [*arrays, None], **attrs), UNPOOL, arrays, nt=(1, 3))
    arrays.append(np.array(shape))
    return Case(node("MaxUnpool", arrays, (2,), **attrs), UNPOOL, arrays, nt=(1, 3))


@pytest.mark.parametrize("code", ["f32", "f16", "f64", "i8", "bool"])
def test_elements_go_to_their_places(code):
    x = _x(2, 3, 4, 5, code=code)
    check_all(
        [
            _unpool(x, (2, 3, 8, 10)),
            _unpool(x, (2, 3, 8, 10), (2, 3, 8, 10), "i32"),
            _unpool(x, (2, 3, 8, 10), (2, 3, 11, 13)),
            _unpool(x, (2, 3, 8, 10), (2, 4, 6, 12)),
            _unpool(_x(1, 2, 7, code=code), (1, 2, 14)),
        ]
    )


def test_of_elements_with_one_place_the_last_counts():
    x, places = _x(1, 1, 2, 2), np.array([[[[3, 5], [3, -1]]]])
    made = node("MaxUnpool", [x, places, None], kernel_shape=(2, 2), strides=(2, 2))
    check_all([Case(made, UNPOOL, [x, places], nt=(1, 3))])


def test_wild_places_are_reported_and_write_nothing():
    x, places = _x(1, 1, 2, 2), np.array([[[[16, 5], [-17, 2**40]]]])
    made = node("MaxUnpool", [x, places, None], kernel_shape=(2, 2), strides=(2, 2))
    case = Case(made, UNPOOL, [x, places])
    ((variant, artifact),) = _compile(case)
    (binary,) = COMPILER.compile([artifact.code], NATIVE)
    run = Run(case.node, variant, artifact, {})
    (y,) = run(getattr(_library(binary), binary.symbol), [x, places], 1)
    assert y.flat[5] == x[0, 0, 0, 1]
    assert np.count_nonzero(y) == 1
    assert run.fault.array(np.int64, (5,))[:3].tolist() == [1, 16, 16]


@pytest.mark.parametrize("shape", [(2, 3, 8, 10), (2, 3, 11, 13), (2, 4, 6, 0)])
def test_a_shape_that_only_running_tells(shape):
    case = _unpool(_x(2, 3, 4, 5), (2, 3, 8, 10))
    assert case.arrays is not None
    arrays = [*case.arrays, np.array(shape)]
    made = node("MaxUnpool", arrays, kernel_shape=(2, 2), strides=(2, 2))
    check_all([Case(made, TOLD, arrays, nt=(1, 3))])


def test_a_shape_below_nothing_is_refused():
    case = _unpool(_x(1, 1, 2, 2), (1, 1, 4, 4))
    assert case.arrays is not None
    arrays = [*case.arrays, np.array([1, 1, -4, 4])]
    made = node("MaxUnpool", arrays, kernel_shape=(2, 2), strides=(2, 2))
    ((variant, artifact),) = _compile(Case(made, TOLD, arrays))
    (binary,) = COMPILER.compile([artifact.code], NATIVE)
    run = Run(made, variant, artifact, {f"unpool_{i}": 0 for i in range(4)})
    run(getattr(_library(binary), binary.symbol), arrays, 1)
    assert run.fault.array(np.int64, (5,)).tolist()[:2] == [2, -4]


@pytest.mark.parametrize("n", [0, 2])
def test_unpooling_of_a_batch_that_only_running_tells(n):
    b = dims.sym("b")
    x, places = TensorSpec(DType.FP32, (b, 2, 3, 3)), TensorSpec(DType.INT64, (b, 2, 3, 3))
    made = node("MaxUnpool", [x, places, None], kernel_shape=(2, 2), strides=(2, 2))
    arrays = [_x(n, 2, 3, 3), RNG.permutation(n * 72)[: n * 18].reshape(n, 2, 3, 3)]
    specs, env = opened(*arrays)
    each = node("MaxUnpool", [*specs, None], kernel_shape=(2, 2), strides=(2, 2))
    check_all([Case(m, UNPOOL, arrays, env={"b": n} | env, nt=(1, 3)) for m in (made, each)])


def _columns(
    batch: int,
    channels: int,
    image: tuple[int, ...],
    taps: tuple[int, ...],
    code: str,
    **attrs: Any,
) -> Case:
    n = len(image)
    strides, dilations = attrs.get("strides", (1,) * n), attrs.get("dilations", (1,) * n)
    pads = attrs.get("pads", (0,) * 2 * n)
    out = [
        (image[i] + pads[i] + pads[n + i] - dilations[i] * (taps[i] - 1) - 1) // strides[i] + 1
        for i in range(n)
    ]
    x = _x(batch, channels * int(np.prod(taps)), int(np.prod(out)), code=code)
    arrays = [x, np.array(image), np.array(taps)]
    return Case(node("Col2Im", arrays, (1, 2), **attrs), COLUMNS, arrays, nt=(1, 3), budget=None)


@pytest.mark.parametrize("code", ["f32", "f16", "bf16", "f64", "i32", "i8"])
def test_columns_are_added_up(code):
    check_all(
        [
            _columns(2, 3, (7, 40), (3, 2), code),
            _columns(1, 2, (9, 11), (3, 3), code, strides=(2, 3), pads=(1, 2, 0, 1)),
            _columns(1, 2, (12, 31), (2, 3), code, dilations=(3, 2), pads=(0, 4, 2, 0)),
            _columns(2, 2, (20,), (4,), code, strides=(3,)),
            _columns(1, 2, (4, 5, 6), (2, 2, 3), code, strides=(1, 2, 1)),
            _columns(0, 2, (5, 5), (2, 2), code),
        ]
    )


@pytest.mark.parametrize("code", ["f32", "f16", "i32"])
def test_columns_whose_axes_only_running_tells(code):
    """Image and block are known; that the columns are theirs is asked for."""
    b, c, w = (dims.sym(name) for name in "bcw")
    cases = []
    for batch, channels in ((2, 3), (0, 1), (1, 0)):
        case = _columns(batch, channels, (9, 11), (3, 2), code, strides=(2, 1), pads=(1, 2, 0, 1))
        assert case.arrays is not None
        x, image, taps = case.arrays
        spec = TensorSpec(DType(code), (b, c, w))
        attrs = {k: getattr(case.node.attrs, k) for k in ("strides", "pads", "dilations")}
        made = node("Col2Im", [spec, image, taps], (1, 2), **attrs)
        env = dict(zip("bcw", x.shape, strict=True))
        arrays = [x, image, taps]
        cases.append(Case(made, COLUMNS, arrays, env=env, nt=(1, 3), budget=None))
    check_all(cases)


@pytest.mark.parametrize("code", ["f32", "f16", "i32"])
def test_columns_of_large_blocks_and_of_such_as_shapes_tell(code):
    cases = [_columns(2, 3, (9, 40), (9, 8), code), _columns(0, 2, (70,), (65,), code, pads=(3, 2))]
    cases = [replace(c, tactic=OPEN_COLUMNS) for c in cases]
    high, wide = dims.sym("high"), dims.sym("wide")
    for shape in ((3, 2), (1, 4), (9, 8)):
        x = _x(2, 5 * shape[0] * shape[1], 6 * 7, code=code)
        spec = TensorSpec(DType(code), (2, 5 * high * wide, 6 * 7))
        image, taps = (
            TensorSpec(DType.INT64, (2,), v) for v in ((5 + high, 6 + wide), (high, wide))
        )
        arrays = [x, np.add(shape, (5, 6)), np.array(shape)]
        env = {"high": shape[0], "wide": shape[1]}
        cases.append(Case(node("Col2Im", [spec, image, taps]), OPEN_COLUMNS, arrays, env=env))
    check_all(cases)


def test_columns_with_loops_of_their_own_are_left_to_others():
    case = _columns(1, 2, (5, 5), (2, 2), "f32")
    assert isinstance(OPEN_COLUMNS.match(case.node, NATIVE), Reject)
    told = node("Col2Im", list(case.arrays or []))
    assert isinstance(OPEN_COLUMNS.match(told, NATIVE), Reject)


@pytest.mark.parametrize("known", [(), (1,), (2,)])
@pytest.mark.parametrize("code", ["f32", "f16", "f64", "i32"])
def test_columns_of_sizes_in_tensors(code, known):
    cases = []
    for case in (
        _columns(2, 3, (7, 40), (3, 2), code),
        _columns(1, 2, (9, 11), (3, 3), code, strides=(2, 3), pads=(1, 2, 0, 1)),
        _columns(2, 2, (20,), (4,), code, strides=(3,), dilations=(2,)),
        _columns(1, 2, (4, 5, 6), (2, 2, 3), code),
    ):
        assert case.arrays is not None
        attrs = {k: getattr(case.node.attrs, k) for k in ("strides", "pads", "dilations")}
        made = node("Col2Im", list(case.arrays), known, **attrs)
        cases.append(Case(made, TOLD_COLUMNS, case.arrays, nt=(1, 3)))
    check_all(cases)


@pytest.mark.parametrize(
    ("image", "taps", "number"),
    [((5, 5), (3, 3), 8), ((5, 6), (2, 2), 16), ((5, 5), (0, 2), 8), ((-9, 5), (2, 2), 16)],
)
def test_columns_that_do_not_fit_the_image_are_refused(image, taps, number):
    arrays = [_x(1, 8, 16), np.array(image), np.array(taps)]
    made = node("Col2Im", arrays)
    ((variant, artifact),) = _compile(Case(made, TOLD_COLUMNS, arrays))
    (binary,) = COMPILER.compile([artifact.code], NATIVE)
    run = Run(made, variant, artifact, {"image_c": 0, "image_0": 0, "image_1": 0})
    run(getattr(_library(binary), binary.symbol), arrays, 1)
    assert run.fault.array(np.int64, (5,)).tolist()[1] == number


def test_what_they_reject():
    x, places = TensorSpec(DType.FP32, (1, 2, 3, 3)), TensorSpec(DType.INT64, (1, 2, 3, 2))
    with pytest.raises(ShapeError):
        node("MaxUnpool", [x, places, None], kernel_shape=(2, 2))
    x = TensorSpec(DType.STRING, places.shape)
    found = UNPOOL.match(node("MaxUnpool", [x, places, None], kernel_shape=(2, 2)), NATIVE)
    assert isinstance(found, Reject)
    sizes = np.array([5, 5]), np.array([2, 2])
    for shape in ((1, 8, 15), (1, 9, 16)):
        with pytest.raises(ShapeError):
            node("Col2Im", [TensorSpec(DType.FP32, shape), *sizes], (1, 2))
