"""c_reformat: every pair of formats, partial blocks, dtypes, symbolic dims; and the numpy tactic's
params.
"""

from __future__ import annotations

import asked
import numpy as np
import pytest
from harness import NATIVE, Case, check_all, devices, encode_and_back, fused, node

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.base.tensor import LINEAR, NHWC, TensorSpec, blocked
from tactix.contracts import region
from tactix.contracts.region import REFORMAT
from tactix.contracts.tactic import CompileContext, Reject, Variant
from tactix_cpu.tactics.move.reformat import CpuReformatTactic
from tactix_ops.tactics.reference import ReferenceTactic

TACTIC = CpuReformatTactic()


def _f32(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def _pairs(lanes: int):
    all_formats = (LINEAR, NHWC, blocked(lanes))
    return [(a, b) for a in all_formats for b in all_formats]


@pytest.mark.parametrize("device", devices(), ids=lambda d: d.name)
@pytest.mark.parametrize(
    "shape", [(2, 32, 5, 7), (1, 3, 4, 9), (2, 35, 1, 1), (1, 20, 40), (3, 17), (0, 4, 3)], ids=str
)
def test_every_pair_of_formats(device, shape):
    x = _f32(*shape)
    check_all(
        [
            Case(node(REFORMAT, [x], source=a, target=b), TACTIC, [x], device=device, nt=(1, 3))
            for a, b in _pairs(device.lanes)
        ]
    )


@pytest.mark.parametrize("code", ["f64", "f16", "i8", "bool", "bf16"])
def test_other_widths(code):
    x = np.random.default_rng(0).integers(0, 2, (2, 20, 3, 7)).astype(DType(code).numpy)
    check_all([Case(node(REFORMAT, [x], source=a, target=b), TACTIC, [x]) for a, b in _pairs(16)])


@pytest.mark.parametrize("device", devices(), ids=lambda d: d.name)
@pytest.mark.parametrize(("code", "lanes"), [("u8", 64), ("i8", 16), ("bf16", 32), ("f16", 8)])
def test_short_elements_are_turned_in_squares(device, code, lanes):
    """Whole squares, what is left of pixels and channels, and both."""
    shapes = [(1, 64, 8, 8), (2, 70, 5, 9), (1, 3, 33), (2, 32, 7), (0, 64, 4, 4)]
    cases = []
    for shape in shapes:
        x = np.random.default_rng(0).integers(0, 99, shape).astype(DType(code).numpy)
        for a, b in ((LINEAR, blocked(lanes)), (blocked(lanes), LINEAR)):
            made = node(REFORMAT, [x], source=a, target=b)
            cases.append(Case(made, TACTIC, [x], device=device, nt=(1, 3)))
    check_all(cases)


@pytest.mark.parametrize("device", devices(), ids=lambda d: d.name)
@pytest.mark.parametrize("code", ["u8", "bf16", "f32"])
def test_tiles_reach_no_further_than_tensors(device, code):
    """Channels and pixels that are whole tiles, fewer than one, and no multiple of one."""
    shapes = [
        (1, 64, 8, 8),
        (2, 17, 3, 11),
        (1, 3, 40),
        (1, 40, 5),
        (1, 9, 9),
        (2, 31, 1),
        (0, 64, 4),
    ]
    cases = []
    for shape in shapes:
        x = np.random.default_rng(0).integers(0, 99, shape).astype(DType(code).numpy)
        for a, b in ((LINEAR, NHWC), (NHWC, LINEAR)):
            made = node(REFORMAT, [x], source=a, target=b)
            cases.append(Case(made, TACTIC, [x], device=device, nt=(1, 3)))
    check_all(cases)


def test_blocks_that_are_not_the_devices():
    x = _f32(2, 20, 3, 7)
    pairs = [
        (LINEAR, blocked(4)),
        (blocked(4), LINEAR),
        (NHWC, blocked(6)),
        (blocked(6), NHWC),
        (LINEAR, blocked(5)),
    ]
    check_all([Case(node(REFORMAT, [x], source=a, target=b), TACTIC, [x]) for a, b in pairs])


@pytest.mark.parametrize(
    "shape", [(2, 64, 3, 5), (1, 20, 7), (3, 100), (2, 0, 3), (1, 130, 2, 2)], ids=str
)
def test_blocks_of_blocks(shape):
    pairs = [(blocked(a), blocked(b)) for a, b in ((16, 64), (64, 16), (8, 24), (8, 4))]
    rng = np.random.default_rng(1)
    for code in ("i8", "f32"):
        x = rng.integers(1, 100, shape).astype(DType(code).numpy)
        check_all(
            [
                Case(node(REFORMAT, [x], source=a, target=b), TACTIC, [x], nt=(1, 3))
                for a, b in pairs
            ]
        )


@pytest.mark.parametrize("env", [{"n": 1, "c": 1, "s": 1}, {"n": 2, "c": 35, "s": 6}])
def test_symbolic_dims(env):
    x = TensorSpec(DType.FP32, tuple(dims.sym(s) for s in ("n", "c", "s", "s")))
    check_all(
        [
            Case(node(REFORMAT, [x], source=a, target=b), TACTIC, env=env)
            for a, b in _pairs(NATIVE.lanes)
        ]
    )


def test_what_it_rejects():
    x = _f32(2, 20, 3)
    assert isinstance(
        asked.variants(TACTIC, node(REFORMAT, [x], source=blocked(8), target=blocked(12)), NATIVE),
        Reject,
    )
    assert isinstance(
        asked.variants(TACTIC, node(REFORMAT, [x[0, 0]], target=NHWC), NATIVE), Reject
    )


def test_the_numpy_tactic_takes_everything_and_costs_more():
    x = _f32(3, 5)
    n = fused([x], [("Relu", [0], {}), ("Transpose", [1], {"perm": (1, 0)})], anchor=1)
    tactic, ctx = ReferenceTactic(), CompileContext(NATIVE)
    (variant,) = asked.variants(tactic, n, NATIVE)
    artifact = asked.artifact(tactic, n, variant, ctx)
    assert not artifact.host_code
    assert artifact.params == region.encode(n.layer, n.attrs)
    assert encode_and_back(n)[1] == n.body
    plain = node(REFORMAT, [x])
    assert asked.cost(tactic, plain, Variant(), ctx) > asked.cost(TACTIC, plain, Variant(), ctx)


def test_the_numpy_tactic_says_where_inputs_are_absent():
    x = _f32(2, 3, 4, 4)
    n = node("Convolution", [x, _f32(5, 3, 1, 1), None])
    artifact = ReferenceTactic().compile(n, Variant(), CompileContext(NATIVE))
    assert artifact.params["body"]["nodes"][0]["inputs"] == [0, 1, -1]
